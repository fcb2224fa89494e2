//! What `top` keeps of earlier samples: recent rates and thresholds, and the changes of the plan.
//!
//! A server remembers a few changes, which a learned threshold may use up in half a minute; `top`
//! keeps those it has seen, and notes those of a server that remembers none.

use std::collections::VecDeque;

use super::rates::{Change, View};

/// Since the server started, or since `top` did.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    points: VecDeque<Point>,
    changes: VecDeque<Change>,
    uptime_seconds: u64,
}

/// One sample's share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    pub(crate) requests: Option<f64>,
    pub(crate) threshold: Option<u64>,
}

const POINTS_MAX: usize = 600;
const CHANGES_MAX: usize = 200;

impl History {
    /// Adds what `view` shows; begins anew when the server did.
    pub(crate) fn add(&mut self, view: &View) {
        if view.uptime_seconds < self.uptime_seconds {
            self.changes.clear();
        }
        self.uptime_seconds = view.uptime_seconds;
        self.points.push_back(Point {
            requests: view.traffic.requests,
            threshold: view.plan.as_ref().and_then(|plan| plan.threshold),
        });
        if self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
        let Some(plan) = &view.plan else {
            return;
        };
        for change in &plan.changes {
            if !self.changes.contains(change) {
                self.changes.push_back(change.clone());
            }
        }
        let words = plan.words();
        if plan.changes.is_empty() && self.changes.back().is_none_or(|last| last.what != words) {
            self.changes.push_back(Change {
                at_seconds: view.uptime_seconds,
                what: words,
            });
        }
        while self.changes.len() > CHANGES_MAX {
            self.changes.pop_front();
        }
    }

    /// The last `count` points, the oldest first.
    pub(crate) fn points(&self, count: usize) -> impl Iterator<Item = &Point> {
        let skipped = self.points.len().saturating_sub(count);
        self.points.iter().skip(skipped)
    }

    /// The last changes, the newest first.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::rates::Plan;

    fn view(uptime_seconds: u64, threshold: u64, changes: &[(u64, &str)]) -> View {
        let change = |&(at_seconds, what): &(u64, &str)| Change {
            at_seconds,
            what: what.to_owned(),
        };
        View {
            uptime_seconds,
            plan: Some(Plan {
                policy: "crew".to_owned(),
                threshold: Some(threshold),
                changes: changes.iter().map(change).collect(),
                ..Plan::default()
            }),
            ..View::default()
        }
    }

    #[test]
    fn changes_outlive_the_servers_memory() {
        let mut history = History::default();
        history.add(&view(5, 10, &[(0, "a"), (3, "b")]));
        history.add(&view(6, 11, &[(3, "b"), (6, "c")]));
        let kept: Vec<&str> = history.changes().map(|change| &*change.what).collect();
        assert_eq!(kept, ["c", "b", "a"]);
        let thresholds: Vec<_> = history.points(1).map(|point| point.threshold).collect();
        assert_eq!(thresholds, [Some(11)]);
        history.add(&view(1, 10, &[(0, "a")]));
        assert_eq!(history.changes().count(), 1, "the server started over");
    }

    #[test]
    fn changes_are_noted_for_a_server_that_remembers_none() {
        let mut history = History::default();
        for (second, threshold) in [(1, 10), (2, 10), (3, 20), (4, 20)] {
            history.add(&view(second, threshold, &[]));
        }
        let kept: Vec<_> = history
            .changes()
            .map(|change| (change.at_seconds, &*change.what))
            .collect();
        assert_eq!(kept, [(3, "crew 20 ?+?"), (1, "crew 10 ?+?")]);
    }

    #[test]
    fn it_is_bounded() {
        let mut history = History::default();
        for second in 0..2000 {
            history.add(&view(second, second, &[]));
        }
        assert_eq!(history.changes().count(), CHANGES_MAX);
        assert_eq!(history.points(usize::MAX).count(), POINTS_MAX);
    }
}
