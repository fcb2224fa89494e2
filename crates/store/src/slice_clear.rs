//! Clears a slice: what is there is gone for every reader at once, and its memory comes back later.
//!
//! Each slice has an *incarnation*, which its items carry in three bits of their meta word. A clear
//! begins another one, and sets for each earlier one a *bound*: an item is gone if its version is
//! below the bound of its incarnation. Moving an item takes its incarnation along, so code that
//! moves or copies items need not know of clears. A sweep through the index then removes what is
//! gone and gives what stays the incarnation of now; after it the former ones can be used again,
//! and readers look at no bound any more
//! ([`Room::note_cleared`](crate::open_segments::Room::note_cleared)).
//!
//! Why the sweep leaves nothing of a former incarnation: a writer reads the incarnation under the
//! key's lock, and publishes the item before it gives the lock back. The sweep begins after the
//! clear and takes that lock later or earlier: it sees the item, or the writer sees the clear.

use curtail_table::{Reference, Walk};
use curtail_types::{Cas, KeyHash, Now};

use crate::{
    Store, Writer,
    item::{INCARNATIONS, Kind},
    slices::SliceBug,
    store::{Found, Presence},
    sync::{AtomicBool, AtomicU8, AtomicU64, Mutex, MutexGuard, Ordering, lock, try_lock},
};

/// The clears of all slices.
#[derive(Debug)]
pub(crate) struct Clears {
    slices: Box<[Cleared]>,
    /// How many clears there were; held while one is made or ended.
    made: Mutex<u64>,
    sweep: Mutex<Option<Sweep>>,
}

/// What readers and writers look at.
#[derive(Debug, Default)]
struct Cleared {
    /// The incarnation of now.
    incarnation: AtomicU8,
    /// By incarnation: items with a lower version are gone.
    bounds: [AtomicU64; INCARNATIONS],
    /// Whether anything may have been written since everything was cleared.
    is_written: AtomicBool,
    /// Incarnations that items may have, one bit each.
    used: AtomicU8,
    /// Which of all clears was the last of this slice; 0 if it is swept.
    last: AtomicU64,
}

/// A sweep that is under way.
#[derive(Debug)]
struct Sweep {
    walk: Walk,
    /// Clears made before it began.
    made: u64,
}

/// Buckets that one turn sweeps.
const BUCKETS_A_TURN: usize = 16;

/// What a sweep collects from one bucket, or from the two of a key that has moved.
const TOGETHER: usize = 16;

impl Clears {
    pub(crate) fn new(slices: u16) -> Self {
        Self {
            slices: (0..slices).map(|_| Cleared::new()).collect(),
            made: Mutex::new(0),
            sweep: Mutex::new(None),
        }
    }

    /// Notes that any slice may have items already.
    pub(crate) fn note_restored(&self) {
        for cleared in &self.slices {
            cleared.is_written.store(true, Ordering::Relaxed);
        }
    }

    /// The incarnation of an item that is written now; asked under the key's lock.
    pub(crate) fn incarnation(&self, slice: u16) -> usize {
        let Some(cleared) = self.slices.get(usize::from(slice)) else {
            return 0;
        };
        // Acquire: pairs with the Release in `Cleared::begin`. A thread that sees a new incarnation
        // sees that nothing was written in it, and says so if that is no longer true.
        let incarnation = cleared.incarnation.load(Ordering::Acquire);
        if !cleared.is_written.load(Ordering::Relaxed) {
            cleared.is_written.store(true, Ordering::Relaxed);
        }
        usize::from(incarnation)
    }

    /// Whether an item of a slice is gone.
    fn is_gone(&self, slice: u16, incarnation: usize, version: Cas) -> bool {
        let cleared = self.slices.get(usize::from(slice));
        let bound = cleared.and_then(|cleared| cleared.bounds.get(incarnation));
        // Acquire: pairs with the Release in `Cleared::begin`.
        bound.is_some_and(|bound| version.0 < bound.load(Ordering::Acquire))
    }
}

impl Cleared {
    fn new() -> Self {
        Self {
            used: AtomicU8::new(1),
            ..Self::default()
        }
    }

    /// Begins another incarnation; false if every one may be in use.
    fn begin(&self, made: u64, before: Option<Cas>, plants: bool) -> bool {
        let now = self.incarnation.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        let next = (!used).trailing_zeros() as usize;
        if next >= INCARNATIONS {
            return false;
        }
        let before = before.map_or(u64::MAX, |before| before.0);
        for (incarnation, bound) in self.bounds.iter().enumerate() {
            let is_meant = !plants || incarnation == usize::from(now);
            if used >> incarnation & 1 == 1 && is_meant {
                bound.fetch_max(before, Ordering::Release);
            }
        }
        self.used.store(used | 1 << next, Ordering::Relaxed);
        self.last.store(made, Ordering::Relaxed);
        self.incarnation.store(next as u8, Ordering::Release);
        true
    }

