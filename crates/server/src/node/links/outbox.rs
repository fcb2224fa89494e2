//! Frames for one direction of a link: gathered, numbered, sent, and kept until they are
//! acknowledged.
//!
//! ```text
//!   chunk                     chunk                  chunk
//!  [frame  frame  frame    ] [frame  frame      ]   [frame  part part ...     ]
//!         ^ acknowledged            ^ sent           ^ open: takes more parts
//! ```
//!
//! Consecutive parts of one shape share a frame (coalescing, CC-41). What may be kept is bounded
//! for each class (credits, CC-39): what answers does not wait for room that what asks has used up.
//! Positions count bytes from the beginning of the stream and never go back.
//!
//! Invariants: a frame lies in one chunk; `freed <= sent <= sealed`; frames are numbered without
//! gaps in the order in which they lie.

use std::{collections::VecDeque, io::IoSlice};

use curtail_codec::node::{Class, Part, Shape};

use crate::node::links::chunk_pool::{CHUNK_BYTES, Chunks};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Outbox {
    chunks: VecDeque<Chunk>,
    /// The frames that are sealed and not acknowledged, in order.
    kept: VecDeque<Kept>,
    /// The number of the first of them, or of the next to be sealed.
    first: u64,
    open: Option<Open>,
    /// Where the first byte stands that was not sent on this connection.
    sent: u64,
    /// Where the last sealed frame ends.
    sealed: u64,
    /// Bytes that are not acknowledged, by class.
    used: [usize; 2],
    windows: Windows,
    /// Frames that were begun.
    pub(super) frames_begun: u64,
}

/// Bytes that may be unacknowledged in each class of a connection. One frame always may.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Windows {
    /// Of demands.
    pub(super) demand_bytes_max: usize,
    /// Of answers.
    pub(super) answer_bytes_max: usize,
}

/// Whether a part was taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pushed {
    /// It goes with the next flush.
    Taken,
    /// The class has no credit left.
    Full,
    /// Such a part cannot be written.
    Unfit,
}

/// The peer acknowledges what it was not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NotSent;

#[derive(Debug)]
struct Chunk {
    start: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Kept {
    end: u64,
    bytes: usize,
    class: usize,
}

/// The frame at the end of the last chunk.
#[derive(Clone, Copy, Debug)]
struct Open {
    shape: Shape,
    /// Where in the chunk it begins.
    from: usize,
}

impl Outbox {
    pub(super) fn new(windows: Windows) -> Self {
        Self {
            chunks: VecDeque::new(),
            kept: VecDeque::new(),
            first: 1,
            open: None,
            sent: 0,
            sealed: 0,
            used: [0; 2],
            windows,
            frames_begun: 0,
        }
    }

    /// Appends a part with a payload of `payload_bytes` that `fill` writes. `acknowledged` goes
    /// into the header of the frame before, should this part need another.
    pub(super) fn push(
        &mut self,
        chunks: &mut Chunks,
        (class, part): (Class, &Part<'_>),
        payload_bytes: usize,
        acknowledged: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> Pushed {
        let shape = Shape::of(class, part);
        let bytes = part.bytes_with(payload_bytes);
        let used = self.used_by(class);
        if used > 0 && used.saturating_add(bytes) > self.window(class) {
            return Pushed::Full;
        }
        if !self.joins(&shape, bytes) {
            self.seal(acknowledged);
            self.begin(chunks, shape, bytes);
        }
        let Some(chunk) = self.chunks.back_mut() else {
            return Pushed::Unfit;
        };
        let from = chunk.bytes.len();
        chunk.bytes.resize(from + bytes, 0);
        let room = chunk.bytes.get_mut(from..).unwrap_or_default();
        let Some(payload) = part.lay_out(room, payload_bytes) else {
            chunk.bytes.truncate(from);
            self.drop_empty();
            return Pushed::Unfit;
        };
        fill(payload);
        self.use_up(class, bytes);
        Pushed::Taken
    }

    /// Ends the open frame and gives it its number; whether there was one.
    pub(super) fn seal(&mut self, acknowledged: u64) -> bool {
        let number = self.next_number();
        let (Some(open), Some(chunk)) = (self.open.take(), self.chunks.back_mut()) else {
            return false;
        };
        let end = chunk.start + chunk.bytes.len() as u64;
        let frame = chunk.bytes.get_mut(open.from..).unwrap_or_default();
        let bytes = frame.len();
        // It has a header's room and less than 4 GiB, so it can be sealed.
        let _ = open.shape.seal(frame, number, acknowledged);
        self.sealed = end;
        self.kept.push_back(Kept {
            end,
            bytes,
            class: index(open.shape.class()),
        });
        true
    }

    /// Whether there is something sealed that was not sent.
    pub(super) fn is_unsent(&self) -> bool {
        self.sent < self.sealed
    }

    /// Whether there is anything to seal or to send.
    pub(super) fn has_news(&self) -> bool {
        self.open.is_some() || self.is_unsent()
    }

    /// The pieces to be sent next, `bytes_max` bytes and as many as `slices` has room for; how many
    /// pieces and bytes those are.
    pub(super) fn gather<'a>(
        &'a self,
        slices: &mut [IoSlice<'a>],
        bytes_max: usize,
    ) -> (usize, usize) {
        let to = self.sealed.min(self.sent.saturating_add(bytes_max as u64));
        let output = self.chunks.iter();
        let output = output.filter_map(|chunk| chunk.between(self.sent, to));
        let (mut count, mut bytes) = (0, 0);
        for (slice, piece) in slices.iter_mut().zip(output) {
            *slice = IoSlice::new(piece);
            count += 1;
            bytes += piece.len();
        }
        (count, bytes)
    }

    /// So many bytes of what was gathered have been sent.
    pub(super) fn note_sent(&mut self, bytes: usize) {
        self.sent = self.sealed.min(self.sent + bytes as u64);
    }

    /// The peer has every frame up to `number`: they need not be kept any more.
    pub(super) fn acknowledge(&mut self, chunks: &mut Chunks, number: u64) -> Result<(), NotSent> {
        let mut freed = None;
        while self.first <= number {
            let kept = self.kept.front().filter(|kept| kept.end <= self.sent);
            let Some(kept) = kept else {
                return Err(NotSent);
            };
            freed = Some(kept.end);
            if let Some(used) = self.used.get_mut(kept.class) {
                *used = used.saturating_sub(kept.bytes);
            }
            self.kept.pop_front();
            self.first += 1;
        }
        if let Some(freed) = freed {
            self.free(chunks, freed);
        }
        Ok(())
    }

    /// Another connection begins, and the peer has every frame up to `number`: what follows is to
    /// be sent (again).
    pub(super) fn rewind(&mut self, chunks: &mut Chunks, number: u64) -> Result<(), NotSent> {
        self.acknowledge(chunks, number)?;
        let first = self.kept.front();
        self.sent = first.map_or(self.sealed, |kept| kept.end - kept.bytes as u64);
        Ok(())
    }

    /// Forgets everything; whether there was anything. Numbers go on.
    pub(super) fn clear(&mut self, chunks: &mut Chunks) -> bool {
        let had_any = self.open.take().is_some() || !self.kept.is_empty();
        self.first = self.next_number();
        self.kept.clear();
        for chunk in self.chunks.drain(..) {
            self.sealed = self.sealed.max(chunk.start + chunk.bytes.len() as u64);
            chunks.give(chunk.bytes);
        }
        self.sent = self.sealed;
        self.used = [0; 2];
        had_any
    }

    /// Bytes of a class that are not acknowledged.
    pub(super) fn used_by(&self, class: Class) -> usize {
        self.used.get(index(class)).copied().unwrap_or(0)
    }

    /// Bytes of memory that it holds.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes.capacity()).sum()
    }

    /// Where sending has come to.
    #[cfg(test)]
    pub(super) fn position(&self) -> u64 {
        self.sent
    }

    /// Has sending go on elsewhere, as a fault would.
    #[cfg(test)]
    pub(super) fn set_position(&mut self, sent: u64) {
        self.sent = sent;
    }

    /// The number of the first frame that is not acknowledged.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    fn window(&self, class: Class) -> usize {
        match class.is_answer() {
            true => self.windows.answer_bytes_max,
            false => self.windows.demand_bytes_max,
        }
    }

