//! Seeded randomness: xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number
//! generators", 2021), seeded by SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
//! number generators", 2014).
//!
//! A seed replays a run. The generator is our own because a pure crate has few dependencies; its
//! output is held to the published one by the tests below. Integers are the same on every machine;
//! what goes through a logarithm may differ in its last bit between mathematics libraries.

/// A pseudo-random sequence; the same seed gives the same sequence.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Random {
    state: [u64; 4],
}

/// A probability, prepared so that asking costs one comparison of integers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Chance {
    /// True for words below this; 2^64 is always.
    below: u128,
}

impl Random {
    /// The sequence of this seed. Neighbouring seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self {
            state: [(); 4].map(|()| split_mix(&mut state)),
        }
    }

    /// A sequence of its own for the part called `index` of a run with this seed: a connection, a
    /// thread, a simulated client.
    pub fn of_stream(seed: u64, index: u64) -> Self {
        Self::new(mix(seed ^ mix(index.wrapping_add(STREAM))))
    }

    /// Every 64-bit word alike.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let word = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        word
    }

    /// Uniform in 0..`bound`; 0 for a bound of 0. The bias, `bound` in 2^64, is below what any run
    /// could notice.
    pub fn below(&mut self, bound: u64) -> u64 {
        scaled(self.next(), bound)
    }

    /// True once in so many times on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `all`, each alike.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Uniform in the open interval (0, 1), in steps of 2^-52.
    pub fn unit(&mut self) -> f64 {
        unit(self.next())
    }

    /// True with this probability.
    pub fn chance(&mut self, chance: Chance) -> bool {
        u128::from(self.next()) < chance.below
    }

    /// Exponentially distributed with this mean: the gap to the next event of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

impl Chance {
    /// `probability` outside 0..=1 counts as the nearer end; not-a-number as 0.
    pub fn new(probability: f64) -> Self {
        let whole = (1_u128 << 64) as f64;
        Self {
            below: ((probability * whole) as u128).min(1 << 64),
        }
    }
}

/// The finaliser of SplitMix64: a bijection that spreads every bit of a word over all others. With
/// it a key's number becomes the hash that decides the key's size.
pub const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN);
    mix(*state)
}

/// `word` of 0..2^64 scaled to 0..`bound`.
pub(crate) fn scaled(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

/// `word` of 0..2^64 scaled to the open interval (0, 1). 52 bits, not 53: the half added to the
/// largest 53-bit number would round up to 1.
pub(crate) fn unit(word: u64) -> f64 {
    ((word >> 12) as f64 + 0.5) * (1.0 / (1_u64 << 52) as f64)
}

/// 2^64 divided by the golden ratio, SplitMix64's step.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Sets streams apart from plain seeds.
const STREAM: u64 = 0x7374_7265_616d;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the generators are the published ones. Method: SplitMix64's first five words for the
    /// seed 1234567, and xoshiro256++'s first ten for the state 1, 2, 3, 4, from its authors' code.
    #[test]
    fn words_are_the_published_ones() {
        let mut state = 1_234_567;
        let words = [(); 5].map(|()| split_mix(&mut state));
        assert_eq!(
            words,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let words = [(); 10].map(|()| random.next());
        assert_eq!(
            words,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386,
                9_228_616_714_210_784_205,
                9_973_669_472_204_895_162,
                14_011_001_112_246_962_877,
                12_406_186_145_184_390_807,
                15_849_039_046_786_891_736,
                10_450_023_813_501_588_000,
            ]
        );
    }

    #[test]
    fn a_seed_replays_and_streams_differ() {
        let words = |mut random: Random| [(); 8].map(|()| random.next());
        assert_eq!(words(Random::new(9)), words(Random::new(9)));
        assert_ne!(words(Random::new(9)), words(Random::new(10)));
        assert_ne!(
            words(Random::of_stream(9, 0)),
            words(Random::of_stream(9, 1))
        );
        assert_ne!(words(Random::of_stream(9, 0)), words(Random::new(9)));
    }

    /// Goal: every part of 0..bound is hit alike. Method: 70,000 draws below 7, each count within
    /// five standard deviations (92.6 each).
    #[test]
    fn below_is_uniform_and_bounded() {
        let mut random = Random::new(3);
        let mut seen = [0_i64; 7];
        for _ in 0..70_000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (n - 10_000).abs() < 463), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn chances_have_their_probability_and_their_ends_are_certain() {
        let mut random = Random::new(5);
        let mut hits = |p| {
            (0..40_000)
                .filter(|_| random.chance(Chance::new(p)))
                .count()
        };
        assert_eq!((hits(0.0), hits(1.0)), (0, 40_000));
        assert_eq!((hits(-1.0), hits(2.0), hits(f64::NAN)), (0, 40_000, 0));
        // Five standard deviations of 40,000 draws at 0.05 are 218.
        assert!(hits(0.05).abs_diff(2_000) < 218);
    }

    #[test]
    fn unit_never_reaches_its_ends() {
        assert!(unit(0) > 0.0 && unit(u64::MAX) < 1.0);
    }

    #[test]
    fn exponential_gaps_have_their_mean_and_spread() {
        let mut random = Random::new(1);
        let gaps: Vec<f64> = (0..100_000).map(|_| random.exponential(3.0)).collect();
        let mean = gaps.iter().sum::<f64>() / 1e5;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 1e5;
        assert!((mean - 3.0).abs() < 0.05, "{mean}");
        assert!((variance - 9.0).abs() < 0.5, "{variance}");
    }
}
