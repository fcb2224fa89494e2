//! The list that each segment belongs to: free, released, or a queue of the store.
//!
//! Lists are links between segment numbers under one mutex, which is taken a few times per
//! *segment*, never per item. A segment is in at most one list.

use crate::SegmentClaim;

/// The number of a segment; 0 is none.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SegmentId(pub(crate) u32);

impl SegmentId {
    /// The number, never 0.
    pub fn get(self) -> u32 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct List {
    first: u32,
    last: u32,
    count: u32,
}

/// All lists, and how many segments hold memory.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The neighbours of each segment in its list; 0 is none. Numbers and no structures, because
    /// the allocator gives those as zero pages that take no memory before they are written.
    next: Vec<u32>,
    previous: Vec<u32>,
    lists: [List; LISTS],
    /// The lowest segment that was never used.
    fresh: u32,
    /// Segments that hold memory: in use, or free and not released.
    pub(crate) resident: u32,
    /// How many may.
    pub(crate) resident_max: u32,
    /// How many of those that are available are kept for [`SegmentClaim::Kept`].
    pub(crate) kept: u32,
}

/// Queues that the store may use.
pub const QUEUES: usize = 2;

const FREE: usize = QUEUES;
const RELEASED: usize = QUEUES + 1;
const LISTS: usize = QUEUES + 2;

impl Directory {
    pub(crate) fn new(segments: usize) -> Self {
        Self {
            next: vec![0; segments + 1],
            previous: vec![0; segments + 1],
            lists: [List::default(); LISTS],
            fresh: 1,
            resident: 0,
            resident_max: 0,
            kept: 0,
        }
    }

    pub(crate) fn push(&mut self, queue: usize, id: u32) {
        let last = self.lists[queue].last;
        self.next[id as usize] = 0;
        self.previous[id as usize] = last;
        if last == 0 {
            self.lists[queue].first = id;
        } else {
            self.next[last as usize] = id;
        }
        self.lists[queue].last = id;
        self.lists[queue].count += 1;
    }

    pub(crate) fn push_first(&mut self, queue: usize, id: u32) {
        let next = self.lists[queue].first;
        self.next[id as usize] = next;
        self.previous[id as usize] = 0;
        if next == 0 {
            self.lists[queue].last = id;
        } else {
            self.previous[next as usize] = id;
        }
        self.lists[queue].first = id;
        self.lists[queue].count += 1;
    }

    pub(crate) fn remove(&mut self, queue: usize, id: u32) {
        let next = std::mem::take(&mut self.next[id as usize]);
        let previous = std::mem::take(&mut self.previous[id as usize]);
        if previous == 0 {
            self.lists[queue].first = next;
        } else {
            self.next[previous as usize] = next;
        }
        if next == 0 {
            self.lists[queue].last = previous;
        } else {
            self.previous[next as usize] = previous;
        }
        self.lists[queue].count -= 1;
    }

    pub(crate) fn count(&self, queue: usize) -> u32 {
        self.lists[queue].count
    }

    /// The segments of a queue, oldest first.
    pub(crate) fn iter(&self, queue: usize) -> impl Iterator<Item = u32> {
        let mut next = self.lists[queue].first;
        std::iter::from_fn(move || {
            let id = next;
            (id != 0).then(|| {
                next = self.next[id as usize];
                id
            })
        })
    }

    fn pop(&mut self, list: usize) -> Option<u32> {
        let id = self.lists[list].first;
        (id != 0).then(|| {
            self.remove(list, id);
            id
        })
    }

    /// Segments that could be taken now.
    pub(crate) fn available(&self) -> u32 {
        let unused = self.next.len() as u32 - self.fresh + self.lists[RELEASED].count;
        let within = self.resident_max.saturating_sub(self.resident).min(unused);
        let excess = self.resident.saturating_sub(self.resident_max);
        self.lists[FREE].count.saturating_sub(excess) + within
    }

    /// Takes a segment if that leaves what `claim` leaves to others.
    pub(crate) fn take(&mut self, claim: SegmentClaim) -> Option<u32> {
        let is_enough = match claim {
            SegmentClaim::Beyond(left) => self.available() > self.kept.saturating_add(left as u32),
            SegmentClaim::Any => self.available() > 0,
            SegmentClaim::Kept => true,
        };
        if !is_enough {
            return None;
        }
        if let Some(id) = self.pop(FREE) {
            return Some(id);
        }
        let id = self.pop(RELEASED).or_else(|| self.take_fresh())?;
        self.resident += 1;
        Some(id)
    }

    fn take_fresh(&mut self) -> Option<u32> {
        ((self.fresh as usize) < self.next.len()).then(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    /// Takes one particular segment that was never used, for a restore that goes upwards; those
    /// below it become released ones.
    pub(crate) fn take_exactly(&mut self, id: u32) -> bool {
        if id < self.fresh || id as usize >= self.next.len() {
            return false;
        }
        while self.fresh < id {
            self.push(RELEASED, self.fresh);
            self.fresh += 1;
        }
        self.fresh += 1;
        self.resident += 1;
        true
    }

    pub(crate) fn give_back(&mut self, id: u32) {
        self.push(FREE, id);
    }

    /// A free segment whose memory is above the limit and must be released by the caller.
    pub(crate) fn release_one(&mut self) -> Option<u32> {
        if self.resident <= self.resident_max {
            return None;
        }
        let id = self.pop(FREE)?;
        self.resident -= 1;
        Some(id)
    }

    pub(crate) fn released(&mut self, id: u32) {
        self.push(RELEASED, id);
    }

    pub(crate) fn used_max(&self) -> u32 {
        self.fresh - 1
    }

    pub(crate) fn free(&self) -> u32 {
        self.lists[FREE].count
    }
}
