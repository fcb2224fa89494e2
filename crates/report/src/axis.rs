//! Axes: map numbers to positions and choose the ticks.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::number::{count, number, quantile, short, time};

/// How numbers of an axis are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Unit {
    /// As they are.
    #[default]
    Number,
    /// A count or a rate: `50k`.
    Count,
    /// Microseconds, with the unit that keeps them short.
    Micros,
    /// Seconds.
    Seconds,
    /// `-log10(1 - quantile)`, written as the quantile: 1 is 90 %, 2 is 99 %.
    Nines,
}

/// How numbers become places.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scale {
    /// Evenly, from a little below the least to a little above the greatest number.
    #[default]
    Fitted,
    /// Evenly, from 0.
    FromZero,
    /// By factors.
    Logarithmic,
    /// By factors if the numbers span more than one of 30, else evenly from 0.
    Spanned,
}

/// An axis before its numbers are known.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// How its numbers are written.
    pub unit: Unit,
    /// How numbers become places.
    pub scale: Scale,
    /// Reaches at least from here to here, so that charts can be compared.
    pub at_least: Option<(f64, f64)>,
}

/// From numbers to places.
#[derive(Clone, Debug)]
pub(crate) struct Coordinate {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    unit: Unit,
    named: Vec<f64>,
    /// Lines of the grid without a number.
    pub(crate) unnamed: Vec<f64>,
}

/// More numbers than this at a logarithmic axis stand too close; then only powers of ten have one.
const NAMED_MAX: usize = 9;

impl Axis {
    /// An axis with this unit and scale.
    pub fn new(unit: Unit, scale: Scale) -> Self {
        Self {
            unit,
            scale,
            at_least: None,
        }
    }

    /// The axis of these numbers; none if there is none that it can show.
    pub(crate) fn coordinate(&self, values: impl Iterator<Item = f64>) -> Option<Coordinate> {
        let only_positive = self.scale == Scale::Logarithmic;
        let shown = values.filter(|value| !only_positive || *value > 0.0);
        let (mut low, mut high) = extent(shown)?;
        if let Some((least, greatest)) = self.at_least {
            (low, high) = (low.min(least), high.max(greatest));
        }
        let is_logarithmic = match self.scale {
            Scale::Logarithmic => true,
            Scale::Spanned => low > 0.0 && high / low > 30.0,
            Scale::Fitted | Scale::FromZero => false,
        };
        let (mut named, mut unnamed) = (Vec::new(), Vec::new());
        if is_logarithmic {
            (low, high) = (step_below(low / 1.05), step_above(high * 1.05));
            named = steps_between(low, high);
            if named.len() > NAMED_MAX {
                let is_power = |value: &f64| (value.log10() - value.log10().round()).abs() < 1e-9;
                (named, unnamed) = named.into_iter().partition(is_power);
            }
        } else {
            (low, high) = self.even(low, high);
            let step = match self.unit {
                Unit::Nines => 1.0,
                _ => step_above((high - low) / 6.0),
            };
            let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
            named.extend((first..=last).map(|number| number as f64 * step));
        }
        Some(Coordinate {
            low,
            high,
            is_logarithmic,
            unit: self.unit,
            named,
            unnamed,
        })
    }

    /// The ends of an axis that is no logarithmic one.
    fn even(&self, low: f64, high: f64) -> (f64, f64) {
        // Time and quantiles end where they end.
        let is_bounded = matches!(self.unit, Unit::Seconds | Unit::Nines) && high > 0.0;
        let is_from_zero = low >= 0.0 && (self.scale != Scale::Fitted || low < 0.35 * high);
        let low = if is_from_zero { 0.0 } else { low };
        let room = match high > low {
            true => 0.06 * (high - low),
            false => (0.5 * high.abs()).max(1.0),
        };
        (
            if is_from_zero { low } else { low - room },
            if is_bounded { high } else { high + room },
        )
    }
}

impl Unit {
    pub(crate) fn name(self, value: f64) -> String {
        match self {
            Self::Number => number(value),
            Self::Count => count(value),
            Self::Micros => time(value),
            Self::Seconds => format!("{} s", short(value)),
            Self::Nines => quantile(value),
        }
    }
}

impl Ranged for Coordinate {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = match self.is_logarithmic {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => self.unnamed.clone(),
            false => self.named.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Coordinate {
    fn format_ext(&self, value: &f64) -> String {
        self.unit.name(*value)
    }
}

/// The least and the greatest of some numbers.
pub(crate) fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|value| value.is_finite());
    finite.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

/// 1, 2 and 5 times every power of ten between two of them, both included.
fn steps_between(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let all = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|f| f * 10_f64.powi(power)));
    all.filter(|step| *step >= low * 0.999 && *step <= high * 1.001)
        .collect()
}

/// The next of 1, 2 and 5 times a power of ten, not below.
fn step_above(value: f64) -> f64 {
    let value = value.max(1e-9);
    let steps = steps_between(value, value * 10.0);
    steps.first().copied().unwrap_or(value)
}

fn step_below(value: f64) -> f64 {
    let value = value.max(1e-9);
    let steps = steps_between(value / 10.0, value);
    steps.last().copied().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!(
            steps_between(50.0, 1000.0),
            [50.0, 100.0, 200.0, 500.0, 1000.0]
        );
        assert_eq!([30.0, 0.7, 50.0].map(step_above), [50.0, 1.0, 50.0]);
        assert_eq!([80.0, 1000.0, 0.3].map(step_below), [50.0, 1000.0, 0.2]);
    }

    /// Goal: every axis holds its numbers, and the scale follows their span where it may.
    #[test]
    fn an_axis_holds_its_numbers() {
        for scale in [
            Scale::Fitted,
            Scale::FromZero,
            Scale::Logarithmic,
            Scale::Spanned,
        ] {
            for values in [[80.0, 5e3], [3.0, 3.0], [0.5, 0.9]] {
                let axis = Axis::new(Unit::Number, scale);
                let found = axis.coordinate(values.into_iter()).unwrap();
                assert!(
                    found.low <= values[0] && values[1] <= found.high,
                    "{found:?}"
                );
                assert!(found.named.len() > 1, "{found:?}");
                let places = values.map(|value| found.map(&value, (0, 100)));
                assert!(
                    places.iter().all(|place| (0..=100).contains(place)),
                    "{found:?}"
                );
            }
        }
        let spanned = Axis::new(Unit::Number, Scale::Spanned);
        let is_logarithmic = |values: [f64; 2]| {
            let found = spanned.coordinate(values.into_iter());
            found.is_some_and(|found| found.is_logarithmic)
        };
        assert!(is_logarithmic([1.0, 31.0]) && !is_logarithmic([1.0, 30.0]));
        assert!(!is_logarithmic([0.0, 31.0]));
        assert!(spanned.coordinate([f64::NAN].into_iter()).is_none());
    }
}
