//! One link of a worker: a session, and the connection that it has at the moment.
//!
//! What arrives is received into memory that all links of the worker share, and handed on from
//! there; only the beginning of a frame that is not complete is kept.

use std::io::IoSlice;

use curtail_codec::node::{Body, Control, Decoded, Frame, Header};
use curtail_runtime::{Readiness, Received, Sent};
use curtail_types::{Instant, ViewNumber};

use crate::node::links::{
    Endpoint,
    chunk_pool::Chunks,
    session::{PeerResume, Resumed, Session, Taken},
    transport::Wire,
};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) endpoint: Endpoint,
    /// Whether it carries the large items.
    pub(super) large: bool,
    pub(super) session: Session,
    /// Which connection of the link this is, as the linker counts.
    pub(super) attempt: u64,
    stream: Option<Wire>,
    /// The longest frame that is taken here.
    frame_bytes_max: usize,
    /// The beginning of a frame.
    partial: Vec<u8>,
    control: ControlBytes,
    readable: bool,
    writable: bool,
    /// The peer will send no more: what follows is received until the end is seen.
    ending: bool,
    /// Whether it is in the list of those with something to receive, or to send.
    pub(super) in_line: bool,
    pub(super) is_dirty: bool,
    /// When something was received last, on any connection, and sent; 0 for never.
    pub(super) heard: Instant,
    spoke: Instant,
    /// Calls to send.
    pub(super) sends: u64,
    /// From when on silence counts: the first look at this connection, which comes after its
    /// making.
    watched_since: Option<Instant>,
}

/// A frame about the connection itself, while it is being sent.
#[derive(Debug)]
struct ControlBytes {
    bytes: [u8; Control::BYTES_MAX],
    from: usize,
    to: usize,
}

/// What to say of this node in heartbeats.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Vitals {
    /// The view that is in force.
    pub(crate) view: ViewNumber,
    /// How busy it is, in a unit of the upper layers.
    pub(crate) load: u32,
}

/// How far receiving or sending came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Progress {
    /// The poller will tell when there is more to do.
    Waits,
    /// There is more to do in the next turn.
    More,
    /// The connection is of no use any more.
    Broken,
}

/// What happened while receiving, beside the frames.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Happened {
    /// The session runs now.
    pub(super) up: bool,
    /// What was outstanding is lost.
    pub(super) reset: bool,
    /// How much arrived.
    pub(super) bytes: usize,
    /// With how many calls.
    pub(super) receives: u64,
}

/// Why a connection is of no use.
struct Broken;

/// Calls to receive in one turn, each of [`AREA_BYTES`] at most.
const RECEIVES_MAX: usize = 4;

/// Bytes of the memory to receive into.
pub(super) const AREA_BYTES: usize = 64 << 10;

/// Bytes sent in one call, so that a turn is bounded.
const SEND_BYTES_MAX: usize = 256 << 10;

/// Pieces sent in one call.
const SLICES_MAX: usize = 16;

impl Link {
    pub(super) fn new(endpoint: Endpoint, large: bool, session: Session, max: usize) -> Self {
        Self {
            endpoint,
            large,
            session,
            attempt: 0,
            stream: None,
            frame_bytes_max: max,
            partial: Vec::new(),
            control: ControlBytes::NONE,
            readable: false,
            writable: false,
            ending: false,
            in_line: false,
            is_dirty: false,
            heard: Instant { ns: 0 },
            spoke: Instant { ns: 0 },
            sends: 0,
            watched_since: None,
        }
    }

    /// Goes on with another connection; the one before has been ended.
    pub(super) fn connect(&mut self, stream: Wire, attempt: u64) {
        self.stream = Some(stream);
        self.attempt = attempt;
        let resume = self.session.resume(self.frame_bytes_max);
        self.control(resume);
        (self.readable, self.writable) = (true, true);
        self.ending = false;
        self.watched_since = None;
    }

