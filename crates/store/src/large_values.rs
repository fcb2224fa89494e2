//! Large values: a head with the first part, whole segments, and a tail.
//!
//! ```text
//!   head, in an open segment        whole segments       tail, in an open segment
//!   | header | key | list | data |  |  data  | ... |     | owner's hash | meta | owner | data |
//!                     |                 ^                    ^
//!                     +-----------------+--------------------+
//! ```
//!
//! The head takes what its open segment has left, so that nothing is wasted and the heads of large
//! values are spread over the queue like small items. Head and pieces never change once they are
//! published; moving one makes a new head. Losing any of them loses the whole item, under the
//! key's lock.
//!
//! The list's first word is `value bytes | first part's bytes << 32 | list words << 52`; the other
//! words are the pieces in order, the tail's with bit 63, and zeros.

use curtail_segments::{Allocation, Segments};
use curtail_types::{Cas, Key, KeyHash};

use crate::{
    item::{HEADER_WORDS, Item, Kind, Meta, copy_in, copy_out},
    sync::{Arc, AtomicU64, Ordering},
};

/// Marks the tail in a list.
const TAIL: u64 = 1 << 63;

/// Words before the data of a tail.
const TAIL_HEADER_WORDS: usize = HEADER_WORDS + 1;

/// A place in item memory: `bytes` bytes from byte `skip` of the word at `reference` on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Part {
    pub(crate) reference: u64,
    pub(crate) skip: usize,
    pub(crate) bytes: usize,
}

/// Where the value of an item lies. Any field may be garbage until the read is validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    reference: u64,
    item: Item<'a>,
    meta: Meta,
    /// Length of the whole value in bytes.
    pub(crate) bytes: usize,
    head_bytes: usize,
    list_words: usize,
}

impl<'a> Value<'a> {
    #[inline]
    pub(crate) fn of(reference: u64, item: Item<'a>, meta: Meta) -> Self {
        let mut value = Self {
            reference,
            item,
            meta,
            bytes: meta.value_bytes(),
            head_bytes: meta.value_bytes(),
            list_words: 0,
        };
        if meta.kind() == Kind::Head {
            let list = item.word(value.list_at());
            value.bytes = (list & 0xffff_ffff) as usize;
            value.head_bytes = (list >> 32 & 0xf_ffff) as usize;
            value.list_words = (list >> 52) as usize;
        }
        value
    }

    /// The word of the item at which the list starts.
    fn list_at(&self) -> usize {
        self.meta.header_words() + self.meta.key_bytes().div_ceil(8)
    }

    /// Where the item is.
    pub(crate) fn reference(&self) -> u64 {
        self.reference
    }

    /// Whether the value continues in other segments.
    pub(crate) fn is_large(&self) -> bool {
        self.meta.kind() == Kind::Head
    }

    /// The part of the value that starts at byte `from`; empty at the end.
    pub(crate) fn part(&self, segments: &Segments, from: usize) -> Part {
        if from >= self.bytes {
            return Part::default();
        }
        if !self.is_large() {
            return Part {
                reference: self.reference + self.meta.header_words() as u64,
                skip: self.meta.key_bytes() + from,
                bytes: self.bytes - from,
            };
        }
        if from < self.head_bytes {
            let data_at = self.list_at() + 1 + self.list_words;
            return Part {
                reference: self.reference + data_at as u64,
                skip: from,
                bytes: self.head_bytes - from,
            };
        }
        let beyond = from - self.head_bytes;
        let (index, skip) = (
            beyond / segments.segment_bytes(),
            beyond % segments.segment_bytes(),
        );
        let entry = self.entry(index);
        let header = if entry & TAIL == 0 {
            0
        } else {
            TAIL_HEADER_WORDS as u64
        };
        Part {
            reference: (entry & !TAIL) + header,
            skip,
            bytes: (segments.segment_bytes() - skip).min(self.bytes - from),
        }
    }

    fn entry(&self, index: usize) -> u64 {
        if index < self.list_words {
            self.item.word(self.list_at() + 1 + index)
        } else {
            0
        }
    }

