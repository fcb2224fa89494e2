//! Replies: from bytes and to bytes.
//!
//! Every reply has the 64 bytes of a header; only a result has more, and a result goes to no
//! stranger, since a session is bound to an address that its client has proven.
//!
//! ```text
//!  byte   0        1        2        3        4        5        6        7
//!     0 | magic "CN"      | version| kind   | status | slot   | queue           |
//!     8 | checksum, as in a request                                             |
//!    16 | session index                     | session generation                |
//!    24 | incarnation                                              COOKIE: 0    |
//!    32 | sequence                                COOKIE: cookie, GRANT: token  |
//!    40 | stamp, echoed                     | credits                           |
//!    48 | pos                                            COOKIE, GRANT: nonce   |
//!    56 | durable_pos                     GRANT: lease in ms, datagram bytes    |
//!  RESULT only:
//!    64 | version of the item                                                   |
//!    72 | number                                                                |
//!    80 | value_bytes                       | item_flags                        |
//!    88 | value                                                                 |
//! ```
//!
//! Words are never mixed (JB-52): [`Promise::Accepted`] says that a write is ordered and held once
//! in this machine's memory; [`Promise::Durable`] says that it is on stable storage. A node of a
//! cluster says [`Promise::Executed`] or [`Promise::Replicated`], and at how many nodes the write
//! is, in place of a position: it has no queues ([`Place::NO_QUEUE`]).

use curtail_types::numbered_enum;

use super::{
    HEADER_BYTES, MAGIC, VALUE_BYTES_MAX, VERSION,
    request::{Echo, EncodeError, Malformed, Session, checksum_of, sealed},
    words::{self, Words, high, low, pair},
};

/// What a server answers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Reply<'a> {
    /// To HELLO: come back with this.
    Cookie {
        /// The client's nonce.
        nonce: u64,
        /// What to return.
        cookie: u64,
        /// The client's own number.
        stamp: u32,
    },
    /// To CONFIRM: a session.
    Grant(Grant),
    /// A write has what it was promised, and there is nothing else to tell.
    Ack(Ack),
    /// Not now, and nothing was done: to be sent again later, with the same sequence number.
    Nack(Nack),
    /// To PING: the first position of the queue that is not executed yet.
    Pong {
        /// Whose.
        echo: Echo,
        /// Where.
        place: Place,
    },
    /// A request was executed, and this came of it.
    Result {
        /// Whose.
        echo: Echo,
        /// Where it stood in its queue; position 0 for what goes through none.
        place: Place,
        /// How it ended.
        status: Status,
        /// The item's version, 0 if there is none.
        version: u64,
        /// The number that arithmetic left.
        number: u64,
        /// The item's 32 bits.
        item_flags: u32,
        /// The item's value, of a read.
        value: &'a [u8],
    },
    /// Never like this: sending the same bytes again changes nothing.
    Error(ReplyError),
}

/// A session, and the limits that hold in it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Grant {
    /// The session.
    pub session: Session,
    /// The client's nonce.
    pub nonce: u64,
    /// The client's own number.
    pub stamp: u32,
    /// The life of the queues; positions of another one mean nothing.
    pub incarnation: u64,
    /// Slots that the client may use, up to [`super::SLOTS`].
    pub slots: u8,
    /// Queues that the server has.
    pub queues: u16,
    /// Writes that the client may have outstanding to begin with.
    pub credits: u32,
    /// How long the session lasts without a request, in milliseconds.
    pub lease_ms: u32,
    /// Longest datagram that is taken, in bytes.
    pub datagram_bytes_max: u32,
}

/// Where a request stood, and how its queue is.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Place {
    /// Which queue; [`Self::NO_QUEUE`] over TCP and at a node of a cluster.
    pub queue: u16,
    /// Free slots in it.
    pub credits: u32,
    /// The life of the queues.
    pub incarnation: u64,
    /// The position; 64 bits, never used again within an incarnation. Without a queue the number
    /// of nodes in sync that have what the reply shows; 0 if that is not known.
    pub pos: u64,
    /// Every position below this one is durable.
    pub durable_pos: u64,
}

/// A write has what it was promised.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ack {
    /// Whose.
    pub echo: Echo,
    /// Where.
    pub place: Place,
    /// What the acknowledgement says.
    pub promise: Promise,
}

impl Place {
    /// In place of a queue's number: the request went through none.
    pub const NO_QUEUE: u16 = u16::MAX;

