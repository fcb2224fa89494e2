//! Items and memory.

use crate::{
    exporter::prometheus::{Family, by, of},
    metrics::counters::Count::*,
};

pub(in crate::exporter::prometheus) const TABLE: &[Family] = families! {
    Gauge curtail_items "Items in the store, including expired ones that the server has not \
                         removed yet.":
        by("curr_items", |look| look.items.items_now);
    Gauge curtail_item_bytes in Bytes "Bytes of all items.":
        by("bytes items_live", |look| look.items.item_bytes_now);
    Gauge curtail_item_limit_bytes in Bytes "Length of the longest value that the server accepts \
                                             (-I).":
        by("item_size_max", |look| look.shared.config.item_bytes_max as u64);
    Counter curtail_items_stored_total "Writes that stored an item.":
        by("total_items", |look| look.items.items_total);
    Counter curtail_items_removed_total "Items removed without a client's request, by reason.":
        {reason="evicted"} by("evictions", |look| look.items.evictions),
        {reason="expired"} by("reclaimed", |look| look.items.reclaimed);
    Counter curtail_items_removed_unread_total "Removed items that were never read, by reason.":
        {reason="evicted"} by("evicted_unfetched", |look| look.items.evicted_unfetched),
        {reason="expired"} by("expired_unfetched", |look| look.items.expired_unfetched);
    Counter curtail_items_moved_total "Items that eviction or clean-up of segments copied to \
                                       another segment.":
        by("moves_within_lru", |look| look.items.moved);
    Counter curtail_items_maintained_total "Items that background maintenance checked.":
        of(MaintainedItems);
    Counter curtail_direct_reclaims_total
        "Writes that had to evict items themselves because no memory was free.":
        by("direct_reclaims", |look| look.items.direct_reclaims);
    Gauge curtail_memory_limit_bytes in Bytes "Memory limit (-m).":
        by("limit_maxbytes limit maxbytes", |look| look.memory.limit);
    Gauge curtail_memory_bytes in Bytes
        "Memory that counts towards the limit, by use: index, segments (of items), free (empty \
         segments), leased (emptied segments from which the value of a removed item is still \
         being sent), ghost (fingerprints of evicted items), connections (buffers), fixed \
         (what the server allocates at the start), native (queues and sessions).":
        {part="index"} by("index hash_bytes", |look| look.memory.index),
        {part="segments"} by("segments", |look| look.memory.segments),
        {part="free"} by("free", |look| look.memory.free),
        {part="leased"} by("leased", |look| look.memory.leased),
        {part="ghost"} by("ghost", |look| look.memory.ghost),
        {part="connections"} by("connections", |look| look.connection_bytes()),
        {part="fixed"} by("fixed", |look| look.memory.fixed + look.writers_bytes),
        {part="native"} by("native", |look| look.shared.native_bytes());
    Gauge curtail_index_slots "Slots of the index, each for one item.":
        by("index_slots", |look| look.memory.index_slots);
    Gauge curtail_segment_bytes in Bytes "The size of one segment.":
        by("segment_bytes", |look| look.memory.segment_bytes);
    Gauge curtail_buffer_limit_bytes in Bytes
        "Limit for connection buffers (-o read_buf_mem_limit); 0 means a quarter of the memory \
         limit.":
        by("read_buf_mem_limit", |look| look.shared.config.buffer_bytes_max as u64);
};
