//! The layout of an item in memory.
//!
//! ```text
//!   word 0   cas
//!   word 1   meta:  63 61 60       34 33  32    31      30 29 28  27       8 7      0
//!                   | in. | accessed |win|stale|fetched|kind|ext| value bytes |key bytes|
//!   word 2   extension, if ext:  expiry (high 32) | client flags (low 32)
//!   then     key and value without padding between, little-endian words
//! ```
//!
//! *in.* is the incarnation of its slice that it was written in (`slice_clear.rs`), 0 on a server
//! alone. 16 bytes of key and 32 of value take 64 bytes. Every word is an atomic accessed Relaxed:
//! readers hold no lock and validate through the index. All lengths read from memory may be garbage
//! until then; the slices that they are applied to end with the segment, so garbage cannot reach
//! further.
//!
//! A *head* is an item whose value continues in other segments (`large_values.rs`), a *piece* the
//! last part of such a value; a *dead* item only keeps its place until the segment is drained.

use curtail_types::{Cas, Expiry, HybridClock, Key, Now};

use crate::sync::{AtomicU64, Ordering};

/// What lies at a reference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// An item with its whole value.
    Inline,
    /// An item with a list of pieces and the first part of its value.
    Head,
    /// The last part of a large value.
    Piece,
    /// Nothing any more.
    Dead,
}

/// The second word of an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Meta(pub(crate) u64);

const VALUE_SHIFT: u32 = 8;
const VALUE_BITS: u32 = 20;
const EXTENDED: u64 = 1 << 28;
const KIND_SHIFT: u32 = 29;
const FETCHED: u64 = 1 << 31;
const STALE: u64 = 1 << 32;
const WON: u64 = 1 << 33;
const ACCESS_SHIFT: u32 = 34;
const ACCESS_MASK: u64 = (1 << 27) - 1;
const INCARNATION_SHIFT: u32 = 61;

/// Incarnations of a slice that the meta word tells apart.
pub(crate) const INCARNATIONS: usize = 1 << (64 - INCARNATION_SHIFT);

/// Words before the key, without the extension.
pub(crate) const HEADER_WORDS: usize = 2;

/// The longest value part that the meta word can tell, in bytes.
pub(crate) const PART_BYTES_MAX: usize = (1 << VALUE_BITS) - 1;

impl Meta {
    pub(crate) fn new(kind: Kind, key_bytes: usize, value_bytes: usize, extended: bool) -> Self {
        debug_assert!(key_bytes <= 255);
        debug_assert!(value_bytes <= PART_BYTES_MAX);
        Self(
            key_bytes as u64
                | (value_bytes as u64) << VALUE_SHIFT
                | if extended { EXTENDED } else { 0 }
                | (kind as u64) << KIND_SHIFT,
        )
    }