    /// How many nodes in sync have what the reply shows; 0 if that is not known.
    pub const fn copies(&self) -> u8 {
        match self.queue {
            Self::NO_QUEUE if self.pos <= u8::MAX as u64 => self.pos as u8,
            _ => 0,
        }
    }

    /// What a reply after execution promises: at a server that is alone, and at a node that does
    /// not know of copies, that the request was executed.
    pub const fn promise_of_executed(&self) -> Promise {
        match self.copies() {
            0 | 1 => Promise::Executed,
            _ => Promise::Replicated,
        }
    }
}

numbered_enum! {
    /// How much an acknowledgement promises.
    pub enum Promise: u8 {
        /// Ordered, and held once in this machine's memory; executed once if its kernel keeps
        /// running.
        Accepted = 1,
        /// On stable storage as well.
        Durable = 2,
        /// Executed by the key's primary; how many nodes have it, if that is known, stands in
        /// place of a position.
        Executed = 3,
        /// Executed, and every node in sync has it, which are several.
        Replicated = 4,
    }
}

/// A write was not taken; position 0.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Nack {
    /// Whose.
    pub echo: Echo,
    /// The queue, and its credits.
    pub place: Place,
    /// Why.
    pub reason: NackReason,
}

numbered_enum! {
    /// Why a request was not taken for now.
    pub enum NackReason: u8 {
        /// The queue has no free slot.
        Full = 1,
        /// The server is starting, stopping or loading.
        NotReady = 2,
        /// The slot has a request under way.
        Busy = 3,
    }
}

/// A request was refused.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ReplyError {
    /// Whose.
    pub echo: Echo,
    /// Why.
    pub code: ErrorCode,
    /// The life of the queues, which may be another one than the client knows.
    pub incarnation: u64,
}

numbered_enum! {
    /// Why a request was refused.
    #[non_exhaustive]
    pub enum ErrorCode: u8 {
        /// A field makes no sense; the client's fault.
        Malformed = 1,
        /// The server speaks the version of this reply and not the client's.
        Version = 2,
        /// An opcode that the server does not know.
        Opcode = 3,
        /// A flag that the opcode does not have.
        Flags = 4,
        /// Marked nilext and is not; the client's fault.
        NotNilext = 5,
        /// A fragment; to be sent over TCP.
        Fragment = 6,
        /// Too long for a datagram, or for the store.
        TooLarge = 7,
        /// The bytes are not those that were sent.
        Checksum = 8,
        /// The session is over, was never granted, belongs to another address, or to an incarnation
        /// that ended: outstanding requests are indeterminate, and a new session is needed.
        Session = 9,
        /// The cookie is not good, or not any more.
        Cookie = 10,
        /// No session is free, or this address has as many as it may.
        Sessions = 11,
        /// This server does not do this.
        Unsupported = 12,
    }
}

numbered_enum! {
    /// How a request ended.
    pub enum Status: u8 {
        /// Stored, deleted, touched, counted, flushed: done.
        Done = 1,
        /// A read found the value.
        Value = 2,
        /// There is no item.
        NotFound = 3,
        /// Add found an item, or replace, append or prepend found none.
        NotStored = 4,
        /// The version is another one.
        Exists = 5,
        /// The item is not a decimal number.
        NotANumber = 6,
        /// No room.
        OutOfMemory = 7,
        /// Longer than the store takes.
        TooLarge = 8,
        /// It was executed before, and what came of it is not known any more.
        Executed = 9,
    }
}

