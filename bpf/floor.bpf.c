/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For measurements only: what an acknowledgement costs that promises nothing. `curtail_floor` turns
 * a datagram to our port round and says that it is accepted, without a queue, a checksum or a look
 * at what it says: no client would believe it. `curtail_receipt` only acknowledges, but does that as
 * the XDP program: it takes the requests that that one takes, having seen that they are
 * well formed and whole, and answers what a client believes. `curtail_pass` lets everything
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

/* What `read_request` asks of a server's settings. */
static const u64 limits[CURTAIL_SETTINGS_WORDS] = {
	[CURTAIL_SETTINGS_DATAGRAM_BYTES_MAX] = CURTAIL_DATAGRAM_BYTES_MAX,
	[CURTAIL_SETTINGS_VALUE_BYTES_MAX] = CURTAIL_DATAGRAM_BYTES_MAX,
};

SECTION("xdp.frags")
int curtail_receipt(struct xdp_md *context)
{
	struct parsed parsed = {};
	struct request request = {};
	struct reply reply = {.kind = KIND_ACK, .status = ACK_ACCEPTED};
	u64 control[CURTAIL_CONTROL_INCARNATION + 1] = {};

	if (parse(context, swapped16(FLOOR_PORT), &parsed) != TAKE_IT)
		return XDP_PASS;
	if (!read_request(context, &parsed, limits, &request) || !request.nilext)
		return XDP_PASS;
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
