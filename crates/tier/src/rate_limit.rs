//! How many requests a back end serves in a second, so that one machine can stand for many slow
//! ones (the paper's emulated back ends, section 2.4).

use curtail_types::Instant;

/// A token bucket as a time (generic cell rate algorithm).
#[derive(Clone, Debug)]
pub(crate) struct RateLimit {
    /// Between two requests; 0 is no limit.
    interval_ns: u64,
    /// How far requests may come early.
    burst_ns: u64,
    next: u64,
}

impl RateLimit {
    /// So many requests a second; 0 is no limit. Requests may come up to 100 ms early, as they
    /// would wait in the queue of a device.
    pub(crate) const fn new(per_s: u64) -> Self {
        let interval_ns = match per_s {
            0 => 0,
            some => 1_000_000_000 / some,
        };
        Self {
            interval_ns,
            burst_ns: if interval_ns * 4 > BURST_NS {
                interval_ns * 4
            } else {
                BURST_NS
            },
            next: 0,
        }
    }

    /// Whether a request that comes now is served.
    pub(crate) const fn admits(&mut self, now: Instant) -> bool {
        if self.interval_ns == 0 {
            return true;
        }
        if self.next > now.ns.saturating_add(self.burst_ns) {
            return false;
        }
        let from = if self.next > now.ns {
            self.next
        } else {
            now.ns
        };
        self.next = from + self.interval_ns;
        true
    }
}

const BURST_NS: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_what_the_limit_says_and_one_burst() {
        let mut limit = RateLimit::new(500);
        let served = (0..100_000_u64).filter(|at| limit.admits(Instant { ns: at * 10_000 }));
        let served = served.count();
        assert!((500..=552).contains(&served), "{served}");
        let mut none = RateLimit::new(0);
        assert!((0..10_000).all(|_| none.admits(Instant { ns: 5 })));
    }
}
