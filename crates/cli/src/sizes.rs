//! Sizes as people write them: `64`, `512k`, `1m`, `2g`.

/// Bytes from `text`, where a number without a unit counts `unit` bytes.
pub(crate) fn parse(text: &str, unit: u64) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, unit),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("'{text}' is not a size such as 64, 512k, 1m or 2g"))?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("'{text}' is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse("64", 1 << 20), Ok(64 << 20));
        assert_eq!(parse("512k", 1), Ok(512 << 10));
        assert_eq!(parse("2G", 1), Ok(2 << 30));
        assert!(parse("", 1).is_err());
        assert!(parse("m", 1).is_err());
        assert!(parse("-1", 1).is_err());
        assert!(parse("99999999999999999999", 1).is_err());
        assert!(parse("18446744073709551615k", 1).is_err());
    }
}
