//! The index over an array of pairs of words: what the benches compare with other tables.

use std::{
    hash::{BuildHasher, Hasher},
    sync::atomic::Ordering::Relaxed,
};

use curtail_memory::{Pages, Region, prefetch::prefetch};
use curtail_table::{Index, IndexConfig, Locks, Reference, Resolver, VersionedSpin};
use curtail_types::KeyHash;

use super::BATCH;

/// Keys and values: a reference is the number of a pair.
pub(crate) struct Pairs {
    words: Region,
    hash: SeededHash,
}

impl Pairs {
    #[inline(always)]
    fn pair(&self, at: Reference) -> [u64; 2] {
        let pair = &self.words.words().as_chunks::<2>().0[at.get() as usize];
        [pair[0].load(Relaxed), pair[1].load(Relaxed)]
    }

    #[inline(always)]
    fn value(&self, at: Reference, key: u64) -> Option<u64> {
        let [found, value] = self.pair(at);
        (found == key).then_some(value)
    }
}

impl Resolver for Pairs {
    #[inline]
    fn hash_of(&self, at: Reference) -> KeyHash {
        self.hash.of(self.pair(at)[0])
    }

    #[inline]
    fn prefetch(&self, at: Reference) {
        prefetch(&self.words.words()[2 * at.get() as usize]);
    }
}

/// A table of words by words: the index, and the pairs in an array beside it. The values of the
/// benches count from 0, and so each is its pair's place, too.
pub(crate) struct Indexed<C: Locks = VersionedSpin>(Index<Pairs, C>);

impl<C: Locks> Indexed<C> {
    pub(crate) fn new(items: usize, config: IndexConfig, hash: SeededHash) -> Self {
        let words = Region::new(2 * (items + 1), Pages::Huge);
        let words = words.unwrap_or_else(|error| panic!("{error}"));
        let index = Index::with_locks(config, Pairs { words, hash });
        Self(index.unwrap_or_else(|error| panic!("{error}")))
    }

    pub(crate) fn index(&self) -> &Index<Pairs, C> {
        &self.0
    }

    #[inline(always)]
    fn hash(&self, key: u64) -> KeyHash {
        self.0.resolver().hash.of(key)
    }

    /// Adds a key that is not there; whether it was not, and there was room.
    #[inline]
    pub(crate) fn insert(&self, key: u64, value: u64) -> bool {
        let pairs = self.0.resolver();
        let Some(at) = Reference::new(value + 1) else {
            return false;
        };
        let words = &pairs.words.words().as_chunks::<2>().0[at.get() as usize];
        words[0].store(key, Relaxed);
        words[1].store(value, Relaxed);
        let Ok(mut locked) = self.0.lock_with_room(self.hash(key)) else {
            return false;
        };
        let is_there = |found| pairs.value(found, key).is_some();
        locked.find(is_there).is_none() && locked.insert(at).is_ok()
    }

    /// Adds many keys; whether each was added.
    #[inline]
    pub(crate) fn insert_batch(&self, pairs: &[(u64, u64)]) -> bool {
        let keys = pairs.iter().map(|&(key, _)| key);
        keys.for_each(|key| self.0.prefetch(self.hash(key)));
        pairs.iter().all(|&(key, value)| self.insert(key, value))
    }

    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        let pairs = self.0.resolver();
        self.0.read(self.hash(key), |at| pairs.value(at, key))
    }

    /// The sum of the values of a batch, all of whose misses overlap.
    #[inline]
    pub(crate) fn get_batch(&self, keys: &[u64; BATCH]) -> u64 {
        let pairs = self.0.resolver();
        let hashes = keys.map(|key| self.hash(key));
        hashes.iter().for_each(|&hash| self.0.prefetch(hash));
        let hints = hashes.map(|hash| self.0.prefetch_candidates(hash));
        let values = (0..BATCH).filter_map(|i| {
            let value = |at, _| pairs.value(at, keys[i]);
            self.0.read_hinted(hashes[i], hints[i], value)
        });
        values.fold(0, u64::wrapping_add)
    }
}

/// A multiplication and a mixer under a secret: the hash function of all tables that are measured.
#[derive(Clone, Copy)]
pub(crate) struct SeededHash {
    multiplier: u128,
    addend: u128,
}

impl SeededHash {
    /// The same in every run.
    pub(crate) const FIXED: Self = Self {
        multiplier: 0x9d5c_71a3_0e41_b6f7_52c8_44be_93a1_670d,
        addend: 0x1234_5678_9abc_def1,
    };

    #[inline(always)]
    pub(crate) fn of(&self, word: u64) -> KeyHash {
        let product = self.multiplier.wrapping_mul(u128::from(word));
        let word = (product.wrapping_add(self.addend) >> 64) as u64;
        let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        KeyHash(word ^ word >> 32)
    }
}

impl BuildHasher for SeededHash {
    type Hasher = SeededHasher;

    #[inline(always)]
    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(*self, 0)
    }
}

/// [`SeededHash`] of one word, in the standard library's shape.
pub(crate) struct SeededHasher(SeededHash, u64);

impl Hasher for SeededHasher {
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        self.1 = self.0.of(word).0;
    }

    fn write(&mut self, _bytes: &[u8]) {
        panic!("keys are words");
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.1
    }
}
