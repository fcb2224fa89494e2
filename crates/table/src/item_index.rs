//! The store's index: from a 64-bit hash to a reference to an item that lies elsewhere.
//!
//! A reader holds no lock, so the item behind a reference may be reused while it looks. It need not
//! care: an item is reused only after `remove_if` changed the version of a stripe that the reader
//! watches, and then the read is repeated. `buckets.rs` says what a slot holds.

use std::sync::Arc;

use curtail_memory::Pages;
use curtail_types::KeyHash;

use crate::{
    buckets::{
        Buckets, MARK_MAX, Place, REFERENCE_MASK, Reference, Resolver, SLOTS, mark_in, matching,
        reference_in, tag_of, with_mark,
    },
    counters::{Event, Tallies},
    cuckoo_table::{HeldPair, Size, Tuning},
    error::{Full, NoRoom, TableError},
    locks::{Held, Locks, Stripes, VersionedSpin},
    search::Search,
    sync::{AtomicU64, AtomicUsize, Ordering, OwnLine},
    walk::Walks,
};

/// Slots per stripe unless told: docs/research/table.md compares.
const STRIPE_SLOTS: usize = 128;

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
    /// How to look for a cuckoo path.
    pub search: Search,
    /// Whether that search prefetches what it will look at.
    pub prefetch: bool,
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
            search: Search::Breadth,
            prefetch: true,
        }
    }
}

/// A concurrent hash table of references. Shared by reference; every operation takes `&self`.
pub struct Index<R: Resolver, C: Locks = VersionedSpin> {
    pub(crate) buckets: Buckets<R>,
    pub(crate) locks: C,
    pub(crate) tuning: Tuning,
    /// A `Size`: see the head of this file. Read by everybody, written by splits.
    pub(crate) size: OwnLine<AtomicU64>,
    pub(crate) buckets_max: AtomicUsize,
    /// Roughly the number of items: the sum of the stripes' counts as last reported.
    pub(crate) published: OwnLine<AtomicU64>,
    pub(crate) tallies: Tallies,
    /// Those who visit every item are told of moves (`walk.rs`).
    pub(crate) walks: Arc<Walks>,
}

impl<R: Resolver> Index<R> {
    /// The most slots that an index can have: half a hash, 32 bits, is the number of a bucket.
    pub const SLOTS_MAX: usize = u32::MAX as usize * SLOTS;

    /// An empty index.
    ///
    /// # Errors
    /// If the configuration is out of range or the address space is refused.
    pub fn new(config: IndexConfig, resolver: R) -> Result<Self, TableError> {
        Self::with_locks(config, resolver)
    }
}

impl<R: Resolver, C: Locks> Index<R, C> {
    /// An empty index whose writers exclude each other in another way.
    ///
    /// # Errors
    /// As [`Index::new`].
    pub fn with_locks(config: IndexConfig, resolver: R) -> Result<Self, TableError> {
        if !(0.1..=0.96).contains(&config.fill_target) {
            return Err(TableError::Config("fill_target is 0.1 to 0.96"));
        }
        let buckets = config.slots_initial.div_ceil(SLOTS).max(1);
        let slots_reserved = config.slots_max.max(config.slots_reserved);
        let buckets_reserved = slots_reserved.div_ceil(SLOTS).max(buckets);
        if buckets_reserved > u32::MAX as usize {
            return Err(TableError::TooManySlots);
        }
        let stripe_slots = match config.stripe_slots {
            0 => STRIPE_SLOTS,
            chosen => chosen,
        };
        let stripe_buckets = stripe_slots.div_ceil(SLOTS).next_power_of_two();
        let stripes = Stripes::new(stripe_buckets, buckets_reserved).map_err(TableError::Memory)?;
        let memory =
            Buckets::new(buckets_reserved, config.pages, resolver).map_err(TableError::Memory)?;
        let tuning = Tuning {
            search: config.search,
            prefetch: config.prefetch,
            fill_per_1024: (config.fill_target * 1024.0) as u64,
            #[cfg(test)]
            bug: None,
        };
        let index = Self {
            buckets_max: AtomicUsize::new(buckets_reserved),
            buckets: memory,
            locks: C::new(stripes),
            tuning,
            size: OwnLine(AtomicU64::new(Size::of(buckets).0)),
            published: OwnLine::default(),
            tallies: Tallies::default(),
            walks: Arc::default(),
        };
        index.set_slots_max(config.slots_max);
        Ok(index)
    }

