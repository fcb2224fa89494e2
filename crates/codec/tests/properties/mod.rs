//! What must hold for every input, as functions of bytes: the fuzzers call them with what they
//! invent, `tests/fuzz.rs` with a fixed seed, and both end in a panic where something does not
//! hold.

use curtail_codec::memcached::{
    BodyEnd, BodyEndState, Decoded, Decoder, Form, KeyScratch, Limits, Request, Return, Sink,
    WireKey, encode,
};
use curtail_types::{
    ArithmeticOutcome, Cas, DeleteOutcome, ItemStatus, Key, Operation, SetOutcome,
};

/// A name, and what must hold.
pub(crate) type Property = (&'static str, fn(&[u8]));

/// Every property.
pub(crate) const REGISTRY: [Property; 3] = [
    ("split_streams", split_streams),
    ("fast_path", fast_path),
    ("replies", replies),
];

/// A stream means the same however it is cut, and every answer of the decoder keeps its promises.
/// The first bytes choose the limits and the cuts, the rest is the stream.
pub(crate) fn split_streams(data: &[u8]) {
    let Some(([seed, options], stream)) = data.split_first_chunk::<2>() else {
        return;
    };
    let limits = Limits {
        value_bytes_max: [0, 5, 40, 1 << 20][usize::from(options & 3)],
        inline_value_bytes_max: [0, 3, 40, 4096][usize::from(options >> 2 & 3)],
    };
    let login = options & 16 != 0;
    let whole = events(stream, limits, login, |left| left);
    for size in [1, 1 + usize::from(*seed)] {
        let cut = events(stream, limits, login, |left| left.min(size));
        assert_eq!(whole, cut, "in pieces of {size}");
    }
}

/// The one-pass reading of the usual forms agrees with the general one, which a space before the
/// command forces.
pub(crate) fn fast_path(data: &[u8]) {
    const LIMITS: Limits = Limits {
        value_bytes_max: 1000,
        inline_value_bytes_max: 100,
    };
    let line_is_ordinary = data.iter().take(2000).any(|&byte| byte == b'\n');
    if !line_is_ordinary || data.first() == Some(&0x80) {
        return;
    }
    let spaced = [b" ", data].concat();
    let quick = Decoder::new(false).decode(data, &LIMITS);
    let general = Decoder::new(false).decode(&spaced, &LIMITS);
    assert_eq!(describe(quick, 0), describe(general, 1));
}

/// No reply is longer than it may be, each is whole lines, and quiet ones are empty.
pub(crate) fn replies(data: &[u8]) {
    let Some((numbers, stream)) = data.split_first_chunk::<24>() else {
        return;
    };
    const LIMITS: Limits = Limits {
        value_bytes_max: u32::MAX,
        inline_value_bytes_max: u32::MAX,
    };
    let mut decoder = Decoder::new(false);
    let mut rest = stream;
    while let Decoded::Complete { request, consumed } = decoder.decode(rest, &LIMITS) {
        if let Request::Item {
            key,
            operation,
            form,
            ..
        } = request
        {
            every_reply(&key, &operation, &form, &status(numbers));
        }
        rest = &rest[consumed..];
    }
}

/// A promise that is broken on purpose, to see that the harness notices: "no key is `canary`".
pub(crate) fn canary(data: &[u8]) {
    const LIMITS: Limits = Limits {
        value_bytes_max: 100,
        inline_value_bytes_max: 100,
    };
    let mut decoder = Decoder::new(false);
    let mut rest = data;
    loop {
        match decoder.decode(rest, &LIMITS) {
            Decoded::Complete { request, consumed } => {
                if let Request::Item { key, .. } = request {
                    assert_ne!(key.text(), b"canary", "the canary sang");
                }
                rest = &rest[consumed..];
            }
            Decoded::Malformed {
                consumed,
                close: false,
                ..
            } => rest = &rest[consumed..],
            _ => return,
        }
    }
}

/// Everything that a connection's stream decodes to, in words. `piece` says how many more of the
/// bytes that are left arrive next.
fn events(
    stream: &[u8],
    limits: Limits,
    login: bool,
    piece: impl Fn(usize) -> usize,
) -> Vec<String> {
    let mut events = Vec::new();
    let mut decoder = Decoder::new(login);
    let (mut start, mut end) = (0, 0);
    // An incomplete answer asks for more input; until then nothing changes.
    let mut needed = 0;
    loop {
        let input = &stream[start..end];
        if input.len() < needed || needed == 0 {
            if end == stream.len() {
                return events;
            }
            let room = limits.input_bytes_max() - input.len();
            assert!(room > 0, "a full buffer must not be incomplete");
            end += piece(stream.len() - end).min(room);
            needed = needed.max(1);
            continue;
        }
        let decoded = decoder.decode(input, &limits);
        match decoded {
            Decoded::Incomplete {
                consumed,
                needed: more,
            } => {
                assert!(consumed <= input.len());
                assert!(more > input.len() - consumed, "nothing is missing");
                assert!(more <= limits.input_bytes_max());
                start += consumed;
                needed = more;
            }
            Decoded::Complete { request, consumed } => {
                assert!((1..=input.len()).contains(&consumed));
                check_request(&request);
                start += consumed;
                events.push(format!("{request:?} until {start}"));
                match request {
                    Request::SetHeader(header) => {
                        start += header.value_bytes as usize;
                        let Some(after) = body_end(stream, start, &mut events) else {
                            return events;
                        };
                        start = after;
                    }
                    Request::Authenticate { user, .. } if user.len() % 2 == 0 => {
                        decoder.authenticated();
                    }
                    _ => {}
                }
                end = end.max(start);
                needed = 1;
            }
            Decoded::Malformed {
                reply,
                consumed,
                close,
            } => {
                assert!((1..=input.len()).contains(&consumed));
                start += consumed;
                if close {
                    // Such an answer takes whatever has arrived.
                    events.push(format!("{} and closed", reply.escape_ascii()));
                    return events;
                }
                events.push(format!("{} until {start}", reply.escape_ascii()));
                needed = 1;
            }
        }
    }
}

/// Checks the line end at `start`, one byte at a time; `None` when the stream ends before it does.
fn body_end(stream: &[u8], mut start: usize, events: &mut Vec<String>) -> Option<usize> {
    let mut end = BodyEnd::default();
    loop {
        let (taken, state) = end.feed(stream.get(start..)?.get(..1)?);
        start += taken;
        if state != BodyEndState::Incomplete {
            events.push(format!("{state:?}"));
            return Some(start);
        }
    }
}

fn check_request(request: &Request<'_>) {
    let (key, value_bytes) = match request {
        Request::Item { key, value, .. } => (key, value.len()),
        Request::SetHeader(header) | Request::SetTooLarge(header) => (&header.key, 0),
        _ => return,
    };
    assert!(value_bytes <= 4096);
    assert!((1..=Key::BYTES_MAX).contains(&key.text().len()));
    assert!(key.text().iter().all(|&byte| byte > b' '));
    let mut scratch = KeyScratch::default();
    let resolved = key.resolve(&mut scratch).bytes();
    if key.is_base64() {
        assert!(resolved.len() <= key.text().len() / 4 * 3);
    } else {
        assert_eq!(resolved, key.text());
    }
}

/// In words, as if `before` bytes in front had not been there.
fn describe(decoded: Decoded<'_>, before: usize) -> String {
    match decoded {
        Decoded::Complete { request, consumed } => {
            format!("{request:?} in {}", consumed.wrapping_sub(before))
        }
        Decoded::Incomplete { consumed, needed } => {
            let kept = if consumed == 0 { before } else { 0 };
            format!("incomplete until {}", needed - kept)
        }
        Decoded::Malformed {
            reply,
            consumed,
            close,
        } => {
            let taken = consumed - before;
            format!("{} in {taken}, closed: {close}", reply.escape_ascii())
        }
    }
}

fn status(numbers: &[u8; 24]) -> ItemStatus {
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| numbers[at + i]));
    let bits = numbers[20];
    ItemStatus {
        flags: word(0),
        cas: Cas(u64::from(word(4)) << 32 | u64::from(word(0))),
        value_bytes: word(8),
        ttl_seconds: (bits & 1 != 0).then_some(word(12)),
        idle_seconds: word(16),
        fetched: bits & 2 != 0,
        won: bits & 4 != 0,
        stale: bits & 8 != 0,
        contended: bits & 16 != 0,
    }
}

