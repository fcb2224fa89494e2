//! The numbers of a page, looked at once, and those families whose rows are found as they are read.

use std::sync::Arc;

use curtail_runtime::ProcessUsage;
use curtail_storage::StorageGauges;
use curtail_store::{IndexCounters, MemoryReport, StoreCounters};

use crate::{
    admin::stats::VERSION,
    exporter::prometheus::{
        Histogram, Samples, Unit, cluster::ClusterLook, label, native::NativeLook,
    },
    metrics::{
        counters::Counts,
        hot_keys::Hottest,
        latency::{self, Latencies},
        stage_histograms::{StageName, Stages, bound_of},
        turn_cpu_time::BOUNDS_US,
    },
    size_aware::plan_snapshot::PlanSnapshot,
    sync::Relaxed,
    worker::{
        routing_inputs::bytes_of_writers,
        shared::{Shared, WorkerHandle},
    },
};

/// What a page is made of.
pub(super) struct Look<'a> {
    pub(super) shared: &'a Shared,
    pub(super) is_ready: bool,
    pub(super) uptime_seconds: u64,
    pub(super) usage: ProcessUsage,
    pub(super) counts: Counts,
    pub(super) items: StoreCounters,
    pub(super) index: IndexCounters,
    pub(super) memory: MemoryReport,
    /// Of the table of writers.
    pub(super) writers_bytes: u64,
    pub(super) snapshot: Arc<PlanSnapshot>,
    pub(super) native: Option<NativeLook>,
    pub(super) is_gateway: bool,
    pub(super) disk: Option<StorageGauges>,
    pub(super) cluster: Option<ClusterLook>,
    stages: Stages,
    latencies: Latencies,
    hottest: Hottest,
}

impl<'a> Look<'a> {
    pub(super) fn new(shared: &'a Shared, is_ready: bool) -> Self {
        let items = shared.store.counters_total();
        Self {
            shared,
            is_ready,
            uptime_seconds: shared.uptime_seconds(),
            usage: curtail_runtime::usage(),
            counts: shared.counts_total(),
            items,
            index: shared.store.index_counters(),
            memory: shared.store.memory(),
            writers_bytes: bytes_of_writers(shared.config.workers) as u64,
            snapshot: shared.snapshots.current(),
            native: shared.native.as_deref().map(NativeLook::new),
            is_gateway: shared.config.cache_tier.is_some(),
            disk: shared.tier.as_ref().map(|tier| tier.storage.gauges()),
            cluster: ClusterLook::new(shared, items.items_now),
            stages: shared.stages_total(),
            latencies: shared.latencies_total(),
            hottest: shared.hottest(),
        }
    }

    /// All workers with their labels; the large ones stand behind the others.
    pub(super) fn workers(&self) -> impl Iterator<Item = (String, &'a WorkerHandle)> {
        let smalls = self.shared.config.workers;
        let workers = self.shared.workers.iter().enumerate();
        workers.map(move |(index, worker)| {
            let role = if index < smalls { "small" } else { "large" };
            (format!("worker=\"{index}\",role=\"{role}\""), worker)
        })
    }

    /// What connections take of the memory limit.
    pub(super) fn connection_bytes(&self) -> u64 {
        let others = self.writers_bytes + self.shared.native_bytes();
        self.memory.accounted.saturating_sub(others)
    }
}

pub(super) fn build(_: &Look<'_>, samples: &mut Samples<'_>) {
    samples.add(&label("version", VERSION), 1);
}

pub(super) fn policy(look: &Look<'_>, samples: &mut Samples<'_>) {
    samples.add(&label("name", &look.snapshot.name.to_string()), 1);
}

/// Connections of workers, and those that large workers were lent.
pub(super) fn worker_connections(look: &Look<'_>, samples: &mut Samples<'_>) {
    let smalls = look.shared.config.workers;
    for (index, (labels, worker)) in look.workers().enumerate() {
        let connections = match index < smalls {
            true => &worker.connections,
            false => &worker.loans,
        };
        samples.add(&labels, connections.load(Relaxed) as u64);
    }
}

pub(super) fn boosts(look: &Look<'_>, samples: &mut Samples<'_>) {
    for (labels, worker) in look.workers().skip(look.shared.config.workers) {
        samples.add(&labels, worker.boosts.load(Relaxed));
    }
}

pub(super) fn large_ranges(look: &Look<'_>, samples: &mut Samples<'_>) {
    for (large, from) in look.snapshot.plan.ranges().enumerate() {
        samples.add(&format!("large=\"{large}\""), u64::from(from));
    }
}

pub(super) fn hot_key_shares(look: &Look<'_>, samples: &mut Samples<'_>) {
    let shares = look.hottest.keys.iter().map(|key| key.share);
    add_ranked(samples, shares);
}

pub(super) fn hot_key_writes(look: &Look<'_>, samples: &mut Samples<'_>) {
    let writes = look.hottest.keys.iter().map(|key| key.writes);
    add_ranked(samples, writes);
}

fn add_ranked(samples: &mut Samples<'_>, ratios: impl Iterator<Item = f64>) {
    for (rank, ratio) in (1..).zip(ratios) {
        samples.add(&format!("rank=\"{rank}\""), (ratio * 1e4).round() as u64);
    }
}

pub(super) fn latency(look: &Look<'_>, samples: &mut Samples<'_>) {
    for (command, size, times) in look.latencies.all() {
        let shown = Histogram {
            classes: &times.classes,
            bound: &latency::bound_ns,
            sum: times.sum_ns,
        };
        samples.add_histogram(&format!("command=\"{command}\",size=\"{size}\""), &shown);
    }
}

/// A histogram of a stage, whose classes hold whole numbers: of requests or connections, of KiB,
/// or of microseconds (what is in such a class took less than its bound).
pub(super) fn stage(look: &Look<'_>, samples: &mut Samples<'_>, labels: &str, name: StageName) {
    let (less, scale) = match samples.family.unit {
        Unit::Whole => (1, 1),
        Unit::Bytes => (0, KIB),
        _ => (0, 1),
    };
    let stage = look.stages.get(name);
    let shown = Histogram {
        classes: stage.classes(),
        bound: &|class| bound_of(class).map(|bound| (bound - less) * scale),
        sum: stage.sum() * scale,
    };
    samples.add_histogram(labels, &shown);
}

const KIB: u64 = 1 << 10;

pub(super) fn turn_times(look: &Look<'_>, samples: &mut Samples<'_>) {
    for (labels, worker) in look.workers() {
        let shown = Histogram {
            classes: &worker.turns.classes_total(),
            bound: &|class| BOUNDS_US.get(class).map(|us| us * 1000),
            sum: worker.turns.ns_total(),
        };
        samples.add_histogram(&labels, &shown);
    }
}
