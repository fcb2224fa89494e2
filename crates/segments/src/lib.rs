//! Item memory: one reservation, divided into equal segments that never move.
//!
//! All item memory is atomic words, so that a reader with a stale reference reads garbage but
//! never faults and never races: it validates afterwards through the index. A segment is filled by
//! bumping its cursor, waits in one of the store's queues, is drained and used again; a large value
//! takes whole segments. Nothing here knows what an item is.
//!
//! Invariants:
//! - A segment is reused only after the store removed every reference to it from the index and
//!   the last [`Lease`] on it ended.
//! - Words between the cursor and the end of a segment belong to nobody; words of an
//!   [`Allocation`] belong to its holder until it is published.
//! - Segment 0 is never used, so that reference 0 can mean none.

mod lease;
mod segment_header;
mod segment_lists;
mod sync;

use std::io;

use curtail_memory::{Region, prefetch::prefetch};

pub use curtail_memory::Pages;
pub use lease::Lease;
pub use segment_header::{Header, State};
pub use segment_lists::{QUEUES, SegmentId};

use crate::{
    segment_header::{Headers, Refused},
    segment_lists::Directory,
    sync::{AtomicU64, AtomicUsize, Mutex, Ordering, fence, lock},
};

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// The sizes of the memory.
#[derive(Clone, Copy, Debug)]
pub struct SegmentsConfig {
    /// Bytes of one segment: a power of two from 4 KiB to 1 MiB.
    pub segment_bytes: usize,
    /// Segments there may ever be; address space is taken for all of them.
    pub segments_max: usize,
    /// What pages to ask for.
    pub pages: Pages,
}

/// All item memory of a process.
#[derive(Debug)]
pub struct Segments {
    region: Region,
    headers: Headers,
    directory: Mutex<Directory>,
    /// What is [available](Directory::available) and not kept, to be looked at without the mutex.
    available: AtomicUsize,
    used_max: AtomicUsize,
    /// Segments with a lease; for an instant it may be one less than none.
    leased: AtomicUsize,
    segment_words_log2: u32,
}

/// Words that belong to one writer until it calls [`Segments::finish`].
#[derive(Debug)]
#[must_use = "an allocation that is not finished keeps its segment from being reused"]
pub struct Allocation {
    reference: u64,
    words: usize,
    /// Of a whole segment, which nobody counts as pending.
    whole: bool,
}

impl Allocation {
    /// Where it is.
    pub fn reference(&self) -> u64 {
        self.reference
    }

    /// How long it is, in words.
    pub fn words(&self) -> usize {
        self.words
    }
}

/// What a taker of a segment leaves to others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SegmentClaim {
    /// So many segments beyond those that are [kept](Segments::keep).
    Beyond(usize),
    /// Nothing.
    Any,
    /// Nothing, and if there is nothing it goes beyond the limit: for what the segments are kept
    /// for, which must not fail.
    Kept,
}

/// Why there was no allocation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoRoom {
    /// The segment is not open for this tag.
    Closed,
    /// The segment has only this many words left.
    Full(usize),
}

/// Words that cost memory only where they were written to: for tables whose size is not known when
/// they are made.
#[derive(Debug)]
pub struct Reserve {
    region: Region,
}

impl Reserve {
    /// Reserves address space for so many words, all zero.
    ///
    /// # Errors
    /// What the operating system says when it gives none.
    pub fn new(words: usize) -> io::Result<Self> {
        let region = Region::new(words, Pages::Small)?;
        Ok(Self { region })
    }

    /// All of them.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }

    /// Makes all words zero again and gives their memory back.
    pub fn clear(&self) {
        self.region.release(0, self.region.words().len());
    }
}

/// Words of 8 bytes in a segment of the greatest size.
const SEGMENT_BYTES_MAX: usize = 1 << 20;

impl Segments {
    /// Reserves the address space.
    ///
    /// # Errors
    /// What the operating system says when it gives none.
    pub fn new(config: SegmentsConfig) -> io::Result<Self> {
        assert!(config.segment_bytes.is_power_of_two());
        assert!(config.segment_bytes <= SEGMENT_BYTES_MAX);
        let words = config.segment_bytes / 8;
        let count = config.segments_max + 1;
        Ok(Self {
            region: Region::new(count * words, config.pages)?,
            headers: segment_header::headers(count)?,
            directory: Mutex::new(Directory::new(config.segments_max)),
            available: AtomicUsize::new(0),
            used_max: AtomicUsize::new(0),
            leased: AtomicUsize::new(0),
            segment_words_log2: words.trailing_zeros(),
        })
    }

