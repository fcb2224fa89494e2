//! Which nodes hold a key: rendezvous hashing over a fixed number of slots.
//!
//! The top bits of a key's route hash name its *slot*; the holders of a slot are the nodes with the
//! highest scores for it (Thaler and Ravishankar, "Using name-based mappings to increase hit
//! rates", 1998). So a node that is added takes over only the slots that it wins, about one in N,
//! and one that is removed gives away only its own. Looking a key up is one load.

use alloc::boxed::Box;

use curtail_types::{NodeId, NodeSet, RouteHash};

/// The holders of every slot, for one set of nodes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Placement {
    homes: Box<[NodeId]>,
    holders: Box<[NodeSet]>,
}

/// Slots that the keys are divided into.
pub const SLOTS: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 12;

/// Machines that a node divides its slots among, the same number on every node.
pub const SLICES: usize = 64;

const _: () = assert!(SLOTS.is_multiple_of(SLICES));

/// The slot of a key.
#[inline]
pub const fn slot_of(key: RouteHash) -> usize {
    (key.0 >> (64 - SLOT_BITS)) as usize
}

/// The slice whose machine is told about a key.
#[inline]
pub const fn slice_of(key: RouteHash) -> usize {
    slot_of(key) % SLICES
}

impl Placement {
    /// Every slot held by `replicas` of `nodes`, or by all if there are fewer.
    ///
    /// # Panics
    /// When `nodes` is empty or `replicas` is 0.
    pub fn new(nodes: NodeSet, replicas: usize) -> Self {
        assert!(!nodes.is_empty(), "keys need a node");
        assert!(replicas > 0, "keys need a holder");
        let slots = 0..SLOTS as u64;
        let holders = slots.clone().map(|slot| best(nodes, replicas, slot));
        let homes = slots.map(|slot| best(nodes, 1, slot).first().unwrap_or_default());
        Self {
            homes: homes.collect(),
            holders: holders.collect(),
        }
    }

    /// The node that decides about `key`: the first of its holders.
    #[inline]
    pub fn home(&self, key: RouteHash) -> NodeId {
        self.homes.get(slot_of(key)).copied().unwrap_or_default()
    }

    /// The nodes that store `key`, its home among them.
    #[inline]
    pub fn holders(&self, key: RouteHash) -> NodeSet {
        self.holders.get(slot_of(key)).copied().unwrap_or_default()
    }
}

/// The `count` nodes with the highest scores for `slot`.
fn best(nodes: NodeSet, count: usize, slot: u64) -> NodeSet {
    let mut chosen = NodeSet::NONE;
    while chosen.len() < count {
        let left = nodes.difference(chosen);
        let Some(next) = left.into_iter().max_by_key(|&node| score(node, slot)) else {
            break;
        };
        chosen = chosen.with(next);
    }
    chosen
}

/// How much a node wants a slot: the finisher of MurmurHash3 over both, the node to break ties.
fn score(node: NodeId, slot: u64) -> (u64, NodeId) {
    let mut word = (u64::from(node.0) + 1) << 32 | slot;
    word = (word ^ word >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ word >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (word ^ word >> 33, node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u8) -> NodeSet {
        (0..count).map(NodeId).collect()
    }

    fn keys() -> impl Iterator<Item = RouteHash> {
        (0..SLOTS as u64).map(|slot| RouteHash(slot << (64 - SLOT_BITS) | 7))
    }

    #[test]
    fn every_node_is_home_to_about_as_many_slots() {
        let placement = Placement::new(nodes(8), 1);
        for node in nodes(8) {
            let homes = keys().filter(|&key| placement.home(key) == node).count();
            let even = SLOTS / 8;
            assert!(
                homes > even * 85 / 100 && homes < even * 115 / 100,
                "{homes}"
            );
        }
    }

    #[test]
    fn the_home_is_one_of_the_holders_and_holders_are_as_many_as_asked() {
        let placement = Placement::new(nodes(5), 2);
        for key in keys() {
            assert_eq!(placement.holders(key).len(), 2);
            assert!(placement.holders(key).contains(placement.home(key)));
        }
        let few = Placement::new(nodes(1), 3);
        assert!(keys().all(|key| few.holders(key) == nodes(1)));
    }

    /// What moves when a node comes is what the node takes; the same backwards when it goes.
    #[test]
    fn a_new_node_takes_its_share_and_nothing_else_moves() {
        let before = Placement::new(nodes(4), 1);
        let after = Placement::new(nodes(5), 1);
        let moved = keys().filter(|&key| before.home(key) != after.home(key));
        let (mut count, mut elsewhere) = (0, 0);
        for key in moved {
            count += 1;
            elsewhere += usize::from(after.home(key) != NodeId(4));
        }
        assert_eq!(elsewhere, 0);
        assert!(count > SLOTS / 5 * 85 / 100 && count < SLOTS / 5 * 115 / 100);
    }

    /// When its home dies, a key's next holder is its home: that is where its copy is.
    #[test]
    fn the_next_home_of_a_key_held_the_key_before() {
        let before = Placement::new(nodes(5), 2);
        for gone in nodes(5) {
            let after = Placement::new(nodes(5).without(gone), 2);
            for key in keys() {
                assert!(before.holders(key).contains(after.home(key)));
            }
        }
    }
}
