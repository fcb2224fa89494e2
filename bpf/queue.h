/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The steps of an admission, on the words that crates/ordered_queue/src/layout.rs lays
 * out; each has its twin of the same name there, in queue.rs, sessions.rs and bucket_stamps.rs.
 *
 * Order of memory: an atomic that returns something is a full barrier in the kernel, and between
 * two of them only plain reads need help. Where a read must not be older than the one before it,
 * its address is made to depend on that one's value, which every processor keeps. */
#ifndef CURTAIL_QUEUE_H
#define CURTAIL_QUEUE_H

#include "abi.h"
#include "hash.h"
#include "kernel.h"
#include "layout.h"
#include "request.h"

#define ROUNDS_MAX 64
#define FRONT_PAYLOAD_WORDS (u32)(CURTAIL_FRONT_WORDS - CURTAIL_SLOT_HEADER_WORDS)

_Static_assert(8 * (FRONT_PAYLOAD_WORDS + CURTAIL_REST_WORDS) == CURTAIL_DATAGRAM_BYTES_MAX,
	       "a slot takes every datagram");

struct place {
	u64 pos;
	u64 free;
	u8 early;
};

struct ticket {
	u64 *word;
	u64 claimed;
	u64 before;
};

INLINE u64 read_word(const u64 *word)
{
	return *(const volatile u64 *)word;
}

/* Has a line of memory fetched before it is needed. Nothing waits for the value, so that several
 * are fetched at once, while the processor computes. */
INLINE void fetch(const u64 *word)
{
	u64 value = read_word(word);

	asm volatile("" : : "r"(value));
}

/* Has a line come to be written, by writing a word of it that is 0 and stays so. */
INLINE void own(u64 *spare)
{
	*(volatile u64 *)spare = 0;
}

/* The same address, known only when `value` has been read. */
INLINE const u64 *after(u64 value, const u64 *word)
{
	asm volatile("%0 &= 0" : "+r"(value));
	return (const u64 *)((const u8 *)word + value);
}

INLINE u64 exchange_if(u64 *word, u64 seen, u64 new)
{
	return __sync_val_compare_and_swap(word, seen, new);
}

INLINE void count(u64 *word)
{
	__sync_fetch_and_add(word, 1);
}

/* Free slots, a moment ago. Head first: what it has passed was reserved, so that tail, read after
 * it, is not below it. */
INLINE u64 free_slots(const u64 *control, u64 slots)
{
	u64 head = read_word(control + CURTAIL_CONTROL_HEAD);
	u64 waiting = read_word(after(head, control + CURTAIL_CONTROL_TAIL)) - head;

	return waiting > slots ? 0 : slots - waiting;
}

INLINE int take_bytes(u64 *control, u64 bytes)
{
	u64 *credits = control + CURTAIL_CONTROL_CREDITS;
	u64 granted = read_word(credits), seen;

	ROLLED
	for (int round = 0; round < ROUNDS_MAX; round++) {
		if (granted < bytes)
			return 0;
		if (granted >= CURTAIL_BYTES_UNLIMITED)
			return 1;
		seen = exchange_if(credits, granted, granted - bytes);
		if (seen == granted)
			return 1;
		granted = seen;
	}
	return 0;
}

INLINE int may_be_early(u64 *control, u64 waiting, u64 bytes)
{
	return waiting < read_word(control + CURTAIL_CONTROL_BACKLOG_MAX) &&
	       read_word(control + CURTAIL_CONTROL_STATE) == CURTAIL_STATE_OPEN &&
	       take_bytes(control, bytes);
}

/* Head, or the one that was seen last if by that one, too, few entries wait: then nothing is
 * decided otherwise, and no line is fetched from the executor. Computed without a branch, so that
 * a run takes as many steps whatever waits. */
INLINE u64 head_for(u64 *control, u64 slots)
{
	u64 *seen = control + CURTAIL_CONTROL_HEAD_SEEN;
	u64 head = read_word(seen);
	u64 waiting = read_word(after(head, control + CURTAIL_CONTROL_TAIL)) - head;
	u64 below_limit = read_word(control + CURTAIL_CONTROL_BACKLOG_MAX) - 1 - waiting;
	u64 below_eighth = slots / 8 - 1 - waiting;
	u64 is_far = (below_limit | below_eighth) >> 63;

	HERE(is_far);
	is_far &= 1;
	head = read_word(seen + is_far * (CURTAIL_CONTROL_HEAD - CURTAIL_CONTROL_HEAD_SEEN));
	*(volatile u64 *)seen = head;
	return head;
}

