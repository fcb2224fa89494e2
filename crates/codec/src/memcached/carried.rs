//! A request about one item as bytes, for another node or for a later turn.
//!
//! What a client sent cannot be passed on as it came: a `get` of many keys is one line, and its
//! keys have different homes. So what was decoded is written down: operation, form of the reply,
//! key, opaque token and value, each field only where it is not its default.
//!
//! ```text
//!   0      1      3    4              8
//!   +------+------+----+--------------+--------+-----+--------+-------+
//!   | kind | form | ...  value bytes  | fields | key | opaque | value |
//!   +------+------+----+--------------+--------+-----+--------+-------+
//! ```

use curtail_types::{
    Arithmetic, Cas, Delete, Direction, Exptime, Get, Key, Operation, Set, SetMode,
};

use super::{
    request::{Form, KeyScratch, Meta, Returns, WireKey},
    sink::Sink,
};

/// A request about one item, as [`Request::Item`](super::Request::Item) has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Carried<'a> {
    /// The key.
    pub key: WireKey<'a>,
    /// What to do.
    pub operation: Operation,
    /// The value of a [`Operation::Set`]; empty for the others.
    pub value: &'a [u8],
    /// How to spell the reply.
    pub form: Form<'a>,
}

impl<'a> Carried<'a> {
    /// The most bytes that a request takes beside its value.
    pub const HEAD_BYTES_MAX: usize = 512;

    /// Writes the request down: at most [`Carried::HEAD_BYTES_MAX`] bytes and the value.
    pub fn write(&self, sink: &mut Sink<'_>) {
        let (kind, bits, fields) = parts(&self.operation);
        let (form, form_bits, opaque) = form_parts(&self.form);
        sink.push(&[kind, form | u8::from(self.key.is_base64()) << BASE64_SHIFT]);
        sink.push(&form_bits.to_le_bytes());
        sink.push(&bits.to_le_bytes());
        sink.push(&[self.key.text().len() as u8, opaque.len() as u8]);
        sink.push(&(self.value.len() as u32).to_le_bytes());
        for (number, field) in fields.iter().enumerate() {
            if bits >> number & 1 != 0 {
                sink.push(&field.to_le_bytes());
            }
        }
        sink.push(self.key.text());
        sink.push(opaque);
        sink.push(self.value);
    }

    /// The request that `bytes` begin with, and what follows it; `None` when they are not one.
    pub fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut cursor = Cursor(bytes);
        let [kind, form] = cursor.take()?;
        let form_bits = u32::from_le_bytes(cursor.take()?);
        let bits = u16::from_le_bytes(cursor.take()?);
        let [key_bytes, opaque_bytes] = cursor.take()?;
        let value_bytes = u32::from_le_bytes(cursor.take()?);
        let mut fields = [0; FIELDS];
        for (number, field) in fields.iter_mut().enumerate() {
            if bits >> number & 1 != 0 {
                *field = u64::from_le_bytes(cursor.take()?);
            }
        }
        let text = WireKey::plain(Key::new(cursor.slice(usize::from(key_bytes))?).ok()?);
        let key = match form >> BASE64_SHIFT {
            0 => text,
            _ => text.as_base64()?,
        };
        let opaque = cursor.slice(usize::from(opaque_bytes))?;
        let value = cursor.slice(value_bytes as usize)?;
        let carried = Self {
            key,
            operation: operation_of(kind, bits, &fields)?,
            value,
            form: form_of(form & FORM_MASK, form_bits, opaque)?,
        };
        Some((carried, cursor.0))
    }

    /// The key itself.
    pub fn resolve<'s>(&self, scratch: &'s mut KeyScratch) -> Key<'s>
    where
        'a: 's,
    {
        self.key.resolve(scratch)
    }
}

/// What is left to read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

// ---- operations ----

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
            mode: mode_of(bits >> MODE_SHIFT)?,
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

fn mode_of(number: u16) -> Option<SetMode> {
    let modes = [
        SetMode::Set,
        SetMode::Add,
        SetMode::Replace,
        SetMode::Append,
        SetMode::Prepend,
    ];
    let mode = modes.get(usize::from(number)).copied()?;
    assert!(mode as u16 == number, "modes are listed in their order");
    Some(mode)
}

// ---- forms ----

const VALUE: u8 = 0;
const LINE: u8 = 1;
const META: u8 = 2;
const DEBUG: u8 = 3;
const FORM_MASK: u8 = 0xf;
const BASE64_SHIFT: u32 = 4;

/// The form's number with its two switches, what a meta reply returns, and the opaque token.
fn form_parts<'a>(form: &Form<'a>) -> (u8, u32, &'a [u8]) {
    let with = |number: u8, first: bool, second: bool| {
        number | u8::from(first) << 2 | u8::from(second) << 3
    };
    match *form {
        Form::Value { with_cas, last } => (with(VALUE, with_cas, last), 0, b""),
        Form::Line { noreply } => (with(LINE, noreply, false), 0, b""),
        Form::Meta(meta) => (
            with(META, meta.value, meta.quiet),
            meta.returns.to_bits(),
            meta.opaque,
        ),
        Form::Debug => (DEBUG, 0, b""),
    }
}

