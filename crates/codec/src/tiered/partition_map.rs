//! Which back end a key belongs to, the same at clients and nodes.
//!
//! Jump consistent hashing (Lamping and Veach, 2014) on the key's route hash, in integers: of n + 1
//! back ends, one key in n + 1 moves to the new one and no other key moves.

use curtail_types::{BackEndId, Key, KeyAddress, KeyTag, RouteHash};
use twox_hash::XxHash3_64;

/// How keys are divided among back ends.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PartitionMap {
    /// Which map it is; it rises with every change (SW-13).
    pub epoch: u32,
    /// Back ends, at least one, numbered from 0.
    pub back_ends: u16,
}

impl PartitionMap {
    /// The hash that places a key.
    #[inline]
    pub fn route(key: Key<'_>) -> RouteHash {
        RouteHash(XxHash3_64::oneshot(key.bytes()))
    }

    /// The back end of a key with this hash.
    pub const fn owner(&self, route: RouteHash) -> BackEndId {
        let (mut random, mut owner, mut next) = (route.0, 0_u64, 0_u64);
        while next < self.back_ends as u64 {
            owner = next;
            random = random.wrapping_mul(MULTIPLIER).wrapping_add(1);
            next = ((owner + 1) << 31) / ((random >> 33) + 1);
        }
        BackEndId(owner as u16)
    }

    /// What the network sees of a key with this hash.
    pub const fn address(&self, route: RouteHash) -> KeyAddress {
        KeyAddress {
            back_end: self.owner(route),
            tag: KeyTag::of(route),
        }
    }
}

/// Of the paper's linear congruential generator.
const MULTIPLIER: u64 = 2_862_933_555_777_941_757;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: keys are spread evenly, and a further back end takes its share and moves nothing else.
    #[test]
    fn a_further_back_end_takes_its_share_only() {
        const KEYS: u64 = 20_000;
        for back_ends in [1_u16, 2, 15, 16, 100] {
            let before = PartitionMap {
                epoch: 1,
                back_ends,
            };
            let after = PartitionMap {
                epoch: 2,
                back_ends: back_ends + 1,
            };
            let mut moved = 0;
            for number in 0..KEYS {
                let name = number.to_le_bytes();
                let route = PartitionMap::route(Key::new(&name).unwrap());
                let (from, to) = (before.owner(route), after.owner(route));
                assert!(from.0 < back_ends);
                assert!(from == to || to.0 == back_ends, "{from:?} to {to:?}");
                moved += u64::from(from != to);
            }
            let expected = KEYS / u64::from(back_ends + 1);
            assert!(
                moved * 10 > expected * 8 && moved * 10 < expected * 12,
                "{moved}"
            );
        }
    }

    /// The map is part of the protocol: these owners never change.
    #[test]
    fn owners_by_example() {
        let map = PartitionMap {
            epoch: 1,
            back_ends: 16,
        };
        let owner = |key: &[u8]| map.owner(PartitionMap::route(Key::new(key).unwrap())).0;
        let owners = [
            owner(b"a"),
            owner(b"key 1"),
            owner(b"key 2"),
            owner(b"user:42"),
        ];
        assert_eq!(owners, [14, 8, 5, 1]);
    }
}
