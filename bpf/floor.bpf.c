/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For measurements only: what an acknowledgement costs that promises nothing. `curtail_floor` turns
 * a datagram to our port round and says that it is accepted, without a queue, a checksum or a look
 * at what it says; `curtail_pass` lets everything through, which is what the other end of a veth
 * needs for the answers of this one's driver to arrive. */
#include "kernel.h"

#include "abi.h"
#include "answer.h"
#include "frame.h"

/* The port is 11311. */
#define FLOOR_PORT 0x2c2f

SECTION("xdp.frags")
int curtail_floor(struct xdp_md *context)
{
	struct parsed parsed = {};
	void *data, *end;
	u64 *word;

	if (parse(context, swapped16(FLOOR_PORT), &parsed) != TAKE_IT ||
	    parsed.at != DATAGRAM_AT_V4)
		return XDP_PASS;
	data = (void *)(long)context->data;
	end = (void *)(long)context->data_end;
	word = data + DATAGRAM_AT_V4;
	if ((void *)(word + REPLY_WORDS) > end)
		return XDP_PASS;
	word[0] = CURTAIL_MAGIC | CURTAIL_VERSION << 16 | (u64)KIND_ACK << 24 |
		  (u64)ACK_ACCEPTED << 32 | (word[0] >> 48 & 0xff) << 40;
	turn_v4(data);
	if (adjust_tail(context,
			(int)(DATAGRAM_AT_V4 + CURTAIL_HEADER_BYTES) - (int)frame_bytes(context)))
		return XDP_DROP;
	return XDP_TX;
}

SECTION("xdp.frags")
int curtail_pass(struct xdp_md *context)
{
	return context ? XDP_PASS : XDP_ABORTED;
}

char _license[] SECTION("license") = "MIT";
