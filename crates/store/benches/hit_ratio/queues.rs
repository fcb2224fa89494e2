//! Queues of objects in arrays, which the textbook policies are made of: doubly linked lists, of
//! which an object is in one or in none.

use crate::trace::{ObjectId, Trace};

/// `N` queues over the objects of a trace.
pub(crate) struct Queues<'t, const N: usize> {
    sizes: &'t [u32],
    /// The neighbours of every object, or `NONE`.
    newer: Vec<ObjectId>,
    older: Vec<ObjectId>,
    places: Vec<Option<u8>>,
    queues: [Queue; N],
}

/// One queue: its ends, and the sum of its objects' sizes.
#[derive(Clone, Copy)]
struct Queue {
    newest: ObjectId,
    oldest: ObjectId,
    size: u64,
}

/// No object.
const NONE: ObjectId = ObjectId::MAX;

impl<'t, const N: usize> Queues<'t, N> {
    /// Empty queues.
    pub(crate) fn new(trace: &'t Trace) -> Self {
        let objects = trace.sizes.len();
        let empty = Queue {
            newest: NONE,
            oldest: NONE,
            size: 0,
        };
        Self {
            sizes: &trace.sizes,
            newer: vec![NONE; objects],
            older: vec![NONE; objects],
            places: vec![None; objects],
            queues: [empty; N],
        }
    }

    /// The size of an object.
    pub(crate) fn size_of(&self, object: ObjectId) -> u64 {
        u64::from(self.sizes[object as usize])
    }

    /// The sum of the sizes of the objects in a queue.
    pub(crate) fn size(&self, queue: usize) -> u64 {
        self.queues[queue].size
    }

    /// The queue that an object is in.
    pub(crate) fn place(&self, object: ObjectId) -> Option<usize> {
        self.places[object as usize].map(usize::from)
    }

    /// The oldest object of a queue.
    pub(crate) fn oldest(&self, queue: usize) -> Option<ObjectId> {
        some(self.queues[queue].oldest)
    }

    /// The neighbour of an object towards the newest.
    pub(crate) fn newer(&self, object: ObjectId) -> Option<ObjectId> {
        some(self.newer[object as usize])
    }

    /// Puts an object, wherever it is, at the newest end of a queue.
    pub(crate) fn put(&mut self, object: ObjectId, queue: usize) {
        self.take(object);
        let size = self.size_of(object);
        let ends = &mut self.queues[queue];
        self.places[object as usize] = Some(queue as u8);
        self.newer[object as usize] = NONE;
        self.older[object as usize] = ends.newest;
        match ends.newest {
            NONE => ends.oldest = object,
            newest => self.newer[newest as usize] = object,
        }
        ends.newest = object;
        ends.size += size;
    }

    /// Takes an object out of the queue that it is in, if any.
    pub(crate) fn take(&mut self, object: ObjectId) {
        let Some(queue) = self.places[object as usize].take() else {
            return;
        };
        let size = self.size_of(object);
        let ends = &mut self.queues[usize::from(queue)];
        let (newer, older) = (self.newer[object as usize], self.older[object as usize]);
        match newer {
            NONE => ends.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => ends.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        ends.size -= size;
    }
}

fn some(object: ObjectId) -> Option<ObjectId> {
    (object != NONE).then_some(object)
}
