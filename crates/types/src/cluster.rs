//! Nodes, views, and the messages of nodes about a key.
//!
//! A *view* says who takes part; its number fences every message (Hermes, Katsarakis et al.,
//! ASPLOS 2020, section 3.1). Messages between nodes are plain values of one shape, so that the
//! decision-makers of `consistency`, the bytes of `codec` and the networks of the simulator and the
//! checker agree on them without knowing each other.

use crate::{cas::Cas, numbered_enum};

/// One of at most [`NodeSet::NODES_MAX`] nodes of a cluster.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u8);

/// Some of the nodes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeSet(u64);

/// The hash that places a key on nodes: stable and public (xxh3-64), the same on every node. It is
/// never used to place a key in memory.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RouteHash(pub u64);

/// Counts the views of a cluster; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ViewNumber(pub u32);

/// Counts the promotions of a key; a later one is greater, whichever node was its home.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HotEpoch(pub u64);

/// Who takes part, and how.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct View {
    /// Which one of the cluster's views this is.
    pub number: ViewNumber,
    /// Nodes that answer clients.
    pub live: NodeSet,
    /// Nodes that follow every hot key but answer nobody yet (ccKVS requirement CC-64).
    pub joining: NodeSet,
    /// Nodes that keys are placed on.
    pub placed: NodeSet,
    /// The same before the last change, while keys still move; else equal to `placed`.
    pub placed_before: NodeSet,
}

/// What one node tells another about a key. All kinds have one shape: what a kind does not use is
/// zero. Key and value travel beside it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Message {
    /// What it says.
    pub kind: MessageKind,
    /// The view of the sender.
    pub view: ViewNumber,
    /// The promotion of the key that it belongs to; 0 for a key that is not hot.
    pub epoch: HotEpoch,
    /// The write that it is about.
    pub ts: Cas,
}

numbered_enum! {
    /// What a [`Message`] says. The number is what travels.
    #[derive(Ord, PartialOrd)]
    pub enum MessageKind: u8 {
        /// A write is coming; its value is here (Lin).
        Invalidate = 1,
        /// `Invalidate` was received.
        Ack = 2,
        /// The write is complete everywhere: readers may see it (Lin).
        Validate = 3,
        /// A write happened; its value is here (SC).
        Update = 4,
        /// The key becomes hot; its value is here.
        Fill = 5,
        /// `Fill` was received.
        FillAck = 6,
        /// Every node has the key: answer for it.
        Activate = 7,
        /// The key ceases to be hot: send requests to its home again.
        Deactivate = 8,
        /// `Deactivate` was carried out; `ts` is the highest write seen.
        DeactivateAck = 9,
        /// Forget the key.
        Drop = 10,
        /// As `Invalidate`, for a write that depends on what was there: who knows a later write
        /// says so with an `Invalidate` of that one and does not acknowledge (Hermes, section 3.6).
        InvalidateUpdate = 11,
    }
}

impl NodeSet {
    /// Nodes that a cluster may have.
    pub const NODES_MAX: usize = 64;

    /// Nobody.
    pub const NONE: Self = Self(0);

    /// The set whose members are the bits of `bits`.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// A bit for each member.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Only `node`.
    pub const fn only(node: NodeId) -> Self {
        Self(1 << (node.0 as u32 % Self::NODES_MAX as u32))
    }

    /// Whether `node` is one of them.
    #[inline]
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & Self::only(node).0 != 0
    }

    /// These and `node`.
    pub const fn with(self, node: NodeId) -> Self {
        Self(self.0 | Self::only(node).0)
    }

    /// These but for `node`.
    pub const fn without(self, node: NodeId) -> Self {
        Self(self.0 & !Self::only(node).0)
    }

    /// Those in either.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those not in `other`.
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` are here.
    pub const fn contains_all(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// How many.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is nobody.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The one with the lowest number.
    pub fn first(self) -> Option<NodeId> {
        self.into_iter().next()
    }
}

impl IntoIterator for NodeSet {
    type Item = NodeId;
    type IntoIter = Nodes;

    fn into_iter(self) -> Nodes {
        Nodes(self.0)
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<T: IntoIterator<Item = NodeId>>(nodes: T) -> Self {
        nodes.into_iter().fold(Self::NONE, Self::with)
    }
}

/// The members of a [`NodeSet`], the lowest number first.
#[derive(Clone, Debug)]
pub struct Nodes(u64);

impl Iterator for Nodes {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        let node = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (node < u64::BITS).then_some(NodeId(node as u8))
    }
}

impl View {
    /// Those whose acknowledgement a write of a hot key needs.
    pub const fn followers(&self) -> NodeSet {
        self.live.union(self.joining)
    }

    /// Whether keys are on their way from node to node.
    pub fn moves(&self) -> bool {
        self.placed != self.placed_before
    }

    /// The nodes that have keys to send, while keys are on their way: who had them before. If some
    /// of these are gone, all who are to have a key may be, and those that it is to come to send
    /// each other what has come.
    pub fn sources(&self) -> NodeSet {
        let had = self.placed_before.intersection(self.live);
        match (self.moves(), had == self.placed_before) {
            (false, _) => NodeSet::NONE,
            (true, true) => had,
            (true, false) => had.union(self.placed),
        }
    }
}

impl MessageKind {
    /// Whether a value travels with it.
    pub const fn carries_value(self) -> bool {
        matches!(
            self,
            Self::Invalidate | Self::InvalidateUpdate | Self::Update | Self::Fill
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_members_in_order() {
        let set: NodeSet = [NodeId(63), NodeId(0), NodeId(5)].into_iter().collect();
        let members: [Option<NodeId>; 4] = {
            let mut nodes = set.into_iter();
            core::array::from_fn(|_| nodes.next())
        };
        assert_eq!(
            members,
            [Some(NodeId(0)), Some(NodeId(5)), Some(NodeId(63)), None]
        );
        assert_eq!(set.len(), 3);
        assert!(set.contains(NodeId(63)) && !set.contains(NodeId(1)));
        assert_eq!(set.without(NodeId(0)).first(), Some(NodeId(5)));
        assert_eq!(NodeSet::NONE.first(), None);
    }
}
