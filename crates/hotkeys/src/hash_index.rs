//! Maps a hash to a number: open addressing in a fixed array.
//!
//! At most half of the slots are used, and what is removed leaves no mark: those behind it move up
//! (Knuth, volume 3, algorithm 6.4R). So a lookup looks at few slots for ever.

use alloc::{boxed::Box, vec};

/// Numbers by hash, for a fixed number of hashes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct HashIndex {
    slots: Box<[Slot]>,
    shift: u32,
}

/// A number above 0 is there, 0 is none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Slot {
    hash: u64,
    number: u32,
}

impl HashIndex {
    /// For at most `entries_max` hashes at a time.
    pub(crate) fn new(entries_max: u32) -> Self {
        let slots = (2 * entries_max.max(1) as usize).next_power_of_two();
        Self {
            slots: vec![Slot::default(); slots].into_boxed_slice(),
            shift: u64::BITS - slots.trailing_zeros(),
        }
    }

    /// The number of `hash`, which is never 0.
    #[inline]
    pub(crate) fn get_mut(&mut self, hash: u64) -> Option<&mut u32> {
        let at = self.find(hash);
        let slot = &mut self.slots[at];
        (slot.number != 0).then_some(&mut slot.number)
    }

    /// The number of `hash`; 0 if there is none.
    #[inline]
    pub(crate) fn get(&self, hash: u64) -> u32 {
        self.slots[self.find(hash)].number
    }

    /// Remembers `number`, above 0, for `hash`. The caller keeps to the bound.
    #[inline]
    pub(crate) fn set(&mut self, hash: u64, number: u32) {
        let at = self.find(hash);
        self.slots[at] = Slot { hash, number };
    }

    /// Forgets `hash`; what stands behind it moves up, so that no search ends too early.
    pub(crate) fn remove(&mut self, hash: u64) {
        let mask = self.slots.len() - 1;
        let mut hole = self.find(hash);
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot.number == 0 {
                break;
            }
            // It may stand in the hole if that is not before its first slot.
            let from_first = at.wrapping_sub(self.first(slot.hash)) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_first >= from_hole {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = Slot::default();
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(Slot::default());
    }

    /// Where `hash` is, or where it would be put.
    #[inline]
    fn find(&self, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.first(hash);
        loop {
            let slot = self.slots[at];
            if slot.number == 0 || slot.hash == hash {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Hashes of one worker may have many bits in common; a multiplication spreads what differs.
    #[inline]
    fn first(&self, hash: u64) -> usize {
        (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    /// Goal: it answers as a map does, full and over many removals, hashes that meet included.
    /// Method: 100,000 random steps on few hashes, beside a map.
    #[test]
    fn it_answers_as_a_map_does() {
        let (mut index, mut map) = (HashIndex::new(16), BTreeMap::new());
        let mut random = 1_u64;
        for step in 1..100_000_u32 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // Neighbours in the array: these differ only in bits that the shift throws away.
            let hash = (random >> 58) << 3;
            if random >> 20 & 1 == 0 && map.len() < 16 {
                index.set(hash, step);
                map.insert(hash, step);
            } else if map.remove(&hash).is_some() {
                index.remove(hash);
            }
            for (&hash, &number) in &map {
                assert_eq!(index.get(hash), number);
            }
            assert_eq!(index.get(hash), map.get(&hash).copied().unwrap_or(0));
        }
        index.clear();
        assert!(map.keys().all(|&hash| index.get_mut(hash).is_none()));
    }
}
