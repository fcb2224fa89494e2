//! What the store counts about items, and where its memory went.

/// Item-level facts since the start (or the last reset), summed over all writers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StoreCounters {
    /// Items now in the store; expired ones that were not yet found included.
    pub items_now: u64,
    /// Bytes that those items take.
    pub item_bytes_now: u64,
    /// Items ever stored.
    pub items_total: u64,
    /// Live items dropped to make room.
    pub evictions: u64,
    /// Of those, never read.
    pub evicted_unfetched: u64,
    /// Expired items whose room was taken back.
    pub reclaimed: u64,
    /// Of those, never read.
    pub expired_unfetched: u64,
    /// Reads that found an expired item.
    pub get_expired: u64,
    /// Reads that found an item from before a flush.
    pub get_flushed: u64,
    /// Writes refused because the value was longer than the limit.
    pub too_large: u64,
    /// Writes refused because no room could be made.
    pub no_memory: u64,
    /// Writes that needed room and had to evict by themselves.
    pub direct_reclaims: u64,
    /// Items copied to another segment by eviction or compaction.
    pub moved: u64,
    /// Items overwritten in place.
    pub in_place: u64,
}

/// Where the memory of the one limit went, in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemoryReport {
    /// The limit.
    pub limit: u64,
    /// The index.
    pub index: u64,
    /// Slots of the index.
    pub index_slots: u64,
    /// Segments in use.
    pub segments: u64,
    /// Of them, bytes of live items.
    pub live: u64,
    /// Resident segments that are free.
    pub free: u64,
    /// Segments pinned by leases after eviction.
    pub leased: u64,
    /// The ghost table.
    pub ghost: u64,
    /// What was reported through `account`.
    pub accounted: u64,
    /// Fixed parts: headers, counters.
    pub fixed: u64,
    /// One segment.
    pub segment_bytes: u64,
}
