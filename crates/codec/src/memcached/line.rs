//! Splits input into lines, and lines into words.
//!
//! A word ends at a space. Keys are words without control characters, and are scanned eight bytes
//! at a time: the scan stops at the first byte up to the space, and only then asks which one it
//! was, so that the check costs nothing.

use curtail_types::{Key, KeyError};

use super::{LINE_BYTES_MAX, encode::Refusal};

/// A command line that has arrived whole.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    /// The line without its end.
    pub(super) text: &'a [u8],
    /// The input behind the line's end.
    pub(super) after: &'a [u8],
    /// Bytes of the input up to there.
    pub(super) bytes: usize,
}

/// What the front of the input is.
pub(super) enum Front<'a> {
    /// It begins with this line.
    Line(Line<'a>),
    /// The line's end has not come yet.
    Partial,
    /// The line is longer than a line may be.
    TooLong,
}

/// The first word, and what follows it without the space between.
#[inline]
pub(super) fn split_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let from = skip_spaces(text);
    match from.iter().position(|&byte| byte == b' ') {
        Some(end) => Some((from.get(..end)?, from.get(end + 1..)?)),
        None if from.is_empty() => None,
        None => Some((from, &[])),
    }
}

/// The first word as a key, and what follows it. Without a word this is no command, with one that
/// cannot be a key it is a bad line.
#[inline]
pub(super) fn split_key(text: &[u8]) -> Result<(Key<'_>, &[u8]), Refusal> {
    let from = skip_spaces(text);
    let (word, rest) = from.split_at_checked(token_end(from)).unwrap_or_default();
    match (Key::new(word), rest) {
        (Ok(key), [] | [b' ', ..]) => Ok((key, rest)),
        (Err(KeyError::Empty), []) => Err(Refusal::Error),
        _ => Err(Refusal::BadFormat),
    }
}

/// The same, where `text` begins with the key and may go on behind the end of its line. `None` when
/// the end of the key is not in sight.
#[inline]
pub(super) fn split_key_unended(text: &[u8]) -> Option<(Key<'_>, &[u8])> {
    let (word, rest) = text.split_at_checked(token_end(text))?;
    match (Key::new(word), rest) {
        (Ok(key), [_, ..]) => Some((key, rest)),
        _ => None,
    }
}

/// Without the spaces in front.
#[inline]
pub(super) fn skip_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

/// Where the first space or control character is; the length if there is none.
#[inline]
pub(super) fn token_end(text: &[u8]) -> usize {
    let (chunks, rest) = text.as_chunks::<8>();
    let mut end = 0;
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk);
        // The high bit of each byte below 0x21. Above the first such byte a borrow may set false
        // ones, but only the first counts.
        let stops = word.wrapping_sub(ONES * 0x21) & !word & (ONES * 0x80);
        if stops != 0 {
            return end + (stops.trailing_zeros() / 8) as usize;
        }
        end += 8;
    }
    end + rest
        .iter()
        .position(|&byte| byte <= b' ')
        .unwrap_or(rest.len())
}

impl<'a> Line<'a> {
    /// The line at the front of `input`, of which the first `scanned` bytes are known to hold no
    /// line end. `\n` ends a line, and a `\r` before it belongs to the end.
    #[inline]
    pub(super) fn find(input: &'a [u8], scanned: usize) -> Front<'a> {
        let window = input.get(..WINDOW_BYTES).unwrap_or(input);
        let unseen = window.get(scanned..).unwrap_or_default();
        let Some(found) = memchr::memchr(b'\n', unseen) else {
            return if window.len() < WINDOW_BYTES {
                Front::Partial
            } else {
                Front::TooLong
            };
        };
        match input.split_at_checked(scanned + found + 1) {
            Some(([text @ .., b'\r', b'\n'] | [text @ .., b'\n'], after)) => Front::Line(Line {
                text,
                after,
                bytes: scanned + found + 1,
            }),
            _ => Front::Partial,
        }
    }
}

/// A line that fits is found within so many bytes.
pub(super) const WINDOW_BYTES: usize = LINE_BYTES_MAX + 2;

const ONES: u64 = 0x0101_0101_0101_0101;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the eight-at-a-time scan finds what a byte loop finds. Method: each of the 256 bytes
    /// at each place of a text of ordinary bytes, low and high.
    #[test]
    fn the_scan_stops_where_a_byte_loop_stops() {
        for length in 0..20 {
            for filler in [b'!', b'a', 0x7f, 0x80, 0xa0, 0xff] {
                for place in 0..length {
                    for byte in 0..=255 {
                        let mut text = [filler; 20];
                        text[place] = byte;
                        let text = &text[..length];
                        let slow = text.iter().position(|&b| b <= b' ').unwrap_or(length);
                        assert_eq!(token_end(text), slow, "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_line_ends_at_its_newline_with_or_without_a_return() {
        for (input, text, bytes) in [
            (b"ab\r\ncd".as_slice(), b"ab".as_slice(), 4),
            (b"ab\ncd", b"ab", 3),
            (b"a\rb\r\r\n", b"a\rb\r", 6),
            (b"\r\n", b"", 2),
            (b"\n", b"", 1),
        ] {
            let Front::Line(line) = Line::find(input, 0) else {
                panic!("{input:?} has a line");
            };
            assert_eq!((line.text, line.bytes), (text, bytes));
            assert_eq!(line.after, &input[bytes..]);
        }
        assert!(matches!(Line::find(b"abc\r", 0), Front::Partial));
        assert!(matches!(Line::find(&[b'x'; 2049], 0), Front::Partial));
        assert!(matches!(Line::find(&[b'x'; 2050], 2049), Front::TooLong));
    }
}
