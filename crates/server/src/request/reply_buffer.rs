//! The replies of one turn: small ones side by side in one buffer, large values leased in item
//! memory.
//!
//! ```text
//!  area    [ VA 3\r\nabc\r\n | EN\r\n | VA 70000\r\n | \r\n ]
//!  pieces    conn 4: area 0..15      conn 9: area 15..30, lease, area 30..32
//! ```
//!
//! Executing fills it in request order; the reply stage sends each connection its pieces with one
//! call and the memory is used again in the next turn. What the kernel does not take is copied out
//! to the connection (its output queue), so nothing here outlives the turn.
//!
//! Invariants: the pieces of one connection stand in the order in which it must receive them. A
//! request is answered once, also if it has several parts (the keys of a `get`, the nodes of a
//! `flush_all`): no part that fails says so itself, but the line that ends the request does, which
//! may be changed as long as a part is awaited.

use std::{borrow::Cow, ops::Range, slice};

use curtail_codec::memcached::{
    Form, Sink,
    encode::{self, REPLY_BYTES_MAX, Refusal},
};
use curtail_store::{COPY_BYTES_MAX, ValueLease};

use crate::{
    completion::{Awaited, Place},
    owned_reply_form::OwnedForm,
};

/// All replies of a turn, in order.
#[derive(Debug)]
pub(crate) struct Replies {
    area: Box<[u8]>,
    used: usize,
    pieces: Vec<Piece>,
    /// The connection that was answered last, and how many bytes it got in this turn.
    current: (usize, usize),
    /// Parts of requests that failed, and whose, until the line that ends their request.
    failed: Vec<(usize, Refusal)>,
    /// The number of the next place that is left for later.
    next_place: u32,
}

/// A part of a connection's reply.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The slot of the connection it goes to.
    pub(crate) slot: usize,
    /// What it is.
    pub(crate) content: Content,
}

/// Where the bytes of a piece are.
#[derive(Debug)]
pub(crate) enum Content {
    /// In the area of [`Replies`].
    Area {
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
    },
    /// In the store.
    Lease(ValueLease),
    /// It comes later; everything behind waits for it.
    Awaited(Place),
    /// The line that ends a request of several parts, some of which are awaited.
    Final {
        line: Line,
        /// It says that a part has failed.
        failed: bool,
    },
    /// In memory of their own: the long reports of administration commands.
    Owned(Box<[u8]>),
}

/// A line of a reply, its end included.
pub(crate) type Line = Cow<'static, [u8]>;

/// A place in the replies of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    used: usize,
    pieces: usize,
    /// Where the last piece ended: it may have grown.
    last_end: usize,
    current: (usize, usize),
    failed: usize,
}

/// Bytes of small replies that a turn can gather; executing pauses to send when they are used up.
const AREA_BYTES: usize = 256 << 10;

/// What an answer of another worker counts for before it is known.
const AWAITED_BYTES: usize = 64;

/// More than a connection can be answered in a turn.
const CLOSED_OFF: usize = usize::MAX / 2;

/// Pieces to expect in a turn; more are possible and grow the list once.
const PIECES_EXPECTED: usize = 1024;

impl Piece {
    fn end(&self) -> usize {
        match self.content {
            Content::Area { end, .. } => end,
            _ => 0,
        }
    }
}

impl Content {
    /// Moves it out of a list that is about to be cleared.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Content::Area { start: 0, end: 0 })
    }
}

impl Replies {
    pub(crate) fn new() -> Self {
        Self::with_room(AREA_BYTES, PIECES_EXPECTED)
    }

    /// The same for less.
    pub(crate) fn with_room(bytes: usize, pieces: usize) -> Self {
        Self {
            area: vec![0; bytes].into_boxed_slice(),
            used: 0,
            pieces: Vec::with_capacity(pieces),
            current: (usize::MAX, 0),
            failed: Vec::new(),
            next_place: 0,
        }
    }

