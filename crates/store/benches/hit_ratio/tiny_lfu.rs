//! W-TinyLFU (Einziger, Friedman and Manes, TOS 2017): a window of 1 % under LRU, a main of 99 %
//! under segmented LRU, and an admission that compares frequencies.
//!
//! The frequencies here are exact (saturating at 15, all halved every ten times the number of
//! objects that fit) where the real thing has a sketch, so this flatters it a little.

use crate::policy::Policy;
use crate::queues::Queues;
use crate::trace::{ObjectId, Trace};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// A cache under W-TinyLFU.
pub(crate) struct TinyLfu<'t> {
    capacity: u64,
    lists: Queues<'t, 3>,
    frequencies: Vec<u8>,
    until_halving: u64,
    period: u64,
}

impl<'t> TinyLfu<'t> {
    /// A cache that holds objects of `capacity` in sum.
    pub(crate) fn new(trace: &'t Trace, capacity: u64) -> Self {
        let objects = trace.sizes.len();
        let period = 10 * (capacity * objects as u64 / trace.footprint()).max(1);
        Self {
            capacity,
            lists: Queues::new(trace),
            frequencies: vec![0; objects],
            until_halving: period,
            period,
        }
    }

    fn count(&mut self, object: ObjectId) {
        let frequency = &mut self.frequencies[object as usize];
        *frequency = (*frequency + 1).min(15);
        self.until_halving -= 1;
        if self.until_halving == 0 {
            self.until_halving = self.period;
            self.frequencies
                .iter_mut()
                .for_each(|frequency| *frequency /= 2);
        }
    }

    fn main_capacity(&self) -> u64 {
        self.capacity - self.capacity / 100
    }

    fn hit(&mut self, object: ObjectId, place: usize) {
        let is_new = place == WINDOW;
        self.lists
            .put(object, if is_new { WINDOW } else { PROTECTED });
        while self.lists.size(PROTECTED) > self.main_capacity() * 4 / 5
            && let Some(oldest) = self.lists.oldest(PROTECTED)
        {
            self.lists.put(oldest, PROBATION);
        }
    }

    /// Lets the oldest of the window compete with the victims of the main.
    fn admit(&mut self) {
        while self.lists.size(WINDOW) > (self.capacity / 100).max(1)
            && let Some(candidate) = self.lists.oldest(WINDOW)
        {
            self.lists.take(candidate);
            let size = self.lists.size_of(candidate);
            loop {
                let main = self.lists.size(PROBATION) + self.lists.size(PROTECTED);
                if main + size <= self.main_capacity() {
                    self.lists.put(candidate, PROBATION);
                    break;
                }
                let oldest = |queue| self.lists.oldest(queue);
                let victim = oldest(PROBATION).or_else(|| oldest(PROTECTED));
                match victim {
                    Some(it) if self.frequency(candidate) > self.frequency(it) => {
                        self.lists.take(it);
                    }
                    _ => break,
                }
            }
        }
    }

    fn frequency(&self, object: ObjectId) -> u8 {
        self.frequencies[object as usize]
    }
}

impl Policy for TinyLfu<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        self.count(object);
        if let Some(place) = self.lists.place(object) {
            self.hit(object, place);
            return true;
        }
        self.lists.put(object, WINDOW);
        self.admit();
        false
    }
}
