//! The text commands on items, one line each.
//!
//! memcached counts the words first, and a wrong count is `ERROR` even to a client that asked for
//! no reply; only then does a last word `noreply` silence what follows, errors included. A word too
//! many in the place of `noreply` is ignored.

use curtail_types::{
    Arithmetic, Cas, Delete, Direction, Exptime, Get, Key, Operation, Set, SetMode,
};

use super::{
    Decoded, Form, Limits, Request, SetHeader, WireKey, Words,
    decode::{Decoder, complete, refused},
    encode::Refusal,
    line::{Line, skip_spaces, split_key, split_word},
    multi_key_get::{self, Keys},
    number,
};

/// A command of this family, or `None`.
pub(super) fn decode<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    name: &[u8],
    words: &'a [u8],
    limits: &Limits,
) -> Option<Decoded<'a>> {
    Some(match name {
        b"get" | b"bget" => get(decoder, line, words, false),
        b"gets" => get(decoder, line, words, true),
        b"gat" => get_and_touch(decoder, line, words, false),
        b"gats" => get_and_touch(decoder, line, words, true),
        b"set" => store(decoder, line, words, SetMode::Set, limits),
        b"add" => store(decoder, line, words, SetMode::Add, limits),
        b"replace" => store(decoder, line, words, SetMode::Replace, limits),
        b"append" => store(decoder, line, words, SetMode::Append, limits),
        b"prepend" => store(decoder, line, words, SetMode::Prepend, limits),
        b"cas" => compare_and_set(decoder, line, words, limits),
        b"incr" => arithmetic(line, words, Direction::Increment),
        b"decr" => arithmetic(line, words, Direction::Decrement),
        b"touch" => touch(line, words),
        b"delete" => delete(line, words),
        _ => return None,
    })
}

/// `set <key> <flags> <exptime> <bytes> [noreply]`
#[inline]
pub(super) fn set<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    words: &'a [u8],
    limits: &Limits,
) -> Decoded<'a> {
    store(decoder, line, words, SetMode::Set, limits)
}

/// `get <key>*`
fn get<'a>(decoder: &mut Decoder, line: Line<'a>, words: &'a [u8], with_cas: bool) -> Decoded<'a> {
    let touch = None;
    multi_key_get::begin(decoder, line, words, Keys { with_cas, touch })
}

/// `gat <exptime> <key>*`
fn get_and_touch<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    words: &'a [u8],
    with_cas: bool,
) -> Decoded<'a> {
    let Some((exptime, words)) = split_word(words) else {
        return refused(line.bytes, false, Refusal::Error);
    };
    let Some(exptime) = number::signed(exptime) else {
        return refused(line.bytes, false, Refusal::BadExptime);
    };
    if skip_spaces(words).is_empty() {
        // Unlike `get`, memcached answers for no key at all.
        return Decoded::Malformed {
            reply: b"END\r\n",
            consumed: line.bytes,
            close: false,
        };
    }
    let touch = Some(Exptime(exptime));
    multi_key_get::begin(decoder, line, words, Keys { with_cas, touch })
}

/// `<name> <key> <flags> <exptime> <bytes> [noreply]`
#[inline]
fn store<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    words: &'a [u8],
    mode: SetMode,
    limits: &Limits,
) -> Decoded<'a> {
    match store_header(words, mode) {
        Some((header, [])) => decoder.store(line, header, limits),
        Some((header, rest)) => store_with_option(decoder, line, header, rest, limits),
        None => refused_counted(line, words, 4..=5, Refusal::BadFormat),
    }
}

/// `cas <key> <flags> <exptime> <bytes> <cas unique> [noreply]`
fn compare_and_set<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    words: &'a [u8],
    limits: &Limits,
) -> Decoded<'a> {
    let header = store_header(words, SetMode::Set).and_then(|(mut header, rest)| {
        let (unique, rest) = split_word(rest)?;
        header.set.compare = Some(Cas(number::unsigned(unique)?));
        Some((header, rest))
    });
    match header {
        Some((header, rest)) => store_with_option(decoder, line, header, rest, limits),
        None => refused_counted(line, words, 5..=6, Refusal::BadFormat),
    }
}

