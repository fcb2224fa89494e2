//! Seeded randomness: one small generator and the two distributions that the load needs.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014): a seed replays a run. Zipf ranks are drawn by rejection-inversion (Hörmann
//! and Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions",
//! 1996), which needs no table, so that 10 million keys and any exponent cost the same.

/// A pseudo-random sequence; the same seed gives the same sequence.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: mix(seed) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Uniform in 0..`bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in the open interval (0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// The gap to the next arrival of a Poisson process with this mean gap.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

/// The finaliser of SplitMix64: a bijection that spreads every bit.
pub(crate) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Ranks 0..count with probability proportional to 1 / (rank + 1)^exponent.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral of the density's hat at the left and right edge.
    left: f64,
    right: f64,
    /// Below this distance from the rank a point is accepted without looking closer.
    squeeze: f64,
}

impl Zipf {
    /// `exponent` above 0 (1 included), `count` at least 1.
    pub(crate) fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self {
            count: count as f64,
            exponent,
            left: 0.0,
            right: 0.0,
            squeeze: 0.0,
        };
        zipf.left = zipf.integral(1.5) - 1.0;
        zipf.right = zipf.integral(zipf.count + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.right + random.unit() * (self.left - self.right);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.count);
            let inside =
                rank - x <= self.squeeze || area >= self.integral(rank + 0.5) - self.density(rank);
            if inside {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of x^-exponent, up to a constant: (x^(1-e) - 1) / (1-e), ln x at e = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        if power.abs() > 1e-8 {
            log * power.exp_m1() / power
        } else {
            log * (1.0 + power / 2.0)
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = (area * (1.0 - self.exponent)).max(-1.0);
        if power.abs() > 1e-8 {
            (area * power.ln_1p() / power).exp()
        } else {
            (area * (1.0 - power / 2.0)).exp()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ranks have Zipf's probabilities. Method: 400,000 draws at four exponents against the
    /// exact probabilities, within five standard deviations, for the head ranks and the tail's sum.
    #[test]
    fn zipf_ranks_have_the_exact_probabilities() {
        const DRAWS: usize = 400_000;
        const COUNT: usize = 1000;
        for exponent in [0.5, 0.99, 1.0, 1.4] {
            let zipf = Zipf::new(COUNT as u64, exponent);
            let mut random = Random::new(7);
            let mut seen = vec![0_u32; COUNT];
            for _ in 0..DRAWS {
                seen[zipf.rank(&mut random) as usize] += 1;
            }
            let weights: Vec<f64> = (1..=COUNT).map(|k| (k as f64).powf(-exponent)).collect();
            let total: f64 = weights.iter().sum();
            let near = |drawn: u32, probability: f64| {
                let mean = probability * DRAWS as f64;
                (f64::from(drawn) - mean).abs() < 5.0 * (mean * (1.0 - probability)).sqrt()
            };
            for rank in 0..20 {
                assert!(
                    near(seen[rank], weights[rank] / total),
                    "exponent {exponent} rank {rank}"
                );
            }
            let tail: u32 = seen[500..].iter().sum();
            assert!(near(tail, weights[500..].iter().sum::<f64>() / total));
        }
    }

    #[test]
    fn exponential_gaps_have_their_mean() {
        let mut random = Random::new(1);
        let sum: f64 = (0..100_000).map(|_| random.exponential(3.0)).sum();
        assert!((sum / 100_000.0 - 3.0).abs() < 0.05);
    }
}
