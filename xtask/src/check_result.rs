//! The result of a check: how many cases passed, failed and were skipped, and its messages.
//!
//! A step that is one check counts as one case; a step that runs test cases counts those, so the
//! closing line of a whole run is the sum of all that was tested.

use std::fmt;
use std::ops::AddAssign;

/// Cases counted by their end.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    pub(crate) const ONE_PASSED: Tally = Tally {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    pub(crate) const ONE_FAILED: Tally = Tally {
        passed: 0,
        failed: 1,
        skipped: 0,
    };
    pub(crate) const ONE_SKIPPED: Tally = Tally {
        passed: 0,
        failed: 0,
        skipped: 1,
    };

    pub(crate) fn total(&self) -> u64 {
        self.passed + self.failed + self.skipped
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// The end of one check: its tally, a remark for the progress line, and why it failed if it did.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) remark: String,
    pub(crate) failure: Option<String>,
}

impl Outcome {
    pub(crate) fn passed() -> Self {
        Outcome {
            tally: Tally::ONE_PASSED,
            ..Outcome::default()
        }
    }

    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Outcome {
            tally: Tally::ONE_SKIPPED,
            remark: why.into(),
            failure: None,
        }
    }

    pub(crate) fn failed(failure: impl Into<String>) -> Self {
        Outcome {
            tally: Tally::ONE_FAILED,
            remark: String::new(),
            failure: Some(failure.into()),
        }
    }

    /// A check of many cases: it failed if one of them did, whatever ran them said.
    pub(crate) fn counted(tally: Tally, failure: Option<String>) -> Self {
        let mut tally = tally;
        let failure = match failure {
            None if tally.failed > 0 => Some(format!("{} failed", tally.failed)),
            other => other,
        };
        if failure.is_some() && tally.failed == 0 {
            tally.failed = 1; // the runner failed without naming a case
        }
        Outcome {
            tally,
            remark: String::new(),
            failure,
        }
    }

    pub(crate) fn remark(mut self, remark: impl Into<String>) -> Self {
        self.remark = remark.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A runner that fails without naming a case must not end as "0 failed".
    #[test]
    fn a_failure_without_a_case_still_counts() {
        let tally = Tally {
            passed: 3,
            failed: 0,
            skipped: 0,
        };
        let outcome = Outcome::counted(tally, Some("did not compile".into()));
        assert_eq!(outcome.tally.to_string(), "3 passed, 1 failed, 0 skipped");
    }

    // And a failed case fails the check even if the runner said that all was well.
    #[test]
    fn a_failed_case_fails_the_check() {
        let tally = Tally {
            passed: 3,
            failed: 2,
            skipped: 0,
        };
        assert!(Outcome::counted(tally, None).failure.is_some());
    }
}
