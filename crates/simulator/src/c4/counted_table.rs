//! A small hash table whose entries exist while they are counted: with the first count an entry
//! comes, with the last it goes.
//!
//! Linear probing without marks of what was deleted: what leaves closes its gap, so a search ends
//! at the first free place however many came and went. [`crate::ExclusiveWriters`] counts the
//! outstanding writes of a partition, [`crate::queueing::versions`] the recent writes of a bucket.
//!
//! Invariants: a place is free exactly if its count is 0; between a key's first place and the place
//! where it is none is free; at least one place is free.

/// Values by 32-bit keys, each with a count above 0.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Counted<V> {
    /// A power of two.
    slots: Box<[Slot<V>]>,
    used: usize,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Slot<V> {
    key: u32,
    count: u32,
    value: V,
}

/// Where a key is in a table, or would be; good until the table is changed at another place.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Place(usize);

impl<V: Copy + Default> Counted<V> {
    /// An empty table of `slots` places, a power of two. No more than a quarter of them should be
    /// used; [`Counted::grow`] doubles them.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two() && slots > 1);
        Self {
            slots: vec![Slot::default(); slots].into(),
            used: 0,
        }
    }

    /// Where `key` is, or the free place where it belongs.
    #[inline]
    pub(crate) fn find(&self, key: u32) -> Place {
        let mask = self.slots.len() - 1;
        let mut at = self.first(key);
        loop {
            let slot = &self.slots[at];
            if slot.count == 0 || slot.key == key {
                return Place(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// How often what is there is counted; 0: nothing is.
    #[inline]
    pub(crate) fn count(&self, place: Place) -> u32 {
        self.slots[place.0].count
    }

    /// What is there; the default if nothing is.
    #[inline]
    pub(crate) fn value(&self, place: Place) -> V {
        self.slots[place.0].value
    }

    /// Counts `key`, found at `place`, once more; its value is this from now on.
    #[inline]
    pub(crate) fn enter(&mut self, place: Place, key: u32, value: V) {
        let slot = &mut self.slots[place.0];
        let is_new = slot.count == 0;
        *slot = Slot {
            key,
            count: slot.count + 1,
            value,
        };
        self.used += usize::from(is_new);
    }

    /// Counts what is at `place` once less; true if it is gone now.
    #[inline]
    pub(crate) fn leave(&mut self, place: Place) -> bool {
        let slot = &mut self.slots[place.0];
        assert!(slot.count > 0, "nothing is there");
        slot.count -= 1;
        if slot.count > 0 {
            return false;
        }
        self.close_gap(place.0);
        self.used -= 1;
        true
    }

    /// Keys that are there.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Places, free ones included.
    #[inline]
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    /// Twice the places.
    #[cold]
    pub(crate) fn grow(&mut self) {
        let larger = vec![Slot::default(); self.slots.len() * 2].into();
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.count > 0 {
                let Place(at) = self.find(slot.key);
                self.slots[at] = slot;
            }
        }
    }

    #[inline]
    fn first(&self, key: u32) -> usize {
        // Multiplicative hashing (Knuth): neighbouring keys are spread.
        let hash = key.wrapping_mul(0x9e37_79b9);
        (hash >> (32 - self.slots.len().trailing_zeros())) as usize
    }

    /// Moves later entries of the probe sequence back, so that no gap hides them.
    fn close_gap(&mut self, gap: usize) {
        let mask = self.slots.len() - 1;
        let (mut gap, mut at) = (gap, gap);
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.count == 0 {
                break;
            }
            let way = at.wrapping_sub(self.first(slot.key)) & mask;
            if way >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = Slot::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use curtail_workload::Random;

    use super::*;

    /// Goal: nothing is hidden, whatever leaves and however the table grows. Method: random
    /// changes in a crowded table, against a map.
    #[test]
    fn agrees_with_a_map() {
        let mut table = Counted::new(64);
        let mut model: BTreeMap<u32, (u32, u64)> = BTreeMap::new();
        let mut random = Random::new(9);
        for turn in 0..40_000 {
            let key = random.below(50) as u32;
            let place = table.find(key);
            let known = model.get(&key).copied().unwrap_or_default();
            assert_eq!((table.count(place), table.value(place)), known);
            if random.below(2) == 0 || known.0 == 0 {
                table.enter(place, key, turn);
                model.insert(key, (known.0 + 1, turn));
            } else {
                assert_eq!(table.leave(place), known.0 == 1);
                match known.0 {
                    1 => model.remove(&key),
                    count => model.insert(key, (count - 1, known.1)),
                };
            }
            assert_eq!(table.used(), model.len());
            if turn == 20_000 {
                table.grow();
                assert_eq!(table.places(), 128);
            }
        }
    }
}
