//! Requests of `get`, `gets`, `gat` and `gats` with several keys: one per key, and one for the end
//! of the line, which alone replies `END` or an error. Keys may be looked up at several workers or
//! nodes and any lookup may fail, so no reply to a key can end the command.
//!
//! A line of ordinary length is looked through before its first key is given out, so that a bad
//! key refuses the whole command, as memcached does it. A `get` or `gets` of extraordinary length
//! is given out key by key as it arrives, so that no client makes us hold more than a line of it;
//! a bad key in there is told where the line ends, in place of `END`.

use curtail_types::{Exptime, Get, Key, Operation};

use super::{
    Decoded, Form, Request, WireKey,
    decode::{Decoder, Stage, closed, complete, refused},
    encode::Refusal,
    line::{Line, WINDOW_BYTES, skip_spaces, split_key, split_key_unended, token_end},
};

/// What is kept of a command between its keys.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Keys {
    pub(super) with_cas: bool,
    pub(super) touch: Option<Exptime>,
}

/// A command with at least one key: `words` is the part of its line from the keys on.
#[inline]
pub(super) fn begin<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    words: &'a [u8],
    keys: Keys,
) -> Decoded<'a> {
    let (key, rest) = match split_key(words) {
        Ok(split) => split,
        Err(refusal) => return refused(line.bytes, false, refusal),
    };
    let rest = skip_spaces(rest);
    if rest.is_empty() {
        return complete(line, keys.request(key, true));
    }
    if !are_keys(rest) {
        return refused(line.bytes, false, Refusal::BadFormat);
    }
    decoder.enter(Stage::Keys(keys));
    Decoded::Complete {
        request: keys.request(key, false),
        consumed: line.text.len() - rest.len(),
    }
}

/// A line of extraordinary length: what it asks and where its keys begin, if it may be so long.
pub(super) fn begin_long(input: &[u8]) -> Option<(Keys, usize)> {
    let window = input.get(..WINDOW_BYTES).unwrap_or(input);
    let text = skip_spaces(window);
    let (with_cas, words) = match text {
        [b'g', b'e', b't', b' ', words @ ..] => (false, words),
        [b'g', b'e', b't', b's', b' ', words @ ..] => (true, words),
        _ => return None,
    };
    let words = skip_spaces(words);
    let keys = Keys {
        with_cas,
        touch: None,
    };
    (!words.is_empty()).then_some((keys, window.len() - words.len()))
}

/// The next key, or the end of their line; `input` begins with it.
pub(super) fn decode<'a>(decoder: &mut Decoder, keys: Keys, input: &'a [u8]) -> Decoded<'a> {
    // Nearly every key has another behind it, one space away.
    if let Some((key, [b' ', next @ ..])) = split_key_unended(input)
        && next.first().is_some_and(|first| *first > b' ')
    {
        return Decoded::Complete {
            request: keys.request(key, false),
            consumed: input.len() - next.len(),
        };
    }
    match input {
        [b'\n', ..] => return end(decoder, 1, None),
        [b'\r', b'\n', ..] => return end(decoder, 2, None),
        _ => {}
    }
    let window = input.get(..WINDOW_BYTES).unwrap_or(input);
    let end = token_end(window.get(..=Key::BYTES_MAX).unwrap_or(window));
    let (word, rest) = window.split_at_checked(end).unwrap_or_default();
    let after = skip_spaces(rest);
    if matches!(after, [] | [b'\r']) && word.len() <= Key::BYTES_MAX {
        return undecided(window);
    }
    let Ok(key) = Key::new(word) else {
        // It is too long, or has a control character.
        return decoder.skip_line(Refusal::BadFormat, input);
    };
    Decoded::Complete {
        request: keys.request(key, false),
        consumed: window.len() - after.len(),
    }
}

/// The line of the keys has ended, after `consumed` more bytes.
pub(super) fn end<'a>(
    decoder: &mut Decoder,
    consumed: usize,
    refusal: Option<Refusal>,
) -> Decoded<'a> {
    decoder.enter(Stage::Command);
    Decoded::Complete {
        request: Request::EndOfKeys { refusal },
        consumed,
    }
}

impl Keys {
    #[inline]
    pub(super) fn request<'a>(&self, key: Key<'a>, last: bool) -> Request<'a> {
        Request::Item {
            key: WireKey::plain(key),
            operation: Operation::Get(Get {
                touch: self.touch,
                keep_token: true,
                ..Get::default()
            }),
            value: &[],
            form: Form::Value {
                with_cas: self.with_cas,
                last,
            },
        }
    }
}

fn are_keys(mut words: &[u8]) -> bool {
    while !words.is_empty() {
        let Ok((_, rest)) = split_key(words) else {
            return false;
        };
        words = skip_spaces(rest);
    }
    true
}

fn undecided<'a>(window: &[u8]) -> Decoded<'a> {
    if window.len() == WINDOW_BYTES {
        return closed(window.len(), Refusal::LineTooLong.reply());
    }
    Decoded::Incomplete {
        consumed: 0,
        needed: window.len() + 1,
    }
}