    /// The pieces besides the head: `(reference, whether it is the tail)`.
    pub(crate) fn pieces(self) -> impl Iterator<Item = (u64, bool)> + use<'a> {
        (0..self.list_words)
            .map(move |index| self.entry(index))
            .filter(|&entry| entry != 0)
            .map(|entry| (entry & !TAIL, entry & TAIL != 0))
    }

    /// Copies from byte `from` on; returns how much there was.
    #[inline]
    pub(crate) fn copy(&self, segments: &Segments, from: usize, into: &mut [u8]) -> usize {
        if !self.is_large() {
            let length = into.len().min(self.bytes.saturating_sub(from));
            let body = self.item.body(self.meta);
            return copy_out(body, self.meta.key_bytes() + from, &mut into[..length]);
        }
        let mut copied = 0;
        while copied < into.len() {
            let part = self.part(segments, from + copied);
            let length = part.bytes.min(into.len() - copied);
            let words = segments.words(part.reference);
            let now = copy_out(words, part.skip, &mut into[copied..copied + length]);
            if now == 0 {
                break;
            }
            copied += now;
        }
        copied
    }
}

/// The words of a large value that is being received: nobody else sees them yet.
#[derive(Debug)]
pub(crate) struct Chain {
    segments: Arc<Segments>,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    head: Option<Allocation>,
    head_bytes: usize,
    list_words: usize,
    wholes: Vec<Allocation>,
    tail: Option<Allocation>,
}

/// Which of a chain's allocations.
#[derive(Clone, Copy, Debug)]
enum Holder {
    Head,
    Whole(usize),
    Tail,
}

/// How a value is cut; computed before anything is allocated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Plan {
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    segment_bytes: usize,
}

impl Plan {
    /// `None` if the list of all pieces does not fit in a segment: that of a very long value where
    /// segments are small, as under a limit that was raised.
    pub(crate) fn new(key: Key<'_>, value_bytes: usize, segments: &Segments) -> Option<Self> {
        let plan = Self {
            key_bytes: key.bytes().len(),
            value_bytes,
            segment_bytes: segments.segment_bytes(),
        };
        let least = plan.head_words_least().min(plan.inline_words());
        (least <= segments.segment_words()).then_some(plan)
    }

    /// Words of the item if it is in one place; it always has an extension.
    pub(crate) fn inline_words(&self) -> usize {
        HEADER_WORDS + 1 + (self.key_bytes + self.value_bytes).div_ceil(8)
    }

    /// Words of the list at most.
    fn list_words(&self) -> usize {
        self.value_bytes / self.segment_bytes + 2
    }

    /// Words of a head before its data.
    fn head_words(&self) -> usize {
        HEADER_WORDS + 1 + self.key_bytes.div_ceil(8) + 1 + self.list_words()
    }

    /// The least that a head should take of a segment. Up to a sixteenth of a segment a value
    /// stays whole; a longer one is cut where the segment ends, unless too little is left there.
    pub(crate) fn head_words_least(&self) -> usize {
        let sixteenth = self.segment_bytes / 8 / 16;
        if self.inline_words() <= sixteenth {
            self.inline_words()
        } else {
            self.head_words() + sixteenth
        }
    }

    /// Segments that are needed at most beside the open ones.
    pub(crate) fn segments_max(&self) -> usize {
        self.value_bytes / self.segment_bytes + 2
    }

    /// What is left for whole segments and the tail after a head of so many words:
    /// `(whole segments, bytes of the tail)`.
    pub(crate) fn rest(&self, head_words: usize) -> (usize, usize) {
        if head_words >= self.inline_words() {
            return (0, 0);
        }
        let head_bytes = (head_words - self.head_words()) * 8;
        let rest = self.value_bytes.saturating_sub(head_bytes);
        let (wholes, tail) = (rest / self.segment_bytes, rest % self.segment_bytes);
        if tail + TAIL_HEADER_WORDS * 8 > self.segment_bytes {
            (wholes + 1, 0)
        } else {
            (wholes, tail)
        }
    }

    /// Words of a tail with so many bytes.
    pub(crate) fn tail_words(tail_bytes: usize) -> usize {
        TAIL_HEADER_WORDS + tail_bytes.div_ceil(8)
    }
}