    /// Words of one segment.
    #[inline]
    pub fn segment_words(&self) -> usize {
        1 << self.segment_words_log2
    }

    /// Bytes of one segment.
    pub fn segment_bytes(&self) -> usize {
        self.segment_words() * 8
    }

    /// Segments there may ever be.
    pub fn segments_max(&self) -> usize {
        self.headers.len() - 1
    }

    /// The words from `reference` to the end of its segment; empty for a reference to nowhere.
    #[inline(always)]
    pub fn words(&self, reference: u64) -> &[AtomicU64] {
        let start = reference as usize;
        let end = (start | (self.segment_words() - 1)).wrapping_add(1);
        self.region.words().get(start..end).unwrap_or(&[])
    }

    /// Asks the processor for the two lines that hold the start of what lies at `reference`, which
    /// is all of a small item.
    #[inline]
    pub fn prefetch(&self, reference: u64) {
        let words = self.words(reference);
        for word in [words.first(), words.get(LINE_WORDS)].into_iter().flatten() {
            prefetch(word);
        }
    }

    /// Asks for what [`Segments::prefetch`] leaves out of something `words` words long.
    #[inline]
    pub fn prefetch_rest(&self, reference: u64, words: usize) {
        let all = self.words(reference);
        let words = all.get(..words).unwrap_or(all);
        // Most items have no such line: an adapter that the compiler does not inline would cost
        // more than the loop.
        let mut index = 2 * LINE_WORDS;
        while let Some(word) = words.get(index) {
            prefetch(word);
            index += LINE_WORDS;
        }
    }

    /// The segment that `reference` lies in.
    #[inline]
    pub fn segment_of(&self, reference: u64) -> Option<SegmentId> {
        let id = (reference >> self.segment_words_log2) as usize;
        (id != 0 && id < self.headers.len()).then_some(SegmentId(id as u32))
    }

    /// The segment with this number.
    pub fn segment(&self, number: u32) -> Option<SegmentId> {
        (number != 0 && (number as usize) < self.headers.len()).then_some(SegmentId(number))
    }

    /// The reference of a segment's first word.
    pub fn start(&self, id: SegmentId) -> u64 {
        u64::from(id.0) << self.segment_words_log2
    }

    #[inline]
    fn header(&self, id: SegmentId) -> &Header {
        &self.headers[id.0 as usize]
    }

    // ---- taking and giving back whole segments ----

    /// Takes a free segment and opens it for allocations with `tag`; it will be of `queue` and
    /// `generation`. `None` when no more is left than what `claim` leaves.
    pub fn open(
        &self,
        tag: u16,
        queue: usize,
        generation: u32,
        claim: SegmentClaim,
    ) -> Option<SegmentId> {
        let id = self.take(claim)?;
        let header = self.header(id);
        header.expiry_max.store(0, Ordering::Relaxed);
        header.queue.store(queue as u32, Ordering::Relaxed);
        header.generation.store(generation, Ordering::Relaxed);
        header.open(tag);
        Some(id)
    }

    /// Takes a whole segment for one piece of a large value.
    pub fn take_whole(&self, claim: SegmentClaim) -> Option<Allocation> {
        let id = self.take(claim)?;
        hand_out();
        let header = self.header(id);
        header.owner.store(0, Ordering::Relaxed);
        header.restore(self.segment_words());
        header.set_state(State::Whole);
        Some(Allocation {
            reference: self.start(id),
            words: self.segment_words(),
            whole: true,
        })
    }

    fn take(&self, claim: SegmentClaim) -> Option<SegmentId> {
        let mut directory = lock(&self.directory);
        let id = directory.take(claim);
        self.note_available(&directory);
        id.map(SegmentId)
    }

    fn note_available(&self, directory: &Directory) {
        self.used_max
            .store(directory.used_max() as usize, Ordering::Relaxed);
        let unkept = directory.available().saturating_sub(directory.kept);
        self.available.store(unkept as usize, Ordering::Relaxed);
    }

    /// Keeps segments for [`SegmentClaim::Kept`]: `count` is given how many could be taken now,
    /// kept or not, and says how many are kept from now on. Nobody takes one meanwhile.
    pub fn keep(&self, count: impl FnOnce(usize) -> usize) {
        let mut directory = lock(&self.directory);
        let kept = count(directory.available() as usize);
        directory.kept = kept.min(self.segments_max()) as u32;
        self.note_available(&directory);
    }

