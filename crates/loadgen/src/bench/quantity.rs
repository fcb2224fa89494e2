//! Rates, ranges and times as people write them: `250k`, `50k..400k/8`, `1.5ms`.

use std::str::FromStr;

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

/// Requests a second: `50000`, `50k`, `1.2m`.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a rate such as 50000, 50k or 1.2m");
    let lower = text.trim().to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 1e3),
        Some(digits) => (digits, 1e6),
        None => (lower.as_str(), 1.0),
    };
    let rate = digits.parse::<f64>().map_err(|_| wrong())? * factor;
    if rate.is_finite() && rate > 0.0 {
        Ok(rate)
    } else {
        Err(wrong())
    }
}

/// A whole number: `200000`, `200k`, `1.6m`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let number = rate(text).map_err(|_| format!("{text:?} is not a number such as 1000 or 2m"))?;
    if number.fract() == 0.0 && number < 9e15 {
        Ok(number as u64)
    } else {
        Err(format!("{text:?} is not a whole number below 9 * 10^15"))
    }
}

/// Microseconds of a time with its unit; `None` unless it is one, and above 0.
pub(crate) fn time_us(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ns" => 1e-3,
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    let us = digits.trim().parse::<f64>().ok()? * factor;
    (us.is_finite() && us > 0.0).then_some(us)
}

fn range(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text
        .split_once("..")
        .ok_or_else(|| format!("{text:?} is not a range such as 50k..400k"))?;
    let (low, high) = (rate(low)?, rate(high)?);
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
    fn rates_are_read_with_their_units() {
        for (text, expected) in [("50000", 5e4), ("50k", 5e4), ("1.2M", 1.2e6), ("0.5", 0.5)] {
            assert_eq!(rate(text), Ok(expected));
        }
        assert_eq!((count("200k"), count("1.6m")), (Ok(200_000), Ok(1_600_000)));
        assert!(count("1.5").is_err() && count("0").is_err());
        for wrong in ["", "k", "-1", "0", "nan", "inf", "5x"] {
            assert!(rate(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sweeps_have_both_ends() {
        let sweep: Sweep = "50k..200k/4".parse().unwrap();
        assert_eq!(sweep.rates(), [5e4, 1e5, 1.5e5, 2e5]);
        assert_eq!("1k..2k".parse::<Sweep>().unwrap().rates().len(), 8);
        for wrong in ["5k", "5k..2k", "1k..2k/1", "1k..2k/x", "1k..2k/9999"] {
            assert!(wrong.parse::<Sweep>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(time_us("1.5ms"), Some(1500.0));
        assert_eq!(time_us("250ns"), Some(0.25));
        assert_eq!(
            (time_us("5"), time_us("0us"), time_us("ms")),
            (None, None, None)
        );
    }
}
