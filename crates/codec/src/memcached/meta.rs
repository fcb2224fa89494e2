//! The meta commands: `mg`, `ms`, `md`, `ma` and `me`. (`mn` needs no file.)

use curtail_types::{
    Arithmetic, Cas, Delete, Direction, Exptime, Get, Key, Operation, Set, SetMode,
};

use super::{
    Decoded, Form, Limits, Request, SetHeader, WireKey, Words,
    decode::{Decoder, LINE_END_BYTES, complete, refused},
    encode::Refusal,
    flags::{BadFlags, Flags},
    line::{Line, split_key, split_word},
    number,
};

/// `mg <key> <flags>*`
#[inline]
pub(super) fn get<'a>(line: Line<'a>, words: &'a [u8]) -> Decoded<'a> {
    let (key, rest) = match split_key(words) {
        Ok(split) => split,
        Err(refusal) => return refused(line.bytes, false, refusal),
    };
    let flags = match Flags::parse(key, rest, FLAGS_MAX) {
        Ok((flags, _)) if flags.opaque_is_too_long() => {
            return refused(line.bytes, false, Refusal::OpaqueTooLong);
        }
        Ok((flags, _)) => flags,
        Err(BadFlags::TooMany) => return refused(line.bytes, false, Refusal::TooManyFlags),
        Err(BadFlags::Bad(refusal)) => return refused(line.bytes, false, refusal),
    };
    complete(line, get_item(&flags))
}

/// The request of `mg`.
#[inline]
pub(super) fn get_item<'a>(flags: &Flags<'a>) -> Request<'a> {
    let operation = Operation::Get(Get {
        touch: flags.touch,
        vivify: flags.vivify,
        recache: flags.recache,
        quiet_access: flags.quiet_access,
        new_cas: flags.new_cas,
        keep_token: false,
    });
    item(flags, operation)
}

/// `ms <key> <bytes> <flags>*`
///
/// Once the length is known, every error swallows the value.
#[inline]
pub(super) fn set<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    words: &'a [u8],
    limits: &Limits,
) -> Decoded<'a> {
    let (key, rest) = match split_key(words) {
        Ok(split) => split,
        Err(refusal) => return refused(line.bytes, false, refusal),
    };
    let Some((bytes, rest)) = split_word(rest) else {
        return refused(line.bytes, false, Refusal::BadFormat);
    };
    let Some(value_bytes) = number::value_bytes(bytes) else {
        return bad_set_length(line, rest);
    };
    match set_header(key, value_bytes, rest) {
        Ok(header) => decoder.store(line, header, limits),
        Err(BadFlags::TooMany) => refused(line.bytes, false, Refusal::TooManyFlagsOther),
        Err(BadFlags::Bad(refusal)) => {
            decoder.swallow(u64::from(value_bytes) + LINE_END_BYTES as u64);
            refused(line.bytes, false, refusal)
        }
    }
}

/// `md <key> <flags>*`
pub(super) fn delete<'a>(line: Line<'a>, words: &'a [u8]) -> Decoded<'a> {
    let flags = match key_and_flags(words) {
        Ok(flags) => flags,
        Err(refusal) => return refused(line.bytes, false, refusal),
    };
    if flags.opaque_is_too_long() {
        return refused(line.bytes, false, Refusal::OpaqueTooLong);
    }
    let operation = Operation::Delete(Delete {
        compare: flags.compare,
        invalidate: flags.invalidate,
        touch: flags.touch,
        drop_value: flags.drop_value,
        new_cas: flags.new_cas,
    });
    complete(line, item(&flags, operation))
}

/// `ma <key> <flags>*`
pub(super) fn arithmetic<'a>(line: Line<'a>, words: &'a [u8]) -> Decoded<'a> {
    let flags = match key_and_flags(words) {
        Ok(flags) => flags,
        Err(refusal) => return refused(line.bytes, false, refusal),
    };
    let direction = match flags.mode {
        0 | b'I' | b'+' => Direction::Increment,
        b'D' | b'-' => Direction::Decrement,
        _ => return refused(line.bytes, false, Refusal::BadArithmeticMode),
    };
    if flags.opaque_is_too_long() {
        return refused(line.bytes, false, Refusal::OpaqueTooLong);
    }
    let operation = Operation::Arithmetic(Arithmetic {
        direction,
        delta: flags.delta,
        vivify: flags.vivify,
        initial: flags.initial,
        touch: flags.touch,
        // As with memcached: no item has version 0, and here it asks for none.
        compare: flags.compare.filter(|compare| *compare != Cas(0)),
        new_cas: flags.new_cas,
    });
    complete(line, item(&flags, operation))
}

