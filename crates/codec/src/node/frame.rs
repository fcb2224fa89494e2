//! Frames: a header of 24 bytes and a body, out of the bytes of a stream.
//!
//! Frames of the kinds that carry something are numbered from 1 on and acknowledged; frames about
//! the link itself have the number 0 and are never sent again. Every header says how far its sender
//! has come with what it received.

use curtail_types::{ViewNumber, numbered_enum};

use super::{
    HEADER_BYTES,
    frame_items::{BatchHead, BodyItem, BodyItems, NodeAnswer, NodeRequest},
    replica_part::ReplicaPart,
    words::{Reader, Writer},
};

numbered_enum! {
    /// What a frame carries. The number is what travels; those that are left out were of versions
    /// before 3.
    pub enum FrameKind: u8 {
        /// The first frame of a connection: how far its sender has come with the streams.
        Resume = 1,
        /// Its sender lives.
        Heartbeat = 2,
        /// Only what the header acknowledges (ccKVS's explicit credits; CC-39).
        Credit = 3,
        /// Clients' requests to be carried out.
        Requests = 5,
        /// What came of requests.
        Answers = 6,
        /// Bytes that both nodes' upper layers understand.
        Report = 10,
        /// Messages of replicas, with their items.
        Replica = 11,
    }
}

numbered_enum! {
    /// What a frame may have to wait for. Credits are counted for each class, so that what answers
    /// is never held up by what asks (CC-39); large items have a connection of their own, so that
    /// they do not hold up small ones. The number is what travels.
    pub enum Class: u8 {
        /// Makes the other node do something: requests, invalidations, updates.
        Demand = 0,
        /// Lets the other node be done with something: answers, acknowledgements, validations.
        Answer = 1,
        /// A demand with something large in it.
        LargeDemand = 2,
        /// An answer with something large in it.
        LargeAnswer = 3,
    }
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FrameHeader {
    /// Length of the whole frame in bytes.
    pub bytes: usize,
    /// What it carries.
    pub kind: FrameKind,
    /// On whose credit it travels.
    pub class: Class,
    /// Counts the sender's frames from 1 on; 0 for the kinds that are not numbered.
    pub sequence: u64,
    /// Every frame of the receiver's up to this number has arrived.
    pub acknowledged: u64,
}

/// A frame, borrowed from the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame<'a> {
    /// The fixed part.
    pub header: FrameHeader,
    /// What it carries.
    pub body: Body<'a>,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Body<'a> {
    /// See [`FrameKind::Resume`]. Streams are named by numbers that no other life of them has.
    Resume {
        /// The stream that this side sends.
        stream: u64,
        /// The stream that it received before, up to the header's `acknowledged`; 0 for none.
        received_stream: u64,
        /// The longest frame that it takes on this connection, in bytes.
        frame_bytes_max: u32,
    },
    /// See [`FrameKind::Heartbeat`].
    Heartbeat {
        /// The view of the sender.
        view: ViewNumber,
        /// How busy it is, in a unit of the upper layers.
        load: u32,
    },
    /// See [`FrameKind::Credit`].
    Credit,
    /// See [`FrameKind::Requests`]; the number is the parcel's.
    Requests(BatchHead, BodyItems<'a, NodeRequest<'a>>),
    /// See [`FrameKind::Answers`]; the number is that of the parcel.
    Answers(BatchHead, BodyItems<'a, NodeAnswer<'a>>),
    /// See [`FrameKind::Report`].
    Report(&'a [u8]),
    /// See [`FrameKind::Replica`].
    Replica(BodyItems<'a, ReplicaPart<'a>>),
}

/// What the front of a stream is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecodedFrame<'a> {
    /// A frame; its header says how many bytes it took.
    Complete(Frame<'a>),
    /// The beginning of one, of so many bytes in all: of the header, while that is not there.
    Incomplete(usize),
    /// None, and never will be.
    Malformed(MalformedFrame),
}

/// Why bytes are not a frame, or not of a handshake; always the sender's fault, or the network's.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MalformedFrame {
    /// Not this protocol.
    Magic,
    /// Shorter than a header, or longer than was agreed.
    Length,
    /// A kind that there is not.
    Kind,
    /// A class that there is not, or that the kind cannot have.
    Class,
    /// Bytes that must be zero are not.
    Spare,
    /// A number where there must be none, or none where there must be one.
    Sequence,
    /// Items that do not add up to the body.
    Body,
}

impl FrameKind {
    /// Whether frames of it are numbered, kept until they are acknowledged, and sent again.
    pub const fn is_numbered(self) -> bool {
        !matches!(self, Self::Resume | Self::Heartbeat | Self::Credit)
    }
}

impl Class {
    /// Whether it travels on the connection for large items.
    pub const fn is_large(self) -> bool {
        matches!(self, Self::LargeDemand | Self::LargeAnswer)
    }

    /// Whether it lets the other side be done with something.
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Answer | Self::LargeAnswer)
    }
}

