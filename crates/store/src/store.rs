//! The store: one per process, shared by all workers.
//!
//! This file holds the parts together: making one, hashing, prefetching, limits and reports. What
//! the commands do is in `read.rs`, `write.rs` and `delete_and_count.rs`; `reclaim.rs` frees
//! memory.

use curtail_segments::{Pages, Segments, SegmentsConfig};
use curtail_table::{
    Counters as IndexCounters, Hint, Index, IndexConfig, Locked, Position, Reference, Resolver,
    TableError,
};
use curtail_types::{Cas, Exptime, HybridClock, Key, KeyHash, Now, RouteHash, WriterId};

use crate::{
    MemoryReport, StoreConfig, StoreCounters, StoreError,
    counters::{Count, Ledger, WriterCounters},
    eviction::{self, Eviction, MARK_ENOUGH, Queue},
    eviction_events::EvictionRecord,
    item::{Extension, Item, Kind, Meta},
    item_view::LeaseGate,
    large_values::Value,
    open_segments::Room,
    reclaim::Reclaim,
    replica::Kept,
    route_hash::{KeyHasher, route_of},
    slices::Slices,
    sync::{Arc, AtomicI64, AtomicU32, AtomicUsize, OnceLock, Ordering},
    write::ChangeContext,
};

/// All items of the process. Every operation is safe under any assignment of requests to writers.
pub struct Store {
    config: StoreConfig,
    pub(crate) index: Index<Items>,
    pub(crate) room: Room,
    pub(crate) gate: LeaseGate,
    pub(crate) reclaim: Reclaim,
    pub(crate) ledger: Ledger,
    limit: AtomicUsize,
    accounted: AtomicI64,
    /// When everything is to be flushed, in Unix seconds; 0 for no such plan.
    flush_at: AtomicU32,
    /// Keys that eviction passes by, if there ever were any.
    pub(crate) kept: OnceLock<Kept>,
    /// What a node of a cluster knows of its slices; nothing on a server alone.
    pub(crate) slices: OnceLock<Slices>,
}

/// What one worker brings to every call: its clock, its open segments and its counters.
#[derive(Debug)]
pub struct Writer {
    id: WriterId,
    clock: HybridClock,
    pub(crate) counters: Arc<WriterCounters>,
    pub(crate) evicted: EvictionRecord,
    /// Whether its writes may evict for the room that they need.
    pub(crate) evicts_freely: bool,
}

impl Writer {
    /// The id that the versions it gives carry.
    pub fn id(&self) -> WriterId {
        self.id
    }

    pub(crate) fn group(&self) -> usize {
        self.id.0 as usize
    }

    /// Whether its writes may evict for the room that they need, as at first. If not, a write
    /// without room changes nothing and ends as out of memory.
    pub fn evict_freely(&mut self, may_evict: bool) {
        self.evicts_freely = may_evict;
    }

    #[inline]
    pub(crate) fn count(&self, count: Count) {
        self.counters.add(count, 1);
    }

    /// Counts `writes` that were stored together with another one, as if each had been stored.
    pub fn count_stored(&self, writes: u64) {
        self.counters.add(Count::ItemsTotal, writes);
    }

    /// The next version, above that of the item it replaces.
    #[inline]
    pub(crate) fn next_cas(&mut self, now: Now, old: Option<Cas>) -> Cas {
        self.clock.follow(self.counters.cas_floor());
        let mut next = self.clock.next(now);
        // Another writer's clock may be a little ahead. A version that a client made up may be
        // anywhere, and must not drag the clock along.
        if let Some(old) = old
            && old >= next
            && old.0 - next.0 < CAS_LEAD_MAX
        {
            self.clock.follow(old);
            next = self.clock.next(now);
        }
        self.counters.note_cas(next);
        next
    }
}

/// An hour of the version clock: no writer's clock runs further ahead of another's.
const CAS_LEAD_MAX: u64 = (3600 * HybridClock::TICKS_PER_SECOND) << 16;

/// What the index asks of items.
#[derive(Debug)]
pub(crate) struct Items {
    pub(crate) segments: Arc<Segments>,
    hasher: KeyHasher,
}

