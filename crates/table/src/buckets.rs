//! The buckets: a cache line of eight slots each, a word per slot (after MICA and MemC3; CK-46,
//! CK-47).
//!
//! ```text
//!   63      60 59                 40 39                                   0
//!   |  mark  |        tag          |              reference               |   0 = empty
//! ```
//!
//! The tag is 20 bits of hash that do not follow from the bucket, so a lookup follows a wrong
//! reference once in some 60,000 lookups. The mark is a small saturating counter for the owner of
//! the items (how often one was used). Keys are not here: the owner compares them, and tells an
//! item's hash when it must move (`Resolver`).
//!
//! A reader may read a slot while a writer changes it, and throws away what it read then. That is
//! defined behaviour because slots are atomics, never borrowed otherwise (CK-51), and harmless
//! because any word has a meaning (CK-56): whatever its 40 bits say, a resolver bears them.

use curtail_memory::{Pages, Region, prefetch::prefetch};
use curtail_types::KeyHash;

use crate::sync::{AtomicU64, Ordering};

/// Slots per bucket.
pub(crate) const SLOTS: usize = 8;

const REFERENCE_BITS: u32 = 40;
pub(crate) const REFERENCE_MASK: u64 = (1 << REFERENCE_BITS) - 1;
const TAG_MASK: u64 = ((1 << 20) - 1) << REFERENCE_BITS;
const MARK_SHIFT: u32 = 60;

/// The greatest mark; counting stops there.
pub const MARK_MAX: u8 = 15;

/// Where an item is: 40 bits, never zero, whose meaning is the owner's.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Reference(pub(crate) u64);

impl Reference {
    /// The greatest value plus one.
    pub const END: u64 = 1 << REFERENCE_BITS;

    /// A reference, if `value` is neither zero nor above 40 bits.
    #[inline(always)]
    pub const fn new(value: u64) -> Option<Self> {
        if value != 0 && value < Self::END {
            Some(Self(value))
        } else {
            None
        }
    }

    /// The value it was made of.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What the index must be able to ask about the items it refers to.
///
/// Both may be called without a lock and with a reference that is out of date: they must be safe
/// then, and may answer anything.
pub trait Resolver {
    /// The hash of the item's key, the same that it was inserted under.
    fn hash_of(&self, reference: Reference) -> KeyHash;
    /// Asks the processor for the lines that `hash_of` reads.
    fn prefetch(&self, reference: Reference);
}

/// One slot of the table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) bucket: u32,
    pub(crate) slot: u8,
}

impl Place {
    #[inline(always)]
    pub(crate) fn new(bucket: usize, slot: usize) -> Self {
        Self {
            bucket: bucket as u32,
            slot: slot as u8,
        }
    }

    #[inline(always)]
    pub(crate) fn bucket(self) -> usize {
        self.bucket as usize
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }
}

/// The memory of all buckets of a table, and the type that knows the items.
///
/// `occupied`, `hash_at` and the prefetches may be called without a lock, while others write: their
/// result is a hint then. `relocate` and `clear` are called under the buckets' locks.
pub(crate) struct Buckets<R> {
    pub(crate) memory: Region,
    pub(crate) resolver: R,
}

impl<R: Resolver> Buckets<R> {
    /// Buckets in address space for so many.
    pub(crate) fn new(buckets_max: usize, pages: Pages, resolver: R) -> std::io::Result<Self> {
        let memory = Region::new(buckets_max * SLOTS, pages)?;
        Ok(Self { memory, resolver })
    }

    #[inline(always)]
    pub(crate) fn line(&self, bucket: usize) -> &[AtomicU64; SLOTS] {
        &self.memory.words().as_chunks::<SLOTS>().0[bucket]
    }

    /// The first answer of `probe` to the references of a pair of buckets whose tag matches.
    #[inline(always)]
    pub(crate) fn scan<T>(
        &self,
        pair: [usize; 2],
        tag: u64,
        probe: &mut impl FnMut(Reference) -> Option<T>,
    ) -> Option<T> {
        for bucket in pair {
            for slot in self.line(bucket) {
                if let Some(reference) = matching(slot.load(Ordering::Relaxed), tag)
                    && let Some(result) = probe(reference)
                {
                    return Some(result);
                }
            }
        }
        None
    }

