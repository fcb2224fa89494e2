//! The event queue: by time; events of one time in the order in which they were scheduled.

use std::{cmp::Reverse, collections::BinaryHeap};

/// All events that are planned, by time and number.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    /// When, which one in order of planning, and its place. What is moved about is small.
    order: BinaryHeap<Reverse<(u64, u64, u32)>>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    planned: u64,
}

impl<E> EventQueue<E> {
    /// `event` happens at `at`, in whatever unit the caller counts.
    #[inline]
    pub(crate) fn plan(&mut self, at: u64, event: E) {
        self.planned += 1;
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = Some(event);
                place
            }
            None => {
                self.events.push(Some(event));
                (self.events.len() - 1) as u32
            }
        };
        self.order.push(Reverse((at, self.planned, place)));
    }

    /// The next event, and when it happens.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(u64, E)> {
        let Reverse((at, _, place)) = self.order.pop()?;
        self.free.push(place);
        let event = self.events[place as usize].take()?;
        Some((at, event))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            order: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            planned: 0,
        }
    }
}

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
