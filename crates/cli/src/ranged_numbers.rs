//! Numeric flags with a range: a value outside is an error that names the range, and is never
//! clamped.

use std::{
    fmt::Display,
    ops::{Bound, RangeBounds},
    str::FromStr,
};

use anyhow::{Context, bail};

/// The number that `value` is, if it lies within `range`; the caller names the flag.
pub(crate) fn number<T>(value: Option<&str>, range: impl RangeBounds<T>) -> anyhow::Result<T>
where
    T: FromStr + PartialOrd + Display,
{
    let text = value.context("a value is missing")?;
    let Ok(number) = text.parse::<T>() else {
        bail!("'{text}' is no number {}", words(&range));
    };
    check(number, range)
}

/// `number` if it lies within `range`.
pub(crate) fn check<T: PartialOrd + Display>(
    number: T,
    range: impl RangeBounds<T>,
) -> anyhow::Result<T> {
    if !range.contains(&number) {
        bail!("{number} is not a number {}", words(&range));
    }
    Ok(number)
}

fn words<T: Display>(range: &impl RangeBounds<T>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(first), Bound::Included(last)) => format!("from {first} to {last}"),
        (Bound::Included(first), _) => format!("of {first} or more"),
        (Bound::Excluded(below), Bound::Included(last)) => {
            format!("above {below} and up to {last}")
        }
        (Bound::Excluded(below), _) => format!("above {below}"),
        _ => "that fits".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_outside_is_an_error_that_says_the_range() {
        let says = |text, range: std::ops::RangeInclusive<u32>| {
            number(text, range).map_err(|error| error.to_string())
        };
        assert_eq!(says(Some("5"), 5..=7), Ok(5));
        assert_eq!(
            says(Some("8"), 5..=7),
            Err("8 is not a number from 5 to 7".into())
        );
        assert_eq!(
            says(Some("-1"), 0..=7),
            Err("'-1' is no number from 0 to 7".into())
        );
        assert_eq!(says(None, 0..=7), Err("a value is missing".into()));
        assert_eq!(
            number::<u64>(Some("0"), 1..).unwrap_err().to_string(),
            "0 is not a number of 1 or more"
        );
        assert!(number::<f64>(Some("nan"), 0.0..=1.0).is_err());
    }
}
