//! The cluster's wall clock on this node: all threads expire items by it.
//!
//! [`ClusterClock`] says how it is known. Until it is known, a node adopts no view: it would expire
//! items too early or too late.

use curtail_consistency::clock::{ClusterClock, Reading};
use curtail_types::{Instant, NodeId, Now, ViewNumber};

use crate::{
    sync::{AtomicBool, AtomicI64, Mutex, Relaxed, lock},
    test_faults::Fault,
};

/// The cluster's wall clock.
#[derive(Debug)]
pub(super) struct WallClock {
    state: Mutex<ClusterClock>,
    /// What has to be added to the monotonic clock; looked at once a turn.
    offset_ns: AtomicI64,
    is_set: AtomicBool,
    /// Offset of the node's own clock, for tests; else 0.
    behind_ns: u64,
    /// For tests: use the node's own clock.
    is_deaf: bool,
}

/// Offset between the clocks of consecutive nodes, for tests.
const APART_NS: u64 = 1_000_000_000_000;

impl WallClock {
    /// Node `me`'s, which has heard nothing yet; its own clocks show `now`.
    pub(super) fn new(me: NodeId, now: Now, fault: Fault) -> Self {
        let is_deaf = cfg!(debug_assertions) && fault == Fault::GoesByOwnClock;
        let are_apart = cfg!(debug_assertions) && fault == Fault::ClocksApart || is_deaf;
        let behind_ns = if are_apart { APART_NS } else { 0 } * u64::from(me.0);
        let state = ClusterClock::new(shown(now, behind_ns));
        Self {
            offset_ns: AtomicI64::new(state.offset_ns()),
            state: Mutex::new(state),
            is_set: AtomicBool::new(false),
            behind_ns,
            is_deaf,
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

    /// This node is the lowest live one in `view`, or it is not.
    pub(super) fn note_view(&self, now: Instant, view: ViewNumber, is_lowest: bool) {
        self.change(|clock| clock.note_view(now, view, is_lowest));
    }

    /// What to tell another node.
    pub(super) fn reading(&self, now: Instant) -> Reading {
        lock(&self.state).reading(now)
    }

    /// The answer to a call sent at `sent` arrived at `now`.
    pub(super) fn take_in(&self, now: Instant, sent: Instant, said: Reading) {
        let said = match self.is_deaf {
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
        self.change(|clock| clock.keep(shown(now, self.behind_ns)));
    }

    /// By how much it may be wrong, and how far the node's own clock is from it, in nanoseconds.
    pub(super) fn errors_ns(&self, now: Now) -> (u64, u64) {
        let clock = lock(&self.state).clone();
        let own = shown(now, self.behind_ns).unix_ns;
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

/// What a clock shows that is behind.
fn shown(now: Now, behind_ns: u64) -> Now {
    Now {
        unix_ns: now.unix_ns.saturating_sub(behind_ns),
        ..now
    }
}
