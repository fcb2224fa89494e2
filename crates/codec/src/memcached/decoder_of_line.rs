//! Chooses the decoder of a line by its command family.
//!
//! The hot forms are told apart by their first bytes, with one space behind the name; everything
//! else, odd spacing included, is split into words first.

use super::{
    Decoded, Limits, Request, admin,
    decode::{Decoder, closed, complete, refused},
    encode::Refusal,
    line::{Line, split_word},
    meta,
    multi_key_get::{self, Keys},
    text,
};

/// Decodes a command of any kind.
#[inline]
pub(super) fn decode<'a>(decoder: &mut Decoder, line: Line<'a>, limits: &Limits) -> Decoded<'a> {
    match line.text {
        [b'm', b'g', b' ', words @ ..] => meta::get(line, words),
        [b'g', b'e', b't', b' ', words @ ..] => {
            multi_key_get::begin(decoder, line, words, Keys::default())
        }
        [b'm', b's', b' ', words @ ..] => meta::set(decoder, line, words, limits),
        [b's', b'e', b't', b' ', words @ ..] => text::set(decoder, line, words, limits),
        _ => other(decoder, line, limits),
    }
}

#[inline(never)]
fn other<'a>(decoder: &mut Decoder, line: Line<'a>, limits: &Limits) -> Decoded<'a> {
    let Some((name, words)) = split_word(line.text) else {
        return refused(line.bytes, false, Refusal::Error);
    };
    match name {
        [b'm', letter] => meta_command(decoder, line, *letter, words, limits),
        _ => text::decode(decoder, line, name, words, limits)
            .or_else(|| admin::decode(line, name, words))
            .unwrap_or_else(|| unknown(line)),
    }
}

fn meta_command<'a>(
    decoder: &mut Decoder,
    line: Line<'a>,
    letter: u8,
    words: &'a [u8],
    limits: &Limits,
) -> Decoded<'a> {
    match letter {
        b'g' => meta::get(line, words),
        b's' => meta::set(decoder, line, words, limits),
        b'd' => meta::delete(line, words),
        b'a' => meta::arithmetic(line, words),
        b'e' => meta::debug(line, words),
        b'n' => complete(line, Request::Noop),
        _ => refused(line.bytes, false, Refusal::Error),
    }
}

/// Not for us. A browser is hung up on without a word.
fn unknown(line: Line<'_>) -> Decoded<'_> {
    let last_word = line
        .text
        .rsplit(|&byte| byte == b' ')
        .find(|w| !w.is_empty());
    if last_word.is_some_and(|word| word.starts_with(b"HTTP/")) {
        return closed(line.bytes, b"");
    }
    refused(line.bytes, false, Refusal::Error)
}
