//! `stats memory` and `stats curtail`: what memcached has no name for.

use super::Report;
use crate::{counts::Count, shared::Shared, sync::Relaxed, turns::BOUNDS_US};

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
    report.stat("connections", memory.accounted);
    report.stat("fixed", memory.fixed);
    report.end()
}

/// `stats curtail`: how the workers fare.
pub(crate) fn curtail(shared: &Shared) -> Vec<u8> {
    let counts = shared.counts();
    let mut report = Report::default();
    let named = [
        ("turns", Count::Turns),
        ("requests", Count::Requests),
        ("receives", Count::Receives),
        ("sends", Count::Sends),
        ("maintained_items", Count::MaintainedItems),
        ("spins_found", Count::SpinsFound),
        ("spins_in_vain", Count::SpinsInVain),
        ("slow_readers_closed", Count::SlowReadersClosed),
    ];
    report.stat("spinning", u8::from(shared.spins));
    for (name, count) in named {
        report.stat(name, counts.get(count));
    }
    for (index, worker) in shared.workers.iter().enumerate() {
        let connections = worker.connections.load(Relaxed);
        report.stat(format_args!("worker:{index}:connections"), connections);
        let classes = worker.turns.classes();
        for (class, turns) in classes.iter().enumerate() {
            match BOUNDS_US.get(class) {
                Some(us) => report.stat(format_args!("worker:{index}:turn_cpu_us_{us}"), turns),
                None => report.stat(format_args!("worker:{index}:turn_cpu_us_more"), turns),
            }
        }
        let most_us = worker.turns.ns_max() / 1000;
        report.stat(format_args!("worker:{index}:turn_cpu_us_max"), most_us);
        let total_us = worker.turns.ns_total() / 1000;
        report.stat(format_args!("worker:{index}:turn_cpu_us_sum"), total_us);
    }
    report.end()
}
