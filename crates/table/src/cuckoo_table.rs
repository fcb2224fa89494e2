//! The concurrent cuckoo hash table.
//!
//! From X. Li, "Algorithmic improvements for fast concurrent cuckoo hashing" (EuroSys 2014;
//! dissertation 2016, chapter 3). A key may be in one of two buckets, so a lookup reads at most two
//! places. An insert that finds both full looks, without any lock, for a short chain of
//! displacements that ends in a free slot (`search.rs`), and then carries it out from its end, one
//! locked and validated move at a time: holes move backwards, an item is never absent (section
//! 3.3.2). Readers lock nothing (`locks.rs`).
//!
//! What is ours is the growth (`growth.rs`): *linear hashing in place*. The number of buckets `n`
//! is any number, not a power of two, and the table grows by splitting one bucket at a time:
//!
//! ```text
//!   n = 6                     hash & 7 = 6 or 7 -> bucket 2 or 3 (not yet split)
//!   bucket  0 1 2 3 | 4 5              split of 2:  2 -> 2 and 6,  n = 7
//!   stripe  0 0 1 1   2 2              under the locks of 1 and of 3, the stripe of bucket 6
//! ```
//!
//! Reading while the table grows: `n` changes from `n` to `n + 1` only under the locks of the
//! stripes of the bucket that is split and of the new one, and that changes the place of keys of
//! these two buckets only. A reader loads `n`, computes the key's buckets, stamps their stripes,
//! reads, validates the stamp, and looks whether with the `n` of now the buckets are the same.
//!
//! - A split of one of its buckets that ended before the stamp: the Acquire load of the version
//!   shows the new `n`, and the last look finds other buckets.
//! - One that had not begun when the reader validated: nothing of it was read.
//! - One between: if the reader read anything that the split wrote, `n` included, its validation
//!   sees a version that is locked or newer (`locks.rs`), for the split locks both stripes before
//!   it writes; if not, the read is one from before the split.
//! - Splits of other buckets may be seen or not: the key's place is the same.
//!
//! A writer does the same with locks: it computes the buckets, locks their stripes and looks
//! whether the buckets are still the key's. From then on nobody can split them.

use curtail_types::KeyHash;

use crate::{
    buckets::{Place, Resolver, SLOTS},
    counters::{Counters, Event},
    error::Full,
    item_index::Index,
    locks::{AllHeld, Held, Locks},
    search::{self, Search},
    sync::{Ordering, pause},
};

/// One bit for each slot of a bucket.
const SLOT_MASK: u32 = (1 << SLOTS) - 1;
/// Failed validations after which a reader takes the locks (CK-19).
const READ_ATTEMPTS_MAX: u32 = 64;
/// Failed paths after which a writer takes every lock (CK-15).
const RESTARTS_MAX: u32 = 16;
/// Failed searches, each followed by some growth, after which an insert searches further: that
/// costs a hundred times as much, and nearly always the growth has made room.
const GROWTH_ROUNDS_NEAR: u32 = 4;
/// Failed searches after which an insert reports a full table although it may grow. The first far
/// search has always found a path (see `search.rs`); only keys that were crafted to meet come
/// here, and this bounds what one of them costs.
const GROWTH_ROUNDS_MAX: u32 = 64;
/// A stripe reports to the table's total whenever its count passes a multiple of this.
const PUBLISH_STEP: u32 = 16;

/// How the algorithm runs; everything but the default is there for the factor analysis (CK-43).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub(crate) search: Search,
    /// Prefetch the lines a search will visit.
    pub(crate) prefetch: bool,
    /// Grow when more than this many in 1024 slots are occupied.
    pub(crate) fill_per_1024: u64,
    /// A bug planted to see whether the tests catch it.
    #[cfg(test)]
    pub(crate) bug: Option<Bug>,
}

/// Bugs that a test plants and must catch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(not(test), allow(dead_code))] // Named in the code that would have them, made by tests.
pub(crate) enum Bug {
    /// A displacement does not change the versions of its stripes.
    SilentDisplacement,
    /// A split does not change the version of its stripe.
    SilentSplit,
    /// A split does not lock the stripe of the new bucket.
    HalfLockedSplit,
    /// A reader does not look whether the buckets it read are still the key's.
    UncheckedRead,
    /// A writer does not look whether the buckets it locked are still the key's.
    UncheckedHold,
    /// A walk says that it has visited a bucket after it has given the lock back.
    LateWalk,
}

impl Tuning {
    #[inline(always)]
    pub(crate) fn planted(&self, bug: Bug) -> bool {
        #[cfg(test)]
        return self.bug == Some(bug);
        #[cfg(not(test))]
        {
            let _ = bug;
            false
        }
    }
}

