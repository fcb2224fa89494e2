//! Versioned stripe locks: who may write a bucket, and how a reader knows that nobody did.
//!
//! Buckets share a fixed array of *stripes* (cuckoo paper, section 3.3.3; CK-12..17). A stripe is
//! one word, the high bit a spinlock and the rest a version, and a word of counting beside it.
//!
//! ```text
//!   writer                                    reader
//!   CAS version: unlocked -> locked (Acquire) v1 = version.load(Acquire); locked? start over
//!   fence(Release)               W            data loads, Relaxed
//!   data stores, Relaxed                      fence(Acquire)               R
//!   version.store(v + 1, Release)  U          v2 = version.load(Relaxed); v1 == v2? done
//! ```
//!
//! Why a validated read saw no half-made change: suppose the reader read a word that the writer
//! stored. Then fence W happens before fence R (a fence, a store after it, a load that read it, a
//! fence after that), so `v2` reads the locked word or a later one, and differs from `v1`, which
//! was unlocked and older. Conversely, if `v1` was read from U, the Acquire makes every data store
//! before U visible, so no old word can be read. Versions have 63 bits and never repeat. The data
//! are atomics accessed Relaxed, so a race is defined behaviour, and costs nothing.
//!
//! A bucket's stripe is the low bits of its number, and the table never has fewer buckets than
//! stripes. With linear hashing (`cuckoo.rs`) a key's two stripes therefore depend on its hash
//! alone, not on the table's size: a split happens under the one stripe that both halves share.

use curtail_memory::prefetch::prefetch_to_write;

use crate::sync::{AtomicU64, Ordering, fence, pause};

const LOCKED: u64 = 1 << 63;

/// One stripe: a version with its lock bit, and counts that only the holder writes: the number of
/// items in the stripe's buckets (low half) and of inserts ever (high half, wrapping).
#[derive(Default)]
#[repr(align(16))]
pub(crate) struct Stripe {
    version: AtomicU64,
    tally: AtomicU64,
}

/// All stripes of a table; a power of two.
pub struct Stripes {
    stripes: Box<[Stripe]>,
}

impl Stripes {
    pub(crate) fn new(count: usize) -> Self {
        assert!(
            count.is_power_of_two(),
            "the number of stripes is a mask plus one"
        );
        Self {
            stripes: (0..count).map(|_| Stripe::default()).collect(),
        }
    }

    #[inline(always)]
    pub(crate) fn of_bucket(&self, bucket: usize) -> usize {
        bucket & (self.stripes.len() - 1)
    }

    pub(crate) fn count(&self) -> usize {
        self.stripes.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[Stripe]>(&self.stripes)
    }

    /// Asks for a stripe's line, to lock it.
    #[inline(always)]
    pub(crate) fn prefetch_to_lock(&self, stripe: usize) {
        prefetch_to_write(&self.stripes[stripe]);
    }

