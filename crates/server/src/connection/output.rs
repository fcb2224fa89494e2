//! Replies that the kernel has not taken, and sending in general.
//!
//! A client that does not read makes its own queue grow, never the server's: while a connection has
//! queued replies nothing is read from it, so the queue holds at most what one turn answered.

use std::{collections::VecDeque, io::IoSlice, ops::Range, slice};

use curtail_codec::memcached::encode::Refusal;
use curtail_runtime::{Sent, Stream};
use curtail_store::ValueLease;

use crate::{
    completion::{Answer, Awaited, Place},
    connection::buffer_pool::{Buffer, BufferPool},
    limits::SEND_BYTES_MAX,
    request::reply_buffer::{Content, Line, Piece, next_of},
};

/// What a connection still has to send, in order.
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    pieces: VecDeque<OutputPiece>,
    /// How many of them other workers still owe.
    awaited: usize,
    /// What is to be told in the last line of a request that is answered in parts, when that line
    /// comes: a part has failed.
    failure: Option<Line>,
}

#[derive(Debug)]
enum OutputPiece {
    Held(Buffer),
    Lease {
        lease: ValueLease,
        from: usize,
    },
    /// What is answered later.
    Awaited(Place),
    /// The line that ends a request of several parts.
    Final {
        line: Buffer,
        /// It says that a part has failed.
        failed: bool,
    },
}

/// How far sending came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// Everything offered was taken.
    All,
    /// The kernel's buffer is full; the poller will tell.
    Full,
    /// There is more, and the kernel would take it: continue in the next turn.
    More,
    /// The connection broke.
    Broken,
}

/// Answers that arrive later share a buffer up to so many bytes.
const JOINED_BYTES_MAX: usize = 256 << 10;

/// Pieces of memory in one call.
const SLICES_MAX: usize = 64;

/// The slices of one call.
struct Gather<'a> {
    slices: [IoSlice<'a>; SLICES_MAX],
    count: usize,
    bytes: usize,
}

impl<'a> Gather<'a> {
    fn new() -> Self {
        Self {
            slices: [IoSlice::new(&[]); SLICES_MAX],
            count: 0,
            bytes: 0,
        }
    }

    /// Adds as much of `bytes` as may go into this call; false when it is full.
    fn add(&mut self, bytes: &'a [u8]) -> bool {
        let take = bytes.len().min(SEND_BYTES_MAX - self.bytes);
        if let Some(slice) = self.slices.get_mut(self.count)
            && let Some(part) = bytes.get(..take)
        {
            *slice = IoSlice::new(part);
            self.count += 1;
            self.bytes += take;
            return take == bytes.len();
        }
        false
    }

    fn add_lease(&mut self, lease: &'a ValueLease, mut from: usize) -> bool {
        loop {
            let part = lease.part(from);
            if part.is_empty() {
                return true;
            }
            if !self.add(part) {
                return false;
            }
            from += part.len();
        }
    }

    fn send(&self, stream: &mut Stream) -> Sent {
        match self.slices.get(..self.count) {
            Some([one]) => stream.send(one),
            Some(many) => stream.send_many(many),
            None => Sent::Bytes(0),
        }
    }
}

/// Sends `pieces` of the turn whose small replies are in `area`, with one call. Returns how many
/// bytes were taken and how far that is.
pub(crate) fn send_pieces(stream: &mut Stream, area: &[u8], pieces: &[Piece]) -> (usize, Progress) {
    if let [
        Piece {
            content: Content::Area { start, end },
            ..
        },
    ] = pieces
    {
        return send_one(stream, area.get(*start..*end).unwrap_or_default());
    }
    let mut gather = Gather::new();
    let complete = pieces.iter().all(|piece| match &piece.content {
        Content::Area { start, end } => gather.add(area.get(*start..*end).unwrap_or_default()),
        Content::Lease(lease) => gather.add_lease(lease, 0),
        Content::Owned(bytes) => gather.add(bytes),
        Content::Final { line, .. } => gather.add(line),
        Content::Awaited(..) => false,
    });
    judge(gather.send(stream), gather.bytes, complete)
}

