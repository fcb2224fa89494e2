//! TTL buckets: items that expire at about the same time share segments.
//!
//! After Segcache (Yang, Yue, Vinayak, "Segcache: a memory-efficient and scalable in-memory
//! key-value cache for small objects", NSDI 2021, section 3.2): a segment whose last item has
//! expired is taken back whole. Widths grow with the TTL, here by four from bucket to bucket; a
//! small memory has one bucket for everything that ends, so that open segments do not take it all.

use curtail_types::{Expiry, Now};

/// How many buckets there are; the first is for items that never end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TtlBuckets {
    pub(crate) count: usize,
}

/// Buckets that a large memory uses.
pub(crate) const TTL_BUCKETS_MAX: usize = 11;

impl TtlBuckets {
    /// The buckets for a memory of this many segments.
    pub(crate) fn for_segments(segments: usize) -> Self {
        Self {
            count: if segments < 256 { 2 } else { TTL_BUCKETS_MAX },
        }
    }

    /// The bucket of an item with this end: below 16 s, 64 s, 256 s, ... 48 days, and beyond.
    #[inline]
    pub(crate) fn of(self, expiry: Expiry, now: Now) -> usize {
        match expiry.remaining_seconds(now) {
            None => 0,
            Some(seconds) => {
                let width = (seconds | 15).ilog2() / 2;
                (width as usize).min(self.count - 1)
            }
        }
    }

    /// Whether an item with this end may live in a segment whose last item ends at `last` (Unix
    /// seconds, `u32::MAX` for never).
    #[inline]
    pub(crate) fn fits(self, expiry: Expiry, last: u32, now: Now) -> bool {
        if expiry.is_never() || last == u32::MAX {
            return expiry.is_never() && last == u32::MAX;
        }
        self.of(expiry, now) == self.of(Expiry::from_bits(last.max(1)), now)
    }
}

/// An expiry as the note of a segment: `u32::MAX` for never.
#[inline]
pub(crate) fn expiry_note(expiry: Expiry) -> u32 {
    if expiry.is_never() {
        u32::MAX
    } else {
        expiry.to_bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        unix_ns: 1_800_000_000_000_000_000,
        instant: curtail_types::Instant { ns: 0 },
    };

    fn ends_in(seconds: i64) -> Expiry {
        Expiry::at(1_800_000_000 + seconds)
    }

    #[test]
    fn widths_grow_by_four() {
        let buckets = TtlBuckets::for_segments(1000);
        assert_eq!(buckets.of(Expiry::NEVER, NOW), 0);
        let ends = [
            0, 15, 16, 63, 64, 255, 256, 4_194_303, 4_194_304, 99_999_999,
        ];
        let expected = [1, 1, 2, 2, 3, 3, 4, 10, 10, 10];
        for (seconds, bucket) in ends.into_iter().zip(expected) {
            assert_eq!(buckets.of(ends_in(seconds), NOW), bucket, "{seconds}");
        }
        let few = TtlBuckets::for_segments(60);
        assert_eq!(few.of(ends_in(1_000_000), NOW), 1);
        assert_eq!(few.of(Expiry::NEVER, NOW), 0);
    }

    #[test]
    fn never_and_ending_items_do_not_share() {
        let buckets = TtlBuckets::for_segments(1000);
        assert!(buckets.fits(Expiry::NEVER, u32::MAX, NOW));
        assert!(!buckets.fits(ends_in(5), u32::MAX, NOW));
        assert!(!buckets.fits(Expiry::NEVER, 1_800_000_005, NOW));
        assert!(buckets.fits(ends_in(100), 1_800_000_090, NOW));
        assert!(!buckets.fits(ends_in(100), 1_800_000_009, NOW));
    }
}