impl FrameHeader {
    /// The header that `bytes` begin with; `Ok(None)` if it has not all arrived.
    #[inline]
    pub fn decode(bytes: &[u8], frame_bytes_max: usize) -> Result<Option<Self>, MalformedFrame> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let mut reader = Reader::new(head);
        let header = Self::take(&mut reader, frame_bytes_max)?;
        Ok(Some(header))
    }

    #[inline]
    fn take(reader: &mut Reader<'_>, frame_bytes_max: usize) -> Result<Self, MalformedFrame> {
        let bytes = reader.length().ok_or(MalformedFrame::Length)?;
        if !(HEADER_BYTES..=frame_bytes_max.max(HEADER_BYTES)).contains(&bytes) {
            return Err(MalformedFrame::Length);
        }
        let kind = reader.byte().and_then(FrameKind::from_number);
        let kind = kind.ok_or(MalformedFrame::Kind)?;
        let class = reader.byte().and_then(Class::from_number);
        let class = class.ok_or(MalformedFrame::Class)?;
        if !kind.is_numbered() && !class.is_answer() {
            return Err(MalformedFrame::Class);
        }
        reader.zero::<2>().ok_or(MalformedFrame::Spare)?;
        let sequence = reader.u64().ok_or(MalformedFrame::Length)?;
        let acknowledged = reader.u64().ok_or(MalformedFrame::Length)?;
        if kind.is_numbered() != (sequence != 0) {
            return Err(MalformedFrame::Sequence);
        }
        Ok(Self {
            bytes,
            kind,
            class,
            sequence,
            acknowledged,
        })
    }

    /// Writes it to the front of `room`; `None` if that is too small.
    pub fn encode(&self, room: &mut [u8]) -> Option<()> {
        let mut writer = Writer::new(room.get_mut(..HEADER_BYTES)?);
        writer.length(self.bytes)?;
        writer.bytes(&[self.kind as u8, self.class as u8, 0, 0])?;
        writer.u64(self.sequence)?;
        writer.u64(self.acknowledged)
    }
}

impl<'a> Frame<'a> {
    /// The frame that `bytes` begin with, if it has at most `frame_bytes_max` bytes.
    #[inline]
    pub fn decode(bytes: &'a [u8], frame_bytes_max: usize) -> DecodedFrame<'a> {
        let header = match FrameHeader::decode(bytes, frame_bytes_max) {
            Ok(Some(header)) => header,
            Ok(None) => return DecodedFrame::Incomplete(HEADER_BYTES),
            Err(why) => return DecodedFrame::Malformed(why),
        };
        let Some(body) = bytes.get(HEADER_BYTES..header.bytes) else {
            return DecodedFrame::Incomplete(header.bytes);
        };
        match Body::decode(header.kind, body) {
            Some(body) => DecodedFrame::Complete(Self { header, body }),
            None => DecodedFrame::Malformed(MalformedFrame::Body),
        }
    }
}

impl<'a> Body<'a> {
    fn decode(kind: FrameKind, bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let body = match kind {
            FrameKind::Resume => Self::resume(&mut reader)?,
            FrameKind::Heartbeat => Self::Heartbeat {
                view: ViewNumber(reader.u32()?),
                load: reader.u32()?,
            },
            FrameKind::Credit => Self::Credit,
            FrameKind::Requests => {
                return batch(reader).map(|(head, items)| Self::Requests(head, items));
            }
            FrameKind::Answers => {
                return batch(reader).map(|(head, items)| Self::Answers(head, items));
            }
            FrameKind::Report => return Some(Self::Report(bytes)),
            FrameKind::Replica => return BodyItems::new(bytes).map(Self::Replica),
        };
        reader.rest().is_empty().then_some(body)
    }

    fn resume(reader: &mut Reader<'_>) -> Option<Self> {
        let (stream, received_stream) = (reader.u64()?, reader.u64()?);
        let frame_bytes_max = reader.u32()?;
        reader.zero::<4>()?;
        Some(Self::Resume {
            stream,
            received_stream,
            frame_bytes_max,
        })
    }
}

fn batch<'a, T: BodyItem<'a>>(mut reader: Reader<'a>) -> Option<(BatchHead, BodyItems<'a, T>)> {
    let head = BatchHead::take(&mut reader)?;
    Some((head, BodyItems::new(reader.rest())?))
}