    /// Nothing of a former incarnation is there any more.
    fn end(&self) {
        let now = self.incarnation.load(Ordering::Relaxed);
        self.used.store(1 << now, Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
        for bound in &self.bounds {
            bound.store(0, Ordering::Release);
        }
    }
}

impl Store {
    /// What is in a slice now and older than `before`, or all of it, is gone when this returns;
    /// what is written later is there, whatever its version. Cheap unless a slice is cleared eight
    /// times while the memory of the first is still being taken back.
    pub fn clear_slice(&self, writer: &mut Writer, now: Now, slice: u16, before: Option<Cas>) {
        let Some(clears) = self.slices.get().map(|slices| &slices.clears) else {
            return;
        };
        let Some(cleared) = clears.slices.get(usize::from(slice)) else {
            return;
        };
        if !cleared.is_written.load(Ordering::Relaxed) {
            return;
        }
        let plants = self.plants(SliceBug::ClearsLastIncarnation);
        loop {
            let mut made = lock(&clears.made);
            self.room.note_cleared(true);
            if before.is_none() {
                cleared.is_written.store(false, Ordering::Relaxed);
            }
            if cleared.begin(*made + 1, before, plants) {
                *made += 1;
                break;
            }
            drop(made);
            self.finish_clears(writer, now);
        }
    }

    /// Whether the item at `reference` is of an incarnation of its slice that was cleared.
    pub(crate) fn is_cleared(&self, reference: u64) -> bool {
        let Some(slices) = self.slices.get().filter(|_| self.room.may_be_cleared()) else {
            return false;
        };
        let slice = slices.of(self.index.resolver().route(reference));
        let item = self.item(reference);
        let incarnation = item.meta().incarnation();
        slices.clears.is_gone(slice, incarnation, item.cas())
    }

    /// Sweeps a little, if there is anything to sweep; whether there is more.
    pub(crate) fn sweep(&self, writer: &mut Writer, now: Now) -> bool {
        if !self.room.may_be_cleared() {
            return false;
        }
        let Some(clears) = self.slices.get().map(|slices| &slices.clears) else {
            return false;
        };
        match try_lock(&clears.sweep) {
            Some(sweep) => self.sweep_on(writer, now, clears, sweep, BUCKETS_A_TURN),
            None => true,
        }
    }

    /// Sweeps until nothing is left of what was cleared.
    pub(crate) fn finish_clears(&self, writer: &mut Writer, now: Now) {
        let Some(clears) = self.slices.get().map(|slices| &slices.clears) else {
            return;
        };
        while self.room.may_be_cleared() {
            let sweep = lock(&clears.sweep);
            self.sweep_on(writer, now, clears, sweep, usize::MAX);
        }
    }

    fn sweep_on(
        &self,
        writer: &mut Writer,
        now: Now,
        clears: &Clears,
        mut place: MutexGuard<'_, Option<Sweep>>,
        buckets_max: usize,
    ) -> bool {
        let sweep = place.get_or_insert_with(|| Sweep {
            made: *lock(&clears.made),
            walk: self.index.walk(),
        });
        for _ in 0..buckets_max {
            let mut old = [(KeyHash(0), 0); TOGETHER];
            let mut count = 0;
            let goes_on = self.index.walk_on(&mut sweep.walk, 1, |reference| {
                if self.is_of_former_incarnation(reference.get())
                    && let Some(place) = old.get_mut(count)
                {
                    let hash = self.index.resolver().key_hash(reference.get());
                    *place = (hash, reference.get());
                    count += 1;
                }
            });
            for &(hash, reference) in &old[..count] {
                self.sweep_one(writer, now, hash, reference);
            }
            if !goes_on {
                let made = sweep.made;
                *place = None;
                return self.end_sweep(clears, made);
            }
        }
        true
    }

    /// Ends the clears that were made before a sweep began; whether there are others.
    fn end_sweep(&self, clears: &Clears, made: u64) -> bool {
        let _made = lock(&clears.made);
        let mut is_left = false;
        for cleared in &clears.slices {
            match cleared.last.load(Ordering::Relaxed) {
                0 => {}
                last if last <= made || self.plants(SliceBug::SweepEndsAll) => cleared.end(),
                _ => is_left = true,
            }
        }
        self.room.note_cleared(is_left);
        is_left
    }

    fn is_of_former_incarnation(&self, reference: u64) -> bool {
        let Some(slices) = self.slices.get() else {
            return false;
        };
        let slice = slices.of(self.index.resolver().route(reference));
        let now = slices.clears.slices.get(usize::from(slice));
        now.is_some_and(|now| {
            let now = now.incarnation.load(Ordering::Relaxed);
            self.item(reference).meta().incarnation() != usize::from(now)
        })
    }

    /// Removes an item that is gone; one that stays is of the incarnation of now.
    fn sweep_one(&self, writer: &Writer, now: Now, hash: KeyHash, reference: u64) {
        let mut locked = self.index.lock(hash);
        let Some(handle) = Reference::new(reference) else {
            return;
        };
        // It may have moved in memory meanwhile: then it is found under the hash.
        let position = locked.find(|found| found == handle).or_else(|| {
            locked.find(|found| {
                self.index.resolver().key_hash(found.get()) == hash
                    && self.is_of_former_incarnation(found.get())
            })
        });
        let Some(position) = position else {
            return;
        };
        let reference = locked.reference(position).get();
        let item = self.item(reference);
        let meta = item.meta();
        if !matches!(meta.kind(), Kind::Inline | Kind::Head)
            || !self.is_of_former_incarnation(reference)
        {
            return;
        }
        let found = Found {
            position,
            reference,
            meta,
        };
        match self.presence(reference, item.extension(meta), now) {
            Presence::Here => {
                let Some(slices) = self.slices.get() else {
                    return;
                };
                let slice = slices.of(self.index.resolver().route(reference));
                let now = slices.clears.incarnation(slice);
                item.set_meta(meta.with_incarnation(now));
                locked.changed(position);
            }
            gone => self.remove_gone(writer, &mut locked, found, gone),
        }
    }
}
