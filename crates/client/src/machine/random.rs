//! Random numbers for jitter: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
//!
//! They only have to differ between clients, so that clients that were refused together do not come
//! back together; nobody is kept out by them. Everything follows from the seed.

/// A sequence of numbers that a seed decides.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A time between half and one and a half of `ns`.
    pub(super) const fn around(&mut self, ns: u64) -> u64 {
        ns / 2 + ((self.next() as u128 * (ns as u128 + 1)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_half_and_one_and_a_half() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| random.around(1000)).collect();
        assert!(drawn.iter().all(|ns| (500..=1500).contains(ns)));
        assert!(drawn.iter().any(|ns| *ns < 600) && drawn.iter().any(|ns| *ns > 1400));
    }
}
