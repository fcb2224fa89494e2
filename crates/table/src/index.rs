//! The store's index: from a 64-bit hash to a reference to an item that lies elsewhere.
//!
//! One bucket is one cache line of eight slots, one slot is one word (after MICA and MemC3; CK-46,
//! CK-47):
//!
//! ```text
//!   63      60 59                 40 39                                   0
//!   |  mark  |        tag          |              reference               |   0 = empty
//! ```
//!
//! The tag is 20 bits of hash that do not follow from the bucket, so a lookup follows a wrong
//! reference once in some 60,000 lookups. The mark is a small saturating counter for the owner of
//! the items (how often one was used). Keys are not here: the owner compares them, and tells the
//! index an item's hash when it must move (`Resolver`).
//!
//! A reader holds no lock, so the item behind a reference may be reused while it looks. It need not
//! care: an item is reused only after `remove_if` changed the version of a stripe that the reader
//! watches, and then the read is repeated.

use curtail_memory::{Pages, Region, prefetch::prefetch};
use curtail_types::KeyHash;

use crate::{
    counters::{Counters, Event},
    cuckoo::{Cuckoo, HeldPair, Tuning},
    error::{Full, NoRoom, TableError},
    layout::{Layout, Place},
    locks::{Held, Locks, Stripes, VersionedSpin},
    search::Search,
    sync::{AtomicU64, Ordering},
};

const SLOTS: usize = 8;
/// Slots per stripe unless told: docs/research/table.md compares.
const STRIPE_SLOTS: usize = 128;
const REFERENCE_BITS: u32 = 40;
const REFERENCE_MASK: u64 = (1 << REFERENCE_BITS) - 1;
const TAG_MASK: u64 = ((1 << 20) - 1) << REFERENCE_BITS;
const MARK_SHIFT: u32 = 60;

/// The greatest mark; counting stops there.
pub const MARK_MAX: u8 = 15;

/// Where an item is: 40 bits, never zero, whose meaning is the owner's.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Reference(u64);

impl Reference {
    /// The greatest value plus one.
    pub const END: u64 = 1 << REFERENCE_BITS;

    /// A reference, if `value` is neither zero nor above 40 bits.
    #[inline(always)]
    pub const fn new(value: u64) -> Option<Self> {
        if value != 0 && value < Self::END {
            Some(Self(value))
        } else {
            None
        }
    }

    /// The value it was made of.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What the index must be able to ask about the items it refers to.
///
/// Both may be called without a lock and with a reference that is out of date: they must be safe
/// then, and may answer anything.
pub trait Resolver {
    /// The hash of the item's key, the same that it was inserted under.
    fn hash_of(&self, reference: Reference) -> KeyHash;
    /// Asks the processor for the lines that `hash_of` reads.
    fn prefetch(&self, reference: Reference);
}

/// How to make an [`Index`].
#[derive(Clone, Copy, Debug)]
pub struct IndexConfig {
    /// Slots at first; rounded up to whole buckets of eight.
    pub slots_initial: usize,
    /// Slots it may grow to.
    pub slots_max: usize,
    /// Slots there is address space for, which costs nothing; `set_slots_max` may go up to here.
    /// At least `slots_max` is reserved, whatever this says.
    pub slots_reserved: usize,
    /// The share of occupied slots above which the table grows: 0.1 to 0.96.
    pub fill_target: f64,
    /// What pages to ask for.
    pub pages: Pages,
    /// Slots that share a stripe of locks, until there are 65,536 stripes; rounded to a power of
    /// two of buckets. 0 chooses.
    pub stripe_slots: usize,
}

impl Default for IndexConfig {
    fn default() -> Self {
        Self {
            slots_initial: 1 << 16,
            slots_max: 1 << 30,
            slots_reserved: 0,
            fill_target: 0.92,
            pages: Pages::Huge,
            stripe_slots: 0,
        }
    }
}

/// A concurrent hash table of references. Shared by reference; every operation takes `&self`.
pub struct Index<R: Resolver> {
    table: Cuckoo<Lines<R>, VersionedSpin>,
}

impl<R: Resolver> Index<R> {
    /// The most slots that an index can have: half a hash, 32 bits, is the number of a bucket.
    pub const SLOTS_MAX: usize = u32::MAX as usize * SLOTS;

