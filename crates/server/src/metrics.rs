//! `/metrics`: every number of `stats`, in Prometheus's text format, under names that stay.
//!
//! Numbers that only grow are counters and end in `_total`; the others are gauges. `stats reset`
//! does not touch them: a scraper computes its own differences.

use std::fmt::{Display, Write};

use crate::{
    counts::Count,
    delegate::bytes_of_writers,
    native,
    shared::Shared,
    stages::bound_of,
    stats::{POLICY_COUNTS, VERSION, WORKER_COUNTS, index_counts},
    sync::Relaxed,
    turns::BOUNDS_US,
};

/// The whole page.
pub(crate) fn page(shared: &Shared) -> String {
    let mut page = Page::default();
    page.gauge(
        "curtail_build_info",
        "What is running.",
        &[(&format!("version=\"{VERSION}\""), 1)],
    );
    connections(&mut page, shared);
    commands(&mut page, shared);
    items(&mut page, shared);
    memory(&mut page, shared);
    index(&mut page, shared);
    process(&mut page, shared);
    turns(&mut page, shared);
    policies(&mut page, shared);
    stages(&mut page, shared);
    native(&mut page, shared);
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn row(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            _ => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    fn counter(&mut self, name: &str, help: &str, rows: &[(&str, u64)]) {
        self.head(name, "counter", help);
        rows.iter()
            .for_each(|(labels, value)| self.row(name, labels, value));
    }

    fn gauge(&mut self, name: &str, help: &str, rows: &[(&str, u64)]) {
        self.head(name, "gauge", help);
        rows.iter()
            .for_each(|(labels, value)| self.row(name, labels, value));
    }
}

fn connections(page: &mut Page, shared: &Shared) {
    let doors = &shared.doors;
    let now = doors.connections_now.load(Relaxed) as u64;
    page.gauge("curtail_connections", "Open connections.", &[("", now)]);
    let limit = shared.config.connections_max as u64;
    page.gauge(
        "curtail_connections_limit",
        "Connections allowed.",
        &[("", limit)],
    );
    let counts = shared.counts_total();
    page.counter(
        "curtail_connections_closed_total",
        "Connections closed by the server, by reason.",
        &[
            ("reason=\"idle\"", counts.get(Count::IdleKicks)),
            (
                "reason=\"slow_reader\"",
                counts.get(Count::SlowReadersClosed),
            ),
            ("reason=\"memory\"", counts.get(Count::ReadNoMemory)),
        ],
    );
    let rows = [
        ("direction=\"received\"", counts.get(Count::BytesRead)),
        ("direction=\"sent\"", counts.get(Count::BytesWritten)),
    ];
    page.counter(
        "curtail_network_bytes_total",
        "Bytes on client connections.",
        &rows,
    );
}

fn commands(page: &mut Page, shared: &Shared) {
    let counts = shared.counts_total();
    let of = |count| counts.get(count);
    page.counter(
        "curtail_operations_total",
        "Item operations, by kind and outcome.",
        &[
            ("kind=\"get\",outcome=\"hit\"", of(Count::GetHits)),
            ("kind=\"get\",outcome=\"miss\"", of(Count::GetMisses)),
            ("kind=\"touch\",outcome=\"hit\"", of(Count::TouchHits)),
            ("kind=\"touch\",outcome=\"miss\"", of(Count::TouchMisses)),
            ("kind=\"delete\",outcome=\"hit\"", of(Count::DeleteHits)),
            ("kind=\"delete\",outcome=\"miss\"", of(Count::DeleteMisses)),
            ("kind=\"increment\",outcome=\"hit\"", of(Count::IncrHits)),
            ("kind=\"increment\",outcome=\"miss\"", of(Count::IncrMisses)),
            ("kind=\"decrement\",outcome=\"hit\"", of(Count::DecrHits)),
            ("kind=\"decrement\",outcome=\"miss\"", of(Count::DecrMisses)),
            ("kind=\"cas\",outcome=\"stored\"", of(Count::CasHits)),
            ("kind=\"cas\",outcome=\"miss\"", of(Count::CasMisses)),
            ("kind=\"cas\",outcome=\"exists\"", of(Count::CasBadval)),
        ],
    );
    page.counter(
        "curtail_writes_total",
        "Writes asked for.",
        &[("", of(Count::CmdSet))],
    );
    page.counter(
        "curtail_writes_refused_total",
        "Writes refused, by reason.",
        &[
            ("reason=\"too_large\"", of(Count::StoreTooLarge)),
            ("reason=\"no_memory\"", of(Count::StoreNoMemory)),
        ],
    );
    page.counter(
        "curtail_requests_total",
        "Requests decoded.",
        &[("", of(Count::Requests))],
    );
    let logins = [
        ("outcome=\"all\"", of(Count::AuthCmds)),
        ("outcome=\"refused\"", of(Count::AuthErrors)),
    ];
    page.counter("curtail_logins_total", "Logins.", &logins);
}

fn items(page: &mut Page, shared: &Shared) {
    let items = shared.store.counters();
    page.gauge(
        "curtail_items",
        "Items in the store.",
        &[("", items.items_now)],
    );
    page.gauge(
        "curtail_item_bytes",
        "Bytes of those items.",
        &[("", items.item_bytes_now)],
    );
    // The store starts these over at `stats reset`, which a scraper takes for a restart.
    page.counter(
        "curtail_items_removed_total",
        "Items removed without being asked, by reason.",
        &[
            ("reason=\"evicted\"", items.evictions),
            ("reason=\"expired\"", items.reclaimed),
        ],
    );
}

fn memory(page: &mut Page, shared: &Shared) {
    let memory = shared.store.memory();
    let writers = bytes_of_writers(shared.config.workers) as u64;
    let native = shared.native_bytes();
    page.gauge(
        "curtail_memory_limit_bytes",
        "The one limit.",
        &[("", memory.limit)],
    );
    page.gauge(
        "curtail_memory_bytes",
        "Where the memory of the limit is.",
        &[
            ("part=\"index\"", memory.index),
            ("part=\"segments\"", memory.segments),
            ("part=\"free\"", memory.free),
            ("part=\"leased\"", memory.leased),
            ("part=\"ghost\"", memory.ghost),
            (
                "part=\"connections\"",
                memory.accounted.saturating_sub(writers + native),
            ),
            ("part=\"fixed\"", memory.fixed + writers),
            ("part=\"native\"", native),
        ],
    );
    let resident = curtail_runtime::resident_bytes();
    page.gauge(
        "curtail_resident_bytes",
        "Memory resident.",
        &[("", resident)],
    );
}

/// What the table that finds items did.
fn index(page: &mut Page, shared: &Shared) {
    for (name, count) in index_counts(shared) {
        let name = format!("curtail_{name}_total");
        page.counter(&name, "What the index did.", &[("", count)]);
    }
}

fn process(page: &mut Page, shared: &Shared) {
    let usage = curtail_runtime::usage();
    page.head(
        "curtail_cpu_seconds_total",
        "counter",
        "Processor time used, by mode.",
    );
    for (labels, us) in [
        ("mode=\"user\"", usage.user_us),
        ("mode=\"system\"", usage.system_us),
    ] {
        let seconds = format_args!("{}.{:06}", us / 1_000_000, us % 1_000_000).to_string();
        page.row("curtail_cpu_seconds_total", labels, seconds);
    }
    let up = shared.clock.now().instant.ns / 1_000_000_000;
    page.gauge("curtail_uptime_seconds", "Since the start.", &[("", up)]);
}

/// The policy, the plan of sizes, and what they did.
fn policies(page: &mut Page, shared: &Shared) {
    let regime = shared.regimes.current();
    let plan = &regime.plan;
    let name = format!("name=\"{}\"", regime.name);
    page.gauge("curtail_policy", "The policy in force.", &[(&name, 1)]);
    page.gauge(
        "curtail_size_threshold_bytes",
        "From here on values are large.",
        &[("", u64::from(plan.threshold))],
    );
    let cores = [
        ("role=\"small\"", u64::from(plan.small)),
        ("role=\"large\"", u64::from(plan.cores - plan.small)),
    ];
    page.gauge("curtail_plan_cores", "Cores by role in the plan.", &cores);
    page.counter(
        "curtail_regimes_total",
        "Policies and plans put in force.",
        &[("", regime.generation)],
    );
    let counts = shared.counts_total();
    for (name, count) in POLICY_COUNTS {
        let name = format!("curtail_{name}_total");
        page.counter(&name, "What policies did.", &[("", counts.get(count))]);
    }
    page.head(
        "curtail_large_connections",
        "gauge",
        "Connections with large workers.",
    );
    for (index, worker) in shared.large_workers().iter().enumerate() {
        let labels = format!("worker=\"{index}\"");
        let visitors = worker.visitors.load(Relaxed);
        page.row("curtail_large_connections", &labels, visitors);
    }
    page.head(
        "curtail_large_lifts_total",
        "counter",
        "How often a large worker that starved was let forward.",
    );
    for (index, worker) in shared.large_workers().iter().enumerate() {
        let labels = format!("worker=\"{index}\"");
        let lifts = worker.lifts.load(Relaxed);
        page.row("curtail_large_lifts_total", &labels, lifts);
    }
    page.head("curtail_mailbox", "gauge", "What others left for a worker.");
    for (index, worker) in shared.workers.iter().enumerate() {
        let labels = format!("worker=\"{index}\"");
        page.row("curtail_mailbox", &labels, worker.mail.depth());
    }
    workers(page, shared);
    hot_keys(page, shared);
}

/// What each worker did; those behind the workers are the large ones.
fn workers(page: &mut Page, shared: &Shared) {
    for (what, count) in WORKER_COUNTS {
        let name = format!("curtail_worker_{what}_total");
        page.head(&name, "counter", "The same, by worker.");
        for (index, worker) in shared.workers.iter().enumerate() {
            let labels = format!("worker=\"{index}\"");
            page.row(&name, &labels, worker.counts.read().get(count));
        }
    }
    let name = "curtail_worker_queue_depth";
    page.head(name, "gauge", "What waits for a worker.");
    for (index, worker) in shared.workers.iter().enumerate() {
        let labels = format!("worker=\"{index}\"");
        page.row(name, &labels, worker.queue_depth());
    }
}

/// Shares without the keys: those are clients' data, and each would be a series of its own.
fn hot_keys(page: &mut Page, shared: &Shared) {
    let hottest = shared.hottest();
    let name = "curtail_hot_key_share";
    page.head(name, "gauge", "Share of the requests by rank of their key.");
    for (rank, key) in (1..).zip(&hottest.keys) {
        let labels = format!("rank=\"{rank}\"");
        page.row(name, &labels, format_args!("{:.4}", key.share));
    }
    let name = "curtail_hot_key_write_share";
    page.head(name, "gauge", "Share of writes by rank of their key.");
    for (rank, key) in (1..).zip(&hottest.keys) {
        let labels = format!("rank=\"{rank}\"");
        page.row(name, &labels, format_args!("{:.4}", key.writes));
    }
}

/// The native datagram path, if it is on.
fn native(page: &mut Page, shared: &Shared) {
    let Some(native) = shared.native.as_deref() else {
        return;
    };
    for family in native::metrics(native) {
        let kind = if family.is_gauge { "gauge" } else { "counter" };
        page.head(&family.name, kind, family.help);
        for (labels, value) in family.rows {
            page.row(&family.name, &labels, value);
        }
    }
}

/// How much stood before requests; see `stages`.
fn stages(page: &mut Page, shared: &Shared) {
    let mut headed = "";
    for (stage_name, size, stage) in shared.stages_total().all() {
        let name = format!("curtail_stage_{stage_name}");
        if headed != stage_name {
            page.head(&name, "histogram", "Work ahead, or time, by stage.");
            headed = stage_name;
        }
        let size = size.map(|size| format!("size=\"{size}\""));
        let size = size.as_deref().unwrap_or("");
        let comma = if size.is_empty() { "" } else { "," };
        let bucket = format!("{name}_bucket");
        let (mut below, mut sum) = (0, 0);
        for (class, number) in stage.classes().iter().enumerate() {
            below += number;
            // Counted by its lower bound: a sum that is right within a factor of two.
            sum += number * if class == 0 { 0 } else { 1 << (class - 1) };
            let labels = match bound_of(class) {
                Some(bound) => format!("{size}{comma}le=\"{}\"", bound - 1),
                None => format!("{size}{comma}le=\"+Inf\""),
            };
            page.row(&bucket, &labels, below);
        }
        page.row(&format!("{name}_sum"), size, sum);
        page.row(&format!("{name}_count"), size, below);
    }
}

/// The processor time of measured turns; see `turns`.
fn turns(page: &mut Page, shared: &Shared) {
    let name = "curtail_turn_cpu_seconds";
    page.head(
        name,
        "histogram",
        "Processor time of a worker's turns, those that were measured.",
    );
    for (index, worker) in shared.workers.iter().enumerate() {
        let mut below = 0;
        for (class, turns) in worker.turns.classes().into_iter().enumerate() {
            below += turns;
            let bound = BOUNDS_US.get(class).map_or_else(
                || "+Inf".to_owned(),
                |&us| format!("{}.{:06}", us / 1_000_000, us % 1_000_000),
            );
            let labels = format!("worker=\"{index}\",le=\"{bound}\"");
            page.row("curtail_turn_cpu_seconds_bucket", &labels, below);
        }
        let labels = format!("worker=\"{index}\"");
        let ns = worker.turns.ns_total();
        let seconds = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        page.row("curtail_turn_cpu_seconds_sum", &labels, seconds);
        page.row("curtail_turn_cpu_seconds_count", &labels, below);
    }
}