/// The number of buckets `n` and the mask of the next power of two, in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    #[inline]
    pub(crate) fn of(buckets: usize) -> Self {
        let mask = buckets.next_power_of_two() as u64 - 1;
        Self(mask << 32 | buckets as u64)
    }

    #[inline(always)]
    pub(crate) fn buckets(self) -> usize {
        self.0 as u32 as usize
    }

    /// The bucket of half a hash (linear hashing).
    #[inline(always)]
    pub(crate) fn linear(self, half: u32) -> usize {
        let mask = (self.0 >> 32) as u32;
        let bucket = half & mask;
        let unsplit = bucket & mask >> 1;
        (if bucket < self.0 as u32 {
            bucket
        } else {
            unsplit
        }) as usize
    }

    /// A key's two buckets; they may be the same one (CK-11).
    #[inline(always)]
    pub(crate) fn pair(self, hash: u64) -> [usize; 2] {
        [self.linear(hash as u32), self.linear((hash >> 32) as u32)]
    }
}

/// A key's two buckets, whose stripes are held: they stay the key's buckets.
pub(crate) struct HeldPair<'a, C: Locks> {
    pub(crate) held: Held<'a, C>,
    pub(crate) pair: [usize; 2],
}

impl<R: Resolver, C: Locks> Index<R, C> {
    /// The key's buckets now. A hint, unless the key's stripes are held or validated.
    #[inline(always)]
    pub(crate) fn pair(&self, hash: u64) -> [usize; 2] {
        self.size().pair(hash)
    }

    /// The size now. A hint, except for the place of keys whose stripes are held or validated.
    #[inline(always)]
    pub(crate) fn size(&self) -> Size {
        Size(self.size.0.load(Ordering::Relaxed))
    }

    /// Sets the size, under the locks of the stripes of the bucket that was split and of the new.
    pub(crate) fn set_buckets(&self, buckets: usize) {
        self.size.0.store(Size::of(buckets).0, Ordering::Relaxed);
    }

    /// Runs `scan` on the key's buckets and returns its result, if no writer came between (CK-17,
    /// CK-52). `scan` may see torn data; what it returns then is thrown away.
    #[inline(always)]
    pub(crate) fn try_read<T>(&self, hash: u64, scan: impl FnOnce([usize; 2]) -> T) -> Option<T> {
        let size = self.size();
        let buckets = size.pair(hash);
        let stripes = self.locks.stripes();
        let pair = stripes.pair(stripes.of_pair(buckets));
        let stamp = pair.stamp()?;
        let result = scan(buckets);
        // In this order: the last look must not come before the stamp.
        (pair.validate(stamp) && self.is_same(size, hash, buckets)).then_some(result)
    }

    /// Whether the key's buckets, which they were at `size`, are so still.
    #[inline(always)]
    fn is_same(&self, size: Size, hash: u64, buckets: [usize; 2]) -> bool {
        let now = self.size();
        now == size || now.pair(hash) == buckets || self.tuning.planted(Bug::UncheckedRead)
    }

    /// Runs `scan` on something in `bucket` and returns its result, if no writer came between.
    #[inline(always)]
    pub(crate) fn try_read_in<T>(&self, bucket: usize, scan: impl FnOnce() -> T) -> Option<T> {
        let stripe = self.locks.stripes().single(bucket);
        let stamp = stripe.stamp()?;
        let result = scan();
        stripe.validate(stamp).then_some(result)
    }

