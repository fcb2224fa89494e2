//! How fast a queue is executed, by the measurement of those who execute it, and what follows for
//! early acknowledgement (JB-44).
//!
//! A turn with a queue is timed when the one before was long, or when it is one of every sixteenth:
//! so a busy executor reads the clock twice for many entries, an idle one seldom. Who times a turn
//! holds the queue's lease, so that nobody else writes its average.

use curtail_ordered_queue::{Drained, ExecutionTime, OrderedQueue, QueueLease};
use curtail_runtime::monotonic_ns;

use crate::{
    native::Native,
    sync::{AtomicU64, Relaxed},
};

/// The average of one queue; 0 before the first timed turn.
#[derive(Debug, Default)]
pub(super) struct ExecutionPace(AtomicU64);

/// When a turn began that is timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnStart(Option<u64>);

/// Of so many turns one is timed whatever the one before did.
const TIMED_EVERY: u64 = 16;
/// A turn of so many entries is long.
const LONG_TURN: u64 = 8;

impl ExecutionPace {
    fn time(&self) -> ExecutionTime {
        match self.0.load(Relaxed) {
            0 => ExecutionTime::default(),
            entry_ns => ExecutionTime { entry_ns },
        }
    }
}

impl TurnStart {
    /// Of a turn under this lease; `was_long` says whether the executor's last turn was.
    #[inline]
    pub(super) fn now(lease: &QueueLease<'_>, was_long: bool) -> Self {
        let is_timed = was_long || lease.number().is_multiple_of(TIMED_EVERY);
        Self(is_timed.then(monotonic_ns))
    }
}

impl Native {
    /// Accounts for a turn before its lease is given back; whether it was long.
    #[inline]
    pub(super) fn account_turn(
        &self,
        number: usize,
        queue: OrderedQueue<'_>,
        start: TurnStart,
        drained: Drained,
    ) -> bool {
        if self.early.counts_bytes() && drained.accepted_bytes > 0 {
            queue.grant_bytes(drained.accepted_bytes);
        }
        if let Some(start_ns) = start.0 {
            self.take_time(number, queue, start_ns, drained.entries);
        }
        drained.entries >= LONG_TURN
    }

    fn take_time(&self, number: usize, queue: OrderedQueue<'_>, start_ns: u64, entries: u64) {
        let Some(pace) = self.paces.get(number) else {
            return;
        };
        let turn_ns = monotonic_ns().saturating_sub(start_ns);
        let time = pace.time().after_turn(turn_ns, entries);
        pace.0.store(time.entry_ns, Relaxed);
        let limit = self.early.entries(time);
        // Producers read the word: it is written only when it changes.
        if limit != queue.backlog_max() {
            queue.set_backlog_max(limit);
        }
    }

    /// How long one entry of a queue takes to execute.
    pub(super) fn execution_ns(&self, number: usize) -> u64 {
        let time = self.paces.get(number).map(ExecutionPace::time);
        time.unwrap_or_default().entry_ns
    }
}