    /// An empty index.
    ///
    /// # Errors
    /// If the configuration is out of range or the address space is refused.
    pub fn new(config: IndexConfig, resolver: R) -> Result<Self, TableError> {
        if !(0.1..=0.96).contains(&config.fill_target) {
            return Err(TableError::Config("fill_target is 0.1 to 0.96"));
        }
        let buckets = config.slots_initial.div_ceil(SLOTS).max(1);
        let slots_reserved = config.slots_max.max(config.slots_reserved);
        let buckets_reserved = slots_reserved.div_ceil(SLOTS).max(buckets);
        if buckets_reserved * SLOTS > Self::SLOTS_MAX {
            return Err(TableError::TooManySlots);
        }
        let stripe_slots = match config.stripe_slots {
            0 => STRIPE_SLOTS,
            chosen => chosen,
        };
        let stripe_buckets = stripe_slots.div_ceil(SLOTS).next_power_of_two();
        let stripes = Stripes::new(stripe_buckets, buckets_reserved).map_err(TableError::Memory)?;
        let lines = Lines {
            memory: Region::new(buckets_reserved * SLOTS, config.pages)
                .map_err(TableError::Memory)?,
            resolver,
        };
        let tuning = Tuning {
            search: Search::Breadth,
            prefetch: true,
            fill_per_1024: (config.fill_target * 1024.0) as u64,
            #[cfg(test)]
            bug: None,
        };
        let index = Self {
            table: Cuckoo::new(lines, stripes, buckets, tuning),
        };
        index.set_slots_max(config.slots_max);
        Ok(index)
    }

    /// Who knows the items.
    #[inline]
    pub fn resolver(&self) -> &R {
        &self.table.layout.resolver
    }

    /// Asks for both bucket lines of `hash`: the first stage of a batch.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.table.prefetch(hash.0);
    }

    /// Asks for the item that `hash` may belong to (the first whose tag matches: one in some 60,000
    /// is another's): the second stage of a batch. Returns where it is, for
    /// [`Index::read_hinted`].
    #[inline]
    pub fn prefetch_candidates(&self, hash: KeyHash) -> Hint {
        let tag = tag_of(hash);
        for bucket in self.table.pair(hash.0) {
            for (slot, word) in self.table.layout.line(bucket).iter().enumerate() {
                if let Some(reference) = matching(word.load(Ordering::Relaxed), tag) {
                    self.resolver().prefetch(reference);
                    return Hint(Place::new(bucket, slot));
                }
            }
        }
        Hint::default()
    }

    /// What is at the hint's place now, if anything.
    #[inline]
    pub fn at(&self, hint: Hint) -> Option<Reference> {
        let word = self.table.layout.line(hint.0.bucket()).get(hint.0.slot())?;
        Reference::new(word.load(Ordering::Relaxed) & REFERENCE_MASK)
    }

    /// An optimistic read. `probe` is called for every reference whose tag matches; `Some` ends the
    /// scan. The whole is repeated if a writer came between, and after 64 repeats runs under the
    /// key's locks; so `probe` must bear items that are being changed and must start over each time
    /// it is called. `None` is a validated miss.
    #[inline]
    pub fn read<T>(
        &self,
        hash: KeyHash,
        mut probe: impl FnMut(Reference) -> Option<T>,
    ) -> Option<T> {
        let tag = tag_of(hash);
        let lines = &self.table.layout;
        let read = self
            .table
            .try_read(hash.0, |pair| lines.scan(pair, tag, &mut probe));
        read.unwrap_or_else(|| {
            self.table
                .read_again(hash.0, |pair| lines.scan(pair, tag, &mut probe))
        })
    }

