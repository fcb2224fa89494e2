//! Formats numbers for people.

/// Microseconds with the unit that keeps them short: `250 us`, `1.5 ms`.
pub fn time(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1.0 => (us * 1000.0, "ns"),
        us if us < 1000.0 => (us, "us"),
        us if us < 1e6 => (us / 1000.0, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", short(value))
}

/// A count or a rate: `50k`, `1.2m`.
pub fn count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}m", short(v / 1e6)),
        v if v >= 1e3 => format!("{}k", short(v / 1e3)),
        v => short(v),
    }
}

/// Four significant digits behind the point at most, and no zeros that say nothing.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0..1.0 => 5,
        1.0..100.0 => 3,
        _ => 1,
    };
    plain(value, digits)
}

/// Three digits at most, without zeros behind the point.
pub(crate) fn short(value: f64) -> String {
    let digits = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    plain(value, digits)
}

/// `99.9 %` of 3 nines.
pub(crate) fn quantile(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let digits = (nines - 2.0).max(0.0).ceil() as usize;
    match percent {
        p if p < 1.0 => "0 %".into(),
        p => format!("{p:.digits$} %"),
    }
}

fn plain(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_their_zeros() {
        let times = [0.25, 80.0, 1500.0, 2e6].map(time);
        assert_eq!(times, ["250 ns", "80 us", "1.5 ms", "2 s"]);
        assert_eq!([500.0, 5e4, 1.25e6].map(count), ["500", "50k", "1.25m"]);
        let quantiles = [0.0, 1.0, 2.0, 3.0].map(quantile);
        assert_eq!(quantiles, ["0 %", "90 %", "99 %", "99.9 %"]);
        let all = [0.0, 100.0, 0.958_7, 1781.0, 6350.25, 1.5].map(number);
        assert_eq!(all, ["0", "100", "0.9587", "1781", "6350.2", "1.5"]);
    }
}
