//! How an operation on one item ended, as bytes for the node that asked.
//!
//! ```text
//!   0         1
//!   +---------+-----------------------------------------+
//!   | outcome |                                         |   most of them
//!   | outcome | version u64                             |   stored
//!   | outcome | status                          | value |   found
//!   | outcome | number u64 | created u8 | status        |   counted
//!   +---------+-----------------------------------------+
//!   status: flags u32, version u64, value bytes u32, seconds to live u32, idle u32, bits u8
//! ```

use curtail_types::{ArithmeticOutcome, Cas, DeleteOutcome, ItemStatus, Outcome, SetOutcome};

use super::words::{Reader, Writer};

/// How an operation ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ItemAnswer<'a> {
    /// How it ended.
    pub outcome: Outcome,
    /// The value that a read found, if the request asked for it.
    pub value: &'a [u8],
}

impl<'a> ItemAnswer<'a> {
    /// The most bytes that an answer takes beside its value.
    pub const HEAD_BYTES_MAX: usize = 1 + 8 + 1 + STATUS_BYTES;

    /// Writes the answer to the front of `room`; how many bytes that took. `None` if it does not
    /// fit.
    pub fn encode(&self, room: &mut [u8]) -> Option<usize> {
        let room_bytes = room.len();
        let mut writer = Writer::new(room);
        writer.byte(number_of(&self.outcome))?;
        match &self.outcome {
            Outcome::Found(status) => {
                write_status(&mut writer, status)?;
                writer.bytes(self.value)?;
            }
            Outcome::Set(SetOutcome::Stored(Cas(version))) => writer.u64(*version)?,
            Outcome::Arithmetic(ArithmeticOutcome::Counted {
                number,
                status,
                created,
            }) => {
                writer.u64(*number)?;
                writer.byte(u8::from(*created))?;
                write_status(&mut writer, status)?;
            }
            _ => {}
        }
        Some(room_bytes - writer.rest().len())
    }

    /// The answer that `bytes` are, all of them; `None` if they are none. A value is as long as its
    /// status says, or was not asked for.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let outcome = match reader.byte()? {
            FOUND => Outcome::Found(take_status(&mut reader)?),
            STORED => Outcome::Set(SetOutcome::Stored(Cas(reader.u64()?))),
            COUNTED => Outcome::Arithmetic(ArithmeticOutcome::Counted {
                number: reader.u64()?,
                created: match reader.byte()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
                status: take_status(&mut reader)?,
            }),
            number => PLAIN.get(usize::from(number))?.as_ref().copied()?,
        };
        let value = reader.rest();
        let is_right = match &outcome {
            Outcome::Found(status) => {
                value.is_empty() || value.len() == status.value_bytes as usize
            }
            _ => value.is_empty(),
        };
        is_right.then_some(Self { outcome, value })
    }
}

const FOUND: u8 = 0;
const STORED: u8 = 2;
const COUNTED: u8 = 12;

/// The outcomes that nothing need be said about, at their numbers.
const PLAIN: [Option<Outcome>; 17] = [
    None,
    Some(Outcome::Missing),
    None,
    Some(Outcome::Set(SetOutcome::NotStored)),
    Some(Outcome::Set(SetOutcome::Exists)),
    Some(Outcome::Set(SetOutcome::NotFound)),
    Some(Outcome::Set(SetOutcome::TooLarge)),
    Some(Outcome::Set(SetOutcome::OutOfMemory)),
    Some(Outcome::Delete(DeleteOutcome::Deleted)),
    Some(Outcome::Delete(DeleteOutcome::NotFound)),
    Some(Outcome::Delete(DeleteOutcome::Exists)),
    Some(Outcome::Delete(DeleteOutcome::OutOfMemory)),
    None,
    Some(Outcome::Arithmetic(ArithmeticOutcome::NotFound)),
    Some(Outcome::Arithmetic(ArithmeticOutcome::Exists)),
    Some(Outcome::Arithmetic(ArithmeticOutcome::NotANumber)),
    Some(Outcome::Arithmetic(ArithmeticOutcome::OutOfMemory)),
];

const fn number_of(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Found(_) => FOUND,
        Outcome::Missing => 1,
        Outcome::Set(outcome) => match outcome {
            SetOutcome::Stored(_) => STORED,
            SetOutcome::NotStored => 3,
            SetOutcome::Exists => 4,
            SetOutcome::NotFound => 5,
            SetOutcome::TooLarge => 6,
            SetOutcome::OutOfMemory => 7,
        },
        Outcome::Delete(outcome) => match outcome {
            DeleteOutcome::Deleted => 8,
            DeleteOutcome::NotFound => 9,
            DeleteOutcome::Exists => 10,
            DeleteOutcome::OutOfMemory => 11,
        },
        Outcome::Arithmetic(outcome) => match outcome {
            ArithmeticOutcome::Counted { .. } => COUNTED,
            ArithmeticOutcome::NotFound => 13,
            ArithmeticOutcome::Exists => 14,
            ArithmeticOutcome::NotANumber => 15,
            ArithmeticOutcome::OutOfMemory => 16,
        },
    }
}

const STATUS_BYTES: usize = 25;

/// Bits of an item's status.
const ENDS: u8 = 1;
const FETCHED: u8 = 2;
const WON: u8 = 4;
const STALE: u8 = 8;
const CONTENDED: u8 = 16;

fn write_status(writer: &mut Writer<'_>, status: &ItemStatus) -> Option<()> {
    let bits = [
        (status.ttl_seconds.is_some(), ENDS),
        (status.fetched, FETCHED),
        (status.won, WON),
        (status.stale, STALE),
        (status.contended, CONTENDED),
    ];
    let bits = bits.iter().filter(|(is_set, _)| *is_set);
    writer.u32(status.flags)?;
    writer.u64(status.cas.0)?;
    writer.u32(status.value_bytes)?;
    writer.u32(status.ttl_seconds.unwrap_or_default())?;
    writer.u32(status.idle_seconds)?;
    writer.byte(bits.map(|(_, bit)| bit).sum())
}

fn take_status(reader: &mut Reader<'_>) -> Option<ItemStatus> {
    let (flags, cas) = (reader.u32()?, Cas(reader.u64()?));
    let (value_bytes, ttl_seconds, idle_seconds) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let bits = reader.byte()?;
    let has = |bit: u8| bits & bit != 0;
    let is_right = bits < 2 * CONTENDED && (has(ENDS) || ttl_seconds == 0);
    is_right.then_some(ItemStatus {
        flags,
        cas,
        value_bytes,
        ttl_seconds: has(ENDS).then_some(ttl_seconds),
        idle_seconds,
        fetched: has(FETCHED),
        won: has(WON),
        stale: has(STALE),
        contended: has(CONTENDED),
    })
}
