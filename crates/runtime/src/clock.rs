//! The clocks: wall time and monotonic time read together, and the processor time of a thread.
//!
//! A worker reads [`Clock::now`] once per turn and hands the result down, so that nothing below
//! the runtime looks at a clock and a request never pays for one.

use std::time::{SystemTime, UNIX_EPOCH};

use curtail_types::{Instant, Now};

/// Reads both clocks; instants count from when it was made. They go on while the machine sleeps: a
/// lease that ends meanwhile has ended when it wakes.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_ns: u64,
}

/// Reads the processor time that the calling thread has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadCpuClock;

impl Clock {
    /// A clock whose instants start at 0 now. All threads of a server share a copy of one.
    pub fn start() -> Self {
        Self {
            origin_ns: nanoseconds(SLEEPLESS),
        }
    }

    /// Both clocks, for one turn.
    pub fn now(&self) -> Now {
        let unix_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
            });
        let ns = nanoseconds(SLEEPLESS).saturating_sub(self.origin_ns);
        Now {
            instant: Instant { ns },
            unix_ns,
        }
    }
}

impl ThreadCpuClock {
    /// Nanoseconds of processor time the calling thread has used since it began. This is a system
    /// call: sample it, do not read it every turn.
    pub fn ns(self) -> u64 {
        nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
    }
}

/// The machine's monotonic clock in nanoseconds, as the kernel's own programs read it: for words
/// that both sides compare.
pub fn monotonic_ns() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// Linux's monotonic clock stands still while the machine is suspended; this one does not, and is
/// read as fast.
const SLEEPLESS: libc::clockid_t = match cfg!(miri) {
    true => libc::CLOCK_MONOTONIC,
    false => libc::CLOCK_BOOTTIME,
};

/// What a clock of the system shows; 0 if there is no such clock.
fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the kernel to fill in, and lives past the call.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    if answer != 0 {
        return 0;
    }
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let clock = Clock::start();
        let first = clock.now();
        let cpu = ThreadCpuClock.ns();
        let mut spun = 0_u64;
        while clock.now().instant.ns < first.instant.ns + 2_000_000 {
            spun = spun.wrapping_add(1);
        }
        assert!(clock.now().unix_ns > 1_600_000_000_000_000_000);
        assert!(ThreadCpuClock.ns() > cpu, "spun {spun} times");
    }
}
