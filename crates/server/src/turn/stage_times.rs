//! Measures a turn as a whole: the time of its stages, and the small requests that waited for
//! something large. One turn in 64 is timed; what is counted is counted in every turn.

use curtail_runtime::Clock;

use crate::{
    metrics::{counters::Count, slow_log, stage_histograms::StageName},
    request::batch::{Batch, Entry},
    turn::{note_latency, note_slow},
    worker::Worker,
};

/// When the stages of a turn ended, if that is measured.
pub(crate) struct StageTimes {
    clock: Clock,
    is_on: bool,
    /// When the turn began, when it had collected, and when it had executed.
    ends_ns: [u64; 3],
    ended: usize,
}

impl StageTimes {
    /// The stage that was under way has ended.
    #[inline]
    pub(crate) fn end_stage(&mut self) {
        if self.is_on {
            self.note_end();
        }
    }

    #[cold]
    fn note_end(&mut self) {
        if let Some(end_ns) = self.ends_ns.get_mut(self.ended) {
            *end_ns = self.clock.now().instant.ns;
            self.ended += 1;
        }
    }
}

/// Begins to time a turn, if it is one of those that are measured.
#[inline]
pub(crate) fn stage_times(worker: &Worker) -> StageTimes {
    let mut times = StageTimes {
        clock: worker.cx.shared.clock,
        is_on: is_measured(worker),
        ends_ns: [0; 3],
        ended: 0,
    };
    times.end_stage();
    times
}

/// Whether this turn is measured.
#[inline]
pub(crate) fn is_measured(worker: &Worker) -> bool {
    worker.clock.turns.is_multiple_of(MEASURED_EVERY)
}

/// Notes what became of a batch that was executed.
pub(crate) fn note_executed(worker: &mut Worker, batch: &Batch<'_>) {
    worker.cx.measured.large_moved = 0;
    let requests = batch.entries().len() as u64;
    worker.slots.count(requests);
    let stages = &mut worker.cx.recorders.stages;
    stages.record_line(StageName::Queue, requests);
    let cx = &mut worker.cx;
    cx.recorders.hot_keys.look(batch, &mut cx.decoding.scratch);
    if let Some(slot) = worker.cx.measured.large_here.take() {
        count_behind(worker, batch, slot);
    }
}

/// Notes a turn whose replies were sent.
pub(crate) fn note_turn(worker: &mut Worker, batch: &Batch<'_>, times: &StageTimes) {
    if worker.cx.turn.slow_ns != slow_log::OFF {
        note_slow::note_slow(worker, batch);
    }
    if times.is_on {
        note_times(worker, batch, times);
    }
}

/// Counts the small requests of this turn that waited for something large of connection `slot`,
/// and the connections that found no room in it.
#[cold]
fn count_behind(worker: &mut Worker, batch: &Batch<'_>, slot: usize) {
    let entries = batch.entries().iter();
    let large = worker.cx.turn.large_counts_from;
    let is_behind = |entry: &&Entry<'_>| entry.slot != slot && !entry.work.writes(large);
    let behind = entries.filter(is_behind).count() + worker.slots.ready_count();
    worker.cx.counts.add(Count::SmallBehindLarge, behind as u64);
}

/// Notes how long the stages of this turn took for its requests, including large ones that this
/// worker served; for others the large worker notes it.
#[cold]
fn note_times(worker: &mut Worker, batch: &Batch<'_>, times: &StageTimes) {
    if worker.is_large_worker() {
        return;
    }
    let now_ns = times.clock.now().instant.ns;
    let [begun, collected, executed] = times.ends_ns;
    note_latency::note_latencies(worker, batch, begun, now_ns);
    let us = |from: u64, to: u64| to.saturating_sub(from) / 1000;
    let writes = |bytes| {
        let entries = batch.entries().iter();
        entries.filter(|entry| entry.work.writes(bytes)).count() as u64
    };
    let large = worker.cx.measured.larges + writes(worker.cx.turn.large_counts_from);
    let left = worker.cx.measured.larges_left + writes(worker.cx.turn.large_from);
    let small = (batch.entries().len() as u64).saturating_sub(large);
    let stages = &mut worker.cx.recorders.stages;
    for (sizes, requests) in [(SMALL, small), (LARGE, large.saturating_sub(left))] {
        let [queue, execute, reply] = sizes;
        stages.record_many(queue, us(begun, collected), requests);
        stages.record_many(execute, us(collected, executed), requests);
        stages.record_many(reply, us(executed, now_ns), requests);
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
