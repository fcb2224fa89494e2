//! What a server of ours tells of the work ahead of small requests: in requests and in kilobytes,
//! which no stall of the machine lengthens.

use std::{collections::BTreeMap, time::Duration};

use curtail_client::memcached::Connection;
use serde::Serialize;

use crate::compare::Spread;

/// Small requests by what was ahead of them: amounts in classes, by the smallest amount above.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    requests: BTreeMap<u64, u64>,
    kilobytes: BTreeMap<u64, u64>,
}

/// The 99th percentiles of a run. The server counts in classes of powers of two; within one the
/// amounts are taken to lie evenly.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct AheadP99 {
    pub(crate) requests: f64,
    pub(crate) kilobytes: f64,
    /// Share of the small requests that had a kilobyte or more ahead of them.
    pub(crate) share: f64,
}

/// The medians of runs, and of the ratios to the runs alone within rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct AheadFigures {
    pub(crate) median: AheadP99,
    pub(crate) requests_ratio: Spread,
    pub(crate) kilobytes_ratio: Spread,
}

/// A server that does not answer for so long is not asked.
const PATIENCE: Duration = Duration::from_secs(5);

impl Ahead {
    /// What the server at `target` has counted so far; `None` if it does not say.
    pub(super) fn ask(target: &str) -> Option<Self> {
        let mut connection = Connection::to(target, PATIENCE).ok()?;
        let mut ahead = Self::default();
        for (name, count) in connection.stats("curtail").ok()? {
            ahead.note(&name, &count)?;
        }
        Some(ahead)
    }

    fn note(&mut self, name: &str, count: &str) -> Option<()> {
        let Some(stage) = name.strip_prefix("stage:ahead_") else {
            return Some(());
        };
        let classes = match stage.split_once(":small:") {
            Some(("requests", class)) => Some((&mut self.requests, class)),
            Some(("kilobytes", class)) => Some((&mut self.kilobytes, class)),
            _ => None,
        };
        if let Some((classes, class)) = classes {
            let bound = class
                .strip_prefix("below_")
                .map_or(Ok(u64::MAX), str::parse);
            classes.insert(bound.ok()?, count.parse().ok()?);
        }
        Some(())
    }

    /// What was counted since `before`.
    pub(super) fn since(mut self, before: &Self) -> Self {
        let parts = [
            (&mut self.requests, &before.requests),
            (&mut self.kilobytes, &before.kilobytes),
        ];
        for (after, before) in parts {
            for (bound, count) in after {
                *count = count.saturating_sub(before.get(bound).copied().unwrap_or(0));
            }
        }
        self
    }

    /// `None` if nothing was counted.
    pub(super) fn p99(&self) -> Option<AheadP99> {
        let all: u64 = self.kilobytes.values().sum();
        let least = self.kilobytes.get(&1).copied().unwrap_or(0);
        Some(AheadP99 {
            requests: p99(&self.requests)?,
            kilobytes: p99(&self.kilobytes)?,
            share: (all - least) as f64 / all as f64,
        })
    }
}

impl AheadFigures {
    /// Of runs, each with the run alone of its round; `None` if there are none.
    pub(super) fn of(runs: &[AheadP99], alone: &[AheadP99]) -> Option<Self> {
        let median = |of: fn(&AheadP99) -> f64| Spread::over(runs, of).median;
        let ratio = |of: fn(&AheadP99) -> f64| Spread::ratio(runs, alone, of);
        (!runs.is_empty()).then(|| Self {
            median: AheadP99 {
                requests: median(|run| run.requests),
                kilobytes: median(|run| run.kilobytes),
                share: median(|run| run.share),
            },
            requests_ratio: ratio(|run| run.requests),
            kilobytes_ratio: ratio(|run| run.kilobytes),
        })
    }
}

fn p99(classes: &BTreeMap<u64, u64>) -> Option<f64> {
    let all: u64 = classes.values().sum();
    let (wanted, mut below) = (all as f64 * 0.99, 0.0);
    for (bound, count) in classes {
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let (low, high) = ((bound / 2) as f64, *bound as f64);
            return Some(low + (high - low) * (wanted - below) / count);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what a run added is what its percentile is of. Method: two answers of a server.
    #[test]
    fn a_percentile_is_of_what_was_added() {
        let told = |lines: &[(&str, u64)]| {
            let mut ahead = Ahead::default();
            for (name, count) in lines {
                ahead.note(name, &count.to_string()).unwrap();
            }
            ahead
        };
        let before = told(&[
            ("stage:ahead_requests:small:below_1", 1000),
            ("stage:ahead_kilobytes:small:below_1", 1000),
            ("stage:ahead_requests:large:below_8", 7),
            ("policy", 3),
        ]);
        let after = told(&[
            ("stage:ahead_requests:small:below_1", 1090),
            ("stage:ahead_requests:small:below_8", 10),
            ("stage:ahead_kilobytes:small:below_1", 1099),
            ("stage:ahead_kilobytes:small:more", 1),
        ]);
        assert!(before.clone().since(&before).p99().is_none());
        let found = after.since(&before).p99().unwrap();
        // Of 100 the last ten are in 4..8, and the 99th is nine tenths of the way.
        assert!((found.requests - 7.6).abs() < 1e-9, "{found:?}");
        assert!((found.kilobytes - 1.0).abs() < 1e-9, "{found:?}");
        assert!((found.share - 0.01).abs() < 1e-9, "{found:?}");
    }
}
