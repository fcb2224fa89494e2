//! The event queue: by time; events of one time in the order in which they were scheduled.

use std::{cmp::Ordering, collections::BinaryHeap};

/// All events that are planned.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<One<E>>,
    planned: u64,
}

#[derive(Debug)]
struct One<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// `event` happens at `at`, in whatever unit the caller counts.
    #[inline]
    pub(crate) fn plan(&mut self, at: u64, event: E) {
        self.planned += 1;
        let number = self.planned;
        self.heap.push(One { at, number, event });
    }

    /// The next event, and when it happens.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(u64, E)> {
        let One { at, event, .. } = self.heap.pop()?;
        Some((at, event))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        let heap = BinaryHeap::new();
        Self { heap, planned: 0 }
    }
}

/// The earliest is the greatest, as the heap wants it.
impl<E> Ord for One<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for One<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for One<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for One<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: time orders events, and of one moment the order of planning does. Method: a few
    /// events, planned out of order.
    #[test]
    fn events_of_one_moment_keep_their_order() {
        let mut planned = EventQueue::default();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            planned.plan(at, event);
        }
        let order: String = std::iter::from_fn(|| planned.next())
            .map(|one| one.1)
            .collect();
        assert_eq!(order, "abcd");
    }
}
