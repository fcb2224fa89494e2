//! S3-FIFO as published (Yang et al., SOSP'23): a small queue that filters what is never asked for
//! again, a main queue with reinsertion, and a ghost queue of what the small queue dropped.
//!
//! ```text
//! miss ---> small --asked twice--> main --> (asked: back to its tail)
//!   \         \--- else: ghost       ^
//!    \--- in the ghost --------------/
//! ```

use crate::policy::Policy;
use crate::queues::Queues;
use crate::trace::{ObjectId, Trace};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// A cache under S3-FIFO.
pub(crate) struct S3Fifo<'t> {
    capacity: u64,
    small_capacity: u64,
    queues: Queues<'t, 3>,
    marks: Vec<u8>,
}

/// The counter of an object saturates here.
const MARK_MAX: u8 = 3;
/// An object moves from small to main when it was asked for this often since it came.
const PROMOTE_AT: u8 = 2;

impl<'t> S3Fifo<'t> {
    /// A cache of `capacity` whose small queue has a tenth of it, as in the paper.
    pub(crate) fn new(trace: &'t Trace, capacity: u64) -> Self {
        Self {
            capacity,
            small_capacity: capacity / 10,
            queues: Queues::new(trace),
            marks: vec![0; trace.sizes.len()],
        }
    }

    fn evict(&mut self) {
        if self.queues.size(SMALL) > self.small_capacity || self.queues.size(MAIN) == 0 {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        while let Some(object) = self.queues.oldest(SMALL) {
            if self.marks[object as usize] < PROMOTE_AT {
                self.queues.put(object, GHOST);
                self.trim_ghost();
                return;
            }
            self.marks[object as usize] = 0;
            self.queues.put(object, MAIN);
        }
    }

    fn trim_ghost(&mut self) {
        while self.queues.size(GHOST) > self.capacity - self.small_capacity
            && let Some(object) = self.queues.oldest(GHOST)
        {
            self.queues.take(object);
        }
    }

    fn evict_main(&mut self) {
        while let Some(object) = self.queues.oldest(MAIN) {
            if self.marks[object as usize] == 0 {
                self.queues.take(object);
                return;
            }
            self.marks[object as usize] -= 1;
            self.queues.put(object, MAIN);
        }
    }
}

impl Policy for S3Fifo<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        let mark = &mut self.marks[object as usize];
        let place = self.queues.place(object);
        if matches!(place, Some(SMALL | MAIN)) {
            *mark = (*mark + 1).min(MARK_MAX);
            return true;
        }
        *mark = 0;
        let size = self.queues.size_of(object);
        if size > self.capacity {
            return false;
        }
        self.queues.take(object);
        while self.queues.size(SMALL) + self.queues.size(MAIN) + size > self.capacity {
            self.evict();
        }
        self.queues.put(object, place.map_or(SMALL, |_| MAIN));
        false
    }
}
