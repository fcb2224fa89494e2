//! Buckets of the table: versions that optimistic readers look at, and cache lines that travel.
//!
//! Only buckets that were used lately matter, so they are kept in a table of fixed size in which a
//! bucket pushes out the one that had its place. What is pushed out is taken to be in memory, where
//! it costs what an uncontended access does.

/// Buckets used lately.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    bucket: u32,
    /// Cores that have the line, one bit each.
    holders: u64,
    /// The last two writes: from when to when the version was odd.
    odd: [(u64, u64); 2],
}

/// Cores that can be told apart.
pub(super) const CORES_MAX: u16 = 64;

impl Buckets {
    pub(super) fn new() -> Self {
        let free = Slot {
            bucket: u32::MAX,
            holders: 0,
            odd: [(0, 0); 2],
        };
        Self {
            slots: vec![free; SLOTS],
        }
    }

    /// A core reads the bucket's line; whether it had to come from a core that wrote it.
    #[inline]
    pub(super) fn read(&mut self, bucket: u32, core: usize) -> bool {
        let slot = self.slot(bucket);
        let bit = 1 << core;
        let travels = slot.holders != 0 && slot.holders & bit == 0;
        slot.holders |= bit;
        travels
    }

    /// A core takes the bucket's line to write it; whether others had it.
    #[inline]
    pub(super) fn own(&mut self, bucket: u32, core: usize) -> bool {
        let slot = self.slot(bucket);
        let bit = 1 << core;
        let travels = slot.holders & !bit != 0;
        slot.holders = bit;
        travels
    }

    /// A write makes the version odd for this time.
    #[inline]
    pub(super) fn write(&mut self, bucket: u32, from: u64, to: u64) {
        let slot = self.slot(bucket);
        slot.odd = [(from, to), slot.odd[0]];
    }

    /// When the write that has the version odd at `now` ends.
    #[inline]
    pub(super) fn odd_until(&self, now: u64, bucket: u32) -> Option<u64> {
        let slot = &self.slots[place(bucket)];
        let odd = slot
            .odd
            .iter()
            .find(|(from, to)| (*from..*to).contains(&now));
        odd.filter(|_| slot.bucket == bucket).map(|(_, to)| *to)
    }

    /// Whether the version changed after `from` and not after `to`.
    #[inline]
    pub(super) fn changed(&self, bucket: u32, from: u64, to: u64) -> bool {
        let slot = &self.slots[place(bucket)];
        let inside = |(odd, even): &(u64, u64)| *even > from && *odd <= to;
        slot.bucket == bucket && slot.odd.iter().any(inside)
    }

    #[inline]
    fn slot(&mut self, bucket: u32) -> &mut Slot {
        let slot = &mut self.slots[place(bucket)];
        if slot.bucket != bucket {
            *slot = Slot {
                bucket,
                holders: 0,
                odd: [(0, 0); 2],
            };
        }
        slot
    }
}

#[inline]
fn place(bucket: u32) -> usize {
    (bucket.wrapping_mul(0x9e37_79b9) >> (32 - SLOTS.ilog2())) as usize
}

const SLOTS: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_odd_while_written() {
        let mut buckets = Buckets::new();
        buckets.write(7, 100, 150);
        assert_eq!(buckets.odd_until(99, 7), None);
        assert_eq!(buckets.odd_until(100, 7), Some(150));
        assert_eq!(buckets.odd_until(150, 7), None);
        assert_eq!(buckets.odd_until(100, 8), None);
        buckets.write(7, 200, 250);
        assert!(buckets.changed(7, 120, 130) && buckets.changed(7, 160, 200));
        assert!(!buckets.changed(7, 150, 199) && !buckets.changed(7, 250, 300));
    }

    #[test]
    fn lines_travel_between_cores() {
        let mut buckets = Buckets::new();
        // The first use is memory's affair.
        assert!(!buckets.read(7, 0));
        assert!(!buckets.read(7, 0) && buckets.read(7, 1) && !buckets.read(7, 1));
        assert!(buckets.own(7, 0) && !buckets.own(7, 0));
        assert!(buckets.read(7, 1) && buckets.own(7, 0));
    }
}
