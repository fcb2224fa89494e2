//! The one direction in which data flows; start reading here.
//!
//! ```text
//!  wire -> collect ---> decide ------> execute ---> reply --------> wire
//!          receive,     where a        prefetch,    one send
//!          decode,      request runs   then run     per connection
//!          prefetch       |    ^       in order       |       ^
//!                         v    |                      v       |
//!                        other workers (delegated batches)     large workers
//! ```
//!
//! A worker is one thread with one event loop, and this is its turn. Working on a batch instead of
//! a request is what makes it fast: the memory that all requests will touch is asked for before the
//! first one waits for it (buckets while decoding, items in a pass of their own), and the kernel is
//! entered once to receive and once to send per connection, however many requests that was.
//!
//! Speed alone depends on where a request runs: the store is right under any assignment. Nothing on
//! this path allocates, waits, or reads a clock.

use crate::{
    metrics::{counters::Count, slow_log, stage_histograms::StageName},
    request::{
        batch::{Batch, Entry},
        delegate::{Decision, is_write},
    },
    worker::event_loop::Worker,
};

/// Looking for runs costs each request some 30 instructions, and one that is carried out with its
/// neighbour saves about 1,100: it pays from one request in 32 on. In a mix of reads and writes
/// half of those that are counted make no run, so one in 16 is asked for.
const RUNS_PAY_AT: usize = 16;

/// How many requests ahead the rest of longer items is asked for: far enough to hide a miss, near
/// enough to stay in the first-level cache.
const VALUES_AHEAD: usize = 6;

impl Worker {
    /// One turn: everything that arrived, up to a bound, is answered. `area` is the memory to
    /// receive into; the batch borrows from it.
    pub(crate) fn turn(&mut self, area: &mut [u8]) {
        let mut batch = std::mem::take(&mut self.batch).recycle();
        let begun = self.time();
        self.collect(area, &mut batch);
        let collected = self.time();
        self.execute(&mut batch);
        let executed = self.time();
        self.reply();
        if self.cx.turn.slow_ns != slow_log::OFF {
            self.note_slow(&batch);
        }
        if let (Some(begun), Some(collected), Some(executed)) = (begun, collected, executed) {
            self.note_times(&batch, [begun, collected, executed]);
        }
        self.finish_turn();
        if self.node.is_some() {
            self.work_in_cluster();
        }
        self.batch = batch.recycle();
    }

    fn execute(&mut self, batch: &mut Batch<'_>) {
        self.replies.begin_turn();
        let has_runs = self.prefetch(batch);
        if self.node.is_some() {
            self.execute_in_cluster(batch);
        } else if self.native.is_some() && self.is_behind(batch) {
            self.execute_behind(batch);
        } else if has_runs {
            self.execute_in_runs(batch);
        } else if self.is_measured() {
            self.execute_measured(batch);
        } else {
            for (number, entry) in batch.entries().iter().enumerate() {
                self.look_ahead(batch, number);
                self.run_where_decided(entry);
            }
        }
        self.cx.measured.large_moved = 0;
        self.send_delegated();
        let requests = batch.entries().len() as u64;
        self.slots.count(requests);
        let stages = &mut self.cx.recorders.stages;
        stages.record_line(StageName::Queue, requests);
        let cx = &mut self.cx;
        cx.recorders.hot_keys.look(batch, &mut cx.scratch);
        if let Some(slot) = self.cx.measured.large_here.take() {
            self.count_behind(batch, slot);
        }
    }

    /// Asks the memory for all items of the batch; tells whether so many writes have the key of the
    /// request before them that looking for runs pays.
    fn prefetch(&mut self, batch: &mut Batch<'_>) -> bool {
        let writers = self.claims.then_some(&self.cx.shared.writers);
        let (mut following, mut before) = (0, None);
        for entry in batch.entries_mut() {
            self.cx.prefetch(entry, writers);
            if before == Some(entry.hash) {
                following += usize::from(is_write(entry));
            }
            before = Some(entry.hash);
        }
        let pays = following * RUNS_PAY_AT >= batch.entries().len().max(1);
        pays && self.cx.shared.config.compaction
    }

    /// What is done for a request ahead of its turn.
    #[inline]
    pub(crate) fn look_ahead(&mut self, batch: &Batch<'_>, number: usize) {
        if let Some(ahead) = batch.entries().get(number + VALUES_AHEAD) {
            self.cx.store_cx.store.prefetch_value(ahead.hint);
        }
    }

    /// Has a request run where it was decided.
    #[inline(never)]
    pub(crate) fn follow(&mut self, entry: &Entry<'_>, decision: Decision) {
        let ticket = match decision {
            Decision::Here => None,
            Decision::Held(ticket) => Some(ticket),
            Decision::At(owner, ticket) => return self.delegate(entry, owner, ticket),
            Decision::Later => return self.put_off(entry),
        };
        self.carry_out_apart(entry);
        if let Some(ticket) = ticket {
            self.cx.release(ticket);
        }
    }

    /// Counts the small requests of this turn that waited for something large of connection `slot`,
    /// and the connections that found no room in it.
    #[cold]
    fn count_behind(&mut self, batch: &Batch<'_>, slot: usize) {
        let entries = batch.entries().iter();
        let large = self.cx.turn.large_counts_from;
        let is_behind = |entry: &&Entry<'_>| entry.slot != slot && !entry.work.writes(large);
        let behind = entries.filter(is_behind).count() + self.slots.ready_count();
        self.cx.counts.add(Count::SmallBehindLarge, behind as u64);
    }

    /// The time in nanoseconds, in a turn that is measured.
    #[inline]
    fn time(&self) -> Option<u64> {
        let clock = self.cx.shared.clock;
        self.is_measured().then(|| clock.now().instant.ns)
    }

    #[inline]
    fn is_measured(&self) -> bool {
        self.turns.is_multiple_of(MEASURED_EVERY)
    }

    /// Notes how long the stages of this turn took for its requests: what was large among them took
    /// as long here if it was served here, and is a large worker's to note if not.
    #[cold]
    fn note_times(&mut self, batch: &Batch<'_>, ends_ns: [u64; 3]) {
        if self.is_large_worker() {
            return;
        }
        let now_ns = self.cx.shared.clock.now().instant.ns;
        let [begun, collected, executed] = ends_ns;
        self.note_latencies(batch, begun, now_ns);
        let us = |from: u64, to: u64| to.saturating_sub(from) / 1000;
        let writes = |bytes| {
            let entries = batch.entries().iter();
            entries.filter(|entry| entry.work.writes(bytes)).count() as u64
        };
        let large = self.cx.measured.larges + writes(self.cx.turn.large_counts_from);
        let left = self.cx.measured.larges_left + writes(self.cx.turn.large_from);
        let small = (batch.entries().len() as u64).saturating_sub(large);
        let stages = &mut self.cx.recorders.stages;
        for (sizes, requests) in [(SMALL, small), (LARGE, large.saturating_sub(left))] {
            let [queue, execute, reply] = sizes;
            stages.record_many(queue, us(begun, collected), requests);
            stages.record_many(execute, us(collected, executed), requests);
            stages.record_many(reply, us(executed, now_ns), requests);
        }
    }
}

const SMALL: [StageName; 3] = [
    StageName::QueueSmall,
    StageName::ExecuteSmall,
    StageName::ReplySmall,
];

const LARGE: [StageName; 3] = [
    StageName::QueueLarge,
    StageName::ExecuteLarge,
    StageName::ReplyLarge,
];

/// The stages of one turn in so many are timed.
const MEASURED_EVERY: u64 = 64;
