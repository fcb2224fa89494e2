//! Time as the house knows it: always an argument, never looked up below the runtime.
//!
//! The runtime reads the clocks once per batch and hands a [`Now`] down. Expiry is absolute wall
//! time in seconds, because it must mean the same after a restart and on another node; [`Instant`]
//! is monotonic and serves timers only.

/// A point on the monotonic clock, in nanoseconds since an origin that the driver chose.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Instant {
    /// Nanoseconds since the origin.
    pub ns: u64,
}

/// Both clocks, read once per batch.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Now {
    /// The monotonic clock.
    pub instant: Instant,
    /// Wall time in nanoseconds since 1970.
    pub unix_ns: u64,
}

/// An expiry time as a client writes it in the memcached protocols.
///
/// 0 means never, a negative number means already expired, up to 30 days means seconds from now,
/// and more is an absolute Unix time.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Exptime(pub i64);

/// When an item ends: absolute Unix seconds, or never.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Expiry(u32);

impl Instant {
    /// The instant so long after it, or the last one that there is.
    #[inline]
    #[must_use]
    pub const fn later(self, ns: u64) -> Self {
        Self {
            ns: self.ns.saturating_add(ns),
        }
    }
}

impl Now {
    /// Wall time in whole seconds since 1970; holds until 2106.
    #[inline]
    pub const fn unix_seconds(&self) -> u32 {
        (self.unix_ns / 1_000_000_000) as u32
    }
}

impl Exptime {
    /// The longest relative time: 30 days, in seconds. Anything above is an absolute Unix time.
    pub const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

    /// Never expires.
    pub const NEVER: Self = Self(0);

    /// The absolute end of an item written at `now`.
    pub const fn expiry(self, now: Now) -> Expiry {
        match self.0 {
            0 => Expiry::NEVER,
            ..0 => Expiry::PAST,
            1..=Self::RELATIVE_SECONDS_MAX => Expiry::at(now.unix_seconds() as i64 + self.0),
            absolute => Expiry::at(absolute),
        }
    }
}

impl Expiry {
    /// The item stays until it is deleted or evicted.
    pub const NEVER: Self = Self(0);

    /// The item has ended already.
    pub const PAST: Self = Self(1);

    /// Ends at `unix_seconds`, clamped to what 32 bits hold (the year 2106).
    pub const fn at(unix_seconds: i64) -> Self {
        if unix_seconds <= 1 {
            Self::PAST
        } else if unix_seconds >= u32::MAX as i64 {
            Self(u32::MAX)
        } else {
            Self(unix_seconds as u32)
        }
    }

    /// From the number that [`Expiry::to_bits`] gave.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The 32 bits an item stores: 0 for never, else Unix seconds.
    #[inline]
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Whether the item has no end.
    #[inline]
    pub const fn is_never(self) -> bool {
        self.0 == 0
    }

    /// Whether an item with this end is gone at `now`.
    #[inline]
    pub const fn is_past(self, now: Now) -> bool {
        self.0 != 0 && self.0 <= now.unix_seconds()
    }

    /// Seconds from `now` until the end; 0 when it has passed, `None` for never.
    pub const fn remaining_seconds(self, now: Now) -> Option<u32> {
        if self.is_never() {
            None
        } else {
            Some(self.0.saturating_sub(now.unix_seconds()))
        }
    }
}

/// Year, month and day of the Gregorian calendar, so many days after 1970-01-01. It counts in years
/// that begin in March, so that the day of a leap year is the last one.
pub const fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097; // days of 400 years
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / ERA, days % ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153; // 0 is March
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    match month {
        0..=9 => (year, month + 3, day),
        _ => (year + 1, month - 9, day),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exptime_is_never_past_relative_or_absolute() {
        let now = Now {
            unix_ns: 1_800_000_000 * 1_000_000_000,
            ..Now::default()
        };
        assert!(Exptime(0).expiry(now).is_never());
        assert!(Exptime(-1).expiry(now).is_past(now));
        assert_eq!(Exptime(100).expiry(now).remaining_seconds(now), Some(100));
        assert_eq!(
            Exptime(2_592_000).expiry(now).remaining_seconds(now),
            Some(2_592_000)
        );
        assert!(Exptime(2_592_001).expiry(now).is_past(now));
        assert_eq!(
            Exptime(1_800_000_007).expiry(now).remaining_seconds(now),
            Some(7)
        );
        assert_eq!(Exptime(i64::MAX).expiry(now).to_bits(), u32::MAX);
    }
}
