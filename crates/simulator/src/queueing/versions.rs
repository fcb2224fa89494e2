//! Versions of buckets, which optimistic readers check against concurrent writes.
//!
//! A bucket's version is odd from the middle of a write's overhead until the same time after it.
//! Both times are known when the write begins, so that readers ask about times instead of being
//! told of changes. Only buckets written within the last few microseconds are kept, because no
//! reader can have begun before; the table is therefore small and stays in the first cache.

use std::collections::{HashMap, VecDeque};

/// Recent writes.
#[derive(Clone, Debug)]
pub(crate) struct Versions {
    /// By bucket, with the number of its writes in `entered`.
    buckets: HashMap<u32, (Times, u32)>,
    /// Bucket and end of every write that is kept, in the order in which they were entered.
    entered: VecDeque<(u64, u32)>,
    keep_ns: u64,
}

/// A bucket's last two writes.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    odd_ns: u64,
    even_ns: u64,
    odd_before_ns: u64,
    even_before_ns: u64,
}

impl Versions {
    /// Writes are remembered for `keep_ns` after they were entered.
    pub(crate) fn new(keep_ns: u64) -> Self {
        Self {
            buckets: HashMap::new(),
            entered: VecDeque::with_capacity(1 << 12),
            keep_ns,
        }
    }

    /// A write at `now` makes the bucket's version odd from `odd_ns` to `even_ns`.
    #[inline(always)]
    pub(crate) fn write(&mut self, now: u64, bucket: u32, odd_ns: u64, even_ns: u64) {
        self.forget(now);
        let (times, writes) = self.buckets.entry(bucket).or_default();
        *times = Times {
            odd_ns,
            even_ns,
            odd_before_ns: times.odd_ns,
            even_before_ns: times.even_ns,
        };
        *writes += 1;
        self.entered.push_back((now + self.keep_ns, bucket));
    }

    /// When the write that has the bucket's version odd at `now` ends.
    #[inline]
    pub(crate) fn odd_until(&self, now: u64, bucket: u32) -> Option<u64> {
        let times = self.times(bucket);
        if (times.odd_ns..times.even_ns).contains(&now) {
            return Some(times.even_ns);
        }
        (times.odd_before_ns..times.even_before_ns)
            .contains(&now)
            .then_some(times.even_before_ns)
    }

    /// Whether the version changed after `from` and not after `to`, given that it was even at
    /// `from`.
    #[inline]
    pub(crate) fn changed(&self, bucket: u32, from: u64, to: u64) -> bool {
        let times = self.times(bucket);
        let inside = |odd: u64| odd > from && odd <= to;
        inside(times.odd_ns) || inside(times.odd_before_ns)
    }

    #[inline]
    fn times(&self, bucket: u32) -> Times {
        self.buckets
            .get(&bucket)
            .map_or_else(Times::default, |(times, _)| *times)
    }

    fn forget(&mut self, now: u64) {
        while let Some(&(until, bucket)) = self.entered.front() {
            if until > now {
                return;
            }
            self.entered.pop_front();
            if let Some((_, writes)) = self.buckets.get_mut(&bucket) {
                *writes -= 1;
                if *writes == 0 {
                    self.buckets.remove(&bucket);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_odd_versions_and_changes() {
        let mut versions = Versions::new(10_000);
        assert_eq!(versions.odd_until(0, 7), None);
        versions.write(100, 7, 150, 750);
        assert_eq!(versions.odd_until(149, 7), None);
        assert_eq!(versions.odd_until(150, 7), Some(750));
        assert_eq!(versions.odd_until(750, 7), None);
        assert!(versions.changed(7, 149, 150) && !versions.changed(7, 150, 700));
        // The write before the last counts too: a reader may have begun before both.
        versions.write(800, 7, 850, 1_400);
        assert_eq!(versions.odd_until(700, 7), Some(750));
        assert!(versions.changed(7, 100, 840));
        assert!(!versions.changed(8, 0, 5_000));
    }

    #[test]
    fn old_writes_are_forgotten_and_many_are_kept() {
        let mut versions = Versions::new(1_000);
        for bucket in 0..20_000 {
            versions.write(0, bucket, 50, 600);
        }
        assert!((0..20_000).all(|bucket| versions.odd_until(60, bucket) == Some(600)));
        versions.write(1_000, 5, 1_050, 1_600);
        assert_eq!((versions.buckets.len(), versions.entered.len()), (1, 1));
        assert_eq!(versions.odd_until(1_100, 5), Some(1_600));
    }
}
