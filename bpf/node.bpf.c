/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The XDP program at a node of a cluster: it accepts marked writes of slices that the
 * node alone holds, while the gates of these are open, and passes everything else to the server. */
#define CURTAIL_ON_NODE 1
#include "nic.bpf.c"
