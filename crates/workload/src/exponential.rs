//! The exponential distribution, exact, with a logarithm in a few draws of a hundred only.
//!
//! As [`crate::zipf_sampler`]: the line is cut into bins of 1/16 of the mean up to 16 means; a bin
//! is drawn by its exact probability from an alias table, a point in it uniformly, and it is kept
//! with its density relative to the bin's left edge, e^-distance, of which 15/16 is below every
//! point's. Past 16 means the distribution has no memory and begins anew.

use crate::{
    alias::Alias,
    random::{Random, unit},
};

/// Draws exponentially distributed numbers. Copies share the table.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Exponential {
    alias: Alias,
}

impl Exponential {
    pub(crate) fn new() -> Self {
        let edge = |index: u32| (-f64::from(index) / PARTS).exp();
        let one_bin = -(-1.0 / PARTS).exp_m1();
        let mut weights: Vec<f64> = (0..BINS).map(|index| edge(index) * one_bin).collect();
        weights.push(edge(BINS));
        Self {
            alias: Alias::new(&weights),
        }
    }

    /// A whole number of the unit that `mean` is in, rounded down; `mean` is best far above 1.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Random, mean: u64) -> u64 {
        let bin = self.alias.draw(random);
        let inside = random.next();
        if bin == BINS || random.next() >= SURE {
            return self.look_closer(random, mean, bin);
        }
        place(bin, inside, mean)
    }

    /// What follows once a bin is drawn, without the shortcut: the point before was above the sure
    /// part, so the next height is drawn from what is left of it.
    #[cold]
    fn look_closer(&self, random: &mut Random, mean: u64, first: u32) -> u64 {
        let mut start = 0_u64;
        let mut bin = first;
        while bin == BINS {
            // 256 bins of 1/16.
            start = mean.saturating_mul(16).saturating_add(start);
            bin = self.alias.draw(random);
        }
        let sure = unit(SURE);
        let mut from = if first == BINS { 0.0 } else { sure };
        loop {
            let inside = random.next();
            let height = from + (1.0 - from) * random.unit();
            if height < (-unit(inside) / PARTS).exp() {
                return start.saturating_add(place(bin, inside, mean));
            }
            from = 0.0;
        }
    }
}

/// A point of a bin in the unit of `mean`.
fn place(bin: u32, inside: u64, mean: u64) -> u64 {
    // In units of 2^-60 means: 8 bits for the bin, 56 for the place in it.
    let means = u64::from(bin) << 56 | inside >> 8;
    let way = (u128::from(means) * u128::from(mean)) >> 60;
    u64::try_from(way).unwrap_or(u64::MAX)
}

const BINS: u32 = 256;
/// Bins per mean.
const PARTS: f64 = 16.0;
/// 15/16 of 2^64: 1 - 1/16 is below e^-1/16.
const SURE: u64 = 15 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the distribution is the exponential one. Method: chi-square of 100,000 draws in 64
    /// ranges of equal probability; 5 standard deviations.
    #[test]
    fn draws_are_exponentially_distributed() {
        let exponential = Exponential::new();
        let mut random = Random::new(12);
        let mut seen = [0_f64; 64];
        for _ in 0..100_000 {
            let way = exponential.draw(&mut random, 1 << 30) as f64;
            let above = (-way / f64::from(1 << 30)).exp();
            seen[((above * 64.0) as usize).min(63)] += 1.0;
        }
        let expected = 100_000.0 / 64.0;
        let chi_square: f64 = seen.iter().map(|n| (n - expected).powi(2) / expected).sum();
        assert!(
            (chi_square - 63.0).abs() < 5.0 * 126_f64.sqrt(),
            "{chi_square}"
        );
    }

    /// Goal: within a bin the density falls too. Method: the mean place in a bin of 400,000 draws;
    /// a flat density would be 11 standard errors off.
    #[test]
    fn points_within_a_bin_are_exponentially_distributed() {
        let exponential = Exponential::new();
        let mut random = Random::new(12);
        let bin = 1 << 30;
        let places = (0..400_000).map(|_| exponential.draw(&mut random, 16 * bin) % bin);
        let mean = places.sum::<u64>() as f64 / 400_000.0 / bin as f64;
        // The mean of e^-x/16 over 0..1.
        let expected = PARTS - 1.0 / (1.0 / PARTS).exp_m1();
        let error = 1.0 / 12_f64.sqrt() / 400_000_f64.sqrt();
        assert!(
            (mean - expected).abs() < 4.0 * error,
            "{mean}, not {expected}"
        );
        assert!((0.5 - expected) > 8.0 * error);
    }

    /// Goal: the far tail is there. Method: 40 million draws would see 4.5 past 16 means; here the
    /// table is entered with the word on which the last outcome's column begins.
    #[test]
    fn the_tail_has_its_outcome() {
        let exponential = Exponential::new();
        let outcomes = u64::from(BINS) + 1;
        let column = u64::from(BINS) * (u64::MAX / outcomes) + outcomes;
        assert_eq!(exponential.alias.pick(column), BINS);
        assert_ne!(exponential.alias.pick(column + (1 << 50)), BINS);
    }
}
