/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Makes the clocks of a process wrong that a node goes by: CLOCK_BOOTTIME, from which it has its
 * leases, and CLOCK_REALTIME. CLOCK_MONOTONIC stays: threads sleep by it.
 *
 * CURTAIL_TEST_CLOCK names a file with two numbers of 64 bits: how much the clocks gain, in parts
 * of a million, and what the wall clock is off, in nanoseconds. They may change at any time; the
 * clock of leases goes on from what it showed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct wrong {
	volatile int64_t gain_ppm;
	volatile int64_t wall_off_ns;
};

static const struct wrong *wrong;
static volatile int lock;
static int64_t gain_ppm, true_ns, ahead_ns;

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("CURTAIL_TEST_CLOCK");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *map;

	if (file < 0)
		return;
	map = mmap(NULL, sizeof(struct wrong), PROT_READ, MAP_SHARED, file, 0);
	close(file);
	if (map != MAP_FAILED)
		wrong = map;
}

/* How far the clocks are ahead at true time `now`. */
static int64_t ahead(int64_t now)
{
	int64_t result;

	while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
		;
	if (true_ns == 0)
		true_ns = now;
	if (gain_ppm != wrong->gain_ppm) {
		ahead_ns += (now - true_ns) / 1000 * gain_ppm / 1000;
		true_ns = now;
		gain_ppm = wrong->gain_ppm;
	}
	result = ahead_ns + (now - true_ns) / 1000 * gain_ppm / 1000;
	__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
	return result;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	struct timespec boot;
	int64_t ns;
	int result = (int)syscall(SYS_clock_gettime, clock, time);

	if (result != 0 || !wrong || (clock != CLOCK_BOOTTIME && clock != CLOCK_REALTIME))
		return result;
	syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &boot);
	ns = boot.tv_sec * 1000000000 + boot.tv_nsec;
	ns = time->tv_sec * 1000000000 + time->tv_nsec + ahead(ns);
	if (clock == CLOCK_REALTIME)
		ns += wrong->wall_off_ns;
	time->tv_sec = ns / 1000000000;
	time->tv_nsec = ns % 1000000000;
	return 0;
}
