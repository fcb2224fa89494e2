//! Where the map keeps keys and values: the bucket layouts.
//!
//! ```text
//!   Beside4, 8 B keys and values: one line
//!   | k v | k v | k v | k v |                                  + 4 bits aside
//!
//!   Apart8: a key line, a value line
//!   | k k k k k k k k | v v v v v v v v |                      + 8 bits aside
//!
//!   Beside8Tagged: two lines, and a word of eight 1-byte tags aside
//! ```
//!
//! `Apart8` is the paper's (section 3.2; CK-6); `Beside4` is the default because a hit is then one
//! round of misses, both candidate lines at once, where tags or a value line cost a second one
//! (`docs/research/table.md`). What is occupied is kept apart from the bucket, because a search
//! then finds a free slot in an array that stays in the cache.
//!
//! An empty slot has key words of zero. So a lookup of any key but zero needs no look at what is
//! occupied: an empty slot cannot match.

use std::marker::PhantomData;

use curtail_memory::{
    Pages, Region,
    prefetch::{prefetch, prefetch_to_write},
};

use crate::{
    hash::KeyHasher,
    layout::{Layout, Place},
    plain::Plain,
    sync::{AtomicU64, Ordering},
};

const LINE_WORDS: usize = 8;
const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// A bucket layout, chosen when the program is compiled.
pub trait Shape {
    /// Slots per bucket: 4, 8 or 16.
    const SLOTS: usize;
    /// Values in lines of their own behind the keys, not beside their keys.
    const VALUES_APART: bool;
    /// An 8-bit tag for each slot, instead of one bit; needs 8 or 16 slots.
    const TAGS: bool;
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident: $slots:expr, apart $apart:expr, tags $tags:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}

        impl Shape for $name {
            const SLOTS: usize = $slots;
            const VALUES_APART: bool = $apart;
            const TAGS: bool = $tags;
        }
    )*};
}

shapes! {
    /// Four pairs, each value beside its key: one cache line for 8 B keys and values. The default.
    Beside4: 4, apart false, tags false;
    /// Eight pairs, found by their tags.
    Beside8Tagged: 8, apart false, tags true;
    /// Four keys, then four values.
    Apart4: 4, apart true, tags false;
    /// Eight keys, then eight values: the paper's layout.
    Apart8: 8, apart true, tags false;
    /// Sixteen keys, then sixteen values.
    Apart16: 16, apart true, tags false;
    /// Eight keys, then eight values, found by their tags.
    Apart8Tagged: 8, apart true, tags true;
}

/// Types that are only named: no value of them is held.
type Kind<K, V, S> = fn() -> (K, V, S);

/// The memory of a map.
pub(crate) struct Slots<K, V, S, H> {
    pairs: Region,
    /// Occupancy bits of all buckets, `S::SLOTS` for each; or tags, 0 for an empty slot.
    aside: Region,
    buckets: usize,
    pub(crate) hasher: H,
    kind: PhantomData<Kind<K, V, S>>,
}

impl<K: Plain, V: Plain, S: Shape, H: KeyHasher<K>> Slots<K, V, S, H> {
    const PAIR_WORDS: usize = K::WORDS + V::WORDS;
    /// Words per bucket, whole lines.
    const STRIDE: usize = if S::VALUES_APART {
        Self::KEYS_END + S::SLOTS * V::WORDS
    } else {
        S::SLOTS * Self::PAIR_WORDS
    }
    .next_multiple_of(LINE_WORDS);
    /// Where the values begin if they are apart: right behind the keys.
    const KEYS_END: usize = S::SLOTS * K::WORDS;
    const TAG_WORDS: usize = S::SLOTS / 8;
    const BUCKETS_PER_WORD: usize = 64 / S::SLOTS;
    const MASK: u64 = (1 << S::SLOTS) - 1;

    pub(crate) fn new(buckets: usize, pages: Pages, hasher: H) -> std::io::Result<Self> {
        const {
            assert!(
                S::SLOTS == 4 || S::SLOTS == 8 || S::SLOTS == 16,
                "4, 8 or 16 slots"
            )
        };
        const { assert!(!S::TAGS || S::SLOTS >= 8, "tags come in words of eight") };
        const { assert!(K::WORDS > 0, "a key has a word") };
        let aside = if S::TAGS {
            buckets * Self::TAG_WORDS
        } else {
            buckets.div_ceil(Self::BUCKETS_PER_WORD)
        };
        Ok(Self {
            pairs: Region::new(buckets * Self::STRIDE, pages)?,
            aside: Region::new(aside, pages)?,
            buckets,
            hasher,
            kind: PhantomData,
        })
    }