impl Chain {
    /// A chain with its head; pieces follow by [`Chain::add_whole`] and [`Chain::set_tail`].
    pub(crate) fn new(segments: &Arc<Segments>, plan: &Plan, head: Allocation) -> Self {
        let is_inline = head.words() >= plan.inline_words();
        let head_bytes = if is_inline {
            plan.value_bytes
        } else {
            ((head.words() - plan.head_words()) * 8).min(plan.value_bytes)
        };
        Self {
            segments: Arc::clone(segments),
            key_bytes: plan.key_bytes,
            value_bytes: plan.value_bytes,
            head_bytes,
            list_words: if is_inline { 0 } else { plan.list_words() },
            head: Some(head),
            wholes: Vec::new(),
            tail: None,
        }
    }

    pub(crate) fn add_whole(&mut self, whole: Allocation) {
        self.wholes.push(whole);
    }

    pub(crate) fn set_tail(&mut self, tail: Allocation) {
        self.tail = Some(tail);
    }

    /// Where the head is, or the whole item when it is in one place.
    pub(crate) fn reference(&self) -> u64 {
        self.head.as_ref().map_or(0, Allocation::reference)
    }

    pub(crate) fn head_words(&self) -> usize {
        self.head.as_ref().map_or(0, Allocation::words)
    }

    fn is_inline(&self) -> bool {
        self.list_words == 0
    }

    fn data_at(&self) -> usize {
        HEADER_WORDS + 1 + self.key_bytes.div_ceil(8) + 1 + self.list_words
    }

    /// Which allocation holds byte `from` of the value, at which of its bytes, and for how long.
    fn place(&self, from: usize) -> Option<(Holder, usize, usize)> {
        if from >= self.value_bytes {
            return None;
        }
        if from < self.head_bytes {
            let at = if self.is_inline() {
                (HEADER_WORDS + 1) * 8 + self.key_bytes
            } else {
                self.data_at() * 8
            };
            return Some((Holder::Head, at + from, self.head_bytes - from));
        }
        let beyond = from - self.head_bytes;
        let segment_bytes = self.segments.segment_bytes();
        let (index, at) = (beyond / segment_bytes, beyond % segment_bytes);
        let left = (segment_bytes - at).min(self.value_bytes - from);
        if index < self.wholes.len() {
            Some((Holder::Whole(index), at, left))
        } else {
            Some((Holder::Tail, TAIL_HEADER_WORDS * 8 + at, left))
        }
    }

    /// The contiguous bytes from byte `from` of the value on.
    pub(crate) fn spare(&mut self, from: usize) -> &mut [u8] {
        let Some((holder, at, left)) = self.place(from) else {
            return &mut [];
        };
        let allocation = match holder {
            Holder::Head => self.head.as_mut(),
            Holder::Whole(index) => self.wholes.get_mut(index),
            Holder::Tail => self.tail.as_mut(),
        };
        match allocation {
            Some(allocation) => {
                let bytes = self.segments.bytes_mut(allocation, at);
                let left = left.min(bytes.len());
                &mut bytes[..left]
            }
            None => &mut [],
        }
    }

    /// Copies bytes to byte `from` of the value on, as much as lies in one piece.
    pub(crate) fn write(&mut self, from: usize, bytes: &[u8]) -> usize {
        let spare = self.spare(from);
        let length = spare.len().min(bytes.len());
        spare[..length].copy_from_slice(&bytes[..length]);
        length
    }

    /// Copies what was received out again.
    pub(crate) fn read(&self, into: &mut [u8]) {
        let mut from = 0;
        while let Some((holder, at, left)) = self.place(from) {
            let allocation = match holder {
                Holder::Head => self.head.as_ref(),
                Holder::Whole(index) => self.wholes.get(index),
                Holder::Tail => self.tail.as_ref(),
            };
            let Some(allocation) = allocation else { return };
            let words = self.segments.words(allocation.reference());
            let left = left.min(into.len() - from);
            if copy_out(words, at, &mut into[from..from + left]) == 0 {
                return;
            }
            from += left;
        }
    }

    /// Notes the end of the item with the segments it shares with others.
    pub(crate) fn note_expiry(&self, note: u32) {
        for shared in self.head.iter().chain(&self.tail) {
            if let Some(id) = self.segments.segment_of(shared.reference()) {
                self.segments.note_expiry(id, note);
            }
        }
    }

