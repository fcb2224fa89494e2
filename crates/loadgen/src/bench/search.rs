//! The search for the highest rate at which a server keeps its bounds.
//!
//! From the lowest rate the search doubles until a rate is missed, then halves the distance (in
//! proportion) between the highest rate met and the lowest one missed, until they are near enough.
//! Machines are noisy, so one run proves nothing either way: a rate is run until two of at most
//! three runs agree.
//!
//! ```text
//!   low ──> x2 ──> x2 ──> missed        met |────────|──────| missed
//!                                           └─ next = sqrt(met * missed)
//! ```

use serde::Serialize;

use super::{quantity::Range, slo::Verdict};

/// The state of a search; it looks at no clock and runs nothing.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    range: Range,
    /// The rate that is being judged; `None` when the search is over.
    rate: Option<f64>,
    votes: Vec<Verdict>,
    met: Option<f64>,
    missed: Option<(f64, Verdict)>,
    path: Vec<Probe>,
}

/// One run of a search.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Probe {
    /// Offered requests a second.
    pub(super) rate: f64,
    /// `met`, `missed` or `not measurable`.
    pub(super) verdict: &'static str,
    /// Why, unless it was met.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
}

/// How a search ended.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Found {
    /// The highest rate met; none if not even the lowest was.
    pub(super) rate: Option<f64>,
    /// The lowest rate missed; none if all were met.
    pub(super) missed: Option<f64>,
    /// Where and why the search ended, in words.
    pub(super) reason: String,
    /// Every run in order.
    pub(super) path: Vec<Probe>,
}

/// The search ends when the lowest rate missed is above the highest met by no more than this.
const NEAR_ENOUGH: f64 = 1.04;

/// Runs that have to agree.
const AGREE: usize = 2;

impl Search {
    pub(crate) fn new(range: Range) -> Self {
        Self {
            range,
            rate: Some(range.low),
            votes: Vec::new(),
            met: None,
            missed: None,
            path: Vec::new(),
        }
    }

    /// The rate to run next; `None` when the search is over.
    pub(crate) fn next(&self) -> Option<f64> {
        self.rate
    }

    /// What the run at the next rate said.
    pub(crate) fn answer(&mut self, verdict: Verdict) {
        let Some(rate) = self.rate else {
            return;
        };
        self.path.push(Probe {
            rate,
            verdict: verdict.name(),
            reason: verdict.reason().into(),
        });
        self.votes.push(verdict);
        let met = self
            .votes
            .iter()
            .filter(|vote| **vote == Verdict::Met)
            .count();
        let not_met = self.votes.len() - met;
        if met < AGREE && not_met < AGREE {
            return;
        }
        let votes = std::mem::take(&mut self.votes);
        if met >= AGREE {
            self.met = Some(rate);
        } else {
            // What the server missed says more than what could not be measured.
            let missed = |vote: &&Verdict| matches!(vote, Verdict::Missed(_));
            let other = |vote: &&Verdict| **vote != Verdict::Met;
            let why = votes
                .iter()
                .rev()
                .find(missed)
                .or(votes.iter().rev().find(other));
            self.missed = why.map(|why| (rate, why.clone()));
        }
        self.rate = self.choose();
    }

    fn choose(&self) -> Option<f64> {
        match (self.met, &self.missed) {
            (None, _) => None,
            (Some(met), None) if met >= self.range.high => None,
            (Some(met), None) => Some((met * 2.0).min(self.range.high)),
            (Some(met), Some((missed, _))) if *missed <= met * NEAR_ENOUGH => None,
            (Some(met), Some((missed, _))) => Some((met * missed).sqrt()),
        }
    }

    pub(crate) fn found(&self) -> Found {
        let reason = match (&self.missed, self.met) {
            _ if self.rate.is_some() => "ended early".into(),
            (Some((_, Verdict::NotMeasurable(why))), _) => {
                format!("the driver, not the server, set the limit: {why}")
            }
            (Some((rate, Verdict::Missed(why))), _) => format!("at {rate:.0} requests/s: {why}"),
            (_, Some(_)) => "every rate was met: search higher".into(),
            _ => "nothing was run".into(),
        };
        Found {
            rate: self.met,
            missed: self.missed.as_ref().map(|(rate, _)| *rate),
            reason,
            path: self.path.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range() -> Range {
        Range {
            low: 10_000.0,
            high: 1e6,
        }
    }

    fn missed() -> Verdict {
        Verdict::Missed("late".into())
    }

    fn run(mut verdict: impl FnMut(f64, usize) -> Verdict) -> Found {
        let mut search = Search::new(range());
        for number in 0..200 {
            let Some(rate) = search.next() else {
                return search.found();
            };
            search.answer(verdict(rate, number));
        }
        panic!("{search:?}");
    }

    #[test]
    fn a_sharp_limit_is_found_within_the_tolerance() {
        for limit in [10_001.0, 55_555.0, 640_000.0, 999_999.0] {
            let found = run(|rate, _| {
                if rate <= limit {
                    Verdict::Met
                } else {
                    missed()
                }
            });
            let rate = found.rate.unwrap();
            assert!(
                rate <= limit && limit <= rate * NEAR_ENOUGH,
                "{limit} {found:?}"
            );
            assert!(found.path.len() < 40);
        }
    }

    /// Goal: single bad runs do not move the result. Method: every third run is missed whatever
    /// its rate; two of three decide.
    #[test]
    fn one_bad_run_of_three_does_not_count() {
        let found = run(|rate, number| match rate <= 100_000.0 {
            true if number % 3 != 2 => Verdict::Met,
            _ => missed(),
        });
        let rate = found.rate.unwrap();
        assert!(rate > 96_000.0 && rate <= 100_000.0, "{rate}");
    }

    #[test]
    fn the_ends_are_told() {
        let none = run(|_, _| missed());
        assert_eq!((none.rate, none.missed), (None, Some(10_000.0)));
        assert_eq!(none.path.len(), 2);
        let all = run(|_, _| Verdict::Met);
        assert_eq!((all.rate, all.missed), (Some(1e6), None));
        assert!(all.reason.contains("search higher"));
    }

    #[test]
    fn a_limit_of_the_drivers_own_is_called_that() {
        let found = run(|rate, _| match rate < 50_000.0 {
            true => Verdict::Met,
            false => Verdict::NotMeasurable("late".into()),
        });
        assert!(found.reason.contains("driver"), "{}", found.reason);
    }
}
