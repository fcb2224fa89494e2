//! Belady's optimum (1966): evicts the object whose next request is last, and admits none whose
//! next request is later than those of all present. For objects of one size no policy does better;
//! for sizes it is a yardstick only.

use std::collections::BTreeSet;

use crate::policy::Policy;
use crate::trace::{ObjectId, Trace};

/// A cache that knows the future.
pub(crate) struct Optimum<'t> {
    sizes: &'t [u32],
    capacity: u64,
    used: u64,
    now: usize,
    /// For each request, when its object is asked for again.
    next: Vec<usize>,
    /// When each object that is present is asked for again.
    due: Vec<Option<usize>>,
    by_due: BTreeSet<(usize, ObjectId)>,
}

impl<'t> Optimum<'t> {
    /// A cache that holds objects of `capacity` in sum.
    pub(crate) fn new(trace: &'t Trace, capacity: u64) -> Self {
        let mut next = vec![usize::MAX; trace.requests.len()];
        let mut last = vec![usize::MAX; trace.sizes.len()];
        for (time, &object) in trace.requests.iter().enumerate().rev() {
            next[time] = std::mem::replace(&mut last[object as usize], time);
        }
        Self {
            sizes: &trace.sizes,
            capacity,
            used: 0,
            now: 0,
            next,
            due: vec![None; trace.sizes.len()],
            by_due: BTreeSet::new(),
        }
    }

    fn put(&mut self, object: ObjectId, due: usize) {
        self.due[object as usize] = Some(due);
        self.by_due.insert((due, object));
        self.used += u64::from(self.sizes[object as usize]);
    }

    fn take(&mut self, object: ObjectId, due: usize) {
        self.due[object as usize] = None;
        self.by_due.remove(&(due, object));
        self.used -= u64::from(self.sizes[object as usize]);
    }
}

impl Policy for Optimum<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        let due = self.next[self.now];
        self.now += 1;
        let before = self.due[object as usize];
        if let Some(before) = before {
            self.take(object, before);
        }
        self.put(object, due);
        while self.used > self.capacity {
            let Some(&(latest, victim)) = self.by_due.last() else {
                break;
            };
            self.take(victim, latest);
        }
        before.is_some()
    }
}