    /// As [`Index::read`], looking first at the place of `hint`: nearly always the item is there,
    /// and the other slots need no look. `probe` is told where the item is, for
    /// [`Index::raise_mark`].
    ///
    /// What is at the hint's place is validated by the stripe of its bucket alone, whatever the
    /// key's buckets are now: if the key's item is there it is nowhere else, and whoever changes
    /// it, moves it or takes it away changes that version.
    #[inline]
    pub fn read_hinted<T>(
        &self,
        hash: KeyHash,
        hint: Hint,
        mut probe: impl FnMut(Reference, Hint) -> Option<T>,
    ) -> Option<T> {
        let tag = tag_of(hash);
        if hint.0.slot() < SLOTS {
            let at_hint = self.table.try_read_in(hint.0.bucket(), || {
                let reference = matching(self.table.layout.entry(hint.0), tag)?;
                probe(reference, hint)
            });
            match at_hint {
                Some(Some(result)) => return Some(result),
                Some(None) => {}
                None => self.table.tallies.count(Event::ReadRetry),
            }
        }
        let mut scan = |pair| self.table.layout.scan_placed(pair, tag, &mut probe);
        let read = self.table.try_read(hash.0, &mut scan);
        read.unwrap_or_else(|| self.table.read_again(hash.0, scan))
    }

    /// The first half of [`Index::read_hinted`]: an optimistic look at the place of `hint` and
    /// nowhere else. `probe` is called at most once, with the reference there, if its tag matches,
    /// and its mark. `None` says nothing about the key.
    #[inline(always)]
    pub fn read_at<T>(
        &self,
        hash: KeyHash,
        hint: Hint,
        probe: impl FnOnce(Reference, u8) -> Option<T>,
    ) -> Option<T> {
        if hint.0.slot() >= SLOTS {
            return None;
        }
        let look = || {
            let word = self.table.layout.entry(hint.0);
            probe(matching(word, tag_of(hash))?, mark_in(word))
        };
        let read = self.table.try_read_in(hint.0.bucket(), look);
        if read.is_none() {
            self.table.tallies.count(Event::ReadRetry);
        }
        read?
    }

    /// Raises the mark of the item that a read found at `hint`: `raise` is given the mark and says
    /// what it should be, at most [`MARK_MAX`]. Lockless; of two at once one may be lost, and if
    /// the item has moved nothing happens.
    #[inline]
    pub fn raise_mark(&self, hint: Hint, reference: Reference, raise: impl FnOnce(u8) -> u8) {
        let line = self.table.layout.line(hint.0.bucket());
        let Some(slot) = line.get(hint.0.slot()) else {
            return;
        };
        let word = slot.load(Ordering::Relaxed);
        if word & REFERENCE_MASK != reference.0 {
            return;
        }
        let (mark, raised) = (mark_in(word), raise(mark_in(word)).min(MARK_MAX));
        if raised > mark {
            let marked = word & (TAG_MASK | REFERENCE_MASK) | u64::from(raised) << MARK_SHIFT;
            // Losing to a writer or to another reader is fine: the mark is a rough measure.
            let _ = slot.compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Locks the key's two stripes.
    #[inline]
    pub fn lock(&self, hash: KeyHash) -> Locked<'_, R> {
        Locked::new(&self.table, hash, self.table.hold(hash.0))
    }

    /// Locks the key's two stripes with a free slot in one of its buckets, which may displace other
    /// items or grow the table. A caller that expects to replace an item should first `lock` and
    /// `find`, since a replacement needs no room.
    ///
    /// # Errors
    /// If there is no cuckoo path to a free slot and the table may not grow.
    #[inline]
    pub fn lock_with_room(&self, hash: KeyHash) -> Result<Locked<'_, R>, Full> {
        let locked = self.table.hold_with_room(hash.0)?;
        Ok(Locked::new(&self.table, hash, locked))
    }

