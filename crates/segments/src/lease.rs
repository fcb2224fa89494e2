//! Leases: a reader keeps a segment from being reused while the kernel sends from it.
//!
//! ```text
//!   reader                              reclaimer
//!   count += 1                          remove every item from the index (bumps its version)
//!   fence(SeqCst)                       fence(SeqCst)
//!   validate the item's version         count == 0 ? reuse : leave it to the last reader
//! ```
//!
//! Of the two, at least one sees the other's first step (Dekker): either the reader's validation
//! fails, or the reclaimer sees the count. A lease taken on a stale reference does no harm but to
//! delay a reuse for an instant.

use std::sync::Arc;

use crate::{
    Segments,
    segment_header::State,
    segment_lists::SegmentId,
    sync::{Ordering, fence},
};

/// Keeps one segment from being reused.
#[derive(Debug)]
pub struct Lease {
    segments: Arc<Segments>,
    id: SegmentId,
    is_first: bool,
}

impl Lease {
    /// Counts a lease on the segment of `reference`. It means something only when the item is
    /// validated *after* this call; `None` for a reference to no segment.
    pub fn new(segments: &Arc<Segments>, reference: u64) -> Option<Self> {
        let id = segments.segment_of(reference)?;
        let before = segments.header(id).leases().fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            segments.leased.fetch_add(1, Ordering::Relaxed);
        }
        // SeqCst: pairs with the fence in `Segments::retire`, see the head of this file.
        fence(Ordering::SeqCst);
        Some(Self {
            segments: Arc::clone(segments),
            id,
            is_first: before == 0,
        })
    }

    /// The length of a segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.segments.segment_bytes()
    }

    /// Whether the segment had no other lease when this one was made.
    pub fn is_first(&self) -> bool {
        self.is_first
    }

    /// The segment it keeps.
    pub fn segment(&self) -> SegmentId {
        self.id
    }

    /// `bytes` bytes of item memory, from byte `skip` of the word at `reference` on; cut at the
    /// end of the leased segment, and empty outside it.
    ///
    /// The bytes are those of an item that was validated after the lease was taken and that is
    /// immutable (longer than what is overwritten in place); until then they may change.
    #[cfg(not(loom))]
    pub fn bytes(&self, reference: u64, skip: usize, bytes: usize) -> &[u8] {
        if self.segments.segment_of(reference) != Some(self.id) {
            return &[];
        }
        let words = self.segments.words(reference);
        let room = words.len() * 8;
        let skip = skip.min(room);
        let bytes = bytes.min(room - skip);
        let start = words.as_ptr().cast::<u8>();
        // SAFETY: `skip` is within the words.
        let start = unsafe { start.add(skip) };
        // SAFETY: the range is inside our region. The segment is not reused while the lease is
        // held, and items that may be leased are never changed after publication.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let header = self.segments.header(self.id);
        // AcqRel: pairs with the load in `Segments::try_free`: what this reader read happens
        // before the reuse.
        let before = header.leases().fetch_sub(1, Ordering::AcqRel);
        // SeqCst: pairs with the fence in `Segments::retire`: either this thread sees the
        // retirement, or the retiring one sees the count at 0.
        fence(Ordering::SeqCst);
        if before == 1 {
            self.segments.leased.fetch_sub(1, Ordering::Relaxed);
        }
        if before == 1 && header.state() == State::Retired {
            self.segments.try_free(self.id);
        }
    }
}
