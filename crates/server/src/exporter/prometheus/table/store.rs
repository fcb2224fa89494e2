//! Items and memory.

use crate::{
    exporter::prometheus::{
        Family,
        Unit::{Bytes, Whole},
        counter, gauge,
        table::{by, of},
    },
    metrics::counters::Count::*,
};

pub(in crate::exporter::prometheus) const TABLE: &[Family] = &[
    gauge(
        "curtail_items",
        Whole,
        "Items in the store, including expired ones that were not removed yet.",
        &[by("", "curr_items", |look| look.items.items_now)],
    ),
    gauge(
        "curtail_item_bytes",
        Bytes,
        "Bytes of all items.",
        &[by("", "bytes items_live", |look| look.items.item_bytes_now)],
    ),
    gauge(
        "curtail_item_limit_bytes",
        Bytes,
        "The longest item that is stored (-I).",
        &[by("", "item_size_max", |look| {
            look.shared.config.item_bytes_max as u64
        })],
    ),
    counter(
        "curtail_items_stored_total",
        Whole,
        "Items stored.",
        &[by("", "total_items", |look| look.items.items_total)],
    ),
    counter(
        "curtail_items_removed_total",
        Whole,
        "Items removed without a client's request, by reason.",
        &[
            by("reason=\"evicted\"", "evictions", |look| {
                look.items.evictions
            }),
            by("reason=\"expired\"", "reclaimed", |look| {
                look.items.reclaimed
            }),
        ],
    ),
    counter(
        "curtail_items_removed_unread_total",
        Whole,
        "Removed items that were never read, by reason.",
        &[
            by("reason=\"evicted\"", "evicted_unfetched", |look| {
                look.items.evicted_unfetched
            }),
            by("reason=\"expired\"", "expired_unfetched", |look| {
                look.items.expired_unfetched
            }),
        ],
    ),
    counter(
        "curtail_items_moved_total",
        Whole,
        "Items copied to another segment by eviction or compaction.",
        &[by("", "moves_within_lru", |look| look.items.moved)],
    ),
    counter(
        "curtail_items_maintained_total",
        Whole,
        "Items that background maintenance looked at.",
        &[of("", "maintained_items", MaintainedItems)],
    ),
    counter(
        "curtail_direct_reclaims_total",
        Whole,
        "Writes that had to evict items themselves because no memory was free.",
        &[by("", "direct_reclaims", |look| look.items.direct_reclaims)],
    ),
    gauge(
        "curtail_memory_limit_bytes",
        Bytes,
        "Memory limit (-m).",
        &[by("", "limit_maxbytes limit maxbytes", |look| {
            look.memory.limit
        })],
    ),
    gauge(
        "curtail_memory_bytes",
        Bytes,
        "Memory that counts towards the limit, by its use.",
        &[
            by("part=\"index\"", "index hash_bytes", |look| {
                look.memory.index
            }),
            by("part=\"segments\"", "segments", |look| look.memory.segments),
            by("part=\"free\"", "free", |look| look.memory.free),
            by("part=\"leased\"", "leased", |look| look.memory.leased),
            by("part=\"ghost\"", "ghost", |look| look.memory.ghost),
            by("part=\"connections\"", "connections", |look| {
                look.connection_bytes()
            }),
            by("part=\"fixed\"", "fixed", |look| {
                look.memory.fixed + look.writers_bytes
            }),
            by("part=\"native\"", "native", |look| {
                look.shared.native_bytes()
            }),
        ],
    ),
    gauge(
        "curtail_index_slots",
        Whole,
        "Slots of the index.",
        &[by("", "index_slots", |look| look.memory.index_slots)],
    ),
    gauge(
        "curtail_segment_bytes",
        Bytes,
        "The size of one segment.",
        &[by("", "segment_bytes", |look| look.memory.segment_bytes)],
    ),
    gauge(
        "curtail_buffer_limit_bytes",
        Bytes,
        "Limit for connection buffers; 0 means a quarter of the memory limit.",
        &[by("", "read_buf_mem_limit", |look| {
            look.shared.config.buffer_bytes_max as u64
        })],
    ),
];
