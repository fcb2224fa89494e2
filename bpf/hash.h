/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The two hashes of the protocol over bytes of a frame: SipHash-1-3 of the key, by which the queue
 * is chosen (crates/types/src/hash.rs), and XXH64, the checksum (crates/codec/src/native/checksum.rs).
 *
 * Both are functions of their own for the kernel's verifier, which then looks at their loops once
 * and not once for every way that leads to them. They look at the frame's first piece only; what
 * does not lie in it gives a hash that nothing matches, and the caller has checked that before. */
#ifndef CURTAIL_HASH_H
#define CURTAIL_HASH_H

#include "abi.h"
#include "kernel.h"

#define AT_MAX 256
#define PRIME_1 0x9e3779b185ebca87ULL
#define PRIME_2 0xc2b2ae3d27d4eb4fULL
#define PRIME_3 0x165667b19e3779f9ULL
#define PRIME_4 0x85ebca77c2b2ae63ULL
#define PRIME_5 0x27d4eb2f165667c5ULL

#define ROTATED(word, bits) ((word) << (bits) | (word) >> (64 - (bits)))

INLINE u64 xx_round(u64 lane, u64 word)
{
	lane += word * PRIME_2;
	return ROTATED(lane, 31) * PRIME_1;
}

INLINE u64 xx_word(u64 hash, u64 word)
{
	hash ^= xx_round(0, word);
	return ROTATED(hash, 27) * PRIME_1 + PRIME_4;
}

INLINE u64 xx_merged(u64 one, u64 two, u64 three, u64 four)
{
	u64 hash = ROTATED(one, 1) + ROTATED(two, 7) + ROTATED(three, 12) + ROTATED(four, 18);

	hash = (hash ^ xx_round(0, one)) * PRIME_1 + PRIME_4;
	hash = (hash ^ xx_round(0, two)) * PRIME_1 + PRIME_4;
	hash = (hash ^ xx_round(0, three)) * PRIME_1 + PRIME_4;
	return (hash ^ xx_round(0, four)) * PRIME_1 + PRIME_4;
}

INLINE u64 xx_avalanche(u64 hash)
{
	hash = (hash ^ hash >> 33) * PRIME_2;
	hash = (hash ^ hash >> 29) * PRIME_3;
	return hash ^ hash >> 32;
}

/* XXH64 of `bytes` of the frame from `at`, at least one stripe of 32. */
NOINLINE u64 checksum_of(struct xdp_md *frame, u32 at, u32 bytes, u64 seed)
{
	u8 *place = (u8 *)(long)frame->data;
	u8 *end = (u8 *)(long)frame->data_end;
	u64 one = seed + PRIME_1 + PRIME_2, two = seed + PRIME_2, three = seed, four = seed - PRIME_1;
	u64 hash;

	if (at > AT_MAX)
		return 0;
	place += at;
	hash = bytes;
	ROLLED
	for (int stripe = 0; stripe < (int)CURTAIL_DATAGRAM_BYTES_MAX / 32; stripe++) {
		if (bytes < 32)
			break;
		HERE(end);
		if (place + 32 > end)
			return 0;
		one = xx_round(one, *(u64 *)place);
		two = xx_round(two, *(u64 *)(place + 8));
		three = xx_round(three, *(u64 *)(place + 16));
		four = xx_round(four, *(u64 *)(place + 24));
		place += 32;
		bytes -= 32;
	}
	hash += xx_merged(one, two, three, four);
	ROLLED
	for (int word = 0; word < 3; word++) {
		if (bytes < 8)
			break;
		HERE(end);
		if (place + 8 > end)
			return 0;
		hash = xx_word(hash, *(u64 *)place);
		place += 8;
		bytes -= 8;
	}
	if (bytes >= 4) {
		HERE(end);
		if (place + 4 > end)
			return 0;
		hash ^= *(u32 *)place * PRIME_1;
		hash = ROTATED(hash, 23) * PRIME_2 + PRIME_3;
		place += 4;
		bytes -= 4;
	}
	ROLLED
	for (int byte = 0; byte < 3; byte++) {
		if (bytes == 0)
			break;
		HERE(end);
		if (place + 1 > end)
			return 0;
		hash ^= *place * PRIME_5;
		hash = ROTATED(hash, 11) * PRIME_1;
		place += 1;
		bytes -= 1;
	}
	return xx_avalanche(hash);
}

#define SIP_ROUND(v0, v1, v2, v3)                                                                \
	do {                                                                                     \
		v0 += v1;                                                                        \
		v2 += v3;                                                                        \
		v1 = ROTATED(v1, 13) ^ v0;                                                       \
		v3 = ROTATED(v3, 16) ^ v2;                                                       \
		v0 = ROTATED(v0, 32);                                                            \
		v2 += v1;                                                                        \
		v0 += v3;                                                                        \
		v1 = ROTATED(v1, 17) ^ v2;                                                       \
		v3 = ROTATED(v3, 21) ^ v0;                                                       \
		v2 = ROTATED(v2, 32);                                                            \
	} while (0)

/* The end of SipHash-1-3, from the state and the last word. */
INLINE u64 sip_end(u64 v0, u64 v1, u64 v2, u64 v3, u64 last)
{
	v3 ^= last;
	SIP_ROUND(v0, v1, v2, v3);
	v0 ^= last;
	v2 ^= 0xff;
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	SIP_ROUND(v0, v1, v2, v3);
	return v0 ^ v1 ^ v2 ^ v3;
}

/* SipHash-1-3 of the key of `bytes` that lies at `at`, behind at least eight other bytes. */
NOINLINE u64 key_hash_of(struct xdp_md *frame, u32 at, u32 bytes, u64 seed_0, u64 seed_1)
{
	u8 *place = (u8 *)(long)frame->data;
	u8 *end = (u8 *)(long)frame->data_end;
	u64 v0 = seed_0 ^ 0x736f6d6570736575ULL, v1 = seed_1 ^ 0x646f72616e646f6dULL;
	u64 v2 = seed_0 ^ 0x6c7967656e657261ULL, v3 = seed_1 ^ 0x7465646279746573ULL;
	u64 last = (u64)bytes << 56;
	u32 tail_at = at + bytes - 8;
	u8 *tail = place;

	if (at > AT_MAX || at < 8 || bytes > CURTAIL_KEY_BYTES_MAX)
		return 0;
	place += at;
	HERE(tail_at);
	if (tail_at > AT_MAX + CURTAIL_KEY_BYTES_MAX)
		return 0;
	tail += tail_at;
	ROLLED
	for (int word = 0; word < (int)CURTAIL_KEY_BYTES_MAX / 8; word++) {
		if (bytes < 8)
			break;
		HERE(end);
		if (place + 8 > end)
			return 0;
		v3 ^= *(u64 *)place;
		SIP_ROUND(v0, v1, v2, v3);
		v0 ^= *(u64 *)place;
		place += 8;
		bytes -= 8;
	}
	/* The bytes that fill no word are the last ones of the eight that end with the key. */
	if (bytes > 0) {
		if (tail + 8 > end)
			return 0;
		last |= *(u64 *)tail >> (64 - 8 * (bytes & 7));
	}
	return sip_end(v0, v1, v2, v3, last);
}

#endif
