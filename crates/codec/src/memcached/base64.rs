//! Base64 (RFC 4648, section 4), as the meta flag `b` uses it for binary keys.
//!
//! Strict: the text must be whole groups of four with padding only at the end, and the bits that
//! padding leaves over must be zero. So each key has exactly one text, and echoing the text that
//! the client sent is the same as encoding the key again.

use base64::{Engine as _, prelude::BASE64_STANDARD};

/// Decodes `text` into the front of `out`; `None` when it is not base64, is empty, or does not fit.
pub(super) fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let length = BASE64_STANDARD.decode_slice(text, out).ok()?;
    out.get(..length).filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_not_canonical() {
        let mut out = [0; 8];
        assert_eq!(decode(b"Zm9vYmE=", &mut out), Some(&b"fooba"[..]));
        for text in [
            "",
            "Q",
            "QQ",
            "QQ=",
            "QQ=x",
            "====",
            "A===",
            "Zh==",
            "Zm9=",
            "QQ==QQ==",
            "!!!!",
            "Zm 9",
            "Zm9vYmFyZm9v",
        ] {
            assert_eq!(decode(text.as_bytes(), &mut out), None, "{text}");
        }
    }
}
