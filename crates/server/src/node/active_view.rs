//! The view in force on this node, and which threads have adopted it.
//!
//! A worker checks once a turn for a new view. What must not begin while a request may still run
//! beside the machine of its slice waits until every thread has begun a turn since:
//!
//! ```text
//!   mark = marks.set()      a new number: turns that begin from now on see what led to it
//!   ...                     every thread notes the number that it saw when its turn began
//!   marks.is_passed(mark)   nobody is in a turn that began before
//! ```

use std::sync::Arc;

use curtail_consistency::{
    slice_placement::{PlacementGoal, is_settled},
    slice_view::{SliceId, SliceView},
};
use curtail_types::NodeId;

use crate::sync::{AtomicU64, Mutex, Relaxed, lock};

/// The view that this node acts on.
#[derive(Clone, Debug)]
pub(crate) struct ViewInForce {
    pub(crate) slices: Arc<SliceView>,
    /// What the placement shall reach.
    pub(crate) goal: PlacementGoal,
    /// The placement is as it shall be. While it is not, no key becomes hot: each view drops all
    /// copies.
    pub(crate) is_settled: bool,
}

impl ViewInForce {
    pub(super) fn new(slices: Arc<SliceView>, goal: PlacementGoal) -> Self {
        Self {
            is_settled: is_settled(&slices, &goal),
            slices,
            goal,
        }
    }

    /// The primary of a slice.
    #[inline]
    pub(crate) fn primary(&self, slice: SliceId) -> NodeId {
        let row = self.slices.row(slice);
        row.map(|row| row.primary).unwrap_or_default()
    }
}

/// The view in force.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// Counts the views; a worker compares it once a turn.
    generation: AtomicU64,
    current: Mutex<Option<Arc<ViewInForce>>>,
}

/// Numbers that threads pass, one after the other.
#[derive(Debug)]
pub(crate) struct Marks {
    /// The last number; looked at once a turn, and what follows from it is read under the lock.
    last: AtomicU64,
    passed: Mutex<Box<[u64]>>,
}

impl Views {
    pub(crate) fn put_in_force(&self, next: Option<Arc<ViewInForce>>) {
        *lock(&self.current) = next;
        self.generation.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    pub(crate) fn current(&self) -> Option<Arc<ViewInForce>> {
        lock(&self.current).clone()
    }
}

impl Marks {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            last: AtomicU64::new(0),
            passed: Mutex::new(vec![0; threads].into_boxed_slice()),
        }
    }

    /// Returns a number that no thread has passed yet; a thread that passes it has seen everything
    /// done before.
    pub(crate) fn set(&self) -> u64 {
        let _passed = lock(&self.passed);
        self.last.fetch_add(1, Relaxed) + 1
    }

    /// The last number.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Thread `index` has no turn, and nothing of an earlier turn on its way, that began before
    /// `mark` was set.
    pub(crate) fn pass(&self, index: usize, mark: u64) {
        if let Some(passed) = lock(&self.passed).get_mut(index) {
            *passed = mark;
        }
    }

    /// Whether every thread has passed `mark`.
    pub(crate) fn is_passed(&self, mark: u64) -> bool {
        lock(&self.passed).iter().all(|&passed| passed >= mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_passed_when_every_thread_has_begun_a_turn_since() {
        let marks = Marks::new(2);
        let before = marks.last();
        let mark = marks.set();
        marks.pass(0, before);
        assert!(!marks.is_passed(mark));
        marks.pass(0, marks.last());
        assert!(!marks.is_passed(mark));
        marks.pass(1, marks.last());
        assert!(marks.is_passed(mark));
    }
}
