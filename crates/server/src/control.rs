//! The control: a thread that learns once an epoch from which size on values are large, and how
//! many large workers that takes.
//!
//! ```text
//!  workers: sizes of what was asked for ---> SizeControl ---> plan ---> the regime of all workers
//!           (left at the end of an epoch)    (Minos, 3.3)
//! ```
//!
//! It sleeps between epochs, so it costs no request anything; while large workers have connections
//! it looks more often whether one of them starves ([`Lift`]). The machine that decides is
//! `curtail_dispatch`'s, the same that the simulator runs.

use std::{
    sync::{Condvar, PoisonError},
    time::{Duration, Instant},
};

use curtail_dispatch::size_aware::{ControlConfig, ControlInput, SizeControl, SizePlan};

use tracing::debug;

use crate::{
    config::Config,
    counts::Count,
    lift::{self, Lift},
    log::{Alarms, component},
    policy::Sizes,
    rebalance::{self, Load},
    shared::{Shared, WorkerFace},
    sync::{AtomicU64, Mutex, Relaxed, lock},
};

/// How others reach the control.
#[derive(Debug, Default)]
pub(crate) struct ControlFace {
    /// Counts epochs; workers leave what they measured when it moves.
    pub(crate) epoch: AtomicU64,
    watch: Mutex<Watch>,
    wakes: Condvar,
}

#[derive(Debug, Default)]
struct Watch {
    is_woken: bool,
    /// Whether it looks after large workers now.
    looks: bool,
}

/// An epoch with fewer requests changes nothing.
const SAMPLES_MIN: u64 = 1000;

/// What one looked-at request stands for when one turn in so many is looked at.
pub(crate) const SAMPLED_EVERY: u64 = 16;

impl ControlFace {
    /// Has the control look what there is to do.
    pub(crate) fn wake(&self) {
        lock(&self.watch).is_woken = true;
        self.wakes.notify_all();
    }

    /// A large worker has got a connection: from now on it is looked after.
    pub(crate) fn watch(&self) {
        let mut watch = lock(&self.watch);
        if !watch.looks {
            (watch.looks, watch.is_woken) = (true, true);
            self.wakes.notify_all();
        }
    }

    /// Sleeps until the epoch has this much left, or to the next look.
    fn sleep(&self, left: Duration) {
        let watch = lock(&self.watch);
        let at_most = if watch.looks {
            left.min(lift::LOOK)
        } else {
            left
        };
        let waited = self
            .wakes
            .wait_timeout_while(watch, at_most, |watch| !watch.is_woken);
        let (mut watch, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // What comes from here on is seen by the look that follows, or wakes.
        *watch = Watch::default();
    }
}

/// Controls until the server stops.
pub(crate) fn run(shared: &Shared) {
    let mut control = SizeControl::new(settings(&shared.config), shared.clock.now().instant);
    let mut lift = Lift::new(shared);
    let mut alarms = Alarms::new(shared);
    let mut requests = vec![0; shared.workers.len()];
    let epoch = Duration::from_millis(u64::from(shared.config.epoch_ms.max(1)));
    let mut begun = Instant::now();
    loop {
        shared.control.sleep(epoch.saturating_sub(begun.elapsed()));
        if shared.stopping.load(Relaxed) {
            return;
        }
        if lift.look(shared) {
            lock(&shared.control.watch).looks = true;
        }
        if begun.elapsed() >= epoch {
            begun = Instant::now();
            end_epoch(shared, &mut control, &mut requests);
            alarms.look(shared);
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
        // A set threshold stays, and none matters when sizes are served together.
        let current = shared.regimes.current();
        let differs = |plan: &SizePlan| {
            (plan.threshold, plan.small) != (current.plan.threshold, current.plan.small)
        };
        if current.name.sizes == Sizes::Learned && differs(plan) {
            debug!(
                target: component::POLICY,
                threshold_bytes = plan.threshold,
                small_cores = plan.small,
                large_cores = plan.cores - plan.small,
                "values of {} bytes and more are large now",
                plan.threshold
            );
            shared.regimes.set_plan(plan, now.ns / 1_000_000_000);
        }
    });
}

fn settings(config: &Config) -> ControlConfig {
    ControlConfig {
        percentile_milli: config.percentile_milli,
        epoch_ns: u64::from(config.epoch_ms.max(1)) * 1_000_000 / 2,
        samples_min: SAMPLES_MIN,
        threshold_min: config.threshold_first(),
        damped: true,
        ..ControlConfig::new(u16::try_from(config.workers).unwrap_or(u16::MAX))
    }
}

/// What each worker did in the epoch: whoever did least gets the next connection, and some of those
/// that whoever did most has.
fn note_loads(shared: &Shared, before: &mut [u64]) {
    for (worker, before) in shared.workers.iter().zip(before) {
        let requests = worker.counts.read().get(Count::Requests);
        worker.load.store(requests.wrapping_sub(*before), Relaxed);
        *before = requests;
    }
    let small = shared.small_workers();
    let load = |worker: &WorkerFace| Load {
        requests: worker.load.load(Relaxed),
        connections: worker.connections.load(Relaxed),
    };
    let loads: Vec<Load> = small.iter().map(load).collect();
    if let Some(shift) = rebalance::shift(&loads, u64::from(shared.config.epoch_ms.max(1)))
        && let Some(worker) = small.get(shift.from)
    {
        worker.order.give(shift);
    }
}