    /// Room left for small replies, in bytes.
    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.area.len() - self.used
    }

    /// Has `write` fill the room that is left with (a part of) the reply to the connection in
    /// `slot`.
    #[inline(always)] // a read's closure holds a dozen places, which a call would have to gather
    pub(crate) fn write<T>(&mut self, slot: usize, write: impl FnOnce(&mut Sink<'_>) -> T) -> T {
        let start = self.used;
        let mut sink = Sink::new(self.area.get_mut(start..).unwrap_or_default());
        let result = write(&mut sink);
        assert!(!sink.overflowed(), "a reply is longer than its bound");
        let end = start + sink.len();
        self.used = end;
        self.count(slot, end - start);
        if end > start {
            self.note(slot, start, end);
        }
        result
    }

    /// Has `fill` write a whole reply to the connection in `slot` to the front of the room that is
    /// left, and tell its length. `None` leaves everything as it was.
    #[inline(always)]
    pub(crate) fn fill<T>(
        &mut self,
        slot: usize,
        fill: impl FnOnce(&mut [u8]) -> Option<(usize, T)>,
    ) -> Option<T> {
        let start = self.used;
        let (bytes, result) = fill(self.area.get_mut(start..)?)?;
        let end = start + bytes;
        assert!(end <= self.area.len(), "a reply is longer than its bound");
        self.used = end;
        self.count(slot, bytes);
        self.note(slot, start, end);
        Some(result)
    }

    /// Adds a value that lies in the store.
    pub(crate) fn lease(&mut self, slot: usize, lease: ValueLease) {
        self.count(slot, lease.value_bytes());
        let content = Content::Lease(lease);
        self.pieces.push(Piece { slot, content });
    }

    /// Leaves a place for an answer that comes later; its number.
    pub(crate) fn await_answer(
        &mut self,
        slot: usize,
        what: Awaited,
        form: Option<OwnedForm>,
    ) -> u32 {
        self.count(slot, AWAITED_BYTES);
        let number = self.next_place;
        self.next_place = number.wrapping_add(1);
        let content = Content::Awaited(Place { number, what, form });
        self.pieces.push(Piece { slot, content });
        number
    }

    /// Takes the place of this number out again, among what is gathered.
    pub(crate) fn cancel(&mut self, number: u32) {
        let mut pieces = self.pieces.iter_mut().rev();
        let place = pieces.find(|piece| match &piece.content {
            Content::Awaited(place) => place.number == number,
            _ => false,
        });
        if let Some(piece) = place {
            piece.content.take();
        }
    }

    /// Whether a place was left for the connection in `slot` among what is gathered.
    pub(crate) fn awaits(&self, slot: usize) -> bool {
        let mut pieces = self.pieces.iter().rev();
        let is_awaited = |piece: &Piece| matches!(piece.content, Content::Awaited(..));
        pieces.any(|piece| piece.slot == slot && is_awaited(piece))
    }

    /// Answers a request of this form with an error; of a part it is kept for the last line.
    #[cold]
    pub(crate) fn refuse(&mut self, slot: usize, form: &Form<'_>, refusal: Refusal) {
        match Awaited::of(form) {
            Awaited::Part => self.failed.push((slot, refusal)),
            _ => self.write(slot, |sink| encode::refuse(sink, form, refusal)),
        }
    }

    /// The parts that failed since this was last called, and whose they were.
    pub(crate) fn take_failed(&mut self) -> impl Iterator<Item = (usize, Refusal)> {
        self.failed.drain(..)
    }

    /// Whether there are such parts.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Adds the line that ends a request, when parts of it are awaited.
    pub(crate) fn end_parts(&mut self, slot: usize, line: Line, failed: bool) {
        self.count(slot, line.len());
        let content = Content::Final { line, failed };
        self.pieces.push(Piece { slot, content });
    }

    /// Has nothing more answered to the connection in `slot` in this turn: its requests are put
    /// off from here on.
    pub(crate) fn close_off(&mut self, slot: usize) {
        self.current = (slot, CLOSED_OFF);
    }

    /// Whether that was done.
    pub(crate) fn is_closed_off(&self, slot: usize) -> bool {
        self.bytes_for(slot) >= CLOSED_OFF
    }

    /// Doubles the room for small replies.
    #[cold]
    pub(crate) fn grow(&mut self) {
        let mut area = std::mem::take(&mut self.area).into_vec();
        area.resize(2 * area.len(), 0);
        self.area = area.into_boxed_slice();
    }

    /// Adds bytes in memory of their own.
    pub(crate) fn owned(&mut self, slot: usize, bytes: Vec<u8>) {
        self.count(slot, bytes.len());
        let content = Content::Owned(bytes.into_boxed_slice());
        self.pieces.push(Piece { slot, content });
    }

    /// Bytes that the connection in `slot` got in this turn, if it was the last to be answered.
    #[inline]
    pub(crate) fn bytes_for(&self, slot: usize) -> usize {
        let (current, bytes) = self.current;
        if current == slot { bytes } else { 0 }
    }

    /// Forgets who was answered last: a new turn begins.
    pub(crate) fn begin_turn(&mut self) {
        self.current = (usize::MAX, 0);
    }

    /// Everything gathered so far: the area and the pieces. Call [`Replies::clear`] afterwards.
    pub(crate) fn take(&mut self) -> (&[u8], &mut Vec<Piece>) {
        (
            self.area.get(..self.used).unwrap_or_default(),
            &mut self.pieces,
        )
    }

    /// Where it is now, for [`Replies::roll_back`] in the same turn and before anything is sent.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            used: self.used,
            pieces: self.pieces.len(),
            last_end: self.pieces.last().map_or(0, Piece::end),
            current: self.current,
            failed: self.failed.len(),
        }
    }

    /// Takes back what was answered since `mark`.
    pub(crate) fn roll_back(&mut self, mark: Mark) {
        self.used = mark.used;
        self.pieces.truncate(mark.pieces);
        self.current = mark.current;
        self.failed.truncate(mark.failed);
        if let Some(Piece {
            content: Content::Area { end, .. },
            ..
        }) = self.pieces.last_mut()
        {
            *end = mark.last_end;
        }
    }

    /// Starts over.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.failed.clear();
        self.used = 0;
    }

    #[inline]
    fn count(&mut self, slot: usize, bytes: usize) {
        let before = self.bytes_for(slot);
        self.current = (slot, before + bytes);
    }

    #[inline(always)] // a few instructions; a call would double them
    fn note(&mut self, slot: usize, start: usize, end: usize) {
        if let Some(Piece {
            slot: last_slot,
            content: Content::Area { end: last_end, .. },
        }) = self.pieces.last_mut()
            && *last_slot == slot
            && *last_end == start
        {
            *last_end = end;
            return;
        }
        let content = Content::Area { start, end };
        self.pieces.push(Piece { slot, content });
    }
}

