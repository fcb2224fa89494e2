//! Requests and workers as the machines of this crate see them.

/// A worker of a node, counted from 0; a thread with a queue of its own.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Worker(pub u16);

/// A fixed slice of the key hash: the unit that has one writer at a time. It does not depend on
/// the size of the store's table, so growth moves no key to another partition.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Partition(pub u32);

/// The driver's handle of a request: an index of its own tables, opaque here.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u32);

/// Whether a request may change the store.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Access {
    /// Looks only.
    Read,
    /// May change, remove, or touch: everything that is not a plain read.
    Write,
}

impl Worker {
    /// For tables indexed by worker.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Workers of one node at most.
pub const WORKERS_MAX: usize = 256;
