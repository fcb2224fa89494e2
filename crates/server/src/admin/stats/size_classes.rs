//! `stats items` and `stats slabs`: the rows of memcached's slab classes.
//!
//! There are no classes here, and clients that list keys, or draw charts, look for some. So all
//! items are those of class 1, as in the dumps: complete rows, since exporters demand those, and
//! none while there is no item, as memcached does. What memcached counts of one class is counted
//! here of all items. There is one queue as far as clients can see, so all items are cold; its
//! chunks have no size but the items' own, so the average is shown.

use crate::{
    admin::stats::Report, metrics::counters::Count, native::NativeCount, worker::shared::Shared,
};

/// The one class.
const CLASS: u32 = 1;

/// What memcached calls a page.
const PAGE_BYTES: u64 = 1 << 20;

/// Counts of the rows of `stats slabs`, in memcached's order.
const COUNTS: [Count; 8] = [
    Count::GetHits,
    Count::CmdSet,
    Count::DeleteHits,
    Count::IncrHits,
    Count::DecrHits,
    Count::CasHits,
    Count::CasBadval,
    Count::TouchHits,
];

/// `stats items`.
pub(crate) fn items(shared: &Shared) -> Vec<u8> {
    let items = shared.store.counters();
    let mut report = Report::default();
    if items.items_now == 0 {
        return report.end();
    }
    let of_connections = shared.counts().get(Count::StoreNoMemory);
    let no_memory = of_connections + shared.native_count(NativeCount::NoMemory);
    let rows = [
        ("number", items.items_now),
        ("number_hot", 0),
        ("number_warm", 0),
        ("number_cold", items.items_now),
        ("age_hot", 0),
        ("age_warm", 0),
        ("age", 0),
        ("mem_requested", items.item_bytes_now),
        ("evicted", items.evictions),
        ("evicted_nonzero", 0),
        ("evicted_time", 0),
        ("outofmemory", no_memory),
        ("tailrepairs", 0),
        ("reclaimed", items.reclaimed),
        ("expired_unfetched", items.expired_unfetched),
        ("evicted_unfetched", items.evicted_unfetched),
        ("evicted_active", 0),
        ("crawler_reclaimed", 0),
        ("crawler_items_checked", 0),
        ("lrutail_reflocked", 0),
        ("moves_to_cold", 0),
        ("moves_to_warm", 0),
        ("moves_within_lru", items.moved),
        ("direct_reclaims", items.direct_reclaims),
        ("hits_to_hot", 0),
        ("hits_to_warm", 0),
        ("hits_to_cold", shared.counts().get(Count::GetHits)),
        ("hits_to_temp", 0),
    ];
    for (name, value) in rows {
        report.stat(format_args!("items:{CLASS}:{name}"), value);
    }
    report.end()
}

/// `stats slabs`.
pub(crate) fn slabs(shared: &Shared) -> Vec<u8> {
    let (items, memory) = (shared.store.counters(), shared.store.memory());
    let mut report = Report::default();
    if let Some(average) = items.item_bytes_now.checked_div(items.items_now) {
        let chunk_bytes = average.max(1);
        let rows = [
            ("chunk_size", chunk_bytes),
            ("chunks_per_page", (PAGE_BYTES / chunk_bytes).max(1)),
            ("total_pages", memory.segments.div_ceil(PAGE_BYTES)),
            ("total_chunks", items.items_now),
            ("used_chunks", items.items_now),
            ("free_chunks", 0),
            ("free_chunks_end", 0),
        ];
        let counts = shared.counts();
        let counted = COUNTS.map(|count| (count.name(), counts.get(count)));
        for (name, value) in rows.into_iter().chain(counted) {
            report.stat(format_args!("{CLASS}:{name}"), value);
        }
    }
    report.stat("active_slabs", u8::from(items.items_now > 0));
    report.stat("total_malloced", memory.segments + memory.free);
    report.end()
}
