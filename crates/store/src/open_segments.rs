//! The open segments that new items are appended to: one per queue, TTL bucket and group of
//! writers.
//!
//! A writer bumps the cursor of its group's open segment; when that is full, one thread seals it
//! and opens another. Groups keep writers off each other's cache lines where memory allows that
//! many open segments. All segments of one generation are older than a flush or younger, never
//! both.

use curtail_segments::{Allocation, NoRoom, SegmentClaim, SegmentId, Segments, State};
use curtail_types::{Expiry, Now};

use crate::{
    eviction::{Eviction, Queue},
    sync::{Arc, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, lock},
    ttl_buckets::{TtlBuckets, expiry_note},
};

/// One of the places that have an open segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot(u16);

/// Nothing could be opened: make room first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NoSegment;

/// Open segments.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) segments: Arc<Segments>,
    pub(crate) ttl: TtlBuckets,
    groups: usize,
    open: Box<[AtomicU32]>,
    opening: Mutex<()>,
    generation: AtomicU32,
    pub(crate) eviction: Eviction,
    /// Segments opened so far.
    opened: AtomicU64,
    /// Whole segments that belong to large values of each queue.
    wholes: [AtomicI64; 2],
    /// Why an item may be gone that has not ended: [`FLUSHED`], [`CLEARED`], both or 0.
    gone: AtomicU8,
    /// When the last flush was, in Unix seconds.
    flushed_seconds: AtomicU32,
}

/// There may be segments of an older generation.
const FLUSHED: u8 = 1;

/// There may be items of an older incarnation of their slice.
const CLEARED: u8 = 2;

/// How long what a flush left lies untouched, if its room is not needed before.
const FLUSH_SETTLES_SECONDS: u32 = 2;

/// Segments that only eviction and compaction may take, so that they can always finish.
pub(crate) const RESERVE: usize = 3;

/// Open segments should take at most this share of the memory.
const OPEN_SHARE: usize = 8;

impl Room {
    pub(crate) fn new(
        segments: Arc<Segments>,
        eviction: Eviction,
        segments_now: usize,
        writers: usize,
    ) -> Self {
        let ttl = TtlBuckets::for_segments(segments_now);
        let groups = (segments_now / OPEN_SHARE / (2 * ttl.count)).clamp(1, writers.clamp(1, 64));
        Self {
            segments,
            ttl,
            groups,
            // One more, for what is promised: see `promises.rs`.
            open: (0..(groups + 1) * 2 * ttl.count)
                .map(|_| AtomicU32::new(0))
                .collect(),
            opening: Mutex::new(()),
            generation: AtomicU32::new(1),
            eviction,
            opened: AtomicU64::new(0),
            wholes: [const { AtomicI64::new(0) }; 2],
            gone: AtomicU8::new(0),
            flushed_seconds: AtomicU32::new(0),
        }
    }

    /// The slot of a group for items of a queue that end at `expiry`.
    #[inline]
    pub(crate) fn slot(&self, group: usize, queue: Queue, expiry: Expiry, now: Now) -> Slot {
        self.slot_of(group % self.groups, queue, expiry, now)
    }

    /// The slot for items that room was promised for, which shares its segments with nobody.
    pub(crate) fn promised_slot(&self, queue: Queue, expiry: Expiry, now: Now) -> Slot {
        self.slot_of(self.groups, queue, expiry, now)
    }

    /// How many of those there are.
    pub(crate) fn promised_slots(&self) -> usize {
        2 * self.ttl.count
    }

    #[inline]
    fn slot_of(&self, group: usize, queue: Queue, expiry: Expiry, now: Now) -> Slot {
        let index = (group * 2 + queue as usize) * self.ttl.count + self.ttl.of(expiry, now);
        Slot(index as u16)
    }

    fn queue_of(&self, slot: Slot) -> usize {
        slot.0 as usize / self.ttl.count % 2
    }

