//! The cluster's wall clock on this node: all threads expire items by it.
//!
//! [`ClusterClock`] says how it is known. Until it is known, a node adopts no view: it would expire
//! items too early or too late.

use curtail_consistency::{
    cluster_clock::{ClusterClock, Reading},
    slice_view::SliceView,
};
use curtail_types::{Instant, NodeId, Now};

use crate::{
    sync::{AtomicBool, AtomicI64, Mutex, Relaxed, lock},
    test_faults::{Fault, TestFaults},
};

/// The cluster's wall clock.
#[derive(Debug)]
pub(super) struct WallClock {
    state: Mutex<ClusterClock>,
    /// What has to be added to the monotonic clock; looked at once a turn.
    offset_ns: AtomicI64,
    is_set: AtomicBool,
    me: NodeId,
    faults: TestFaults,
}

impl WallClock {
    /// Node `me`'s, which has heard nothing yet; its own clocks show `now`.
    pub(super) fn new(me: NodeId, now: Now, faults: TestFaults) -> Self {
        let state = ClusterClock::new(shown(me, faults, now));
        Self {
            offset_ns: AtomicI64::new(state.offset_ns()),
            state: Mutex::new(state),
            is_set: AtomicBool::new(false),
            me,
            faults,
        }
    }

    /// Whether it is the cluster's.
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Relaxed)
    }

    /// The cluster's wall time at `now`, in nanoseconds.
    #[inline]
    pub(super) fn unix_ns(&self, now: Instant) -> u64 {
        now.ns.saturating_add_signed(self.offset_ns.load(Relaxed))
    }

    /// This node follows `view`.
    pub(super) fn note_view(&self, now: Instant, view: &SliceView) {
        let is_lowest = view.members.first() == Some(self.me);
        let oldest = view.oldest().filter(|(node, _)| *node == self.me);
        let founded = oldest.map(|(_, joined)| joined);
        self.change(|clock| clock.note_view(now, view.number, is_lowest, founded));
    }

    /// What to tell another node.
    pub(super) fn reading(&self, now: Instant) -> Reading {
        lock(&self.state).reading(now)
    }

    /// The answer to a call sent at `sent` arrived at `now`.
    pub(super) fn take_in(&self, now: Instant, sent: Instant, said: Reading) {
        let said = match self.faults.has(Fault::GoesByOwnClock) {
            true => Reading {
                unix_ns: self.unix_ns(now),
                ..said
            },
            false => said,
        };
        self.change(|clock| clock.take_in(now, sent, said));
    }

    /// Follows the node's own clock, if this is the node to do so.
    pub(super) fn keep(&self, now: Now) {
        self.change(|clock| clock.keep(shown(self.me, self.faults, now)));
    }

    /// By how much it may be wrong, and how far the node's own clock is from it, in nanoseconds.
    pub(super) fn errors_ns(&self, now: Now) -> (u64, u64) {
        let clock = lock(&self.state).clone();
        let own = shown(self.me, self.faults, now).unix_ns;
        let apart = own.abs_diff(clock.reading(now.instant).unix_ns);
        (clock.error_ns(now.instant), apart)
    }

    fn change<T>(&self, change: impl FnOnce(&mut ClusterClock) -> T) {
        let mut clock = lock(&self.state);
        change(&mut clock);
        self.offset_ns.store(clock.offset_ns(), Relaxed);
        self.is_set.store(clock.is_set(), Relaxed);
    }
}

/// What the node's own clock shows.
fn shown(me: NodeId, faults: TestFaults, now: Now) -> Now {
    Now {
        unix_ns: now.unix_ns.saturating_sub(faults.clock_behind_ns(me.0)),
        ..now
    }
}
