/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For measurements only: what an acknowledgement costs that promises nothing. `curtail_floor` turns
 * a datagram to our port round and says that it is accepted, without a queue, a checksum or a look
 * at what it says: no client would believe it. `curtail_receipt` answers what a client believes,
 * having seen that the datagram is whole, and keeps nothing either. `curtail_pass` lets everything
 * through, which is what the other end of a veth needs for the answers of this one's driver. */
#include "kernel.h"

#include "abi.h"
#include "answer.h"
#include "frame.h"
#include "layout.h"
#include "request.h"

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
int curtail_receipt(struct xdp_md *context)
{
	struct parsed parsed = {};
	struct request request = {};
	struct reply reply = {.kind = KIND_ACK, .status = ACK_ACCEPTED};
	u64 control[CURTAIL_CONTROL_INCARNATION + 1] = {};
	const u64 *word;

	if (parse(context, swapped16(FLOOR_PORT), &parsed) != TAKE_IT ||
	    parsed.at != DATAGRAM_AT_V4)
		return XDP_PASS;
	word = (void *)(long)context->data + DATAGRAM_AT_V4;
	if ((void *)(word + REQUEST_WORDS) > (void *)(long)context->data_end)
		return XDP_PASS;
	request.name = word[2];
	request.sequence = word[4];
	request.stamp = word[5];
	request.slot = word[0] >> 48;
	if (!is_whole(context, &parsed))
		return XDP_PASS;
	return answer(context, &parsed, &request, control, &reply, 0);
}

SECTION("xdp.frags")
int curtail_pass(struct xdp_md *context)
{
	return context ? XDP_PASS : XDP_ABORTED;
}

char _license[] SECTION("license") = "MIT";
