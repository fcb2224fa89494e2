/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A request's header, and which requests the program takes: writes that go through the Ordered
 * Queue and that crates/codec/src/native/request.rs would decode. All others are the server's. */
#ifndef CURTAIL_REQUEST_H
#define CURTAIL_REQUEST_H

#include "abi.h"
#include "frame.h"
#include "hash.h"
#include "kernel.h"
#include "settings.h"

#define REQUEST_WORDS 8
#define FLAG_COMPARE 4
#define OPCODES 32

/* Which opcodes of the queue have a field: a bit for each. */
#define OPCODE_SET 8
#define BITS(from, to) ((1U << ((to) + 1)) - (1U << (from)))
#define HAS_VALUE BITS(8, 12)
#define HAS_ITEM_FLAGS BITS(8, 10)
#define HAS_EXPTIME (BITS(8, 10) | 1U << 6 | 1U << 16)
#define HAS_ARGUMENT BITS(14, 15)

struct request {
	u64 name;     /* session index, generation */
	u64 token;
	u64 sequence;
	u64 key_hash;
	u32 stamp;
	u16 generation; /* the low bits, as session and entry have them */
	u8 opcode;
	u8 flags;
	u8 slot;
	u8 key_bytes;
	u8 nilext;
};

INLINE int has(u32 opcodes, u32 opcode)
{
	return opcodes >> opcode & 1;
}

/* Fields that the opcode does not have are zero, and lengths add up. */
INLINE int is_well_formed(const u64 *word, u32 bytes, u32 opcode, u32 flags)
{
	u32 key_bytes = word[0] >> 56;
	u32 value_bytes = word[6];
	u64 sequence = word[4];

	if (key_bytes == 0 || key_bytes > CURTAIL_KEY_BYTES_MAX)
		return 0;
	if ((u64)CURTAIL_HEADER_BYTES + key_bytes + value_bytes != bytes)
		return 0;
	if (value_bytes && !has(HAS_VALUE, opcode))
		return 0;
	if (word[5] >> 32 && !has(HAS_EXPTIME, opcode))
		return 0;
	if (word[6] >> 32 && !has(HAS_ITEM_FLAGS, opcode))
		return 0;
	if (word[7] && !has(HAS_ARGUMENT, opcode) && !(flags & FLAG_COMPARE))
		return 0;
	if ((word[0] >> 48 & 0xff) >= CURTAIL_SLOTS)
		return 0;
	return sequence >= 1 && sequence <= CURTAIL_SEQUENCE_MAX;
}

/* Whether the request that was read is what its sender sent. */
INLINE int is_whole(struct xdp_md *context, const struct parsed *parsed)
{
	u8 *data = (u8 *)(long)context->data;
	u8 *end = (u8 *)(long)context->data_end;
	u32 at = parsed->at;
	const u64 *word;

	if (at > DATAGRAM_AT_V6)
		return 0;
	word = (const u64 *)(data + at);
	if ((u8 *)(word + REQUEST_WORDS) > end)
		return 0;
	return checksum_of(context, at + 16, parsed->bytes - 16, word[0]) == word[1];
}

/* Reads the request of a parsed frame; 0 if it is not one that the program takes. Its key's hash is
 * `hash_key`'s, and its checksum is the last thing that is looked at, by `is_whole`. */
INLINE int read_request(struct xdp_md *context, const struct parsed *parsed, const u64 *settings,
			struct request *request)
{
	u8 *data = (u8 *)(long)context->data;
	u8 *end = (u8 *)(long)context->data_end;
	u32 at = parsed->at, opcode, flags;
	const u64 *word;
	u8 class;

	if (at > DATAGRAM_AT_V6 || parsed->bytes > settings[CURTAIL_SETTINGS_DATAGRAM_BYTES_MAX])
		return 0;
	word = (const u64 *)(data + at);
	if ((u8 *)(word + REQUEST_WORDS) > end)
		return 0;
	if ((word[0] & 0xffffff) != (CURTAIL_MAGIC | CURTAIL_VERSION << 16))
		return 0;
	opcode = word[0] >> 24 & 0xff;
	flags = word[0] >> 32 & 0xffff;
	if (opcode >= OPCODES || flags > 7)
		return 0;
	class = curtail_class[opcode << 3 | flags];
	if (!(class & CURTAIL_CLASS_QUEUED) || !is_well_formed(word, parsed->bytes, opcode, flags))
		return 0;
	if ((u32)word[6] > settings[CURTAIL_SETTINGS_VALUE_BYTES_MAX])
		return 0;
	request->name = word[2];
	request->token = word[3];
	request->sequence = word[4];
	request->stamp = word[5];
	request->generation = word[2] >> 32;
	request->opcode = opcode;
	request->flags = flags;
	request->slot = word[0] >> 48;
	request->key_bytes = word[0] >> 56;
	class &= 7;
	request->nilext =
		class == CURTAIL_CLASS_NILEXT || class == CURTAIL_CLASS_NILEXT_NONIDEMPOTENT;
	return 1;
}

/* The hash by which the request's queue is chosen. */
INLINE void hash_key(struct xdp_md *context, const struct parsed *parsed, const u64 *settings,
		     struct request *request)
{
	const u64 *seed = settings + CURTAIL_SETTINGS_SECRET;

	request->key_hash = key_hash_of(context, parsed->at + CURTAIL_HEADER_BYTES,
					request->key_bytes, seed[0], seed[1]);
}

#endif
