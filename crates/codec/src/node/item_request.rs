//! A request about one item as bytes, for another node or for a later turn: what to do, not how a
//! client spelt it.
//!
//! ```text
//!   0      1       2      4           5
//!   +------+-------+------+-----------+--------+-----+-------+
//!   | kind | shows | bits | key bytes | fields | key | value |
//!   +------+-------+------+-----------+--------+-----+-------+
//! ```
//!
//! A field is 8 bytes, and there only where it is not its default; the low bits say which are. The
//! value is all that follows the key, so it can be appended to the rest.

use curtail_types::{
    Arithmetic, Cas, Delete, Direction, Exptime, Get, Key, Operation, Outcome, Set, SetMode,
    numbered_enum,
};

use super::{
    ItemAnswer,
    words::{Reader, Writer},
};

/// A request about one item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ItemRequest<'a> {
    /// The key.
    pub key: Key<'a>,
    /// What to do.
    pub operation: Operation,
    /// What a [`Operation::Get`] is answered with; nothing for the others.
    pub shows: Shows,
    /// The value of a [`Operation::Set`]; empty for the others.
    pub value: &'a [u8],
}

numbered_enum! {
    /// What a read is answered with when it has found its item. The number is what travels.
    #[derive(Default)]
    pub enum Shows: u8 {
        /// That it is there: text `touch`, which counts as no read.
        #[default]
        Nothing = 0,
        /// What is known of it, without its value: meta `mg` without `v`.
        Status = 1,
        /// That, and its value.
        Value = 2,
    }
}

impl<'a> ItemRequest<'a> {
    /// The most bytes that a request takes beside its value.
    pub const HEAD_BYTES_MAX: usize = 5 + 8 * FIELDS + Key::BYTES_MAX;

    /// Writes the request to the front of `room`; how many bytes that took. `None` if it does not
    /// fit.
    pub fn encode(&self, room: &mut [u8]) -> Option<usize> {
        let room_bytes = room.len();
        let (kind, bits, fields) = parts(&self.operation);
        let mut writer = Writer::new(room);
        writer.bytes(&[kind, self.shows as u8])?;
        writer.u16(bits)?;
        writer.byte(self.key.bytes().len() as u8)?;
        write_fields(&mut writer, bits, &fields)?;
        writer.bytes(self.key.bytes())?;
        writer.bytes(self.value)?;
        Some(room_bytes - writer.rest().len())
    }

    /// The same without the key, which travels beside it, and without its length.
    pub fn encode_without_key(&self, room: &mut [u8]) -> Option<usize> {
        let room_bytes = room.len();
        let (kind, bits, fields) = parts(&self.operation);
        let mut writer = Writer::new(room);
        writer.bytes(&[kind, self.shows as u8])?;
        writer.u16(bits)?;
        write_fields(&mut writer, bits, &fields)?;
        writer.bytes(self.value)?;
        Some(room_bytes - writer.rest().len())
    }

    /// The request about `key` that such bytes are, all of them; `None` if they are none.
    pub fn decode_without_key(key: Key<'a>, bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let [kind, shows] = reader.array()?;
        let bits = reader.u16()?;
        let fields = read_fields(&mut reader, bits)?;
        Self::from_parts(key, (kind, shows), (bits, fields), reader.rest())
    }

    /// The request that `bytes` are, all of them; `None` if they are none.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let [kind, shows] = reader.array()?;
        let bits = reader.u16()?;
        let key_bytes = reader.byte()?;
        let fields = read_fields(&mut reader, bits)?;
        let key = Key::new(reader.bytes(usize::from(key_bytes))?).ok()?;
        Self::from_parts(key, (kind, shows), (bits, fields), reader.rest())
    }

    fn from_parts(
        key: Key<'a>,
        (kind, shows): (u8, u8),
        (bits, fields): (u16, [u64; FIELDS]),
        value: &'a [u8],
    ) -> Option<Self> {
        let operation = operation_of(kind, bits, &fields)?;
        let shows = Shows::from_number(shows)?;
        let is_right = match operation {
            Operation::Get(_) => value.is_empty(),
            Operation::Set(_) => shows == Shows::Nothing,
            _ => value.is_empty() && shows == Shows::Nothing,
        };
        // What says the same in other bytes is not sent by anybody.
        let is_canonical = parts(&operation) == (kind, bits, fields);
        (is_right && is_canonical).then_some(Self {
            key,
            operation,
            shows,
            value,
        })
    }
}

impl ItemRequest<'_> {
    /// Whether `answer` can be the answer to this: of its kind, and with the value that
    /// it asks for.
    pub fn is_answered_by(&self, answer: &ItemAnswer<'_>) -> bool {
        match (&self.operation, &answer.outcome) {
            (Operation::Get(_), Outcome::Found(status)) => match self.shows {
                Shows::Value => answer.value.len() == status.value_bytes as usize,
                Shows::Nothing | Shows::Status => answer.value.is_empty(),
            },
            (Operation::Get(_), Outcome::Missing)
            | (Operation::Set(_), Outcome::Set(_))
            | (Operation::Delete(_), Outcome::Delete(_))
            | (Operation::Arithmetic(_), Outcome::Arithmetic(_)) => true,
            _ => false,
        }
    }
}

