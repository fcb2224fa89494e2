//! Which buckets are being written, and were a moment ago: what optimistic readers look at.
//!
//! A bucket's version is odd from the middle of a write's overhead until the same time after it.
//! Both times are known when the write begins, so that readers ask about times instead of being
//! told of changes. Only buckets written within the last few microseconds are kept, because no
//! reader can have begun before; the table is therefore small and stays in the first cache.

use std::collections::VecDeque;

/// Recent writes.
#[derive(Clone, Debug)]
pub(super) struct Versions {
    slots: Vec<Slot>,
    /// Bucket and end of every write that is kept, in the order in which they were entered.
    entered: VecDeque<(u64, u32)>,
    used: usize,
    keep_ns: u64,
}

/// A bucket's last two writes.
#[derive(Clone, Copy, Debug)]
struct Slot {
    bucket: u32,
    /// Writes of this bucket in `entered`; 0: the slot is free.
    kept: u32,
    odd_ns: u64,
    even_ns: u64,
    odd_before_ns: u64,
    even_before_ns: u64,
}

impl Versions {
    /// Writes are remembered for `keep_ns` after they were entered.
    pub(super) fn new(keep_ns: u64) -> Self {
        Self {
            slots: vec![Slot::FREE; 1 << 12],
            entered: VecDeque::with_capacity(1 << 12),
            used: 0,
            keep_ns,
        }
    }

    /// A write at `now` makes the bucket's version odd from `odd_ns` to `even_ns`.
    #[inline(always)]
    pub(super) fn write(&mut self, now: u64, bucket: u32, odd_ns: u64, even_ns: u64) {
        self.forget(now);
        let at = self.find(bucket);
        let slot = &mut self.slots[at];
        if slot.kept == 0 {
            *slot = Slot {
                bucket,
                ..Slot::FREE
            };
            self.used += 1;
        }
        *slot = Slot {
            bucket,
            kept: slot.kept + 1,
            odd_ns,
            even_ns,
            odd_before_ns: slot.odd_ns,
            even_before_ns: slot.even_ns,
        };
        self.entered.push_back((now + self.keep_ns, bucket));
        if self.used * 4 > self.slots.len() {
            self.grow();
        }
    }

    /// When the write that has the bucket's version odd at `now` ends.
    #[inline]
    pub(super) fn odd_until(&self, now: u64, bucket: u32) -> Option<u64> {
        let slot = self.slots[self.find(bucket)];
        if (slot.odd_ns..slot.even_ns).contains(&now) {
            return Some(slot.even_ns);
        }
        (slot.odd_before_ns..slot.even_before_ns)
            .contains(&now)
            .then_some(slot.even_before_ns)
    }

    /// Whether the version changed after `from` and not after `to`, given that it was even at
    /// `from`.
    #[inline]
    pub(super) fn changed(&self, bucket: u32, from: u64, to: u64) -> bool {
        let slot = self.slots[self.find(bucket)];
        let inside = |odd: u64| odd > from && odd <= to;
        inside(slot.odd_ns) || inside(slot.odd_before_ns)
    }

    fn forget(&mut self, now: u64) {
        while let Some(&(until, bucket)) = self.entered.front() {
            if until > now {
                return;
            }
            self.entered.pop_front();
            let at = self.find(bucket);
            self.slots[at].kept -= 1;
            if self.slots[at].kept == 0 {
                self.used -= 1;
                self.close_gap(at);
            }
        }
    }

    #[inline]
    fn find(&self, bucket: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.first(bucket);
        loop {
            let slot = &self.slots[at];
            if slot.kept == 0 || slot.bucket == bucket {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn first(&self, bucket: u32) -> usize {
        let hash = bucket.wrapping_mul(0x9e37_79b9);
        (hash >> (32 - self.slots.len().trailing_zeros())) as usize
    }

    fn close_gap(&mut self, gap: usize) {
        let mask = self.slots.len() - 1;
        let (mut gap, mut at) = (gap, gap);
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.kept == 0 {
                break;
            }
            let way = at.wrapping_sub(self.first(slot.bucket)) & mask;
            if way >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = Slot::FREE;
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Slot::FREE; self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.kept > 0 {
                let at = self.find(slot.bucket);
                self.slots[at] = slot;
            }
        }
    }
}

impl Slot {
    const FREE: Self = Self {
        bucket: 0,
        kept: 0,
        odd_ns: 0,
        even_ns: 0,
        odd_before_ns: 0,
        even_before_ns: 0,
    };
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
        assert_eq!((versions.used, versions.entered.len()), (1, 1));
        assert_eq!(versions.odd_until(1_100, 5), Some(1_600));
    }
}
