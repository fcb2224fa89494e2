//! Which key a rank means: a seeded bijection on 0..n for any n, so that popular keys are not
//! neighbours and nothing has to be remembered.
//!
//! The words of b bits, b the least with 2^b >= n, are permuted by rounds of xor-shift and
//! multiplication, each of which can be undone; a result past n is permuted again until it falls
//! below ("cycle walking", Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). More
//! than half of all words are below n, so fewer than two passes are needed on average.

use crate::random::mix;

/// A bijection on 0..n.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Scramble {
    count: u64,
    /// 2^b - 1.
    mask: u64,
    /// At least half of b, so that a shift undoes itself.
    shift: u32,
    offset: u64,
    /// Odd, so that a multiplication can be undone.
    factors: [u64; 2],
}

impl Scramble {
    /// The bijection on 0..`count` with this seed; `count` is at least 1.
    pub fn new(count: u64, seed: u64) -> Self {
        assert!(count > 0, "no keys to scramble");
        let bits = 64 - (count - 1).leading_zeros();
        Self {
            count,
            mask: u64::MAX.checked_shr(64 - bits).unwrap_or(0),
            shift: bits.div_ceil(2).max(1),
            offset: mix(seed ^ 1),
            factors: [mix(seed ^ 2) | 1, mix(seed ^ 3) | 1],
        }
    }

    /// The key of a rank; both are below `count`.
    pub fn key(&self, rank: u64) -> u64 {
        let mut word = self.forth(rank);
        while word >= self.count {
            word = self.forth(word);
        }
        word
    }

    fn forth(&self, word: u64) -> u64 {
        let mut word = word.wrapping_add(self.offset) & self.mask;
        for factor in &self.factors {
            word ^= word >> self.shift;
            word = word.wrapping_mul(*factor) & self.mask;
        }
        word ^ (word >> self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_rank() {
        for count in (1..70).chain([127, 255, 256, 257, 1000, 4097]) {
            let scramble = Scramble::new(count, count);
            let mut keys: Vec<u64> = (0..count).map(|rank| scramble.key(rank)).collect();
            keys.sort_unstable();
            assert!(keys.iter().copied().eq(0..count), "{count} keys");
        }
    }

    #[test]
    fn keys_of_large_counts_are_distinct() {
        for count in [(1 << 40) + 1, (1 << 40) - 1, 10_000_000_000, 1 << 60] {
            let scramble = Scramble::new(count, 5);
            let ranks = (0..1000).map(|step| mix(step) % count);
            let mut keys: Vec<u64> = ranks.map(|rank| scramble.key(rank)).collect();
            assert!(keys.iter().all(|&key| key < count));
            keys.sort_unstable();
            assert!(keys.windows(2).all(|two| two[0] < two[1]), "{count} keys");
        }
    }

    /// Goal: popular keys are spread, by every seed otherwise, for counts at, above and below a
    /// power of two. Method: the hottest 1000 of a million keys fall into 16 slices and, by their
    /// remainder, into 16 classes, chi-square of both within six standard deviations; hot
    /// neighbours stay no neighbours; two seeds agree on next to none of them.
    #[test]
    fn hot_keys_are_spread_and_seeds_differ() {
        for count in [1 << 20, (1 << 20) + 1, 1_600_000, 2_000_000] {
            for seed in 0..4 {
                let scramble = Scramble::new(count, seed);
                let keys: Vec<u64> = (0..1000).map(|rank| scramble.key(rank)).collect();
                let other = Scramble::new(count, seed + 100);
                let chi_square = |class: &dyn Fn(u64) -> u64| {
                    let mut classes = [0_f64; 16];
                    keys.iter()
                        .for_each(|&key| classes[class(key) as usize] += 1.0);
                    classes
                        .iter()
                        .map(|n| (n - 62.5).powi(2) / 62.5)
                        .sum::<f64>()
                };
                let most = 15.0 + 6.0 * 30_f64.sqrt();
                assert!(chi_square(&|key| key * 16 / count) < most, "{count} {seed}");
                assert!(chi_square(&|key| key % 16) < most, "{count} {seed}");
                let near = keys.windows(2).filter(|two| two[0].abs_diff(two[1]) < 100);
                assert!(near.count() < 10, "{count} {seed}");
                let same = (0..1000).filter(|&rank| other.key(rank) == keys[rank as usize]);
                assert!(same.count() < 10, "{count} {seed}");
            }
        }
    }
}