impl Items {
    #[inline(always)]
    pub(crate) fn item(&self, reference: u64) -> Item<'_> {
        Item::new(self.segments.words(reference))
    }

    /// The hash of the key at `reference`.
    pub(crate) fn key_hash(&self, reference: u64) -> KeyHash {
        let item = self.item(reference);
        let meta = item.meta();
        // The index asks for this while it looks for room: most keys need no long buffer.
        if meta.key_bytes() <= SHORT_KEY {
            let mut key = [0; SHORT_KEY];
            let length = item.copy_key(meta, &mut key);
            self.hasher.hash(&key[..length])
        } else {
            let mut key = [0; 256];
            let length = item.copy_key(meta, &mut key);
            self.hasher.hash(&key[..length])
        }
    }

    /// The route hash of the key at `reference`.
    pub(crate) fn route(&self, reference: u64) -> RouteHash {
        let item = self.item(reference);
        let mut key = [0; 256];
        let length = item.copy_key(item.meta(), &mut key);
        route_of(&key[..length])
    }
}

impl Resolver for Items {
    fn hash_of(&self, reference: Reference) -> KeyHash {
        self.key_hash(reference.get())
    }

    #[inline]
    fn prefetch(&self, reference: Reference) {
        self.segments.prefetch(reference.get());
    }
}

/// Memory that is ready before items need it: what is written in 30 ms at 256 MB/s.
const ITEMS_AHEAD_BYTES: usize = 8 << 20;

/// Memory that is ready before the index grows into it.
const INDEX_AHEAD_BYTES: usize = 4 << 20;

/// The words of an item that are asked for ahead of use: of one that is copied, all.
const PREFETCH_WORDS_MAX: usize = crate::COPY_BYTES_MAX / 8 + 40;

/// An item that was found under the key's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) position: Position,
    pub(crate) reference: u64,
    pub(crate) meta: Meta,
}

/// Whether an item may still be shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Presence {
    Here,
    Expired,
    Flushed,
}

/// Keys up to this length are hashed out of a small buffer.
const SHORT_KEY: usize = 32;

/// Segments that a memory is cut into, where segment sizes allow.
const SEGMENTS_WANTED: usize = 1024;
const SEGMENT_BYTES_MIN: usize = 16 << 10;
const SEGMENT_BYTES_MAX: usize = 1 << 20;

/// The longest value that any configuration allows, in bytes. Values that were restored, or come
/// from other nodes, may be longer than the configuration of this store allows.
pub(crate) const ITEM_BYTES_LIMIT: usize = 128 << 20;

/// How far the limit may be raised later: address space is taken for that, where there are
/// references for so much.
const GROWTH_MAX: usize = 8;

/// The greatest limit, in bytes: 8 TiB less 1 MiB. A reference is the number of a word, and segment
/// 0 is not used.
pub const MEMORY_BYTES_LIMIT: usize = Reference::END as usize * 8 - SEGMENT_BYTES_MAX;

/// Few items take less: address space for ghosts is taken accordingly.
const ITEM_BYTES_LEAST: usize = 40;

/// The index may take this share of the limit.
const INDEX_SHARE: usize = 3;

/// How full the index is kept. A search for room grows steeply above 0.9 (an insert into a growing
/// store takes 1.1 us at 0.88, 1.4 at 0.90, 1.8 at 0.92), while each hundredth is 0.1 byte an item.
const FILL_TARGET: f64 = 0.905;

