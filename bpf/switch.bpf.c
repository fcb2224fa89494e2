/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The switch of a cache tier (SwitchKV, Li 2016, section 2.2.1): reads from a frame's destination
 * which key or host it is for, and redirects it to a port.
 *
 *   class 0x02, a first get:   rule of the key -> cache node, else as class 0x06; a rule that is
 *                              spread -> one of several cache nodes, by the sender's UDP port
 *   class 0x06, the rest:      back end
 *   class 0x0a, to a host:     host
 *
 * crates/codec/src/tiered/address.rs has the addresses, crates/routing/src/memory_table.rs the twin
 * that a test compares this with. What is not addressed to the tier is the kernel's (XDP_PASS); what
 * is, and has nowhere to go, is counted and dropped. */
#include "kernel.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERNET_BYTES 14
#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define IPV4_TO 16
#define IPV6_TO 24
#define IPV4_PROTOCOL 9
#define IPV6_PROTOCOL 6
#define PROTOCOL_UDP 17

#define CLASS_GET 0x02
#define CLASS_BACK_END 0x06
#define CLASS_HOST 0x0a
#define TAG_BITS 40
#define HOSTS 0xffff
#define BACK_ENDS 0xfffe
#define NO_CLASS 0

#define SETTING_ENCODING 0
#define SETTING_NETWORK 1
#define ENCODING_MAC 1

#define MAP_PERCPU_HASH 5
#define MAP_DEVICES 14
#define MAP_NO_PREALLOC 1
#define PORTS_MAX 1024
#define RULES_MAX 131072
#define ROUTES_MAX 65536
/* crates/types/src/tier.rs divides them (SpreadSlots). */
#define SPREAD_SLOTS 64
/* In a rule's port: the rule is spread; the rest is the port of its own cache node. */
#define PORT_SPREAD 0x80000000ULL

static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

/* A processor's copy of a rule. */
struct rule {
	u64 cookie;
	u64 port;
	u64 packets;
};

struct {
	MAP_NUMBER(type, MAP_PERCPU_HASH);
	MAP_NUMBER(max_entries, RULES_MAX);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct rule);
} keys SECTION(".maps");

/* Of hosts and of back ends, these with tag 0. They are few of many possible numbers, so that an
 * array would be mostly empty, once for each processor. */
struct {
	MAP_NUMBER(type, MAP_PERCPU_HASH);
	MAP_NUMBER(max_entries, ROUTES_MAX);
	MAP_NUMBER(map_flags, MAP_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct rule);
} routes SECTION(".maps");

struct {
	MAP_NUMBER(type, MAP_DEVICES);
	MAP_NUMBER(max_entries, PORTS_MAX);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u32);
} ports SECTION(".maps");

/* What the MAC destination becomes at a port, in the first six bytes; 0 leaves it. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, PORTS_MAX);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} macs SECTION(".maps");

/* The port that a slot of senders leads to when a rule is spread; 0 if none is. */
struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, SPREAD_SLOTS);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} spread SECTION(".maps");

struct {
	MAP_NUMBER(type, MAP_ARRAY);
	MAP_NUMBER(max_entries, 2);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} network SECTION(".maps");

struct {
	MAP_NUMBER(type, MAP_PERCPU_ARRAY);
	MAP_NUMBER(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, u64);
} unknown SECTION(".maps");

INLINE u64 setting(u32 number)
{
	u64 *value = map_lookup(&network, &number);

	return value ? *value : 0;
}

INLINE u64 word_at(const u8 *place)
{
	u64 word;

	__builtin_memcpy(&word, place, sizeof(word));
	return __builtin_bswap64(word);
}

/* Reads the address from an IPv6 destination; 0 if it is not of this cluster. A word of the cluster
 * that is no address has a class that nothing is looked up for. */
INLINE int address_in_ipv6(const u8 *ip, const u8 *end, u64 *word)
{
	u64 prefix, low;

	if (ip + IPV6_BYTES > end)
		return 0;
	prefix = word_at(ip + IPV6_TO);
	low = word_at(ip + IPV6_TO + 8);
	if (prefix >> 16 != (0xfd00ULL << 32 | setting(SETTING_NETWORK)))
		return 0;
	*word = low & 0xffffULL << TAG_BITS ? NO_CLASS : low | (prefix & 0xffff) << TAG_BITS;
	return 1;
}