impl<'a> Reply<'a> {
    /// The reply that a whole datagram or frame is.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (words, body) = words::split(bytes).ok_or(Malformed::Short)?;
        let [
            first,
            checksum,
            name,
            incarnation,
            sequence,
            stamp,
            pos,
            last,
        ] = words;
        if first as u16 != MAGIC {
            return Err(Malformed::Magic);
        }
        if (first >> 16) as u8 != VERSION {
            return Err(Malformed::Version);
        }
        let [_, _, _, kind, status, slot, ..] = first.to_le_bytes();
        let fields = Fields {
            status,
            slot,
            queue: (first >> 48) as u16,
            name,
            incarnation,
            sequence,
            stamp: low(stamp),
            credits: high(stamp),
            pos,
            last,
        };
        let reply = match kind {
            KIND_RESULT => fields.result(body)?,
            _ if !body.is_empty() => return Err(Malformed::Length),
            _ => fields.short(kind)?,
        };
        if checksum_of(bytes) != Some(checksum) {
            return Err(Malformed::Checksum);
        }
        if reply.fields() != fields {
            return Err(Malformed::Field);
        }
        Ok(reply)
    }

    /// Writes the reply; how many bytes it took.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, EncodeError> {
        let bytes = self.bytes();
        let room = out.get_mut(..bytes).ok_or(EncodeError::Room(bytes))?;
        let (tail, value) = self.tail();
        if value.len() > VALUE_BYTES_MAX as usize {
            return Err(EncodeError::Malformed(Malformed::TooLarge));
        }
        let tail_bytes = match self {
            Self::Result { .. } => RESULT_BYTES,
            _ => 0,
        };
        let tail = tail.get(..tail_bytes).unwrap_or_default();
        let words = sealed(self.fields().words(self.kind()), [tail, value]);
        let head = words::to_bytes(&words);
        words::gather(room, [&head, tail, value]);
        Ok(bytes)
    }

    /// Its length in bytes: 64 for everything but a result.
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Result { value, .. } => HEADER_BYTES + RESULT_BYTES + value.len(),
            _ => HEADER_BYTES,
        }
    }

    /// The answer to a datagram that is no request, or `None` if it gets none.
    pub fn refuse(datagram: &[u8], why: Malformed, incarnation: u64) -> Option<Self> {
        let code = why.code()?;
        let echo = Echo::of(datagram)?;
        Some(Self::Error(ReplyError {
            echo,
            code,
            incarnation,
        }))
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Cookie { .. } => KIND_COOKIE,
            Self::Grant(_) => KIND_GRANT,
            Self::Ack(_) => KIND_ACK,
            Self::Nack(_) => KIND_NACK,
            Self::Pong { .. } => KIND_PONG,
            Self::Result { .. } => KIND_RESULT,
            Self::Error(_) => KIND_ERROR,
        }
    }

    fn fields(&self) -> Fields {
        match self {
            Self::Cookie {
                nonce,
                cookie,
                stamp,
            } => Fields {
                sequence: *cookie,
                stamp: *stamp,
                pos: *nonce,
                ..Fields::default()
            },
            Self::Grant(grant) => Fields {
                slot: grant.slots,
                queue: grant.queues,
                name: pair(grant.session.index, grant.session.generation),
                incarnation: grant.incarnation,
                sequence: grant.session.token,
                stamp: grant.stamp,
                credits: grant.credits,
                pos: grant.nonce,
                last: pair(grant.lease_ms, grant.datagram_bytes_max),
                ..Fields::default()
            },
            Self::Ack(ack) => Fields::new(ack.promise as u8, ack.echo, ack.place),
            Self::Nack(nack) => Fields::new(nack.reason as u8, nack.echo, nack.place),
            Self::Pong { echo, place } => Fields::new(0, *echo, *place),
            Self::Result {
                echo,
                place,
                status,
                ..
            } => Fields::new(*status as u8, *echo, *place),
            Self::Error(error) => {
                let place = Place {
                    incarnation: error.incarnation,
                    ..Place::default()
                };
                Fields::new(error.code as u8, error.echo, place)
            }
        }
    }

    /// What follows a result's header: three words, and the value.
    fn tail(&self) -> ([u8; RESULT_BYTES], &[u8]) {
        let mut tail = [0; RESULT_BYTES];
        let Self::Result {
            version,
            number,
            item_flags,
            value,
            ..
        } = self
        else {
            return (tail, &[]);
        };
        let (places, _) = tail.as_chunks_mut::<8>();
        let lengths = pair(value.len() as u32, *item_flags);
        for (place, word) in places.iter_mut().zip([*version, *number, lengths]) {
            *place = word.to_le_bytes();
        }
        (tail, value)
    }
}

/// A reply's header without its kind and checksum.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Fields {
    status: u8,
    slot: u8,
    queue: u16,
    name: u64,
    incarnation: u64,
    sequence: u64,
    stamp: u32,
    credits: u32,
    pos: u64,
    last: u64,
}

impl Fields {
    fn new(status: u8, echo: Echo, place: Place) -> Self {
        Self {
            status,
            slot: echo.slot,
            queue: place.queue,
            name: pair(echo.index, echo.generation),
            incarnation: place.incarnation,
            sequence: echo.sequence,
            stamp: echo.stamp,
            credits: place.credits,
            pos: place.pos,
            last: place.durable_pos,
        }
    }