    /// Removes the item if it is there; returns its mark.
    pub fn remove_if(&self, hash: KeyHash, reference: Reference) -> Option<u8> {
        let mut locked = self.lock(hash);
        let position = locked.find(|found| found == reference)?;
        let mark = locked.mark(position);
        locked.remove(position);
        Some(mark)
    }

    /// Grows by up to this many buckets of eight slots; returns how many were added.
    pub fn grow(&self, buckets: usize) -> usize {
        self.table.grow(buckets)
    }

    /// Whether the table is fuller than its target and may grow: a cheap estimate, for callers that
    /// insert under [`Index::lock`] and grow by themselves.
    #[inline]
    pub fn is_over_target(&self) -> bool {
        self.table.is_over_target()
    }

    /// Sets how far the table may grow, up to what was reserved. It does not shrink.
    pub fn set_slots_max(&self, slots: usize) {
        let buckets = (slots / SLOTS).min(self.table.layout.buckets_max());
        self.table.buckets_max.store(buckets, Ordering::Relaxed);
    }

    /// Calls `visit` for every item: each that is there throughout at least once, one that moves
    /// perhaps twice. No lock is held during the call; one walk runs at a time.
    pub fn for_each(&self, mut visit: impl FnMut(Reference)) {
        self.table
            .for_each(|word| visit(Reference(word & REFERENCE_MASK)));
    }

    /// Visits the references in `buckets_max` buckets from `from` on: bounded work for listings.
    /// Returns where to go on, or nothing at the end. An item that moves between two calls may be
    /// missed or seen twice.
    pub fn for_some(
        &self,
        from: usize,
        buckets_max: usize,
        mut visit: impl FnMut(Reference),
    ) -> Option<usize> {
        self.table.for_some(from, buckets_max, |word| {
            visit(Reference(word & REFERENCE_MASK));
        })
    }

    /// Removes all items, with every lock held meanwhile.
    pub fn clear(&self) {
        self.table.clear();
    }

    /// Items; exact when nobody writes. Sums over the stripes: not for every request.
    pub fn len(&self) -> usize {
        self.table.len() as usize
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots now.
    pub fn slots(&self) -> usize {
        self.table.size().buckets() * SLOTS
    }

    /// Whether [`Index::supply`] has something to do.
    #[inline]
    pub fn is_short(&self, ahead_bytes: usize) -> bool {
        self.table
            .layout
            .memory
            .is_short(self.slots(), self.ahead(ahead_bytes))
    }

    /// Has the next 2 MiB of buckets backed by a huge page if fewer than `ahead_bytes` are ready;
    /// whether there is more to do. May take milliseconds; one thread at a time.
    pub fn supply(&self, ahead_bytes: usize) -> bool {
        self.table
            .layout
            .memory
            .supply(self.slots(), self.ahead(ahead_bytes))
    }

    /// Slots that `ahead_bytes` hold, of those that there may still be.
    #[inline]
    fn ahead(&self, ahead_bytes: usize) -> usize {
        let slots_max = self.table.buckets_max.load(Ordering::Relaxed) * SLOTS;
        (ahead_bytes / 8).min(slots_max.saturating_sub(self.slots()))
    }

    /// Bytes of memory in use for buckets and locks.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// What the table has done so far.
    pub fn counters(&self) -> Counters {
        self.table.counters()
    }
}

/// Where an item was when it was last seen, and most of the time still is; or, by default, nowhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hint(Place);

impl Default for Hint {
    fn default() -> Self {
        Self(Place::new(0, SLOTS))
    }
}

/// A found slot, valid as long as the [`Locked`] that gave it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Position(Place);

/// A key's two buckets, locked against other writers. Dropping unlocks; readers are made to repeat
/// only if something was changed.
pub struct Locked<'a, R: Resolver> {
    table: &'a Cuckoo<Lines<R>, VersionedSpin>,
    held: Held<'a, VersionedSpin>,
    pair: [usize; 2],
    hash: KeyHash,
}