/* The same from a MAC and an IPv4 destination. Hosts are known by their MAC address alone. */
INLINE int address_in_mac(const u8 *frame, const u8 *end, u16 type, u64 *word)
{
	const u8 *ip = frame + ETHERNET_BYTES;
	u64 mac, to;

	mac = word_at(frame) >> 16;
	if (mac >> TAG_BITS == CLASS_HOST) {
		*word = (u64)CLASS_HOST << 56 | (u64)HOSTS << TAG_BITS |
			(mac & ((1ULL << TAG_BITS) - 1));
		return 1;
	}
	if (mac >> TAG_BITS != CLASS_GET && mac >> TAG_BITS != CLASS_BACK_END)
		return 0;
	if (type != swapped16(ETHERTYPE_IPV4) || ip + IPV4_BYTES > end)
		return 0;
	to = (u64)ip[IPV4_TO] << 8 | ip[IPV4_TO + 1];
	if (to != setting(SETTING_NETWORK))
		return 0;
	to = (u64)ip[IPV4_TO + 2] << 8 | ip[IPV4_TO + 3];
	*word = mac >> TAG_BITS << 56 | to << TAG_BITS | (mac & ((1ULL << TAG_BITS) - 1));
	return 1;
}

INLINE struct rule *rule_of(u64 word)
{
	u64 class = word >> 56, back_end = word >> TAG_BITS & 0xffff;
	struct rule *rule;

	if (class == CLASS_HOST && back_end == HOSTS)
		return map_lookup(&routes, &word);
	if (back_end >= BACK_ENDS)
		return 0;
	if (class == CLASS_GET) {
		rule = map_lookup(&keys, &word);
		if (rule)
			return rule;
	} else if (class != CLASS_BACK_END) {
		return 0;
	}
	word = (u64)CLASS_BACK_END << 56 | back_end << TAG_BITS;
	return map_lookup(&routes, &word);
}

/* The port of a rule that is spread. A frame that has no UDP port is of slot 0. */
INLINE u32 spread_port(const u8 *frame, const u8 *end, u16 type, u32 own)
{
	const u8 *ip = frame + ETHERNET_BYTES;
	const u8 *udp = ip + (type == swapped16(ETHERTYPE_IPV6) ? IPV6_BYTES : IPV4_BYTES);
	u32 slot = 0;
	u64 *port;

	if (udp + 2 <= end) {
		u8 protocol = type == swapped16(ETHERTYPE_IPV6) ? ip[IPV6_PROTOCOL]
								: ip[IPV4_PROTOCOL];

		if (protocol == PROTOCOL_UDP)
			slot = udp[1] % SPREAD_SLOTS;
	}
	port = map_lookup(&spread, &slot);
	return port && *port ? *port : own;
}

INLINE int nowhere(void)
{
	u32 zero = 0;
	u64 *count = map_lookup(&unknown, &zero);

	if (count)
		(*count)++;
	return XDP_DROP;
}

SECTION("xdp")
int curtail_switch(struct xdp_md *context)
{
	u8 *frame = (u8 *)(long)context->data;
	u8 *end = (u8 *)(long)context->data_end;
	struct rule *rule;
	u64 word = 0, *mac;
	u32 port;
	u16 type;
	int ours;

	if (frame + ETHERNET_BYTES > end)
		return XDP_PASS;
	type = *(u16 *)(frame + 12);
	if (setting(SETTING_ENCODING) == ENCODING_MAC)
		ours = address_in_mac(frame, end, type, &word);
	else
		ours = type == swapped16(ETHERTYPE_IPV6) &&
		       address_in_ipv6(frame + ETHERNET_BYTES, end, &word);
	if (!ours)
		return XDP_PASS;
	rule = rule_of(word);
	if (!rule)
		return nowhere();
	port = rule->port & ~PORT_SPREAD;
	if (rule->port & PORT_SPREAD)
		port = spread_port(frame, end, type, port);
	mac = map_lookup(&macs, &port);
	if (mac && *mac)
		__builtin_memcpy(frame, mac, 6);
	/* The lower bits of the flags are what becomes of a frame whose port is gone. */
	if (redirect_map(&ports, port, XDP_ABORTED) != XDP_REDIRECT)
		return nowhere();
	rule->packets++;
	return XDP_REDIRECT;
}

/* The kernel asks for one; nothing here needs it to be the GPL. */
char _license[] SECTION("license") = "MIT";
