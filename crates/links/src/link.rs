//! One link of a worker: a session and its current connection.
//!
//! What arrives is received into memory that all links of the worker share, and handed on from
//! there; only the beginning of a frame that is not complete is kept.

use std::io::IoSlice;

use curtail_codec::node::{Body, DecodedFrame, Frame, FrameHeader, LinkControl};
use curtail_runtime::{Readiness, Received, Sent};
use curtail_types::{Instant, ViewNumber};

use crate::{
    Endpoint, LinkCounts,
    chunk_pool::ChunkPool,
    session::{FrameReceipt, LinkSession, PeerResume, Resumed},
    transport::Transport,
};

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) endpoint: Endpoint,
    /// Whether it carries the large items.
    pub(crate) large: bool,
    pub(crate) session: LinkSession,
    /// Which connection of the link this is, as the connector counts.
    pub(crate) attempt: u64,
    /// The version that the peer spoke last; 0 before its first connection.
    pub(crate) version: u8,
    stream: Option<Transport>,
    /// The longest frame that is taken here.
    frame_bytes_max: usize,
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// A frame about the connection itself, as far as it was not sent.
    control: Vec<u8>,
    readable: bool,
    writable: bool,
    /// The peer will send no more: what follows is received until the end is seen.
    ending: bool,
    /// Whether it is queued to receive, or to send.
    pub(crate) in_line: bool,
    pub(crate) is_dirty: bool,
    /// When something was received last, on any connection, and sent; 0 for never.
    pub(crate) heard: Instant,
    spoke: Instant,
    /// From when on silence counts: the first look at this connection, which comes after its
    /// making.
    watched_since: Option<Instant>,
}

/// What happened while receiving, beside the frames.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Happened {
    /// The session runs now.
    pub(crate) up: bool,
    /// What was outstanding is lost.
    pub(crate) reset: bool,
    /// How much arrived.
    pub(crate) bytes: usize,
}

/// The connection is of no use any more.
#[derive(Debug)]
pub(crate) struct Broken;

/// Calls to receive in one turn, each of [`AREA_BYTES`] at most.
const RECEIVES_MAX: usize = 4;

/// Bytes of the memory to receive into.
pub(crate) const AREA_BYTES: usize = 64 << 10;

/// Bytes sent in one call, so that a turn is bounded.
const SEND_BYTES_MAX: usize = 256 << 10;

/// Pieces sent in one call.
const SLICES_MAX: usize = 16;

impl PeerLink {
    pub(crate) fn new(endpoint: Endpoint, large: bool, session: LinkSession, max: usize) -> Self {
        Self {
            endpoint,
            large,
            session,
            attempt: 0,
            version: 0,
            stream: None,
            frame_bytes_max: max,
            partial: Vec::new(),
            control: Vec::with_capacity(LinkControl::BYTES_MAX),
            readable: false,
            writable: false,
            ending: false,
            in_line: false,
            is_dirty: false,
            heard: Instant { ns: 0 },
            spoke: Instant { ns: 0 },
            watched_since: None,
        }
    }

    /// Goes on with another connection; the one before has been ended.
    pub(crate) fn connect(&mut self, stream: Transport, (attempt, version): (u64, u8)) {
        self.stream = Some(stream);
        (self.attempt, self.version) = (attempt, version);
        let resume = self.session.resume(self.frame_bytes_max);
        self.control(resume);
        (self.readable, self.writable) = (true, true);
        self.ending = false;
        self.watched_since = None;
    }

