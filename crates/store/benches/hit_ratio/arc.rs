//! ARC (Megiddo and Modha, FAST'03): two LRU lists whose shares adapt by the hits in the ghosts of
//! either. It is here because two of the traces are its authors' and because it adapts.

use crate::policy::Policy;
use crate::queues::Queues;
use crate::trace::{ObjectId, Trace};

const ONCE: usize = 0;
const OFTEN: usize = 1;
const ONCE_GHOST: usize = 2;
const OFTEN_GHOST: usize = 3;

/// A cache under ARC.
pub(crate) struct Arc<'t> {
    capacity: u64,
    once_target: u64,
    lists: Queues<'t, 4>,
}

impl<'t> Arc<'t> {
    /// A cache that holds objects of `capacity` in sum.
    pub(crate) fn new(trace: &'t Trace, capacity: u64) -> Self {
        Self {
            capacity,
            once_target: 0,
            lists: Queues::new(trace),
        }
    }

    fn shift(&mut self, from: usize, to: usize) {
        if let Some(object) = self.lists.oldest(from) {
            self.lists.put(object, to);
        }
    }

    fn replace(&mut self, from_often_ghost: bool) {
        let once = self.lists.size(ONCE);
        let over = once > self.once_target || (from_often_ghost && once == self.once_target);
        if once > 0 && (over || self.lists.size(OFTEN) == 0) {
            self.shift(ONCE, ONCE_GHOST);
        } else {
            self.shift(OFTEN, OFTEN_GHOST);
        }
    }

    fn adapt(&mut self, place: Option<usize>, size: u64) {
        let [once, often] = [ONCE_GHOST, OFTEN_GHOST].map(|ghost| self.lists.size(ghost));
        match place {
            Some(ONCE_GHOST) => {
                let step = size * (often / once.max(1)).max(1);
                self.once_target = (self.once_target + step).min(self.capacity);
            }
            Some(OFTEN_GHOST) => {
                let step = size * (once / often.max(1)).max(1);
                self.once_target = self.once_target.saturating_sub(step);
            }
            _ => {}
        }
    }

    /// Forgets the oldest of a ghost while these lists together are larger than `size_max`.
    fn trim(&mut self, ghost: usize, lists: &[usize], size_max: u64) {
        while lists.iter().map(|&list| self.lists.size(list)).sum::<u64>() > size_max
            && let Some(object) = self.lists.oldest(ghost)
        {
            self.lists.take(object);
        }
    }
}

impl Policy for Arc<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        let place = self.lists.place(object);
        let size = self.lists.size_of(object);
        if matches!(place, Some(ONCE | OFTEN)) {
            self.lists.put(object, OFTEN);
            return true;
        }
        if size > self.capacity {
            return false;
        }
        self.adapt(place, size);
        self.lists.take(object);
        while self.lists.size(ONCE) + self.lists.size(OFTEN) + size > self.capacity {
            self.replace(place == Some(OFTEN_GHOST));
        }
        self.lists.put(object, place.map_or(ONCE, |_| OFTEN));
        self.trim(ONCE_GHOST, &[ONCE, ONCE_GHOST], self.capacity);
        self.trim(OFTEN_GHOST, &[0, 1, 2, 3], 2 * self.capacity);
        false
    }
}