/* Step 4: a place in the order; 0 if there is none. */
INLINE int reserve(u64 *control, u64 slots, u64 bytes, int nilext, struct place *place)
{
	ROLLED
	for (int round = 0; round < ROUNDS_MAX; round++) {
		u64 head = head_for(control, slots);
		u64 pos = read_word(after(head, control + CURTAIL_CONTROL_TAIL));
		u64 waiting = pos - head;

		/* Head above tail, which nobody writes, reads as full. */
		if (waiting >= slots)
			break;
		if (exchange_if(control + CURTAIL_CONTROL_TAIL, pos, pos + 1) != pos)
			continue;
		place->pos = pos;
		place->free = slots - waiting - 1;
		place->early = nilext && may_be_early(control, waiting, bytes);
		return 1;
	}
	count(control + CURTAIL_CONTROL_FULL);
	return 0;
}

/* A slot: its front, and the rest of its payload where that is longer than the front takes. */
struct slot {
	u64 *front;
	u64 *rest;
};

/* What of a datagram is still to be copied. */
struct source {
	u8 *place;
	u8 *end; /* of the frame's first piece */
	u32 bytes;
};

/* Copies whole words, `words_max` at most, and counts them in `word`; 0 if the datagram does not
 * lie in the frame's first piece. By hand, because the kernel's helper takes longer for what is
 * this short. */
INLINE int copy_words(struct source *from, u64 *to, u32 words_max, u32 *word)
{
	u8 *place = from->place, *end = from->end;
	u32 bytes = from->bytes, at;

	ROLLED
	for (at = 0; at + 4 <= words_max && bytes >= 32; at += 4) {
		HERE(end);
		if (place + 32 > end)
			return 0;
		to[at] = *(u64 *)place;
		to[at + 1] = *(u64 *)(place + 8);
		to[at + 2] = *(u64 *)(place + 16);
		to[at + 3] = *(u64 *)(place + 24);
		place += 32;
		bytes -= 32;
	}
	ROLLED
	for (; at < words_max && bytes >= 8; at++) {
		HERE(end);
		if (place + 8 > end)
			return 0;
		to[at] = *(u64 *)place;
		place += 8;
		bytes -= 8;
	}
	from->place = place;
	from->bytes = bytes;
	*word = at;
	return 1;
}

/* Copies the datagram by words, the last one filled with zeros; 0 if it does not lie in the frame's
 * first piece. */
INLINE int copy_datagram(struct xdp_md *context, const struct parsed *parsed,
			 const struct slot *slot)
{
	u8 *start = (u8 *)(long)context->data, *last = start;
	u32 at = parsed->at, last_at = at + parsed->bytes - 8, words_max = FRONT_PAYLOAD_WORDS, word;
	struct source from = {start, (u8 *)(long)context->data_end, parsed->bytes};
	u64 *to = slot->front + CURTAIL_SLOT_HEADER_WORDS;

	if (at > AT_MAX)
		return 0;
	HERE(last_at);
	if (last_at > AT_MAX + CURTAIL_DATAGRAM_BYTES_MAX)
		return 0;
	from.place += at;
	last += last_at;
	if (!copy_words(&from, to, words_max, &word))
		return 0;
	if (from.bytes > 0 && word >= words_max) {
		if (!slot->rest)
			return 0;
		to = slot->rest;
		words_max = CURTAIL_REST_WORDS;
		if (!copy_words(&from, to, words_max, &word))
			return 0;
	}
	/* The bytes that fill no word are the last ones of the eight that end with the datagram. */
	if (from.bytes > 0) {
		HERE(from.end);
		if (last + 8 > from.end || word >= words_max)
			return 0;
		to[word] = *(u64 *)last >> (64 - 8 * (from.bytes & 7));
	}
	return 1;
}

/* Step 5: the request's words go into the slot; 0 if the bytes could not be copied, and then the
 * entry does nothing. The line that begins with the commit word is written last and at once: who
 * looks for entries may have taken it away meanwhile. */
INLINE int fill(struct xdp_md *context, const struct slot *slot, const struct place *place,
		const struct parsed *parsed, const struct request *request, u64 arrived_ns)
{
	u64 kind = request->opcode == OPCODE_SET && !(request->flags & FLAG_COMPARE) ?
			   CURTAIL_KIND_SET :
			   CURTAIL_KIND_WRITE;
	u64 meta = parsed->bytes | CURTAIL_HEADER_BYTES << 16 | (u64)request->key_bytes << 24 |
		   (u64)request->opcode << 32 | (u64)request->flags << 40 |
		   kind << CURTAIL_META_KIND_SHIFT |
		   (place->early ? CURTAIL_META_ACCEPTED_BIT : 0) |
		   (u64)(u8)context->rx_queue_index << 56;
	int is_whole = copy_datagram(context, parsed, slot);
	u64 *front = slot->front;

	front[CURTAIL_SLOT_SESSION] = (u32)request->name | (u64)request->slot << 32 |
				      (u64)parsed->port << 48;
	front[CURTAIL_SLOT_SEQUENCE] = request->sequence | (u64)request->generation << 48;
	front[CURTAIL_SLOT_KEY_HASH] = request->key_hash;
	front[CURTAIL_SLOT_ARRIVED_NS] = arrived_ns;
	front[CURTAIL_SLOT_ADDRESS] = parsed->peer[0];
	front[CURTAIL_SLOT_ADDRESS + 1] = parsed->peer[1];
	front[CURTAIL_SLOT_META] = is_whole ? meta : CURTAIL_KIND_NOOP;
	return is_whole;
}

