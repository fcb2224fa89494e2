//! How long an answer takes, and how long to wait for one: Jacobson and Karels (SIGCOMM 1988) in
//! the integer form of RFC 6298.
//!
//! A sample counts only if it is known which transmission was answered (Karn and Partridge, SIGCOMM
//! 1987); the protocol's stamp says so, and the caller gives nothing else.

/// A smoothed round trip and its deviation, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Rtt {
    smoothed_ns: u64,
    deviation_ns: u64,
    samples: u64,
}

impl Rtt {
    /// One answer took this long.
    pub(super) fn sample(&mut self, ns: u64) {
        if self.samples == 0 {
            self.smoothed_ns = ns;
            self.deviation_ns = ns / 2;
        } else {
            let error = self.smoothed_ns.abs_diff(ns);
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + error / 4;
            self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + ns / 8;
        }
        self.samples += 1;
    }

    /// The smoothed round trip; `None` before the first sample.
    pub(super) fn smoothed_ns(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.smoothed_ns)
    }

    /// How long to wait before sending again, between the bounds; the first bound is doubled while
    /// nothing is known.
    pub(super) fn timeout_ns(&self, min_ns: u64, max_ns: u64) -> u64 {
        let wanted = match self.samples {
            0 => min_ns.saturating_mul(FIRST),
            _ => self.smoothed_ns + 4 * self.deviation_ns,
        };
        wanted.clamp(min_ns, max_ns.max(min_ns))
    }
}

/// Before the first sample the wait is this many times the shortest.
const FIRST: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the wait follows the samples. Method: equal samples bring the wait down to them,
    /// samples that scatter keep it well above, and the bounds hold.
    #[test]
    fn the_wait_follows_what_is_seen() {
        let mut steady = Rtt::default();
        assert_eq!(steady.timeout_ns(1000, 1_000_000), 4000);
        (0..100).for_each(|_| steady.sample(20_000));
        assert_eq!(steady.smoothed_ns(), Some(20_000));
        let wait = steady.timeout_ns(1000, 1_000_000);
        assert!((20_000..20_100).contains(&wait), "{wait}");
        assert_eq!(steady.timeout_ns(50_000, 1_000_000), 50_000);
        let mut scattered = Rtt::default();
        (0..100).for_each(|i| scattered.sample(if i % 2 == 0 { 10_000 } else { 30_000 }));
        assert!(scattered.timeout_ns(1000, 1_000_000) > 40_000);
        assert_eq!(scattered.timeout_ns(1000, 25_000), 25_000);
    }
}
