//! Searches the highest rate at which a server meets its bounds.
//!
//! From the lowest rate the search doubles until a rate is not met, then halves the distance (in
//! proportion) between the highest rate met and the lowest one that was not, until they are near
//! enough. Machines are noisy, so one run proves nothing either way: a rate is met or missed when
//! two of its runs say so, and undecided when three of them could not tell. So a rate takes five
//! runs at most, and the rate that is found was met, as was every rate below it that was run.
//!
//! ```text
//!   low ──> x2 ──> x2 ──> missed        met |────────|──────| missed
//!                                           └─ next = sqrt(met * missed)
//! ```

use serde::Serialize;

use super::{rate_range::Range, slo::Verdict};

/// The state of a search; it looks at no clock and runs nothing.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    range: Range,
    /// The rate that is being judged; `None` when the search is over.
    rate: Option<f64>,
    votes: Vec<Verdict>,
    met: Option<f64>,
    /// The lowest rate that was not met, and why.
    not_met: Option<(f64, Verdict)>,
    missed: Option<f64>,
    path: Vec<Probe>,
}

/// One run of a search.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Probe {
    /// Offered requests a second.
    pub(super) rate: f64,
    /// `met`, `missed` or `undecided`.
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
    /// The lowest rate missed; none if none was.
    pub(super) missed: Option<f64>,
    /// The rate from which on no run could tell, if that is what ended the search.
    pub(super) undecided: Option<f64>,
    /// Where and why the search ended, in words.
    pub(super) reason: String,
    /// Every run in order.
    pub(super) path: Vec<Probe>,
}

/// The search ends when the lowest rate not met is above the highest met by no more than this.
const NEAR_ENOUGH: f64 = 1.04;

/// Runs that have to agree on met or missed.
const AGREE: usize = 2;

/// Runs that could not tell after which a rate is given up.
const UNDECIDED_MAX: usize = 3;

impl Search {
    pub(crate) fn new(range: Range) -> Self {
        Self {
            range,
            rate: Some(range.low),
            votes: Vec::new(),
            met: None,
            not_met: None,
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
        let count = |name| self.votes.iter().filter(|vote| vote.name() == name).count();
        let (met, missed, undecided) = (count("met"), count("missed"), count("undecided"));
        if met < AGREE && missed < AGREE && undecided < UNDECIDED_MAX {
            return;
        }
        let decisive = match (met >= AGREE, missed >= AGREE) {
            (true, _) => "met",
            (_, true) => "missed",
            _ => "undecided",
        };
        let votes = std::mem::take(&mut self.votes);
        match votes.into_iter().rfind(|vote| vote.name() == decisive) {
            None | Some(Verdict::Met) => self.met = Some(rate),
            Some(vote) => {
                if matches!(vote, Verdict::Missed(_)) {
                    self.missed = Some(rate);
                }
                self.not_met = Some((rate, vote));
            }
        }
        self.rate = self.choose();
    }

    fn choose(&self) -> Option<f64> {
        match (self.met, &self.not_met) {
            (None, _) => None,
            (Some(met), None) if met >= self.range.high => None,
            (Some(met), None) => Some((met * 2.0).min(self.range.high)),
            (Some(met), Some((other, _))) if *other <= met * NEAR_ENOUGH => None,
            (Some(met), Some((other, _))) => Some((met * other).sqrt()),
        }
    }

    pub(crate) fn found(&self) -> Found {
        let (undecided, reason) = match (&self.not_met, self.met) {
            _ if self.rate.is_some() => (None, "ended early".into()),
            (Some((rate, Verdict::Undecided(why))), Some(_)) => (
                Some(*rate),
                format!("from {rate:.0} requests/s on the runs are undecided: {why}"),
            ),
            (Some((rate, Verdict::Undecided(why))), None) => (
                Some(*rate),
                format!("at the lowest rate, {rate:.0} requests/s, the runs are undecided: {why}"),
            ),
            (Some((rate, vote)), Some(_)) => {
                (None, format!("at {rate:.0} requests/s: {}", vote.reason()))
            }
            (Some((rate, vote)), None) => (
                None,
                format!(
                    "the lowest rate, {rate:.0} requests/s, missed ({}): search lower",
                    vote.reason()
                ),
            ),
            (None, Some(_)) => (None, "every rate was met: search higher".into()),
            (None, None) => (None, "nothing was run".into()),
        };
        Found {
            rate: self.met,
            missed: self.missed,
            undecided,
            reason,
            path: self.path.clone(),
        }
    }
}

impl Found {
    /// The outcome in a line, of a search for what meets these bounds.
    pub(super) fn headline(&self, slo: &str) -> String {
        let reason = &self.reason;
        match (self.rate, self.undecided) {
            (Some(rate), _) => format!("{rate:.0} requests/s meet {slo}; {reason}"),
            (None, Some(_)) => format!("undecided whether a rate meets {slo}; {reason}"),
            (None, None) => format!("no rate was found that meets {slo}; {reason}"),
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

    fn undecided() -> Verdict {
        Verdict::Undecided("the driver".into())
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

    /// Goal: a run that could not tell is made again, and does not move the result. Method: every
    /// second run cannot tell.
    #[test]
    fn runs_that_cannot_tell_are_made_again() {
        let found = run(|rate, number| match number % 2 {
            0 => undecided(),
            _ if rate <= 100_000.0 => Verdict::Met,
            _ => missed(),
        });
        let rate = found.rate.unwrap();
        assert!(rate > 96_000.0 && rate <= 100_000.0, "{rate}");
        assert_eq!(found.undecided, None);
    }

    #[test]
    fn the_ends_are_told() {
        let none = run(|_, _| missed());
        assert_eq!((none.rate, none.missed), (None, Some(10_000.0)));
        assert_eq!(none.path.len(), 2);
        let text = none.headline("p99<1ms");
        assert!(
            text.starts_with("no rate") && text.contains("lowest"),
            "{text}"
        );
        let all = run(|_, _| Verdict::Met);
        assert_eq!((all.rate, all.missed), (Some(1e6), None));
        assert!(all.reason.contains("search higher"));
    }

    /// Goal: where no run can tell, the search ends after three runs of a rate, claims no more than
    /// what was met, and does not call it missed.
    #[test]
    fn what_no_run_could_tell_is_called_that() {
        let found = run(|rate, _| match rate < 50_000.0 {
            true => Verdict::Met,
            false => undecided(),
        });
        assert!(found.rate.is_some_and(|rate| rate < 50_000.0), "{found:?}");
        assert!(found.undecided.is_some() && found.missed.is_none());
        assert!(found.reason.contains("the driver"), "{}", found.reason);
        let never = run(|_, _| undecided());
        assert_eq!((never.rate, never.path.len()), (None, 3));
        let text = never.headline("p99<1ms");
        assert!(text.starts_with("undecided"), "{text}");
    }

    /// Goal: every rate ends, whatever the runs say. Method: all sequences of verdicts.
    #[test]
    fn a_rate_takes_five_runs_at_most() {
        for mut number in 0..3_u32.pow(5) {
            let mut search = Search::new(range());
            let mut runs = 0;
            while search.path.len() < 6 && search.next() == Some(10_000.0) {
                let verdicts = [Verdict::Met, missed(), undecided()];
                search.answer(verdicts[(number % 3) as usize].clone());
                number /= 3;
                runs += 1;
            }
            assert!(runs <= 5, "{search:?}");
        }
    }
}