/* Step 6: the entry is there for its executor. */
INLINE void publish(u64 *control, const struct slot *slot, const struct place *place)
{
	__sync_lock_test_and_set(slot->front + CURTAIL_SLOT_COMMIT, place->pos + 1);
	if (!place->early)
		count(control + CURTAIL_CONTROL_QUEUED);
}

/* Step 7: reads of this bucket wait for it. Every round is lost to somebody who raises the word
 * for the one time that he does; 0 if even so it could not be raised. */
INLINE int raise(u64 *stamp, u64 pos)
{
	u64 seen = read_word(stamp), other;

	ROLLED
	for (int round = 0; round < 4 * ROUNDS_MAX; round++) {
		if (seen > pos)
			return 1;
		other = exchange_if(stamp, seen, pos + 1);
		if (other == seen)
			return 1;
		seen = other;
	}
	return 0;
}

/* Step 8: the request has its place. */
INLINE void commit(const struct ticket *ticket, u64 pos, int accepted)
{
	u64 state = accepted ? CURTAIL_SESSION_STATE_ACCEPTED : CURTAIL_SESSION_STATE_QUEUED;

	exchange_if(ticket->word + 1, ticket->before, pos + 1);
	exchange_if(ticket->word, ticket->claimed, (ticket->claimed & ~3ULL) | state);
}

/* Executors that have nothing to do look at the bell. It is the last word that an admission writes,
 * without an atomic step, so that nothing waits until its line has come from where it is looked at;
 * the atomic steps before order it behind the entry. */
INLINE void ring(u64 *control, u64 pos)
{
	*(volatile u64 *)(control + CURTAIL_CONTROL_BELL) = pos + 1;
}

#ifdef CURTAIL_ON_NODE
/* A place that was taken in vain: an entry that does nothing, and is nobody's. */
INLINE void withdraw(u64 *control, const struct slot *slot, struct place *place, u64 bytes)
{
	slot->front[CURTAIL_SLOT_META] = CURTAIL_KIND_NOOP;
	slot->front[CURTAIL_SLOT_SESSION] = ~0ULL;
	if (place->early)
		__sync_fetch_and_add(control + CURTAIL_CONTROL_CREDITS, bytes);
	place->early = 0;
	publish(control, slot, place);
	ring(control, place->pos);
}
#endif

/* The request got no place; it may be sent again. */
INLINE void reopen(const struct ticket *ticket)
{
	u64 open = (ticket->claimed & ~3ULL) | CURTAIL_SESSION_STATE_OPEN;

	exchange_if(ticket->word, ticket->claimed, open);
}

/* Whether the session is the sender's. A word that is read too early, while the session is given
 * to somebody else, makes it unknown here, and the server looks again. */
INLINE int is_known(const u64 *session, const struct parsed *parsed, const struct request *request)
{
	u64 granted = (request->name & 0xffffffff00000000ULL) | 1;

	return read_word(session + CURTAIL_SESSION_NAME) == granted &&
	       read_word(session + CURTAIL_SESSION_TOKEN) == request->token &&
	       read_word(session + CURTAIL_SESSION_PORT) == parsed->port &&
	       read_word(session + CURTAIL_SESSION_ADDRESS) == parsed->peer[0] &&
	       read_word(session + CURTAIL_SESSION_ADDRESS + 1) == parsed->peer[1];
}

enum claim { CLAIM_GRANTED, CLAIM_REPEATED, CLAIM_REPLAYED, CLAIM_STALE, CLAIM_UNKNOWN };

/* Step 3: is the request new in its slot? `ticket->before` is its position when it is repeated. */
INLINE enum claim claim(u64 *word, const struct request *request, struct ticket *ticket)
{
	u64 seen = read_word(word);
	u64 newest = seen >> 2 & CURTAIL_SESSION_SEQUENCE_MASK;
	u64 state = seen & 3;
	u64 before = read_word(after(seen, word + 1));

	if ((u16)(seen >> 48) != request->generation)
		return CLAIM_UNKNOWN;
	if (request->sequence == newest && state >= CURTAIL_SESSION_STATE_QUEUED) {
		ticket->before = before - 1;
		return state == CURTAIL_SESSION_STATE_ACCEPTED ? CLAIM_REPEATED : CLAIM_REPLAYED;
	}
	if (request->sequence < newest || state == CURTAIL_SESSION_STATE_CLAIMED)
		return CLAIM_STALE;
	ticket->word = word;
	ticket->before = before;
	ticket->claimed = CURTAIL_SESSION_STATE_CLAIMED | request->sequence << 2 |
			  (u64)request->generation << 48;
	return exchange_if(word, seen, ticket->claimed) == seen ? CLAIM_GRANTED : CLAIM_STALE;
}

#endif
