//! Versioned stripe locks: who may write a bucket, and how a reader knows that nobody did.
//!
//! Buckets share *stripes* (cuckoo paper, section 3.3.3; CK-12..17). A stripe is one word, the high
//! bit a spinlock and the rest a version, and a word of counting beside it.
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
//! A few neighbouring buckets share a stripe, so there are more stripes as the table grows, up to
//! [`STRIPES_MAX`], from where on distant buckets share them too. A bucket's stripe never changes;
//! a key's stripes are those of its buckets, and so change when one of them is split. A thread that
//! locks or stamps them looks afterwards whether they were still the key's (`cuckoo_table.rs`).

use curtail_memory::{Pages, Region, prefetch::prefetch_to_write};

use crate::sync::{AtomicU64, Ordering, fence, pause};

const LOCKED: u64 = 1 << 63;

/// Stripes of the largest table: 1 MiB, which is locked in well under a millisecond when a writer
/// must lock them all.
const STRIPES_MAX: usize = 1 << 16;

/// One stripe: a version with its lock bit, and a tally of two counts that only the holder writes:
/// the number of items in the stripe's buckets (low half) and of inserts ever (high half,
/// wrapping).
type Stripe = [AtomicU64; 2];

const VERSION: usize = 0;
const TALLY: usize = 1;

/// All stripes of a table, in address space for as many as it may come to use.
pub struct Stripes {
    words: Region,
    /// Buckets per stripe are two to the power of this.
    shift: u32,
    /// A power of two of stripes, minus one.
    mask: usize,
}

impl Stripes {
    /// Stripes of so many buckets each, a power of two, for a table of up to `buckets_max`.
    ///
    /// # Errors
    /// What the operating system says when it gives no address space.
    pub(crate) fn new(stripe_buckets: usize, buckets_max: usize) -> std::io::Result<Self> {
        assert!(
            stripe_buckets.is_power_of_two(),
            "a bucket's stripe is some bits of its number"
        );
        let wanted = buckets_max.div_ceil(stripe_buckets).next_power_of_two();
        let count = wanted.min(STRIPES_MAX);
        Ok(Self {
            words: Region::new(2 * count, Pages::Small)?,
            shift: stripe_buckets.trailing_zeros(),
            mask: count - 1,
        })
    }

    #[inline(always)]
    fn stripe(&self, stripe: usize) -> &Stripe {
        &self.words.words().as_chunks::<2>().0[stripe]
    }

    #[inline(always)]
    pub(crate) fn of_bucket(&self, bucket: usize) -> usize {
        bucket >> self.shift & self.mask
    }

    /// The stripes of two buckets.
    #[inline(always)]
    pub(crate) fn of_pair(&self, pair: [usize; 2]) -> [usize; 2] {
        pair.map(|bucket| self.of_bucket(bucket))
    }

    /// The stripes of a table of so many buckets are those below this number.
    #[inline]
    pub(crate) fn in_use(&self, buckets: usize) -> usize {
        (((buckets - 1) >> self.shift) + 1).min(self.mask + 1)
    }

    /// Bytes of the stripes that a table of so many buckets uses.
    pub(crate) fn bytes(&self, buckets: usize) -> usize {
        self.in_use(buckets) * size_of::<Stripe>()
    }

    /// Asks for a stripe's line, to lock it.
    #[inline(always)]
    pub(crate) fn prefetch_to_lock(&self, stripe: usize) {
        prefetch_to_write(self.stripe(stripe));
    }

    /// Two stripes, for a read.
    #[inline(always)]
    pub(crate) fn pair(&self, pair: [usize; 2]) -> StripePair<'_> {
        StripePair(pair.map(|stripe| self.stripe(stripe)))
    }

    /// The stripe of one bucket, for a read of nothing else.
    #[inline(always)]
    pub(crate) fn single(&self, bucket: usize) -> StripePair<'_, 1> {
        StripePair([self.stripe(self.of_bucket(bucket))])
    }

    /// Takes the stripe's lock, waiting for its holder.
    #[inline]
    fn spin_lock(&self, stripe: usize) {
        let version = &self.stripe(stripe)[VERSION];
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
        let version = &self.stripe(stripe)[VERSION];
        version.store(version.load(Ordering::Relaxed) | LOCKED, Ordering::Relaxed);
        // Pairs with the fence(Acquire) in `validate`.
        fence(Ordering::Release);
    }

    /// Unlocks a held stripe, with a new version if `changed`, else with the old one (CK-16).
    #[inline]
    pub(crate) fn unlock(&self, stripe: usize, changed: bool) {
        let version = &self.stripe(stripe)[VERSION];
        let old = version.load(Ordering::Relaxed) & !LOCKED;
        let new = if changed { (old + 1) & !LOCKED } else { old };
        // Release: pairs with the Acquire in `stamp` and in `spin_lock`.
        version.store(new, Ordering::Release);
    }

    /// Adds an item to a held stripe's count; returns the count.
    #[inline]
    pub(crate) fn add(&self, stripe: usize, inserted: bool) -> u32 {
        let tally = &self.stripe(stripe)[TALLY];
        let step = 1 + (u64::from(inserted) << 32);
        let new = tally.load(Ordering::Relaxed).wrapping_add(step);
        tally.store(new, Ordering::Relaxed);
        new as u32
    }

    /// Takes an item from a held stripe's count; returns the count before.
    #[inline]
    pub(crate) fn subtract(&self, stripe: usize) -> u32 {
        let tally = &self.stripe(stripe)[TALLY];
        let old = tally.load(Ordering::Relaxed);
        debug_assert!(old as u32 > 0, "an item was counted when it came");
        tally.store(old.wrapping_sub(1), Ordering::Relaxed);
        old as u32
    }

    /// Items and inserts of all stripes of so many buckets; exact when nobody writes.
    pub(crate) fn totals(&self, buckets: usize) -> (u64, u64) {
        (0..self.in_use(buckets))
            .map(|stripe| self.stripe(stripe)[TALLY].load(Ordering::Relaxed))
            .fold((0, 0), |(items, inserts), tally| {
                (
                    items + (tally & u64::from(u32::MAX)),
                    inserts + (tally >> 32),
                )
            })
    }
}

