//! What outlives the connections of a link: exactly once, in order, between two lives of two nodes.
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
//! far it has come with the other: what was not received is sent again, what was seen is dropped.
//! A stream of another name comes from another life of the peer, and what was kept for the old one
//! is dropped ([`Resumed::Reset`]).
//!
//! It holds no socket and no clock, so that a test can be its network.

use curtail_codec::node::{Class, Control, Part};

use crate::node::links::{
    chunk_pool::Chunks,
    outbox::{NotSent, Outbox, Pushed, Windows},
};

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) outbox: Outbox,
    /// The stream that is sent here.
    stream: u64,
    /// The first number that the peer in its present life was sent.
    base: u64,
    /// The stream that is received; 0 before the first.
    peer_stream: u64,
    /// The last frame of it that was taken.
    received: Option<u64>,
    /// What was taken since the peer was told how far.
    owed_bytes: usize,
    owed_frames: u32,
    /// The longest frame that the peer takes.
    frame_bytes_max: usize,
    running: bool,
}

/// What a Resume says of the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PeerResume {
    /// How far it has come with `received_stream`.
    pub(super) acknowledged: u64,
    pub(super) stream: u64,
    pub(super) received_stream: u64,
    pub(super) frame_bytes_max: usize,
}

/// What came of the peer's Resume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Resumed {
    /// Nothing is lost.
    Continued,
    /// The peer has no memory of what was sent: it is lost, whether it was acknowledged or not.
    Reset,
}

/// What to do with a numbered frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// Hand it on.
    New,
    /// It was handed on before.
    Again,
    /// Frames before it are missing: the peer does not speak this protocol.
    Gap,
}

/// Bytes after which the peer is told how far this side has come.
const OWED_BYTES_MAX: usize = 16 << 10;

/// Frames after which it is.
const OWED_FRAMES_MAX: u32 = 32;

impl Session {
    /// A session that sends `stream`, a number that no other life of it has.
    pub(super) fn new(stream: u64, windows: Windows) -> Self {
        Self {
            outbox: Outbox::new(windows),
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
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// The longest frame that the peer takes, as far as that is known.
    pub(super) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// The connection is gone.
    pub(super) fn disconnect(&mut self) {
        self.running = false;
    }

    /// The first frame of a connection, but for [`Session::received`].
    pub(super) fn resume(&mut self, frame_bytes_max: usize) -> Control {
        self.running = false;
        Control::Resume {
            stream: self.stream,
            received_stream: self.peer_stream,
            frame_bytes_max: u32::try_from(frame_bytes_max).unwrap_or(u32::MAX),
        }
    }

    /// Takes the peer's Resume.
    pub(super) fn resumed(
        &mut self,
        chunks: &mut Chunks,
        peer: &PeerResume,
    ) -> Result<Resumed, NotSent> {
        let is_another_life = self.peer_stream != 0 && self.peer_stream != peer.stream;
        if is_another_life {
            self.received = None;
        }
        self.peer_stream = peer.stream;
        self.frame_bytes_max = peer.frame_bytes_max;
        let knows = peer.received_stream == self.stream;
        let is_new = !knows && self.outbox.first() == self.base;
        let resumed = if is_another_life || !(knows || is_new) {
            self.outbox.clear(chunks);
            self.base = self.outbox.first();
            Resumed::Reset
        } else {
            let number = if knows { peer.acknowledged } else { 0 };
            self.outbox.rewind(chunks, number)?;
            Resumed::Continued
        };
        self.running = true;
        Ok(resumed)
    }

    /// Appends a part; see [`Outbox::push`].
    pub(super) fn push(
        &mut self,
        chunks: &mut Chunks,
        part: (Class, &Part<'_>),
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Pushed {
        let received = self.received();
        self.outbox
            .push(chunks, part, payload_bytes, received, fill)
    }

    /// Judges a numbered frame of so many bytes.
    pub(super) fn take(&mut self, number: u64, bytes: usize) -> Taken {
        match self.received {
            Some(last) if number <= last => return Taken::Again,
            Some(last) if number != last + 1 => return Taken::Gap,
            _ => {}
        }
        self.received = Some(number);
        self.owed_bytes += bytes;
        self.owed_frames += 1;
        Taken::New
    }

    /// How far this side has come, as the next header shall say.
    pub(super) fn received(&self) -> u64 {
        self.received.unwrap_or(0)
    }

    /// Takes back that frames behind `number` were taken, as a fault would.
    #[cfg(test)]
    pub(super) fn forget(&mut self, number: u64) {
        self.received = self.received.map(|_| number);
    }

    /// Ends the open frame: it tells the peer how far this side has come.
    pub(super) fn seal(&mut self) {
        if self.outbox.seal(self.received.unwrap_or(0)) {
            self.note_told();
        }
    }

    /// The peer is told with what was written now.
    pub(super) fn note_told(&mut self) {
        (self.owed_bytes, self.owed_frames) = (0, 0);
    }

    /// Whether the peer should be told although there is nothing else to send.
    pub(super) fn owes(&self) -> bool {
        self.owed_bytes >= OWED_BYTES_MAX || self.owed_frames >= OWED_FRAMES_MAX
    }
}

#[cfg(test)]
mod tests;
