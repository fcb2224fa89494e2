//! Room that the store has promised to other nodes: it never refuses their changes for lack of
//! room.
//!
//! Promises are counted in the bytes of [`Store::item_bytes`], which are the same on every node,
//! whatever the sizes of their segments. For their sum whole segments are *kept*: local writes
//! leave them alone, and only what was promised takes them. How many cover a promise:
//!
//! - A promised item goes to open segments that nobody else writes to, one for each queue and TTL
//!   bucket. Each may be full when the promise is made: as many segments more are kept.
//! - A segment is given up for the next when an item does not fit. An item of up to a sixteenth of
//!   a segment leaves less than its own length, a longer one is cut unless less is left than a
//!   sixteenth and the words before its data ([`Plan`](crate::large_values::Plan)); so of each
//!   segment all but that is used.
//! - What an item takes beside its words is in its bytes: its share of the index and of the ghosts,
//!   which grow at the cost of segments, and the list of a large value.
//!
//! The memory for items shrinks when connections take more of the limit or somebody lowers it, and
//! two large items that are stored at once may cut more than that. Then what was promised goes
//! beyond the limit ([`SegmentClaim::Kept`](curtail_segments::SegmentClaim::Kept)), by less than
//! what was promised, and room is made by others: it is never refused.

use crate::{
    COPY_BYTES_MAX, Store,
    item::HEADER_WORDS,
    open_segments::RESERVE,
    slices::SliceBug,
    sync::{AtomicU64, AtomicUsize, Mutex, Ordering, lock},
};

/// Accounts of promises.
const ACCOUNTS: usize = 8 * 64;

/// What an item takes of the index and of the ghosts at most, in bytes.
const SHARE_BYTES: usize = 16;

/// Words that a large value takes beside its data and its key, without the list of its pieces: two
/// for the padding of the key and the length, three for the tail's header, two spare.
const LARGE_WORDS: usize = 7;

/// The smallest segment, in bytes: the longest list of pieces is for those.
const PIECE_BYTES_MIN: usize = 16 << 10;

/// The promises of one store.
#[derive(Debug)]
pub(crate) struct Promises {
    accounts: Box<[AtomicU64]>,
    total: AtomicU64,
    /// Segments that are kept.
    kept: AtomicUsize,
    changing: Mutex<()>,
}

impl Promises {
    pub(crate) fn new() -> Self {
        Self {
            accounts: (0..ACCOUNTS).map(|_| AtomicU64::new(0)).collect(),
            total: AtomicU64::new(0),
            kept: AtomicUsize::new(0),
            changing: Mutex::new(()),
        }
    }

    /// Whether an account has so many bytes left.
    pub(crate) fn has(&self, account: u16, room: u32) -> bool {
        let left = self.accounts.get(usize::from(account));
        left.is_some_and(|left| left.load(Ordering::Relaxed) >= u64::from(room))
    }

    /// Takes so many bytes of an account that has them.
    fn take(&self, account: u16, room: u32) {
        if let Some(left) = self.accounts.get(usize::from(account)) {
            left.fetch_sub(u64::from(room), Ordering::Relaxed);
            self.total.fetch_sub(u64::from(room), Ordering::Relaxed);
        }
    }
}

impl Store {
    /// Bytes that an item is accounted with between nodes: at least what it takes at any of them.
    pub fn item_bytes(key_bytes: usize, value_bytes: usize) -> u32 {
        let mut words = HEADER_WORDS + 1 + (key_bytes + value_bytes).div_ceil(8);
        if value_bytes > COPY_BYTES_MAX {
            words += LARGE_WORDS + value_bytes / PIECE_BYTES_MIN;
        }
        (words * 8 + SHARE_BYTES) as u32
    }

