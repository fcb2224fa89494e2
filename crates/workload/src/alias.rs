//! Drawing from any finite distribution with one word of randomness and one look into a table.
//!
//! The alias method (Walker, "New fast method for generating discrete random numbers with arbitrary
//! frequency distributions", 1974; the table is built as by Vose, 1991): every column holds an
//! outcome and at most one other, its alias, that fills the column up to the mean.

use std::sync::Arc;

use crate::random::Random;

/// A table of weighted outcomes 0..n. Copies share it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Alias {
    columns: Arc<[Column]>,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Column {
    /// The column's own outcome is drawn below this, of 2^32; at or above it, the alias.
    threshold: u32,
    alias: u32,
}

impl Alias {
    /// Outcome i gets the share `weights[i]` of the sum. Between 1 and 2^31 weights, none negative,
    /// and a positive sum. An outcome's probability is exact to 2^-32 of the mean weight.
    pub fn new(weights: &[f64]) -> Self {
        let count = weights.len();
        assert!((1..=1 << 31).contains(&count), "{count} outcomes");
        let sum: f64 = weights.iter().sum();
        assert!(sum > 0.0 && sum.is_finite(), "weights sum to {sum}");
        assert!(weights.iter().all(|&weight| weight >= 0.0));
        let mut left: Vec<f64> = weights.iter().map(|w| w / sum * count as f64).collect();
        let full = |outcome| Column {
            threshold: u32::MAX,
            alias: outcome,
        };
        let mut columns: Vec<Column> = (0..count as u32).map(full).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..count as u32).partition(|&outcome| left[outcome as usize] < 1.0);
        while let (Some(&giver), Some(taker)) = (large.last(), small.pop()) {
            columns[taker as usize] = Column {
                threshold: (left[taker as usize] * SCALE) as u32,
                alias: giver,
            };
            left[giver as usize] -= 1.0 - left[taker as usize];
            if left[giver as usize] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        // What is left over is full but for rounding, and its alias is itself.
        Self {
            columns: columns.into(),
        }
    }

    /// An outcome.
    pub fn draw(&self, random: &mut Random) -> u32 {
        self.pick(random.next())
    }

    /// The outcome that a uniform word stands for: a key's hash picks the same one every time.
    pub fn pick(&self, word: u64) -> u32 {
        let product = u128::from(word) * self.columns.len() as u128;
        let index = (product >> 64) as u32;
        let column = self.columns[index as usize];
        if ((product as u64) >> 32) as u32 >= column.threshold {
            column.alias
        } else {
            index
        }
    }
}

const SCALE: f64 = 4_294_967_296.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: outcomes have their weights, those of weight 0 never come. Method: 100,000 draws, five
    /// standard deviations.
    #[test]
    fn outcomes_have_their_weights() {
        let weights = [0.0, 5.0, 1.0, 0.5, 3.5, 0.0, 90.0];
        let alias = Alias::new(&weights);
        let mut random = Random::new(11);
        let mut seen = [0_u32; 7];
        for _ in 0..100_000 {
            seen[alias.draw(&mut random) as usize] += 1;
        }
        for (&seen, &weight) in seen.iter().zip(&weights) {
            let share = weight / 100.0;
            let spread = (1e5 * share * (1.0 - share)).sqrt();
            assert!((f64::from(seen) - 1e5 * share).abs() <= 5.0 * spread);
        }
    }

    #[test]
    fn one_outcome_is_certain() {
        let alias = Alias::new(&[0.1]);
        assert_eq!((alias.pick(0), alias.pick(u64::MAX)), (0, 0));
    }

    #[test]
    fn equal_words_pick_equal_outcomes() {
        let alias = Alias::new(&[1.0, 2.0, 3.0]);
        let again = Alias::new(&[1.0, 2.0, 3.0]);
        let words = (0..100_u64).map(crate::random::mix);
        assert!(words.into_iter().all(|w| alias.pick(w) == again.pick(w)));
    }
}
