//! The policy and the plan in force, published to the workers as one snapshot.
//!
//! ```text
//!   control (once an epoch) --+                       +--> worker 0, at the beginning of a turn
//!   admin command ------------+--> one plan snapshot, Arc ---+--> worker 1
//!                                  generation 17      +--> large worker
//! ```
//!
//! A plan snapshot never changes once it is published. A worker compares one number at the
//! beginning of a turn and takes the new plan snapshot only if that moved, so between two changes
//! nothing is shared. For a while workers go by different plan snapshot; the store is right under
//! any assignment.

use std::{collections::VecDeque, sync::Arc};

use curtail_dispatch::size_aware::{SizeClasses, SizePlan};

use crate::{
    config::policy_name::{PolicyName, Sizes},
    sync::{AtomicU64, Mutex, Relaxed, lock},
};

/// Policy and plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanSnapshot {
    /// Counts plan snapshot from 1.
    pub(crate) generation: u64,
    pub(crate) name: PolicyName,
    pub(crate) plan: SizePlan,
}

/// The plan snapshot in force, and those before it.
#[derive(Debug)]
pub(crate) struct PlanSnapshots {
    /// Which one is in force; a hint to look.
    generation: AtomicU64,
    held: Mutex<Held>,
    /// The plan of a threshold that is set: also the first one of a threshold that is learned.
    first_plan: SizePlan,
}

#[derive(Debug)]
struct Held {
    snapshot: Arc<PlanSnapshot>,
    history: VecDeque<Past>,
}

/// A plan snapshot as history keeps it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Past {
    /// When it came into force, in seconds since the start.
    pub(crate) since_seconds: u64,
    pub(crate) name: PolicyName,
    pub(crate) threshold: u32,
    pub(crate) small: u16,
    pub(crate) large: u16,
}

/// Regimes that are remembered.
const HISTORY_MAX: usize = 32;

impl PlanSnapshots {
    /// Begins with a plan for `workers` in which what is below `threshold` is small.
    pub(crate) fn new(name: PolicyName, workers: u16, threshold: u32) -> Self {
        let mut plan = SizePlan::all_small(workers, SizeClasses::LogLinear);
        plan.threshold = threshold;
        let snapshot = PlanSnapshot {
            generation: 1,
            name,
            plan: plan.clone(),
        };
        Self {
            generation: AtomicU64::new(1),
            held: Mutex::new(Held {
                history: VecDeque::from([snapshot.past(0)]),
                snapshot: Arc::new(snapshot),
            }),
            first_plan: plan,
        }
    }

    /// The number of the plan snapshot in force: take it again when this differs from yours.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// The plan snapshot in force.
    pub(crate) fn current(&self) -> Arc<PlanSnapshot> {
        Arc::clone(&lock(&self.held).snapshot)
    }

    /// Puts another policy in force, `since_seconds` after the start.
    pub(crate) fn set_policy(&self, name: PolicyName, since_seconds: u64) {
        self.publish(since_seconds, |snapshot| {
            snapshot.name = name;
            if name.sizes == Sizes::Static {
                snapshot.plan = self.first_plan.clone();
            }
        });
    }

    /// Puts a plan that was learned in force, if it differs in anything, its ranges included. A set
    /// threshold stays, and none matters when sizes are served together.
    /// Returns whether it did.
    pub(crate) fn learn(&self, plan: &SizePlan, since_seconds: u64) -> bool {
        let current = self.current();
        let differs = current.name.sizes == Sizes::Learned && current.plan != *plan;
        if differs {
            self.publish(since_seconds, |snapshot| snapshot.plan = plan.clone());
        }
        differs
    }

    /// The last plan snapshot, the oldest first.
    pub(crate) fn history(&self) -> Vec<Past> {
        lock(&self.held).history.iter().copied().collect()
    }

    fn publish(&self, since_seconds: u64, change: impl FnOnce(&mut PlanSnapshot)) {
        let mut held = lock(&self.held);
        let mut snapshot = PlanSnapshot::clone(&held.snapshot);
        change(&mut snapshot);
        snapshot.generation += 1;
        let past = snapshot.past(since_seconds);
        if held.history.back().is_none_or(|last| past.differs(last)) {
            held.history.push_back(past);
        }
        if held.history.len() > HISTORY_MAX {
            held.history.pop_front();
        }
        self.generation.store(snapshot.generation, Relaxed);
        held.snapshot = Arc::new(snapshot);
    }
}

impl PlanSnapshot {
    /// Which large worker serves an item of `bytes`; `None` if it is served where it is.
    #[inline]
    pub(crate) fn large_number(&self, bytes: u32, hash: u64) -> Option<u16> {
        if !self.name.is_size_aware() || bytes < self.plan.threshold {
            return None;
        }
        self.plan.large_number(bytes, hash)
    }

    fn past(&self, since_seconds: u64) -> Past {
        Past {
            since_seconds,
            name: self.name,
            threshold: self.plan.threshold,
            small: self.plan.small,
            large: self.plan.cores - self.plan.small,
        }
    }
}

impl Past {
    fn differs(&self, other: &Self) -> bool {
        let what = |past: &Self| (past.name, past.threshold, past.small);
        what(self) != what(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_found_by_its_generation() {
        let snapshots = PlanSnapshots::new(PolicyName::default(), 4, 1000);
        let first = snapshots.current();
        assert_eq!(first.generation, snapshots.generation());
        assert_eq!(first.large_number(999, 0), None);
        assert_eq!(first.large_number(1000, 0), Some(0));
        let name = "crew".parse().unwrap();
        snapshots.set_policy(name, 3);
        let mut plan = first.plan.clone();
        plan.threshold += 1;
        snapshots.learn(&plan, 3);
        assert_eq!(snapshots.current().plan, first.plan, "not learned");
        assert_ne!(first.generation, snapshots.generation());
        assert_eq!(snapshots.current().name, name);
        assert_eq!(snapshots.current().large_number(1000, 0), None);
        snapshots.set_policy(PolicyName::default(), 4);
        for second in 0..100 {
            let mut plan = snapshots.current().plan.clone();
            plan.threshold += 1;
            snapshots.learn(&plan, second);
        }
        assert_eq!(snapshots.history().len(), HISTORY_MAX);
    }
}