/// `me <key> [b]`
pub(super) fn debug<'a>(line: Line<'a>, words: &'a [u8]) -> Decoded<'a> {
    let key = split_key(words).ok().and_then(|(key, rest)| {
        let key = WireKey::plain(key);
        if Words::new(rest).next() == Some(b"b") {
            key.as_base64()
        } else {
            Some(key)
        }
    });
    let Some(key) = key else {
        return refused(line.bytes, false, Refusal::BadFormat);
    };
    let request = Request::Item {
        key,
        operation: Operation::Get(Get {
            quiet_access: true,
            keep_token: true,
            ..Get::default()
        }),
        value: &[],
        form: Form::Debug,
    };
    complete(line, request)
}

fn set_header<'a>(
    key: Key<'a>,
    value_bytes: u32,
    words: &'a [u8],
) -> Result<SetHeader<'a>, BadFlags> {
    let (flags, _) = Flags::parse(key, words, SET_FLAGS_MAX)?;
    Ok(SetHeader {
        key: flags.key,
        set: set_operation(&flags).map_err(BadFlags::Bad)?,
        value_bytes,
        form: Form::Meta(flags.meta),
    })
}

/// What the flags of `ms` ask for.
#[inline(always)] // by reference, `flags` would be copied to memory three times
pub(super) fn set_operation(flags: &Flags<'_>) -> Result<Set, Refusal> {
    let mode = match flags.mode {
        0 | b'S' => SetMode::Set,
        b'E' => SetMode::Add,
        b'A' => SetMode::Append,
        b'P' => SetMode::Prepend,
        b'R' => SetMode::Replace,
        _ => return Err(Refusal::BadSetMode),
    };
    if flags.opaque_is_too_long() {
        return Err(Refusal::OpaqueTooLong);
    }
    let joins = matches!(mode, SetMode::Append | SetMode::Prepend);
    Ok(Set {
        mode,
        flags: flags.client_flags,
        exptime: flags.touch.unwrap_or(Exptime::NEVER),
        // As with memcached: no item has version 0, and here it asks for none.
        compare: flags
            .compare
            .filter(|compare| !(joins && *compare == Cas(0))),
        invalidate: flags.invalidate,
        vivify: flags.vivify,
        new_cas: flags.new_cas,
    })
}

/// What `md` and `ma` have in common: they tell little about bad flags.
fn key_and_flags(words: &[u8]) -> Result<Flags<'_>, Refusal> {
    let (key, rest) = split_key(words)?;
    match Flags::parse(key, rest, FLAGS_MAX) {
        Ok((flags, _)) => Ok(flags),
        Err(BadFlags::TooMany) => Err(Refusal::TooManyFlagsOther),
        Err(BadFlags::Bad(_)) => Err(Refusal::InvalidOrDuplicateFlag),
    }
}

#[inline]
fn item<'a>(flags: &Flags<'a>, operation: Operation) -> Request<'a> {
    Request::Item {
        key: flags.key,
        operation,
        value: &[],
        form: Form::Meta(flags.meta),
    }
}

#[cold]
fn bad_set_length<'a>(line: Line<'a>, words: &[u8]) -> Decoded<'a> {
    let has_too_many = Words::new(words).count() > SET_FLAGS_MAX;
    let refusal = if has_too_many {
        Refusal::TooManyFlagsOther
    } else {
        Refusal::BadFormat
    };
    refused(line.bytes, false, refusal)
}

/// A meta command has at most 19 words, its name and key included.
pub(super) const FLAGS_MAX: usize = 17;

/// `ms` has its length among them.
pub(super) const SET_FLAGS_MAX: usize = FLAGS_MAX - 1;
