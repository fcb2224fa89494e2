//! Nodes, sets of them, and what places a key on them.

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