fn every_reply(key: &WireKey<'_>, operation: &Operation, form: &Form<'_>, status: &ItemStatus) {
    let quiet = match form {
        Form::Line { noreply } => *noreply,
        Form::Meta(meta) => meta.quiet,
        Form::Value { .. } | Form::Debug => false,
    };
    match operation {
        Operation::Get(_) => {
            let hit = written(|sink| {
                if encode::hit(sink, key, form, status) {
                    encode::value_end(sink, form);
                }
            });
            let silent_hit = matches!(form, Form::Line { noreply: true });
            assert_eq!(hit.is_empty(), silent_hit);
            echoes(&hit, form);
            let miss = written(|sink| encode::miss(sink, key, form));
            let silent_miss = quiet || matches!(form, Form::Value { last: false, .. });
            assert_eq!(miss.is_empty(), silent_miss);
        }
        Operation::Set(_) => {
            let stored = SetOutcome::Stored(status.cas);
            assert_eq!(
                written(|s| encode::set(s, key, form, stored)).is_empty(),
                quiet
            );
            for outcome in [
                SetOutcome::NotStored,
                SetOutcome::Exists,
                SetOutcome::NotFound,
                SetOutcome::TooLarge,
                SetOutcome::OutOfMemory,
            ] {
                told(form, &written(|sink| encode::set(sink, key, form, outcome)));
            }
            told(form, &written(|sink| encode::bad_data_chunk(sink, form)));
        }
        Operation::Delete(_) => {
            let deleted = written(|s| encode::delete(s, key, form, DeleteOutcome::Deleted));
            assert_eq!(deleted.is_empty(), quiet);
            for outcome in [
                DeleteOutcome::NotFound,
                DeleteOutcome::Exists,
                DeleteOutcome::OutOfMemory,
            ] {
                told(
                    form,
                    &written(|sink| encode::delete(sink, key, form, outcome)),
                );
            }
        }
        Operation::Arithmetic(_) => every_count(key, form, status, quiet),
    }
}

