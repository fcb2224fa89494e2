//! The policies of one queue: FIFO, LRU, CLOCK (FIFO with reinsertion) and SIEVE.

use crate::list::{Links, List, NONE};
use crate::policy::Policy;
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
    sizes: &'t [u32],
    capacity: u64,
    rule: Rule,
    links: Links,
    queue: List,
    present: Vec<bool>,
    marked: Vec<bool>,
    hand: ObjectId,
}

impl<'t> OneQueue<'t> {
    /// A cache that holds objects of `capacity` in sum.
    pub(crate) fn new(trace: &'t Trace, capacity: u64, rule: Rule) -> Self {
        let objects = trace.sizes.len();
        Self {
            sizes: &trace.sizes,
            capacity,
            rule,
            links: Links::new(objects),
            queue: List::new(),
            present: vec![false; objects],
            marked: vec![false; objects],
            hand: NONE,
        }
    }

    fn hit(&mut self, object: ObjectId) {
        match self.rule {
            Rule::Fifo => {}
            Rule::Lru => self.renew(object),
            Rule::Clock | Rule::Sieve => self.marked[object as usize] = true,
        }
    }

    fn renew(&mut self, object: ObjectId) {
        let size = self.sizes[object as usize];
        self.queue.remove(&mut self.links, object, size);
        self.queue.push(&mut self.links, object, size);
    }

    fn evict(&mut self) {
        let victim = match self.rule {
            Rule::Fifo | Rule::Lru => self.queue.oldest(),
            Rule::Clock => self.oldest_unmarked(),
            Rule::Sieve => self.under_the_hand(),
        };
        self.queue
            .remove(&mut self.links, victim, self.sizes[victim as usize]);
        self.present[victim as usize] = false;
    }

    fn oldest_unmarked(&mut self) -> ObjectId {
        loop {
            let oldest = self.queue.oldest();
            if !std::mem::take(&mut self.marked[oldest as usize]) {
                return oldest;
            }
            self.renew(oldest);
        }
    }

    fn under_the_hand(&mut self) -> ObjectId {
        loop {
            if self.hand == NONE {
                self.hand = self.queue.oldest();
            }
            let object = self.hand;
            self.hand = self.links.newer(object);
            if !std::mem::take(&mut self.marked[object as usize]) {
                return object;
            }
        }
    }
}

impl Policy for OneQueue<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        if self.present[object as usize] {
            self.hit(object);
            return true;
        }
        let size = self.sizes[object as usize];
        if u64::from(size) > self.capacity {
            return false;
        }
        while self.queue.size() + u64::from(size) > self.capacity {
            self.evict();
        }
        self.present[object as usize] = true;
        self.marked[object as usize] = false;
        self.queue.push(&mut self.links, object, size);
        false
    }
}
