//! Formats numbers for columns: short, and of constant width.

use std::time::Duration;

/// A whole number with commas, such as 1,234,567.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate: whole from ten on, with one digit behind the point below; `-` when it is not known.
pub(crate) fn rate(rate: Option<f64>) -> String {
    match rate {
        None => UNKNOWN.to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 9.95 => format!("{rate:.1}"),
        // The cast saturates; a rate is not negative.
        Some(rate) => count(rate.round() as u64),
    }
}

/// Bytes in binary units with three digits or so, such as 45.1 MiB.
pub(crate) fn bytes(bytes: f64) -> String {
    let mut amount = bytes;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if amount < 1023.5 {
            break;
        }
        amount /= 1024.0;
        unit = larger;
    }
    match unit {
        "B" => format!("{amount:.0} B"),
        _ if amount < 99.95 => format!("{amount:.1} {unit}"),
        _ => format!("{amount:.0} {unit}"),
    }
}

/// A number of bytes that may not be known.
pub(crate) fn size(bytes_known: Option<u64>) -> String {
    bytes_known.map_or(UNKNOWN.to_owned(), |known| bytes(known as f64))
}

/// A count that may not be known.
pub(crate) fn known(number: Option<u64>) -> String {
    number.map_or(UNKNOWN.to_owned(), count)
}

/// A share in percent.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or(UNKNOWN.to_owned(), |share| {
        format!("{:.1} %", share * 100.0)
    })
}

/// A number with one digit behind the point.
pub(crate) fn tenths(number: Option<f64>) -> String {
    number.map_or(UNKNOWN.to_owned(), |number| format!("{number:.1}"))
}

/// How long something has been, such as 2d 03:04:05.
pub(crate) fn age(seconds: u64) -> String {
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    let clock = format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    match days {
        0 => clock,
        _ => format!("{days}d {clock}"),
    }
}

/// An interval in seconds, such as 0.5 s.
pub(crate) fn interval(interval: Duration) -> String {
    format!("{:.1} s", interval.as_secs_f64())
}

/// A line of blocks between the smallest and the largest of `values`, or from 0 if `from_zero`. A
/// value that is not known is a gap.
pub(crate) fn sparkline(values: &[Option<f64>], from_zero: bool) -> String {
    let known = || values.iter().flatten().copied();
    let most = known().fold(0.0, f64::max);
    let least = match from_zero {
        true => 0.0,
        false => known().fold(most, f64::min),
    };
    let block = |value: Option<f64>| {
        let Some(value) = value else {
            return ' ';
        };
        let share = match most > least {
            true => (value - least) / (most - least),
            false => 0.0,
        };
        let index = (share * (BLOCKS.len() - 1) as f64).round() as usize;
        BLOCKS.get(index).copied().unwrap_or(' ')
    };
    values.iter().map(|value| block(*value)).collect()
}

const UNKNOWN: &str = "-";
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(12_345_678), "12,345,678");
        let rates = [None, Some(0.0), Some(0.25), Some(9.96), Some(1234.4)];
        assert_eq!(rates.map(rate), ["-", "0", "0.2", "10", "1,234"]);
        let sizes = [0, 1023, 1024, 102_400, 1_048_064, 1 << 30, u64::MAX];
        assert_eq!(
            sizes.map(|size| bytes(size as f64)),
            [
                "0 B",
                "1023 B",
                "1.0 KiB",
                "100 KiB",
                "1.0 MiB",
                "1.0 GiB",
                "16777216 TiB"
            ]
        );
        assert_eq!(percent(Some(0.991)), "99.1 %");
        assert_eq!(age(93_784), "1d 02:03:04");
        assert_eq!(interval(Duration::from_millis(250)), "0.2 s");
    }

    #[test]
    fn a_sparkline_spans_what_it_shows() {
        let values = [Some(10.0), None, Some(20.0), Some(15.0)];
        assert_eq!(sparkline(&values, false), "▁ █▅");
        assert_eq!(sparkline(&values, true), "▅ █▆");
        assert_eq!(sparkline(&[Some(5.0); 3], false), "▁▁▁");
        assert_eq!(sparkline(&[Some(0.0)], true), "▁");
        assert_eq!(sparkline(&[], true), "");
    }
}
