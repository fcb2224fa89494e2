/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Answers: the frame is turned round, and becomes an acknowledgement or a refusal of 64 bytes. */
#ifndef CURTAIL_ANSWER_H
#define CURTAIL_ANSWER_H

#include "abi.h"
#include "frame.h"
#include "hash.h"
#include "kernel.h"
#include "layout.h"
#include "queue.h"
#include "request.h"

#define REPLY_WORDS 8
#define KIND_ACK 131
#define KIND_NACK 132
#define ACK_ACCEPTED 1
#define NACK_FULL 1
#define NACK_NOT_READY 2

#define ANSWER_IT (-2)

struct reply {
	u64 pos;
	u32 free;
	u16 queue;
	u8 kind;
	u8 status;
};

INLINE u16 folded(u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

INLINE void turn_ethernet(struct ethernet *ethernet)
{
	u8 to[6];

	__builtin_memcpy(to, ethernet->to, 6);
	__builtin_memcpy(ethernet->to, ethernet->from, 6);
	__builtin_memcpy(ethernet->from, to, 6);
}

INLINE void turn_udp(struct udp *udp, u16 checksum)
{
	u16 to = udp->to;

	udp->to = udp->from;
	udp->from = to;
	udp->bytes = swapped16(sizeof(*udp) + CURTAIL_HEADER_BYTES);
	udp->checksum = checksum;
}

INLINE void turn_v4(void *data)
{
	struct ipv4 *ip = data + IP_AT;
	u32 from = ip->to, to = ip->from;
	u16 bytes = swapped16(sizeof(*ip) + sizeof(struct udp) + CURTAIL_HEADER_BYTES);
	u64 sum = 0x45 + (u64)bytes + swapped16(DO_NOT_FRAGMENT) + (HOPS | PROTOCOL_UDP << 8);

	turn_ethernet(data);
	ip->service = 0;
	ip->bytes = bytes;
	ip->id = 0;
	ip->fragment = swapped16(DO_NOT_FRAGMENT);
	ip->hops = HOPS;
	ip->checksum = folded(sum + from + to);
	ip->from = from;
	ip->to = to;
	/* IPv4 lets a datagram go without; the protocol has its own. */
	turn_udp(data + UDP_AT_V4, 0);
}

INLINE u64 summed(u64 word)
{
	return (word & 0xffffffff) + (word >> 32);
}

INLINE void turn_v6(void *data, const u64 *word)
{
	struct ipv6 *ip = data + IP_AT;
	struct udp *udp = data + UDP_AT_V6;
	u16 bytes = swapped16(sizeof(*udp) + CURTAIL_HEADER_BYTES);
	u64 sum = (u64)bytes * 2 + swapped16(PROTOCOL_UDP) + udp->from + udp->to;
	u16 checksum;

	for (int half = 0; half < 2; half++) {
		u64 from = ip->to[half], to = ip->from[half];

		sum += summed(from) + summed(to);
		ip->from[half] = from;
		ip->to[half] = to;
	}
	for (int i = 0; i < REPLY_WORDS; i++)
		sum += summed(word[i]);
	turn_ethernet(data);
	ip->version_and_flow = 0x60;
	ip->bytes = bytes;
	ip->hops = HOPS;
	checksum = folded(sum);
	turn_udp(udp, checksum ? checksum : 0xffff);
}

/* The answer's checksum: XXH64 of its words 2 to 7 under its word 0. */
INLINE u64 reply_checksum(const u64 *word)
{
	u64 seed = word[0];
	u64 hash = xx_merged(xx_round(seed + PRIME_1 + PRIME_2, word[2]),
			     xx_round(seed + PRIME_2, word[3]), xx_round(seed, word[4]),
			     xx_round(seed - PRIME_1, word[5]));

	hash += CURTAIL_HEADER_BYTES - 16;
	return xx_avalanche(xx_word(xx_word(hash, word[6]), word[7]));
}

/* Turns the frame round and says what becomes of it. */
INLINE int answer(struct xdp_md *context, const struct parsed *parsed,
		  const struct request *request, const u64 *control, const struct reply *reply,
		  int redirected)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	u64 word[REPLY_WORDS];
	u64 *place;

	word[0] = CURTAIL_MAGIC | CURTAIL_VERSION << 16 | (u64)reply->kind << 24 |
		  (u64)reply->status << 32 | (u64)request->slot << 40 | (u64)reply->queue << 48;
	word[2] = request->name;
	word[3] = read_word(control + CURTAIL_CONTROL_INCARNATION);
	word[4] = request->sequence;
	word[5] = request->stamp | (u64)reply->free << 32;
	word[6] = reply->pos;
	word[7] = read_word(control + CURTAIL_CONTROL_DURABLE_POS);
	word[1] = reply_checksum(word);
	if (parsed->at == DATAGRAM_AT_V4) {
		place = data + DATAGRAM_AT_V4;
		if ((void *)(place + REPLY_WORDS) > end)
			return XDP_DROP;
		turn_v4(data);
	} else {
		place = data + DATAGRAM_AT_V6;
		if ((void *)(place + REPLY_WORDS) > end)
			return XDP_DROP;
		turn_v6(data, word);
	}
	for (int i = 0; i < REPLY_WORDS; i++)
		place[i] = word[i];
	if (adjust_tail(context, (int)(parsed->at + CURTAIL_HEADER_BYTES) - (int)frame_bytes(context)))
		return XDP_DROP;
	return redirected ? redirect_to(context->ingress_ifindex, 0) : XDP_TX;
}

#endif