const GET: u8 = 0;
const SET: u8 = 1;
const DELETE: u8 = 2;
const ARITHMETIC: u8 = 3;

/// Fields of eight bytes that an operation may have; a bit says whether it is there.
const FIELDS: usize = 6;

/// Bits above those of the fields are switches of the operation.
const SWITCH: u16 = 1 << FIELDS;

/// The mode of a write stands above its switch.
const MODE_SHIFT: u32 = FIELDS as u32 + 2;

fn write_fields(writer: &mut Writer<'_>, bits: u16, fields: &[u64; FIELDS]) -> Option<()> {
    for (number, field) in fields.iter().enumerate() {
        if bits >> number & 1 != 0 {
            writer.u64(*field)?;
        }
    }
    Some(())
}

fn read_fields(reader: &mut Reader<'_>, bits: u16) -> Option<[u64; FIELDS]> {
    let mut fields = [0; FIELDS];
    for (number, field) in fields.iter_mut().enumerate() {
        if bits >> number & 1 != 0 {
            *field = reader.u64()?;
        }
    }
    Some(fields)
}

fn parts(operation: &Operation) -> (u8, u16, [u64; FIELDS]) {
    let time = |exptime: Option<Exptime>| exptime.map(|Exptime(seconds)| seconds.cast_unsigned());
    let cas = |cas: Option<Cas>| cas.map(|Cas(version)| version);
    let plain = |number: u64| (number != 0).then_some(number);
    let (kind, switches, fields) = match *operation {
        Operation::Get(get) => (
            GET,
            [get.quiet_access, get.keep_token],
            [
                time(get.touch),
                time(get.vivify),
                time(get.recache),
                cas(get.new_cas),
                None,
                None,
            ],
        ),
        Operation::Set(set) => (
            SET,
            [set.invalidate, false],
            [
                plain(u64::from(set.flags)),
                plain(set.exptime.0.cast_unsigned()),
                cas(set.compare),
                time(set.vivify),
                cas(set.new_cas),
                None,
            ],
        ),
        Operation::Delete(delete) => (
            DELETE,
            [delete.invalidate, delete.drop_value],
            [
                cas(delete.compare),
                time(delete.touch),
                cas(delete.new_cas),
                None,
                None,
                None,
            ],
        ),
        Operation::Arithmetic(arithmetic) => (
            ARITHMETIC,
            [arithmetic.direction == Direction::Decrement, false],
            [
                plain(arithmetic.delta),
                time(arithmetic.vivify),
                plain(arithmetic.initial),
                time(arithmetic.touch),
                cas(arithmetic.compare),
                cas(arithmetic.new_cas),
            ],
        ),
    };
    let mut bits = (u16::from(switches[0]) + 2 * u16::from(switches[1])) * SWITCH;
    for (number, field) in fields.iter().enumerate() {
        bits |= u16::from(field.is_some()) << number;
    }
    if let Operation::Set(set) = operation {
        bits |= (set.mode as u16) << MODE_SHIFT;
    }
    (kind, bits, fields.map(Option::unwrap_or_default))
}

fn operation_of(kind: u8, bits: u16, fields: &[u64; FIELDS]) -> Option<Operation> {
    let field = |number: usize| {
        let value = fields.get(number).copied();
        value.filter(|_| bits >> number & 1 != 0)
    };
    let time = |number| field(number).map(|seconds| Exptime(seconds.cast_signed()));
    let cas = |number| field(number).map(Cas);
    let small = |number| field(number).map(u32::try_from).transpose().ok();
    let (first, second) = (bits & SWITCH != 0, bits & (SWITCH * 2) != 0);
    Some(match kind {
        GET => Operation::Get(Get {
            touch: time(0),
            vivify: time(1),
            recache: time(2),
            new_cas: cas(3),
            quiet_access: first,
            keep_token: second,
        }),
        SET => Operation::Set(Set {
            mode: SetMode::from_number(u8::try_from(bits >> MODE_SHIFT).ok()?)?,
            flags: small(0)?.unwrap_or(0),
            exptime: time(1).unwrap_or_default(),
            compare: cas(2),
            vivify: time(3),
            new_cas: cas(4),
            invalidate: first,
        }),
        DELETE => Operation::Delete(Delete {
            compare: cas(0),
            touch: time(1),
            new_cas: cas(2),
            invalidate: first,
            drop_value: second,
        }),
        ARITHMETIC => Operation::Arithmetic(Arithmetic {
            direction: match first {
                true => Direction::Decrement,
                false => Direction::Increment,
            },
            delta: field(0).unwrap_or(0),
            vivify: time(1),
            initial: field(2).unwrap_or(0),
            touch: time(3),
            compare: cas(4),
            new_cas: cas(5),
        }),
        _ => return None,
    })
}
