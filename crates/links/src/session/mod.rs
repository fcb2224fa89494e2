//! The session of a link, which outlives its connections: frames exactly once, in order, between
//! two incarnations.
//!
//! ```text
//!            connection                          connection lost
//!   Waiting -----------> Resume sent, Resume awaited ------> Waiting
//!                              | the peer's Resume              ^
//!                              v                                |
//!                           Running: frames are sent and taken -+
//! ```
//!
//! Each direction is a stream with a name. A Resume names the stream that its sender sends and how
//! far it has come with the other: what was not received is sent again, what was seen is dropped. A
//! stream of another name comes from another incarnation of the peer, and what was kept for the old
//! one is dropped ([`Resumed::Reset`]).
//!
//! It holds no socket and no clock, so that a test can be its network.

use curtail_codec::node::{Class, LinkControl, Part};

use crate::{
    chunk_pool::ChunkPool,
    send_queue::{NotSent, Pushed, SendQueue, WindowLimits},
};

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct LinkSession {
    pub(crate) send_queue: SendQueue,
    /// The stream that is sent here.
    stream: u64,
    /// The first number sent to the peer's present incarnation.
    base: u64,
    /// The stream that is received; 0 before the first.
    peer_stream: u64,
    /// The last frame of it that was taken.
    received: Option<u64>,
    /// What was received since the last acknowledgement.
    owed_bytes: usize,
    owed_frames: u32,
    /// The longest frame that the peer takes, as far as that is known.
    pub(crate) frame_bytes_max: usize,
    running: bool,
}

/// The contents of the peer's Resume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PeerResume {
    /// How far it has come with `received_stream`.
    pub(crate) acknowledged: u64,
    pub(crate) stream: u64,
    pub(crate) received_stream: u64,
    pub(crate) frame_bytes_max: usize,
}

/// What came of the peer's Resume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Resumed {
    /// Nothing is lost.
    Continued,
    /// The peer has no memory of what was sent: it is lost, whether it was acknowledged or not.
    Reset,
}

/// What to do with a numbered frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FrameReceipt {
    /// Hand it on.
    New,
    /// It was handed on before.
    Again,
    /// Frames before it are missing: the peer does not speak this protocol.
    Gap,
}

/// Received bytes after which an acknowledgement is sent.
const OWED_BYTES_MAX: usize = 16 << 10;

/// Received frames after which one is.
const OWED_FRAMES_MAX: u32 = 32;

impl LinkSession {
    /// A session that sends `stream`, a number that no other incarnation uses.
    pub(crate) fn new(stream: u64, windows: WindowLimits) -> Self {
        Self {
            send_queue: SendQueue::new(windows),
            stream,
            base: 1,
            peer_stream: 0,
            received: None,
            owed_bytes: 0,
            owed_frames: 0,
            frame_bytes_max: usize::MAX,
            running: false,
        }
    }

    /// Whether both sides have resumed.
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }

    /// The connection is gone.
    pub(crate) fn disconnect(&mut self) {
        self.running = false;
    }

    /// The first frame of a connection, but for [`LinkSession::received`].
    pub(crate) fn resume(&mut self, frame_bytes_max: usize) -> LinkControl {
        self.running = false;
        LinkControl::Resume {
            stream: self.stream,
            received_stream: self.peer_stream,
            frame_bytes_max: u32::try_from(frame_bytes_max).unwrap_or(u32::MAX),
        }
    }

    /// Takes the peer's Resume.
    pub(crate) fn resumed(
        &mut self,
        chunks: &mut ChunkPool,
        peer: &PeerResume,
    ) -> Result<Resumed, NotSent> {
        let is_another_life = self.peer_stream != 0 && self.peer_stream != peer.stream;
        if is_another_life {
            self.received = None;
        }
        self.peer_stream = peer.stream;
        self.frame_bytes_max = peer.frame_bytes_max;
        let knows = peer.received_stream == self.stream;
        let is_new = !knows && self.send_queue.first() == self.base;
        let resumed = if is_another_life || !(knows || is_new) {
            self.send_queue.clear(chunks);
            self.base = self.send_queue.first();
            Resumed::Reset
        } else {
            let number = if knows { peer.acknowledged } else { 0 };
            self.send_queue.rewind(chunks, number)?;
            Resumed::Continued
        };
        self.running = true;
        Ok(resumed)
    }

    /// Appends a part; see [`SendQueue::push`].
    pub(crate) fn push(
        &mut self,
        chunks: &mut ChunkPool,
        part: (Class, &Part<'_>),
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Pushed {
        let received = self.received();
        self.send_queue
            .push(chunks, part, payload_bytes, received, fill)
    }

    /// Judges a numbered frame of so many bytes.
    pub(crate) fn take(&mut self, number: u64, bytes: usize) -> FrameReceipt {
        match self.received {
            Some(last) if number <= last => return FrameReceipt::Again,
            Some(last) if number != last + 1 => return FrameReceipt::Gap,
            _ => {}
        }
        self.received = Some(number);
        self.owed_bytes += bytes;
        self.owed_frames += 1;
        FrameReceipt::New
    }

    /// The last frame received, which the next header acknowledges.
    pub(crate) fn received(&self) -> u64 {
        self.received.unwrap_or(0)
    }

    /// Takes back that frames behind `number` were taken, as a fault would.
    #[cfg(test)]
    pub(crate) fn forget(&mut self, number: u64) {
        self.received = self.received.map(|_| number);
    }

    /// Ends the open frame: its header carries the acknowledgement.
    pub(crate) fn seal(&mut self) {
        if self.send_queue.seal(self.received.unwrap_or(0)) {
            self.note_told();
        }
    }

    /// What was written now carries the acknowledgement.
    pub(crate) fn note_told(&mut self) {
        (self.owed_bytes, self.owed_frames) = (0, 0);
    }

    /// Whether an acknowledgement is due although there is nothing else to send.
    pub(crate) fn owes(&self) -> bool {
        self.owed_bytes >= OWED_BYTES_MAX || self.owed_frames >= OWED_FRAMES_MAX
    }
}

#[cfg(test)]
mod tests;
