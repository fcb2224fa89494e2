//! Writes between the workers and the committer. Its order is the order of the log.

use std::time::Instant;

use curtail_types::KeyHash;

use crate::write_log::TreeWrite;

/// Writes that the committer has not taken.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    writes: Vec<TreeWrite>,
    hashes: Vec<Option<KeyHash>>,
    bytes: usize,
    /// The place in the log of the next write.
    next: u64,
    /// When the oldest write entered that the committer has not taken.
    oldest_queued: Option<Instant>,
    /// When the oldest write entered that is not on stable storage.
    oldest_unsynced: Option<Instant>,
    /// The committer waits for a write.
    pub(crate) is_awaited: bool,
    pub(crate) is_closing: bool,
}

/// What the committer took.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) writes: Vec<TreeWrite>,
    /// Whose pending write each is.
    pub(crate) hashes: Vec<Option<KeyHash>>,
}

/// What a write takes in the queue beside its key and value.
const WRITE_BYTES: usize = 128;

impl WriteQueue {
    pub(crate) fn new(next: u64) -> Self {
        Self {
            writes: Vec::new(),
            hashes: Vec::new(),
            bytes: 0,
            next,
            oldest_queued: None,
            oldest_unsynced: None,
            is_awaited: false,
            is_closing: false,
        }
    }

    /// Adds a write; its place in the log.
    pub(crate) fn push(&mut self, write: TreeWrite, hash: Option<KeyHash>) -> u64 {
        let now = Instant::now();
        self.oldest_queued.get_or_insert(now);
        self.oldest_unsynced.get_or_insert(now);
        let value_bytes = write.value.as_ref().map_or(0, |value| value.len());
        self.bytes += write.key.len() + value_bytes + WRITE_BYTES;
        self.writes.push(write);
        self.hashes.push(hash);
        self.next += 1;
        self.next - 1
    }

    /// Takes all, and gives the memory of `taken` in return.
    pub(crate) fn take(&mut self, taken: &mut Taken) {
        taken.writes.clear();
        taken.hashes.clear();
        std::mem::swap(&mut self.writes, &mut taken.writes);
        std::mem::swap(&mut self.hashes, &mut taken.hashes);
        self.bytes = 0;
        self.oldest_queued = None;
    }

    /// All that was taken is on stable storage.
    pub(crate) fn note_synced(&mut self) {
        self.oldest_unsynced = self.oldest_queued;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn writes(&self) -> usize {
        self.writes.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest write entered that is not on stable storage.
    pub(crate) fn oldest_unsynced(&self) -> Option<Instant> {
        self.oldest_unsynced
    }
}
