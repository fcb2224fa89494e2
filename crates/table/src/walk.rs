//! Visiting every item while others write (CK-58).
//!
//! Buckets are visited in order, each under its lock. An item could escape by moving from a bucket
//! not yet visited to one already visited; so a thread that makes such a move leaves its hash with
//! the walk, which ends with the buckets of those. Every item that is in the table throughout is
//! therefore visited at least once; one that moves may be visited twice. A walk may rest for as
//! long as it likes, and several may be under way.
//!
//! Why no move is missed: a walk raises its position past a bucket while it holds that bucket's
//! lock, and a move holds the locks of both its buckets. If the walk has visited the lower bucket
//! before the move, the mover sees a position past that bucket, for it took the lock afterwards. If
//! it has not visited the higher bucket yet, the position is not past that one, and cannot become
//! so while the mover holds the lock. So the mover leaves the hash exactly when it has to. The
//! hash, not the reference: the item may be elsewhere in memory when its turn comes.

use std::sync::Arc;

use curtail_types::KeyHash;

use crate::{
    buckets::{Place, Reference, Resolver, SLOTS, matching, reference_in, tag_of},
    cuckoo_table::Bug,
    item_index::Index,
    locks::{Held, Locks},
    sync::{AtomicUsize, Mutex, Ordering, lock},
};

/// The walks under way.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// How many there are; looked at by every move.
    count: AtomicUsize,
    passes: Mutex<Vec<Arc<Pass>>>,
}

/// How far one walk is, for threads that move items.
#[derive(Debug, Default)]
struct Pass {
    /// The first bucket that is not visited yet.
    next: AtomicUsize,
    /// Items that were moved from behind `next` to before it.
    moved: Mutex<Moved>,
}

#[derive(Debug, Default)]
struct Moved {
    hashes: Vec<KeyHash>,
    /// There were too many: the walk has to begin again.
    is_too_long: bool,
}

/// Hashes that are kept for one walk: half a MiB. A walk beside which others move more begins again
/// at its end, which costs it time but never an item.
const MOVED_MAX: usize = if cfg!(test) { 16 } else { 1 << 16 };

/// A walk through a table; dropping it ends it.
#[derive(Debug)]
pub struct Walk {
    pass: Arc<Pass>,
    walks: Arc<Walks>,
}

impl Walks {
    /// An item is moved between two buckets whose locks are held.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        // A walk that visits a bucket counted itself before it took the bucket's lock.
        self.count.load(Ordering::Relaxed) != 0
    }

    #[cold]
    pub(crate) fn note_move(&self, from: Place, to: Place, hash: KeyHash) {
        for pass in lock(&self.passes).iter() {
            let next = pass.next.load(Ordering::Relaxed);
            if to.bucket() < next && next <= from.bucket() {
                let mut moved = lock(&pass.moved);
                if moved.hashes.len() < MOVED_MAX {
                    moved.hashes.push(hash);
                } else {
                    moved.is_too_long = true;
                }
            }
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        lock(&self.walks.passes).retain(|pass| !Arc::ptr_eq(pass, &self.pass));
        self.walks.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R: Resolver, C: Locks> Index<R, C> {
    /// Begins a walk: each item that is in the table from now until [`Index::walk_on`] has returned
    /// false is visited at least once.
    pub fn walk(&self) -> Walk {
        let pass = Arc::new(Pass::default());
        lock(&self.walks.passes).push(Arc::clone(&pass));
        self.walks.count.fetch_add(1, Ordering::Relaxed);
        let walks = Arc::clone(&self.walks);
        Walk { pass, walks }
    }

    /// Visits the items of the next buckets, at most `buckets_max`; whether there is more. `visit`
    /// is called under the bucket's lock: it must be short and leave the table alone.
    pub fn walk_on(
        &self,
        walk: &mut Walk,
        buckets_max: usize,
        mut visit: impl FnMut(Reference),
    ) -> bool {
        let pass = &walk.pass;
        for _ in 0..buckets_max {
            let bucket = pass.next.load(Ordering::Relaxed);
            if bucket < self.size().buckets() {
                self.visit_bucket(bucket, &pass.next, &mut visit);
                continue;
            }
            let mut moved = lock(&pass.moved);
            if moved.is_too_long {
                // What was moved before this will be visited in its bucket.
                *moved = Moved::default();
                pass.next.store(0, Ordering::Relaxed);
                continue;
            }
            let Some(hash) = moved.hashes.pop() else {
                return false;
            };
            drop(moved);
            self.visit_pair(hash, &mut visit);
        }
        true
    }

    /// Calls `visit` for every item, under its bucket's lock: each that is there throughout at
    /// least once, one that moves perhaps twice.
    pub fn for_each(&self, mut visit: impl FnMut(Reference)) {
        let mut walk = self.walk();
        while self.walk_on(&mut walk, usize::MAX, &mut visit) {}
    }

    /// Visits the references in `buckets_max` buckets from `from` on, without a lock: bounded work
    /// for listings. Returns where to go on, or nothing at the end. An item that moves between two
    /// calls may be missed or seen twice.
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
            let held = self.hold_bucket(bucket);
            references.extend(self.references(bucket));
            drop(held);
            references.drain(..).for_each(&mut visit);
        }
        (end < buckets).then_some(end)
    }

    fn visit_bucket(&self, bucket: usize, next: &AtomicUsize, visit: impl FnMut(Reference)) {
        for reference in self.references(bucket) {
            self.resolver().prefetch(reference);
        }
        let held = self.hold_bucket(bucket);
        // Under the lock, see the head of this file.
        let is_late = self.tuning.planted(Bug::LateWalk);
        if !is_late {
            next.store(bucket + 1, Ordering::Relaxed);
        }
        self.references(bucket).for_each(visit);
        drop(held);
        if is_late {
            next.store(bucket + 1, Ordering::Relaxed);
        }
    }

    /// Visits the items that may be those of `hash`.
    fn visit_pair(&self, hash: KeyHash, mut visit: impl FnMut(Reference)) {
        let held = self.hold(hash.0);
        let tag = tag_of(hash);
        for bucket in held.pair {
            let words = self.buckets.line(bucket).iter();
            words
                .filter_map(|word| matching(word.load(Ordering::Relaxed), tag))
                .for_each(&mut visit);
        }
    }

    fn hold_bucket(&self, bucket: usize) -> Held<'_, C> {
        let stripe = self.locks.stripes().of_bucket(bucket);
        Held::pair(&self.locks, [stripe, stripe])
    }

    fn references(&self, bucket: usize) -> impl Iterator<Item = Reference> {
        let words = self.buckets.line(bucket).iter();
        words.filter_map(|word| reference_in(word.load(Ordering::Relaxed)))
    }
}