/// What most replies are: bytes side by side. To gather them costs more than to decode a request.
fn send_one(stream: &mut Stream, bytes: &[u8]) -> (usize, Progress) {
    let part = bytes.get(..SEND_BYTES_MAX).unwrap_or(bytes);
    judge(stream.send(part), part.len(), part.len() == bytes.len())
}

fn judge(sent: Sent, offered: usize, complete: bool) -> (usize, Progress) {
    match sent {
        Sent::Broken => (0, Progress::Broken),
        Sent::Bytes(taken) if taken < offered => (taken, Progress::Full),
        Sent::Bytes(taken) if complete => (taken, Progress::All),
        Sent::Bytes(taken) => (taken, Progress::More),
    }
}

impl OutputQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether another worker still owes an answer; nothing is sent before it is there.
    pub(crate) fn is_awaiting(&self) -> bool {
        self.awaited > 0
    }

    /// Bytes of buffers that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffers().1
    }

    /// How many buffers it holds, and their bytes.
    pub(crate) fn buffers(&self) -> (usize, usize) {
        let held = |piece: &OutputPiece| match piece {
            OutputPiece::Held(buffer) | OutputPiece::Final { line: buffer, .. } => {
                Some(buffer.capacity())
            }
            OutputPiece::Lease { .. } | OutputPiece::Awaited(..) => None,
        };
        let held = self.pieces.iter().filter_map(held);
        held.fold((0, 0), |(count, bytes), more| (count + 1, bytes + more))
    }

    /// The longest value that is to be sent from where it lies, in bytes.
    pub(crate) fn value_bytes_max(&self) -> usize {
        let value = |piece: &OutputPiece| match piece {
            OutputPiece::Lease { lease, .. } => lease.value_bytes(),
            _ => 0,
        };
        self.pieces.iter().map(value).max().unwrap_or(0)
    }

    /// Bytes of store memory that cannot be reused while this waits.
    pub(crate) fn leased_bytes(&self) -> usize {
        let leased = |piece: &OutputPiece| match piece {
            OutputPiece::Lease { lease, .. } => lease.pinned_bytes(),
            _ => 0,
        };
        self.pieces.iter().map(leased).sum()
    }

    /// Takes what is left of `pieces` when their first `skip` bytes are gone.
    pub(crate) fn keep(
        &mut self,
        pool: &mut BufferPool,
        area: &[u8],
        pieces: &mut [Piece],
        mut skip: usize,
    ) {
        for piece in pieces {
            let bytes = match &piece.content {
                Content::Area { start, end } => end - start,
                Content::Lease(lease) => lease.value_bytes(),
                Content::Owned(bytes) => bytes.len(),
                Content::Final { line, .. } => line.len(),
                // Nothing behind what is awaited was sent, so nothing is left to skip.
                Content::Awaited(..) => usize::MAX,
            };
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let from = std::mem::take(&mut skip);
            self.add(pool, area, &mut piece.content, from, true);
        }
    }

    /// Fills places with the answers of another worker, which stand in `area` and are taken from
    /// the next of `answers`: those of request `first` and its followers, one for each of `places`.
    pub(crate) fn fill(
        &mut self,
        pool: &mut BufferPool,
        area: &[u8],
        first: usize,
        mut places: impl Iterator<Item = (u32, Option<Refusal>)>,
        answers: &mut slice::IterMut<'_, Piece>,
    ) {
        let (mut number, mut next) = (first, places.next());
        let mut joins = false;
        for behind in (0..self.pieces.len()).rev() {
            let Some(piece) = self.pieces.pop_front() else {
                break;
            };
            let (place, refusal) = match (&piece, next) {
                (OutputPiece::Awaited(place), Some((it, refusal))) if place.number == it => {
                    (place, refusal)
                }
                _ => {
                    self.pieces.push_back(piece);
                    joins = true;
                    continue;
                }
            };
            self.awaited -= 1;
            let fails = refusal.filter(|_| place.what == Awaited::Part);
            if let Some(refusal) = fails {
                self.fail(pool, 0..behind, refusal.reply());
            }
            while let Some(answer) = next_of(answers, number..number + 1) {
                if fails.is_none() {
                    // The first one must not be joined to the old end of the queue.
                    self.add(pool, area, &mut answer.content, 0, joins);
                    joins = true;
                }
            }
            (number, next) = (number + 1, places.next());
        }
    }

    /// Fills the place of this number, if it still waits.
    pub(crate) fn complete(&mut self, pool: &mut BufferPool, number: u32, answer: Answer<'_>) {
        let is_place = |piece: &OutputPiece| match piece {
            OutputPiece::Awaited(place) if place.number == number => Some(*place),
            _ => None,
        };
        let mut places = self.pieces.iter().map(is_place).enumerate();
        let Some((at, place)) = places.find_map(|(at, place)| Some((at, place?))) else {
            return;
        };
        self.awaited -= 1;
        let spelt = match place.spell(answer) {
            Ok(spelt) => spelt,
            Err(line) => {
                self.pieces.remove(at);
                return self.fail(pool, at..self.pieces.len(), line);
            }
        };
        // Joined to what is before it, if that is held and both are short; else in a piece of its
        // own: a buffer that grows is copied, so many large values would be copied again and again.
        let before = at.checked_sub(1);
        let held = before.and_then(|before| self.pieces.get_mut(before));
        let bytes: usize = spelt.pieces().iter().map(|piece| piece.len()).sum();
        let held = held.filter(|held| held.bytes_left() + bytes <= JOINED_BYTES_MAX);
        if let Some(OutputPiece::Held(buffer)) = held {
            for piece in spelt.pieces() {
                pool.append(buffer, piece);
            }
            self.pieces.remove(at);
        } else if spelt.is_empty() {
            self.pieces.remove(at);
        } else if let Some(place) = self.pieces.get_mut(at) {
            let [head, value, tail] = spelt.pieces();
            let mut buffer = pool.hold(head);
            pool.append(&mut buffer, value);
            pool.append(&mut buffer, tail);
            *place = OutputPiece::Held(buffer);
        }
    }

    fn add(
        &mut self,
        pool: &mut BufferPool,
        area: &[u8],
        content: &mut Content,
        from: usize,
        joins: bool,
    ) {
        match content {
            Content::Area { start, end } => {
                let bytes = area.get(*start + from..*end).unwrap_or_default();
                self.hold(pool, bytes, joins);
            }
            Content::Lease(_) => {
                if let Content::Lease(lease) = content.take() {
                    self.pieces.push_back(OutputPiece::Lease { lease, from });
                }
            }
            Content::Owned(bytes) => {
                self.hold(pool, bytes.get(from..).unwrap_or_default(), joins);
            }
            Content::Awaited(place) => {
                self.awaited += 1;
                self.pieces.push_back(OutputPiece::Awaited(*place));
            }
            Content::Final { line, failed } => {
                let line = pool.hold(line.get(from..).unwrap_or_default());
                let failed = *failed;
                self.pieces.push_back(OutputPiece::Final { line, failed });
            }
        }
    }

    /// A part of a request has failed with `line`: this becomes the request's last line, which is
    /// the next one among the pieces `behind`. If that is not there yet, what failed is kept for
    /// it; of several failures the first is told.
    #[cold]
    fn fail(&mut self, pool: &mut BufferPool, behind: Range<usize>, line: &[u8]) {
        for piece in self.pieces.range_mut(behind) {
            if let OutputPiece::Final { line: last, failed } = piece {
                if !std::mem::replace(failed, true) {
                    let told = pool.hold(line);
                    pool.release(std::mem::replace(last, told));
                }
                return;
            }
        }
        self.failure.get_or_insert_with(|| line.to_vec().into());
    }

    /// The same for a part that failed before anything was awaited for it.
    #[cold]
    pub(crate) fn fail_ahead(&mut self, line: &'static [u8]) {
        self.failure.get_or_insert(line.into());
    }

    /// What the last line of the request has to tell that ends now.
    pub(crate) fn take_failure(&mut self) -> Option<Line> {
        self.failure.take()
    }

    /// Adds `bytes` behind everything else.
    pub(crate) fn push(&mut self, pool: &mut BufferPool, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.hold(pool, bytes, true);
        }
    }

    /// Tries to send, with one call. Returns how many bytes were taken and how far that is.
    pub(crate) fn send(&mut self, pool: &mut BufferPool, stream: &mut Stream) -> (usize, Progress) {
        if let (Some(OutputPiece::Held(buffer)), 1) = (self.pieces.front(), self.pieces.len()) {
            let (taken, progress) = send_one(stream, buffer.content());
            self.consume(pool, taken);
            return (taken, progress);
        }
        let mut gather = Gather::new();
        let complete = self.pieces.iter().all(|piece| match piece {
            OutputPiece::Held(buffer) => gather.add(buffer.content()),
            OutputPiece::Lease { lease, from } => gather.add_lease(lease, *from),
            OutputPiece::Final { line, .. } => gather.add(line.content()),
            OutputPiece::Awaited(..) => false,
        });
        let (taken, progress) = judge(gather.send(stream), gather.bytes, complete);
        self.consume(pool, taken);
        (taken, progress)
    }

    /// Gives the buffers back.
    pub(crate) fn discard(&mut self, pool: &mut BufferPool) {
        for piece in self.pieces.drain(..) {
            piece.release(pool);
        }
    }

    fn hold(&mut self, pool: &mut BufferPool, bytes: &[u8], joins: bool) {
        if let Some(OutputPiece::Held(buffer)) = self.pieces.back_mut().filter(|_| joins) {
            pool.append(buffer, bytes);
        } else {
            self.pieces.push_back(OutputPiece::Held(pool.hold(bytes)));
        }
    }

    fn consume(&mut self, pool: &mut BufferPool, mut taken: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            let left = piece.bytes_left();
            if taken < left || matches!(piece, OutputPiece::Awaited(..)) {
                piece.skip(taken);
                return;
            }
            taken -= left;
            if let Some(piece) = self.pieces.pop_front() {
                piece.release(pool);
            }
        }
    }
}

