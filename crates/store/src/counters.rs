//! Counters of items, and of memory by use.
//!
//! Every writer counts on cache lines of its own, by plain loads and stores; a reader of statistics
//! sums them up.

use curtail_types::Cas;

use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};

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

/// What is counted. The first four give what is there now and are never reset.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Count {
    ItemsAdded,
    ItemsRemoved,
    BytesAdded,
    BytesRemoved,
    ItemsTotal,
    Evictions,
    EvictedUnfetched,
    Reclaimed,
    ExpiredUnfetched,
    GetExpired,
    GetFlushed,
    TooLarge,
    NoMemory,
    DirectReclaims,
    Moved,
    InPlace,
}

const COUNTS: usize = Count::InPlace as usize + 1;
const NEVER_RESET: usize = 4;

/// The counters of one writer.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WriterCounters {
    counts: [AtomicU64; COUNTS],
    last_cas: AtomicU64,
    /// The owning writer's next version is above this one.
    cas_floor: AtomicU64,
}

impl WriterCounters {
    /// Adds `by`; only the owning writer calls this.
    #[inline]
    pub(crate) fn add(&self, count: Count, by: u64) {
        let place = &self.counts[count as usize];
        place.store(place.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    /// Notes the version given last, which is the highest; only the owning writer calls this.
    #[inline]
    pub(crate) fn note_cas(&self, cas: Cas) {
        self.last_cas.store(cas.0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn cas_floor(&self) -> Cas {
        Cas(self.cas_floor.load(Ordering::Relaxed))
    }
}

/// All writers' counters.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    writers: Mutex<Vec<Arc<WriterCounters>>>,
    base: Mutex<[u64; COUNTS]>,
}

impl Ledger {
    /// Counters for a new writer: those of one that is gone, which then count on, or new ones.
    pub(crate) fn register(&self) -> Arc<WriterCounters> {
        let unused = |counters: &&Arc<WriterCounters>| Arc::strong_count(counters) == 1;
        if let Some(counters) = lock(&self.writers).iter().find(unused) {
            return Arc::clone(counters);
        }
        let counters = Arc::new(WriterCounters::default());
        let mut writers = lock(&self.writers);
        let floors = writers.iter().map(|writer| writer.cas_floor().0);
        let floor = floors.max().unwrap_or(0);
        counters.cas_floor.store(floor, Ordering::Relaxed);
        writers.push(Arc::clone(&counters));
        counters
    }

    fn sums(&self) -> [u64; COUNTS] {
        let writers = lock(&self.writers);
        std::array::from_fn(|count| {
            let of = |writer: &Arc<WriterCounters>| writer.counts[count].load(Ordering::Relaxed);
            writers.iter().map(of).sum()
        })
    }

    /// The highest version that any writer has given.
    pub(crate) fn last_cas(&self) -> Cas {
        let writers = lock(&self.writers);
        let of = |writer: &Arc<WriterCounters>| writer.last_cas.load(Ordering::Relaxed);
        Cas(writers.iter().map(of).max().unwrap_or(0))
    }

    /// From now on writers give versions above this one.
    pub(crate) fn raise_cas(&self, cas: Cas) {
        for writer in &*lock(&self.writers) {
            writer.cas_floor.fetch_max(cas.0, Ordering::Relaxed);
        }
    }

    /// Items that are there now.
    pub(crate) fn items_now(&self) -> usize {
        self.difference(Count::ItemsAdded, Count::ItemsRemoved)
    }

    /// Bytes of items that are there now.
    pub(crate) fn bytes_now(&self) -> usize {
        self.difference(Count::BytesAdded, Count::BytesRemoved)
    }

    fn difference(&self, added: Count, removed: Count) -> usize {
        let writers = lock(&self.writers);
        let sum = |count: Count| -> u64 {
            let of = |writer: &Arc<WriterCounters>| {
                writer.counts[count as usize].load(Ordering::Relaxed)
            };
            writers.iter().map(of).sum()
        };
        // In this order, so that a removal is never seen without its addition.
        let removed = sum(removed);
        sum(added).saturating_sub(removed) as usize
    }

    pub(crate) fn reset(&self) {
        let mut sums = self.sums();
        sums[..NEVER_RESET].fill(0);
        *lock(&self.base) = sums;
    }

    pub(crate) fn report(&self) -> StoreCounters {
        let base = *lock(&self.base);
        self.report_since(&base)
    }

    pub(crate) fn report_total(&self) -> StoreCounters {
        self.report_since(&[0; COUNTS])
    }

    fn report_since(&self, base: &[u64; COUNTS]) -> StoreCounters {
        let sums = self.sums();
        let of = |count: Count| sums[count as usize].saturating_sub(base[count as usize]);
        StoreCounters {
            items_now: of(Count::ItemsAdded).saturating_sub(of(Count::ItemsRemoved)),
            item_bytes_now: of(Count::BytesAdded).saturating_sub(of(Count::BytesRemoved)),
            items_total: of(Count::ItemsTotal),
            evictions: of(Count::Evictions),
            evicted_unfetched: of(Count::EvictedUnfetched),
            reclaimed: of(Count::Reclaimed),
            expired_unfetched: of(Count::ExpiredUnfetched),
            get_expired: of(Count::GetExpired),
            get_flushed: of(Count::GetFlushed),
            too_large: of(Count::TooLarge),
            no_memory: of(Count::NoMemory),
            direct_reclaims: of(Count::DirectReclaims),
            moved: of(Count::Moved),
            in_place: of(Count::InPlace),
        }
    }
}
