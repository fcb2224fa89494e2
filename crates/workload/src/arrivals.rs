//! The times at which requests are sent: machines of virtual time, in nanoseconds from the start of
//! the run.
//!
//! Open loops (Poisson, constant) are iterators of the times at which a request is *meant* to be
//! sent; a driver that is late measures from these times and hides no delay. A closed loop sends
//! the next request after the reply to the last one. None looks at a clock.

use crate::{exponential::Exponential, random::Random, stepped_value::Phases};

/// How requests arrive.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Arrivals {
    /// Open loop with exponentially distributed gaps: many independent clients.
    Poisson,
    /// Open loop with equal gaps.
    Constant,
    /// Closed loop: a client thinks, exponentially distributed, then sends, then waits.
    Closed {
        /// Mean time to think; 0 sends at once.
        think_ns: u64,
    },
}

/// The times of a Poisson process, ascending. The rate may change by phases; within one it is
/// exact, because what is left of a gap has no memory of how long it has lasted.
#[derive(Clone, Debug)]
pub struct Poisson {
    rate: Phases,
    random: Random,
    exponential: Exponential,
    /// Mean gap of the current phase in 2^-20 ns, `None` without arrivals; when the phase ends.
    gap: Option<u64>,
    until_ns: u64,
    /// The last arrival in 2^-20 ns: the rates of tens of millions a second do not drift.
    now: u128,
}

/// Times at equal distances, ascending, without drift over any length of run.
#[derive(Clone, Debug)]
pub struct Constant {
    rate: Phases,
    phase_start_ns: u64,
    gap_ns: f64,
    until_ns: u64,
    /// Arrivals of the current phase so far, and where in it the first one is.
    count: u64,
    first_ns: f64,
}

/// The thinking time of the clients of a closed loop.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    random: Random,
    exponential: Exponential,
    think_ns: u64,
}

impl Poisson {
    /// `rate` is in requests a second; a phase of rate 0 has no arrivals.
    pub fn new(rate: Phases, seed: u64) -> Self {
        let mut poisson = Self {
            rate,
            random: Random::new(seed),
            exponential: Exponential::new(),
            gap: None,
            until_ns: 0,
            now: 0,
        };
        poisson.enter(0);
        poisson
    }

    #[cold]
    fn enter(&mut self, now_ns: u64) {
        self.now = u128::from(now_ns) << FRACTION_BITS;
        let gap = gap_ns(&self.rate, now_ns) * f64::from(1 << FRACTION_BITS);
        self.gap = gap.is_finite().then_some(gap as u64);
        self.until_ns = self.rate.until(now_ns).unwrap_or(u64::MAX);
    }
}

/// Ends after 2^64 nanoseconds, or when the last phase has no arrivals.
impl Iterator for Poisson {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            if let Some(gap) = self.gap {
                self.now += u128::from(self.exponential.draw(&mut self.random, gap));
                let at = u64::try_from(self.now >> FRACTION_BITS).unwrap_or(u64::MAX);
                if at < self.until_ns {
                    return Some(at);
                }
            }
            if self.until_ns == u64::MAX {
                return None;
            }
            self.enter(self.until_ns);
        }
    }
}

impl Constant {
    /// `rate` is in requests a second; the first request comes after one gap.
    pub fn new(rate: Phases) -> Self {
        Self::spread(rate, 0, 1)
    }

    /// The times of part `index` of `parts` that share the rate: each has the gaps of its share,
    /// set off so that all parts together have equal gaps.
    pub fn spread(rate: Phases, index: u32, parts: u32) -> Self {
        assert!(index < parts, "part {index} of {parts}");
        let share = 1.0 / f64::from(parts);
        let mut constant = Self {
            rate: rate.scaled(share),
            phase_start_ns: 0,
            gap_ns: 0.0,
            until_ns: 0,
            count: 0,
            first_ns: 0.0,
        };
        constant.enter(0, f64::from(index + 1) * share);
        constant
    }

    /// A phase begins, and its first arrival is this part of a gap away.
    #[cold]
    fn enter(&mut self, now_ns: u64, wait: f64) {
        self.phase_start_ns = now_ns;
        self.gap_ns = gap_ns(&self.rate, now_ns);
        self.until_ns = self.rate.until(now_ns).unwrap_or(u64::MAX);
        self.first_ns = if self.gap_ns.is_finite() {
            wait * self.gap_ns
        } else {
            f64::INFINITY
        };
        self.count = 0;
    }
}

/// Ends after 2^64 nanoseconds, or when the last phase has no arrivals.
impl Iterator for Constant {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let way = if self.count == 0 {
                self.first_ns
            } else {
                self.first_ns + self.count as f64 * self.gap_ns
            };
            let at = self.phase_start_ns.saturating_add(way as u64);
            if at < self.until_ns {
                self.count += 1;
                return Some(at);
            }
            if self.until_ns == u64::MAX {
                return None;
            }
            // The part of a gap that is left goes on in the next phase, at its pace.
            let over = self.phase_start_ns as f64 + way - self.until_ns as f64;
            let wait = if self.gap_ns.is_finite() {
                (over / self.gap_ns).clamp(0.0, 1.0)
            } else {
                1.0
            };
            self.enter(self.until_ns, wait);
        }
    }
}