fn form_of(number: u8, returns: u32, opaque: &[u8]) -> Option<Form<'_>> {
    let (first, second) = (number & 4 != 0, number & 8 != 0);
    Some(match number & 3 {
        VALUE => Form::Value {
            with_cas: first,
            last: second,
        },
        LINE => Form::Line { noreply: first },
        META => Form::Meta(Meta {
            returns: Returns::from_bits(returns)?,
            opaque: Some(opaque).filter(|token| token.len() <= super::OPAQUE_BYTES_MAX)?,
            value: first,
            quiet: second,
        }),
        _ => Form::Debug,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::{Decoded, Decoder, Limits, Request};

    const LIMITS: Limits = Limits {
        value_bytes_max: 1000,
        inline_value_bytes_max: 1000,
    };

    /// Goal: what is read is what was written. Method: requests of every family, with every flag,
    /// decoded as from a client, written, and read again from among others.
    #[test]
    fn what_is_read_is_what_was_written() {
        let lines: &[&[u8]] = &[
            b"get one two three\r\n",
            b"gets one\r\n",
            b"gat 100 one two\r\n",
            b"touch one -1\r\n",
            b"set one 4294967295 2000000000 3\r\nabc\r\n",
            b"set one 0 0 0 noreply\r\n\r\n",
            b"add one 0 0 1\r\nx\r\n",
            b"replace one 0 0 1\r\nx\r\n",
            b"append one 0 0 1\r\nx\r\n",
            b"prepend one 0 0 1\r\nx\r\n",
            b"cas one 1 2 1 18446744073709551615\r\nx\r\n",
            b"incr one 18446744073709551615\r\n",
            b"decr one 0 noreply\r\n",
            b"delete one\r\n",
            b"mg b25l b s t c f l h k v q Oabc N30 R5 T99 E7\r\n",
            b"mg one\r\n",
            b"ms one 2 c k Oxyz F3 T-1 C9 E10 I MA N4 q\r\nab\r\n",
            b"ms one 0 MR\r\n\r\n",
            b"md one q I T30 x C5 E6 k O1\r\n",
            b"ma one N0 J13 D9 T60 MD v t c q C1 E2\r\n",
            b"ma one\r\n",
            b"me one\r\n",
        ];
        let mut requests = 0;
        for line in lines {
            let mut decoder = Decoder::new(false);
            let mut input = *line;
            while !input.is_empty() {
                let Decoded::Complete { request, consumed } = decoder.decode(input, &LIMITS) else {
                    panic!("not a request: {}", line.escape_ascii());
                };
                input = &input[consumed..];
                if let Request::EndOfKeys { refusal: None } = request {
                    continue;
                }
                let Request::Item {
                    key,
                    operation,
                    value,
                    form,
                } = request
                else {
                    panic!("not about an item: {}", line.escape_ascii());
                };
                let carried = Carried {
                    key,
                    operation,
                    value,
                    form,
                };
                let mut room = [0; Carried::HEAD_BYTES_MAX + 16];
                let mut sink = Sink::new(&mut room);
                carried.write(&mut sink);
                sink.push(b"behind");
                assert!(!sink.overflowed());
                let read = Carried::read(sink.written());
                assert_eq!(read, Some((carried, &b"behind"[..])));
                requests += 1;
            }
        }
        assert_eq!(requests, lines.len() + 3);
    }

    /// Goal: bytes of a broken or hostile node never panic, and never give a key or a token that a
    /// client could not have sent. Method: every byte of a request takes many values, and every
    /// beginning of it is read.
    #[test]
    fn broken_bytes_are_refused_or_are_another_request() {
        let carried = Carried {
            key: WireKey::plain(Key::new(b"key").unwrap()),
            operation: Operation::Set(Set {
                flags: 7,
                compare: Some(Cas(9)),
                ..Set::default()
            }),
            value: b"value",
            form: Form::Meta(Meta {
                opaque: b"token",
                ..Meta::NONE
            }),
        };
        let mut room = [0; Carried::HEAD_BYTES_MAX];
        let mut sink = Sink::new(&mut room);
        carried.write(&mut sink);
        let bytes = sink.written();
        for length in 0..bytes.len() {
            assert_eq!(Carried::read(&bytes[..length]), None, "{length}");
        }
        for place in 0..bytes.len() {
            for change in 1..=255 {
                let mut broken = [0; Carried::HEAD_BYTES_MAX];
                broken[..bytes.len()].copy_from_slice(bytes);
                broken[place] ^= change;
                if let Some((read, _)) = Carried::read(&broken[..bytes.len()]) {
                    assert!(!read.key.text().is_empty() && read.key.text().len() <= 250);
                    let mut room = [0; Carried::HEAD_BYTES_MAX];
                    let mut again = Sink::new(&mut room);
                    read.write(&mut again);
                    assert!(Carried::read(again.written()).is_some());
                }
            }
        }
    }
}