impl<'a, R: Resolver> Locked<'a, R> {
    #[inline]
    fn new(
        table: &'a Cuckoo<Lines<R>, VersionedSpin>,
        hash: KeyHash,
        locked: HeldPair<'a, VersionedSpin>,
    ) -> Self {
        let HeldPair { held, pair } = locked;
        Self {
            table,
            held,
            pair,
            hash,
        }
    }

    #[inline]
    fn slot(&self, position: Position) -> &AtomicU64 {
        &self.table.layout.line(position.0.bucket())[position.0.slot()]
    }

    /// The item that `is_it` recognises among those whose tag matches.
    #[inline]
    pub fn find(&mut self, mut is_it: impl FnMut(Reference) -> bool) -> Option<Position> {
        let tag = tag_of(self.hash);
        for bucket in self.pair {
            for (slot, word) in self.table.layout.line(bucket).iter().enumerate() {
                if let Some(reference) = matching(word.load(Ordering::Relaxed), tag)
                    && is_it(reference)
                {
                    return Some(Position(Place::new(bucket, slot)));
                }
            }
        }
        None
    }

    /// The reference at a position.
    #[inline]
    pub fn reference(&self, position: Position) -> Reference {
        Reference(self.slot(position).load(Ordering::Relaxed) & REFERENCE_MASK)
    }

    /// The mark at a position.
    #[inline]
    pub fn mark(&self, position: Position) -> u8 {
        mark_in(self.slot(position).load(Ordering::Relaxed))
    }

    /// Sets the mark, at most [`MARK_MAX`].
    #[inline]
    pub fn set_mark(&mut self, position: Position, mark: u8) {
        let slot = self.slot(position);
        let unmarked = slot.load(Ordering::Relaxed) & (TAG_MASK | REFERENCE_MASK);
        slot.store(
            unmarked | u64::from(mark.min(MARK_MAX)) << MARK_SHIFT,
            Ordering::Relaxed,
        );
    }

    /// Puts another reference for the same key in place; the mark stays.
    #[inline]
    pub fn replace(&mut self, position: Position, reference: Reference) {
        let slot = self.slot(position);
        let word = slot.load(Ordering::Relaxed);
        slot.store(word & !REFERENCE_MASK | reference.0, Ordering::Relaxed);
        self.held
            .changed(self.table.locks.stripes().of_bucket(position.0.bucket()));
    }

    /// Removes the item at a position.
    #[inline]
    pub fn remove(&mut self, position: Position) {
        self.table.remove(&mut self.held, position.0);
    }

    /// Whether one of the two buckets has a free slot, so that [`Locked::insert`] succeeds.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.table.free_slot(self.pair).is_some()
    }

    /// Adds an item, with mark 0. The caller has made sure, by `find`, that its key is not there.
    ///
    /// # Errors
    /// If both buckets are full, which `lock_with_room` rules out.
    #[inline]
    pub fn insert(&mut self, reference: Reference) -> Result<Position, NoRoom> {
        let place = self.table.free_slot(self.pair).ok_or(NoRoom)?;
        let word = tag_of(self.hash) | reference.0;
        self.slot(Position(place)).store(word, Ordering::Relaxed);
        self.table.inserted(&mut self.held, place.bucket());
        Ok(Position(place))
    }

    /// Says that the caller changed the item at a position in place: readers of it must repeat.
    #[inline]
    pub fn changed(&mut self, position: Position) {
        // The version of its own bucket: who reads at a hint checks no other.
        self.held
            .changed(self.table.locks.stripes().of_bucket(position.0.bucket()));
    }
}

/// The layout: a cache line of eight words per bucket.
struct Lines<R> {
    memory: Region,
    resolver: R,
}

impl<R> Lines<R> {
    #[inline(always)]
    fn line(&self, bucket: usize) -> &[AtomicU64; SLOTS] {
        &self.memory.words().as_chunks::<SLOTS>().0[bucket]
    }
}

