//! `stats memory` and `stats curtail`: what memcached has no name for.

use crate::{
    admin::stats::Report,
    disk,
    key_encoding::push_percent,
    log,
    metrics::{
        counters::Count,
        hot_keys::Hottest,
        stage_histograms::{Stage, bound_of},
        turn_cpu_time::BOUNDS_US,
    },
    native,
    sync::Relaxed,
    worker::{
        routing_inputs::bytes_of_writers,
        shared::{Shared, WorkerHandle},
    },
};

/// Counters of each worker, since the start.
const WORKER_COUNTS: [Count; 5] = [
    Count::Requests,
    Count::Turns,
    Count::HandOffs,
    Count::Delegations,
    Count::Compacted,
];

/// What the index did since the start, under the names of `stats curtail`.
pub(crate) fn index_counts(shared: &Shared) -> [(&'static str, u64); 9] {
    let counts = shared.store.index_counters();
    [
        ("index_splits", counts.splits),
        ("index_paths", counts.paths.iter().sum()),
        ("index_paths_invalid", counts.paths_invalid),
        ("index_restarts", counts.restarts),
        ("index_lock_alls", counts.locked_all),
        ("index_searches_far", counts.searches_far),
        ("index_refused", counts.refused),
        ("index_read_retries", counts.read_retries),
        ("index_reads_locked", counts.reads_locked),
    ]
}

/// `stats memory`: where the memory of the one limit went, in bytes.
pub(crate) fn memory(shared: &Shared) -> Vec<u8> {
    let memory = shared.store.memory();
    let mut report = Report::default();
    report.stat("limit", memory.limit);
    report.stat("resident", curtail_runtime::resident_bytes());
    report.stat("index", memory.index);
    report.stat("index_slots", memory.index_slots);
    report.stat("segments", memory.segments);
    report.stat("segment_bytes", memory.segment_bytes);
    report.stat("items_live", memory.live);
    report.stat("free", memory.free);
    report.stat("leased", memory.leased);
    report.stat("ghost", memory.ghost);
    let writers = bytes_of_writers(shared.config.workers) as u64;
    let native = shared.native_bytes();
    let own = writers + native;
    report.stat("connections", memory.accounted.saturating_sub(own));
    report.stat("fixed", memory.fixed + writers);
    if native > 0 {
        report.stat("native", native);
    }
    report.end()
}

/// `stats curtail`: what is decided by, and how the workers fare.
pub(crate) fn curtail(shared: &Shared) -> Vec<u8> {
    let counts = shared.counts();
    let mut report = Report::default();
    snapshot(&mut report, shared);
    report.stat("spinning", u8::from(shared.spins));
    report.stat("log_lines_dropped", log::dropped());
    report.stat("slow_requests", shared.slow.count());
    report.counts(&counts, Count::TURNS);
    for (name, count) in index_counts(shared) {
        report.stat(name, count);
    }
    for (name, size, stage) in shared.stages_total().all() {
        match size {
            None => self::stage(&mut report, name, stage),
            Some(size) => self::stage(&mut report, &format!("{name}:{size}"), stage),
        }
    }
    hot_keys(&mut report, &shared.hottest());
    if let Some(cluster) = &shared.cluster {
        cluster.statistics(shared.clock.now(), |name, value| report.stat(name, value));
        report.counts(&counts, Count::NODE);
        let items = shared.store.counters().items_now;
        let own = (cluster.me, items);
        cluster
            .journal
            .tell(own, |name, value| report.stat(name, value));
    }
    if let Some(tier) = &shared.tier {
        report.counts(&counts, Count::DISK);
        disk::statistics(&tier.storage.gauges(), |name, value| {
            report.stat(name, value);
        });
    }
    if shared.config.cache_tier.is_some() {
        report.counts(&counts, Count::GATEWAY);
    }
    if let Some(native) = shared.native.as_deref() {
        native::statistics(native, |name, value| report.stat(name, value));
    }
    for (index, worker) in shared.small_workers().iter().enumerate() {
        let connections = worker.connections.load(Relaxed);
        report.stat(format_args!("worker:{index}:connections"), connections);
        let load = worker.load.load(Relaxed);
        report.stat(format_args!("worker:{index}:requests_last_epoch"), load);
        moves(&mut report, &format!("worker:{index}"), worker);
        times(&mut report, &format!("worker:{index}"), worker);
    }
    for (index, worker) in shared.large_workers().iter().enumerate() {
        let loans = worker.loans.load(Relaxed);
        report.stat(format_args!("large:{index}:connections"), loans);
        let boosts = worker.boosts.load(Relaxed);
        report.stat(format_args!("large:{index}:starvation_boosts"), boosts);
        moves(&mut report, &format!("large:{index}"), worker);
        times(&mut report, &format!("large:{index}"), worker);
    }
    report.end()
}

/// The policy, the plan, and those before them: seconds, policy, threshold, small and large cores.
fn snapshot(report: &mut Report, shared: &Shared) {
    let snapshot = shared.snapshots.current();
    let plan = &snapshot.plan;
    report.stat("policy", snapshot.name);
    let compaction = if shared.config.compaction {
        "on"
    } else {
        "off"
    };
    report.stat("compaction", compaction);
    report.stat("regime", snapshot.generation);
    report.stat("plan_epoch", plan.epoch);
    report.stat("threshold", plan.threshold);
    report.stat("small_cores", plan.small);
    report.stat("large_cores", plan.cores - plan.small);
    report.stat("standby", u8::from(plan.standby().is_some()));
    for (large, from) in plan.ranges().enumerate() {
        report.stat(format_args!("large:{large}:from_bytes"), from);
    }
    for past in shared.snapshots.history() {
        let seconds = past.since_seconds;
        let (name, threshold) = (past.name, past.threshold);
        let cores = format_args!("{}+{}", past.small, past.large);
        report.stat(
            format_args!("history:{seconds}"),
            format_args!("{name} {threshold} {cores}"),
        );
    }
}

/// The classes of a stage that are not empty, by the smallest amount above them.
fn stage(report: &mut Report, name: &str, stage: &Stage) {
    for (class, number) in stage.classes().iter().enumerate() {
        match bound_of(class) {
            _ if *number == 0 => {}
            Some(bound) => report.stat(format_args!("stage:{name}:below_{bound}"), number),
            None => report.stat(format_args!("stage:{name}:more"), number),
        }
    }
}

/// The hottest keys: the share of all requests and the key, percent-encoded; and how many of its
/// requests write.
fn hot_keys(report: &mut Report, hottest: &Hottest) {
    for (rank, hot) in (1..).zip(&hottest.keys) {
        let mut text = Vec::new();
        push_percent(&mut text, &hot.key);
        let (share, key) = (hot.share, String::from_utf8_lossy(&text));
        report.stat(
            format_args!("hot_key:{rank}"),
            format_args!("{share:.4} {key}"),
        );
        report.stat(
            format_args!("hot_key_writes:{rank}"),
            format_args!("{:.4}", hot.writes),
        );
    }
}

/// What one worker did and has before it.
fn moves(report: &mut Report, name: &str, worker: &WorkerHandle) {
    let counts = worker.counts.read();
    for count in WORKER_COUNTS {
        report.stat(format_args!("{name}:{}", count.name()), counts.get(count));
    }
    report.stat(format_args!("{name}:queue_depth"), worker.queue_depth());
}

fn times(report: &mut Report, name: &str, worker: &WorkerHandle) {
    for (class, turns) in worker.turns.classes().iter().enumerate() {
        match BOUNDS_US.get(class) {
            Some(us) => report.stat(format_args!("{name}:turn_cpu_us_{us}"), turns),
            None => report.stat(format_args!("{name}:turn_cpu_us_more"), turns),
        }
    }
    let most_us = worker.turns.ns_max() / 1000;
    report.stat(format_args!("{name}:turn_cpu_us_max"), most_us);
    let total_us = worker.turns.ns_sum() / 1000;
    report.stat(format_args!("{name}:turn_cpu_us_sum"), total_us);
    report.stat(format_args!("{name}:mailbox"), worker.mail.depth());
}