/// Segments that are left to items whatever else takes memory.
const SEGMENTS_MIN: usize = 8;

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// [`StoreError::Config`] when the limits contradict each other, [`StoreError::Memory`] when
    /// the system gives no address space.
    pub fn new(config: StoreConfig) -> Result<Self, StoreError> {
        let segment_bytes = segment_bytes_for(config.memory_bytes_max);
        Self::with_segments_of(config, segment_bytes)
    }

    /// The same with segments of a given size.
    pub(crate) fn with_segments_of(
        config: StoreConfig,
        segment_bytes: usize,
    ) -> Result<Self, StoreError> {
        check(&config)?;
        let limit = config.memory_bytes_max;
        let segments_now = limit / segment_bytes;
        let limit_max = limit_max(limit);
        let pages = match config.huge_pages {
            true => Pages::HugeAhead,
            false => Pages::Small,
        };
        let segments = Segments::new(SegmentsConfig {
            segment_bytes,
            segments_max: limit_max / segment_bytes,
            pages,
        })
        .map_err(StoreError::Memory)?;
        let segments = Arc::new(segments);
        let items = Items {
            segments: Arc::clone(&segments),
            hasher: KeyHasher::new(&config),
        };
        let slots_max = index_slots_max(limit);
        let index = Index::new(
            IndexConfig {
                slots_initial: (slots_max / 256).clamp(1 << 10, 1 << 16),
                slots_max,
                slots_reserved: index_slots_max(limit_max),
                fill_target: FILL_TARGET,
                pages,
                ..IndexConfig::default()
            },
            items,
        )
        .map_err(index_error)?;
        let ghosts_max = match config.evict {
            true => limit_max / ITEM_BYTES_LEAST,
            false => 0,
        };
        let eviction = Eviction::new(segment_bytes, ghosts_max).map_err(StoreError::Memory)?;
        let room = Room::new(segments, eviction, segments_now, config.writers_max);
        let store = Self {
            index,
            room,
            gate: LeaseGate::default(),
            reclaim: Reclaim::default(),
            ledger: Ledger::default(),
            limit: AtomicUsize::new(limit),
            accounted: AtomicI64::new(0),
            flush_at: AtomicU32::new(0),
            kept: OnceLock::new(),
            slices: OnceLock::new(),
            config,
        };
        store.set_limits(limit);
        Ok(store)
    }

    /// What the store was made with; the memory limit of now is in [`Store::memory`].
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The writer for one worker; ids must differ between the writers that live at one time.
    pub fn writer(&self, id: WriterId) -> Writer {
        Writer {
            id,
            clock: HybridClock::new(id, self.config.cas_floor.max(self.ledger.last_cas())),
            counters: self.ledger.register(),
            evicted: EvictionRecord::default(),
            evicts_freely: true,
        }
    }

    /// The hash of `key`, computed once per request and passed to every other call.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher().hash(key)
    }

    #[inline]
    pub(crate) fn hasher(&self) -> &KeyHasher {
        &self.index.resolver().hasher
    }

    /// First stage of a batch: asks the memory for both buckets of `hash`.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.index.prefetch(hash);
    }

    /// Second stage of a batch: asks the memory for the item that may be the one of `hash`; what
    /// it returns makes [`Store::get_hinted`] find the item at once.
    #[inline]
    pub fn prefetch_item(&self, hash: KeyHash) -> Hint {
        self.index.prefetch_candidates(hash)
    }

    /// Third stage, shortly before the item is used: asks for the rest of one that is longer than
    /// the second stage takes it to be.
    #[inline]
    pub fn prefetch_value(&self, hint: Hint) {
        if let Some(reference) = self.index.at(hint) {
            let reference = reference.get();
            let words = self.item(reference).meta().words();
            self.segments()
                .prefetch_rest(reference, words.min(PREFETCH_WORDS_MAX));
        }
    }

    /// Whether [`Store::supply_pages`] has something to do: a few loads, for once per turn.
    #[inline]
    pub fn wants_pages(&self) -> bool {
        self.segments().is_short(ITEMS_AHEAD_BYTES) || self.index.is_short(INDEX_AHEAD_BYTES)
    }

    /// Whether less than half of that is left: who supplies it should hurry.
    #[inline]
    pub fn lacks_pages(&self) -> bool {
        self.segments().is_short(ITEMS_AHEAD_BYTES / 2)
            || self.index.is_short(INDEX_AHEAD_BYTES / 2)
    }

    /// Has a huge page (2 MiB) ready ahead of the index or of the items, if they have grown into
    /// what was ready; whether there is more to do. May take milliseconds: for one thread that
    /// nobody waits for.
    pub fn supply_pages(&self) -> bool {
        let more = self.index.supply(INDEX_AHEAD_BYTES);
        self.segments().supply(ITEMS_AHEAD_BYTES) || more
    }

    pub(crate) fn segments(&self) -> &Arc<Segments> {
        &self.room.segments
    }

    #[inline(always)]
    pub(crate) fn item(&self, reference: u64) -> Item<'_> {
        self.index.resolver().item(reference)
    }

    // ---- flush ----

    /// Forgets every item written before `at`: now for 0 or less, else when that time has come.
    /// A later call replaces a plan that has not come true yet.
    pub fn flush_all(&self, now: Now, at: Exptime) {
        let expiry = at.expiry(now);
        if expiry.is_never() || expiry.is_past(now) {
            self.flush_at.store(0, Ordering::Relaxed);
            self.room.flush(now);
        } else {
            self.flush_at.store(expiry.to_bits(), Ordering::Relaxed);
        }
    }

    /// Carries out a planned flush whose time has come. Every operation starts with this.
    #[inline]
    pub(crate) fn tick(&self, now: Now) {
        let at = self.flush_at.load(Ordering::Relaxed);
        if at != 0 && at <= now.unix_seconds() {
            self.flush_as_planned(at, now);
        }
    }

    #[cold]
    fn flush_as_planned(&self, at: u32, now: Now) {
        let won = self
            .flush_at
            .compare_exchange(at, 0, Ordering::Relaxed, Ordering::Relaxed);
        if won.is_ok() {
            self.room.flush(now);
        }
    }

    /// When everything is to be flushed, in Unix seconds; 0 for no such plan.
    pub(crate) fn flush_at(&self) -> u32 {
        self.flush_at.load(Ordering::Relaxed)
    }

    pub(crate) fn set_flush_at(&self, unix_seconds: u32) {
        self.flush_at.store(unix_seconds, Ordering::Relaxed);
    }

    // ---- finding and removing under the key's lock ----

    pub(crate) fn find(&self, locked: &mut Locked<'_, Items>, key: Key<'_>) -> Option<Found> {
        let position = locked.find(|reference| {
            let item = self.item(reference.get());
            item.is_of(item.meta(), key.bytes())
        })?;
        let reference = locked.reference(position).get();
        Some(Found {
            position,
            reference,
            meta: self.item(reference).meta(),
        })
    }

    /// Finds the item, removing it if it has expired or was flushed.
    pub(crate) fn find_present(&self, context: &mut ChangeContext<'_, '_>) -> Option<Found> {
        let found = self.find(&mut context.locked, context.key)?;
        let extension = self.item(found.reference).extension(found.meta);
        match self.presence(found.reference, extension, context.now) {
            Presence::Here => Some(found),
            gone => {
                self.remove_gone(context.writer, &mut context.locked, found, gone);
                None
            }
        }
    }

    #[inline]
    pub(crate) fn presence(&self, reference: u64, extension: Extension, now: Now) -> Presence {
        if extension.expiry.is_past(now) {
            Presence::Expired
        } else if self.is_flushed(reference) {
            Presence::Flushed
        } else {
            Presence::Here
        }
    }

    /// Whether what lies at `reference` was flushed, with everything or with its slice.
    #[inline]
    pub(crate) fn is_flushed(&self, reference: u64) -> bool {
        self.room.may_be_gone() && self.is_flushed_or_cleared(reference)
    }

    #[inline(never)]
    fn is_flushed_or_cleared(&self, reference: u64) -> bool {
        self.room.is_flushed(reference) || self.is_cleared(reference)
    }

    pub(crate) fn remove_gone(
        &self,
        writer: &Writer,
        locked: &mut Locked<'_, Items>,
        found: Found,
        gone: Presence,
    ) {
        writer.count(Count::Reclaimed);
        if gone == Presence::Expired && !found.meta.fetched() {
            writer.count(Count::ExpiredUnfetched);
        }
        self.unlink(writer, locked, found);
    }

    /// Removes an item from the index and gives its words up.
    pub(crate) fn unlink(&self, writer: &Writer, locked: &mut Locked<'_, Items>, found: Found) {
        locked.remove(found.position);
        self.bury(writer, found.reference, found.meta);
    }

    /// Gives up the words of an item that the index refers to no more; under the key's lock.
    pub(crate) fn bury(&self, writer: &Writer, reference: u64, meta: Meta) {
        let item = self.item(reference);
        writer.count(Count::ItemsRemoved);
        let bytes = self.footprint_words(reference, meta) * 8;
        writer.counters.add(Count::BytesRemoved, bytes as u64);
        if meta.kind() == Kind::Head {
            self.count_wholes(reference, meta, -1);
            self.bury_pieces(Value::of(reference, item, meta));
        }
        self.bury_words(reference, meta);
    }

    /// Leaves a dead item in place.
    pub(crate) fn bury_words(&self, reference: u64, meta: Meta) {
        self.item(reference).set_meta(meta.with_kind(Kind::Dead));
        self.segments().add_dead(reference, meta.words());
    }

    fn bury_pieces(&self, value: Value<'_>) {
        for (piece, is_tail) in value.pieces() {
            if is_tail {
                self.bury_words(piece, self.item(piece).meta());
            } else if let Some(id) = self.segments().segment_of(piece) {
                self.segments().retire(id);
            }
        }
    }

    /// Words that an item takes, its pieces included.
    pub(crate) fn footprint_words(&self, reference: u64, meta: Meta) -> usize {
        let pieces: usize = match meta.kind() {
            Kind::Head => Value::of(reference, self.item(reference), meta)
                .pieces()
                .map(|(piece, is_tail)| match is_tail {
                    true => self.item(piece).meta().words(),
                    false => self.segments().segment_words(),
                })
                .sum(),
            _ => 0,
        };
        meta.words() + pieces
    }

    /// Puts a new item in the place of the old one, or into the index. With nothing old it may
    /// find no slot free.
    pub(crate) fn publish(
        &self,
        writer: &Writer,
        locked: &mut Locked<'_, Items>,
        old: Option<Found>,
        reference: u64,
    ) -> Result<(), curtail_table::NoRoom> {
        let Some(handle) = Reference::new(reference) else {
            return Err(curtail_table::NoRoom);
        };
        let meta = self.item(reference).meta();
        match old {
            Some(old) => {
                locked.replace(old.position, handle);
                self.bury(writer, old.reference, old.meta);
            }
            None => {
                locked.insert(handle)?;
            }
        }
        self.count_wholes(reference, meta, 1);
        writer.count(Count::ItemsAdded);
        let bytes = self.footprint_words(reference, meta) * 8;
        writer.counters.add(Count::BytesAdded, bytes as u64);
        Ok(())
    }

    /// The queue for a new item of `hash`: that of the item it replaces, or as the policy says.
    pub(crate) fn queue_for(&self, old: Option<Found>, hash: KeyHash, bytes: usize) -> Queue {
        match old {
            Some(old) => self.queue_of(old.reference),
            None => self.room.eviction.admit(hash, bytes as u64),
        }
    }

    /// The queue that an item is in.
    pub(crate) fn queue_of(&self, reference: u64) -> Queue {
        match self.segments().segment_of(reference) {
            Some(id) => Queue::from_index(self.segments().queue(id)),
            None => Queue::Small,
        }
    }

    /// The mark of an item after a hit.
    #[inline]
    pub(crate) fn mark_after_hit(&self, reference: u64, mark: u8) -> u8 {
        match self.segments().segment_of(reference) {
            Some(id) if mark < MARK_ENOUGH => {
                let queue = Queue::from_index(self.segments().queue(id));
                let (_, clock) = self.segments().opened(id);
                self.room.eviction.hit(queue, clock, mark)
            }
            _ => mark,
        }
    }

    /// Notes a hit on a locked item.
    pub(crate) fn mark_hit(&self, locked: &mut Locked<'_, Items>, found: Found) {
        let mark = locked.mark(found.position);
        if mark < MARK_ENOUGH {
            let reference = locked.reference(found.position).get();
            locked.set_mark(found.position, self.mark_after_hit(reference, mark));
        }
    }

    /// Counts the whole segments of a large item in (`1`) or out (`-1`) of its queue.
    pub(crate) fn count_wholes(&self, reference: u64, meta: Meta, sign: i64) {
        if meta.kind() == Kind::Head {
            let value = Value::of(reference, self.item(reference), meta);
            let wholes = value.pieces().filter(|(_, is_tail)| !is_tail).count() as i64;
            self.room
                .count_wholes(self.queue_of(reference), sign * wholes);
        }
    }

    // ---- limits and reports ----

    /// What the one limit may be changed to: at least some segments, and at most eight times the
    /// limit at the start and [`MEMORY_BYTES_LIMIT`].
    pub fn memory_bounds(&self) -> std::ops::RangeInclusive<usize> {
        let least = SEGMENTS_MIN * 2 * self.segments().segment_bytes();
        least..=limit_max(self.config.memory_bytes_max)
    }

    /// Changes the one limit; a lower one is reached step by step by [`Store::maintain`]. Returns
    /// whether it is within [`Store::memory_bounds`]; if not, nothing changes.
    pub fn set_memory_bytes_max(&self, bytes: usize) -> bool {
        let is_within = self.memory_bounds().contains(&bytes);
        if is_within {
            self.set_limits(bytes);
        }
        is_within
    }

    fn set_limits(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
        self.index.set_slots_max(index_slots_max(limit));
        self.gate.set_max(limit / 4);
        self.follow_budget();
    }

    /// Reports memory taken (positive) or given back (negative) outside the store that the limit
    /// is to cover: connection buffers.
    pub fn account(&self, bytes: isize) {
        self.accounted.fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// How many segments the limit leaves to items. One is left out, so that the limit holds while
    /// the index grows and a segment is not given back yet.
    pub(crate) fn segments_allowed(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        let accounted = self.accounted.load(Ordering::Relaxed).max(0) as usize;
        // The ghosts' room is kept from the start, so that eviction does not begin by needing it.
        let ghosts = match self.config.evict {
            true => eviction::ghost_bytes(self.ledger.items_now()),
            false => 0,
        };
        let others = self.index.memory_bytes()
            + ghosts.max(self.room.eviction.memory_bytes())
            + accounted
            + self.fixed_bytes();
        let segments = limit.saturating_sub(others) / self.segments().segment_bytes();
        segments.saturating_sub(1).max(SEGMENTS_MIN)
    }

    fn fixed_bytes(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        limit / self.segments().segment_bytes() * size_of::<curtail_segments::Header>()
    }

    /// Item-level facts, summed over all writers.
    pub fn counters(&self) -> StoreCounters {
        self.ledger.report()
    }

    /// What the index has done since the start: splits, displacements, repeated reads.
    pub fn index_counters(&self) -> IndexCounters {
        self.index.counters()
    }

    /// The same since the store was made, whatever was reset.
    pub fn counters_total(&self) -> StoreCounters {
        self.ledger.report_total()
    }

    /// Starts the counters of [`Store::counters`] over, but for those that say what is there now.
    pub fn reset_counters(&self) {
        self.ledger.reset();
    }

    /// Where the memory went.
    pub fn memory(&self) -> MemoryReport {
        let segment_bytes = self.segments().segment_bytes() as u64;
        let (resident, free, _) = self.segments().resident();
        let counters = self.counters();
        MemoryReport {
            limit: self.limit.load(Ordering::Relaxed) as u64,
            index: self.index.memory_bytes() as u64,
            index_slots: self.index.slots() as u64,
            segments: (resident - free) as u64 * segment_bytes,
            live: counters.item_bytes_now,
            free: free as u64 * segment_bytes,
            leased: self.segments().leased_bytes() as u64,
            ghost: self.room.eviction.memory_bytes() as u64,
            accounted: self.accounted.load(Ordering::Relaxed).max(0) as u64,
            fixed: self.fixed_bytes() as u64,
            segment_bytes,
        }
    }

    /// The highest version that writers have given: all that this thread knows to have been given
    /// count, and perhaps later ones.
    pub fn last_cas(&self) -> Cas {
        self.config.cas_floor.max(self.ledger.last_cas())
    }

    /// Writers give versions above this one, if they have seen anything that this thread did
    /// afterwards.
    pub fn raise_versions(&self, above: Cas) {
        self.ledger.raise_cas(above);
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("config", &self.config)
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}

fn check(config: &StoreConfig) -> Result<(), StoreError> {
    if config.memory_bytes_max < 1 << 20 {
        return Err(StoreError::Config("at least 1 MiB of memory is needed"));
    }
    if config.memory_bytes_max > MEMORY_BYTES_LIMIT {
        return Err(StoreError::Config(
            "at most 8388607 MiB (8 TiB less 1 MiB) are possible",
        ));
    }
    if config.item_bytes_max > ITEM_BYTES_LIMIT {
        return Err(StoreError::Config("items are at most 128 MiB"));
    }
    Ok(())
}

/// How far a limit may be raised.
fn limit_max(limit: usize) -> usize {
    limit.saturating_mul(GROWTH_MAX).min(MEMORY_BYTES_LIMIT)
}

/// Slots that the index may grow to under a limit. From 768 GiB on the number of buckets ends
/// first: 31 billion items are found, so those of a full store must take 36 bytes each at 1 TiB,
/// which all do, and 283 at the greatest limit.
fn index_slots_max(limit: usize) -> usize {
    (limit / INDEX_SHARE / 8).min(Index::<Items>::SLOTS_MAX)
}

/// A power of two that cuts `limit` into about a thousand segments.
pub(crate) fn segment_bytes_for(limit: usize) -> usize {
    let wanted = (limit / SEGMENTS_WANTED).max(1);
    (1 << wanted.ilog2()).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

fn index_error(error: TableError) -> StoreError {
    match error {
        TableError::Memory(error) => StoreError::Memory(error),
        TableError::TooManySlots => StoreError::Config("the index would have too many slots"),
        TableError::Config(what) => StoreError::Config(what),
        _ => StoreError::Config("the index cannot be made"),
    }
}