impl<R> Lines<R> {
    /// The first answer of `probe` to the references of a pair of buckets whose tag matches.
    #[inline(always)]
    fn scan<T>(
        &self,
        pair: [usize; 2],
        tag: u64,
        probe: &mut impl FnMut(Reference) -> Option<T>,
    ) -> Option<T> {
        for bucket in pair {
            for slot in self.line(bucket) {
                if let Some(reference) = matching(slot.load(Ordering::Relaxed), tag)
                    && let Some(result) = probe(reference)
                {
                    return Some(result);
                }
            }
        }
        None
    }
}

impl<R> Lines<R> {
    /// The same, telling `probe` where each reference is.
    #[inline]
    fn scan_placed<T>(
        &self,
        pair: [usize; 2],
        tag: u64,
        probe: &mut impl FnMut(Reference, Hint) -> Option<T>,
    ) -> Option<T> {
        pair.into_iter().find_map(|bucket| {
            self.line(bucket)
                .iter()
                .enumerate()
                .find_map(|(slot, word)| {
                    let reference = matching(word.load(Ordering::Relaxed), tag)?;
                    probe(reference, Hint(Place::new(bucket, slot)))
                })
        })
    }
}

impl<R: Resolver> Layout for Lines<R> {
    type Entry = u64;
    const SLOTS: usize = SLOTS;
    const OCCUPANCY_APART: bool = false;

    fn buckets_max(&self) -> usize {
        self.memory.words().len() / SLOTS
    }

    #[inline]
    fn occupied(&self, bucket: usize) -> u32 {
        self.line(bucket)
            .iter()
            .enumerate()
            .fold(0, |occupied, (slot, word)| {
                occupied | u32::from(word.load(Ordering::Relaxed) != 0) << slot
            })
    }

    #[inline]
    fn hash_at(&self, place: Place) -> u64 {
        let word = self.entry(place);
        Reference::new(word & REFERENCE_MASK).map_or(0, |it| self.resolver.hash_of(it).0)
    }

    #[inline]
    fn entry(&self, place: Place) -> u64 {
        self.line(place.bucket())[place.slot()].load(Ordering::Relaxed)
    }

    #[inline]
    fn relocate(&self, from: Place, to: Place) {
        let word = self.entry(from);
        self.line(to.bucket())[to.slot()].store(word, Ordering::Relaxed);
        self.clear(from);
    }

    #[inline]
    fn clear(&self, place: Place) {
        self.line(place.bucket())[place.slot()].store(0, Ordering::Relaxed);
    }

    #[inline]
    fn prefetch(&self, bucket: usize) {
        prefetch(self.line(bucket));
    }

    #[inline]
    fn prefetch_residents(&self, bucket: usize) {
        for slot in self.line(bucket) {
            let word = slot.load(Ordering::Relaxed);
            if let Some(reference) = Reference::new(word & REFERENCE_MASK) {
                self.resolver.prefetch(reference);
            }
        }
    }

    fn touch(&self, bucket: usize) {
        // A write, so that the kernel supplies the page now and not under a lock; adding nothing,
        // because another thread may be filling the bucket already.
        self.line(bucket)[0].fetch_or(0, Ordering::Relaxed);
    }

    fn bytes(&self, buckets: usize) -> usize {
        buckets * size_of::<[AtomicU64; SLOTS]>()
    }
}

/// 20 bits that depend on all of the hash, in a slot's tag position.
#[inline(always)]
fn tag_of(hash: KeyHash) -> u64 {
    (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) << REFERENCE_BITS
}

/// The reference in a slot if its tag matches and it is not empty.
#[inline(always)]
fn matching(word: u64, tag: u64) -> Option<Reference> {
    let reference = word & REFERENCE_MASK;
    (word & TAG_MASK == tag && reference != 0).then_some(Reference(reference))
}

#[inline(always)]
fn mark_in(word: u64) -> u8 {
    (word >> MARK_SHIFT) as u8
}

#[cfg(test)]
mod tests;
