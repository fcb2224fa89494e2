//! What a table has done, counted without a shared counter on any operation's path.
//!
//! Items and inserts are counted in the cache line of the stripe that a writer holds anyway
//! (`locks.rs`). What remains is rare: displacements, restarts, retries of readers, splits. Those
//! go to one of a few lines that the thread keeps to, and are summed when somebody asks (cuckoo
//! paper, section 3.3.1, principle P1).

use crate::sync::{AtomicU64, Ordering, OwnLine};

/// More than a server has workers, so that each counts on lines of its own.
const SHARDS: usize = 32;

/// Displacements that are told apart: a path of the near search has at most three, one of the far
/// search seldom more than these.
pub(crate) const PATH_MOVES_MAX: usize = 6;

/// The rare events that are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A path of this many moves was carried out.
    Path(usize),
    Restart,
    Invalid,
    AllLocked,
    ReadRetry,
    ReadLocked,
    Split,
    FarSearch,
    Full,
}

const EVENTS: usize = PATH_MOVES_MAX + 9;

#[derive(Default)]
pub(crate) struct Tallies {
    shards: [OwnLine<[AtomicU64; EVENTS]>; SHARDS],
}

/// The shard of the calling thread: threads take turns in the order in which they first count.
fn own_shard() -> usize {
    #[cfg(loom)]
    return 0;
    #[cfg(not(loom))]
    {
        use std::cell::Cell;
        static NEXT: crate::sync::AtomicUsize = crate::sync::AtomicUsize::new(0);
        thread_local! {
            static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
        }
        if OWN.get() == usize::MAX {
            OWN.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        OWN.get()
    }
}

/// What a table has done since it was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Items inserted, with or without displacing others.
    pub inserts: u64,
    /// Inserts that displaced others, by the number of displacements (index 0 is a slot that came
    /// free by itself; the last index takes everything longer).
    pub paths: [u64; PATH_MOVES_MAX + 1],
    /// Searches that were repeated because another writer was faster.
    pub restarts: u64,
    /// Paths that turned out to be invalid when they were carried out.
    pub paths_invalid: u64,
    /// Inserts that took every lock after too many restarts.
    pub locked_all: u64,
    /// Reads that were repeated because a writer came between.
    pub read_retries: u64,
    /// Reads that took the locks after too many repeats.
    pub reads_locked: u64,
    /// Buckets added.
    pub splits: u64,
    /// Searches that looked further because nearer ones, and growth, had found no path.
    pub searches_far: u64,
    /// Inserts refused because the table was full.
    pub refused: u64,
}

impl Tallies {
    #[cold]
    pub(crate) fn count(&self, event: Event) {
        let index = match event {
            Event::Path(moves) => moves.min(PATH_MOVES_MAX),
            Event::Restart => PATH_MOVES_MAX + 1,
            Event::Invalid => PATH_MOVES_MAX + 2,
            Event::AllLocked => PATH_MOVES_MAX + 3,
            Event::ReadRetry => PATH_MOVES_MAX + 4,
            Event::ReadLocked => PATH_MOVES_MAX + 5,
            Event::Split => PATH_MOVES_MAX + 6,
            Event::FarSearch => PATH_MOVES_MAX + 7,
            Event::Full => PATH_MOVES_MAX + 8,
        };
        self.shards[own_shard()].0[index].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self, inserts: u64) -> Counters {
        let sum = |index: usize| -> u64 {
            self.shards
                .iter()
                .map(|shard| shard.0[index].load(Ordering::Relaxed))
                .sum()
        };
        Counters {
            inserts,
            paths: std::array::from_fn(sum),
            restarts: sum(PATH_MOVES_MAX + 1),
            paths_invalid: sum(PATH_MOVES_MAX + 2),
            locked_all: sum(PATH_MOVES_MAX + 3),
            read_retries: sum(PATH_MOVES_MAX + 4),
            reads_locked: sum(PATH_MOVES_MAX + 5),
            splits: sum(PATH_MOVES_MAX + 6),
            searches_far: sum(PATH_MOVES_MAX + 7),
            refused: sum(PATH_MOVES_MAX + 8),
        }
    }
}
