//! The fast path: decodes the forms that nearly every request has, in one pass.
//!
//! The general way finds the line's end first and then splits the line. Here `get <key>`,
//! `mg <key> <flags>*`, `set <key> <flags> <exptime> <bytes>` and `ms <key> <bytes> <flags>*` are
//! read from left to right, and the line's end is met on the way; this saves a third to a half of
//! the instructions (`benches/instructions.rs`). Whatever is not exactly such a form, is wrong, or
//! has not come whole is left to the general way, which alone decides on errors.
//!
//! Invariant: where this way has an answer, the general way has the same (a fuzz target checks it).

use curtail_types::{Exptime, Get, Key, Operation, Set};

use super::{
    Decoded, Form, Limits, Meta, OPAQUE_BYTES_MAX, Request, WireKey,
    decode::complete,
    flags::{self, Flags},
    line::{Line, WINDOW_BYTES, split_key_unended},
    meta,
    multi_key_get::Keys,
    number,
};

/// The request at the front of `input`, if it has one of the usual forms and is whole; otherwise
/// what `general` makes of it.
///
/// Each arm writes its request once, where the caller wants it: from an `Option<Decoded>` the
/// compiler copies 150 bytes more for each request.
#[inline(always)] // out of line a read takes 28 instructions more
pub(super) fn decode<'a>(
    input: &'a [u8],
    limits: &Limits,
    general: impl FnOnce() -> Decoded<'a>,
) -> Decoded<'a> {
    match input {
        [b'm', b'g', b' ', words @ ..] => {
            if let Some((key, meta, line)) = meta_get(input, words) {
                let request = Request::Item {
                    key: WireKey::plain(key),
                    operation: Operation::Get(Get::default()),
                    value: &[],
                    form: Form::Meta(meta),
                };
                return complete(line, request);
            }
        }
        [b'g', b'e', b't', b' ', words @ ..] => {
            if let Some((key, line)) = get(input, words) {
                return complete(line, GET.request(key, true));
            }
        }
        [b'g', b'e', b't', b's', b' ', words @ ..] => {
            if let Some((key, line)) = get(input, words) {
                return complete(line, GETS.request(key, true));
            }
        }
        [b'm', b's', b' ', words @ ..] => {
            if let Some((flags, set, value, consumed)) = meta_set(input, words, limits) {
                return Decoded::Complete {
                    request: Request::Item {
                        key: flags.key,
                        operation: Operation::Set(set),
                        value,
                        form: Form::Meta(flags.meta),
                    },
                    consumed,
                };
            }
        }
        [b's', b'e', b't', b' ', words @ ..] => {
            if let Some((key, set, value, noreply, consumed)) = set(input, words, limits) {
                return Decoded::Complete {
                    request: Request::Item {
                        key: WireKey::plain(key),
                        operation: Operation::Set(set),
                        value,
                        form: Form::Line { noreply },
                    },
                    consumed,
                };
            }
        }
        _ => {}
    }
    general()
}

const GET: Keys = Keys {
    with_cas: false,
    touch: None,
};

const GETS: Keys = Keys {
    with_cas: true,
    touch: None,
};

#[inline(always)] // as `decode`
fn get<'a>(input: &'a [u8], words: &'a [u8]) -> Option<(Key<'a>, Line<'a>)> {
    let (key, rest) = split_key_unended(words)?;
    Some((key, end(input, rest)?))
}

#[inline(always)] // as `decode`
fn meta_get<'a>(input: &'a [u8], words: &'a [u8]) -> Option<(Key<'a>, Meta<'a>, Line<'a>)> {
    let (key, rest) = split_key_unended(words)?;
    let (meta, rest) = flags::parse_plain(rest)?;
    let line = end(input, rest)?;
    (meta.opaque.len() <= OPAQUE_BYTES_MAX).then_some((key, meta, line))
}

#[inline(always)] // as `decode`
fn meta_set<'a>(
    input: &'a [u8],
    words: &'a [u8],
    limits: &Limits,
) -> Option<(Flags<'a>, Set, &'a [u8], usize)> {
    let (key, rest) = split_key_unended(words)?;
    let (value_bytes, rest) = number::leading_value_bytes(rest.strip_prefix(b" ")?)?;
    if !matches!(rest, [b' ' | b'\r', ..]) {
        return None;
    }
    let (flags, rest) = Flags::parse(key, rest, meta::SET_FLAGS_MAX).ok()?;
    let (value, consumed) = short_value(input, rest, value_bytes, limits)?;
    let set = meta::set_operation(&flags).ok()?;
    Some((flags, set, value, consumed))
}

#[inline(always)] // as `decode`
fn set<'a>(
    input: &'a [u8],
    words: &'a [u8],
    limits: &Limits,
) -> Option<(Key<'a>, Set, &'a [u8], bool, usize)> {
    let (key, rest) = split_key_unended(words)?;
    let (flags, rest) = number::leading(rest.strip_prefix(b" ")?)?;
    let (exptime, rest) = number::leading(rest.strip_prefix(b" ")?)?;
    let (value_bytes, rest) = number::leading_value_bytes(rest.strip_prefix(b" ")?)?;
    let (noreply, rest) = match rest.strip_prefix(b" noreply") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (value, consumed) = short_value(input, rest, value_bytes, limits)?;
    let set = Set {
        flags: flags.try_into().ok()?,
        exptime: Exptime(exptime.try_into().ok()?),
        ..Set::default()
    };
    Some((key, set, value, noreply, consumed))
}

/// The value behind the line that ends where `rest` begins, if it is short, whole and well ended,
/// and how many bytes all of it has.
#[inline(always)] // as `decode`
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
#[inline(always)] // as `decode`
fn end<'a>(input: &'a [u8], rest: &'a [u8]) -> Option<Line<'a>> {
    let after = rest.strip_prefix(b"\r\n")?;
    let bytes = input.len() - after.len();
    (bytes <= WINDOW_BYTES).then_some(Line {
        text: &[],
        after,
        bytes,
    })
}