impl ClosedLoop {
    /// Clients that think for `think_ns` on average.
    pub fn new(think_ns: u64, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            exponential: Exponential::new(),
            think_ns,
        }
    }

    /// When the client whose reply came at `completed_ns` sends its next request.
    pub fn after(&mut self, completed_ns: u64) -> u64 {
        let think_ns = self.exponential.draw(&mut self.random, self.think_ns);
        completed_ns.saturating_add(think_ns)
    }
}

/// Poisson arrivals are kept in parts of a nanosecond.
const FRACTION_BITS: u32 = 20;

/// The mean gap in nanoseconds; infinite without a rate.
fn gap_ns(rate: &Phases, now_ns: u64) -> f64 {
    1e9 / rate.at(now_ns).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(times: impl Iterator<Item = u64>, end: u64) -> Vec<u64> {
        times.take_while(|&at| at < end).collect()
    }

    /// Goal: arrivals in equal windows are Poisson distributed: mean and variance of their number
    /// agree with rate times window. Method: 2,000 windows of 100 expected arrivals; the mean has a
    /// standard error of 0.22, the variance of about 3.2; five of each.
    #[test]
    fn poisson_counts_have_equal_mean_and_variance() {
        let rate = Phases::fixed(91_430_000.0);
        let window = 100.0 / 91_430_000.0 * 1e9;
        let mut counts = vec![0_f64; 2_000];
        for at in Poisson::new(rate, 4) {
            match counts.get_mut((at as f64 / window) as usize) {
                Some(count) => *count += 1.0,
                None => break,
            }
        }
        let mean = counts.iter().sum::<f64>() / 2e3;
        let variance = counts.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 2e3;
        assert!((mean - 100.0).abs() < 1.1, "{mean}");
        assert!((variance - 100.0).abs() < 16.0, "{variance}");
    }

    #[test]
    fn a_seed_replays_arrivals() {
        let times =
            |seed| -> Vec<u64> { Poisson::new(Phases::fixed(1e6), seed).take(50).collect() };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
        assert!(times(1).is_sorted());
    }

    /// Goal: a dynamic schedule has each phase's rate in its phase. Method: counts per phase within
    /// five standard deviations, nothing in the phase of rate 0, and an end.
    #[test]
    fn rates_change_with_their_phases() {
        let second = 1_000_000_000;
        let rate = || Phases::new(vec![10_000.0, 0.0, 40_000.0, 0.0], second).unwrap();
        let times: Vec<u64> = Poisson::new(rate(), 8).collect();
        let in_phase = |times: &[u64], phase: u64| {
            let inside = |at: &&u64| (**at) / second == phase;
            times.iter().filter(inside).count()
        };
        assert!(in_phase(&times, 0).abs_diff(10_000) < 500);
        assert_eq!(in_phase(&times, 1), 0);
        assert!(in_phase(&times, 2).abs_diff(40_000) < 1_000);
        assert_eq!(times.last().map(|at| at / second), Some(2));
        let times: Vec<u64> = Constant::new(rate()).collect();
        assert!(in_phase(&times, 0).abs_diff(10_000) <= 1);
        assert_eq!(in_phase(&times, 1), 0);
        assert!(in_phase(&times, 2).abs_diff(40_000) <= 1);
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let times = until(Constant::new(Phases::fixed(3.0)), 3_000_000_000);
        assert_eq!(times[..3], [333_333_333, 666_666_666, 1_000_000_000]);
        // A third of a nanosecond lost per request would be 3 requests after 10^7.
        let last = Constant::new(Phases::fixed(300_000_000.0)).nth(9_999_999);
        assert_eq!(last, Some(33_333_333));
    }

    #[test]
    fn parts_of_a_constant_rate_interleave() {
        let whole = until(Constant::new(Phases::fixed(1e6)), 100_001);
        let mut parts: Vec<u64> = (0..4)
            .flat_map(|part| until(Constant::spread(Phases::fixed(1e6), part, 4), 100_001))
            .collect();
        parts.sort_unstable();
        assert_eq!(parts, whole);
    }

    #[test]
    fn closed_loops_think_for_their_mean() {
        let mut clients = ClosedLoop::new(5_000, 3);
        let sum: u64 = (0..20_000).map(|_| clients.after(1_000) - 1_000).sum();
        // Five standard errors of the mean are 177.
        assert!((sum / 20_000).abs_diff(5_000) < 178);
        assert_eq!(ClosedLoop::new(0, 3).after(7), 7);
    }
}
