/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The XDP program: it gives writes their place in the Ordered Queue and acknowledges
 * them before any process has run (Juneberry, NSDI 2025; here at XDP, in the kernel's receive path).
 *
 *   frame -> parse -> read_request -> find_way -> fetch_way -> is_whole -> judge ..
 *              |          |                                       |          |
 *            PASS       PASS                                    PASS    DROP or NACK
 *
 *   .. -> claim -> reserve -> fill -> publish -> raise -> commit -> ACK (TX) or DROP
 *           |         |
 *           |     NACK Full
 *   re-ACK, DROP or PASS
 *
 * It is the twin of crates/ordered_queue/src/admission.rs, on the same words, and a test
 * holds the two to each other. What it does not take it passes to the server's socket: handshakes,
 * reads, and everything that deserves an error. An acknowledgement is sent only after the entry is
 * published, stamped and committed; a write that is not acknowledged at once is answered by the
 * server when it has executed it. */
#include "kernel.h"

#include "abi.h"
#include "answer.h"
#include "frame.h"
#include "hash.h"
#include "layout.h"
#include "queue.h"
#include "request.h"
#ifdef CURTAIL_ON_NODE
#include "route.h"
#endif
#include "settings.h"

struct settings_value {
	u64 word[CURTAIL_SETTINGS_WORDS];
};

/* A piece of a control page, the fronts of seven slots, or the rest of one. */
struct queue_value {
	u64 word[CURTAIL_VALUE_WORDS];
};

struct session_value {
	u64 word[CURTAIL_SESSION_WORDS];
};

struct counts_value {
	u64 word[CURTAIL_COUNTS];
};

/* How many queues and sessions there are, the loader says. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct settings_value);
} settings SECTION(".maps");

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct queue_value);
} queues SECTION(".maps");

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_NUMBER(max_entries, CURTAIL_STAMP_WORDS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} stamps SECTION(".maps");

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct session_value);
} sessions SECTION(".maps");

struct {
	MAP_NUMBER(type, MAP_PERCPU_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct counts_value);
} counts SECTION(".maps");

#ifdef CURTAIL_ON_NODE
/* Of each slice whether a write may be accepted: 1 while its gate is open. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(map_flags, MAP_MMAPABLE);
	MAP_NUMBER(max_entries, SLICES);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} gates SECTION(".maps");
#endif

#define CONTROL_VALUES (u32)(CURTAIL_CONTROL_WORDS / CURTAIL_VALUE_WORDS)
#define FRONTS (u32)(CURTAIL_VALUE_WORDS / CURTAIL_FRONT_WORDS) /* in a value */
#define STAMP_SHIFT 48

_Static_assert(FRONTS == 7, "what `seventh` divides by");

_Static_assert(CURTAIL_CONTROL_FULL < CURTAIL_VALUE_WORDS, "what is used lies in the first value");
_Static_assert(CURTAIL_STAMP_WORDS == 1ULL << (64 - STAMP_SHIFT), "the bucket is the hash's top");

INLINE int counted(u32 what, int fate)
{
	u32 zero = 0;
	struct counts_value *value = map_lookup(&counts, &zero);

	if (value)
		value->word[what]++;
	return fate;
}

/* Where everything is that a write meets. */
struct way {
	const u64 *settings;
	u64 *control;
	u64 *stamp;
	u64 *session;
#ifdef CURTAIL_ON_NODE
	u64 *gate;
#endif
	u64 now_ns;
	u32 first; /* the queue's first value */
	u16 queue;
};

/* A seventh, for numbers of slots: a multiplication where the processor would take its time. */
INLINE u32 seventh(u32 number)
{
	return number * 0x24924925ULL >> 32;
}

/* The values of a queue that hold fronts. */
INLINE u32 front_values(u32 slots)
{
	return seventh(slots + FRONTS - 1);
}

/* The front of the slot at a position. */
INLINE u64 *front_of(const struct way *way, u64 pos)
{
	u32 slot = pos & (way->settings[CURTAIL_SETTINGS_SLOTS] - 1);
	u32 value = seventh(slot), place = slot - FRONTS * value;
	u64 *words;

	value += way->first + CONTROL_VALUES;
	words = map_lookup(&queues, &value);
	HERE(place);
	if (!words || place >= FRONTS)
		return 0;
	return words + place * CURTAIL_FRONT_WORDS;
}

/* The rest of the slot at a position. */
INLINE u64 *rest_of(const struct way *way, u64 pos)
{
	u32 slots = way->settings[CURTAIL_SETTINGS_SLOTS];
	u32 value = way->first + CONTROL_VALUES + front_values(slots) + (pos & (slots - 1));

	return map_lookup(&queues, &value);
}

INLINE int find_way(const struct request *request, struct way *way)
{
	u32 bits = way->settings[CURTAIL_SETTINGS_QUEUE_BITS];
	u32 slots = way->settings[CURTAIL_SETTINGS_SLOTS];
	u32 bucket = request->key_hash >> STAMP_SHIFT;
	u32 index = request->name;

	/* Two shifts, since one by 64 means nothing. */
	way->queue = request->key_hash >> 1 >> (63 - (bits & 63));
	way->first = way->queue * (CONTROL_VALUES + front_values(slots) + slots);
	way->control = map_lookup(&queues, &way->first);
	way->stamp = map_lookup(&stamps, &bucket);
	way->session = map_lookup(&sessions, &index);
	return way->control && way->stamp;
}

#ifdef CURTAIL_ON_NODE
/* The gate of the key's slice, and the hash by which a node's queues know the key. */
INLINE int find_gate(struct xdp_md *context, const struct parsed *parsed, struct request *request,
		     struct way *way)
{
	const u64 *seed = way->settings + CURTAIL_SETTINGS_SECRET;
	u64 route;
	u32 slice;

	if (request->key_bytes > ROUTE_KEY_BYTES_MAX)
		return 0;
	route = route_of(context, parsed->at + CURTAIL_HEADER_BYTES, request->key_bytes);
	slice = route >> SLICE_SHIFT;
	way->gate = map_lookup(&gates, &slice);
	request->key_hash = keyed_route(route, seed[0], seed[1]);
	return way->gate != 0;
}
#endif

/* What the steps will meet is fetched before the checksum is computed, all at once, because behind
 * each atomic step it would be waited for by itself. Not the slot: it is written and not read, and
 * a line that came to be read, from where the executor has it, would be asked for once more. */
INLINE void fetch_way(const struct request *request, const struct way *way)
{
	fetch(way->control + CURTAIL_CONTROL_CREDITS);
	own(way->control + CURTAIL_CONTROL_BELL + 1);
	fetch(way->stamp);
	if (way->session) {
		fetch(way->session);
		fetch(way->session + CURTAIL_SESSION_HEADER_WORDS + 2 * (request->slot & 63));
	}
}

/* A session that is used lasts; its word is written only when an eighth of the lease has passed. */
INLINE void renew(const struct way *way)
{
	u64 *used = way->session + CURTAIL_SESSION_USED_NS;
	u64 used_ns = read_word(used);

	if (way->now_ns > used_ns &&
	    way->now_ns - used_ns > way->settings[CURTAIL_SETTINGS_LEASE_NS] / 8)
		*(volatile u64 *)used = way->now_ns;
}

INLINE int refuse(const struct way *way, u8 reason, struct reply *reply)
{
	reply->pos = 0;
	reply->free = free_slots(way->control, way->settings[CURTAIL_SETTINGS_SLOTS]);
	reply->kind = KIND_NACK;
	reply->status = reason;
	return ANSWER_IT;
}

INLINE int acknowledge(u64 pos, u64 free, struct reply *reply)
{
	reply->pos = pos;
	reply->free = free;
	reply->kind = KIND_ACK;
	reply->status = ACK_ACCEPTED;
	return ANSWER_IT;
}

/* Steps 4 to 9, for a request that is new. */
INLINE int admit(struct xdp_md *context, const struct parsed *parsed,
		 const struct request *request, const struct way *way, const struct ticket *ticket,
		 struct reply *reply)
{
	u64 slots = way->settings[CURTAIL_SETTINGS_SLOTS];
	u64 arrived_ns = way->now_ns + read_word(way->settings + CURTAIL_SETTINGS_WALL_OFFSET_NS);
	struct place place;
	struct slot slot = {};

	if (!reserve(way->control, slots, parsed->bytes, request->nilext, &place)) {
		reopen(ticket);
		return counted(CURTAIL_COUNT_FULL, refuse(way, NACK_FULL, reply));
	}
	slot.front = front_of(way, place.pos);
	if (!slot.front) /* not as long as the map is as the loader has checked it */
		return XDP_ABORTED;
	if (parsed->bytes > 8 * FRONT_PAYLOAD_WORDS)
		slot.rest = rest_of(way, place.pos);
#ifdef CURTAIL_ON_NODE
	/* The step that gave the place was a barrier: either the gate is seen closed, or whoever
	 * closed it sees the place given out (OrderedQueue::tail_behind_a_gate). */
	if (!place.early || read_word(way->gate) != 1) {
		withdraw(way->control, &slot, &place, parsed->bytes);
		reopen(ticket);
		return counted(CURTAIL_COUNT_REFUSED, XDP_PASS);
	}
#endif
	if (!fill(context, &slot, &place, parsed, request, arrived_ns)) {
		publish(way->control, &slot, &place);
		ring(way->control, place.pos);
		if (place.early)
			__sync_fetch_and_add(way->control + CURTAIL_CONTROL_CREDITS, parsed->bytes);
		reopen(ticket);
		return counted(CURTAIL_COUNT_REFUSED, XDP_PASS);
	}
	publish(way->control, &slot, &place);
	if (!raise(way->stamp, place.pos))
		place.early = 0; /* nothing is promised that a read might miss */
	commit(ticket, place.pos, place.early);
	ring(way->control, place.pos);
	if (!place.early)
		return counted(CURTAIL_COUNT_QUEUED, XDP_DROP);
	return counted(CURTAIL_COUNT_ACCEPTED, acknowledge(place.pos, place.free, reply));
}

/* Step 3, and what it decides by itself. */
INLINE int admit_or_repeat(struct xdp_md *context, const struct parsed *parsed,
			   const struct request *request, const struct way *way,
			   struct reply *reply)
{
	u64 slots = way->settings[CURTAIL_SETTINGS_SLOTS];
	u64 *word = way->session + CURTAIL_SESSION_HEADER_WORDS + 2 * (request->slot & 63);
	struct ticket ticket;
	enum claim claimed = CLAIM_UNKNOWN;

	if (is_known(way->session, parsed, request))
		claimed = claim(word, request, &ticket);
	if (claimed == CLAIM_UNKNOWN)
		return counted(CURTAIL_COUNT_UNKNOWN, XDP_PASS);
	renew(way);
	if (claimed == CLAIM_STALE)
		return counted(CURTAIL_COUNT_STALE, XDP_DROP);
	if (claimed == CLAIM_GRANTED)
		return admit(context, parsed, request, way, &ticket, reply);
	if (claimed == CLAIM_REPLAYED || !request->nilext)
		return counted(CURTAIL_COUNT_REPLAYED, XDP_PASS);
	return counted(CURTAIL_COUNT_REPEATED,
		       acknowledge(ticket.before, free_slots(way->control, slots), reply));
}

/* Steps 1 and 2, for a request: is there a server, and does it take writes? */
INLINE int judge(struct xdp_md *context, const struct parsed *parsed,
		 const struct request *request, struct way *way, struct reply *reply)
{
	u64 beat_ns = read_word(way->control + CURTAIL_CONTROL_HEARTBEAT);
	u64 state;

	way->now_ns = tick_ns();
#ifdef CURTAIL_ON_NODE
	/* The server has what is not accepted executed, and says what is wrong. */
	state = read_word(way->control + CURTAIL_CONTROL_STATE);
	if (!request->nilext || state != CURTAIL_STATE_OPEN || read_word(way->gate) != 1)
		return XDP_PASS;
	if (way->now_ns > beat_ns &&
	    way->now_ns - beat_ns > way->settings[CURTAIL_SETTINGS_HEARTBEAT_NS_MAX])
		return counted(CURTAIL_COUNT_ABSENT, XDP_PASS);
#endif
	if (way->now_ns > beat_ns &&
	    way->now_ns - beat_ns > way->settings[CURTAIL_SETTINGS_HEARTBEAT_NS_MAX])
		return counted(CURTAIL_COUNT_ABSENT, XDP_DROP);
	state = read_word(way->control + CURTAIL_CONTROL_STATE);
	if (state != CURTAIL_STATE_OPEN && state != CURTAIL_STATE_DRAINING)
		return counted(CURTAIL_COUNT_NOT_READY, refuse(way, NACK_NOT_READY, reply));
	if (!way->session)
		return counted(CURTAIL_COUNT_UNKNOWN, XDP_PASS);
	return admit_or_repeat(context, parsed, request, way, reply);
}

SECTION("xdp.frags")
int curtail_nic(struct xdp_md *context)
{
	u32 zero = 0;
	struct settings_value *settings_value = map_lookup(&settings, &zero);
	struct way way = {};
	struct parsed parsed = {};
	struct request request = {};
	struct reply reply = {};
	int fate;

	if (!settings_value)
		return XDP_PASS;
	way.settings = settings_value->word;
	fate = parse(context, way.settings[CURTAIL_SETTINGS_PORT], &parsed);
	if (fate == XDP_DROP)
		return counted(CURTAIL_COUNT_FRAGMENTS, fate);
	if (likely(fate != TAKE_IT))
		return fate;
	if (!read_request(context, &parsed, way.settings, &request))
		return XDP_PASS;
#ifdef CURTAIL_ON_NODE
	if (!find_gate(context, &parsed, &request, &way))
		return XDP_PASS;
#else
	hash_key(context, &parsed, way.settings, &request);
#endif
	if (!find_way(&request, &way))
		return XDP_PASS;
	fetch_way(&request, &way);
	if (!is_whole(context, &parsed))
		return XDP_PASS;
	fate = judge(context, &parsed, &request, &way, &reply);
	if (fate != ANSWER_IT)
		return fate;
	reply.queue = way.queue;
	return answer(context, &parsed, &request, way.control, &reply,
		      way.settings[CURTAIL_SETTINGS_ANSWER]);
}

/* The kernel asks for one; nothing here needs it to be the GPL. */
char _license[] SECTION("license") = "MIT";