/// The versions of two stripes at one moment, or of one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp<const N: usize = 2>([u64; N]);

/// The stripes of a key that is being read; one, if the bucket that it is in is known.
#[derive(Clone, Copy)]
pub(crate) struct StripePair<'a, const N: usize = 2>([&'a Stripe; N]);

impl<const N: usize> StripePair<'_, N> {
    /// The versions before a read; `None` while one of the stripes is locked.
    #[inline(always)]
    pub(crate) fn stamp(self) -> Option<Stamp<N>> {
        // Acquire: pairs with the Release in `unlock`, whose data stores must be visible.
        let versions = self.0.map(|stripe| stripe[VERSION].load(Ordering::Acquire));
        let any = versions.iter().fold(0, |all, version| all | version);
        (any & LOCKED == 0).then_some(Stamp(versions))
    }

    /// Whether no writer changed a stripe since `stamp` was taken.
    #[inline(always)]
    pub(crate) fn validate(self, stamp: Stamp<N>) -> bool {
        // Pairs with the fence(Release) in `mark_locked` and `spin_lock`: a thread that read a
        // word stored after that fence sees, after this one, a version that is locked or newer.
        fence(Ordering::Acquire);
        let versions = self.0.map(|stripe| stripe[VERSION].load(Ordering::Relaxed));
        let differing = versions
            .iter()
            .zip(stamp.0)
            .fold(0, |all, (version, before)| all | (version ^ before));
        differing == 0
    }
}

/// How writers exclude each other (CK-35). Every kind that excludes anybody keeps the stripes'
/// versions right, so the readers are the same for all. Kinds other than [`VersionedSpin`] are in
/// `lock_kinds.rs`.
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

/// Every stripe in use, for the writer that was overtaken too often (CK-15) and for emptying a
/// table.
pub(crate) struct AllHeld<'a, C: Locks> {
    locks: &'a C,
    count: usize,
    /// `None` once the locks were handed on.
    section: Option<C::Section<'a>>,
}

impl<'a, C: Locks> AllHeld<'a, C> {
    /// Locks the stripes of a table that has `buckets()` buckets now. Once all are locked no bucket
    /// can be split: that takes the lock of a bucket that there is.
    pub(crate) fn new(locks: &'a C, buckets: impl Fn() -> usize) -> Self {
        let section = Some(locks.enter());
        let mut count = 0;
        while count < locks.stripes().in_use(buckets()) {
            locks.lock(count);
            count += 1;
        }
        Self {
            locks,
            count,
            section,
        }
    }

    /// Unlocks all, as changed, but those of `pair`, which stay held.
    pub(crate) fn keep(mut self, pair: [usize; 2]) -> Option<Held<'a, C>> {
        let section = self.section.take()?;
        for stripe in 0..self.count {
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
            for stripe in 0..self.count {
                self.locks.unlock(stripe, true);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Goal: a table that grows comes to use more stripes, up to the most there are, and each of
    /// its buckets has one of those. Method: sizes from one bucket to many millions.
    #[test]
    #[cfg_attr(miri, ignore = "reserves a megabyte of stripes")]
    fn stripes_follow_the_size() {
        let stripes = Stripes::new(16, 1 << 26).unwrap();
        for (buckets, used) in [
            (1, 1),
            (16, 1),
            (17, 2),
            (1 << 16, 1 << 12),
            ((1 << 20) - 15, STRIPES_MAX),
            (1 << 26, STRIPES_MAX),
        ] {
            assert_eq!(stripes.in_use(buckets), used);
            assert!(stripes.of_bucket(buckets - 1) < used);
        }
    }
}