    /// Segments that could be taken now, beyond those that are kept; a hint.
    #[inline]
    pub fn available(&self) -> usize {
        self.available.load(Ordering::Relaxed)
    }

    /// Whether a lease would keep the segment from being reused; a hint.
    pub fn is_leased(&self, id: SegmentId) -> bool {
        self.header(id).leases().load(Ordering::Relaxed) != 0
    }

    /// Bytes of segments that leases keep from being reused, each segment counted once.
    pub fn leased_bytes(&self) -> usize {
        // Who leaves first may be counted before who came first.
        let leased = self.leased.load(Ordering::Relaxed).cast_signed().max(0);
        leased.unsigned_abs() * self.segment_bytes()
    }

    /// Says that nothing in the index refers to the segment any more. It is free once no lease is
    /// left; returns whether it is free now.
    pub fn retire(&self, id: SegmentId) -> bool {
        let header = self.header(id);
        debug_assert!(matches!(header.state(), State::Draining | State::Whole));
        header.set_state(State::Retired);
        // SeqCst: pairs with the fences in `Lease::new` and in the drop of `Lease`.
        fence(Ordering::SeqCst);
        self.try_free(id)
    }

    /// Frees a retired segment without leases; one thread wins.
    pub(crate) fn try_free(&self, id: SegmentId) -> bool {
        let header = self.header(id);
        // Acquire: pairs with the AcqRel in the drop of `Lease`.
        if header.leases().load(Ordering::Acquire) != 0
            || !header.change_state(State::Retired, State::Free)
        {
            return false;
        }
        let mut directory = lock(&self.directory);
        directory.give_back(id.0);
        self.note_available(&directory);
        true
    }

    /// How many segments may hold memory. Those above the limit are released by
    /// [`Segments::release`] as they become free.
    pub fn set_resident_max(&self, segments: usize) {
        let mut directory = lock(&self.directory);
        directory.resident_max = segments.min(self.segments_max()) as u32;
        self.note_available(&directory);
    }

    /// Gives the memory of at most `segments_max` free segments above the limit back to the
    /// operating system; returns how many.
    pub fn release(&self, segments_max: usize) -> usize {
        (0..segments_max).take_while(|_| self.release_one()).count()
    }

    fn release_one(&self) -> bool {
        let Some(id) = lock(&self.directory).release_one() else {
            return false;
        };
        // Outside the mutex, for it is a system call; the segment is in no list meanwhile.
        self.region
            .release(self.start(SegmentId(id)) as usize, self.segment_words());
        let mut directory = lock(&self.directory);
        directory.released(id);
        self.note_available(&directory);
        true
    }

    /// The greatest number of a segment that was ever used; 0 for none. A hint.
    pub fn used_max(&self) -> u32 {
        self.used_max.load(Ordering::Relaxed) as u32
    }

    /// Whether [`Segments::supply`] has something to do.
    #[inline]
    pub fn is_short(&self, ahead_bytes: usize) -> bool {
        self.region
            .is_short(self.used_words(), self.ahead_words(ahead_bytes))
    }

    /// Has the next 2 MiB backed by a huge page if fewer than `ahead_bytes` are ready; whether
    /// there is more to do. May take milliseconds; one thread at a time.
    pub fn supply(&self, ahead_bytes: usize) -> bool {
        self.region
            .supply(self.used_words(), self.ahead_words(ahead_bytes))
    }

    /// Words that `ahead_bytes` hold, of those that may still be taken.
    #[inline]
    fn ahead_words(&self, ahead_bytes: usize) -> usize {
        (ahead_bytes / 8).min(self.available() << self.segment_words_log2)
    }

    fn used_words(&self) -> usize {
        (self.used_max() as usize + 1) << self.segment_words_log2
    }

    /// Segments that hold memory: `(in use or free, of them free, allowed)`.
    pub fn resident(&self) -> (usize, usize, usize) {
        let directory = lock(&self.directory);
        (
            directory.resident as usize,
            directory.free() as usize,
            directory.resident_max as usize,
        )
    }

    // ---- allocations ----

