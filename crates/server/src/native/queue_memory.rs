//! The memory of queues, stamps and sessions: of this process, or maps that the XDP program shares.
//!
//! The rest of the path does not know which of the two it is: it sees words. In maps that an
//! earlier process left behind there may be entries that were acknowledged; they are made whole and
//! executed first.

use std::sync::atomic::AtomicU64;

use curtail_ordered_queue::layout;
use curtail_types::HashSeed;

/// The words of the path, and what goes with their kind.
pub(crate) trait QueueMemory: Send + Sync {
    /// All queues, one behind another.
    fn queues(&self) -> &[AtomicU64];
    /// The stamps.
    fn stamps(&self) -> &[AtomicU64];
    /// The sessions.
    fn sessions(&self) -> &[AtomicU64];
    /// At a node of a cluster, whether somebody outside this process may accept writes of a slice:
    /// a word for each.
    fn gates(&self) -> &[AtomicU64] {
        &[]
    }
    /// Whether an earlier process left the words behind; otherwise all are 0.
    fn is_found(&self) -> bool {
        false
    }
    /// The secrets that the words were written under, of words that were found.
    fn secrets(&self) -> Option<Secrets> {
        None
    }
    /// The secrets under which the words will be written, of words that are fresh.
    fn adopt(&self, _secrets: Secrets) {}
    /// Where the words lie, for people, if that is not simply this process's memory.
    fn place(&self) -> Option<String> {
        None
    }
    /// Whether somebody outside this process admits writes and acknowledges them: then the
    /// checksum is looked at once more when they are executed.
    fn acknowledges(&self) -> bool {
        false
    }
    /// This process lives, and items see this time; called every few milliseconds.
    fn beat(&self, _unix_ns: u64) {}
    /// Waits until nobody is in the middle of an admission that began before the queues were
    /// closed.
    fn quiesce(&self) {}
    /// A planned stop, after everything was executed.
    fn stop(&self) {}
}

/// What must stay secret, and the same as long as the words live.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Secrets {
    /// Of key hashes: the store's as well.
    pub(crate) seed: HashSeed,
    /// Of cookies and tokens.
    pub(crate) tokens: HashSeed,
}

/// How much memory the path takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    pub(crate) queues: usize,
    pub(crate) slots: u64,
    pub(crate) sessions: usize,
}

/// Memory of this process; it ends with it.
pub(crate) struct Anonymous {
    queues: Box<[AtomicU64]>,
    stamps: Box<[AtomicU64]>,
    sessions: Box<[AtomicU64]>,
}

impl Shape {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let queues = self.queues * layout::queue_words(self.slots);
        8 * (queues + layout::STAMP_WORDS + self.sessions * layout::SESSION_WORDS)
    }
}

impl Anonymous {
    pub(crate) fn new(shape: Shape) -> Self {
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            queues: words(shape.queues * layout::queue_words(shape.slots)),
            stamps: words(layout::STAMP_WORDS),
            sessions: words(shape.sessions * layout::SESSION_WORDS),
        }
    }
}

impl QueueMemory for Anonymous {
    fn queues(&self) -> &[AtomicU64] {
        &self.queues
    }

    fn stamps(&self) -> &[AtomicU64] {
        &self.stamps
    }

    fn sessions(&self) -> &[AtomicU64] {
        &self.sessions
    }
}