    #[inline]
    pub(crate) fn key_bytes(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// Bytes after the key: the value, or list and first part of a head, or a piece.
    #[inline]
    pub(crate) fn value_bytes(self) -> usize {
        (self.0 >> VALUE_SHIFT) as usize & PART_BYTES_MAX
    }

    /// The length of the key of an item that holds its whole value and nothing else: no expiry, no
    /// client flags, neither stale nor won.
    #[inline(always)]
    pub(crate) fn plain_key_bytes(self) -> Option<usize> {
        (self.0 & (EXTENDED | 3 << KIND_SHIFT | STALE | WON) == 0).then(|| self.key_bytes())
    }

    #[inline]
    pub(crate) fn extended(self) -> bool {
        self.0 & EXTENDED != 0
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 >> KIND_SHIFT & 3 {
            0 => Kind::Inline,
            1 => Kind::Head,
            2 => Kind::Piece,
            _ => Kind::Dead,
        }
    }

    pub(crate) fn with_kind(self, kind: Kind) -> Self {
        Self(self.0 & !(3 << KIND_SHIFT) | (kind as u64) << KIND_SHIFT)
    }

    #[inline]
    pub(crate) fn fetched(self) -> bool {
        self.0 & FETCHED != 0
    }

    pub(crate) fn stale(self) -> bool {
        self.0 & STALE != 0
    }

    /// Whether the right to recache was given to somebody.
    pub(crate) fn won(self) -> bool {
        self.0 & WON != 0
    }

    pub(crate) fn with_fetched(self) -> Self {
        Self(self.0 | FETCHED)
    }

    pub(crate) fn with_stale(self, stale: bool) -> Self {
        Self(self.0 & !STALE | if stale { STALE } else { 0 })
    }

    pub(crate) fn with_won(self, won: bool) -> Self {
        Self(self.0 & !WON | if won { WON } else { 0 })
    }

    pub(crate) fn incarnation(self) -> usize {
        (self.0 >> INCARNATION_SHIFT) as usize
    }

    pub(crate) fn with_incarnation(self, incarnation: usize) -> Self {
        let others = (1 << INCARNATION_SHIFT) - 1;
        Self(self.0 & others | (incarnation as u64) << INCARNATION_SHIFT)
    }

    /// Notes `now` as the last access, in seconds that wrap after four years: an item that nobody
    /// has read for more than two shows a wrong idle time, and nothing else is wrong.
    #[inline]
    pub(crate) fn with_access(self, now: Now) -> Self {
        Self(self.0 & !(ACCESS_MASK << ACCESS_SHIFT) | clock_seconds(now) << ACCESS_SHIFT)
    }

    /// Takes access time and fetched mark over from another item.
    pub(crate) fn with_access_of(self, other: Self) -> Self {
        let kept = ACCESS_MASK << ACCESS_SHIFT | FETCHED;
        Self(self.0 & !kept | other.0 & kept)
    }

    /// Seconds since the last access that was noted.
    #[inline]
    pub(crate) fn idle_seconds(self, now: Now) -> u32 {
        let idle = clock_seconds(now).wrapping_sub(self.0 >> ACCESS_SHIFT) & ACCESS_MASK;
        // A clock that went back shows as nearly a whole turn.
        if idle > ACCESS_MASK / 2 {
            0
        } else {
            idle as u32
        }
    }

    #[inline]
    pub(crate) fn header_words(self) -> usize {
        HEADER_WORDS + usize::from(self.extended())
    }

    /// Words that the whole thing takes; at least 2, whatever the bits.
    #[inline]
    pub(crate) fn words(self) -> usize {
        self.header_words() + (self.key_bytes() + self.value_bytes()).div_ceil(8)
    }
}

fn clock_seconds(now: Now) -> u64 {
    let unix_seconds = now.unix_ns / 1_000_000_000;
    unix_seconds.saturating_sub(HybridClock::EPOCH_UNIX_SECONDS) & ACCESS_MASK
}

/// Expiry and client flags; kept only when one of them is not zero.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Extension {
    pub(crate) expiry: Expiry,
    pub(crate) flags: u32,
}

impl Extension {
    pub(crate) fn is_needed(self) -> bool {
        self != Self::default()
    }

    fn to_bits(self) -> u64 {
        u64::from(self.expiry.to_bits()) << 32 | u64::from(self.flags)
    }

    fn from_bits(bits: u64) -> Self {
        Self {
            expiry: Expiry::from_bits((bits >> 32) as u32),
            flags: bits as u32,
        }
    }
}

