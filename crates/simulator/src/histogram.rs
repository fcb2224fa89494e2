//! Latencies counted in classes whose width is a thousandth of their value, in memory that does
//! not depend on how many there are.
//!
//! Nothing is ever dropped: what is above the last class is counted in it, and the largest value is
//! kept. (The simulator that C-4's authors published drops what exceeds 131 us, which hides its
//! overloads.)

use hdrhistogram::Histogram as Classes;

/// Counts of values in nanoseconds, or in any unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    classes: Classes<u64>,
    largest: u64,
}

impl Histogram {
    /// Empty; 340 KB.
    pub fn new() -> Self {
        let classes = Classes::new_with_max(VALUE_MAX, DIGITS);
        Self {
            classes: classes.unwrap_or_else(|error| unreachable!("{error}")),
            largest: 0,
        }
    }

    /// One more value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.classes.saturating_record(value);
        self.largest = self.largest.max(value);
    }

    /// Values recorded.
    pub fn total(&self) -> u64 {
        self.classes.len()
    }

    /// The largest value, exactly.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The smallest class that `share` of all values do not exceed: its middle. `None` if there
    /// are no values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let class = self.classes.value_at_quantile(share);
        let middle = self.classes.median_equivalent(class).min(self.largest);
        (self.total() > 0).then_some(middle)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Every nanosecond below 2,048 has a class of its own; above, each doubling has 1,024.
const DIGITS: u8 = 3;
/// Five weeks in nanoseconds; longer runs are not simulated.
const VALUE_MAX: u64 = (1 << 51) - 1;

#[cfg(test)]
mod tests {
    use super::*;

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
        for power in 24..51 {
            histogram.record(3 << (power - 1));
            let near = histogram.quantile(1.0).unwrap_or(0) as f64;
            assert!((near / (3_u64 << (power - 1)) as f64 - 1.0).abs() < 1e-3);
        }
        histogram.record(u64::MAX);
        assert_eq!((histogram.total(), histogram.largest()), (1_029, u64::MAX));
    }
}
