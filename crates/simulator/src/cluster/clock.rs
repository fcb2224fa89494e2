//! The clocks of a node, which differ from those of other nodes.

use curtail_types::{Instant, Now};
use curtail_workload::Random;

/// How a node's clocks relate to the world's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// What the monotonic clock showed at the start.
    origin: u64,
    /// Nanoseconds that it gains in 2^20 of the world's.
    gains: i64,
    /// What wall time is off by.
    wall_off: i64,
}

impl Clock {
    /// At most 0.9 % fast or slow, which the margin of the leases allows for, and half a second
    /// off wall time.
    pub(super) fn new(drifts: bool, random: &mut Random) -> Self {
        let mut within = |most: u64| random.below(2 * most + 1) as i64 - most as i64;
        let (gains, wall_off) = (within(9_437), within(500_000_000));
        Self {
            origin: random.below(1 << 40),
            gains: if drifts { gains } else { 0 },
            wall_off: if drifts { wall_off } else { 0 },
        }
    }

    /// What it shows at the world's time `at`.
    pub(super) fn instant(&self, at: u64) -> Instant {
        let gained = (at as i128 * i128::from(self.gains)) >> 20;
        Instant {
            ns: (i128::from(self.origin) + at as i128 + gained) as u64,
        }
    }

    /// When in the world it shows `instant`, or the moment after.
    pub(super) fn world(&self, instant: Instant) -> u64 {
        let passed = i128::from(instant.ns) - i128::from(self.origin);
        let at = (passed << 20) / ((1 << 20) + i128::from(self.gains));
        u64::try_from(at.max(0) + 2).unwrap_or(u64::MAX / 2)
    }

    /// Both clocks.
    pub(super) fn now(&self, at: u64) -> Now {
        Now {
            instant: self.instant(at),
            unix_ns: (START_UNIX_NS + at).saturating_add_signed(self.wall_off),
        }
    }
}

/// How long a node may serve after it began to read the store of views, by its clock.
pub(super) const LEASE_NS: u64 = 20_000_000;
/// Between two readings, by the world's.
pub(super) const READING_NS: u64 = LEASE_NS / 3;
/// After how long a silence a node is held for dead.
pub(super) const SUSPICION_NS: u64 = 10_000_000;

/// How long, once a node is silent, the last of the others may take until it acts on a view
/// without that node: its lease runs out, while it is missed and the others read the view.
pub(super) const fn removal_ns() -> u64 {
    let fenced = LEASE_NS + LEASE_NS / 100;
    let missed = SUSPICION_NS + SUSPICION_NS / 4 + READING_NS;
    let slow = if fenced > missed { fenced } else { missed };
    slow + 1_000_000
}

/// The same if most members were silent together: who hears less than half of them waits six times
/// as long before it suspects them (`consistency::members`).
pub(super) const fn removal_by_few_ns() -> u64 {
    removal_ns() + 5 * (SUSPICION_NS + SUSPICION_NS / 4)
}

const START_UNIX_NS: u64 = 1_800_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a timer set by a node's clock is not early.
    #[test]
    fn a_clock_shows_an_instant_when_it_is_said_to() {
        let mut random = Random::new(4);
        for _ in 0..200 {
            let clock = Clock::new(true, &mut random);
            for at in [0, 1, 12_345_678, 9_000_000_000] {
                let instant = clock.instant(at);
                let world = clock.world(instant);
                assert!(world.abs_diff(at) <= 4, "{world} {at}");
                assert!(clock.instant(world) >= instant);
            }
        }
    }
}
