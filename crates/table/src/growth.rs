//! Growing a table in place, one bucket at a time (linear hashing; Litwin, 1980).
//!
//! The textbook concurrent table doubles: a second array, twice the memory while both exist, a
//! protocol to migrate, epochs to free the old one (CK-36..41). Here the array lies at a fixed
//! address in reserved address space and grows at its end. Splitting bucket `n - 2^p` sends about
//! half of its items to the new bucket `n`. One split moves at most one bucket's items under two
//! stripe locks, so there is no pause, memory follows the number of items smoothly, and nothing is
//! ever freed under a reader's feet. `cuckoo_table.rs` says why readers and writers never see a
//! wrong number of buckets.

use crate::{
    buckets::{Place, Resolver, SLOTS},
    counters::Event,
    cuckoo_table::{Bug, Size},
    item_index::Index,
    locks::{Held, Locks},
    sync::Ordering,
};

/// Splits in one go before an insert: enough for their cache misses to overlap, few enough that no
/// insert waits long.
const SPLITS_PER_INSERT: usize = 4;
/// Splits after a search that found no path (CK-41 caps the work of one operation).
const SPLITS_AFTER_FAILURE_MAX: usize = 64;
const SPLITS_AFTER_FAILURE_MIN: usize = 4;
/// A table of fewer buckets grows after a failed search however empty it is: in so few buckets
/// random keys collide by chance, from here on once in 10^10 tables.
const BUCKETS_FEW: usize = 256;

impl<R: Resolver, C: Locks> Index<R, C> {
    /// Grows by up to this many buckets of eight slots; returns how many were added.
    pub fn grow(&self, count: usize) -> usize {
        let mut done = 0;
        while done < count {
            let round = (count - done).min(SPLITS_PER_INSERT);
            let first = self.size().buckets();
            // A table of one bucket that may not grow has no bucket to fetch.
            let round = round.min(
                self.buckets_max
                    .load(Ordering::Relaxed)
                    .saturating_sub(first),
            );
            if round == 0 {
                return done;
            }
            for buckets in first..first + round {
                self.buckets.prefetch(split_source(buckets));
            }
            for buckets in first..first + round {
                self.buckets.prefetch_residents(split_source(buckets));
            }
            for _ in 0..round {
                if !self.split() {
                    return done;
                }
                done += 1;
            }
        }
        done
    }

    #[cold]
    pub(crate) fn grow_a_little(&self) {
        self.grow(SPLITS_PER_INSERT);
    }

    /// Grows after a failed search; `false` if the table may not grow, or if it is less than half
    /// full, when more buckets would only help somebody who crafts keys (CK-39).
    pub(crate) fn grow_after_failure(&self) -> bool {
        let buckets = self.size().buckets();
        if buckets >= BUCKETS_FEW && self.len() * 2 < buckets * SLOTS {
            return false;
        }
        let count = (buckets / 64).clamp(SPLITS_AFTER_FAILURE_MIN, SPLITS_AFTER_FAILURE_MAX);
        self.grow(count) > 0
    }

    /// Adds one bucket, unless the limit is reached. If another thread adds it first that counts.
    fn split(&self) -> bool {
        let buckets = self.size().buckets();
        if buckets >= self.buckets_max.load(Ordering::Relaxed) {
            return false;
        }
        let source = split_source(buckets);
        self.buckets.touch(buckets);
        let mut stripes = self.locks.stripes().of_pair([source, buckets]);
        if self.tuning.planted(Bug::HalfLockedSplit) {
            stripes[1] = stripes[0];
        }
        let mut held = Held::pair(&self.locks, stripes);
        // The thread that adds bucket `buckets` holds these locks, so only one passes this check.
        if self.size().buckets() != buckets {
            return true;
        }
        if !self.tuning.planted(Bug::SilentSplit) {
            stripes.into_iter().for_each(|stripe| held.changed(stripe));
        }
        let occupied = self.buckets.occupied(source);
        for slot in (0..SLOTS).filter(|slot| occupied >> slot & 1 == 1) {
            let from = Place::new(source, slot);
            if !stays(self.buckets.hash_at(from), source, buckets + 1) {
                self.relocate(from, Place::new(buckets, slot));
            }
        }
        // Inside the lock: a data word like any other (see the head of `cuckoo_table.rs`).
        self.set_buckets(buckets + 1);
        drop(held);
        self.tallies.count(Event::Split);
        true
    }
}

/// The bucket to split when there are `buckets` of them.
#[inline]
fn split_source(buckets: usize) -> usize {
    buckets - (buckets + 1).next_power_of_two() / 2
}

/// Whether an item of bucket `bucket` may stay there once there are `buckets` buckets.
#[inline]
fn stays(hash: u64, bucket: usize, buckets: usize) -> bool {
    Size::of(buckets).pair(hash).contains(&bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: splitting visits each bucket once per doubling, and only keys of the split bucket
    /// change their place, to the new bucket. Method: all table sizes up to 300, all hashes.
    #[test]
    fn a_split_moves_keys_of_one_bucket_only() {
        for buckets in 1..if cfg!(miri) { 20 } else { 300_usize } {
            let source = split_source(buckets);
            assert!(source < buckets);
            for half in 0..if cfg!(miri) { 64 } else { 1024_u32 } {
                let (old, new) = (
                    Size::of(buckets).linear(half),
                    Size::of(buckets + 1).linear(half),
                );
                assert!(old < buckets);
                assert!(
                    new == old || (old == source && new == buckets),
                    "{buckets} {half}"
                );
            }
        }
    }
}
