//! A value for each node that a cluster can have.

use curtail_types::{NodeId, NodeSet};

/// Values by node; a node that cannot be has the usual one.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct ByNode<T>([T; NodeSet::NODES_MAX]);

impl<T: Copy + Default> ByNode<T> {
    pub(crate) const fn all(value: T) -> Self {
        Self([value; NodeSet::NODES_MAX])
    }

    pub(crate) fn get(&self, node: NodeId) -> T {
        let value = self.0.get(usize::from(node.0));
        value.copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, node: NodeId, value: T) {
        self.change(node, |_| value);
    }

    /// The same with this value for each of `nodes`.
    pub(crate) fn with(mut self, nodes: NodeSet, value: T) -> Self {
        nodes.into_iter().for_each(|node| self.set(node, value));
        self
    }

    pub(crate) fn change(&mut self, node: NodeId, next: impl FnOnce(T) -> T) {
        if let Some(value) = self.0.get_mut(usize::from(node.0)) {
            *value = next(*value);
        }
    }
}

impl<T: Copy + Default> Default for ByNode<T> {
    fn default() -> Self {
        Self::all(T::default())
    }
}
