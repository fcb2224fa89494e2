//! The loop of the control thread. At the end of each epoch it
//!
//! - computes the plan of size-aware sharding: the size from which values are large, and the number
//!   of large workers;
//! - logs the [`FailureLog`];
//! - has the busiest worker move connections to the idlest ([`move_command::shift`]);
//! - ends the epoch of a cluster's node, whose coordinator then chooses the hot keys.
//!
//! ```text
//! workers: sizes of what was asked for ---> SizeControl ---> plan ---> the plan snapshot of all
//! workers
//!           (left at the end of an epoch)    (Minos, 3.3)
//! ```
//!
//! Plans count time: what serving a request costs a worker, as a price for each request and each
//! kilobyte ([`serve_ns`](crate::size_aware::prices::serve_ns)), so that no request needs a clock
//! for it. The threshold follows from the same prices: large is what costs more to serve than to
//! hand on, and where hand-offs would take too much of all work, it rises until they do not
//! ([`CostRule::of_server`]).
//!
//! It sleeps between epochs, so it costs no request anything; while large workers have connections
//! it looks more often whether one of them starves ([`StarvationBoost`]). The machine that decides
//! is `curtail_dispatch`'s, the same that the simulator runs.

use std::time::{Duration, Instant};

use curtail_dispatch::size_aware::{
    ControlConfig, ControlInput, CostRule, SizeControl, ThresholdRule,
};
use tracing::debug;

use crate::{
    config::Config,
    connection::move_command::{self, Load},
    exporter::failure_log::FailureLog,
    log::component,
    metrics::counters::Count,
    start::thread_priority::StarvationBoost,
    sync::{Relaxed, lock},
    worker::shared::{Shared, WorkerHandle},
};

/// An epoch with fewer requests changes nothing.
const SAMPLES_MIN: u64 = 1000;

/// If so many epochs do not bring them together, what was learned is forgotten.
const SILENT_MAX: u32 = 60;

/// Controls until the server stops.
pub(crate) fn run(shared: &Shared) {
    let mut control = SizeControl::new(settings(&shared.config), shared.clock.now().instant);
    let mut boost = StarvationBoost::new(shared);
    let mut failures = FailureLog::new(shared);
    let mut requests = vec![0; shared.workers.len()];
    let epoch = Duration::from_millis(u64::from(shared.config.epoch_ms.max(1)));
    let mut begun = Instant::now();
    loop {
        shared.control.sleep(epoch.saturating_sub(begun.elapsed()));
        if shared.stopping.load(Relaxed) {
            failures.end(shared);
            return;
        }
        if boost.look(shared) {
            lock(&shared.control.watch).looks = true;
        }
        if begun.elapsed() >= epoch {
            begun = Instant::now();
            end_epoch(shared, &mut control, &mut requests);
            failures.look(shared);
        }
    }
}

/// Has everybody leave what was measured, and learns from what was left before.
fn end_epoch(shared: &Shared, control: &mut SizeControl, requests: &mut [u64]) {
    note_loads(shared, requests);
    shared.control.epoch.fetch_add(1, Relaxed);
    if let Some(cluster) = &shared.cluster {
        cluster.end_epoch(shared);
    }
    let now = shared.clock.now().instant;
    for worker in &shared.workers {
        let measured = lock(&worker.measured).take();
        if let Some(measured) = measured {
            control.step(now, ControlInput::Measured(&measured), |_| ());
        }
    }
    control.step(now, ControlInput::Tick, |plan| {
        if shared.snapshots.learn(plan, now.ns / 1_000_000_000) {
            debug!(
                target: component::POLICY,
                threshold_bytes = plan.threshold,
                small_cores = plan.small,
                large_cores = plan.cores - plan.small,
                "values of {} bytes and more now count as large",
                plan.threshold
            );
        }
    });
}

fn settings(config: &Config) -> ControlConfig {
    ControlConfig {
        threshold: ThresholdRule::Cost(CostRule::of_server(config.threshold_first())),
        epoch_ns: u64::from(config.epoch_ms.max(1)) * 1_000_000 / 2,
        samples_min: SAMPLES_MIN,
        silent_max: Some(SILENT_MAX),
        damped: true,
        ..ControlConfig::new(u16::try_from(config.workers).unwrap_or(u16::MAX))
    }
}

/// What each worker did in the epoch: the one that did least gets the next connection, and some of
/// the connections of the one that did most.
fn note_loads(shared: &Shared, before: &mut [u64]) {
    for (worker, before) in shared.workers.iter().zip(before) {
        let requests = worker.counts.read().get(Count::Requests);
        worker.load.store(requests.wrapping_sub(*before), Relaxed);
        *before = requests;
    }
    let small = shared.small_workers();
    let load = |worker: &WorkerHandle| Load {
        requests: worker.load.load(Relaxed),
        connections: worker.connections.load(Relaxed),
    };
    let loads: Vec<Load> = small.iter().map(load).collect();
    if let Some(shift) = move_command::shift(&loads, u64::from(shared.config.epoch_ms.max(1)))
        && let Some(worker) = small.get(shift.from)
    {
        worker.order.give(shift);
    }
}

