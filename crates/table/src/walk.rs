//! Visiting every item while others write (CK-58).
//!
//! Buckets are visited in order, each copied under its lock. An item could escape by moving from a
//! bucket not yet visited to one already visited; so while somebody walks, moves to a lower bucket
//! are logged by whoever makes them, and the walk ends with the log. Every item that is in the
//! table throughout is therefore visited at least once; one that moves may be visited twice.
//!
//! Why no move is missed: the walker announces itself before it locks its first bucket. A move to
//! a bucket that it has visited happens under that bucket's lock, taken after the walker released
//! it, so the mover sees the announcement.

use crate::{
    buckets::{Reference, Resolver, SLOTS, reference_in},
    item_index::Index,
    locks::{Held, Locks},
    sync::{AtomicUsize, Ordering, lock},
};

impl<R: Resolver, C: Locks> Index<R, C> {
    /// Calls `visit` for every item: each that is there throughout at least once, one that moves
    /// perhaps twice. No lock is held during the call; one walk runs at a time.
    pub fn for_each(&self, mut visit: impl FnMut(Reference)) {
        let _alone = lock(&self.walk);
        let announced = Announced::new(&self.walkers);
        let mut references = Vec::with_capacity(SLOTS);
        let mut bucket = 0;
        while bucket < self.size().buckets() {
            self.copy_bucket(bucket, &mut references);
            references.drain(..).for_each(&mut visit);
            bucket += 1;
        }
        drop(announced);
        let moved = std::mem::take(&mut *lock(&self.moved));
        moved.into_iter().for_each(visit);
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
        let mut references = Vec::with_capacity(SLOTS);
        let buckets = self.size().buckets();
        let end = buckets.min(from.saturating_add(buckets_max));
        for bucket in from..end {
            self.copy_bucket(bucket, &mut references);
            references.drain(..).for_each(&mut visit);
        }
        (end < buckets).then_some(end)
    }

    fn copy_bucket(&self, bucket: usize, references: &mut Vec<Reference>) {
        let stripe = self.locks.stripes().of_bucket(bucket);
        let _held = Held::pair(&self.locks, [stripe, stripe]);
        let words = self.buckets.line(bucket).iter();
        references.extend(words.filter_map(|word| reference_in(word.load(Ordering::Relaxed))));
    }
}

/// Says that somebody walks, until dropped.
struct Announced<'a>(&'a AtomicUsize);

impl<'a> Announced<'a> {
    fn new(walkers: &'a AtomicUsize) -> Self {
        walkers.store(1, Ordering::Relaxed);
        Self(walkers)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
