//! The header as eight little-endian words, as the XDP program reads it.

use super::HEADER_BYTES;

/// A header, word by word.
pub(super) type Words = [u64; HEADER_BYTES / 8];

/// The first 64 bytes as words, and what follows; `None` if there are fewer.
#[inline]
pub(super) fn split(bytes: &[u8]) -> Option<(Words, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    Some((from_bytes(head), rest))
}

/// The words of a header.
#[inline]
pub(super) fn from_bytes(head: &[u8; HEADER_BYTES]) -> Words {
    let mut words = Words::default();
    let (chunks, _) = head.as_chunks::<8>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}

/// The header of some words.
#[inline]
pub(super) fn to_bytes(words: &Words) -> [u8; HEADER_BYTES] {
    let mut head = [0; HEADER_BYTES];
    let (chunks, _) = head.as_chunks_mut::<8>();
    for (word, chunk) in words.iter().zip(chunks) {
        *chunk = word.to_le_bytes();
    }
    head
}

/// Writes `parts` one behind another to the front of `room`, as far as they fit.
#[inline]
pub(super) fn gather(mut room: &mut [u8], parts: [&[u8]; 3]) {
    for part in parts {
        let Some((front, rest)) = room.split_at_mut_checked(part.len()) else {
            return;
        };
        front.copy_from_slice(part);
        room = rest;
    }
}

/// Two numbers of 32 bits in one word, the first in the lower half.
#[inline]
pub(super) const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The lower 32 bits.
#[inline]
pub(super) const fn low(word: u64) -> u32 {
    word as u32
}

/// The upper 32 bits.
#[inline]
pub(super) const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
