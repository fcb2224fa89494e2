//! Requests that are under way, and the private queues of workers: one slab, linked lists through
//! it.

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) generated_ns: u64,
    pub(super) rank: u32,
    pub(super) bucket: u32,
    /// The next in a queue, or the next free slot.
    next: u32,
    pub(super) write: bool,
    pub(super) measured: bool,
    /// Its worker was credited for it when it was put aside.
    pub(super) deferred: bool,
}

/// All requests under way.
#[derive(Debug)]
pub(super) struct Slab {
    slots: Vec<Slot>,
    free: u32,
    used: usize,
}

/// A worker's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
}

/// What a worker is doing; its next event ends it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// Nothing; if there is an event, it is a window's deadline.
    Idle,
    /// A read waits for an odd version to become even.
    ReadWaits { id: u32, disturbed: bool },
    /// A read that looked at the version at `from` and looks again at `to`.
    Reads {
        id: u32,
        from: u64,
        to: u64,
        disturbed: bool,
        last: bool,
    },
    /// A write waits for an odd version.
    WriteWaits { id: u32 },
    /// A write and its answer.
    Writes { id: u32 },
    /// A write is put aside.
    PutsAside { id: u32 },
    /// A window's last write waits for an odd version.
    ApplyWaits { id: u32 },
    /// A window's last write is carried out.
    Applies { id: u32 },
    /// A window's write is answered.
    Answers { id: u32 },
}

impl Slab {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            used: 0,
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, generated_ns: u64, rank: u32, bucket: u32, write: bool) -> u32 {
        let slot = Slot {
            generated_ns,
            rank,
            bucket,
            next: NONE,
            write,
            measured: false,
            deferred: false,
        };
        self.used += 1;
        let id = self.free;
        match self.slots.get_mut(id as usize) {
            Some(free) => {
                self.free = free.next;
                *free = slot;
                id
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Slot {
        let slot = self.slots[id as usize];
        self.slots[id as usize].next = self.free;
        self.free = id;
        self.used -= 1;
        slot
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> &Slot {
        &self.slots[id as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> &mut Slot {
        &mut self.slots[id as usize]
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }
}

impl Queue {
    pub(super) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    #[inline]
    pub(super) fn push(&mut self, slab: &mut Slab, id: u32) {
        slab.get_mut(id).next = NONE;
        match self.tail {
            NONE => self.head = id,
            tail => slab.get_mut(tail).next = id,
        }
        self.tail = id;
    }

    #[inline]
    pub(super) fn pop(&mut self, slab: &Slab) -> Option<u32> {
        let id = self.head;
        if id == NONE {
            return None;
        }
        self.head = slab.get(id).next;
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(id)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Whether one of the first `depth` requests is a write of `rank`.
    pub(super) fn has_write(&self, slab: &Slab, rank: u32, depth: usize) -> bool {
        let mut id = self.head;
        for _ in 0..depth {
            if id == NONE {
                return false;
            }
            let slot = slab.get(id);
            if slot.write && slot.rank == rank {
                return true;
            }
            id = slot.next;
        }
        false
    }
}

const NONE: u32 = u32::MAX;
