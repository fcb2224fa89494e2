//! Builds frames: begins a frame, appends parts, and seals it.
//!
//! ```text
//!  FrameShape::of(class, part)        two parts with equal shapes may share a frame
//!  shape.begin(room)             room for the header, and the batch's head
//!  part.encode(room behind)      as often as parts of this shape come
//!  shape.seal(frame, ..)         the header, when length and number are known
//! ```

use curtail_types::ViewNumber;

use super::{
    BATCH_HEAD_BYTES, HEADER_BYTES,
    frame::{Class, FrameHeader, FrameKind},
    frame_items::{BatchHead, NUMBERED_HEAD_BYTES, NodeAnswer, NodeRequest, write_numbered},
    replica_part::ReplicaPart,
    words::Writer,
};

/// One thing to tell another node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Part<'a> {
    /// Of [`FrameKind::Requests`].
    Request(BatchHead, NodeRequest<'a>),
    /// Of [`FrameKind::Answers`].
    Answer(BatchHead, NodeAnswer<'a>),
    /// A [`FrameKind::Report`].
    Report(&'a [u8]),
    /// Of [`FrameKind::Replica`].
    Replica(ReplicaPart<'a>),
}

/// What the parts of one frame have in common.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FrameShape {
    kind: FrameKind,
    class: Class,
    head: Option<BatchHead>,
}

/// A whole frame about the link itself.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LinkControl {
    /// See [`FrameKind::Resume`].
    Resume {
        /// The stream that this side sends.
        stream: u64,
        /// The stream that it received before; 0 for none.
        received_stream: u64,
        /// The longest frame that it takes on this connection, in bytes.
        frame_bytes_max: u32,
    },
    /// See [`FrameKind::Heartbeat`].
    Heartbeat {
        /// The view of the sender.
        view: ViewNumber,
        /// How busy it is.
        load: u32,
    },
    /// See [`FrameKind::Credit`].
    Credit,
}

impl FrameShape {
    /// That of a frame with `part`.
    #[inline]
    pub const fn of(class: Class, part: &Part<'_>) -> Self {
        let (kind, head) = match part {
            Part::Request(head, _) => (FrameKind::Requests, Some(*head)),
            Part::Answer(head, _) => (FrameKind::Answers, Some(*head)),
            Part::Report(_) => (FrameKind::Report, None),
            Part::Replica(_) => (FrameKind::Replica, None),
        };
        Self { kind, class, head }
    }

    /// Whether a frame of this shape can take another part.
    #[inline]
    pub const fn takes_more(&self) -> bool {
        !matches!(self.kind, FrameKind::Report)
    }

    /// On whose credit it travels.
    #[inline]
    pub const fn class(&self) -> Class {
        self.class
    }

    /// Bytes before the first part.
    #[inline]
    pub const fn bytes(&self) -> usize {
        match self.head {
            Some(_) => HEADER_BYTES + BATCH_HEAD_BYTES,
            None => HEADER_BYTES,
        }
    }

    /// Writes what stands before the first part, but for the header; how many bytes that is with
    /// the header. `None` if `room` is too small.
    pub fn begin(&self, room: &mut [u8]) -> Option<usize> {
        let mut writer = Writer::new(room.get_mut(HEADER_BYTES..)?);
        if let Some(head) = self.head {
            head.write(&mut writer)?;
        }
        Some(self.bytes())
    }

    /// Writes the header of `frame`, which is the whole frame and nothing behind it. `None` if it
    /// is too short to be one, or longer than a length of 32 bits can say.
    pub fn seal(&self, frame: &mut [u8], sequence: u64, acknowledged: u64) -> Option<()> {
        let header = FrameHeader {
            bytes: frame.len(),
            kind: self.kind,
            class: self.class,
            sequence,
            acknowledged,
        };
        header.encode(frame)
    }
}

impl<'a> Part<'a> {
    /// Its bytes within a frame of its shape.
    #[inline]
    pub const fn bytes(&self) -> usize {
        self.bytes_with(self.payload().len())
    }

    /// The same with a payload of so many bytes in place of its own.
    #[inline]
    pub const fn bytes_with(&self, payload_bytes: usize) -> usize {
        let head_bytes = match self {
            Self::Request(..) | Self::Answer(..) => NUMBERED_HEAD_BYTES,
            Self::Replica(item) => item.head_bytes(),
            Self::Report(_) => 0,
        };
        head_bytes + payload_bytes
    }

    /// The bytes that come last: the value, the request or the answer.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        match self {
            Self::Request(_, item) => item.bytes,
            Self::Answer(_, item) => item.bytes,
            Self::Report(bytes) => bytes,
            Self::Replica(item) => match &item.item {
                Some(item) => item.image.value,
                None => &[],
            },
        }
    }

    /// Writes it to the front of `room`; how many bytes that took. `None` if it does not fit.
    #[inline]
    pub fn encode(&self, room: &mut [u8]) -> Option<usize> {
        let payload = self.payload();
        self.lay_out(room, payload.len())?.copy_from_slice(payload);
        Some(self.bytes())
    }

    /// Writes everything but its payload to the front of `room`, and gives the place of the payload
    /// to be filled with `payload_bytes` bytes. `None` if it does not fit, or if a part of its kind
    /// has no payload of that length.
    #[inline]
    pub fn lay_out<'r>(&self, room: &'r mut [u8], payload_bytes: usize) -> Option<&'r mut [u8]> {
        let mut writer = Writer::new(room);
        match self {
            Self::Request(_, item) => {
                let bytes = [item.options, 0];
                write_numbered(&mut writer, (item.number, bytes), payload_bytes)?;
            }
            Self::Answer(_, item) => {
                let bytes = [item.status as u8, item.copies];
                write_numbered(&mut writer, (item.number, bytes), payload_bytes)?;
            }
            Self::Replica(item) => item.write_head(&mut writer, payload_bytes)?,
            Self::Report(_) => {}
        }
        if payload_bytes > 0 && !self.has_payload() {
            return None;
        }
        writer.rest().get_mut(..payload_bytes)
    }

    const fn has_payload(&self) -> bool {
        match self {
            Self::Replica(item) => item.item.is_some(),
            Self::Request(..) | Self::Answer(..) | Self::Report(_) => true,
        }
    }
}

