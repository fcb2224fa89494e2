//! Percent-encodes keys for dumps and log lines.
//!
//! A key may hold any bytes; these lines are split at spaces. So keys are percent-encoded there as
//! memcached does, or base64-encoded where a line is itself a request.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use curtail_types::Key;

/// Appends `key` percent-encoded: all but letters, digits and `-._~`.
pub(crate) fn push_percent(text: &mut Vec<u8>, key: &[u8]) {
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(byte);
        } else {
            text.extend([b'%', hexadecimal(byte >> 4), hexadecimal(byte & 15)]);
        }
    }
}

/// Whether `key` can stand in a request as it is.
pub(crate) fn is_plain(key: &[u8]) -> bool {
    key.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// `key` in base64, padded, in `room`.
pub(crate) fn base64_in<'a>(room: &'a mut [u8; BASE64_BYTES_MAX], key: &[u8]) -> &'a [u8] {
    let bytes = BASE64_STANDARD.encode_slice(key, room).unwrap_or_default();
    room.get(..bytes).unwrap_or_default()
}

/// Appends `key` in base64, padded (RFC 4648, section 4).
pub(crate) fn push_base64(text: &mut Vec<u8>, key: &[u8]) {
    let start = text.len();
    text.resize(start + key.len().div_ceil(3) * 4, 0);
    // The room is what the text takes, so this cannot fail.
    let _ = BASE64_STANDARD.encode_slice(key, &mut text[start..]);
}

/// The longest base64 form of a key.
pub(crate) const BASE64_BYTES_MAX: usize = Key::BYTES_MAX.div_ceil(3) * 4;

const fn hexadecimal(digit: u8) -> u8 {
    match digit {
        0..=9 => b'0' + digit,
        _ => b'A' + digit - 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelt(push: fn(&mut Vec<u8>, &[u8]), key: &[u8]) -> String {
        let mut text = Vec::new();
        push(&mut text, key);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_would_split_a_line_is_percent_encoded() {
        assert_eq!(spelt(push_percent, b"n,foo-1._~"), "n%2Cfoo-1._~");
        assert_eq!(spelt(push_percent, b"a b\r\n\xff"), "a%20b%0D%0A%FF");
    }

    #[test]
    fn base64_is_padded() {
        for (key, text) in [(&b"f"[..], "Zg=="), (b"foo", "Zm9v"), (b"\xfb\xff", "+/8=")] {
            assert_eq!(spelt(push_base64, key), text);
            let mut room = [0; BASE64_BYTES_MAX];
            assert_eq!(base64_in(&mut room, key), text.as_bytes());
        }
    }

    #[test]
    fn only_keys_without_spaces_and_controls_are_plain() {
        assert!(is_plain("foo-\u{e9}".as_bytes()));
        assert!(!is_plain(b"a b") && !is_plain(b"a\0") && !is_plain(b"\x7f"));
    }
}
