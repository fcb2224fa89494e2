//! The line end behind a value that the server receives by itself.
//!
//! [`Request::SetHeader`](super::Request::SetHeader) announces such a value. Once its bytes are in
//! place, two more must follow, `\r\n`, and they may come one at a time. Two others mean that the
//! client miscounted: the write is refused and decoding goes on behind the two.

/// Checks the two bytes behind a value.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct BodyEnd {
    /// How many bytes have come: 0 or 1.
    seen: u8,
    /// Whether those were right.
    wrong: bool,
}

/// What is known about a value's line end.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum BodyEndState {
    /// Not both bytes have come.
    Incomplete,
    /// `\r\n`.
    Right,
    /// Something else: answer with [`bad_data_chunk`](super::encode::bad_data_chunk).
    Wrong,
}

impl BodyEnd {
    /// How many bytes a value's line end has.
    pub const BYTES: usize = 2;

    /// Takes what it needs from the front of `input`: how many bytes that was, and what is known
    /// now. To be dropped once that is not [`BodyEndState::Incomplete`].
    pub fn feed(&mut self, input: &[u8]) -> (usize, BodyEndState) {
        let expected = if self.seen == 0 {
            b"\r\n"
        } else {
            b"\n".as_slice()
        };
        let taken = expected.len().min(input.len());
        self.wrong |= input.iter().zip(expected).any(|(got, want)| got != want);
        self.seen += taken as u8;
        let state = match (usize::from(self.seen) == Self::BYTES, self.wrong) {
            (false, _) => BodyEndState::Incomplete,
            (true, false) => BodyEndState::Right,
            (true, true) => BodyEndState::Wrong,
        };
        (taken, state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the verdict does not depend on how the bytes are cut. Method: every pair out of four
    /// bytes, whole and cut in the middle.
    #[test]
    fn two_bytes_are_judged_alike_whole_and_in_pieces() {
        let letters = [b'\r', b'\n', b'x', 0];
        for first in letters {
            for second in letters {
                let expected = if [first, second] == *b"\r\n" {
                    BodyEndState::Right
                } else {
                    BodyEndState::Wrong
                };
                let whole = BodyEnd::default().feed(&[first, second, b'z']);
                assert_eq!(whole, (2, expected));
                let mut cut = BodyEnd::default();
                assert_eq!(cut.feed(&[first]), (1, BodyEndState::Incomplete));
                assert_eq!(cut.feed(&[]), (0, BodyEndState::Incomplete));
                assert_eq!(cut.feed(&[second, b'z']), (1, expected));
            }
        }
    }
}