/// The next of a delegated batch's answers, if it is one to the requests `numbers`.
#[inline]
pub(crate) fn next_of<'p>(
    answers: &mut slice::IterMut<'p, Piece>,
    numbers: Range<usize>,
) -> Option<&'p mut Piece> {
    match answers.as_slice().first() {
        Some(answer) if numbers.contains(&answer.slot) => answers.next(),
        _ => None,
    }
}

/// Room for the answers of a run of so many requests.
pub(crate) const fn room_for(requests: usize) -> usize {
    ROOM_BYTES + requests * REPLY_BYTES_MAX
}

/// Room that the reply to one request may need in the turn's memory.
pub(crate) const ROOM_BYTES: usize = REPLY_BYTES_MAX + COPY_BYTES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_connection_become_one_piece() {
        let mut replies = Replies::new();
        replies.write(4, |sink| sink.push(b"one "));
        replies.write(4, |sink| sink.push(b"two"));
        replies.write(9, |_| ());
        replies.write(9, |sink| sink.push(b"three"));
        replies.owned(9, b"four".to_vec());
        replies.write(9, |sink| sink.push(b"five"));
        let (area, pieces) = replies.take();
        assert_eq!(area, b"one twothreefive");
        let shape: Vec<(usize, usize)> = pieces
            .iter()
            .map(|piece| match &piece.content {
                Content::Area { start, end } => (piece.slot, end - start),
                Content::Owned(bytes) => (piece.slot, bytes.len()),
                _ => (piece.slot, 0),
            })
            .collect();
        assert_eq!(shape, [(4, 7), (9, 5), (9, 4), (9, 4)]);
        replies.clear();
        assert_eq!(replies.remaining(), AREA_BYTES);
    }
}
