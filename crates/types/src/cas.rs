//! Versions of items: 48 bits of hybrid logical clock and 16 bits of writer.
//!
//! A version is unique across deletes, restarts and nodes: the clock part never goes back, and two
//! writers never share a writer id. It is what memcached's clients see as the "cas unique". The
//! clock is hybrid (Kulkarni et al., "Logical physical clocks", 2014): it follows wall time and
//! counts on its own when several writes fall into one tick.

use crate::{cluster::NodeId, time::Now};

/// An item's version, as clients see it; 0 is never given to an item.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cas(pub u64);

/// One of the 2^16 writers: a worker thread of some node.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct WriterId(pub u16);

impl Cas {
    /// A version out of its parts; `clock` has 48 bits.
    pub const fn new(clock: u64, writer: WriterId) -> Self {
        Self(clock << 16 | writer.0 as u64)
    }

    /// The clock part: between nodes, the Lamport clock of a write (ccKVS requirement CC-34).
    pub const fn clock(self) -> u64 {
        self.0 >> 16
    }

    /// Who gave it.
    pub const fn writer(self) -> WriterId {
        WriterId(self.0 as u16)
    }
}

impl WriterId {
    /// Writers that one node may have.
    pub const PER_NODE: u16 = 1 << 10;

    /// Writer `index` of `node`.
    pub const fn of(node: NodeId, index: u16) -> Self {
        Self(node.0 as u16 * Self::PER_NODE + index % Self::PER_NODE)
    }

    /// The node that it belongs to.
    pub const fn node(self) -> NodeId {
        NodeId((self.0 / Self::PER_NODE) as u8)
    }
}

/// Gives out versions for one writer.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct HybridClock {
    ticks: u64,
    writer: WriterId,
}

impl HybridClock {
    /// Ticks a second: 2^18, so that 48 bits last 34 years. A writer that writes more than this
    /// for long runs ahead of wall time, which harms nothing: its clock still never goes back.
    pub const TICKS_PER_SECOND: u64 = 1 << 18;

    /// The clock counts from the start of 2026, in Unix seconds.
    pub const EPOCH_UNIX_SECONDS: u64 = 1_767_225_600;

    /// A clock for `writer` that continues after `last`, the highest version known to have been
    /// given out before (0 at a cold start).
    pub const fn new(writer: WriterId, last: Cas) -> Self {
        Self {
            ticks: last.0 >> 16,
            writer,
        }
    }

    /// The version of the next write, greater than every one given before.
    #[inline]
    pub const fn next(&mut self, now: Now) -> Cas {
        let wall = Self::wall_ticks(now);
        self.ticks = if wall > self.ticks {
            wall
        } else {
            self.ticks + 1
        };
        Cas(self.ticks << 16 | self.writer.0 as u64)
    }

    /// Versions given from now on are above `version`.
    pub const fn follow(&mut self, version: Cas) {
        if version.clock() > self.ticks {
            self.ticks = version.clock();
        }
    }

    /// The highest version given so far, to save and continue from.
    pub const fn last(&self) -> Cas {
        Cas(self.ticks << 16 | 0xffff)
    }

    const fn wall_ticks(now: Now) -> u64 {
        let since_ns = now
            .unix_ns
            .saturating_sub(Self::EPOCH_UNIX_SECONDS * 1_000_000_000);
        ((since_ns as u128 * Self::TICKS_PER_SECOND as u128) / 1_000_000_000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        unix_ns: 1_800_000_000_000_000_000,
        instant: crate::time::Instant { ns: 0 },
    };

    #[test]
    fn versions_rise_within_a_tick_and_when_the_wall_clock_goes_back() {
        let mut clock = HybridClock::new(WriterId(3), Cas(0));
        let first = clock.next(NOW);
        let second = clock.next(NOW);
        let third = clock.next(Now {
            unix_ns: NOW.unix_ns - 1_000_000_000,
            ..NOW
        });
        assert!(first < second && second < third);
        assert_eq!(first.0 & 0xffff, 3);
    }

    #[test]
    fn a_restored_clock_continues_after_the_saved_version() {
        let mut clock = HybridClock::new(WriterId(1), Cas(0));
        clock.next(NOW);
        let mut restored = HybridClock::new(WriterId(0), clock.last());
        assert!(restored.next(Now::default()) > clock.last());
    }
}
