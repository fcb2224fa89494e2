//! The fast path: decodes the forms that nearly every request has, in one pass.
//!
//! The general way finds the line's end first and then splits the line. Here `get <key>`,
//! `mg <key> <flags>*`, `set <key> <flags> <exptime> <bytes>` and `ms <key> <bytes> <flags>*` are
//! read from left to right, and the line's end is met on the way; this saves a third to a half of
//! the instructions (`benches/instructions.rs`). Whatever is not exactly such a form, is wrong, or
//! has not come whole is left to the general way, which alone decides on errors.
//!
//! Invariant: where this way has an answer, the general way has the same (a fuzz target checks it).

use curtail_types::{Exptime, Get, Operation, Set};

use super::{
    Decoded, Form, Limits, OPAQUE_BYTES_MAX, Request, WireKey,
    decode::complete,
    flags::{self, Flags},
    line::{Line, WINDOW_BYTES, split_key_unended},
    meta,
    multi_key_get::Keys,
    number,
};

/// The request at the front of `input`, if it has one of the usual forms and is whole.
#[inline(always)] // out of line a read takes 28 instructions more
pub(super) fn decode<'a>(input: &'a [u8], limits: &Limits) -> Option<Decoded<'a>> {
    match input {
        [b'm', b'g', b' ', words @ ..] => meta_get(input, words),
        [b'g', b'e', b't', b' ', words @ ..] => get(input, words, false),
        [b'g', b'e', b't', b's', b' ', words @ ..] => get(input, words, true),
        [b'm', b's', b' ', words @ ..] => meta_set(input, words, limits),
        [b's', b'e', b't', b' ', words @ ..] => set(input, words, limits),
        _ => None,
    }
}

#[inline]
fn get<'a>(input: &'a [u8], words: &'a [u8], with_cas: bool) -> Option<Decoded<'a>> {
    let (key, rest) = split_key_unended(words)?;
    let line = end(input, rest)?;
    let touch = None;
    Some(complete(line, Keys { with_cas, touch }.request(key, true)))
}

#[inline]
fn meta_get<'a>(input: &'a [u8], words: &'a [u8]) -> Option<Decoded<'a>> {
    let (key, rest) = split_key_unended(words)?;
    let (meta, rest) = flags::parse_plain(rest)?;
    let line = end(input, rest)?;
    let request = Request::Item {
        key: WireKey::plain(key),
        operation: Operation::Get(Get::default()),
        value: &[],
        form: Form::Meta(meta),
    };
    (meta.opaque.len() <= OPAQUE_BYTES_MAX).then_some(complete(line, request))
}

#[inline]
fn meta_set<'a>(input: &'a [u8], words: &'a [u8], limits: &Limits) -> Option<Decoded<'a>> {
    let (key, rest) = split_key_unended(words)?;
    let (value_bytes, rest) = number::leading_value_bytes(rest.strip_prefix(b" ")?)?;
    if !matches!(rest, [b' ' | b'\r', ..]) {
        return None;
    }
    let (flags, rest) = Flags::parse(key, rest, meta::SET_FLAGS_MAX).ok()?;
    let (value, consumed) = short_value(input, rest, value_bytes, limits)?;
    Some(Decoded::Complete {
        request: Request::Item {
            key: flags.key,
            operation: Operation::Set(meta::set_operation(&flags).ok()?),
            value,
            form: Form::Meta(flags.meta),
        },
        consumed,
    })
}

#[inline]
fn set<'a>(input: &'a [u8], words: &'a [u8], limits: &Limits) -> Option<Decoded<'a>> {
    let (key, rest) = split_key_unended(words)?;
    let (flags, rest) = number::leading(rest.strip_prefix(b" ")?)?;
    let (exptime, rest) = number::leading(rest.strip_prefix(b" ")?)?;
    let (value_bytes, rest) = number::leading_value_bytes(rest.strip_prefix(b" ")?)?;
    let (noreply, rest) = match rest.strip_prefix(b" noreply") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (value, consumed) = short_value(input, rest, value_bytes, limits)?;
    Some(Decoded::Complete {
        request: Request::Item {
            key: WireKey::plain(key),
            operation: Operation::Set(Set {
                flags: flags.try_into().ok()?,
                exptime: Exptime(exptime.try_into().ok()?),
                ..Set::default()
            }),
            value,
            form: Form::Line { noreply },
        },
        consumed,
    })
}

/// The value behind the line that ends where `rest` begins, if it is short, whole and well ended,
/// and how many bytes all of it has.
#[inline]
fn short_value<'a>(
    input: &'a [u8],
    rest: &'a [u8],
    value_bytes: u32,
    limits: &Limits,
) -> Option<(&'a [u8], usize)> {
    if value_bytes > limits.inline_value_bytes_max || value_bytes > limits.value_bytes_max {
        return None;
    }
    let line = end(input, rest)?;
    let (value, after) = line.after.split_at_checked(value_bytes as usize)?;
    let after = after.strip_prefix(b"\r\n")?;
    Some((value, input.len() - after.len()))
}

/// The line that ends where `rest` begins.
#[inline]
fn end<'a>(input: &'a [u8], rest: &'a [u8]) -> Option<Line<'a>> {
    let after = rest.strip_prefix(b"\r\n")?;
    let bytes = input.len() - after.len();
    (bytes <= WINDOW_BYTES).then_some(Line {
        text: &[],
        after,
        bytes,
    })
}
