//! Parses decimal numbers digit by digit: they are short, and each request has several.
//!
//! A leading `+` is accepted, as memcached does; white space and other trailers are not.

/// An unsigned number below 2^64.
#[inline]
pub(super) fn unsigned(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > DIGITS_SAFE {
        return unsigned_long(word);
    }
    let mut number = 0;
    for &byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return unsigned_long(word);
        }
        number = number * 10 + u64::from(digit);
    }
    Some(number)
}

/// An unsigned number below 2^32.
#[inline]
pub(super) fn unsigned_32(word: &[u8]) -> Option<u32> {
    unsigned(word)?.try_into().ok()
}

/// A signed number that fits 64 bits.
#[inline]
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word {
        [b'-', digits @ ..] if digits.first() != Some(&b'+') => {
            0i64.checked_sub_unsigned(unsigned(digits)?)
        }
        _ => unsigned(word)?.try_into().ok(),
    }
}

/// The length of a value: below 2^31 - 2, so that it and its line end fit memcached's 32 bits.
#[inline]
pub(super) fn value_bytes(word: &[u8]) -> Option<u32> {
    let bytes = unsigned_32(word)?;
    (bytes <= VALUE_BYTES_MAX).then_some(bytes)
}

/// The number at the front of `text`, without a sign, and what follows it. `None` also when it is
/// so long that it may not fit.
#[inline(always)]
pub(super) fn leading(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    let mut rest = text;
    while let [byte, tail @ ..] = rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if text.len() - rest.len() == DIGITS_SAFE {
            return None;
        }
        number = number * 10 + u64::from(digit);
        rest = tail;
    }
    (rest.len() < text.len()).then_some((number, rest))
}

/// The length of a value at the front of `text`.
#[inline(always)]
pub(super) fn leading_value_bytes(text: &[u8]) -> Option<(u32, &[u8])> {
    let (bytes, rest) = leading(text)?;
    let bytes = u32::try_from(bytes).ok()?;
    (bytes <= VALUE_BYTES_MAX).then_some((bytes, rest))
}

#[cold]
fn unsigned_long(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// Numbers of so many digits cannot overflow 64 bits.
const DIGITS_SAFE: usize = 19;

const VALUE_BYTES_MAX: u32 = i32::MAX as u32 - 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_to_their_limits_and_not_beyond() {
        for (word, number) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("+12", Some(12)),
            ("9999999999999999999", Some(9_999_999_999_999_999_999)),
            ("18446744073709551615", Some(u64::MAX)),
            ("00018446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("99999999999999999999999", None),
            ("", None),
            ("+", None),
            ("++1", None),
            ("-1", None),
            ("1 ", None),
            ("1a", None),
            ("0x1", None),
        ] {
            assert_eq!(unsigned(word.as_bytes()), number, "{word}");
        }
        assert_eq!(unsigned_32(b"4294967295"), Some(u32::MAX));
        assert_eq!(unsigned_32(b"4294967296"), None);
        assert_eq!(value_bytes(b"2147483645"), Some(2_147_483_645));
        assert_eq!(value_bytes(b"2147483646"), None);
    }

    #[test]
    fn signed_numbers_may_be_negative() {
        for (word, number) in [
            ("-1", Some(-1)),
            ("-0", Some(0)),
            ("5", Some(5)),
            ("+5", Some(5)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-+1", None),
            ("--1", None),
            ("-", None),
            ("", None),
        ] {
            assert_eq!(signed(word.as_bytes()), number, "{word}");
        }
    }
}
