/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A frame taken apart: Ethernet, IPv4 without options or IPv6 without extension headers, UDP to our
 * port, and a datagram that lies whole in the frame's first piece.
 *
 * Whatever is not exactly that is left to the kernel (XDP_PASS), so that the server's socket says
 * what is wrong with it. Only IP fragments of datagrams to our port are dropped: who has no place
 * for a request in one packet sends it over TCP. */
#ifndef CURTAIL_FRAME_H
#define CURTAIL_FRAME_H

#include "abi.h"
#include "kernel.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define PROTOCOL_UDP 17
#define PROTOCOL_FRAGMENT 44
#define FRAGMENT_BITS 0x3fff /* more fragments, and the offset */
#define FRAGMENT_OFFSET_V4 0x1fff
#define FRAGMENT_OFFSET_V6 0xfff8
#define DO_NOT_FRAGMENT 0x4000
#define HOPS 64

struct ethernet {
	u8 to[6];
	u8 from[6];
	u16 type;
};

struct ipv4 {
	u8 version_and_length;
	u8 service;
	u16 bytes;
	u16 id;
	u16 fragment;
	u8 hops;
	u8 protocol;
	u16 checksum;
	u32 from;
	u32 to;
};

struct ipv6 {
	u32 version_and_flow;
	u16 bytes;
	u8 next;
	u8 hops;
	u64 from[2];
	u64 to[2];
};

struct ipv6_fragment {
	u8 next;
	u8 spare;
	u16 offset;
	u32 id;
};

struct udp {
	u16 from;
	u16 to;
	u16 bytes;
	u16 checksum;
};

/* Where things are. The structures above are read where they lie, on even addresses at best: no
 * processor that runs BPF programs minds, and with `packed` every byte would be fetched alone. */
#define IP_AT sizeof(struct ethernet)
#define UDP_AT_V4 (IP_AT + sizeof(struct ipv4))
#define UDP_AT_V6 (IP_AT + sizeof(struct ipv6))
#define DATAGRAM_AT_V4 (UDP_AT_V4 + sizeof(struct udp))
#define DATAGRAM_AT_V6 (UDP_AT_V6 + sizeof(struct udp))

_Static_assert(DATAGRAM_AT_V4 == 42 && DATAGRAM_AT_V6 == 62, "nothing is between the fields");

/* What the steps after parsing need of a frame. */
struct parsed {
	u32 at;      /* where the datagram begins */
	u32 bytes;   /* its length */
	u64 peer[2]; /* the sender, IPv4 mapped into IPv6, as two little-endian words */
	u16 port;    /* its port */
};

#define TAKE_IT (-1)

INLINE int parse_udp(const struct udp *udp, u32 ip_bytes, struct parsed *parsed)
{
	u32 bytes = swapped16(udp->bytes);

	if (bytes != ip_bytes)
		return XDP_PASS;
	bytes -= sizeof(*udp);
	if (bytes < CURTAIL_HEADER_BYTES || bytes > CURTAIL_DATAGRAM_BYTES_MAX)
		return XDP_PASS;
	parsed->bytes = bytes;
	parsed->port = swapped16(udp->from);
	return TAKE_IT;
}

INLINE int parse_v4(void *data, void *end, u16 our_port, struct parsed *parsed)
{
	struct ipv4 *ip = data + IP_AT;
	struct udp *udp = data + UDP_AT_V4;
	u16 fragment;

	if ((void *)(udp + 1) > end)
		return XDP_PASS;
	if (ip->version_and_length != 0x45 || ip->protocol != PROTOCOL_UDP)
		return XDP_PASS;
	fragment = swapped16(ip->fragment) & FRAGMENT_BITS;
	/* A later fragment has no port, but is nothing without the first. */
	if (fragment & FRAGMENT_OFFSET_V4 || udp->to != our_port)
		return XDP_PASS;
	if (fragment)
		return XDP_DROP;
	parsed->at = DATAGRAM_AT_V4;
	parsed->peer[0] = 0;
	parsed->peer[1] = (u64)ip->from << 32 | 0xffff0000;
	return parse_udp(udp, swapped16(ip->bytes) - sizeof(*ip), parsed);
}

/* The fragment header stands where the UDP header otherwise is. */
INLINE int judge_fragment_v6(void *data, void *end, u16 our_port)
{
	struct ipv6_fragment *fragment = data + UDP_AT_V6;
	struct udp *udp = (void *)(fragment + 1);

	if ((void *)(udp + 1) > end || fragment->next != PROTOCOL_UDP)
		return XDP_PASS;
	if (swapped16(fragment->offset) & FRAGMENT_OFFSET_V6 || udp->to != our_port)
		return XDP_PASS;
	return XDP_DROP;
}

INLINE int parse_v6(void *data, void *end, u16 our_port, struct parsed *parsed)
{
	struct ipv6 *ip = data + IP_AT;
	struct udp *udp = data + UDP_AT_V6;

	if ((void *)(udp + 1) > end || (ip->version_and_flow & 0xf0) != 0x60)
		return XDP_PASS;
	if (ip->next == PROTOCOL_FRAGMENT)
		return judge_fragment_v6(data, end, our_port);
	if (ip->next != PROTOCOL_UDP || udp->to != our_port)
		return XDP_PASS;
	parsed->at = DATAGRAM_AT_V6;
	parsed->peer[0] = ip->from[0];
	parsed->peer[1] = ip->from[1];
	return parse_udp(udp, swapped16(ip->bytes), parsed);
}

/* TAKE_IT, or what becomes of the frame. `our_port` is in the order of the network. */
INLINE int parse(struct xdp_md *context, u16 our_port, struct parsed *parsed)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ethernet *ethernet = data;
	int fate = XDP_PASS;

	if ((void *)(ethernet + 1) > end)
		return XDP_PASS;
	if (ethernet->to[0] & 1) /* to a group: nobody's request */
		return XDP_PASS;
	if (ethernet->type == swapped16(ETHERTYPE_IPV4))
		fate = parse_v4(data, end, our_port, parsed);
	else if (ethernet->type == swapped16(ETHERTYPE_IPV6))
		fate = parse_v6(data, end, our_port, parsed);
	if (fate == TAKE_IT && data + parsed->at + parsed->bytes > end)
		return XDP_PASS;
	return fate;
}

#endif
