//! Cuts a stream of bytes into replies, however the network cut it.

use curtail_workload::Kind;

use crate::text_protocol::{Frame, Protocol, Reply};

/// The state between two receives: part of a first line, or a body that is still coming.
#[derive(Debug, Default)]
pub(super) struct Framer {
    partial_line: Vec<u8>,
    body: Option<(Reply, usize)>,
    /// Whether bodies are kept, and the body of the last reply if they are.
    keeps_bodies: bool,
    kept: Vec<u8>,
}

/// A first line longer than this is no reply of ours.
pub(super) const LINE_BYTES_MAX: usize = 2048;

impl Framer {
    /// One that keeps the body of the last reply, to be looked at.
    pub(super) fn keeping_bodies(keeps_bodies: bool) -> Self {
        Self {
            keeps_bodies,
            ..Self::default()
        }
    }

    /// Whether the last reply ended with the last byte fed.
    pub(super) fn is_between_replies(&self) -> bool {
        self.partial_line.is_empty() && self.body.is_none()
    }

    /// Puts back what was kept of the last receive; the next bytes go behind it. Returns its
    /// length, at most [`LINE_BYTES_MAX`].
    pub(super) fn restore(&mut self, buffer: &mut [u8]) -> usize {
        let length = self.partial_line.len();
        buffer[..length].copy_from_slice(&self.partial_line);
        self.partial_line.clear();
        length
    }

    /// Takes one reply to the given verb off the front of `input`, if its end is there.
    #[inline]
    pub(super) fn next(
        &mut self,
        protocol: Protocol,
        verb: Kind,
        input: &mut &[u8],
    ) -> Option<Reply> {
        let (reply, bytes) = match self.body.take() {
            Some(body) => body,
            None => match protocol.frame(verb, input) {
                Frame::Incomplete => return None,
                Frame::Reply {
                    reply,
                    line_bytes,
                    body_bytes,
                } => {
                    *input = &input[line_bytes..];
                    self.kept.clear();
                    (reply, body_bytes)
                }
            },
        };
        let there = bytes.min(input.len());
        if self.keeps_bodies {
            self.kept.extend_from_slice(&input[..there]);
        }
        *input = &input[there..];
        if there < bytes {
            self.body = Some((reply, bytes - there));
            return None;
        }
        Some(reply)
    }

    /// The value of the last reply, if that was a hit, bodies are kept, and it ends as it should.
    #[inline]
    pub(super) fn value(&self, reply: Reply) -> Option<&[u8]> {
        let Reply::Hit { value_bytes, .. } = reply else {
            return None;
        };
        let (value, end) = self.kept.split_at_checked(value_bytes)?;
        matches!(end, b"\r\n" | b"\r\nEND\r\n").then_some(value)
    }

    /// Keeps the part of a first line that is left; false if it is too long to be one.
    #[must_use]
    pub(super) fn keep(&mut self, rest: &[u8]) -> bool {
        self.partial_line.extend_from_slice(rest);
        self.partial_line.len() <= LINE_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: replies come out the same however the bytes were cut. Method: three replies, fed in
    /// pieces of every length.
    #[test]
    fn cuts_do_not_matter() {
        let stream = b"VA 5\r\nhello\r\nEN\r\nVA 2\r\n\r\n\r\n";
        for piece_bytes in 1..=stream.len() {
            let mut framer = Framer::keeping_bodies(true);
            let (mut replies, mut bodies) = (Vec::new(), Vec::new());
            let mut buffer = [0; 256];
            for piece in stream.chunks(piece_bytes) {
                let kept = framer.restore(&mut buffer);
                buffer[kept..kept + piece.len()].copy_from_slice(piece);
                let mut input = &buffer[..kept + piece.len()];
                while !input.is_empty() {
                    match framer.next(Protocol::Meta, Kind::Get, &mut input) {
                        Some(reply) => replies.push(reply),
                        None => break,
                    }
                    bodies.push(framer.kept.clone());
                }
                assert!(framer.keep(input));
            }
            let token = 0;
            let hit = |value_bytes| Reply::Hit { value_bytes, token };
            assert_eq!(replies, [hit(5), Reply::Miss, hit(2)], "{piece_bytes}");
            assert_eq!(bodies, [&b"hello\r\n"[..], b"", b"\r\n\r\n"]);
            assert!(framer.is_between_replies());
        }
    }
}
