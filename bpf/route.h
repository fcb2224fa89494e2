/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The route hash of a key, by which nodes of a cluster know its slice: XXH3-64 without a seed
 * (crates/store/src/route_hash.rs), for keys of up to 128 bytes. Longer ones are left to the
 * server. */
#ifndef CURTAIL_ROUTE_H
#define CURTAIL_ROUTE_H

#include "hash.h"
#include "kernel.h"

#define ROUTE_KEY_BYTES_MAX 128
#define SLICES 256
#define SLICE_SHIFT 56

#define PRIME_MX_1 0x165667919e3779f9ULL
#define PRIME_MX_2 0x9fb21c651e98df25ULL

/* Words of the hash's own secret; those of short keys are combined already. */
#define FLIP_3 0x87275a9bULL
#define FLIP_8 0xc73ab174c5ecd5a2ULL
#define FLIP_16_LOW 0x6782737bea4239b9ULL
#define FLIP_16_HIGH 0xaf56bc3b0996523aULL
#define ROUTE_SECRET_0 0xbe4ba423396cfeb8ULL
#define ROUTE_SECRET_1 0x1cad21f72c81017cULL
#define ROUTE_SECRET_2 0xdb979083e96dd4deULL
#define ROUTE_SECRET_3 0x1f67b3b7a4a44072ULL
#define ROUTE_SECRET_4 0x78e5c0cc4ee679cbULL
#define ROUTE_SECRET_5 0x2172ffcc7dd05a82ULL
#define ROUTE_SECRET_6 0x8e2443f7744608b8ULL
#define ROUTE_SECRET_7 0x4c263a81e69035e0ULL
#define ROUTE_SECRET_8 0xcb00c391bb52283cULL
#define ROUTE_SECRET_9 0xa32e531b8b65d088ULL
#define ROUTE_SECRET_10 0x4ef90da297486471ULL
#define ROUTE_SECRET_11 0xd8acdea946ef1938ULL
#define ROUTE_SECRET_12 0x3f349ce33f76faa8ULL
#define ROUTE_SECRET_13 0x1d4f0bc7c7bbdcf9ULL
#define ROUTE_SECRET_14 0x3159b4cd4be0518aULL
#define ROUTE_SECRET_15 0x647378d9c97e9fc8ULL

/* Both halves of the product of 128 bits, combined. */
INLINE u64 product(u64 one, u64 two)
{
	u64 low = (one & 0xffffffff) * (two & 0xffffffff);
	u64 left = (one >> 32) * (two & 0xffffffff), right = (one & 0xffffffff) * (two >> 32);
	u64 middle = (low >> 32) + (left & 0xffffffff) + right;
	u64 high = (one >> 32) * (two >> 32) + (left >> 32) + (middle >> 32);

	return ((middle << 32) | (low & 0xffffffff)) ^ high;
}

INLINE u64 avalanche_3(u64 hash)
{
	hash = (hash ^ hash >> 37) * PRIME_MX_1;
	return hash ^ hash >> 32;
}

/* Eight bytes of the frame's first piece, from `at` on; 0, which nothing depends on, if they do not
 * lie there. */
INLINE u64 word_at(u8 *data, u8 *end, u32 at)
{
	u8 *place = data;

	HERE(at);
	if (at > AT_MAX + ROUTE_KEY_BYTES_MAX)
		return 0;
	place += at;
	HERE(end);
	if (place + 8 > end)
		return 0;
	return *(u64 *)place;
}

INLINE u64 mixed(u8 *data, u8 *end, u32 at, u64 one, u64 two)
{
	return product(word_at(data, end, at) ^ one, word_at(data, end, at + 8) ^ two);
}

/* Of the key of `bytes` that lies at `at`, behind at least eight other bytes. */
NOINLINE u64 route_of(struct xdp_md *frame, u32 at, u32 bytes)
{
	u8 *data = (u8 *)(long)frame->data;
	u8 *end = (u8 *)(long)frame->data_end;
	u64 last, first, hash;
	u32 behind;

	if (at > AT_MAX || at < 8 || bytes == 0 || bytes > ROUTE_KEY_BYTES_MAX)
		return 0;
	behind = at + bytes;
	/* The last eight bytes of what ends with the key; what is before the key is shifted out. */
	last = word_at(data, end, behind - 8);
	if (bytes < 4) {
		u64 key = last >> (64 - 8 * (bytes & 3));
		u64 middle = key >> (8 * (bytes >> 1)) & 0xff;

		hash = (key & 0xff) << 16 | middle << 24 | last >> 56 | bytes << 8;
		return xx_avalanche(hash ^ FLIP_3);
	}
	if (bytes <= 8) {
		first = bytes == 8 ? last & 0xffffffff :
				     last >> (64 - 8 * (bytes & 7)) & 0xffffffff;
		hash = (last >> 32 | first << 32) ^ FLIP_8;
		hash ^= ROTATED(hash, 49) ^ ROTATED(hash, 24);
		hash *= PRIME_MX_2;
		hash ^= (hash >> 35) + bytes;
		hash *= PRIME_MX_2;
		return hash ^ hash >> 28;
	}
	if (bytes <= 16) {
		first = word_at(data, end, at) ^ FLIP_16_LOW;
		last ^= FLIP_16_HIGH;
		return avalanche_3(bytes + __builtin_bswap64(first) + last + product(first, last));
	}
	hash = bytes * PRIME_1;
	if (bytes > 96) {
		hash += mixed(data, end, at + 48, ROUTE_SECRET_12, ROUTE_SECRET_13);
		hash += mixed(data, end, behind - 64, ROUTE_SECRET_14, ROUTE_SECRET_15);
	}
	if (bytes > 64) {
		hash += mixed(data, end, at + 32, ROUTE_SECRET_8, ROUTE_SECRET_9);
		hash += mixed(data, end, behind - 48, ROUTE_SECRET_10, ROUTE_SECRET_11);
	}
	if (bytes > 32) {
		hash += mixed(data, end, at + 16, ROUTE_SECRET_4, ROUTE_SECRET_5);
		hash += mixed(data, end, behind - 32, ROUTE_SECRET_6, ROUTE_SECRET_7);
	}
	hash += mixed(data, end, at, ROUTE_SECRET_0, ROUTE_SECRET_1);
	hash += mixed(data, end, behind - 16, ROUTE_SECRET_2, ROUTE_SECRET_3);
	return avalanche_3(hash);
}

/* The hash by which a node's store and queues know a key: SipHash-1-3 of the route hash. */
INLINE u64 keyed_route(u64 route, u64 seed_0, u64 seed_1)
{
	u64 v0 = seed_0 ^ 0x736f6d6570736575ULL, v1 = seed_1 ^ 0x646f72616e646f6dULL;
	u64 v2 = seed_0 ^ 0x6c7967656e657261ULL, v3 = seed_1 ^ 0x7465646279746573ULL;
	u64 last = 8ULL << 56;

	v3 ^= route;
	SIP_ROUND(v0, v1, v2, v3);
	v0 ^= route;
	return sip_end(v0, v1, v2, v3, last);
}

#endif
