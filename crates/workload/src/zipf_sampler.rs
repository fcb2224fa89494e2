//! Ranks by Zipf's law, exact, with no large table and with a power to compute only for a few draws
//! in a hundred.
//!
//! The ranks are cut into bins: the first 256 are a bin each, beyond every bin is 1/32 as wide as
//! its first rank, which makes 560 more of them for 10^10 ranks. A bin is drawn by its exact
//! probability from an alias table; within it a rank is drawn uniformly and kept with its density
//! relative to the bin's first rank, which is nearly 1: only a draw above the *last* rank's density
//! has to look closer (von Neumann's rejection with a squeeze).
//!
//! ```text
//!   density of the bin's first rank  +-----------------+
//!                                    |:::.....         |   . looks closer
//!   density of its last rank         +----------------.+
//!                                    |  kept at once   |
//!                                    +-----------------+
//! ```

use std::sync::Arc;

use crate::{
    alias::Alias,
    random::Random,
    zipf_sums::{SUMMED, sum_past},
};

/// Draws ranks with Zipf's probabilities. Ranks count from 0. Copies share their tables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bins {
    exponent: f64,
    alias: Alias,
    bins: Arc<[Bin]>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Bin {
    /// The first rank, counted from one.
    first: u64,
    width: u64,
    /// Below this, of 2^64, every rank of the bin is kept.
    sure: u64,
}

impl Bins {
    /// Ranks 0..`count` for an exponent above 0.
    pub(crate) fn new(count: u64, exponent: f64) -> Self {
        let mut bins = Vec::new();
        let mut weights = Vec::new();
        let mut first = 1;
        while first <= count {
            let width = if first <= SINGLE { 1 } else { first / PARTS };
            let bin = Bin::new(first, width.min(count + 1 - first), exponent);
            weights.push(bin.weight(exponent));
            first += bin.width;
            bins.push(bin);
        }
        Self {
            exponent,
            alias: Alias::new(&weights),
            bins: bins.into(),
        }
    }

    /// A rank, counted from 0.
    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        let bin = &self.bins[self.alias.draw(random) as usize];
        bin.rank(random, self.exponent)
    }
}

impl Bin {
    fn new(first: u64, width: u64, exponent: f64) -> Self {
        let bin = Self {
            first,
            width,
            sure: 0,
        };
        let last = bin.density(first + width - 1, exponent);
        // The margin is far above rounding, and what it leaves is decided exactly.
        let sure = if width == 1 {
            u64::MAX
        } else {
            ((last - 1e-9) * WHOLE) as u64
        };
        Self { sure, ..bin }
    }

    /// One of its ranks, counted from 0.
    fn rank(&self, random: &mut Random, exponent: f64) -> u64 {
        loop {
            let product = u128::from(random.next()) * u128::from(self.width);
            let rank = self.first + (product >> 64) as u64;
            let height = product as u64;
            if height < self.sure || self.is_under(rank, height, exponent) {
                return rank - 1;
            }
        }
    }

    /// Density of a rank relative to the first one's.
    fn density(&self, rank: u64, exponent: f64) -> f64 {
        (self.first as f64 / rank as f64).powf(exponent)
    }

    #[cold]
    fn is_under(&self, rank: u64, height: u64, exponent: f64) -> bool {
        (height as f64) < self.density(rank, exponent) * WHOLE
    }

    fn weight(&self, exponent: f64) -> f64 {
        if self.width == 1 {
            (self.first as f64).powf(-exponent)
        } else {
            sum_past(self.first - 1, self.first + self.width - 1, exponent)
        }
    }
}

/// Ranks that are a bin each.
const SINGLE: u64 = 256;
/// A wider bin is its first rank divided by this: at most 3 % of the draws look closer at exponent
/// 1, in proportion at others.
const PARTS: u64 = 32;
/// 2^64.
const WHOLE: f64 = 18_446_744_073_709_551_616.0;
const _: () = assert!(SINGLE >= SUMMED && SINGLE >= PARTS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zipf_sums::harmonic;

    /// Goal: the bins cover every rank once and their weights are the exact sums. Method: added up
    /// for sizes around the bins' edges.
    #[test]
    fn bins_cover_all_ranks() {
        for exponent in [0.3, 1.0, 2.7] {
            for count in [1, 2, 256, 257, 264, 265, 5_000, 1_600_000] {
                let bins = Bins::new(count, exponent).bins;
                let mut next = 1;
                for bin in bins.iter() {
                    assert!(bin.first == next && bin.width >= 1);
                    next += bin.width;
                }
                assert_eq!(next, count + 1);
                let sum: f64 = bins.iter().map(|bin| bin.weight(exponent)).sum();
                let far = (sum / harmonic(count, exponent) - 1.0).abs();
                assert!(far < 1e-11, "{far} at {exponent} of {count}");
            }
        }
    }

    /// Goal: within a bin ranks have Zipf's ratios too, which a test of all ranks could not tell
    /// from alike. Method: the mean of 200,000 draws from the bin 3200..3300, against the sum;
    /// alike would be 12 standard errors off.
    #[test]
    fn ranks_within_a_bin_keep_their_ratios() {
        let exponent = 2.7;
        let bin = Bin::new(3200, 100, exponent);
        let weight = |rank: u64| (rank as f64).powf(-exponent);
        let (sum, moment) = (3200..3300).fold((0.0, 0.0), |(sum, moment), rank| {
            (sum + weight(rank), moment + weight(rank) * rank as f64)
        });
        let mut random = Random::new(3);
        let ranks = (0..200_000).map(|_| bin.rank(&mut random, exponent) + 1);
        let mean = ranks.sum::<u64>() as f64 / 200_000.0;
        let error = 100.0 / 12_f64.sqrt() / 200_000_f64.sqrt();
        assert!((mean - moment / sum).abs() < 4.0 * error, "{mean}");
        assert!((3249.5 - moment / sum).abs() > 8.0 * error);
    }

    #[test]
    fn tables_are_small_and_tails_do_not_cancel() {
        let bins = Bins::new(10_000_000_000, 2.7).bins;
        assert!(bins.len() < 850, "{}", bins.len());
        assert!(
            bins.windows(2)
                .skip(256)
                .all(|two| two[1].weight(2.7) > 0.0)
        );
    }
}