    /// The read after `try_read` failed: again until no writer comes between, or with the locks.
    /// Apart, because it is rare and the code of both at once would be in the way.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_again<T>(&self, hash: u64, mut scan: impl FnMut([usize; 2]) -> T) -> T {
        for attempt in 1..READ_ATTEMPTS_MAX {
            self.tallies.count(Event::ReadRetry);
            pause(attempt - 1);
            if let Some(result) = self.try_read(hash, &mut scan) {
                return result;
            }
        }
        self.tallies.count(Event::ReadLocked);
        let locked = self.hold(hash);
        scan(locked.pair)
    }

    /// Locks the stripes of the key's two buckets.
    #[inline(always)] // out of line a write takes 60 instructions more
    pub(crate) fn hold(&self, hash: u64) -> HeldPair<'_, C> {
        loop {
            let size = self.size();
            let pair = size.pair(hash);
            let held = Held::pair(&self.locks, self.locks.stripes().of_pair(pair));
            // A thread that split one of these buckets released its stripe before it was taken
            // here.
            if self.is_still(size, hash, pair) {
                return HeldPair { held, pair };
            }
        }
    }

    /// Whether the buckets whose stripes were just locked are the key's.
    #[inline(always)]
    fn is_still(&self, size: Size, hash: u64, pair: [usize; 2]) -> bool {
        let now = self.size();
        now == size || now.pair(hash) == pair || self.tuning.planted(Bug::UncheckedHold)
    }

    /// Locks the key's two stripes with a free slot in one of its buckets, displacing others or
    /// growing the table for it (CK-20).
    #[inline]
    pub(crate) fn hold_with_room(&self, hash: u64) -> Result<HeldPair<'_, C>, Full> {
        if self.is_over_target() {
            self.grow_a_little();
        }
        let locked = self.hold(hash);
        if self.free_slot(locked.pair).is_some() {
            return Ok(locked);
        }
        drop(locked);
        self.make_room(hash)
    }

    /// A free slot in the emptier of two held buckets.
    #[inline]
    pub(crate) fn free_slot(&self, pair: [usize; 2]) -> Option<Place> {
        let free = pair.map(|bucket| !self.buckets.occupied(bucket) & SLOT_MASK);
        let choice = usize::from(free[1].count_ones() > free[0].count_ones());
        (free[choice] != 0)
            .then(|| Place::new(pair[choice], free[choice].trailing_zeros() as usize))
    }

    /// CK-20 step 2: search, then validate and execute, until a slot is free or there is no path.
    /// Without one the table grows and the search is repeated, soon a longer one; so a table that
    /// may grow refuses nothing, and the work of each round is bounded.
    #[cold]
    fn make_room(&self, hash: u64) -> Result<HeldPair<'_, C>, Full> {
        let mut rounds = 0;
        let mut restarts = 0;
        let carry_out = |path: &[Place]| self.execute(hash, path);
        loop {
            let size = self.size();
            let found = if restarts == RESTARTS_MAX {
                restarts = 0;
                self.make_room_alone(hash).map(Some)
            } else if rounds <= GROWTH_ROUNDS_NEAR {
                search::find(self, hash, carry_out)
            } else {
                self.tallies.count(Event::FarSearch);
                search::find_far(self, hash, carry_out)
            };
            match found {
                Some(Some(locked)) => return Ok(locked),
                Some(None) => {
                    restarts += 1;
                    self.tallies.count(Event::Restart);
                }
                None => {
                    rounds += 1;
                    // Another thread may have grown the table to its limit meanwhile.
                    let grew = self.grow_after_failure() || self.size() != size;
                    if rounds > GROWTH_ROUNDS_MAX || !grew {
                        self.tallies.count(Event::Full);
                        return Err(Full);
                    }
                }
            }
        }
    }

    /// Carries a path out from its end (CK-22) and returns the key's locks with the hole at its
    /// start. The last move holds the key's stripes and the destination's (CK-23), so nobody can
    /// take the hole. `None`: somebody changed the path; what was moved may stay where it is.
    fn execute(&self, hash: u64, path: &[Place]) -> Option<HeldPair<'_, C>> {
        let (&root, moves) = path.split_first()?;
        if self.tuning.prefetch {
            for place in moves {
                let stripes = self.locks.stripes();
                stripes.prefetch_to_lock(stripes.of_bucket(place.bucket()));
                self.buckets.prefetch(place.bucket());
            }
        }
        for step in (1..moves.len()).rev() {
            let (from, to) = (moves[step - 1], moves[step]);
            let stripes = [from, to].map(|place| self.locks.stripes().of_bucket(place.bucket()));
            let mut held = Held::pair(&self.locks, stripes);
            if !self.displace(from, to, &mut held) {
                self.tallies.count(Event::Invalid);
                return None;
            }
        }
        let third = moves.first().map_or(root, |&to| to);
        let third_stripe = self.locks.stripes().of_bucket(third.bucket());
        let (size, pair) = (self.size(), self.pair(hash));
        let [first, second] = self.locks.stripes().of_pair(pair);
        let mut held = Held::triple(&self.locks, [first, second, third_stripe]);
        // A split may have sent the key or the root's bucket elsewhere.
        let valid = self.is_still(size, hash, pair)
            && (self.free_slot(pair).is_some()
                || moves.first().is_some_and(|&to| {
                    pair.contains(&root.bucket()) && self.displace(root, to, &mut held)
                }));
        if !valid {
            self.tallies.count(Event::Invalid);
            return None;
        }
        held.keep([first, second]);
        self.tallies.count_path(moves.len());
        Some(HeldPair { held, pair })
    }

    /// Moves one resident to its other bucket, both stripes being held, if that is still possible:
    /// the destination free, the source occupied by an item that may live in either. It need not
    /// be the very item that the search saw: any such item frees the slot as well.
    fn displace(&self, from: Place, to: Place, held: &mut Held<'_, C>) -> bool {
        if from.bucket == to.bucket || !self.is_occupied(from) || self.is_occupied(to) {
            return false;
        }
        let pair = self.pair(self.buckets.hash_at(from));
        if !pair.contains(&from.bucket()) || !pair.contains(&to.bucket()) {
            return false;
        }
        self.relocate(from, to);
        let stripes = self.locks.stripes();
        if !self.tuning.planted(Bug::SilentDisplacement) {
            held.changed(stripes.of_bucket(from.bucket()));
            held.changed(stripes.of_bucket(to.bucket()));
        }
        true
    }

    fn is_occupied(&self, place: Place) -> bool {
        self.buckets.occupied(place.bucket()) >> place.slot() & 1 == 1
    }

    /// Moves an item between held buckets, with its count.
    pub(crate) fn relocate(&self, from: Place, to: Place) {
        if to.bucket < from.bucket && self.walks.is_any() {
            let hash = KeyHash(self.buckets.hash_at(from));
            self.walks.note_move(from, to, hash);
        }
        self.buckets.relocate(from, to);
        let stripes = self.locks.stripes();
        let [source, target] = [from, to].map(|place| stripes.of_bucket(place.bucket()));
        if source != target {
            self.count_in(target, false);
            self.count_out(source);
        }
    }

    /// With every lock held nobody can invalidate a path (CK-15).
    #[cold]
    pub(crate) fn make_room_alone(&self, hash: u64) -> Option<HeldPair<'_, C>> {
        self.tallies.count(Event::AllLocked);
        let all = AllHeld::new(&self.locks, || self.size().buckets());
        let pair = self.pair(hash);
        if self.free_slot(pair).is_none() {
            search::find_shortest(self, hash, |path| {
                for step in path.windows(2).rev() {
                    assert!(!self.is_occupied(step[1]), "nobody else can have filled it");
                    self.relocate(step[0], step[1]);
                }
            })?;
        }
        let held = all.keep(self.locks.stripes().of_pair(pair))?;
        Some(HeldPair { held, pair })
    }

    /// Notes a new item in a held bucket.
    #[inline]
    pub(crate) fn inserted(&self, held: &mut Held<'_, C>, bucket: usize) {
        let stripe = self.locks.stripes().of_bucket(bucket);
        held.changed(stripe);
        self.count_in(stripe, true);
    }

    /// Empties a held slot.
    #[inline]
    pub(crate) fn remove(&self, held: &mut Held<'_, C>, place: Place) {
        let stripe = self.locks.stripes().of_bucket(place.bucket());
        held.changed(stripe);
        self.buckets.clear(place);
        self.count_out(stripe);
    }

    #[inline]
    pub(crate) fn count_in(&self, stripe: usize, inserted: bool) {
        if self
            .locks
            .stripes()
            .add(stripe, inserted)
            .is_multiple_of(PUBLISH_STEP)
        {
            self.published
                .0
                .fetch_add(u64::from(PUBLISH_STEP), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn count_out(&self, stripe: usize) {
        if self
            .locks
            .stripes()
            .subtract(stripe)
            .is_multiple_of(PUBLISH_STEP)
        {
            self.published
                .0
                .fetch_sub(u64::from(PUBLISH_STEP), Ordering::Relaxed);
        }
    }

    /// Whether the table is fuller than its target and may grow, for callers that insert under
    /// [`Index::lock`] and grow by themselves. An estimate: each stripe has on average half a step
    /// that it has not reported, once it has reported at all.
    #[inline]
    pub fn is_over_target(&self) -> bool {
        let buckets = self.size().buckets();
        if buckets >= self.buckets_max.load(Ordering::Relaxed) {
            return false;
        }
        let stripes = self.locks.stripes().in_use(buckets);
        let unreported = (stripes * PUBLISH_STEP as usize / 2) as u64;
        let reported = self.published.0.load(Ordering::Relaxed);
        let items = reported + unreported.min(reported);
        items * 1024 > (buckets * SLOTS) as u64 * self.tuning.fill_per_1024
    }

    /// Items; exact when nobody writes. Sums over the stripes: not for every request.
    pub fn len(&self) -> usize {
        self.locks.stripes().totals(self.size().buckets()).0 as usize
    }

    /// What the table has done so far.
    pub fn counters(&self) -> Counters {
        let (_, inserts) = self.locks.stripes().totals(self.size().buckets());
        self.tallies.sum(inserts)
    }

    /// Bytes of memory in use for buckets and locks.
    pub fn memory_bytes(&self) -> usize {
        let buckets = self.size().buckets();
        self.buckets.bytes(buckets) + self.locks.stripes().bytes(buckets) + size_of::<Self>()
    }

    /// Removes all items, with every lock held meanwhile.
    pub fn clear(&self) {
        let all = AllHeld::new(&self.locks, || self.size().buckets());
        for bucket in 0..self.size().buckets() {
            let occupied = self.buckets.occupied(bucket);
            for slot in (0..SLOTS).filter(|slot| occupied >> slot & 1 == 1) {
                self.buckets.clear(Place::new(bucket, slot));
                self.count_out(self.locks.stripes().of_bucket(bucket));
            }
        }
        drop(all);
    }
}
