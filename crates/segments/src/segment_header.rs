//! The header of one segment: its metadata, one cache line each.
//!
//! ```text
//!   Free -> Open -> Sealed -> Draining -> Retired -> Free        a log of items
//!   Free -> Whole ------------------------> Retired -> Free      one piece of a large value
//! ```
//!
//! The cursor packs what an allocation must change at once: where the next item goes, how many
//! allocations are not published yet, whom the segment is open for, and whether it is open.

use curtail_types::numbered_enum;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

numbered_enum! {
    /// Where a segment is in its life.
    pub enum State: u32 {
        /// Holds nothing.
        Free = 0,
        /// Takes new items.
        Open = 1,
        /// Full; waits in a queue.
        Sealed = 2,
        /// Its items are being removed or moved.
        Draining = 3,
        /// Nothing refers to it any more but leases.
        Retired = 4,
        /// One piece of a large value.
        Whole = 5,
    }
}

/// The side data of one segment. Everything but the cursor, the state and the lease count is a
/// plain note whose meaning is the store's.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Header {
    cursor: AtomicU64,
    state: AtomicU32,
    leases: AtomicU32,
    dead_words: AtomicU32,
    /// The last expiry of any item here, in Unix seconds; `u32::MAX` when one never expires.
    pub(crate) expiry_max: AtomicU32,
    /// Counts flushes: items in segments of an older generation are gone.
    pub(crate) generation: AtomicU32,
    /// Which of the store's queues the segment belongs to.
    pub(crate) queue: AtomicU32,
    /// Of a whole piece: the hash of the owning item's key.
    pub(crate) owner_hash: AtomicU64,
    /// Of a whole piece: the reference of the owning item's head.
    pub(crate) owner: AtomicU64,
    /// When the segment was opened, among all segments.
    pub(crate) order: AtomicU64,
    /// What the store's clock for the queue said then.
    pub(crate) clock: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == 64 || cfg!(loom));

/// The headers of all segments there may ever be.
#[cfg(any(loom, miri))]
pub(crate) type Headers = Box<[Header]>;
#[cfg(not(any(loom, miri)))]
pub(crate) use reserved::Headers;

/// So many headers of unused segments.
///
/// # Errors
/// What the operating system says when it gives no address space.
pub(crate) fn headers(count: usize) -> std::io::Result<Headers> {
    #[cfg(any(loom, miri))]
    return Ok((0..count).map(|_| Header::default()).collect());
    #[cfg(not(any(loom, miri)))]
    Headers::new(count)
}

#[cfg(not(any(loom, miri)))]
mod reserved {
    use std::{io, ops::Deref, ptr::NonNull};

    use curtail_memory::{Pages, Region};

    use super::Header;

    /// Headers in address space: one takes memory when its segment is first used, for a limit that
    /// may be raised comes with headers of many segments that are never used.
    #[derive(Debug)]
    pub(crate) struct Headers {
        // INVARIANT: `count` headers lie at `first`, in `_region`, which is zero at first and whose
        // words nothing else refers to.
        first: NonNull<Header>,
        count: usize,
        _region: Region,
    }

    // SAFETY: a header is atomics only, and the region that holds them moves along.
    unsafe impl Send for Headers {}
    // SAFETY: as above.
    unsafe impl Sync for Headers {}

    impl Headers {
        pub(super) fn new(count: usize) -> io::Result<Self> {
            let region = Region::new(count * size_of::<Header>() / 8, Pages::Small)?;
            let first = NonNull::from(region.words()).cast::<Header>();
            assert!(first.is_aligned(), "a region starts at a page");
            Ok(Self {
                first,
                count,
                _region: region,
            })
        }
    }

    impl Deref for Headers {
        type Target = [Header];

        #[inline(always)]
        fn deref(&self) -> &[Header] {
            // SAFETY: see INVARIANT; any bits are a valid header, for it is integers only.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
        }
    }
}

/// The fields of a cursor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cursor(u64);

impl Cursor {
    const OFFSET_BITS: u32 = 20;
    const PENDING_BITS: u32 = 24;
    const TAG_SHIFT: u32 = Self::OFFSET_BITS + Self::PENDING_BITS;
    const PENDING_ONE: u64 = 1 << Self::OFFSET_BITS;
    const OPEN: u64 = 1 << 63;

