//! What a worker counts: plain numbers during a turn, published once at its end.
//!
//! Counting must cost nothing, so a request adds to a number that only its worker knows. The sums
//! go to shared atomics before the replies leave: whoever has seen a reply sees it counted.

use curtail_types::{ArithmeticOutcome, DeleteOutcome, Direction, Operation, Outcome, SetOutcome};

use crate::sync::{AtomicU64, Relaxed};

/// The counters of a worker. Names are those of memcached's `stats` where it has them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(crate) enum Count {
    CmdGet,
    CmdSet,
    CmdFlush,
    CmdTouch,
    CmdMeta,
    GetHits,
    GetMisses,
    DeleteHits,
    DeleteMisses,
    IncrHits,
    IncrMisses,
    DecrHits,
    DecrMisses,
    CasHits,
    CasMisses,
    CasBadval,
    TouchHits,
    TouchMisses,
    StoreTooLarge,
    StoreNoMemory,
    AuthCmds,
    AuthErrors,
    IdleKicks,
    BytesRead,
    BytesWritten,
    ConnYields,
    ReplyNoMemory,
    ReadNoMemory,
    SlowReadersClosed,
    Turns,
    Requests,
    Receives,
    Sends,
    MaintainedItems,
    SpinsFound,
    SpinsInVain,
    Delegations,
    DelegationsRefused,
    DelegatedBatchesSent,
    DelegatedBatchesTakenBack,
    LateReleases,
    HandOffs,
    HandOffsRelieved,
    LargeRefused,
    SmallBehindLarge,
    Compacted,
    ConnectionsMoved,
    ClusterHot,
    ClusterRelayed,
    ClusterAnswered,
    ClusterProtocol,
    ClusterKeysSent,
    ClusterKeysAsked,
    ClusterKeysUnfit,
    ClusterMovesHeld,
    ClusterMoveBatches,
    ClusterShown,
    ClusterFramesSent,
    ClusterPartsSent,
    ClusterMessagesSent,
    ClusterLinkSends,
    ClusterLinkReceives,
    Length,
}

const LENGTH: usize = Count::Length as usize;

/// The counts of one thread, or a sum of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts([u64; LENGTH]);

/// The counts of one worker as others may read them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PublishedCounts([AtomicU64; LENGTH]);

impl Counts {
    pub(crate) const fn new() -> Self {
        Self([0; LENGTH])
    }

    #[inline]
    pub(crate) fn add(&mut self, count: Count, amount: u64) {
        if let Some(number) = self.0.get_mut(count as usize) {
            *number += amount;
        }
    }

    /// A read: whether it shows a value, touches, and has found its item.
    #[inline(always)]
    pub(crate) fn add_get(&mut self, shows: bool, touches: bool, hit: bool) {
        if shows {
            self.add(Count::CmdGet, 1);
        }
        let count = match (touches, hit) {
            (false, true) => Count::GetHits,
            (false, false) => Count::GetMisses,
            (true, true) => Count::TouchHits,
            (true, false) => Count::TouchMisses,
        };
        self.add(count, 1);
        self.add(Count::CmdTouch, u64::from(touches));
    }

    /// A write, and whether it compared versions.
    #[inline]
    pub(crate) fn add_set(&mut self, compares: bool, outcome: SetOutcome) {
        self.add(Count::CmdSet, 1);
        let count = match (outcome, compares) {
            (SetOutcome::TooLarge, _) => Count::StoreTooLarge,
            (SetOutcome::OutOfMemory, _) => Count::StoreNoMemory,
            (SetOutcome::Stored(_), true) => Count::CasHits,
            (SetOutcome::Exists, true) => Count::CasBadval,
            (SetOutcome::NotFound, true) => Count::CasMisses,
            _ => return,
        };
        self.add(count, 1);
    }

    #[inline]
    pub(crate) fn add_delete(&mut self, outcome: DeleteOutcome) {
        match outcome {
            DeleteOutcome::Deleted => self.add(Count::DeleteHits, 1),
            DeleteOutcome::NotFound => self.add(Count::DeleteMisses, 1),
            DeleteOutcome::Exists | DeleteOutcome::OutOfMemory => {}
        }
    }