/// Encodes every reply to a count.
fn every_count(key: &WireKey<'_>, form: &Form<'_>, status: &ItemStatus, quiet: bool) {
    for created in [false, true] {
        let counted = ArithmeticOutcome::Counted {
            number: status.cas.0,
            status: *status,
            created,
        };
        let is_meta = matches!(form, Form::Meta(_));
        let counted = written(|sink| encode::arithmetic(sink, key, form, &counted));
        assert_eq!(counted.is_empty(), quiet && !(created && is_meta));
    }
    for outcome in [
        ArithmeticOutcome::NotFound,
        ArithmeticOutcome::Exists,
        ArithmeticOutcome::NotANumber,
        ArithmeticOutcome::OutOfMemory,
    ] {
        told(
            form,
            &written(|sink| encode::arithmetic(sink, key, form, &outcome)),
        );
    }
}

/// Failures are told to all but the text commands that said `noreply`.
fn told(form: &Form<'_>, reply: &[u8]) {
    assert_eq!(
        reply.is_empty(),
        matches!(form, Form::Line { noreply: true })
    );
}

/// A meta hit returns what was asked for, in the order in which it was.
fn echoes(hit: &[u8], form: &Form<'_>) {
    let Form::Meta(meta) = form else { return };
    let line_bytes = hit.iter().position(|&byte| byte == b'\r');
    let letters: Vec<u8> = hit[..line_bytes.unwrap_or(0)]
        .split(|&byte| byte == b' ')
        .skip(if meta.value { 2 } else { 1 })
        .map(|word| word[0])
        .filter(|letter| !b"WXZb".contains(letter))
        .collect();
    let asked: Vec<u8> = meta.returns.map(letter).collect();
    assert_eq!(letters, asked);
}

fn letter(what: Return) -> u8 {
    match what {
        Return::Size => b's',
        Return::Ttl => b't',
        Return::Cas => b'c',
        Return::Flags => b'f',
        Return::Idle => b'l',
        Return::Fetched => b'h',
        Return::Opaque => b'O',
        Return::Key => b'k',
    }
}

fn written(reply: impl FnOnce(&mut Sink<'_>)) -> Vec<u8> {
    let mut buffer = [0; encode::REPLY_BYTES_MAX];
    let mut sink = Sink::new(&mut buffer);
    reply(&mut sink);
    assert!(!sink.overflowed());
    let written = sink.written().to_vec();
    assert!(written.is_empty() || written.ends_with(b"\r\n"));
    written
}
