//! Processor time of a worker's turns: the proof that no turn is long.
//!
//! Reading a thread's processor time is a system call, so only every 64th turn is measured, and
//! every turn after one that did maintenance, where the long ones would be.

use curtail_runtime::ThreadCpuClock;

use crate::{
    metrics::counters::Tally,
    sync::{AtomicU64, Relaxed},
};

/// Upper bounds of the histogram's classes in microseconds; the last class is above them all.
pub(crate) const BOUNDS_US: [u64; 9] = [10, 25, 50, 100, 250, 500, 1000, 2500, 10_000];

const CLASSES: usize = BOUNDS_US.len() + 1;
const SAMPLED_EVERY: u64 = 64;

/// The histogram of one worker; written by it, read by anybody.
#[derive(Debug)]
pub(crate) struct TurnTimes {
    classes: [Tally; CLASSES],
    ns_max: AtomicU64,
    ns_sum: Tally,
}

/// Measures the turns of one worker.
#[derive(Debug, Default)]
pub(crate) struct TurnClock {
    clock: ThreadCpuClock,
    turns: u64,
    started_ns: Option<u64>,
    maintained: bool,
}

impl TurnTimes {
    pub(crate) const fn new() -> Self {
        Self {
            classes: [const { Tally::new() }; CLASSES],
            ns_max: AtomicU64::new(0),
            ns_sum: Tally::new(),
        }
    }

    /// Turns in each class of [`BOUNDS_US`], and above, since the last reset.
    pub(crate) fn classes(&self) -> [u64; CLASSES] {
        self.classes.each_ref().map(Tally::since_reset)
    }

    /// The same since the start.
    pub(crate) fn classes_total(&self) -> [u64; CLASSES] {
        self.classes.each_ref().map(Tally::total)
    }

    /// The longest turn measured since the last reset, in nanoseconds.
    pub(crate) fn ns_max(&self) -> u64 {
        self.ns_max.load(Relaxed)
    }

    /// The sum of all turns measured since the last reset, in nanoseconds.
    pub(crate) fn ns_sum(&self) -> u64 {
        self.ns_sum.since_reset()
    }

    /// The same since the start.
    pub(crate) fn ns_total(&self) -> u64 {
        self.ns_sum.total()
    }

    /// Starts over for `stats`.
    pub(crate) fn reset(&self) {
        self.classes.iter().for_each(Tally::reset);
        self.ns_max.store(0, Relaxed);
        self.ns_sum.reset();
    }

    fn record(&self, ns: u64) {
        let class = BOUNDS_US.iter().position(|&bound| ns <= bound * 1000);
        if let Some(class) = self.classes.get(class.unwrap_or(CLASSES - 1)) {
            class.add(1);
        }
        self.ns_max.fetch_max(ns, Relaxed);
        self.ns_sum.add(ns);
    }
}

impl TurnClock {
    /// Begins a turn. The turn after one that did maintenance is measured too: maintenance comes
    /// in runs.
    pub(crate) fn begin(&mut self) {
        let measured = self.maintained || self.turns.is_multiple_of(SAMPLED_EVERY);
        self.turns += 1;
        self.maintained = false;
        self.started_ns = measured.then(|| self.clock.ns());
    }

    /// Ends a turn and says whether it did maintenance.
    pub(crate) fn end(&mut self, times: &TurnTimes, maintained: bool) {
        self.maintained = maintained;
        if let Some(started_ns) = self.started_ns.take() {
            times.record(self.clock.ns().saturating_sub(started_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_falls_into_its_class() {
        let times = TurnTimes::new();
        times.record(9_000);
        times.record(10_001);
        times.record(900_000_000);
        let classes = times.classes();
        assert_eq!((classes[0], classes[1], classes[CLASSES - 1]), (1, 1, 1));
        assert_eq!(times.ns_max(), 900_000_000);
    }

    #[test]
    fn one_turn_in_64_is_measured_and_the_one_after_maintenance() {
        let times = TurnTimes::new();
        let mut clock = TurnClock::default();
        for turn in 0..64 {
            clock.begin();
            clock.end(&times, turn == 9);
        }
        assert_eq!(times.classes().iter().sum::<u64>(), 2);
    }
}