impl LinkControl {
    /// The longest of them, in bytes.
    pub const BYTES_MAX: usize = HEADER_BYTES + 24;

    /// Writes the whole frame to the front of `room`; how many bytes that took. `None` if it does
    /// not fit. `large` says on which connection it travels.
    pub fn encode(&self, large: bool, acknowledged: u64, room: &mut [u8]) -> Option<usize> {
        let (kind, bytes) = match self {
            Self::Resume { .. } => (FrameKind::Resume, HEADER_BYTES + 24),
            Self::Heartbeat { .. } => (FrameKind::Heartbeat, HEADER_BYTES + 8),
            Self::Credit => (FrameKind::Credit, HEADER_BYTES),
        };
        let class = if large {
            Class::LargeAnswer
        } else {
            Class::Answer
        };
        let header = FrameHeader {
            bytes,
            kind,
            class,
            sequence: 0,
            acknowledged,
        };
        header.encode(room)?;
        let mut writer = Writer::new(room.get_mut(HEADER_BYTES..bytes)?);
        match *self {
            Self::Resume {
                stream,
                received_stream,
                frame_bytes_max,
            } => {
                writer.u64(stream)?;
                writer.u64(received_stream)?;
                writer.u32(frame_bytes_max)?;
                writer.u32(0)?;
            }
            Self::Heartbeat { view, load } => {
                writer.u32(view.0)?;
                writer.u32(load)?;
            }
            Self::Credit => {}
        }
        Some(bytes)
    }
}
