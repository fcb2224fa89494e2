//! Zipf's law: rank r is asked for with a probability proportional to 1 / r^exponent.
//!
//! Drawn by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates
//! from monotone discrete distributions", ACM TOMACS 1996): the density of the ranks is covered by
//! the continuous hat x^-exponent, a point under the hat is found by inverting the hat's integral,
//! and is kept if it lies under the step of its rank. The result is exact, needs no table, and
//! costs the same for ten keys and for ten thousand million.
//!
//! ```text
//!  1 |#.                 # steps of the ranks, . the hat; a point between both is
//!    |# .                drawn again (rare: 2 in 100 at an exponent of 0.99)
//!    |####.
//!    |########...
//!    +-----------------> x      a point belongs to the rank nearest to its x
//! ```
//!
//! The hat's integral is kept as its power x^(1-exponent), which keeps the far tail of large
//! exponents apart; within 0.001 of exponent 1, where the powers run together, as a logarithm.

use crate::random::Random;

/// Ranks with Zipf's probabilities. Ranks count from 0, the most popular.
#[derive(Clone, Debug, PartialEq)]
pub struct Zipf {
    law: Law,
    count: u64,
    /// The hat's integral where the first rank's step begins, and where the last one's ends.
    left: f64,
    right: f64,
    /// A point that lies at most this far below its rank is under the rank's step.
    squeeze: f64,
}

/// The hat and its integral, for one exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Law {
    exponent: f64,
    /// 1 - exponent, the power in the integral.
    power: f64,
    power_inverse: f64,
    near_one: bool,
}

impl Zipf {
    /// Ranks 0..`count`, at least one, at most 2^52; `exponent` of 0 (all alike) or more.
    pub fn new(count: u64, exponent: f64) -> Self {
        assert!((1..=COUNT_MAX).contains(&count), "{count} ranks");
        assert!((0.0..=EXPONENT_MAX).contains(&exponent), "{exponent}");
        let law = Law::new(exponent);
        Self {
            law,
            count,
            left: law.lowered(1.0),
            right: law.integral(count as f64 + 0.5),
            squeeze: 2.0 - law.inverse(law.lowered(2.0)),
        }
    }

    /// A rank, counted from 0.
    #[inline(never)]
    pub fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.right + random.unit() * (self.left - self.right);
            let x = self.law.inverse(area);
            let rank = ((x + 0.5) as u64).clamp(1, self.count);
            if rank as f64 - x <= self.squeeze || self.law.is_under(area, rank as f64) {
                return rank - 1;
            }
        }
    }
}

impl Law {
    fn new(exponent: f64) -> Self {
        let power = 1.0 - exponent;
        Self {
            exponent,
            power,
            power_inverse: 1.0 / power,
            near_one: power.abs() < NEAR_ONE,
        }
    }

    /// The integral of the hat up to `x`, in this exponent's form: x^power, which is the integral
    /// times `power`, or the integral from 1 on itself.
    fn integral(&self, x: f64) -> f64 {
        if self.near_one {
            let log = x.ln();
            log * growth(self.power * log)
        } else {
            x.powf(self.power)
        }
    }

    /// Where the integral is `area`.
    fn inverse(&self, area: f64) -> f64 {
        if self.near_one {
            (area * shrinkage(self.power * area)).exp()
        } else {
            area.powf(self.power_inverse)
        }
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The integral at the end of a rank's step, less the step: where the rank's share begins.
    fn lowered(&self, rank: f64) -> f64 {
        let scale = if self.near_one { 1.0 } else { self.power };
        self.integral(rank + 0.5) - scale * self.density(rank)
    }

    /// Whether the point with this area lies under the step of `rank`. Below exponent 1 the power
    /// grows with the integral, above it falls.
    fn is_under(&self, area: f64, rank: f64) -> bool {
        let from = self.lowered(rank);
        if self.near_one || self.power > 0.0 {
            area >= from
        } else {
            area <= from
        }
    }
}

/// Sum of 1 / r^exponent over the ranks 1..=`count`: what the probabilities are divided by. Exact
/// to about 12 digits for every count, by the Euler-Maclaurin formula past the first terms.
pub fn harmonic(count: u64, exponent: f64) -> f64 {
    let summed = count.min(SUMMED);
    // From the smallest on, so that no term is lost in a larger sum.
    let head: f64 = (1..=summed).rev().map(|r| term(r, exponent)).sum();
    if count <= SUMMED {
        return head;
    }
    head + sum_past(SUMMED, count, exponent)
}

/// The same sum over the ranks past `from` up to `to`, by the Euler-Maclaurin formula, with the
/// relative error of `harmonic` however small the sum; `from` is at least `SUMMED`.
pub(crate) fn sum_past(from: u64, to: u64, exponent: f64) -> f64 {
    let (from, to) = (from as f64, to as f64);
    let third = exponent * (exponent + 1.0) * (exponent + 2.0);
    let edge = |x: f64| {
        x.powf(-exponent) / 2.0 - exponent * x.powf(-exponent - 1.0) / 12.0
            + third * x.powf(-exponent - 3.0) / 720.0
    };
    stretch(from, to, 1.0 - exponent) + edge(to) - edge(from)
}

/// The integral of x^(power - 1) between two points.
fn stretch(from: f64, to: f64, power: f64) -> f64 {
    let ratio = (to / from).ln();
    from.powf(power) * ratio * growth(power * ratio)
}

/// Probability of a rank, counted from 0, among `count`.
pub fn probability(rank: u64, count: u64, exponent: f64) -> f64 {
    term(rank + 1, exponent) / harmonic(count, exponent)
}

/// Probability that one of the `top` most popular ranks among `count` is drawn.
pub fn top_share(top: u64, count: u64, exponent: f64) -> f64 {
    harmonic(top.min(count), exponent) / harmonic(count, exponent)
}

fn term(rank: u64, exponent: f64) -> f64 {
    (rank as f64).powf(-exponent)
}

/// (e^x - 1) / x, also at 0.
fn growth(x: f64) -> f64 {
    if x.abs() < 1e-9 {
        1.0 + x / 2.0
    } else {
        x.exp_m1() / x
    }
}

/// ln(1 + x) / x, also at 0.
fn shrinkage(x: f64) -> f64 {
    if x.abs() < 1e-9 {
        1.0 - x / 2.0
    } else {
        x.ln_1p() / x
    }
}

/// Larger exponents leave nothing but the first rank.
pub(crate) const EXPONENT_MAX: f64 = 20.0;
/// Every rank and every half between two must be a different floating-point number.
pub(crate) const COUNT_MAX: u64 = 1 << 51;
/// Within this distance of exponent 1 the integral is a logarithm. At it, a power still tells
/// 10^10 ranks apart: its steps of 2^-53 are 10^-13 of a rank's logarithm.
const NEAR_ONE: f64 = 1e-3;
/// Terms that `harmonic` adds one by one.
pub(crate) const SUMMED: u64 = 100;

#[cfg(test)]
mod tests;
