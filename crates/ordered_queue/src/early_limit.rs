//! How many writes may wait in a queue for one more to be acknowledged before it is executed
//! (JB-44): as many as the executor, by its own measurement, executes in the time that a read may
//! have to wait.
//!
//! ```text
//! entries = time that a read may wait / time that one entry takes, at least 8, at most a ceiling
//! bytes   = the queue's share of the memory that may be promised; uncounted where the longest
//!           datagrams in so many entries cannot exceed it
//! ```
//!
//! The time of an entry is a moving average over turns that the executor times. A turn counts at
//! most four times the average, since what looks like a slow execution may be a thread that lost
//! its processor: one such turn raises the average by 75 %, ten slow turns raise it to any value.

use crate::layout;

/// When a write may be acknowledged early.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct EarlyLimits {
    /// How long a read may have to wait for writes that were acknowledged before it, in
    /// nanoseconds; 0: as long as `entries_max` takes.
    pub read_wait_ns: u64,
    /// Entries at most; 0: nothing is acknowledged early.
    pub entries_max: u64,
    /// Bytes at most of datagrams that are acknowledged and not executed.
    pub bytes_max: u64,
}

/// How long a queue's executor takes for one entry: a moving average.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ExecutionTime {
    /// Nanoseconds.
    pub entry_ns: u64,
}

impl EarlyLimits {
    /// Entries that may wait below which they are executed fast enough for any read: a limit below
    /// this would give up early acknowledgement for a wait of a few executions.
    pub const ENTRIES_LEAST: u64 = 8;

    /// How many may wait when execution takes so long.
    pub fn entries(&self, time: ExecutionTime) -> u64 {
        let least = Self::ENTRIES_LEAST.min(self.entries_max);
        match self.read_wait_ns {
            0 => self.entries_max,
            wait_ns => (wait_ns / time.entry_ns.max(1)).clamp(least, self.entries_max),
        }
    }

    /// Whether acknowledged bytes must be counted so that they stay within their share.
    pub const fn counts_bytes(&self) -> bool {
        self.bytes_max / (layout::PAYLOAD_BYTES_MAX as u64) < self.entries_max
    }

    /// Memory credits of a queue with so many bytes that are acknowledged and not executed.
    pub const fn credits(&self, outstanding_bytes: u64) -> u64 {
        match self.counts_bytes() {
            true => self.bytes_max.saturating_sub(outstanding_bytes),
            false => 2 * layout::BYTES_UNLIMITED,
        }
    }
}

impl ExecutionTime {
    /// The average after a turn that took `turn_ns` for so many entries.
    #[must_use]
    pub const fn after_turn(self, turn_ns: u64, entries: u64) -> Self {
        if entries == 0 {
            return self;
        }
        let (mean, sample) = (self.entry_ns, turn_ns / entries);
        let highest = mean.saturating_mul(OUTLIER);
        let counted = if sample > highest { highest } else { sample };
        let entry_ns = mean - mean / WEIGHT + counted / WEIGHT;
        Self {
            entry_ns: if entry_ns < LEAST_NS {
                LEAST_NS
            } else {
                entry_ns
            },
        }
    }
}

impl Default for ExecutionTime {
    /// What a small write takes; the first turns correct it.
    fn default() -> Self {
        Self { entry_ns: 1000 }
    }
}

/// A new turn's part of the average is one in so many.
const WEIGHT: u64 = 4;
/// A turn counts so many times the average at most.
const OUTLIER: u64 = 4;
/// The average is not below this, or it could not rise again.
const LEAST_NS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EarlyLimits = EarlyLimits {
        read_wait_ns: 1_000_000,
        entries_max: 256,
        bytes_max: 1 << 20,
    };

    fn entries(limits: EarlyLimits, entry_ns: u64) -> u64 {
        limits.entries(ExecutionTime { entry_ns })
    }

    /// The limit is the wait divided by the time, between floor and ceiling; no early
    /// acknowledgement stays none, and a wait of 0 leaves the ceiling.
    #[test]
    fn the_limit_is_what_is_executed_within_the_wait() {
        for (entry_ns, limit) in [
            (0, 256),
            (16, 256),
            (3906, 256),
            (3922, 254),
            (10_000, 100),
            (50_000, 20),
            (200_000, 8),
            (u64::MAX, 8),
        ] {
            assert_eq!(entries(LIMITS, entry_ns), limit, "{entry_ns} ns");
        }
        let never = EarlyLimits {
            entries_max: 0,
            ..LIMITS
        };
        assert_eq!(entries(never, 1), 0);
        let few = EarlyLimits {
            entries_max: 3,
            ..LIMITS
        };
        assert_eq!(entries(few, 10_000_000), 3);
        let untimed = EarlyLimits {
            read_wait_ns: 0,
            ..LIMITS
        };
        assert_eq!(entries(untimed, 10_000_000), 256);
    }

    /// Goal: the average follows a lasting change both ways, and one turn in which the thread did
    /// not run does not take early acknowledgement away.
    #[test]
    fn the_average_follows_what_lasts() {
        let turns = |mut time: ExecutionTime, count: usize, turn_ns| {
            for _ in 0..count {
                time = time.after_turn(turn_ns, 32);
            }
            time
        };
        let fast = turns(ExecutionTime::default(), 40, 32 * 500);
        assert!((480..=520).contains(&fast.entry_ns), "{fast:?}");
        let paused = fast.after_turn(50_000_000, 1);
        assert!(LIMITS.entries(paused) == 256, "{paused:?}");
        let slow = turns(fast, 14, 32 * 300_000);
        assert!((200_000..=300_000).contains(&slow.entry_ns), "{slow:?}");
        assert_eq!(LIMITS.entries(slow), 8);
        let again = turns(slow, 30, 32 * 500);
        assert_eq!(LIMITS.entries(again), 256, "{again:?}");
        assert_eq!(fast.after_turn(7, 0), fast, "a turn without entries");
        let least = turns(fast, 100, 0);
        assert_eq!(least.entry_ns, LEAST_NS);
        assert!(turns(least, 30, 32 * 1000).entry_ns > 900, "it rises again");
    }

    /// Bytes are counted only where so many entries could exceed their share.
    #[test]
    fn bytes_are_counted_where_they_can_matter() {
        let longest = layout::PAYLOAD_BYTES_MAX as u64;
        let enough = EarlyLimits {
            bytes_max: 256 * longest,
            ..LIMITS
        };
        assert!(!enough.counts_bytes());
        assert!(enough.credits(1 << 30) >= layout::BYTES_UNLIMITED);
        let scarce = EarlyLimits {
            bytes_max: 256 * longest - 1,
            ..LIMITS
        };
        assert!(scarce.counts_bytes());
        assert_eq!(scarce.credits(100), 256 * longest - 101);
        assert_eq!(scarce.credits(u64::MAX), 0);
    }
}
