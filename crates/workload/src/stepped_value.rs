//! A number that changes with time in steps: 0.125 for 20 s, then 0.25 for 20 s, and so on.
//!
//! Every number of a workload that may be dynamic is one of these; a fixed number has one phase.
//! After the last phase its value stays.

use std::fmt;

/// Values one after the other, each for the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Phases {
    /// At least one.
    values: Vec<f64>,
    /// Nanoseconds that each value holds; at least 1.
    phase_ns: u64,
}

impl Phases {
    /// The same value at all times.
    pub fn fixed(value: f64) -> Self {
        Self {
            values: vec![value],
            phase_ns: u64::MAX,
        }
    }

    /// Each of `values` for `phase_ns`, the last one for ever; `None` if there is no value or no
    /// time.
    pub fn new(values: Vec<f64>, phase_ns: u64) -> Option<Self> {
        (!values.is_empty() && phase_ns > 0).then(|| {
            let fixed = values.len() == 1;
            let phase_ns = if fixed { u64::MAX } else { phase_ns };
            Self { values, phase_ns }
        })
    }

    /// This part of each value.
    #[must_use]
    pub fn scaled(&self, part: f64) -> Self {
        Self {
            values: self.values.iter().map(|value| value * part).collect(),
            phase_ns: self.phase_ns,
        }
    }

    /// The value at this time.
    pub fn at(&self, now_ns: u64) -> f64 {
        let index = (now_ns / self.phase_ns).min(self.values.len() as u64 - 1);
        self.values[index as usize]
    }

    /// When the value of this time ends; `None` if it stays.
    pub fn until(&self, now_ns: u64) -> Option<u64> {
        let next = now_ns / self.phase_ns + 1;
        (next < self.values.len() as u64).then(|| next.saturating_mul(self.phase_ns))
    }

    /// All values in order.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The greatest value of all times.
    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(f64::MIN, f64::max)
    }
}

/// As it is written in a workload: `0.5`, `0.125/0.25/0.5@20000000000ns`.
impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.values.iter().enumerate() {
            let between = if index == 0 { "" } else { "/" };
            write!(f, "{between}{value}")?;
        }
        if self.values.len() > 1 {
            write!(f, "@{}ns", self.phase_ns)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_hold_for_their_phase_and_the_last_stays() {
        let phases = Phases::new(vec![1.0, 2.0, 3.0], 10).unwrap();
        let at: Vec<f64> = [0, 9, 10, 19, 20, 1000, u64::MAX]
            .map(|t| phases.at(t))
            .into();
        assert_eq!(at, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0]);
        let until = [0, 9, 10, 20, u64::MAX].map(|t| phases.until(t));
        assert_eq!(until, [Some(10), Some(10), Some(20), None, None]);
        assert_eq!(phases.max(), 3.0);
    }

    #[test]
    fn one_value_is_fixed() {
        assert_eq!(Phases::new(vec![4.0], 10), Some(Phases::fixed(4.0)));
        assert_eq!(Phases::fixed(4.0).until(0), None);
        assert_eq!(Phases::fixed(4.0).at(u64::MAX), 4.0);
        assert_eq!(
            (Phases::new(vec![], 1), Phases::new(vec![1.0], 0)),
            (None, None)
        );
    }
}
