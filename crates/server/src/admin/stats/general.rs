//! Plain `stats`: memcached's names, in its order: 83, and up to 10 more that come and go with the
//! options they belong to.

use curtail_runtime::ProcessUsage;
use curtail_store::{MemoryReport, StoreCounters};
use curtail_types::Now;

use crate::{
    admin::stats::{Report, VERSION},
    metrics::counters::{Count, Counts},
    sync::Relaxed,
    worker::shared::Shared,
};

/// Names whose number counts a part of memcached that does not exist here.
const REASSIGN: [&str; 8] = [
    "slab_reassign_rescues",
    "slab_reassign_chunk_rescues",
    "slab_reassign_evictions_nomem",
    "slab_reassign_inline_reclaim",
    "slab_reassign_busy_items",
    "slab_reassign_busy_deletes",
    "slab_reassign_running",
    "slabs_moved",
];

const CRAWLER: [&str; 2] = ["lru_crawler_running", "lru_crawler_starts"];

/// Plain `stats`.
pub(crate) fn general(shared: &Shared, now: Now) -> Vec<u8> {
    let counts = shared.counts();
    let items = shared.store.counters();
    let memory = shared.store.memory();
    let mut report = Report::default();
    process(&mut report, shared, now);
    connections(&mut report, shared, &counts);
    commands(&mut report, &counts, &items);
    if shared.config.idle_timeout_seconds > 0 {
        report.counts(&counts, &[Count::IdleKicks]);
    }
    traffic(&mut report, shared, &counts, &memory);
    // Two groups of names come and go with the options that switch memcached's threads on.
    let echoed = &shared.config.echoed;
    let zero = |report: &mut Report, names: &[&str]| {
        names.iter().for_each(|name| report.stat(name, 0));
    };
    zero(&mut report, &REASSIGN);
    if echoed.lru_crawler {
        zero(&mut report, &CRAWLER);
    }
    if echoed.lru_maintainer {
        zero(&mut report, &["lru_maintainer_juggles"]);
    }
    zero(&mut report, &["malloc_fails"]);
    watching(&mut report, shared);
    zero(
        &mut report,
        &["unexpected_napi_ids", "round_robin_fallback"],
    );
    contents(&mut report, &items, echoed.lru_maintainer);
    report.end()
}

fn process(report: &mut Report, shared: &Shared, now: Now) {
    let ProcessUsage {
        user_us, system_us, ..
    } = curtail_runtime::usage();
    let uptime = now
        .unix_seconds()
        .saturating_sub(shared.started.unix_seconds());
    report.stat("pid", std::process::id());
    report.stat("uptime", uptime);
    report.stat("time", now.unix_seconds());
    report.stat("version", VERSION);
    report.stat("libevent", "none");
    report.stat("pointer_size", usize::BITS);
    report.stat("rusage_user", seconds(user_us));
    report.stat("rusage_system", seconds(system_us));
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn connections(report: &mut Report, shared: &Shared, counts: &Counts) {
    let doors = &shared.doors;
    let gauge = |pick| shared.buffers_total(pick);
    report.stat("max_connections", shared.config.connections_max);
    report.stat("curr_connections", doors.connections_now.load(Relaxed));
    report.stat("total_connections", doors.accepted.since_reset());
    if shared.config.refuse_connections_fast {
        report.stat("rejected_connections", doors.refused.since_reset());
    }
    report.stat(
        "connection_structures",
        doors.connections_most.load(Relaxed),
    );
    report.counts(counts, &[Count::ReplyNoMemory]);
    report.stat("response_obj_count", 0);
    report.stat("response_obj_bytes", 0);
    report.stat("read_buf_count", gauge(|buffers| &buffers.count));
    report.stat("read_buf_bytes", gauge(|buffers| &buffers.bytes));
    report.stat(
        "read_buf_bytes_free",
        gauge(|buffers| &buffers.bytes_unused),
    );
    report.counts(counts, &[Count::ReadNoMemory]);
    report.stat(
        "reserved_fds",
        RESERVED_PER_WORKER * shared.workers.len() + RESERVED,
    );
}

/// Descriptors of the process that are not connections: each worker's poller and waker, and the
/// acceptor's, the control thread's and the standard ones.
const RESERVED_PER_WORKER: usize = 2;
const RESERVED: usize = 8;

fn commands(report: &mut Report, counts: &Counts, items: &StoreCounters) {
    report.counts(counts, Count::COMMANDS);
    report.stat("get_expired", items.get_expired);
    report.stat("get_flushed", items.get_flushed);
    report.counts(counts, Count::OUTCOMES);
}

fn traffic(report: &mut Report, shared: &Shared, counts: &Counts, memory: &MemoryReport) {
    let doors = &shared.doors;
    report.counts(counts, &[Count::BytesRead, Count::BytesWritten]);
    report.stat("limit_maxbytes", memory.limit);
    report.stat("accepting_conns", u8::from(doors.accepting.load(Relaxed)));
    report.stat("listen_disabled_num", doors.pauses.since_reset());
    report.stat(
        "time_in_listen_disabled_us",
        doors.disabled_us.load(Relaxed),
    );
    report.stat("threads", shared.config.workers);
    report.counts(counts, &[Count::ConnYields]);
    report.stat("hash_power_level", memory.index_slots.max(1).ilog2());
    report.stat("hash_bytes", memory.index);
    report.stat("hash_is_expanding", 0);
}

fn watching(report: &mut Report, shared: &Shared) {
    let counts = &shared.watchers.counts;
    let rows = [
        ("log_worker_dropped", &counts.worker_dropped),
        ("log_worker_written", &counts.worker_written),
        ("log_watcher_skipped", &counts.watcher_skipped),
        ("log_watcher_sent", &counts.watcher_sent),
    ];
    for (name, count) in rows {
        report.stat(name, count.since_reset());
    }
    report.stat("log_watchers", shared.watchers.count());
}

fn contents(report: &mut Report, items: &StoreCounters, maintainer: bool) {
    report.stat("bytes", items.item_bytes_now);
    report.stat("curr_items", items.items_now);
    report.stat("total_items", items.items_total);
    report.stat("slab_global_page_pool", 0);
    report.stat("expired_unfetched", items.expired_unfetched);
    report.stat("evicted_unfetched", items.evicted_unfetched);
    if maintainer {
        report.stat("evicted_active", 0);
    }
    report.stat("evictions", items.evictions);
    report.stat("reclaimed", items.reclaimed);
    report.stat("crawler_reclaimed", 0);
    report.stat("crawler_items_checked", 0);
    report.stat("lrutail_reflocked", 0);
    if maintainer {
        report.stat("moves_to_cold", 0);
        report.stat("moves_to_warm", 0);
        report.stat("moves_within_lru", items.moved);
        report.stat("direct_reclaims", items.direct_reclaims);
        report.stat("lru_bumps_dropped", 0);
    }
}