    /// Ends the connection; whether there was one.
    pub(super) fn disconnect(&mut self, chunks: &mut Chunks) -> bool {
        self.session.disconnect();
        self.control = ControlBytes::NONE;
        chunks.give(std::mem::take(&mut self.partial));
        self.stream.take().is_some()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    pub(super) fn note_readiness(&mut self, readiness: Readiness) {
        self.readable |= readiness.read;
        self.writable |= readiness.write;
        self.ending |= readiness.closed;
    }

    /// Whether receiving may bring something.
    pub(super) fn wants_to_receive(&self) -> bool {
        self.readable && self.stream.is_some()
    }

    /// Whether sending may move something.
    pub(super) fn wants_to_send(&self) -> bool {
        let has_news =
            self.session.is_running() && (self.session.outbox.has_news() || self.session.owes());
        let wants = |stream: &Wire| has_news || !self.control.is_empty() || stream.holds_back();
        self.writable && self.stream.as_ref().is_some_and(wants)
    }

    /// Receives a bounded number of bytes and hands every complete frame to `each`.
    pub(super) fn receive(
        &mut self,
        (area, chunks): (&mut [u8], &mut Chunks),
        now: Instant,
        each: &mut impl FnMut(Endpoint, &Frame<'_>),
    ) -> (Progress, Happened) {
        let mut happened = Happened::default();
        for _ in 0..RECEIVES_MAX {
            let received = self.stream.as_mut().map(|stream| stream.receive(area));
            let bytes = match received {
                Some(Received::Bytes(bytes)) => bytes,
                Some(Received::Nothing) => {
                    self.readable = false;
                    return (Progress::Waits, happened);
                }
                Some(Received::End) | None => return (Progress::Broken, happened),
            };
            self.heard = now;
            happened.bytes += bytes;
            happened.receives += 1;
            let arrived = area.get(..bytes).unwrap_or_default();
            if self.take_in(arrived, chunks, &mut happened, each).is_err() {
                return (Progress::Broken, happened);
            }
            if bytes < area.len() && !self.ending {
                self.readable = false;
                return (Progress::Waits, happened);
            }
        }
        (Progress::More, happened)
    }

    /// Hands on what is complete and keeps the rest.
    fn take_in(
        &mut self,
        arrived: &[u8],
        chunks: &mut Chunks,
        happened: &mut Happened,
        each: &mut impl FnMut(Endpoint, &Frame<'_>),
    ) -> Result<(), Broken> {
        if self.partial.is_empty() {
            let used = self.take_frames(arrived, chunks, happened, each)?;
            let rest = arrived.get(used..).unwrap_or_default();
            if !rest.is_empty() {
                self.partial = chunks.take(rest.len());
                chunks.append(&mut self.partial, rest);
            }
            return Ok(());
        }
        let mut partial = std::mem::take(&mut self.partial);
        chunks.append(&mut partial, arrived);
        let used = self.take_frames(&partial, chunks, happened, each);
        // Whatever came of it: it is given back, in the end with the connection.
        self.partial = partial;
        self.partial.drain(..used?);
        if self.partial.is_empty() {
            chunks.give(std::mem::take(&mut self.partial));
        }
        Ok(())
    }

    /// Hands on the frames that `bytes` begin with; how many bytes those are.
    fn take_frames(
        &mut self,
        bytes: &[u8],
        chunks: &mut Chunks,
        happened: &mut Happened,
        each: &mut impl FnMut(Endpoint, &Frame<'_>),
    ) -> Result<usize, Broken> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            match Frame::decode(rest, self.frame_bytes_max) {
                Decoded::Complete(frame) => {
                    self.take_frame(&frame, chunks, happened, each)?;
                    used += frame.header.bytes;
                }
                Decoded::Incomplete(_) => return Ok(used),
                Decoded::Malformed(_) => return Err(Broken),
            }
        }
    }

    fn take_frame(
        &mut self,
        frame: &Frame<'_>,
        chunks: &mut Chunks,
        happened: &mut Happened,
        each: &mut impl FnMut(Endpoint, &Frame<'_>),
    ) -> Result<(), Broken> {
        let Header {
            bytes,
            sequence,
            acknowledged,
            ..
        } = frame.header;
        if let Body::Resume {
            stream,
            received_stream,
            frame_bytes_max,
        } = frame.body
        {
            let peer = PeerResume {
                acknowledged,
                stream,
                received_stream,
                frame_bytes_max: frame_bytes_max as usize,
            };
            return self.take_resume(&peer, chunks, happened);
        }
        if !self.session.is_running() {
            return Err(Broken);
        }
        let outbox = &mut self.session.outbox;
        outbox
            .acknowledge(chunks, acknowledged)
            .map_err(|_| Broken)?;
        if sequence == 0 {
            if matches!(frame.body, Body::Heartbeat { .. }) {
                each(self.endpoint, frame);
            }
            return Ok(());
        }
        match self.session.take(sequence, bytes) {
            Taken::New => each(self.endpoint, frame),
            Taken::Again => {}
            Taken::Gap => return Err(Broken),
        }
        Ok(())
    }

    fn take_resume(
        &mut self,
        peer: &PeerResume,
        chunks: &mut Chunks,
        happened: &mut Happened,
    ) -> Result<(), Broken> {
        if self.session.is_running() {
            return Err(Broken);
        }
        let resumed = self.session.resumed(chunks, peer).map_err(|_| Broken)?;
        happened.up = true;
        happened.reset |= resumed == Resumed::Reset;
        Ok(())
    }

    /// Sends what there is, with one call. While the kernel takes nothing the open frame goes on
    /// taking parts.
    pub(super) fn send(&mut self, now: Instant) -> Progress {
        if !self.writable {
            return Progress::Waits;
        }
        if let Some(stream) = self.stream.as_mut() {
            if !stream.push() {
                return Progress::Broken;
            }
            if stream.holds_back() {
                self.writable = false;
                return Progress::Waits;
            }
        }
        if self.session.is_running() {
            self.session.seal();
            if self.session.owes() && !self.session.outbox.is_unsent() && self.control.is_empty() {
                self.control(Control::Credit);
            }
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let control = self.control.rest();
        let (mut count, mut offered) = (0, control.len());
        if let Some(first) = slices.first_mut().filter(|_| offered > 0) {
            *first = IoSlice::new(control);
            count = 1;
        }
        if self.session.is_running() {
            let free = slices.get_mut(count..).unwrap_or_default();
            let (pieces, bytes) = self.session.outbox.gather(free, SEND_BYTES_MAX);
            count += pieces;
            offered += bytes;
        }
        if offered == 0 {
            return Progress::Waits;
        }
        let pieces = slices.get(..count).unwrap_or_default();
        let sent = self.stream.as_mut().map(|stream| match pieces {
            [one] => stream.send(one),
            many => stream.send_many(many),
        });
        let Some(Sent::Bytes(taken)) = sent else {
            return Progress::Broken;
        };
        self.spoke = now;
        self.sends += 1;
        let of_control = self.control.consume(taken);
        self.session.outbox.note_sent(taken - of_control);
        let holds_back = self.stream.as_ref().is_some_and(Wire::holds_back);
        self.writable = taken == offered && !holds_back;
        match self.wants_to_send() {
            true => Progress::More,
            false => Progress::Waits,
        }
    }

    /// Whether nothing was heard on this connection for `limit_ns`, though this side has looked.
    pub(super) fn is_silent(&mut self, now: Instant, limit_ns: u64) -> bool {
        let since = *self.watched_since.get_or_insert(now);
        let since_ns = since.ns.max(self.heard.ns);
        // What has arrived and was not received yet is no silence.
        !self.readable && now.ns >= since_ns + limit_ns
    }

    /// When the next heartbeat is due if one goes after `pause_ns` without anything else.
    pub(super) fn beat_due_ns(&self, pause_ns: u64) -> u64 {
        let since = self.watched_since.map_or(0, |since| since.ns);
        since.max(self.spoke.ns) + pause_ns
    }

    /// Says that this node lives, unless something else is on its way.
    pub(super) fn beat(&mut self, vitals: Vitals) {
        if self.session.is_running() && !self.session.outbox.has_news() && self.control.is_empty() {
            let Vitals { view, load } = vitals;
            self.control(Control::Heartbeat { view, load });
        }
    }

    /// Has a frame about the connection sent before the next numbered one. What it acknowledges is
    /// what was received until now.
    fn control(&mut self, control: Control) {
        let room = &mut self.control.bytes;
        if let Some(bytes) = control.encode(self.large, self.session.received(), room) {
            (self.control.from, self.control.to) = (0, bytes);
            self.session.note_told();
        }
    }
}

impl ControlBytes {
    const NONE: Self = Self {
        bytes: [0; Control::BYTES_MAX],
        from: 0,
        to: 0,
    };

    fn is_empty(&self) -> bool {
        self.from == self.to
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.from..self.to).unwrap_or_default()
    }

    /// Takes the first of `taken` bytes for its own; how many.
    fn consume(&mut self, taken: usize) -> usize {
        let own = taken.min(self.to - self.from);
        self.from += own;
        own
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::NodeId;

    use super::{
        super::{chunk_pool::CHUNK_BYTES, outbox::Windows},
        *,
    };

    /// Goal: a peer that sends nonsense costs no memory in the end. Method: the beginning of a
    /// frame, then what cannot follow, again and again.
    #[test]
    fn memory_of_what_was_malformed_is_given_back() {
        let endpoint = Endpoint {
            node: NodeId(1),
            pair: 0,
        };
        let windows = Windows {
            demand_bytes_max: 1,
            answer_bytes_max: 1,
        };
        let mut link = Link::new(endpoint, false, Session::new(1, windows), CHUNK_BYTES);
        let (mut chunks, mut happened) = (Chunks::default(), Happened::default());
        for _ in 0..3 {
            let mut take = |bytes: &[u8]| {
                let each = &mut |_: Endpoint, _: &Frame<'_>| {};
                link.take_in(bytes, &mut chunks, &mut happened, each)
            };
            assert!(take(&[0xff]).is_ok());
            assert!(take(&[0xff; 64]).is_err());
            link.disconnect(&mut chunks);
        }
        assert_eq!(chunks.bytes(), CHUNK_BYTES);
    }
}
