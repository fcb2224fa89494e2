//! Percent-encodes keys for dumps and log lines.
//!
//! A key may hold any bytes; these lines are split at spaces. So keys are percent-encoded there as
//! memcached does, or base64-encoded where a line is itself a request.

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

/// Appends `key` in base64, padded (RFC 4648, section 4).
pub(crate) fn push_base64(text: &mut Vec<u8>, key: &[u8]) {
    for group in key.chunks(3) {
        let bits = (0..3).fold(0, |bits, i| {
            bits << 8 | u32::from(group.get(i).copied().unwrap_or(0))
        });
        for place in 0..4 {
            let sextet = (bits >> (18 - 6 * place) & 63) as u8;
            let used = place <= group.len();
            text.push(if used { base64_letter(sextet) } else { b'=' });
        }
    }
}

const fn hexadecimal(digit: u8) -> u8 {
    match digit {
        0..=9 => b'0' + digit,
        _ => b'A' + digit - 10,
    }
}

const fn base64_letter(sextet: u8) -> u8 {
    match sextet {
        0..=25 => b'A' + sextet,
        26..=51 => b'a' + sextet - 26,
        52..=61 => b'0' + sextet - 52,
        62 => b'+',
        _ => b'/',
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

    /// The test vectors of RFC 4648, section 10, and the two letters that are no alphanumerics.
    #[test]
    fn base64_as_the_rfc_has_it() {
        let vectors: [(&[u8], &str); 8] = [
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
            (b"\xfb\xff", "+/8="),
        ];
        for (key, text) in vectors {
            assert_eq!(spelt(push_base64, key), text);
        }
    }

    #[test]
    fn only_keys_without_spaces_and_controls_are_plain() {
        assert!(is_plain("foo-\u{e9}".as_bytes()));
        assert!(!is_plain(b"a b") && !is_plain(b"a\0") && !is_plain(b"\x7f"));
    }
}