    #[inline]
    pub(crate) fn add_arithmetic(&mut self, direction: Direction, outcome: &ArithmeticOutcome) {
        let (hits, misses) = match direction {
            Direction::Increment => (Count::IncrHits, Count::IncrMisses),
            Direction::Decrement => (Count::DecrHits, Count::DecrMisses),
        };
        match outcome {
            ArithmeticOutcome::Counted { .. } => self.add(hits, 1),
            ArithmeticOutcome::NotFound => self.add(misses, 1),
            _ => {}
        }
    }

    /// An operation of another node, or one that was kept for later.
    pub(crate) fn add_outcome(&mut self, operation: &Operation, shows: bool, outcome: &Outcome) {
        match (operation, outcome) {
            (Operation::Get(get), found) => {
                let hit = matches!(found, Outcome::Found(_));
                self.add_get(shows, get.touch.is_some(), hit);
            }
            (Operation::Set(set), Outcome::Set(outcome)) => {
                self.add_set(set.compare.is_some(), *outcome);
            }
            (_, Outcome::Delete(outcome)) => self.add_delete(*outcome),
            (Operation::Arithmetic(arithmetic), Outcome::Arithmetic(outcome)) => {
                self.add_arithmetic(arithmetic.direction, outcome);
            }
            _ => {}
        }
    }

    /// What was counted once too often.
    pub(crate) fn take_back(&mut self, count: Count) {
        if let Some(number) = self.0.get_mut(count as usize) {
            *number -= 1;
        }
    }

    pub(crate) fn get(&self, count: Count) -> u64 {
        self.0.get(count as usize).copied().unwrap_or(0)
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (number, more) in self.0.iter_mut().zip(other.0) {
            *number += more;
        }
    }

    /// What was counted since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (number, less) in difference.0.iter_mut().zip(earlier.0) {
            *number = number.saturating_sub(less);
        }
        difference
    }
}

/// A counter of several threads that `stats reset` starts over for `stats`, and for nobody else.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    total: AtomicU64,
    at_reset: AtomicU64,
}

impl Tally {
    pub(crate) const fn new() -> Self {
        Self {
            total: AtomicU64::new(0),
            at_reset: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, amount: u64) {
        self.total.fetch_add(amount, Relaxed);
    }

    /// Since the start.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Since the last reset.
    pub(crate) fn since_reset(&self) -> u64 {
        let at_reset = self.at_reset.load(Relaxed);
        self.total().saturating_sub(at_reset)
    }

    pub(crate) fn reset(&self) {
        self.at_reset.store(self.total(), Relaxed);
    }
}

impl PublishedCounts {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; LENGTH])
    }

    /// Shows `counts` to the others; only the worker itself calls this.
    pub(crate) fn publish(&self, counts: &Counts) {
        for (shown, number) in self.0.iter().zip(counts.0) {
            shown.store(number, Relaxed);
        }
    }

    /// One of them.
    pub(crate) fn get(&self, count: Count) -> u64 {
        let shown = self.0.get(count as usize);
        shown.map_or(0, |shown| shown.load(Relaxed))
    }

    pub(crate) fn read(&self) -> Counts {
        let mut counts = Counts::new();
        for (number, shown) in counts.0.iter_mut().zip(&self.0) {
            *number = shown.load(Relaxed);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_starts_over_for_one_reader_alone() {
        let tally = Tally::new();
        tally.add(3);
        tally.reset();
        tally.add(2);
        assert_eq!((tally.since_reset(), tally.total()), (2, 5));
    }

    #[test]
    fn published_counts_are_read_and_subtracted() {
        let mut counts = Counts::new();
        counts.add(Count::CmdGet, 2);
        counts.add(Count::MaintainedItems, 1);
        let published = PublishedCounts::new();
        published.publish(&counts);
        let earlier = published.read();
        counts.add(Count::CmdGet, 3);
        let since = counts.since(&earlier);
        assert_eq!(since.get(Count::CmdGet), 3);
        assert_eq!(since.get(Count::MaintainedItems), 0);
    }
}
