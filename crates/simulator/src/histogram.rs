//! Latencies counted in classes whose width is a thousandth of their value, in memory that does
//! not depend on how many there are.
//!
//! Every nanosecond below 2,048 has a class of its own; above, each doubling has 1,024. Nothing is
//! ever dropped: what is above the last class is counted in it, and the largest value is kept. (The
//! simulator that C-4's authors published drops what exceeds 131 us, which hides its overloads.)

/// Counts of values in nanoseconds, or in any unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    largest: u64,
}

impl Histogram {
    /// Empty; 320 KB.
    pub fn new() -> Self {
        Self {
            counts: vec![0; CLASSES],
            total: 0,
            largest: 0,
        }
    }

    /// One more value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[class(value)] += 1;
        self.total += 1;
        self.largest = self.largest.max(value);
    }

    /// Values recorded.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest value, exactly.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The smallest class that `share` of all values do not exceed: its middle. `None` if there
    /// are no values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let reached = |count: &u64| {
            below += count;
            below >= wanted
        };
        let class = self.counts.iter().position(reached)?;
        Some(middle(class).min(self.largest))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn class(value: u64) -> usize {
    let value = value.min(VALUE_MAX);
    let power = (value | (HALF - 1)).ilog2();
    let shift = power.saturating_sub(PRECISION_BITS);
    ((u64::from(shift) << PRECISION_BITS) + (value >> shift)) as usize
}

fn middle(class: usize) -> u64 {
    let class = class as u64;
    if class < 2 * HALF {
        return class;
    }
    let shift = (class >> PRECISION_BITS) - 1;
    let low = (class - (shift << PRECISION_BITS)) << shift;
    low + (1 << shift) / 2
}

/// 2^10 classes for each doubling.
const PRECISION_BITS: u32 = 10;
const HALF: u64 = 1 << PRECISION_BITS;
/// Five weeks in nanoseconds; longer runs are not simulated.
const VALUE_MAX: u64 = (1 << 51) - 1;
const CLASSES: usize = (51 - PRECISION_BITS as usize + 1) << PRECISION_BITS;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: classes are in order, without gaps, and no wider than a thousandth. Method: the
    /// values around every power of two, and random ones.
    #[test]
    fn classes_are_narrow_and_in_order() {
        let mut last = 0;
        for power in 2..51 {
            for value in [(1_u64 << power) - 1, 1 << power, (1 << power) + 1] {
                let class = class(value);
                assert!(class >= last || value == 0, "{value}");
                last = class;
                assert!(class < CLASSES);
                let error = middle(class).abs_diff(value);
                assert!(error as f64 <= value as f64 / 1_000.0, "{value} {error}");
            }
        }
        assert_eq!(class(VALUE_MAX), CLASSES - 1);
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn quantiles_are_exact_below_2048_and_near_above() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), None);
        (1..=1_000).for_each(|value| histogram.record(value));
        assert_eq!(histogram.quantile(0.5), Some(500));
        assert_eq!(histogram.quantile(0.99), Some(990));
        assert_eq!(histogram.quantile(1.0), Some(1_000));
        assert_eq!(histogram.quantile(0.0), Some(1));
        histogram.record(8_262_650);
        assert_eq!(histogram.quantile(1.0), Some(8_262_650));
    }
}
