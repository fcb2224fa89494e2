/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel offers to the program: actions, helpers and kinds of maps, with the numbers of
 * linux/bpf.h, which never change. Written out, so that building needs clang and nothing else and
 * gives the same bytes on every machine. */
#ifndef CURTAIL_KERNEL_H
#define CURTAIL_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
/* Monotonic time as it was at the last tick, some milliseconds ago: enough for leases of seconds,
 * and read without waiting for the processor to finish what it has begun. */
static u64 (*const tick_ns)(void) = (void *)160;
static long (*const redirect_to)(u32 interface, u64 flags) = (void *)23;
static long (*const adjust_tail)(struct xdp_md *frame, int bytes) = (void *)65;
static u64 (*const frame_bytes)(struct xdp_md *frame) = (void *)188;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
/* Before a loop that is to stay one: the verifier follows it round by round. */
#define ROLLED _Pragma("clang loop unroll(disable)")
/* Keeps the compiler from computing with a value in ways that the verifier cannot follow. */
#define HERE(value) asm volatile("" : "+r"(value))
#define NOINLINE __attribute__((noinline))

#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6
#define MAP_MMAPABLE (1 << 10)

/* A field of a map's description: the number is the length of the array that is pointed to. */
#define MAP_NUMBER(name, number) int(*name)[number]
#define MAP_TYPE(name, type) type *name

#define swapped16(number) __builtin_bswap16(number)
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

#endif