    fn next_number(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    fn use_up(&mut self, class: Class, bytes: usize) {
        if let Some(used) = self.used.get_mut(index(class)) {
            *used += bytes;
        }
    }

    /// Whether a part of `bytes` can go into the open frame.
    fn joins(&self, shape: &Shape, bytes: usize) -> bool {
        let fits = |chunk: &Chunk| chunk.bytes.len() + bytes <= chunk.bytes.capacity();
        let open = self
            .open
            .filter(|open| open.shape == *shape && shape.takes_more());
        open.is_some() && self.chunks.back().is_some_and(fits)
    }

    /// Begins a frame in a chunk that has room for it and a part of `bytes`.
    fn begin(&mut self, chunks: &mut Chunks, shape: Shape, bytes: usize) {
        let bytes_before = shape.bytes();
        let needed = bytes_before + bytes;
        let fits = |chunk: &Chunk| chunk.bytes.len() + needed <= chunk.bytes.capacity();
        if !self.chunks.back().is_some_and(fits) {
            self.chunks.push_back(Chunk {
                start: self.sealed,
                bytes: chunks.take(needed),
            });
        }
        if let Some(chunk) = self.chunks.back_mut() {
            let from = chunk.bytes.len();
            chunk.bytes.resize(from + bytes_before, 0);
            let room = chunk.bytes.get_mut(from..).unwrap_or_default();
            // The room was just made.
            let _ = shape.begin(room);
            self.open = Some(Open { shape, from });
            self.frames_begun += 1;
            self.use_up(shape.class(), bytes_before);
        }
    }

    /// Takes the open frame back if it has no part.
    fn drop_empty(&mut self) {
        let (Some(open), Some(chunk)) = (self.open, self.chunks.back_mut()) else {
            return;
        };
        let bytes = open.shape.bytes();
        if chunk.bytes.len() == open.from + bytes {
            chunk.bytes.truncate(open.from);
            self.open = None;
            if let Some(used) = self.used.get_mut(index(open.shape.class())) {
                *used = used.saturating_sub(bytes);
            }
        }
    }

    /// Gives chunks back of which nothing is needed behind `freed`.
    fn free(&mut self, chunks: &mut Chunks, freed: u64) {
        while let Some(chunk) = self.chunks.front() {
            let end = chunk.start + chunk.bytes.len() as u64;
            let is_open = self.open.is_some() && self.chunks.len() == 1;
            if end > freed || is_open {
                return;
            }
            if let Some(chunk) = self.chunks.pop_front() {
                chunks.give(chunk.bytes);
            }
        }
    }
}

impl Chunk {
    /// What it has of the bytes from `from` to `to`.
    fn between(&self, from: u64, to: u64) -> Option<&[u8]> {
        let place = |position: u64| {
            let within = position.saturating_sub(self.start);
            self.bytes
                .len()
                .min(usize::try_from(within).unwrap_or(usize::MAX))
        };
        let bytes = self.bytes.get(place(from)..place(to))?;
        (!bytes.is_empty()).then_some(bytes)
    }
}

const fn index(class: Class) -> usize {
    class.is_answer() as usize
}

const _: () = assert!(CHUNK_BYTES > 1024);