    /// Takes `words` words of an open segment.
    ///
    /// # Errors
    /// Says whether the segment is closed for `tag` or has too little left.
    #[inline]
    pub fn allocate(&self, id: SegmentId, tag: u16, words: usize) -> Result<Allocation, NoRoom> {
        match self.header(id).allocate(tag, words, self.segment_words()) {
            Ok(offset) => {
                hand_out();
                Ok(Allocation {
                    reference: self.start(id) + offset as u64,
                    words,
                    whole: false,
                })
            }
            Err(Refused::Closed) => Err(NoRoom::Closed),
            Err(Refused::Full(left)) => Err(NoRoom::Full(left)),
        }
    }

    /// The words are published, or given up: they belong to everybody now.
    #[inline]
    pub fn finish(&self, allocation: Allocation) {
        // Not by the segment's state: once a large value is published, somebody may evict it and
        // open its segments anew before its writer comes here.
        if let Some(id) = self.segment_of(allocation.reference)
            && !allocation.whole
        {
            self.header(id).finish();
        }
    }

    /// The bytes of an allocation that nobody else may see yet, from byte `skip` on.
    ///
    /// Readers with a stale reference may still load these words as atomics; what they load is
    /// thrown away when their validation fails, and on every platform we build for such a load
    /// returns some bits and has no other effect.
    #[cfg(not(loom))]
    pub fn bytes_mut<'a>(&'a self, allocation: &'a mut Allocation, skip: usize) -> &'a mut [u8] {
        let room = allocation.words * 8;
        let skip = skip.min(room);
        let first = allocation.reference as usize;
        let words = &self.region.words()[first..first + allocation.words];
        let start: *mut u8 = words.as_ptr().cast_mut().cast();
        // SAFETY: `skip` is within the words of the allocation.
        let start = unsafe { start.add(skip) };
        // SAFETY: the words were handed to this allocation alone, which is borrowed mutably, and
        // an allocation cannot be copied.
        unsafe { std::slice::from_raw_parts_mut(start, room - skip) }
    }

    // ---- queues ----

    /// Ends allocations in an open segment and appends it to `queue`.
    pub fn seal(&self, id: SegmentId, queue: usize) {
        let header = self.header(id);
        header.seal();
        self.enqueue(id, queue);
    }

    /// Ends allocations in an open segment and puts it before all others of `queue`.
    pub fn seal_first(&self, id: SegmentId, queue: usize) {
        let header = self.header(id);
        header.seal();
        let mut directory = lock(&self.directory);
        header.queue.store(queue as u32, Ordering::Relaxed);
        directory.push_first(queue, id.0);
        header.set_state(State::Sealed);
    }

    /// The oldest segment of `queue`.
    pub fn oldest(&self, queue: usize) -> Option<SegmentId> {
        lock(&self.directory).iter(queue).next().map(SegmentId)
    }

    /// Appends a segment that was drained only in part, or restored, to `queue`.
    pub fn enqueue(&self, id: SegmentId, queue: usize) {
        let header = self.header(id);
        let mut directory = lock(&self.directory);
        header.queue.store(queue as u32, Ordering::Relaxed);
        directory.push(queue, id.0);
        header.set_state(State::Sealed);
    }

    /// Segments in `queue`.
    pub fn queued(&self, queue: usize) -> usize {
        lock(&self.directory).count(queue) as usize
    }

    /// The segments of `queue`, oldest first: for saving them in their order.
    pub fn queue_order(&self, queue: usize) -> Vec<SegmentId> {
        lock(&self.directory).iter(queue).map(SegmentId).collect()
    }

    /// Takes the oldest segment of `queue` that `suits` (given live words) and whose allocations
    /// are all published: any number may have one of a value that is being received. The caller
    /// drains it.
    pub fn take_oldest(
        &self,
        queue: usize,
        mut suits: impl FnMut(usize) -> bool,
    ) -> Option<SegmentId> {
        let mut directory = lock(&self.directory);
        let id = directory.iter(queue).find(|&id| {
            let header = self.header(SegmentId(id));
            header.cursor().pending() == 0 && suits(header.live_words())
        })?;
        directory.remove(queue, id);
        self.header(SegmentId(id)).set_state(State::Draining);
        Some(SegmentId(id))
    }

    /// Takes one particular segment out of its queue; false when it is not in one (any more), or
    /// has allocations that are not published.
    pub fn take_sealed(&self, id: SegmentId) -> bool {
        let header = self.header(id);
        let mut directory = lock(&self.directory);
        if header.state() != State::Sealed || header.cursor().pending() != 0 {
            return false;
        }
        let queue = header.queue.load(Ordering::Relaxed) as usize;
        directory.remove(queue, id.0);
        header.set_state(State::Draining);
        true
    }