    /// Who knows the items.
    #[inline]
    pub fn resolver(&self) -> &R {
        &self.buckets.resolver
    }

    /// Asks for both bucket lines of `hash`: the first stage of a batch.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        for bucket in self.pair(hash.0) {
            self.buckets.prefetch(bucket);
        }
    }

    /// Asks for the item that `hash` may belong to (the first whose tag matches: one in some 60,000
    /// is another's): the second stage of a batch. Returns where it is, for
    /// [`Index::read_hinted`].
    #[inline]
    pub fn prefetch_candidates(&self, hash: KeyHash) -> Hint {
        let tag = tag_of(hash);
        for bucket in self.pair(hash.0) {
            for (slot, word) in self.buckets.line(bucket).iter().enumerate() {
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
        let word = self.buckets.line(hint.0.bucket()).get(hint.0.slot())?;
        reference_in(word.load(Ordering::Relaxed))
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
        let buckets = &self.buckets;
        let read = self.try_read(hash.0, |pair| buckets.scan(pair, tag, &mut probe));
        read.unwrap_or_else(|| self.read_again(hash.0, |pair| buckets.scan(pair, tag, &mut probe)))
    }

    /// As [`Index::read`], looking first at the place of `hint`: nearly always the item is there,
    /// and the other slots need no look. `probe` is told where the item is, for
    /// [`Index::raise_mark`].
    ///
    /// What is at the hint's place is validated by the stripe of its bucket alone, whatever the
    /// key's buckets are now: if the key's item is there it is nowhere else, and changing,
    /// moving or removing it changes that version.
    #[inline]
    pub fn read_hinted<T>(
        &self,
        hash: KeyHash,
        hint: Hint,
        mut probe: impl FnMut(Reference, Hint) -> Option<T>,
    ) -> Option<T> {
        let tag = tag_of(hash);
        if hint.0.slot() < SLOTS {
            let at_hint = self.try_read_in(hint.0.bucket(), || {
                let reference = matching(self.buckets.word(hint.0), tag)?;
                probe(reference, hint)
            });
            match at_hint {
                Some(Some(result)) => return Some(result),
                Some(None) => {}
                None => self.tallies.count(Event::ReadRetry),
            }
        }
        let mut probe = |reference, place| probe(reference, Hint(place));
        let mut scan = |pair| self.buckets.scan_placed(pair, tag, &mut probe);
        let read = self.try_read(hash.0, &mut scan);
        read.unwrap_or_else(|| self.read_again(hash.0, scan))
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
            let word = self.buckets.word(hint.0);
            probe(matching(word, tag_of(hash))?, mark_in(word))
        };
        let read = self.try_read_in(hint.0.bucket(), look);
        if read.is_none() {
            self.tallies.count(Event::ReadRetry);
        }
        read?
    }

    /// Raises the mark of the item that a read found at `hint`: `raise` is given the mark and says
    /// what it should be, at most [`MARK_MAX`]. Lockless; of two at once one may be lost, and if
    /// the item has moved nothing happens.
    #[inline]
    pub fn raise_mark(&self, hint: Hint, reference: Reference, raise: impl FnOnce(u8) -> u8) {
        let line = self.buckets.line(hint.0.bucket());
        let Some(slot) = line.get(hint.0.slot()) else {
            return;
        };
        let word = slot.load(Ordering::Relaxed);
        if word & REFERENCE_MASK != reference.0 {
            return;
        }
        let (mark, raised) = (mark_in(word), raise(mark_in(word)).min(MARK_MAX));
        if raised > mark {
            let marked = with_mark(word, raised);
            // Losing to a writer or to another reader is fine: the mark is a rough measure.
            let _ = slot.compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Locks the key's two stripes.
    #[inline]
    pub fn lock(&self, hash: KeyHash) -> Locked<'_, R, C> {
        let whole = self.locks.begin();
        Locked::new(self, hash, self.hold(hash.0), whole)
    }

    /// Locks the key's two stripes with a free slot in one of its buckets, which may displace other
    /// items or grow the table. A caller that expects to replace an item should first `lock` and
    /// `find`, since a replacement needs no room.
    ///
    /// # Errors
    /// If there is no cuckoo path to a free slot and the table may not grow.
    #[inline]
    pub fn lock_with_room(&self, hash: KeyHash) -> Result<Locked<'_, R, C>, Full> {
        let whole = self.locks.begin();
        let locked = self.hold_with_room(hash.0)?;
        Ok(Locked::new(self, hash, locked, whole))
    }

    /// Removes the item if it is there; returns its mark.
    pub fn remove_if(&self, hash: KeyHash, reference: Reference) -> Option<u8> {
        let mut locked = self.lock(hash);
        let position = locked.find(|found| found == reference)?;
        let mark = locked.mark(position);
        locked.remove(position);
        Some(mark)
    }

    /// Sets how far the table may grow, up to what was reserved. It does not shrink.
    pub fn set_slots_max(&self, slots: usize) {
        let buckets = (slots / SLOTS).min(self.buckets.buckets_max());
        self.buckets_max.store(buckets, Ordering::Relaxed);
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots now.
    pub fn slots(&self) -> usize {
        self.size().buckets() * SLOTS
    }

    /// Whether [`Index::supply`] has something to do.
    #[inline]
    pub fn is_short(&self, ahead_bytes: usize) -> bool {
        self.buckets
            .memory
            .is_short(self.slots(), self.ahead(ahead_bytes))
    }

    /// Has the next 2 MiB of buckets backed by a huge page if fewer than `ahead_bytes` are ready;
    /// whether there is more to do. May take milliseconds; one thread at a time.
    pub fn supply(&self, ahead_bytes: usize) -> bool {
        self.buckets
            .memory
            .supply(self.slots(), self.ahead(ahead_bytes))
    }

    /// Slots that `ahead_bytes` hold, of those that there may still be.
    #[inline]
    fn ahead(&self, ahead_bytes: usize) -> usize {
        let slots_max = self.buckets_max.load(Ordering::Relaxed) * SLOTS;
        (ahead_bytes / 8).min(slots_max.saturating_sub(self.slots()))
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
pub struct Locked<'a, R: Resolver, C: Locks = VersionedSpin> {
    table: &'a Index<R, C>,
    // Before `_whole`: unlocked first.
    held: Held<'a, C>,
    pair: [usize; 2],
    hash: KeyHash,
    _whole: C::Whole<'a>,
}

impl<'a, R: Resolver, C: Locks> Locked<'a, R, C> {
    #[inline]
    fn new(
        table: &'a Index<R, C>,
        hash: KeyHash,
        locked: HeldPair<'a, C>,
        whole: C::Whole<'a>,
    ) -> Self {
        let HeldPair { held, pair } = locked;
        Self {
            table,
            held,
            pair,
            hash,
            _whole: whole,
        }
    }

    #[inline]
    fn slot(&self, position: Position) -> &AtomicU64 {
        &self.table.buckets.line(position.0.bucket())[position.0.slot()]
    }

    /// The item that `is_it` recognises among the items whose tag matches.
    #[inline]
    pub fn find(&mut self, mut is_it: impl FnMut(Reference) -> bool) -> Option<Position> {
        let tag = tag_of(self.hash);
        for bucket in self.pair {
            for (slot, word) in self.table.buckets.line(bucket).iter().enumerate() {
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
        let word = slot.load(Ordering::Relaxed);
        slot.store(with_mark(word, mark.min(MARK_MAX)), Ordering::Relaxed);
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
        // The version of its own bucket: a reader at a hint checks no other.
        self.held
            .changed(self.table.locks.stripes().of_bucket(position.0.bucket()));
    }
}

#[cfg(test)]
mod tests;
