//! A doubly linked list of objects in arrays, the queue that the textbook policies are made of.
//!
//! An object is in at most one list that shares the links; each policy keeps one `Links` and as
//! many `List`s as it has queues.

use crate::trace::ObjectId;

/// No object.
pub(crate) const NONE: ObjectId = ObjectId::MAX;

/// The neighbours of every object.
pub(crate) struct Links {
    newer: Vec<ObjectId>,
    older: Vec<ObjectId>,
}

impl Links {
    /// Links for `objects` objects, none of them in a list.
    pub(crate) fn new(objects: usize) -> Self {
        Self {
            newer: vec![NONE; objects],
            older: vec![NONE; objects],
        }
    }

    /// The neighbour of `object` towards the newest, or `NONE`.
    pub(crate) fn newer(&self, object: ObjectId) -> ObjectId {
        self.newer[object as usize]
    }
}

/// One list: its ends, and the sum of its objects' sizes.
pub(crate) struct List {
    newest: ObjectId,
    oldest: ObjectId,
    size: u64,
}

impl List {
    /// An empty list.
    pub(crate) fn new() -> Self {
        Self {
            newest: NONE,
            oldest: NONE,
            size: 0,
        }
    }

    /// The sum of the sizes of the objects in the list.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The oldest object, or `NONE`.
    pub(crate) fn oldest(&self) -> ObjectId {
        self.oldest
    }

    /// Puts `object` at the newest end.
    pub(crate) fn push(&mut self, links: &mut Links, object: ObjectId, size: u32) {
        links.newer[object as usize] = NONE;
        links.older[object as usize] = self.newest;
        match self.newest {
            NONE => self.oldest = object,
            newest => links.newer[newest as usize] = object,
        }
        self.newest = object;
        self.size += u64::from(size);
    }

    /// Takes `object` out, wherever it is.
    pub(crate) fn remove(&mut self, links: &mut Links, object: ObjectId, size: u32) {
        let (newer, older) = (links.newer[object as usize], links.older[object as usize]);
        match newer {
            NONE => self.newest = older,
            newer => links.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => links.newer[older as usize] = newer,
        }
        self.size -= u64::from(size);
    }

    /// Takes the oldest object out.
    pub(crate) fn pop(&mut self, links: &mut Links, sizes: &[u32]) -> Option<ObjectId> {
        let oldest = self.oldest;
        if oldest == NONE {
            return None;
        }
        self.remove(links, oldest, sizes[oldest as usize]);
        Some(oldest)
    }
}
