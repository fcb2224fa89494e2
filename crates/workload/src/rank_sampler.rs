//! Draws the popularity rank of the next request.
//!
//! Zipf's law is drawn from [`crate::zipf_sampler`]: a small table that stays in the first cache,
//! and rarely a power to compute. By `benches/draw.rs` a rank of 1.6 M keys takes 4.4 ns at
//! exponent 0.99, on a busy two-core machine.

use crate::{random::Random, zipf_sampler::Bins};

/// How often each key is asked for, by rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Every key alike.
    Uniform,
    /// The r-th most popular key in proportion to 1 / r^exponent.
    Zipf {
        /// From 0, which is uniform, to 20; production caches are between 0 and 2.7.
        exponent: f64,
    },
    /// As Zipf, but rank 0 is the key that was inserted last, rank 1 the one before it, and so on.
    Latest {
        /// As Zipf's.
        exponent: f64,
    },
}

/// Draws ranks 0..count; 0 is the most popular. Copies share their table.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranks {
    count: u64,
    /// None where all ranks are alike.
    bins: Option<Bins>,
}

impl Ranks {
    /// `count` is 1 to 2^51.
    pub fn new(count: u64, popularity: Popularity) -> Self {
        assert!(count > 0, "no ranks to draw from");
        let bins = match popularity {
            Popularity::Zipf { exponent } | Popularity::Latest { exponent } if exponent > 0.0 => {
                Some(Bins::new(count, exponent))
            }
            _ => None,
        };
        Self { count, bins }
    }

    /// A rank, below `count`.
    #[inline]
    pub fn rank(&self, random: &mut Random) -> u64 {
        match &self.bins {
            Some(bins) => bins.rank(random),
            None => random.below(self.count),
        }
    }

    /// How many ranks there are.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_ranks_are_uniform() {
        let mut random = Random::new(1);
        let flat = Popularity::Zipf { exponent: 0.0 };
        for popularity in [Popularity::Uniform, flat] {
            let ranks = Ranks::new(10_000_000_000, popularity);
            let draws: Vec<u64> = (0..40_000).map(|_| ranks.rank(&mut random)).collect();
            let low = draws.iter().filter(|&&rank| rank < 2_500_000_000).count();
            // Five standard deviations of a quarter of 40,000.
            assert!(low.abs_diff(10_000) < 434, "{low}");
        }
    }
}