#[cfg(test)]
mod tests {
    use curtail_dispatch::size_aware::{SizeClasses, SizeHistogram};

    use super::*;
    use crate::{
        config::policy_name::PolicyName,
        size_aware::plan_snapshot::{PlanSnapshot, PlanSnapshots},
        size_aware::prices::serve_ns,
    };

    /// The control of a server with eight workers, and what it publishes.
    struct Controlled {
        control: SizeControl,
        snapshots: PlanSnapshots,
        epochs: u64,
    }

    impl Controlled {
        fn new() -> Self {
            let config = Config {
                workers: 8,
                ..Config::default()
            };
            let start = curtail_types::Instant::default();
            Self {
                control: SizeControl::new(settings(&config), start),
                snapshots: PlanSnapshots::new(PolicyName::default(), 8, config.threshold_first()),
                epochs: 0,
            }
        }

        /// An epoch with so many requests for values of each of these sizes.
        fn epoch(&mut self, sizes: &[(u32, u64)]) -> std::sync::Arc<PlanSnapshot> {
            self.epochs += 1;
            let mut measured = SizeHistogram::new(SizeClasses::LogLinear);
            for (bytes, count) in sizes {
                measured.record_many(*bytes, serve_ns(*bytes as usize) * count, *count);
            }
            let now = curtail_types::Instant {
                ns: self.epochs * 1_000_000_000,
            };
            let control = &mut self.control;
            control.step(now, ControlInput::Measured(&measured), |_| ());
            control.step(now, ControlInput::Tick, |plan| {
                self.snapshots.learn(plan, self.epochs);
            });
            self.snapshots.current()
        }
    }

    /// Goal: with the prices that ship, a value of 2 MB is large whatever share of the requests is
    /// for such values, and the threshold stays where it is if none is for middle sizes. Method:
    /// shares from 0.1 to 60 %.
    #[test]
    fn frequent_large_values_stay_large() {
        for permille in [1, 10, 20, 50, 200, 600] {
            let mut server = Controlled::new();
            let sizes = [(700, 10 * (1000 - permille)), (2 << 20, 10 * permille)];
            for _ in 0..3 {
                let snapshot = server.epoch(&sizes);
                assert_eq!(snapshot.plan.threshold, 32 << 10, "{permille}");
                assert!(snapshot.large_number(2 << 20, 0).is_some(), "{permille}");
            }
        }
    }

    /// Goal: the threshold has the ceiling that the guide names. Method: nothing but values of one
    /// size, below it and above.
    #[test]
    fn the_threshold_has_a_ceiling() {
        let learned = |bytes| Controlled::new().epoch(&[(bytes, 10_000)]).plan.threshold;
        let thresholds: Vec<_> = (1..64).map(|step| learned(step << 13)).collect();
        assert_eq!(thresholds.iter().max(), Some(&(288 << 10)));
        assert_eq!(learned(288 << 10), 32 << 10);
    }

    /// Goal: a plan of which the ranges alone differ reaches the workers. Method: values of 850 KB,
    /// then of 1,000 KB, which had no large worker but one.
    #[test]
    fn new_ranges_are_published() {
        let mut server = Controlled::new();
        let sizes = |bytes| [(100, 9_000), (bytes, 1_100)];
        let larges = |snapshot: &PlanSnapshot| {
            let hashes = (0..64_u64).map(|part| part << 58);
            let numbers = hashes.filter_map(|hash| snapshot.large_number(1_000_000, hash));
            let mut numbers: Vec<_> = numbers.collect();
            numbers.dedup();
            numbers.len()
        };
        let first = server.epoch(&sizes(850_000));
        assert_eq!(larges(&first), 1);
        assert_eq!(first.plan.large_cores(), 6);
        let then = server.epoch(&sizes(1_000_000));
        let basics = |snapshot: &PlanSnapshot| (snapshot.plan.threshold, snapshot.plan.small);
        assert_eq!(basics(&then), basics(&first));
        assert_eq!(larges(&then), usize::from(then.plan.large_cores()));
        let last = server.epoch(&sizes(1_000_000));
        assert_eq!(last.generation, then.generation, "published again");
    }

    /// Goal: what a preload taught does not stay when nothing follows it. Method: silent epochs.
    #[test]
    fn a_preload_is_forgotten() {
        let mut server = Controlled::new();
        let first = server.snapshots.current();
        let loaded = server.epoch(&[(40_000, 9_000), (850_000, 1_000)]);
        assert!(loaded.plan.small < first.plan.small);
        assert!(loaded.plan.threshold > first.plan.threshold);
        for _ in 1..SILENT_MAX {
            assert_eq!(server.epoch(&[]).generation, loaded.generation);
        }
        assert_eq!(server.epoch(&[]).plan, first.plan);
    }
}