    pub(crate) fn open(tag: u16) -> Self {
        Self(Self::OPEN | u64::from(tag) << Self::TAG_SHIFT)
    }

    pub(crate) fn offset_words(self) -> usize {
        (self.0 & ((1 << Self::OFFSET_BITS) - 1)) as usize
    }

    pub(crate) fn pending(self) -> u64 {
        self.0 >> Self::OFFSET_BITS & ((1 << Self::PENDING_BITS) - 1)
    }

    fn is_open_for(self, tag: u16) -> bool {
        self.0 >> Self::TAG_SHIFT == Self::OPEN >> Self::TAG_SHIFT | u64::from(tag)
    }
}

/// Why a segment gave no room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    /// It is not open for this tag (any more).
    Closed,
    /// It has fewer words left; the number it has.
    Full(usize),
}

impl Header {
    pub(crate) fn state(&self) -> State {
        // Acquire: pairs with the Release in `set_state` and `change_state`, so that who sees a
        // state sees what was done before it.
        State::from_number(self.state.load(Ordering::Acquire)).unwrap_or(State::Free)
    }

    pub(crate) fn set_state(&self, state: State) {
        // Release: pairs with the Acquire in `state`.
        self.state.store(state as u32, Ordering::Release);
    }

    /// Moves from one state to another; false when it was not in `from`.
    pub(crate) fn change_state(&self, from: State, to: State) -> bool {
        // AcqRel: pairs with itself and with `state`, so that one thread wins each transition.
        self.state
            .compare_exchange(from as u32, to as u32, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    pub(crate) fn cursor(&self) -> Cursor {
        // Acquire: pairs with the Release in `finish`: pending 0 shows the words of all items.
        Cursor(self.cursor.load(Ordering::Acquire))
    }

    /// Makes the segment empty and open for `tag`.
    pub(crate) fn open(&self, tag: u16) {
        self.dead_words.store(0, Ordering::Relaxed);
        self.set_state(State::Open);
        // Release: pairs with the Acquire in `allocate`: who allocates sees the notes above.
        self.cursor.store(Cursor::open(tag).0, Ordering::Release);
    }

    /// Takes `words` words for an item that is not published yet; the offset they start at.
    pub(crate) fn allocate(
        &self,
        tag: u16,
        words: usize,
        capacity: usize,
    ) -> Result<usize, Refused> {
        let mut current = self.cursor.load(Ordering::Relaxed);
        loop {
            let cursor = Cursor(current);
            if !cursor.is_open_for(tag) {
                return Err(Refused::Closed);
            }
            let offset = cursor.offset_words();
            if offset + words > capacity {
                return Err(Refused::Full(capacity - offset));
            }
            let next = current + words as u64 + Cursor::PENDING_ONE;
            // Acquire: pairs with the Release in `open`.
            match self.cursor.compare_exchange_weak(
                current,
                next,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(offset),
                Err(seen) => current = seen,
            }
        }
    }

    /// An allocation is published, or given up.
    pub(crate) fn finish(&self) {
        // Release: pairs with the Acquire in `cursor`.
        let before = self
            .cursor
            .fetch_sub(Cursor::PENDING_ONE, Ordering::Release);
        debug_assert!(Cursor(before).pending() > 0);
    }

    /// Takes no more items.
    pub(crate) fn seal(&self) {
        // AcqRel: pairs with the Acquire in `cursor`; allocations before it are seen as pending.
        self.cursor.fetch_and(!Cursor::OPEN, Ordering::AcqRel);
    }

    /// Sets a sealed segment's fill, for a restored one.
    pub(crate) fn restore(&self, offset_words: usize) {
        self.dead_words.store(0, Ordering::Relaxed);
        self.cursor.store(offset_words as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_dead(&self, words: usize) {
        self.dead_words.fetch_add(words as u32, Ordering::Relaxed);
    }

    pub(crate) fn live_words(&self) -> usize {
        let dead = self.dead_words.load(Ordering::Relaxed) as usize;
        self.cursor().offset_words().saturating_sub(dead)
    }

    pub(crate) fn leases(&self) -> &AtomicU32 {
        &self.leases
    }
}
