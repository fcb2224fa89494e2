//! The policies of one queue: FIFO, LRU, CLOCK (FIFO with reinsertion) and SIEVE.

use crate::policy::Policy;
use crate::queues::Queues;
use crate::trace::{ObjectId, Trace};

/// Which of the policies a `OneQueue` is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    /// A hit changes nothing.
    Fifo,
    /// A hit makes the object the newest.
    Lru,
    /// A hit marks the object; at the oldest end a marked object is unmarked and becomes the
    /// newest (Corbato 1968, here as FIFO with reinsertion).
    Clock,
    /// A hit marks the object; a hand moves from the oldest to the newest, unmarks in place and
    /// evicts the first unmarked object (Zhang et al., NSDI'24).
    Sieve,
}

/// A cache of one queue.
pub(crate) struct OneQueue<'t> {
    capacity: u64,
    rule: Rule,
    queue: Queues<'t, 1>,
    marked: Vec<bool>,
    hand: Option<ObjectId>,
}

impl<'t> OneQueue<'t> {
    /// A cache that holds objects of `capacity` in sum.
    pub(crate) fn new(trace: &'t Trace, capacity: u64, rule: Rule) -> Self {
        Self {
            capacity,
            rule,
            queue: Queues::new(trace),
            marked: vec![false; trace.sizes.len()],
            hand: None,
        }
    }

    fn hit(&mut self, object: ObjectId) {
        match self.rule {
            Rule::Fifo => {}
            Rule::Lru => self.queue.put(object, 0),
            Rule::Clock | Rule::Sieve => self.marked[object as usize] = true,
        }
    }

    fn victim(&mut self) -> Option<ObjectId> {
        match self.rule {
            Rule::Fifo | Rule::Lru => self.queue.oldest(0),
            Rule::Clock => self.oldest_unmarked(),
            Rule::Sieve => self.under_the_hand(),
        }
    }

    fn oldest_unmarked(&mut self) -> Option<ObjectId> {
        loop {
            let oldest = self.queue.oldest(0)?;
            if !std::mem::take(&mut self.marked[oldest as usize]) {
                return Some(oldest);
            }
            self.queue.put(oldest, 0);
        }
    }

    fn under_the_hand(&mut self) -> Option<ObjectId> {
        loop {
            let object = self.hand.or_else(|| self.queue.oldest(0))?;
            self.hand = self.queue.newer(object);
            if !std::mem::take(&mut self.marked[object as usize]) {
                return Some(object);
            }
        }
    }
}

impl Policy for OneQueue<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        if self.queue.place(object).is_some() {
            self.hit(object);
            return true;
        }
        let size = self.queue.size_of(object);
        if size > self.capacity {
            return false;
        }
        while self.queue.size(0) + size > self.capacity
            && let Some(victim) = self.victim()
        {
            self.queue.take(victim);
        }
        self.marked[object as usize] = false;
        self.queue.put(object, 0);
        false
    }
}