impl OutputPiece {
    fn bytes_left(&self) -> usize {
        match self {
            Self::Held(buffer) | Self::Final { line: buffer, .. } => buffer.content().len(),
            Self::Lease { lease, from } => lease.value_bytes() - from,
            Self::Awaited(..) => 0,
        }
    }

    fn skip(&mut self, bytes: usize) {
        match self {
            Self::Held(buffer) | Self::Final { line: buffer, .. } => buffer.consume(bytes),
            Self::Lease { from, .. } => *from += bytes,
            Self::Awaited(..) => {}
        }
    }

    fn release(self, pool: &mut BufferPool) {
        if let Self::Held(buffer) | Self::Final { line: buffer, .. } = self {
            pool.release(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use curtail_codec::memcached::{Form, WireKey};
    use curtail_store::{Store, StoreConfig};
    use curtail_types::{ItemStatus, Key, Outcome};

    use super::*;
    use crate::owned_reply_form::OwnedForm;

    /// Goal: values of other nodes share a buffer only as long as that is short. They all did: the
    /// buffer of a `get` of 100 values of 1 MB grew value by value, and 5 GB were copied. Method:
    /// answers of 1 KB and of 300 KB.
    #[test]
    fn large_answers_have_buffers_of_their_own() {
        let store = Arc::new(Store::new(StoreConfig::default()).unwrap());
        let mut pool = BufferPool::new(store);
        let key = WireKey::plain(Key::new(b"key").unwrap());
        let form = Form::Value {
            with_cas: false,
            last: false,
        };
        for (value_bytes, buffers) in [(1 << 10, 1), (300 << 10, 4)] {
            let mut output = OutputQueue::default();
            for number in 0..4 {
                let what = Awaited::of(&form);
                let form = Some(OwnedForm::new(&key, &form));
                let place = Place { number, what, form };
                output.pieces.push_back(OutputPiece::Awaited(place));
                output.awaited += 1;
            }
            for number in 0..4 {
                let answer = Answer::Outcome {
                    outcome: Outcome::Found(ItemStatus::default()),
                    key: b"key",
                    value: &vec![b'v'; value_bytes],
                };
                output.complete(&mut pool, number, answer);
            }
            assert_eq!(output.buffers().0, buffers, "{value_bytes}");
            output.discard(&mut pool);
        }
    }
}