    /// Takes `words` words for an item that ends at `expiry`, in a new segment if `claim` allows
    /// it.
    #[inline]
    pub(crate) fn allocate(
        &self,
        slot: Slot,
        words: usize,
        expiry: Expiry,
        claim: SegmentClaim,
    ) -> Result<Allocation, NoSegment> {
        debug_assert!(words <= self.segments.segment_words());
        loop {
            let open = self.open[slot.0 as usize].load(Ordering::Acquire);
            if let Some(id) = self.segments.segment(open)
                && let Ok(allocation) = self.segments.allocate(id, slot.0, words)
            {
                self.segments.note_expiry(id, expiry_note(expiry));
                return Ok(allocation);
            }
            self.reopen(slot, open, claim)?;
        }
    }

    /// Takes all that the open segment has left if that is at least `least` words, else `words`
    /// words or the whole of a new one, whichever is less.
    pub(crate) fn allocate_rest(
        &self,
        slot: Slot,
        words: usize,
        least: usize,
        (expiry, claim): (Expiry, SegmentClaim),
    ) -> Result<Allocation, NoSegment> {
        loop {
            let open = self.open[slot.0 as usize].load(Ordering::Acquire);
            if let Some(id) = self.segments.segment(open) {
                let mut wanted = words.min(self.segments.segment_words());
                while wanted >= least.min(words) {
                    match self.segments.allocate(id, slot.0, wanted) {
                        Ok(allocation) => {
                            self.segments.note_expiry(id, expiry_note(expiry));
                            return Ok(allocation);
                        }
                        Err(NoRoom::Full(left)) => wanted = left,
                        Err(NoRoom::Closed) => break,
                    }
                }
            }
            self.reopen(slot, open, claim)?;
        }
    }

    /// Replaces the open segment `old` of a slot by a fresh one, unless somebody else has.
    #[cold]
    fn reopen(&self, slot: Slot, old: u32, claim: SegmentClaim) -> Result<(), NoSegment> {
        let _opening = lock(&self.opening);
        let place = &self.open[slot.0 as usize];
        if place.load(Ordering::Relaxed) != old {
            return Ok(());
        }
        let generation = self.generation.load(Ordering::Relaxed);
        let queue = self.queue_of(slot);
        let id = self
            .segments
            .open(slot.0, queue, generation, claim)
            .ok_or(NoSegment)?;
        self.note_opened(id, Queue::from_index(queue));
        // Release: pairs with the Acquire in `allocate`: the header is ready.
        place.store(id.get(), Ordering::Release);
        if let Some(old) = self.segments.segment(old) {
            self.segments.seal(old, queue);
        }
        Ok(())
    }

    /// Notes when a segment was opened (or restored), for the policy.
    pub(crate) fn note_opened(&self, id: SegmentId, queue: Queue) {
        let order = self.opened.fetch_add(1, Ordering::Relaxed);
        self.segments
            .set_opened(id, order, self.eviction.clock(queue));
    }

    /// Seals the open segment of `queue` that was opened before all sealed ones, if there is one:
    /// a queue is in the order of opening, and a segment that nobody fills must not stay for ever.
    pub(crate) fn seal_if_oldest(&self, queue: Queue) {
        let _opening = lock(&self.opening);
        let oldest = self.segments.oldest(queue as usize);
        let sealed = oldest.map_or(u64::MAX, |id| self.segments.opened(id).0);
        let open = (0..self.open.len())
            .filter(|&index| self.queue_of(Slot(index as u16)) == queue as usize)
            .filter_map(|index| {
                let id = self
                    .segments
                    .segment(self.open[index].load(Ordering::Relaxed))?;
                (self.segments.filled_words(id) > 0).then_some((
                    self.segments.opened(id).0,
                    index,
                    id,
                ))
            })
            .min_by_key(|&(order, ..)| order);
        if let Some((order, index, id)) = open
            && order < sealed
        {
            // Release: pairs with the Acquire in `allocate`.
            self.open[index].store(0, Ordering::Release);
            self.segments.seal_first(id, queue as usize);
        }
    }

    /// Counts whole segments of a large value in or out of a queue.
    pub(crate) fn count_wholes(&self, queue: Queue, wholes: i64) {
        self.wholes[queue as usize].fetch_add(wholes, Ordering::Relaxed);
    }