    #[inline(always)]
    fn bucket(&self, bucket: usize) -> &[AtomicU64] {
        let lines = self.pairs.words().as_chunks::<LINE_WORDS>().0;
        if Self::STRIDE == LINE_WORDS {
            // One check of bounds instead of two.
            return &lines[bucket];
        }
        let count = Self::STRIDE / LINE_WORDS;
        lines[bucket * count..][..count].as_flattened()
    }

    #[inline(always)]
    fn key_offset(slot: usize) -> usize {
        if S::VALUES_APART {
            slot * K::WORDS
        } else {
            slot * Self::PAIR_WORDS
        }
    }

    #[inline(always)]
    fn value_offset(slot: usize) -> usize {
        if S::VALUES_APART {
            Self::KEYS_END + slot * V::WORDS
        } else {
            slot * Self::PAIR_WORDS + K::WORDS
        }
    }

    #[inline(always)]
    fn key(&self, place: Place) -> K {
        let words = self.bucket(place.bucket());
        let offset = Self::key_offset(place.slot());
        K::from_words(|index| words[offset + index].load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn value(&self, place: Place) -> V {
        let words = self.bucket(place.bucket());
        let offset = Self::value_offset(place.slot());
        V::from_words(|index| words[offset + index].load(Ordering::Relaxed))
    }

    /// Writes the value of a held slot.
    #[inline(always)]
    pub(crate) fn set_value(&self, place: Place, value: &V) {
        let words = &self.bucket(place.bucket())[Self::value_offset(place.slot())..][..V::WORDS];
        for (index, word) in words.iter().enumerate() {
            word.store(value.word(index), Ordering::Relaxed);
        }
    }

    /// Fills an empty, held slot.
    #[inline(always)]
    pub(crate) fn fill(&self, place: Place, key: &K, value: &V, hash: u64) {
        let words = &self.bucket(place.bucket())[Self::key_offset(place.slot())..][..K::WORDS];
        for (index, word) in words.iter().enumerate() {
            word.store(key.word(index), Ordering::Relaxed);
        }
        self.set_value(place, value);
        self.occupy(place, tag_of(hash));
    }

    /// The slot of a pair of buckets that holds `key`.
    #[inline(always)]
    pub(crate) fn find(&self, pair: [usize; 2], key: &K, hash: u64) -> Option<Place> {
        if S::TAGS || (0..K::WORDS).all(|index| key.word(index) == 0) {
            let [first, second] = pair.map(|bucket| self.matches(bucket, key, hash));
            let both = first | second << S::SLOTS;
            let index = both.trailing_zeros() as usize;
            return (both != 0)
                .then(|| Place::new(pair[usize::from(first == 0)], index % S::SLOTS));
        }
        // Selections, not branches: which slot it is cannot be foreseen, and a branch on it would
        // keep the processor from running ahead into the next lookup's misses.
        let mut found = usize::MAX;
        let mut bucket = pair[0];
        for slot in 0..S::SLOTS {
            found = if self.key(Place::new(pair[0], slot)) == *key {
                slot
            } else {
                found
            };
        }
        for slot in 0..S::SLOTS {
            let here = self.key(Place::new(pair[1], slot)) == *key;
            found = if here { slot } else { found };
            bucket = if here { pair[1] } else { bucket };
        }
        (found != usize::MAX).then(|| Place::new(bucket, found))
    }

    /// One bit for each slot of the bucket that holds `key`.
    #[inline(always)]
    fn matches(&self, bucket: usize, key: &K, hash: u64) -> u32 {
        if S::TAGS {
            let mut candidates = self.tag_matches(bucket, tag_of(hash));
            let mut found = 0;
            while candidates != 0 {
                let slot = candidates.trailing_zeros();
                candidates &= candidates - 1;
                found |= u32::from(self.key(Place::new(bucket, slot as usize)) == *key) << slot;
            }
            return found;
        }
        let found = (0..S::SLOTS).fold(0, |found, slot| {
            found | u32::from(self.key(Place::new(bucket, slot)) == *key) << slot
        });
        // The only key that an empty slot could be taken for.
        if (0..K::WORDS).all(|index| key.word(index) == 0) {
            return found & self.occupied(bucket);
        }
        found
    }

    /// One bit for each slot with this tag.
    #[inline(always)]
    fn tag_matches(&self, bucket: usize, tag: u8) -> u32 {
        self.tag_words(bucket)
            .iter()
            .enumerate()
            .fold(0, |matches, (index, word)| {
                let differs = word.load(Ordering::Relaxed) ^ (u64::from(tag) * EVERY_BYTE);
                matches | zero_bytes(differs) << (8 * index)
            })
    }

    #[inline(always)]
    fn tag_words(&self, bucket: usize) -> &[AtomicU64] {
        &self.aside.words()[bucket * Self::TAG_WORDS..][..Self::TAG_WORDS]
    }

    /// The word with a bucket's occupancy bits, and where they begin in it.
    #[inline(always)]
    fn bits(&self, bucket: usize) -> (&AtomicU64, usize) {
        let shift = bucket % Self::BUCKETS_PER_WORD * S::SLOTS;
        (&self.aside.words()[bucket / Self::BUCKETS_PER_WORD], shift)
    }

    #[inline(always)]
    fn occupy(&self, place: Place, tag: u8) {
        if S::TAGS {
            self.set_tag(place, tag);
        } else {
            // Buckets of other stripes share the word, so it takes an atomic or.
            let (word, shift) = self.bits(place.bucket());
            word.fetch_or(1 << (shift + place.slot()), Ordering::Relaxed);
        }
    }

    /// Sets a tag of a held bucket, whose tag words nobody else writes.
    #[inline(always)]
    fn set_tag(&self, place: Place, tag: u8) {
        let word = &self.tag_words(place.bucket())[place.slot() / 8];
        let shift = place.slot() % 8 * 8;
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(others | u64::from(tag) << shift, Ordering::Relaxed);
    }

    /// Asks for what a write of this bucket needs: lines of keys, and what is occupied.
    #[inline(always)]
    pub(crate) fn prefetch_for_write(&self, bucket: usize) {
        self.each_key_line(bucket, |line| prefetch_to_write(line));
        if S::TAGS {
            prefetch_to_write(&self.tag_words(bucket)[0]);
        } else {
            prefetch_to_write(self.bits(bucket).0);
        }
    }

    #[inline(always)]
    fn each_key_line(&self, bucket: usize, ask: impl Fn(&AtomicU64)) {
        let words = self.bucket(bucket);
        let mut line = usize::MAX;
        for slot in 0..S::SLOTS {
            let offset = Self::key_offset(slot);
            if offset / LINE_WORDS != line {
                line = offset / LINE_WORDS;
                ask(&words[offset]);
            }
        }
    }

    #[inline(always)]
    fn prefetch_aside(&self, bucket: usize) {
        if S::TAGS {
            prefetch(&self.tag_words(bucket)[0]);
        } else {
            prefetch(self.bits(bucket).0);
        }
    }

    /// First stage of a batch of lookups: what `prefetch_matches` reads.
    #[inline(always)]
    pub(crate) fn prefetch_first(&self, bucket: usize) {
        if S::TAGS {
            self.prefetch_aside(bucket);
        } else {
            self.prefetch(bucket);
        }
    }

    /// Second stage: the lines of slots that will probably match, where they are other lines.
    #[inline(always)]
    pub(crate) fn prefetch_matches(&self, bucket: usize, key: &K, hash: u64) {
        if S::TAGS {
            let mut candidates = self.tag_matches(bucket, tag_of(hash));
            while candidates != 0 {
                let slot = candidates.trailing_zeros() as usize;
                candidates &= candidates - 1;
                let words = self.bucket(bucket);
                prefetch(&words[Self::key_offset(slot)]);
                self.prefetch_value(bucket, slot);
            }
        } else if Self::VALUES_ELSEWHERE {
            let found = self.matches(bucket, key, hash);
            if found != 0 {
                self.prefetch_value(bucket, found.trailing_zeros() as usize);
            }
        }
    }

    /// Whether a value is in another line than its key.
    pub(crate) const VALUES_ELSEWHERE: bool = S::VALUES_APART && Self::STRIDE > LINE_WORDS;

    /// All lines of a value; a long one is fetched by the processor itself after the first few.
    #[inline(always)]
    fn prefetch_value(&self, bucket: usize, slot: usize) {
        let words = self.bucket(bucket);
        let first = Self::value_offset(slot);
        for index in (0..V::WORDS.min(4 * LINE_WORDS)).step_by(LINE_WORDS) {
            prefetch(&words[first + index]);
        }
    }
}

impl<K: Plain, V: Plain, S: Shape, H: KeyHasher<K>> Layout for Slots<K, V, S, H> {
    type Entry = (K, V);
    const SLOTS: usize = S::SLOTS;
    const OCCUPANCY_APART: bool = true;

    fn buckets_max(&self) -> usize {
        self.buckets
    }

    #[inline(always)]
    fn occupied(&self, bucket: usize) -> u32 {
        if S::TAGS {
            return !self.tag_matches(bucket, 0) & Self::MASK as u32;
        }
        let (word, shift) = self.bits(bucket);
        (word.load(Ordering::Relaxed) >> shift & Self::MASK) as u32
    }

    #[inline(always)]
    fn hash_at(&self, place: Place) -> u64 {
        self.hasher.hash(&self.key(place))
    }

    fn entry(&self, place: Place) -> (K, V) {
        (self.key(place), self.value(place))
    }

    #[inline]
    fn relocate(&self, from: Place, to: Place) {
        let (key, value) = self.entry(from);
        let tag = if S::TAGS {
            let word = self.tag_words(from.bucket())[from.slot() / 8].load(Ordering::Relaxed);
            (word >> (from.slot() % 8 * 8)) as u8
        } else {
            0
        };
        let words = &self.bucket(to.bucket())[Self::key_offset(to.slot())..][..K::WORDS];
        for (index, word) in words.iter().enumerate() {
            word.store(key.word(index), Ordering::Relaxed);
        }
        self.set_value(to, &value);
        self.occupy(to, tag);
        self.clear(from);
    }

    #[inline]
    fn clear(&self, place: Place) {
        if S::TAGS {
            self.set_tag(place, 0);
        } else {
            let (word, shift) = self.bits(place.bucket());
            word.fetch_and(!(1 << (shift + place.slot())), Ordering::Relaxed);
        }
        // An empty slot's key is zero: see the head of this file.
        let words = &self.bucket(place.bucket())[Self::key_offset(place.slot())..][..K::WORDS];
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn prefetch(&self, bucket: usize) {
        self.each_key_line(bucket, |line| prefetch(line));
    }

    #[inline(always)]
    fn prefetch_residents(&self, _bucket: usize) {}

    fn touch(&self, bucket: usize) {
        // A write, so that the kernel supplies the page now and not under a lock; adding nothing,
        // because another thread may be filling the bucket already.
        if cfg!(not(loom)) {
            // Loom lets a later load choose between this and a store that came before it.
            self.bucket(bucket)[0].fetch_or(0, Ordering::Relaxed);
        }
    }

    fn bytes(&self, buckets: usize) -> usize {
        let aside = if S::TAGS {
            buckets * Self::TAG_WORDS
        } else {
            buckets.div_ceil(Self::BUCKETS_PER_WORD)
        };
        8 * (buckets * Self::STRIDE + aside)
    }
}

/// Eight bits that depend on all of the hash, never 0.
#[inline(always)]
fn tag_of(hash: u64) -> u8 {
    ((hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).max(1)
}

/// One bit for each byte of `word` that is zero.
#[inline(always)]
fn zero_bytes(word: u64) -> u32 {
    const LOW: u64 = 0x7f * EVERY_BYTE;
    let marks = !(((word & LOW) + LOW) | word | LOW);
    // Gathers the marks, bit 7 of each byte, into the low eight bits.
    ((marks >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the tag match is exact, without the false positives of the shorter formula. Method:
    /// bytes 0, 1 and 0x80 in all positions.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic alone, and slow")]
    fn zero_bytes_are_found_exactly() {
        for pattern in 0..3_u32.pow(8) {
            let mut rest = pattern;
            let bytes: [u8; 8] = std::array::from_fn(|_| {
                let byte = [0, 1, 0x80][(rest % 3) as usize];
                rest /= 3;
                byte
            });
            let expected = (0..8).fold(0, |mask, i| mask | u32::from(bytes[i] == 0) << i);
            assert_eq!(zero_bytes(u64::from_le_bytes(bytes)), expected, "{bytes:?}");
        }
    }
}