    /// Two stripes, for a read.
    #[inline(always)]
    pub(crate) fn pair(&self, pair: [usize; 2]) -> StripePair<'_> {
        StripePair([&self.stripes[pair[0]], &self.stripes[pair[1]]])
    }

    /// Whether two stripes, held by this thread, have not changed since `stamp` was taken.
    pub(crate) fn is_held_at(&self, pair: [usize; 2], stamp: Stamp) -> bool {
        let version =
            |index: usize| self.stripes[pair[index]].version.load(Ordering::Relaxed) & !LOCKED;
        version(0) == stamp.0[0] && version(1) == stamp.0[1]
    }

    /// Takes the stripe's lock, waiting for its holder.
    #[inline]
    fn spin_lock(&self, stripe: usize) {
        let version = &self.stripes[stripe].version;
        let mut round = 0;
        loop {
            let seen = version.load(Ordering::Relaxed);
            // Acquire: pairs with the Release in `unlock`, the former holder's stores.
            if seen & LOCKED == 0
                && version
                    .compare_exchange_weak(
                        seen,
                        seen | LOCKED,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    )
                    .is_ok()
            {
                // Pairs with the fence(Acquire) in `validate`.
                fence(Ordering::Release);
                return;
            }
            pause(round);
            round += 1;
        }
    }

    /// Marks a stripe locked that nobody else can hold (a wider lock is held), for the readers.
    #[inline]
    pub(crate) fn mark_locked(&self, stripe: usize) {
        let version = &self.stripes[stripe].version;
        version.store(version.load(Ordering::Relaxed) | LOCKED, Ordering::Relaxed);
        // Pairs with the fence(Acquire) in `validate`.
        fence(Ordering::Release);
    }

    /// Unlocks a held stripe, with a new version if `changed`, else with the old one (CK-16).
    #[inline]
    pub(crate) fn unlock(&self, stripe: usize, changed: bool) {
        let version = &self.stripes[stripe].version;
        let old = version.load(Ordering::Relaxed) & !LOCKED;
        let new = if changed { (old + 1) & !LOCKED } else { old };
        // Release: pairs with the Acquire in `stamp` and in `spin_lock`.
        version.store(new, Ordering::Release);
    }

    /// Adds an item to a held stripe's count; returns the count.
    #[inline]
    pub(crate) fn add(&self, stripe: usize, inserted: bool) -> u32 {
        let tally = &self.stripes[stripe].tally;
        let step = 1 + (u64::from(inserted) << 32);
        let new = tally.load(Ordering::Relaxed).wrapping_add(step);
        tally.store(new, Ordering::Relaxed);
        new as u32
    }

    /// Takes an item from a held stripe's count; returns the count before.
    #[inline]
    pub(crate) fn subtract(&self, stripe: usize) -> u32 {
        let tally = &self.stripes[stripe].tally;
        let old = tally.load(Ordering::Relaxed);
        debug_assert!(old as u32 > 0, "an item was counted when it came");
        tally.store(old.wrapping_sub(1), Ordering::Relaxed);
        old as u32
    }

    /// Items and inserts of all stripes; exact when nobody writes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        self.stripes
            .iter()
            .map(|stripe| stripe.tally.load(Ordering::Relaxed))
            .fold((0, 0), |(items, inserts), tally| {
                (
                    items + (tally & u64::from(u32::MAX)),
                    inserts + (tally >> 32),
                )
            })
    }
}

/// The versions of a key's two stripes at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp([u64; 2]);

/// The stripes of a key that is being read.
#[derive(Clone, Copy)]
pub(crate) struct StripePair<'a>([&'a Stripe; 2]);

impl StripePair<'_> {
    /// The versions before a read; `None` while one of the stripes is locked.
    #[inline(always)]
    pub(crate) fn stamp(self) -> Option<Stamp> {
        // Acquire: pairs with the Release in `unlock`, whose data stores must be visible.
        let versions = self.0.map(|stripe| stripe.version.load(Ordering::Acquire));
        ((versions[0] | versions[1]) & LOCKED == 0).then_some(Stamp(versions))
    }

    /// Whether no writer changed either stripe since `stamp` was taken.
    #[inline(always)]
    pub(crate) fn validate(self, stamp: Stamp) -> bool {
        // Pairs with the fence(Release) in `mark_locked` and `spin_lock`: whoever read a word
        // stored after that fence sees, after this one, a version that is locked or newer.
        fence(Ordering::Acquire);
        let versions = self.0.map(|stripe| stripe.version.load(Ordering::Relaxed));
        (versions[0] ^ stamp.0[0]) | (versions[1] ^ stamp.0[1]) == 0
    }
}

/// How writers exclude each other (CK-35). Every kind that excludes anybody keeps the stripes'
/// versions right, so the readers are the same for all. Kinds other than [`VersionedSpin`] are in
/// `baselines.rs`.
pub trait Locks {
    /// Held for a whole insert, update or removal: one long critical section.
    type Whole<'a>
    where
        Self: 'a;
    /// Held while a set of stripes is held.
    type Section<'a>
    where
        Self: 'a;
    /// Locks for a table with these stripes.
    fn new(stripes: Stripes) -> Self;
    /// The stripes, for versions and counts.
    fn stripes(&self) -> &Stripes;
    /// Begins a whole operation.
    fn begin(&self) -> Self::Whole<'_>;
    /// Begins a set of stripes.
    fn enter(&self) -> Self::Section<'_>;
    /// Locks one stripe of a set; called in ascending order.
    fn lock(&self, stripe: usize);
    /// Unlocks one stripe, with a new version if `changed`.
    fn unlock(&self, stripe: usize, changed: bool);
}

/// The default: each stripe is its own spinlock (cuckoo paper, section 3.3.3, "fine-grained").
pub struct VersionedSpin(Stripes);

impl Locks for VersionedSpin {
    type Whole<'a> = ();
    type Section<'a> = ();

    fn new(stripes: Stripes) -> Self {
        Self(stripes)
    }

    #[inline(always)]
    fn stripes(&self) -> &Stripes {
        &self.0
    }

    #[inline(always)]
    fn begin(&self) {}

