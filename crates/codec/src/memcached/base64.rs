//! Base64 (RFC 4648, section 4), as the meta flag `b` uses it for binary keys.
//!
//! Strict: the text must be whole groups of four with padding only at the end, and the bits that
//! padding leaves over must be zero. So each key has exactly one text, and echoing the text that
//! the client sent is the same as encoding the key again.

/// Decodes `text` into the front of `out`; `None` when it is not base64, is empty, or does not fit.
pub(super) fn decode<'o>(text: &[u8], out: &'o mut [u8]) -> Option<&'o [u8]> {
    let (groups, rest) = text.as_chunks::<4>();
    let (last, groups) = groups.split_last()?;
    if !rest.is_empty() {
        return None;
    }
    let mut length = 0;
    for group in groups {
        let bits = group_bits(group)?;
        push(out, &mut length, bits, 3)?;
    }
    let (bits, bytes) = last_group_bits(last)?;
    push(out, &mut length, bits, bytes)?;
    out.get(..length)
}

/// The 24 bits of a group without padding.
fn group_bits(group: &[u8; 4]) -> Option<u32> {
    group
        .iter()
        .try_fold(0, |bits, &letter| Some(bits << 6 | value(letter)?))
}

/// The bits of the last group and how many bytes of them count.
fn last_group_bits(group: &[u8; 4]) -> Option<(u32, usize)> {
    let (bits, bytes) = match *group {
        [a, b, b'=', b'='] => (group_bits(&[a, b, b'A', b'A'])?, 1),
        [a, b, c, b'='] => (group_bits(&[a, b, c, b'A'])?, 2),
        _ => (group_bits(group)?, 3),
    };
    let left_over = bits & (0x00ff_ffff >> (8 * bytes));
    (left_over == 0).then_some((bits, bytes))
}

fn push(out: &mut [u8], length: &mut usize, bits: u32, bytes: usize) -> Option<()> {
    let [_, decoded @ ..] = bits.to_be_bytes();
    let end = *length + bytes;
    out.get_mut(*length..end)?
        .copy_from_slice(decoded.get(..bytes)?);
    *length = end;
    Some(())
}

fn value(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_the_examples_of_the_rfc() {
        let mut out = [0; 8];
        for (text, bytes) in [
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode(text.as_bytes(), &mut out), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn refuses_what_is_not_canonical() {
        let mut out = [0; 8];
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