    /// The same, telling `probe` where each reference is.
    #[inline]
    pub(crate) fn scan_placed<T>(
        &self,
        pair: [usize; 2],
        tag: u64,
        probe: &mut impl FnMut(Reference, Place) -> Option<T>,
    ) -> Option<T> {
        pair.into_iter().find_map(|bucket| {
            self.line(bucket)
                .iter()
                .enumerate()
                .find_map(|(slot, word)| {
                    let reference = matching(word.load(Ordering::Relaxed), tag)?;
                    probe(reference, Place::new(bucket, slot))
                })
        })
    }

    /// Buckets there is address space for.
    pub(crate) fn buckets_max(&self) -> usize {
        self.memory.words().len() / SLOTS
    }

    /// One bit per slot.
    #[inline]
    pub(crate) fn occupied(&self, bucket: usize) -> u32 {
        self.line(bucket)
            .iter()
            .enumerate()
            .fold(0, |occupied, (slot, word)| {
                occupied | u32::from(word.load(Ordering::Relaxed) != 0) << slot
            })
    }

    /// The hash of what is in the slot.
    #[inline]
    pub(crate) fn hash_at(&self, place: Place) -> u64 {
        reference_in(self.word(place)).map_or(0, |it| self.resolver.hash_of(it).0)
    }

    /// The slot's content.
    #[inline]
    pub(crate) fn word(&self, place: Place) -> u64 {
        self.line(place.bucket())[place.slot()].load(Ordering::Relaxed)
    }

    /// Copies the word to the empty slot `to`, then empties `from`: seen twice, never zero times.
    #[inline]
    pub(crate) fn relocate(&self, from: Place, to: Place) {
        let word = self.word(from);
        self.line(to.bucket())[to.slot()].store(word, Ordering::Relaxed);
        self.clear(from);
    }

    /// Empties the slot.
    #[inline]
    pub(crate) fn clear(&self, place: Place) {
        self.line(place.bucket())[place.slot()].store(0, Ordering::Relaxed);
    }

    /// Asks for a bucket's line.
    #[inline]
    pub(crate) fn prefetch(&self, bucket: usize) {
        prefetch(self.line(bucket));
    }

    /// Asks for what `hash_at` reads of the items of a bucket.
    #[inline]
    pub(crate) fn prefetch_residents(&self, bucket: usize) {
        for slot in self.line(bucket) {
            if let Some(reference) = reference_in(slot.load(Ordering::Relaxed)) {
                self.resolver.prefetch(reference);
            }
        }
    }

    /// Makes the memory of a bucket that is not yet in use present.
    pub(crate) fn touch(&self, bucket: usize) {
        // A write, so that the kernel supplies the page now and not under a lock; adding nothing,
        // because another thread may be filling the bucket already.
        if cfg!(not(loom)) {
            // Loom lets a later load choose between this and a store that came before it.
            self.line(bucket)[0].fetch_or(0, Ordering::Relaxed);
        }
    }

    /// Bytes of this many buckets.
    pub(crate) fn bytes(&self, buckets: usize) -> usize {
        buckets * size_of::<[AtomicU64; SLOTS]>()
    }
}

/// 20 bits that depend on all of the hash, in a slot's tag position.
#[inline(always)]
pub(crate) fn tag_of(hash: KeyHash) -> u64 {
    (hash.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) << REFERENCE_BITS
}

/// The reference in a slot if its tag matches and it is not empty.
#[inline(always)]
pub(crate) fn matching(word: u64, tag: u64) -> Option<Reference> {
    let reference = word & REFERENCE_MASK;
    (word & TAG_MASK == tag && reference != 0).then_some(Reference(reference))
}

/// The reference in a slot that is not empty.
#[inline(always)]
pub(crate) fn reference_in(word: u64) -> Option<Reference> {
    Reference::new(word & REFERENCE_MASK)
}

#[inline(always)]
pub(crate) fn mark_in(word: u64) -> u8 {
    (word >> MARK_SHIFT) as u8
}

/// The word with another mark, which is at most [`MARK_MAX`].
#[inline(always)]
pub(crate) fn with_mark(word: u64, mark: u8) -> u64 {
    word & (TAG_MASK | REFERENCE_MASK) | u64::from(mark) << MARK_SHIFT
}