    #[inline(always)]
    fn enter(&self) {}

    #[inline(always)]
    fn lock(&self, stripe: usize) {
        self.0.spin_lock(stripe);
    }

    #[inline(always)]
    fn unlock(&self, stripe: usize, changed: bool) {
        self.0.unlock(stripe, changed);
    }
}

/// Up to three stripes that this thread holds; dropping unlocks them.
pub(crate) struct Held<'a, C: Locks> {
    locks: &'a C,
    /// Ascending; only the first `count` are meant.
    stripes: [usize; 3],
    count: usize,
    /// Bit i: the data of stripe i were changed.
    changed: u8,
    _section: C::Section<'a>,
}

impl<'a, C: Locks> Held<'a, C> {
    #[inline]
    pub(crate) fn pair(locks: &'a C, pair: [usize; 2]) -> Self {
        let [first, second] = [pair[0].min(pair[1]), pair[0].max(pair[1])];
        let count = if first == second { 1 } else { 2 };
        Self::lock(locks, [first, second, second], count)
    }

    pub(crate) fn triple(locks: &'a C, mut stripes: [usize; 3]) -> Self {
        stripes.sort_unstable();
        let [a, b, c] = stripes;
        match (a == b, b == c) {
            (true, true) => Self::lock(locks, [a; 3], 1),
            (true, false) => Self::lock(locks, [a, c, c], 2),
            (false, true) => Self::lock(locks, [a, b, b], 2),
            (false, false) => Self::lock(locks, [a, b, c], 3),
        }
    }

    #[inline]
    fn lock(locks: &'a C, stripes: [usize; 3], count: usize) -> Self {
        let section = locks.enter();
        for &stripe in &stripes[..count] {
            locks.lock(stripe);
        }
        Self {
            locks,
            stripes,
            count,
            changed: 0,
            _section: section,
        }
    }

    /// Notes that data of a held stripe were changed: its version must move on.
    #[inline(always)]
    pub(crate) fn changed(&mut self, stripe: usize) {
        debug_assert!(
            self.stripes[..self.count].contains(&stripe),
            "only what is held changes"
        );
        self.changed |= if self.stripes[0] == stripe {
            1
        } else if self.stripes[1] == stripe {
            2
        } else {
            4
        };
    }

    /// Unlocks every stripe but those of `pair`.
    pub(crate) fn keep(&mut self, pair: [usize; 2]) {
        let mut kept = 0;
        let mut changed = 0;
        for index in 0..self.count {
            let stripe = self.stripes[index];
            let bit = self.changed >> index & 1;
            if pair.contains(&stripe) {
                self.stripes[kept] = stripe;
                changed |= bit << kept;
                kept += 1;
            } else {
                self.locks.unlock(stripe, bit == 1);
            }
        }
        self.count = kept;
        self.changed = changed;
    }
}

impl<C: Locks> Drop for Held<'_, C> {
    #[inline]
    fn drop(&mut self) {
        for index in 0..self.count {
            self.locks
                .unlock(self.stripes[index], self.changed >> index & 1 == 1);
        }
    }
}

/// Every stripe, for the writer that was overtaken too often (CK-15) and for emptying a table.
pub(crate) struct AllHeld<'a, C: Locks> {
    locks: &'a C,
    /// `None` once the locks were handed on.
    section: Option<C::Section<'a>>,
}

impl<'a, C: Locks> AllHeld<'a, C> {
    pub(crate) fn new(locks: &'a C) -> Self {
        let section = Some(locks.enter());
        for stripe in 0..locks.stripes().count() {
            locks.lock(stripe);
        }
        Self { locks, section }
    }

    /// Unlocks all, as changed, but those of `pair`, which stay held.
    pub(crate) fn keep(mut self, pair: [usize; 2]) -> Option<Held<'a, C>> {
        let section = self.section.take()?;
        for stripe in 0..self.locks.stripes().count() {
            if !pair.contains(&stripe) {
                self.locks.unlock(stripe, true);
            }
        }
        let [first, second] = [pair[0].min(pair[1]), pair[0].max(pair[1])];
        Some(Held {
            locks: self.locks,
            stripes: [first, second, second],
            count: if first == second { 1 } else { 2 },
            changed: 3,
            _section: section,
        })
    }
}

impl<C: Locks> Drop for AllHeld<'_, C> {
    fn drop(&mut self) {
        if self.section.is_some() {
            for stripe in 0..self.locks.stripes().count() {
                self.locks.unlock(stripe, true);
            }
        }
    }
}