/// The words of an item, and what follows it in its segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Item<'a> {
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    #[inline]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.words
            .get(index)
            .map_or(0, |w| w.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set_word(&self, index: usize, word: u64) {
        if let Some(place) = self.words.get(index) {
            place.store(word, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn cas(&self) -> Cas {
        Cas(self.word(0))
    }

    #[inline]
    pub(crate) fn meta(&self) -> Meta {
        Meta(self.word(1))
    }

    #[inline]
    pub(crate) fn set_meta(&self, meta: Meta) {
        self.set_word(1, meta.0);
    }

    #[inline]
    pub(crate) fn extension(&self, meta: Meta) -> Extension {
        if meta.extended() {
            Extension::from_bits(self.word(HEADER_WORDS))
        } else {
            Extension::default()
        }
    }

    pub(crate) fn set_extension(&self, extension: Extension) {
        self.set_word(HEADER_WORDS, extension.to_bits());
    }

    /// Key and value.
    #[inline]
    pub(crate) fn body(&self, meta: Meta) -> &'a [AtomicU64] {
        self.words.get(meta.header_words()..).unwrap_or(&[])
    }

    /// Whether this is an item (not a piece, not dead) of `key`.
    #[inline]
    pub(crate) fn is_of(&self, meta: Meta, key: &[u8]) -> bool {
        meta.key_bytes() == key.len()
            && matches!(meta.kind(), Kind::Inline | Kind::Head)
            && equals(self.body(meta), key)
    }

    /// The same of an item without an extension.
    #[inline(always)]
    pub(crate) fn plain_body(&self) -> &'a [AtomicU64] {
        self.words.get(HEADER_WORDS..).unwrap_or(&[])
    }

    /// Whether an item without an extension is of `key`, whose length it is known to have.
    #[inline(always)]
    pub(crate) fn has_key(&self, key: Key<'_>) -> bool {
        equals(self.plain_body(), key.bytes())
    }

    /// Copies the key out, as much as fits; returns how much that is.
    #[inline]
    pub(crate) fn copy_key(&self, meta: Meta, into: &mut [u8]) -> usize {
        let length = meta.key_bytes().min(into.len());
        copy_out(self.body(meta), 0, &mut into[..length])
    }

    /// Writes a whole item; `bytes` is what `meta` calls the value.
    pub(crate) fn write(
        &self,
        cas: Cas,
        meta: Meta,
        extension: Extension,
        key: &[u8],
        bytes: &[u8],
    ) {
        self.set_word(0, cas.0);
        self.set_meta(meta);
        if meta.extended() {
            self.set_extension(extension);
        }
        let body = self.body(meta);
        copy_in(body, 0, key);
        copy_in(body, key.len(), bytes);
    }

    /// Copies `words` words of another item here.
    pub(crate) fn copy_from(&self, other: &Item<'_>, words: usize) {
        for (to, from) in self.words.iter().zip(other.words).take(words) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Whether the bytes at the start of `words` are `bytes`.
#[inline]
fn equals(words: &[AtomicU64], bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let Some(words) = words.get(..bytes.len().div_ceil(8)) else {
        return false;
    };
    for (word, chunk) in words.iter().zip(chunks) {
        if word.load(Ordering::Relaxed) != u64::from_le_bytes(*chunk) {
            return false;
        }
    }
    if rest.is_empty() {
        return true;
    }
    // The last eight bytes, of which the first are compared already.
    let last = match bytes.last_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk) >> (64 - 8 * rest.len()),
        None => partial(rest),
    };
    words
        .last()
        .is_some_and(|word| word.load(Ordering::Relaxed) & mask(rest.len()) == last)
}

/// The lowest `bytes` bytes, of fewer than 8.
#[inline]
fn mask(bytes: usize) -> u64 {
    (1 << (8 * bytes)) - 1
}

/// Fewer than 8 bytes as the low end of a word.
#[inline]
fn partial(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Copies `length` bytes from byte `from` of `words` on to the front of `room`, in whole words, so
/// that up to seven bytes behind them are written over. `None`, with nothing copied, if words or
/// room end before.
#[inline(always)]
pub(crate) fn copy_words(
    words: &[AtomicU64],
    from: usize,
    length: usize,
    room: &mut [u8],
) -> Option<()> {
    let count = length.div_ceil(8);
    let room = room.as_chunks_mut::<8>().0.get_mut(..count)?;
    let words = words.get(from / 8..)?;
    let skip = from % 8 * 8;
    if skip == 0 {
        for (chunk, word) in room.iter_mut().zip(words.get(..count)?) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
        return Some(());
    }
    let (first, words) = words.get(..=count)?.split_first()?;
    let mut low = first.load(Ordering::Relaxed);
    for (chunk, word) in room.iter_mut().zip(words) {
        let high = word.load(Ordering::Relaxed);
        *chunk = (low >> skip | high << (64 - skip)).to_le_bytes();
        low = high;
    }
    Some(())
}

/// Copies bytes from byte `from` of `words` on; as many as there are on both sides.
#[inline]
pub(crate) fn copy_out(words: &[AtomicU64], from: usize, into: &mut [u8]) -> usize {
    let Some(words) = words.get(from / 8..) else {
        return 0;
    };
    let skip = from % 8;
    let length = into.len().min((words.len() * 8).saturating_sub(skip));
    let into = &mut into[..length];
    if skip == 0 {
        let (chunks, rest) = into.as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Relaxed).to_le_bytes();
        }
        if !rest.is_empty()
            && let Some(word) = words.get(length / 8)
        {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
        return length;
    }
    copy_out_shifted(words, skip as u32 * 8, into);
    length
}

/// Copies bytes that start `shift` bits into the first word.
#[inline]
fn copy_out_shifted(words: &[AtomicU64], shift: u32, into: &mut [u8]) {
    let mut low = words.first().map_or(0, |w| w.load(Ordering::Relaxed));
    for (next, chunk) in (1..).zip(into.chunks_mut(8)) {
        let high = words.get(next).map_or(0, |w| w.load(Ordering::Relaxed));
        let bytes = (low >> shift | high << (64 - shift)).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
        low = high;
    }
}

/// Copies `bytes` to byte `from` of `words` on; the caller has made sure that they fit. Bytes
/// around them stay.
#[inline]
pub(crate) fn copy_in(words: &[AtomicU64], from: usize, bytes: &[u8]) {
    let Some(mut words) = words.get(from / 8..) else {
        return;
    };
    let mut bytes = bytes;
    let skip = from % 8;
    if skip != 0 {
        let (head, rest) = bytes.split_at(bytes.len().min(8 - skip));
        if let Some((first, others)) = words.split_first() {
            merge(
                first,
                mask(head.len()) << (8 * skip),
                partial(head) << (8 * skip),
            );
            words = others;
        }
        bytes = rest;
    }
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(chunks) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    if !rest.is_empty()
        && let Some(last) = words.get(chunks.len())
    {
        merge(last, mask(rest.len()), partial(rest));
    }
}

#[inline]
fn merge(word: &AtomicU64, mask: u64, bits: u64) {
    let old = word.load(Ordering::Relaxed);
    word.store(old & !mask | bits, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    /// Goal: bytes come back as they went in, at every offset and length, and their neighbours
    /// stay. Method: all offsets and lengths up to four words.
    #[test]
    fn bytes_round_trip_at_every_offset() {
        let bytes: Vec<u8> = (1..=32).collect();
        for from in 0..17 {
            for length in 0..=32 {
                let words = words(7);
                copy_in(&words, from, &bytes[..length]);
                let mut all = [0; 56];
                assert_eq!(copy_out(&words, 0, &mut all), 56);
                assert!(all[..from].iter().all(|&b| b == 0xff));
                assert_eq!(&all[from..from + length], &bytes[..length]);
                assert!(all[from + length..].iter().all(|&b| b == 0xff));
                let mut part = vec![0; length];
                assert_eq!(copy_out(&words, from, &mut part), length);
                assert_eq!(part, &bytes[..length]);
            }
        }
    }

    #[test]
    fn copying_stops_at_the_end_of_the_words() {
        let words = words(2);
        let mut into = [0; 40];
        assert_eq!(copy_out(&words, 3, &mut into), 13);
        assert_eq!(copy_out(&words, 16, &mut into), 0);
        assert_eq!(copy_out(&words, 999, &mut into), 0);
    }

    #[test]
    fn an_item_of_16_and_32_bytes_takes_64() {
        let meta = Meta::new(Kind::Inline, 16, 32, false);
        assert_eq!(meta.words() * 8, 64);
        assert_eq!(Meta::new(Kind::Inline, 16, 32, true).words() * 8, 72);
    }

    #[test]
    fn keys_are_compared_whole() {
        for length in 1..=32 {
            let key: Vec<u8> = (0..length).collect();
            let words = words(10);
            let item = Item::new(&words);
            let meta = Meta::new(Kind::Inline, key.len(), 5, false);
            item.write(Cas(9), meta, Extension::default(), &key, b"value");
            assert!(item.is_of(item.meta(), &key));
            for position in 0..key.len() {
                let mut other = key.clone();
                other[position] ^= 0x80;
                assert!(!item.is_of(item.meta(), &other));
            }
            assert!(!item.is_of(item.meta(), &key[1..]));
        }
    }

    #[test]
    fn access_times_survive_a_clock_that_goes_back() {
        let at = |seconds: u64| Now {
            unix_ns: (HybridClock::EPOCH_UNIX_SECONDS + seconds) * 1_000_000_000,
            ..Now::default()
        };
        let meta = Meta::new(Kind::Head, 250, PART_BYTES_MAX, true).with_access(at(100));
        assert_eq!(meta.idle_seconds(at(160)), 60);
        assert_eq!(meta.idle_seconds(at(90)), 0);
        assert_eq!(meta.key_bytes(), 250);
        assert_eq!(meta.value_bytes(), PART_BYTES_MAX);
        assert_eq!(meta.kind(), Kind::Head);
        assert!(!meta.won() && !meta.stale() && !meta.fetched());
    }
}