    fn words(&self, kind: u8) -> Words {
        let first = u64::from(MAGIC)
            | u64::from(VERSION) << 16
            | u64::from(kind) << 24
            | u64::from(self.status) << 32
            | u64::from(self.slot) << 40
            | u64::from(self.queue) << 48;
        [
            first,
            0,
            self.name,
            self.incarnation,
            self.sequence,
            pair(self.stamp, self.credits),
            self.pos,
            self.last,
        ]
    }

    const fn echo(&self) -> Echo {
        Echo {
            index: low(self.name),
            generation: high(self.name),
            slot: self.slot,
            sequence: self.sequence,
            stamp: self.stamp,
        }
    }

    const fn place(&self) -> Place {
        Place {
            queue: self.queue,
            credits: self.credits,
            incarnation: self.incarnation,
            pos: self.pos,
            durable_pos: self.last,
        }
    }

    fn short(&self, kind: u8) -> Result<Reply<'static>, Malformed> {
        let (echo, place) = (self.echo(), self.place());
        Ok(match kind {
            KIND_COOKIE => Reply::Cookie {
                nonce: self.pos,
                cookie: self.sequence,
                stamp: self.stamp,
            },
            KIND_GRANT => Reply::Grant(self.grant()),
            KIND_ACK => Reply::Ack(Ack {
                echo,
                place,
                promise: Promise::from_number(self.status).ok_or(Malformed::Field)?,
            }),
            KIND_NACK => Reply::Nack(Nack {
                echo,
                place,
                reason: NackReason::from_number(self.status).ok_or(Malformed::Field)?,
            }),
            KIND_PONG => Reply::Pong { echo, place },
            KIND_ERROR => Reply::Error(ReplyError {
                echo,
                code: ErrorCode::from_number(self.status).ok_or(Malformed::Field)?,
                incarnation: self.incarnation,
            }),
            _ => return Err(Malformed::Opcode),
        })
    }

    const fn grant(&self) -> Grant {
        Grant {
            session: Session {
                index: low(self.name),
                generation: high(self.name),
                token: self.sequence,
            },
            nonce: self.pos,
            stamp: self.stamp,
            incarnation: self.incarnation,
            slots: self.slot,
            queues: self.queue,
            credits: self.credits,
            lease_ms: low(self.last),
            datagram_bytes_max: high(self.last),
        }
    }

    fn result<'a>(&self, body: &'a [u8]) -> Result<Reply<'a>, Malformed> {
        let split = body.split_first_chunk::<RESULT_BYTES>();
        let (tail, value) = split.ok_or(Malformed::Length)?;
        let (words, _) = tail.as_chunks::<8>();
        let [version, number, lengths] = words else {
            return Err(Malformed::Length);
        };
        let lengths = u64::from_le_bytes(*lengths);
        if value.len() as u64 != u64::from(low(lengths)) {
            return Err(Malformed::Length);
        }
        Ok(Reply::Result {
            echo: self.echo(),
            place: self.place(),
            status: Status::from_number(self.status).ok_or(Malformed::Field)?,
            version: u64::from_le_bytes(*version),
            number: u64::from_le_bytes(*number),
            item_flags: high(lengths),
            value,
        })
    }
}

impl Malformed {
    /// The code that a server answers with; `None` for what is not answered.
    pub const fn code(self) -> Option<ErrorCode> {
        Some(match self {
            Self::Short | Self::Magic => return None,
            Self::Version => ErrorCode::Version,
            Self::Opcode => ErrorCode::Opcode,
            Self::Flags => ErrorCode::Flags,
            Self::NotNilext => ErrorCode::NotNilext,
            Self::Fragment => ErrorCode::Fragment,
            Self::TooLarge => ErrorCode::TooLarge,
            Self::Checksum => ErrorCode::Checksum,
            Self::Length | Self::Key | Self::Field | Self::Sequence => ErrorCode::Malformed,
        })
    }
}

const KIND_COOKIE: u8 = 129;
const KIND_GRANT: u8 = 130;
const KIND_ACK: u8 = 131;
const KIND_NACK: u8 = 132;
const KIND_PONG: u8 = 133;
const KIND_RESULT: u8 = 134;
const KIND_ERROR: u8 = 135;

/// Bytes between a result's header and its value.
const RESULT_BYTES: usize = 24;
