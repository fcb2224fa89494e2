//! Ranges of rates as people write them: `50k..400k`, `50k..400k/8`.

use std::str::FromStr;

use curtail_workload::quantity::positive;

/// Rates from the first to the last in equal steps: `50k..400k/8`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sweep {
    /// The lowest rate in requests a second.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// How many there are, both ends included; at least 2.
    pub steps: usize,
}

/// The rates between which a search looks: `10k..500k`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// The lowest rate in requests a second.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

/// No report could show more.
const STEPS_MAX: usize = 1000;

fn range(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text
        .split_once("..")
        .ok_or_else(|| format!("{text:?} is not a range such as 50k..400k"))?;
    let (low, high) = (positive(low)?, positive(high)?);
    if low >= high {
        return Err(format!("{text:?} does not ascend"));
    }
    Ok((low, high))
}

impl Sweep {
    /// The rates in ascending order.
    pub fn rates(&self) -> Vec<f64> {
        let last = (self.steps - 1) as f64;
        let rate = |step: usize| self.low + (self.high - self.low) * step as f64 / last;
        (0..self.steps).map(rate).collect()
    }
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ends, steps) = text.split_once('/').unwrap_or((text, "8"));
        let (low, high) = range(ends)?;
        let steps = steps.trim().parse::<usize>().ok();
        let steps = steps.filter(|steps| (2..=STEPS_MAX).contains(steps));
        let steps = steps.ok_or_else(|| format!("{text:?} has no number of 2 to 1000 steps"))?;
        Ok(Self { low, high, steps })
    }
}

impl FromStr for Range {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        range(text).map(|(low, high)| Self { low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_have_both_ends() {
        let sweep: Sweep = "50k..200k/4".parse().unwrap();
        assert_eq!(sweep.rates(), [5e4, 1e5, 1.5e5, 2e5]);
        assert_eq!("1k..2k".parse::<Sweep>().unwrap().rates().len(), 8);
        for wrong in ["5k", "5k..2k", "1k..2k/1", "1k..2k/x", "1k..2k/9999"] {
            assert!(wrong.parse::<Sweep>().is_err(), "{wrong:?}");
        }
    }
}
