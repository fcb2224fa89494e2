//! The destination of replies: a fixed buffer that fills from the front.
//!
//! The caller checks once that there is room for the largest reply, and each encoder then writes
//! without asking. Should the room not suffice all the same, the sink keeps to its bounds and
//! remembers that it [overflowed](Sink::overflowed): what it holds must then not be sent.

use core::fmt;

/// Fixed memory that fills from the front.
#[derive(Debug)]
pub struct Sink<'a> {
    buffer: &'a mut [u8],
    length: usize,
    overflowed: bool,
}

impl<'a> Sink<'a> {
    /// An empty sink over `buffer`, whose old contents are written over.
    #[inline]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self {
            buffer,
            length: 0,
            overflowed: false,
        }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(room) = self.spare().get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        } else {
            self.overflowed = true;
        }
    }

    /// Appends `number` in decimal.
    #[inline]
    pub fn push_number(&mut self, number: u64) {
        match number {
            0..=9 => self.push(&[digit(number)]),
            10..=99 => self.push(&[digit(number / 10), digit(number % 10)]),
            100..=999 => self.push(&[
                digit(number / 100),
                digit(number / 10 % 10),
                digit(number % 10),
            ]),
            _ => self.push(itoa::Buffer::new().format(number).as_bytes()),
        }
    }

    /// The free room: write there and [`advance`](Self::advance).
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.length..).unwrap_or_default()
    }

    /// Takes the first `bytes` bytes of [`spare`](Self::spare) as written.
    #[inline]
    pub fn advance(&mut self, bytes: usize) {
        if bytes <= self.remaining() {
            self.length += bytes;
        } else {
            self.overflowed = true;
        }
    }

    /// Forgets everything behind the first `length` bytes: for a reply that must be begun again.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Bytes written.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was written.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of room left.
    #[inline]
    pub const fn remaining(&self) -> usize {
        self.buffer.len() - self.length
    }

    /// What was written.
    #[inline]
    pub fn written(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }

    /// Whether something was left out for want of room.
    #[inline]
    pub const fn overflowed(&self) -> bool {
        self.overflowed
    }
}

impl fmt::Write for Sink<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        if self.overflowed {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

#[inline]
const fn digit(number: u64) -> u8 {
    b'0' + number as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for (number, text) in [
            (0, "0"),
            (9, "9"),
            (10, "10"),
            (99, "99"),
            (100, "100"),
            (907, "907"),
            (999, "999"),
            (1000, "1000"),
            (u64::MAX, "18446744073709551615"),
        ] {
            let mut buffer = [0; 20];
            let mut sink = Sink::new(&mut buffer);
            sink.push_number(number);
            assert_eq!(sink.written(), text.as_bytes());
        }
    }

    #[test]
    fn a_full_sink_stays_within_its_bounds_and_says_so() {
        let mut buffer = [0; 4];
        let mut sink = Sink::new(&mut buffer);
        sink.push(b"abc");
        assert_eq!((sink.remaining(), sink.overflowed()), (1, false));
        sink.push(b"de");
        assert_eq!(sink.written(), b"abc");
        assert!(sink.overflowed());
    }

    #[test]
    fn a_reply_can_be_begun_again() {
        let mut buffer = [0; 8];
        let mut sink = Sink::new(&mut buffer);
        sink.push(b"ab");
        let start = sink.len();
        sink.push(b"cd");
        sink.truncate(start);
        sink.spare()[..2].copy_from_slice(b"xy");
        sink.advance(2);
        assert_eq!(sink.written(), b"abxy");
        assert!(!sink.is_empty());
    }
}