    /// From now on the store keeps room for `held` bytes that the owner of `account` (below 512)
    /// may send, and if it has it for up to `wanted` more; returns how many more. Without slices
    /// there are no accounts.
    pub fn promise(&self, account: u16, held: u64, wanted: u64) -> u64 {
        let Some(promises) = self.slices.get().map(|slices| &slices.promises) else {
            return 0;
        };
        let Some(place) = promises.accounts.get(usize::from(account)) else {
            return 0;
        };
        let _changing = lock(&promises.changing);
        promises.total.fetch_add(held, Ordering::Relaxed);
        let before = place.swap(held, Ordering::Relaxed);
        promises.total.fetch_sub(before, Ordering::Relaxed);
        let mut more = 0;
        self.segments().keep(|available| {
            let total = promises.total.load(Ordering::Relaxed);
            let most = self.bytes_kept_in(available.saturating_sub(RESERVE + 1));
            more = wanted.min(most.saturating_sub(total));
            let kept = self.segments_for(total + more);
            promises.kept.store(kept, Ordering::Relaxed);
            kept
        });
        place.fetch_add(more, Ordering::Relaxed);
        promises.total.fetch_add(more, Ordering::Relaxed);
        self.follow_low_water();
        more
    }

    /// Uses up `room` bytes of what an account was promised, for a change that stores nothing;
    /// false if that is less.
    pub fn take_promised(&self, account: u16, room: u32) -> bool {
        let Some(slices) = self.slices.get() else {
            return false;
        };
        let has = slices.promises.has(account, room);
        if has {
            slices.promises.take(account, room);
            self.follow_promises();
        }
        has
    }

    /// Keeps no more segments than what is still promised asks for.
    pub(crate) fn follow_promises(&self) {
        let Some(promises) = self.slices.get().map(|slices| &slices.promises) else {
            return;
        };
        let total = promises.total.load(Ordering::Relaxed);
        if self.segments_for(total) >= promises.kept.load(Ordering::Relaxed) {
            return;
        }
        let _changing = lock(&promises.changing);
        self.segments().keep(|_| {
            let total = promises.total.load(Ordering::Relaxed);
            let kept = self.segments_for(total);
            promises.kept.store(kept, Ordering::Relaxed);
            kept
        });
        self.follow_low_water();
    }

    /// Segments that the first promise takes beside those for its bytes; none on a server alone.
    pub(crate) fn segments_to_promise(&self) -> usize {
        let promises = self.slices.get().map(|slices| &slices.promises);
        promises.map_or(0, |promises| {
            let kept = promises.kept.load(Ordering::Relaxed);
            (self.room.promised_slots() + 2).saturating_sub(kept)
        })
    }

    /// Bytes that are promised now.
    pub fn promised_bytes(&self) -> u64 {
        let slices = self.slices.get();
        slices.map_or(0, |slices| slices.promises.total.load(Ordering::Relaxed))
    }

    /// Segments that are kept for so many promised bytes.
    fn segments_for(&self, bytes: u64) -> usize {
        match bytes {
            _ if self.plants(SliceBug::KeepsNothing) => 0,
            0 => 0,
            bytes if self.plants(SliceBug::KeepsNoOpenSegments) => {
                bytes.div_ceil(self.usable_bytes()) as usize
            }
            bytes => bytes.div_ceil(self.usable_bytes()) as usize + self.room.promised_slots(),
        }
    }

    /// How many bytes may be promised if so many segments are kept.
    fn bytes_kept_in(&self, segments: usize) -> u64 {
        let open = match self.plants(SliceBug::KeepsNoOpenSegments) {
            true => 0,
            false => self.room.promised_slots(),
        };
        segments.saturating_sub(open) as u64 * self.usable_bytes()
    }

    /// Bytes of a segment that are surely used before the next one is opened.
    fn usable_bytes(&self) -> u64 {
        /// The header of a head, the longest key, the length of its list and a spare word.
        const HEAD_WORDS_MAX: usize = 3 + 32 + 1 + 3;
        let words = self.segments().segment_words();
        let list = self.config().item_bytes_max / self.segments().segment_bytes();
        let lost = words / 16 + HEAD_WORDS_MAX + list;
        (words.saturating_sub(lost).max(words / 2) * 8) as u64
    }
}