    /// Ends the connection; whether there was one.
    pub(crate) fn disconnect(&mut self, chunks: &mut ChunkPool) -> bool {
        self.session.disconnect();
        self.control.clear();
        chunks.give(std::mem::take(&mut self.partial));
        self.stream.take().is_some()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    pub(crate) fn note_readiness(&mut self, readiness: Readiness) {
        self.readable |= readiness.read;
        self.writable |= readiness.write;
        self.ending |= readiness.closed;
    }

    /// Whether receiving may bring something.
    pub(crate) fn wants_to_receive(&self) -> bool {
        self.readable && self.stream.is_some()
    }

    /// Whether sending may move something.
    pub(crate) fn wants_to_send(&self) -> bool {
        let has_news = self.session.is_running()
            && (self.session.send_queue.has_news() || self.session.owes());
        let wants =
            |stream: &Transport| has_news || !self.control.is_empty() || stream.holds_back();
        self.writable && self.stream.as_ref().is_some_and(wants)
    }

    /// Receives a bounded number of bytes and hands every complete frame to `each`.
    pub(crate) fn receive(
        &mut self,
        (area, chunks): (&mut [u8], &mut ChunkPool),
        (now, counts): (Instant, &mut LinkCounts),
        each: &mut impl FnMut(Endpoint, &Frame<'_>),
    ) -> (Result<(), Broken>, Happened) {
        let mut happened = Happened::default();
        for _ in 0..RECEIVES_MAX {
            let received = self.stream.as_mut().map(|stream| stream.receive(area));
            let bytes = match received {
                Some(Received::Bytes(bytes)) => bytes,
                Some(Received::Nothing) => {
                    self.readable = false;
                    return (Ok(()), happened);
                }
                Some(Received::End) | None => return (Err(Broken), happened),
            };
            self.heard = now;
            happened.bytes += bytes;
            counts.receives += 1;
            let arrived = area.get(..bytes).unwrap_or_default();
            if self.take_in(arrived, chunks, &mut happened, each).is_err() {
                return (Err(Broken), happened);
            }
            if bytes < area.len() && !self.ending {
                self.readable = false;
                return (Ok(()), happened);
            }
        }
        (Ok(()), happened)
    }

    /// Hands on what is complete and keeps the rest.
    fn take_in(
        &mut self,
        arrived: &[u8],
        chunks: &mut ChunkPool,
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
        chunks: &mut ChunkPool,
        happened: &mut Happened,
        each: &mut impl FnMut(Endpoint, &Frame<'_>),
    ) -> Result<usize, Broken> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            match Frame::decode(rest, self.frame_bytes_max) {
                DecodedFrame::Complete(frame) => {
                    self.take_frame(&frame, chunks, happened, each)?;
                    used += frame.header.bytes;
                }
                DecodedFrame::Incomplete(_) => return Ok(used),
                DecodedFrame::Malformed(_) => return Err(Broken),
            }
        }
    }

    fn take_frame(
        &mut self,
        frame: &Frame<'_>,
        chunks: &mut ChunkPool,
        happened: &mut Happened,
        each: &mut impl FnMut(Endpoint, &Frame<'_>),
    ) -> Result<(), Broken> {
        let FrameHeader {
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
            if self.session.is_running() {
                return Err(Broken);
            }
            let resumed = self.session.resumed(chunks, &peer).map_err(|_| Broken)?;
            happened.up = true;
            happened.reset |= resumed == Resumed::Reset;
            return Ok(());
        }
        if !self.session.is_running() {
            return Err(Broken);
        }
        let send_queue = &mut self.session.send_queue;
        send_queue
            .acknowledge(chunks, acknowledged)
            .map_err(|_| Broken)?;
        if sequence == 0 {
            if matches!(frame.body, Body::Heartbeat { .. }) {
                each(self.endpoint, frame);
            }
            return Ok(());
        }
        match self.session.take(sequence, bytes) {
            FrameReceipt::New => each(self.endpoint, frame),
            FrameReceipt::Again => {}
            FrameReceipt::Gap => return Err(Broken),
        }
        Ok(())
    }

    /// Sends what there is, with one call. While the kernel takes nothing the open frame goes on
    /// taking parts.
    pub(crate) fn send(&mut self, now: Instant, counts: &mut LinkCounts) -> Result<(), Broken> {
        if !self.writable {
            return Ok(());
        }
        if let Some(stream) = self.stream.as_mut() {
            if !stream.push() {
                return Err(Broken);
            }
            if stream.holds_back() {
                self.writable = false;
                return Ok(());
            }
        }
        if self.session.is_running() {
            self.session.seal();
            if self.session.owes()
                && !self.session.send_queue.is_unsent()
                && self.control.is_empty()
            {
                self.control(LinkControl::Credit);
            }
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut offered) = (0, self.control.len());
        if let Some(first) = slices.first_mut().filter(|_| offered > 0) {
            *first = IoSlice::new(&self.control);
            count = 1;
        }
        if self.session.is_running() {
            let free = slices.get_mut(count..).unwrap_or_default();
            let (pieces, bytes) = self.session.send_queue.gather(free, SEND_BYTES_MAX);
            count += pieces;
            offered += bytes;
        }
        if offered == 0 {
            return Ok(());
        }
        let pieces = slices.get(..count).unwrap_or_default();
        let sent = self.stream.as_mut().map(|stream| match pieces {
            [one] => stream.send(one),
            many => stream.send_many(many),
        });
        let Some(Sent::Bytes(taken)) = sent else {
            return Err(Broken);
        };
        self.spoke = now;
        counts.sends += 1;
        let of_control = taken.min(self.control.len());
        self.control.drain(..of_control);
        self.session.send_queue.note_sent(taken - of_control);
        let holds_back = self.stream.as_ref().is_some_and(Transport::holds_back);
        self.writable = taken == offered && !holds_back;
        Ok(())
    }

    /// Whether nothing was received on this connection for `limit_ns`, though this side has looked.
    pub(crate) fn is_silent(&mut self, now: Instant, limit_ns: u64) -> bool {
        let since = *self.watched_since.get_or_insert(now);
        let since_ns = since.ns.max(self.heard.ns);
        // What has arrived and was not received yet is no silence.
        !self.readable && now.ns >= since_ns + limit_ns
    }

    /// When the next heartbeat is due if one goes after `pause_ns` without anything else.
    pub(crate) fn beat_due_ns(&self, pause_ns: u64) -> u64 {
        let since = self.watched_since.map_or(0, |since| since.ns);
        since.max(self.spoke.ns) + pause_ns
    }

    /// Sends a heartbeat, unless something else is on its way.
    pub(crate) fn beat(&mut self, view: ViewNumber) {
        if self.session.is_running()
            && !self.session.send_queue.has_news()
            && self.control.is_empty()
        {
            self.control(LinkControl::Heartbeat { view, load: 0 });
        }
    }

    /// Has a frame about the connection sent before the next numbered one. What it acknowledges is
    /// what was received until now.
    fn control(&mut self, control: LinkControl) {
        self.control.resize(LinkControl::BYTES_MAX, 0);
        let bytes = control.encode(self.large, self.session.received(), &mut self.control);
        self.control.truncate(bytes.unwrap_or_default());
        if bytes.is_some() {
            self.session.note_told();
        }
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::NodeId;

    use super::{
        super::{chunk_pool::CHUNK_BYTES, send_queue::WindowLimits},
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
        let windows = WindowLimits {
            demand_bytes_max: 1,
            answer_bytes_max: 1,
        };
        let mut link = PeerLink::new(endpoint, false, LinkSession::new(1, windows), CHUNK_BYTES);
        let (mut chunks, mut happened) = (ChunkPool::default(), Happened::default());
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
