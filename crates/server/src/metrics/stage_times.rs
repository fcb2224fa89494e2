//! What is measured of a turn as a whole: how long its stages took, and which small requests waited
//! for something large. One turn in 64 is timed; what is counted is counted in every turn.

use curtail_runtime::Clock;

use crate::{
    metrics::{counters::Count, slow_log, stage_histograms::StageName},
    request::batch::{Batch, Entry},
    worker::event_loop::Worker,
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

impl Worker {
    /// Begins to time a turn, if it is one of those that are measured.
    #[inline]
    pub(crate) fn stage_times(&self) -> StageTimes {
        let mut times = StageTimes {
            clock: self.cx.shared.clock,
            is_on: self.is_measured(),
            ends_ns: [0; 3],
            ended: 0,
        };
        times.end_stage();
        times
    }

    /// Whether this turn is measured.
    #[inline]
    pub(crate) fn is_measured(&self) -> bool {
        self.clock.turns.is_multiple_of(MEASURED_EVERY)
    }

    /// Notes what became of a batch that was executed.
    pub(crate) fn note_executed(&mut self, batch: &Batch<'_>) {
        self.cx.measured.large_moved = 0;
        let requests = batch.entries().len() as u64;
        self.slots.count(requests);
        let stages = &mut self.cx.recorders.stages;
        stages.record_line(StageName::Queue, requests);
        let cx = &mut self.cx;
        cx.recorders.hot_keys.look(batch, &mut cx.decoding.scratch);
        if let Some(slot) = self.cx.measured.large_here.take() {
            self.count_behind(batch, slot);
        }
    }

    /// Notes a turn whose replies were sent.
    pub(crate) fn note_turn(&mut self, batch: &Batch<'_>, times: &StageTimes) {
        if self.cx.turn.slow_ns != slow_log::OFF {
            self.note_slow(batch);
        }
        if times.is_on {
            self.note_times(batch, times);
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

    /// Notes how long the stages of this turn took for its requests: what was large among them took
    /// as long here if it was served here, and is a large worker's to note if not.
    #[cold]
    fn note_times(&mut self, batch: &Batch<'_>, times: &StageTimes) {
        if self.is_large_worker() {
            return;
        }
        let now_ns = times.clock.now().instant.ns;
        let [begun, collected, executed] = times.ends_ns;
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
