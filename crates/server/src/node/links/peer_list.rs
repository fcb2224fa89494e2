//! Who the peers are: what the linker and every worker's links go by.

use std::{net::SocketAddr, sync::Arc};

use curtail_types::{NodeId, NodeSet};

use crate::sync::{AtomicU64, Mutex, Relaxed, lock};

/// Another node of the cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Peer {
    /// Which one; below [`NodeSet::NODES_MAX`].
    pub(crate) node: NodeId,
    /// Where it listens for nodes.
    pub(crate) address: SocketAddr,
    /// Which life of it.
    pub(crate) incarnation: u64,
}

/// The present list of peers, and the life of this node that has it.
#[derive(Debug, Default)]
pub(super) struct Roster {
    list: Mutex<(u64, Arc<[Peer]>)>,
    /// Counts the lists. A hint when to look: the list itself is behind the lock.
    generation: AtomicU64,
}

impl Roster {
    /// Takes another list, for this life of this node; 0 for none, which has no links.
    pub(super) fn set(&self, own: u64, peers: Vec<Peer>) {
        let fits = |peer: &Peer| usize::from(peer.node.0) < NodeSet::NODES_MAX;
        let peers = peers.into_iter().filter(fits).collect();
        let mut list = lock(&self.list);
        *list = (own, peers);
        self.generation.fetch_add(1, Relaxed);
    }

    /// This life of this node, and the list.
    pub(super) fn get(&self) -> (u64, Arc<[Peer]>) {
        lock(&self.list).clone()
    }

    pub(super) fn find(&self, node: NodeId) -> Option<Peer> {
        let list = lock(&self.list);
        list.1.iter().find(|peer| peer.node == node).copied()
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }
}