/// The words that every write has, and what follows them.
#[inline]
fn store_header(words: &[u8], mode: SetMode) -> Option<(SetHeader<'_>, &[u8])> {
    let (key, rest) = split_key(words).ok()?;
    let (flags, rest) = split_word(rest)?;
    let (exptime, rest) = split_word(rest)?;
    let (value_bytes, rest) = split_word(rest)?;
    let header = SetHeader {
        key: WireKey::plain(key),
        set: Set {
            mode,
            flags: number::unsigned_32(flags)?,
            exptime: Exptime(number::signed(exptime)?),
            ..Set::default()
        },
        value_bytes: number::value_bytes(value_bytes)?,
        form: Form::Line { noreply: false },
    };
    Some((header, rest))
}

/// A write with at most one more word, which may be `noreply`.
fn store_with_option<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    mut header: SetHeader<'a>,
    rest: &'a [u8],
    limits: &Limits,
) -> Decoded<'a> {
    let mut words = Words::new(rest);
    header.form = Form::Line {
        noreply: words.next() == Some(b"noreply"),
    };
    if words.next().is_some() {
        return refused(line.bytes, false, Refusal::Error);
    }
    decoder.store(line, header, limits)
}

/// `incr <key> <delta> [noreply]`
fn arithmetic<'a>(line: Line<'a>, words: &'a [u8], direction: Direction) -> Decoded<'a> {
    key_and_word(line, words, Refusal::BadDelta, |delta| {
        Some(Operation::Arithmetic(Arithmetic {
            direction,
            delta: number::unsigned(delta)?,
            ..Arithmetic::default()
        }))
    })
}

/// `touch <key> <exptime> [noreply]`
fn touch<'a>(line: Line<'a>, words: &'a [u8]) -> Decoded<'a> {
    key_and_word(line, words, Refusal::BadExptime, |exptime| {
        Some(Operation::Get(Get {
            touch: Some(Exptime(number::signed(exptime)?)),
            keep_token: true,
            ..Get::default()
        }))
    })
}

/// A command of a key, one more word that `operation` understands, and perhaps `noreply`.
fn key_and_word<'a>(
    line: Line<'a>,
    words: &'a [u8],
    refusal: Refusal,
    operation: impl FnOnce(&[u8]) -> Option<Operation>,
) -> Decoded<'a> {
    let Ok((key, rest)) = split_key(words) else {
        return refused_counted(line, words, 2..=3, Refusal::BadFormat);
    };
    let Some((word, rest)) = split_word(rest) else {
        return refused(line.bytes, false, Refusal::Error);
    };
    let noreply = match count(rest) {
        (0, _) => word == b"noreply",
        (1, noreply) => noreply,
        _ => return refused(line.bytes, false, Refusal::Error),
    };
    match operation(word) {
        Some(operation) => complete(line, item(key, operation, noreply)),
        None => refused(line.bytes, noreply, refusal),
    }
}

/// `delete <key> [0] [noreply]`: the 0 is the rest of a time that old clients could give.
fn delete<'a>(line: Line<'a>, words: &'a [u8]) -> Decoded<'a> {
    if let Ok((key, [])) = split_key(words) {
        return complete(line, item(key, Operation::Delete(Delete::default()), false));
    }
    let (count @ 1..=3, noreply) = count(words) else {
        return refused(line.bytes, false, Refusal::Error);
    };
    let has_zero = Words::new(words).nth(1) == Some(b"0");
    let (noreply, is_valid) = match count {
        1 => (false, true),
        2 => (noreply, has_zero || noreply),
        _ => (noreply, has_zero && noreply),
    };
    if !is_valid {
        return refused(line.bytes, noreply, Refusal::BadDelete);
    }
    match split_key(words) {
        Ok((key, _)) => complete(
            line,
            item(key, Operation::Delete(Delete::default()), noreply),
        ),
        Err(refusal) => refused(line.bytes, noreply, refusal),
    }
}

fn item(key: Key<'_>, operation: Operation, noreply: bool) -> Request<'_> {
    Request::Item {
        key: WireKey::plain(key),
        operation,
        value: &[],
        form: Form::Line { noreply },
    }
}

/// How many words there are, and whether the last is `noreply`.
fn count(words: &[u8]) -> (usize, bool) {
    let mut last = None;
    let count = Words::new(words).inspect(|word| last = Some(*word)).count();
    (count, last == Some(b"noreply"))
}

#[cold]
fn refused_counted<'a>(
    line: Line<'a>,
    words: &[u8],
    counts: core::ops::RangeInclusive<usize>,
    refusal: Refusal,
) -> Decoded<'a> {
    let (count, noreply) = count(words);
    if counts.contains(&count) {
        refused(line.bytes, noreply, refusal)
    } else {
        refused(line.bytes, false, Refusal::Error)
    }
}
