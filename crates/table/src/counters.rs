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

/// The rare events that are counted, besides paths.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Restart,
    Invalid,
    AllLocked,
    ReadRetry,
    ReadLocked,
    Split,
    FarSearch,
    Full,
}

const EVENTS: usize = Event::Full as usize + 1;

#[derive(Default)]
pub(crate) struct Tallies {
    shards: [OwnLine<[AtomicU64; EVENTS + PATH_MOVES_MAX + 1]>; SHARDS],
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
        self.add(event as usize);
    }

    /// A path of this many moves was carried out.
    #[cold]
    pub(crate) fn count_path(&self, moves: usize) {
        self.add(EVENTS + moves.min(PATH_MOVES_MAX));
    }

    fn add(&self, index: usize) {
        self.shards[own_shard()].0[index].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self, inserts: u64) -> Counters {
        let sum = |index: usize| -> u64 {
            let shards = self.shards.iter();
            shards
                .map(|shard| shard.0[index].load(Ordering::Relaxed))
                .sum()
        };
        let of = |event: Event| sum(event as usize);
        Counters {
            inserts,
            paths: std::array::from_fn(|moves| sum(EVENTS + moves)),
            restarts: of(Event::Restart),
            paths_invalid: of(Event::Invalid),
            locked_all: of(Event::AllLocked),
            read_retries: of(Event::ReadRetry),
            reads_locked: of(Event::ReadLocked),
            splits: of(Event::Split),
            searches_far: of(Event::FarSearch),
            refused: of(Event::Full),
        }
    }
}
