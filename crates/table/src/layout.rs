//! What the algorithm needs to know of a bucket's memory; everything else is the layout's affair.
//!
//! The cuckoo algorithm (`cuckoo.rs`, `search.rs`, `growth.rs`) is written once. A layout says how
//! many slots a bucket has, which are occupied, what a resident's hash is and how it moves.
//! `index.rs` has the layout of the store's index, `slots.rs` those of the map.

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

/// The memory of all buckets of a table.
///
/// `occupied`, `hash_at` and the prefetches may be called without a lock, while others write: they
/// must then be safe and their result is a hint. The rest is called under the buckets' locks.
pub(crate) trait Layout {
    /// What a slot holds, copied out.
    type Entry: Copy;
    /// Slots per bucket: 4, 8 or 16.
    const SLOTS: usize;
    /// Whether `occupied` does without touching the bucket's own lines, so that a search may look
    /// at a bucket before deciding to visit it.
    const OCCUPANCY_APART: bool;
    /// Buckets there is address space for.
    fn buckets_max(&self) -> usize;
    /// One bit per slot.
    fn occupied(&self, bucket: usize) -> u32;
    /// The hash of what is in the slot.
    fn hash_at(&self, place: Place) -> u64;
    /// The slot's content.
    fn entry(&self, place: Place) -> Self::Entry;
    /// Copies the entry to the empty slot `to`, then empties `from`: seen twice, never zero times.
    fn relocate(&self, from: Place, to: Place);
    /// Empties the slot.
    fn clear(&self, place: Place);
    /// Asks for the lines that `hash_at` reads.
    fn prefetch(&self, bucket: usize);
    /// Asks for what `hash_at` reads outside the bucket, if anything.
    fn prefetch_residents(&self, bucket: usize);
    /// Makes the memory of a bucket that is not yet in use present.
    fn touch(&self, bucket: usize);
    /// Bytes used for this many buckets.
    fn bytes(&self, buckets: usize) -> usize;
}