    /// The bytes of a queue: its sealed segments, and the whole segments of its large values.
    pub(crate) fn queue_bytes(&self, queue: Queue) -> u64 {
        let wholes = self.wholes[queue as usize].load(Ordering::Relaxed).max(0) as u64;
        let sealed = self.segments.queued(queue as usize) as u64;
        (sealed + wholes) * self.segments.segment_bytes() as u64
    }

    /// Seals open segments that hold something, so that they can be evicted; returns how many.
    pub(crate) fn seal_all(&self) -> usize {
        let _opening = lock(&self.opening);
        self.seal_all_held(|filled| filled > 0)
    }

    fn seal_all_held(&self, suits: impl Fn(usize) -> bool) -> usize {
        let mut sealed = 0;
        for (index, place) in self.open.iter().enumerate() {
            if let Some(id) = self.segments.segment(place.load(Ordering::Relaxed))
                && suits(self.segments.filled_words(id))
            {
                // Release: pairs with the Acquire in `allocate`.
                place.store(0, Ordering::Release);
                self.segments.seal(id, self.queue_of(Slot(index as u16)));
                sealed += 1;
            }
        }
        sealed
    }

    // ---- generations ----

    /// Makes everything that is stored now old.
    pub(crate) fn flush(&self, now: Now) {
        let _opening = lock(&self.opening);
        self.flushed_seconds
            .store(now.unix_seconds(), Ordering::Relaxed);
        self.gone.fetch_or(FLUSHED, Ordering::Relaxed);
        // Release: pairs with the Acquire in `may_be_gone`, so that a client that is answered after
        // the flush sees it.
        self.generation.fetch_add(1, Ordering::Release);
        self.seal_all_held(|_| true);
    }

    /// Whether the last flush is some time ago, so that what it left is taken back without being
    /// asked for. Until then a request for such an item finds it flushed, and is counted so.
    pub(crate) fn is_flush_settled(&self, now: Now) -> bool {
        let flushed = self.flushed_seconds.load(Ordering::Relaxed);
        now.unix_seconds().abs_diff(flushed) >= FLUSH_SETTLES_SECONDS
    }

    /// Whether anything in the store may have been flushed or cleared.
    #[inline]
    pub(crate) fn may_be_gone(&self) -> bool {
        // Acquire: pairs with the Release in `flush` and in `note_cleared`.
        self.gone.load(Ordering::Acquire) != 0
    }

    /// Whether what lies at `reference` was written before the last flush.
    pub(crate) fn is_flushed(&self, reference: u64) -> bool {
        // Acquire: pairs with the Release in `flush`.
        self.gone.load(Ordering::Acquire) & FLUSHED != 0
            && self
                .segments
                .segment_of(reference)
                .is_some_and(|id| self.is_old(id))
    }

    /// Notes whether items may be of an older incarnation of their slice.
    pub(crate) fn note_cleared(&self, are_some: bool) {
        // Release: pairs with the Acquire in `may_be_gone`.
        match are_some {
            true => self.gone.fetch_or(CLEARED, Ordering::Release),
            false => self.gone.fetch_and(!CLEARED, Ordering::Release),
        };
    }

    /// Whether they may be.
    pub(crate) fn may_be_cleared(&self) -> bool {
        self.gone.load(Ordering::Relaxed) & CLEARED != 0
    }

    /// Whether a segment is of an older generation.
    pub(crate) fn is_old(&self, id: SegmentId) -> bool {
        self.segments.generation(id) != self.generation()
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Continues the counting of a restored store.
    pub(crate) fn set_generation(&self, generation: u32) {
        self.generation.store(generation, Ordering::Relaxed);
        self.gone.fetch_or(FLUSHED, Ordering::Relaxed);
    }

    /// Notes that a look at every segment found none of a generation before `generation`.
    pub(crate) fn none_is_old(&self, generation: u32) {
        let _opening = lock(&self.opening);
        if self.generation() == generation {
            self.gone.fetch_and(!FLUSHED, Ordering::Relaxed);
        }
    }

    /// Whether a segment holds items.
    pub(crate) fn is_in_use(&self, id: SegmentId) -> bool {
        matches!(
            self.segments.state(id),
            State::Open | State::Sealed | State::Draining
        )
    }
}
