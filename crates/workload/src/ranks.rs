//! How often each key is asked for: which rank the next request is for, as fast as can be.
//!
//! Three ways to draw from Zipf's law, all exact. From bins, the default: a small table that stays
//! in the first cache and rarely a power to compute. By rejection-inversion: a power every time, no
//! memory. From a table of all ranks: one look, but one that misses the cache when ranks are many.
//!
//! Measured by `benches/draw.rs` on a busy two-core machine, 1.6 M keys, exponent 0.99: bins 4.4 ns
//! a rank, rejection-inversion 17, a table of 13 MB 5 to 40. In a whole request (zipf 1.25) the
//! table makes 100 ns of 26, because its misses no longer overlap.

use crate::{alias::Alias, bins::Bins, random::Random, zipf::Zipf};

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
    method: Method,
}

/// All methods have the same probabilities; they differ in speed and memory.
#[derive(Clone, Debug, PartialEq)]
enum Method {
    Uniform,
    Drawn(Zipf),
    Table(Alias),
    Bins(Bins),
}

impl Ranks {
    /// By the fastest method for this count and popularity. `count` is 1 to 2^51.
    pub fn new(count: u64, popularity: Popularity) -> Self {
        match popularity {
            Popularity::Zipf { exponent } | Popularity::Latest { exponent } if exponent > 0.0 => {
                Self::by(count, Method::Bins(Bins::new(count, exponent)))
            }
            _ => Self::by(count, Method::Uniform),
        }
    }

    /// Zipf by rejection-inversion alone: no table, no memory.
    pub fn drawn(count: u64, exponent: f64) -> Self {
        Self::by(count, Method::Drawn(Zipf::new(count, exponent)))
    }

    /// Zipf from a table of all ranks: 8 bytes a rank, at most 2^31 ranks.
    pub fn table(count: u64, exponent: f64) -> Self {
        let weights: Vec<f64> = (1..=count).map(|r| (r as f64).powf(-exponent)).collect();
        Self::by(count, Method::Table(Alias::new(&weights)))
    }

    fn by(count: u64, method: Method) -> Self {
        assert!(count > 0, "no ranks to draw from");
        Self { count, method }
    }

    /// A rank, below `count`.
    #[inline]
    pub fn rank(&self, random: &mut Random) -> u64 {
        match &self.method {
            Method::Bins(bins) => bins.rank(random),
            Method::Uniform => random.below(self.count),
            Method::Table(table) => u64::from(table.draw(random)),
            Method::Drawn(zipf) => zipf.rank(random),
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

    /// Goal: every method draws from the same distribution. Method: 40,000 draws each, the share
    /// of nine ranges of ranks within five standard deviations of the exact one.
    #[test]
    fn all_methods_have_the_exact_probabilities() {
        const DRAWS: f64 = 40_000.0;
        for exponent in [0.3, 0.99, 1.0, 1.4, 2.7] {
            for count in [5, 256, 300, 20_000] {
                let ways = [
                    Ranks::new(count, Popularity::Zipf { exponent }),
                    Ranks::drawn(count, exponent),
                    Ranks::table(count, exponent),
                ];
                for (way, ranks) in ways.iter().enumerate() {
                    let mut random = Random::new(way as u64);
                    let mut drawn: Vec<u64> =
                        (0..DRAWS as u64).map(|_| ranks.rank(&mut random)).collect();
                    drawn.sort_unstable();
                    assert!(drawn.last().is_some_and(|&rank| rank < count));
                    for top in [1, 2, 3, 5, 7, 8, 256, 257, 2048] {
                        let share = crate::zipf::top_share(top, count, exponent);
                        let seen = drawn.partition_point(|&rank| rank < top) as f64;
                        let spread = (DRAWS * share * (1.0 - share)).max(0.0).sqrt();
                        let far = (seen - DRAWS * share).abs();
                        assert!(
                            far <= 5.0 * spread + 1.0,
                            "way {way}, exponent {exponent}, {count} ranks, top {top}"
                        );
                    }
                }
            }
        }
    }

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