    /// Writes key, list and the pieces' headers; after this the head's words 0 to 2 are missing.
    pub(crate) fn complete(&self, key: Key<'_>, hash: KeyHash) -> Meta {
        let words = self.segments.words(self.reference());
        if self.is_inline() {
            let meta = Meta::new(Kind::Inline, self.key_bytes, self.value_bytes, true);
            copy_in(Item::new(words).body(meta), 0, key.bytes());
            return meta;
        }
        let after_key = self.head_words() * 8 - (HEADER_WORDS + 1) * 8 - self.key_bytes;
        let meta = Meta::new(Kind::Head, self.key_bytes, after_key, true);
        let item = Item::new(words);
        copy_in(item.body(meta), 0, key.bytes());
        let list_at = HEADER_WORDS + 1 + self.key_bytes.div_ceil(8);
        let first = self.value_bytes as u64
            | (self.head_bytes as u64) << 32
            | (self.list_words as u64) << 52;
        item.set_word(list_at, first);
        for index in 0..self.list_words {
            item.set_word(list_at + 1 + index, self.list_entry(index));
        }
        self.own_pieces(hash);
        meta
    }

    fn list_entry(&self, index: usize) -> u64 {
        if let Some(whole) = self.wholes.get(index) {
            whole.reference()
        } else if index == self.wholes.len() {
            self.tail.as_ref().map_or(0, |tail| tail.reference() | TAIL)
        } else {
            0
        }
    }

    fn own_pieces(&self, hash: KeyHash) {
        for whole in &self.wholes {
            if let Some(id) = self.segments.segment_of(whole.reference()) {
                self.segments.set_owner(id, hash.0, self.reference());
            }
        }
        if let Some(tail) = &self.tail {
            let item = Item::new(self.segments.words(tail.reference()));
            let bytes = (tail.words() - HEADER_WORDS) * 8;
            item.set_word(0, hash.0);
            item.set_meta(Meta::new(Kind::Piece, 0, bytes, false));
            item.set_word(HEADER_WORDS, self.reference());
        }
    }

    /// The item is in the index: its words are everybody's now.
    pub(crate) fn published(mut self) {
        for allocation in self.head.take().into_iter().chain(self.tail.take()) {
            self.segments.finish(allocation);
        }
        for whole in self.wholes.drain(..) {
            self.segments.finish(whole);
        }
    }
}

impl Drop for Chain {
    /// Gives up what was not published.
    fn drop(&mut self) {
        for allocation in self.head.take().into_iter().chain(self.tail.take()) {
            give_up(&self.segments, allocation);
        }
        for whole in self.wholes.drain(..) {
            if let Some(id) = self.segments.segment_of(whole.reference()) {
                self.segments.retire(id);
            }
        }
    }
}

/// Leaves a dead item where an allocation was, so that its segment can still be walked.
pub(crate) fn give_up(segments: &Segments, allocation: Allocation) {
    let words = allocation.words();
    let item = Item::new(segments.words(allocation.reference()));
    let bytes = (words - HEADER_WORDS) * 8;
    item.set_word(0, Cas::default().0);
    item.set_meta(Meta::new(Kind::Dead, 0, bytes, false));
    segments.add_dead(allocation.reference(), words);
    segments.finish(allocation);
}

/// Copies a head to `to` with one list entry exchanged, and makes its pieces follow. Under the
/// key's lock; the caller publishes the new head.
pub(crate) fn copy_head(segments: &Segments, from: u64, to: u64, exchange: Option<(u64, u64)>) {
    let old = Item::new(segments.words(from));
    let new = Item::new(segments.words(to));
    let meta = old.meta();
    new.copy_from(&old, meta.words());
    let value = Value::of(to, new, meta);
    let list_at = value.list_at() + 1;
    for index in 0..value.list_words {
        let entry = new.word(list_at + index);
        if let Some((gone, come)) = exchange
            && entry == gone | TAIL
        {
            new.set_word(list_at + index, come | TAIL);
        }
    }
    for (piece, is_tail) in value.pieces() {
        if is_tail {
            Item::new(segments.words(piece)).set_word(HEADER_WORDS, to);
        } else if let Some(id) = segments.segment_of(piece) {
            let (hash, _) = segments.owner(id);
            segments.set_owner(id, hash, to);
        }
    }
}

/// The head that a tail belongs to.
pub(crate) fn owner_of_tail(words: &[AtomicU64]) -> u64 {
    words
        .get(HEADER_WORDS)
        .map_or(0, |word| word.load(Ordering::Relaxed))
}
