//! Numbers, sizes and times as people write them, in flags, files and workloads: `1.6m`, `500k`,
//! `20s`, `a@0.9+b@0.1`.
//!
//! `k`, `m` and `g` are thousands, millions and thousand millions, as the papers count; with an
//! `i` (`4ki`) they are powers of 1024. Only [`memory`] counts in powers of 1024 without the `i`,
//! because memcached's `-m` and `-I` do. A refusal is a text that says what was expected.

/// The number of a text without its unit, and what the unit stands for.
fn split(text: &str) -> Option<(String, u64)> {
    let lower = text.to_ascii_lowercase();
    let unit = lower.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '_');
    let number = lower[..lower.len() - unit.len()].replace('_', "");
    let factor = match unit {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        _ => return None,
    };
    Some((number, factor))
}

/// A whole number: `10000`, `16m`, `1.5k`, `4ki`.
pub fn count(text: &str) -> Result<u64, String> {
    let (number, factor) =
        split(text).ok_or_else(|| format!("{text:?} is not a number such as 10000, 16m or 4ki"))?;
    let exact = |product: f64| product < 9e15 && (product - product.round()).abs() < 1e-6;
    times(&number, factor, exact)
        .ok_or_else(|| format!("{text:?} is not a whole number below 2^64"))
}

/// A number times so much, rounded; one with a fraction only if its product is fine.
fn times(number: &str, factor: u64, is_fine: impl Fn(f64) -> bool) -> Option<u64> {
    let whole = number.parse::<u64>().ok();
    whole.and_then(|n| n.checked_mul(factor)).or_else(|| {
        let product = number.parse::<f64>().ok()? * factor as f64;
        is_fine(product).then(|| product.round() as u64)
    })
}

/// A whole number from 1 on.
pub fn count_from_1(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err(format!("{text:?} is not a number of 1 or more")),
        count => Ok(count),
    }
}

/// Bytes of memory as memcached's flags give them: `64`, `512k`, `1m`, `2g`, where the units are
/// powers of 1024 and a number without one counts `unit` bytes.
pub fn memory(text: &str, unit: u64) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, unit),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is not a size such as 64, 512k, 1m or 2g"))?;
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// A finite number above 0, such as a rate: `50000`, `50k`, `1.2m`.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text)
        .ok()
        .filter(|number| *number > 0.0)
        .ok_or_else(|| format!("{text:?} is not a number above 0 such as 50000, 50k or 1.2m"))
}

/// A number of bytes for a value, below 2^32.
pub(crate) fn bytes(text: &str) -> Result<u32, String> {
    let bytes = count(text)?;
    u32::try_from(bytes).map_err(|_| format!("{text:?} is more than 4 GiB"))
}

/// A finite number that is not negative; `k`, `m` and `g` are allowed.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let with_unit = || {
        let (number, factor) = split(text)?;
        Some(number.parse::<f64>().ok()? * factor as f64)
    };
    text.parse()
        .ok()
        .or_else(with_unit)
        .filter(|number| number.is_finite() && *number >= 0.0)
        .ok_or_else(|| format!("{text:?} is not a number of 0 or more"))
}

/// A part of a whole, 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    number(text)
        .ok()
        .filter(|share| *share <= 1.0)
        .ok_or_else(|| format!("{text:?} is not a share from 0 to 1"))
}

/// A time in nanoseconds: `250ns`, `1.5us`, `10ms`, `20s`, `2min`, `1h`, `4d`.
pub fn ns(text: &str) -> Result<u64, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let per_unit: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => {
            return Err(format!(
                "{text:?} is not a time such as 250ns, 10ms, 20s or 4d"
            ));
        }
    };
    let number = &text[..text.len() - unit.len()];
    times(number, per_unit, |ns| ns < 9e18)
        .ok_or_else(|| format!("{text:?} is not a time below 2^63 ns"))
}

/// Items with their shares: `one@0.9+two@0.1`; a single item needs no share. Shares sum to 1.
pub(crate) fn weighted<T>(
    text: &str,
    item: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(T, f64)>, String> {
    let mut items = Vec::new();
    for part in text.split('+') {
        let (what, weight) = part.split_once('@').unwrap_or((part, "1"));
        items.push((item(what)?, share(weight)?));
    }
    let total: f64 = items.iter().map(|(_, share)| share).sum();
    if (total - 1.0).abs() > 1e-6 {
        return Err(format!("the shares in {text:?} sum to {total}, not to 1"));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_with_their_units() {
        let good = [
            ("0", 0),
            ("10_000", 10_000),
            ("1.6m", 1_600_000),
            ("500K", 500_000),
            ("4ki", 4096),
            ("10g", 10_000_000_000),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, value) in good {
            assert_eq!(count(text), Ok(value), "{text}");
        }
        for text in [
            "",
            "x",
            "k",
            "-1",
            "1.5",
            "1..5m",
            "5 k",
            "99999999999g",
            "1e9",
        ] {
            assert!(count(text).is_err(), "{text}");
        }
        assert_eq!(bytes("4gi"), Err("\"4gi\" is more than 4 GiB".into()));
    }

    #[test]
    fn memory_is_counted_in_powers_of_1024() {
        assert_eq!(memory("64", 1 << 20), Ok(64 << 20));
        assert_eq!(memory("512k", 1), Ok(512 << 10));
        assert_eq!(memory("2G", 1), Ok(2 << 30));
        let wrong = [
            "",
            "m",
            "-1",
            "99999999999999999999",
            "18446744073709551615k",
        ];
        for text in wrong {
            assert!(memory(text, 1).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_with_their_units() {
        let good = [
            ("7ns", 7),
            ("1.5us", 1_500),
            ("20s", 20_000_000_000),
            ("2min", 120_000_000_000),
            ("1.8h", 6_480_000_000_000),
        ];
        for (text, value) in good {
            assert_eq!(ns(text), Ok(value), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1e3s", "99999999999999d", "2 s"] {
            assert!(ns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_have_to_sum_to_one() {
        let read = |text| weighted(text, count);
        assert_eq!(read("5"), Ok(vec![(5, 1.0)]));
        assert_eq!(read("5@0.25+6@0.75"), Ok(vec![(5, 0.25), (6, 0.75)]));
        for text in [
            "",
            "5@0.5",
            "5@0.5+6@0.6",
            "5@-1+6@2",
            "5@nan",
            "5@0.5+@0.5",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_finite_and_not_negative() {
        assert_eq!((number("0.99"), number("2.25m")), (Ok(0.99), Ok(2.25e6)));
        for text in ["inf", "nan", "-0.5", "", "1e999", "5x"] {
            assert!(number(text).is_err(), "{text}");
        }
        assert_eq!((positive("1.2M"), positive("0.5")), (Ok(1.2e6), Ok(0.5)));
        assert!(positive("0").is_err() && count_from_1("0").is_err());
    }
}