    // ---- notes ----

    /// The state of a segment; a hint unless the caller owns it.
    pub fn state(&self, id: SegmentId) -> State {
        self.header(id).state()
    }

    /// Which queue a segment is or was last in.
    pub fn queue(&self, id: SegmentId) -> usize {
        self.header(id).queue.load(Ordering::Relaxed) as usize
    }

    /// Words that allocations have taken so far.
    pub fn filled_words(&self, id: SegmentId) -> usize {
        self.header(id).cursor().offset_words()
    }

    /// Allocations of a segment that are not published yet.
    pub fn pending(&self, id: SegmentId) -> usize {
        self.header(id).cursor().pending() as usize
    }

    /// Of them, those that were not given up since.
    pub fn live_words(&self, id: SegmentId) -> usize {
        self.header(id).live_words()
    }

    /// Notes that `words` words at `reference` are of no use any more.
    #[inline]
    pub fn add_dead(&self, reference: u64, words: usize) {
        if let Some(id) = self.segment_of(reference) {
            self.header(id).add_dead(words);
        }
    }

    /// The last expiry of any item in the segment, `u32::MAX` for never.
    #[inline]
    pub fn expiry_max(&self, id: SegmentId) -> u32 {
        self.header(id).expiry_max.load(Ordering::Relaxed)
    }

    /// Notes the expiry of an item in the segment.
    #[inline]
    pub fn note_expiry(&self, id: SegmentId, expiry: u32) {
        let note = &self.header(id).expiry_max;
        if note.load(Ordering::Relaxed) < expiry {
            note.fetch_max(expiry, Ordering::Relaxed);
        }
    }

    /// The generation that the segment was opened in.
    #[inline]
    pub fn generation(&self, id: SegmentId) -> u32 {
        self.header(id).generation.load(Ordering::Relaxed)
    }

    /// When the segment was opened: its place among all, and the clock of its queue.
    #[inline]
    pub fn opened(&self, id: SegmentId) -> (u64, u64) {
        let header = self.header(id);
        let order = header.order.load(Ordering::Relaxed);
        (order, header.clock.load(Ordering::Relaxed))
    }

    /// Notes when a segment was opened.
    pub fn set_opened(&self, id: SegmentId, order: u64, clock: u64) {
        let header = self.header(id);
        header.order.store(order, Ordering::Relaxed);
        header.clock.store(clock, Ordering::Relaxed);
    }

    /// Who owns a whole piece: the hash of the key and the reference of the head (0 for nobody).
    pub fn owner(&self, id: SegmentId) -> (u64, u64) {
        let header = self.header(id);
        let owner = header.owner.load(Ordering::Relaxed);
        (header.owner_hash.load(Ordering::Relaxed), owner)
    }

    /// Notes who owns a whole piece.
    pub fn set_owner(&self, id: SegmentId, hash: u64, head: u64) {
        let header = self.header(id);
        header.owner_hash.store(hash, Ordering::Relaxed);
        header.owner.store(head, Ordering::Relaxed);
    }

    // ---- restore ----

    /// Takes one particular segment, never used yet, for a restore in rising order of numbers;
    /// the caller fills it and calls [`Segments::enqueue`] (or leaves a whole piece as it is).
    pub fn restore(&self, number: u32, filled_words: usize, whole: bool) -> Option<SegmentId> {
        let mut directory = lock(&self.directory);
        if filled_words > self.segment_words() || !directory.take_exactly(number) {
            return None;
        }
        self.note_available(&directory);
        let id = SegmentId(number);
        self.header(id).restore(filled_words);
        self.header(id)
            .set_state(if whole { State::Whole } else { State::Draining });
        Some(id)
    }

    /// Sets the notes of a restored segment.
    pub fn restore_notes(&self, id: SegmentId, queue: usize, generation: u32, expiry_max: u32) {
        let header = self.header(id);
        header.queue.store(queue as u32, Ordering::Relaxed);
        header.generation.store(generation, Ordering::Relaxed);
        header.expiry_max.store(expiry_max, Ordering::Relaxed);
    }
}

/// Words are handed out that a reader may still take for those of an item that is gone.
#[inline(always)]
fn hand_out() {
    // Release: pairs with the Acquire fence of the reader's validation (`locks.rs` in `table`). The
    // mutex or the cursor shows this thread that the item went; only with this fence does a reader
    // see it, too, once it has read a word that this thread writes.
    fence(Ordering::Release);
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
