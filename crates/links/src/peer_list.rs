//! The list of peers that the connector and every worker's links use.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use curtail_runtime::lock;
use curtail_types::{NodeId, NodeSet};

/// Another node of the cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PeerNode {
    /// Which one; below [`NodeSet::NODES_MAX`].
    pub node: NodeId,
    /// Where it listens for nodes.
    pub address: SocketAddr,
    /// Its incarnation.
    pub incarnation: u64,
}

/// The present list of peers, and the incarnation of this node that has it.
#[derive(Debug, Default)]
pub(crate) struct PeerList {
    list: Mutex<(u64, Arc<[PeerNode]>)>,
    /// Counts the lists. A hint when to look: the list itself is behind the lock.
    generation: AtomicU64,
}

impl PeerList {
    /// Takes another list, for this incarnation of this node; 0 for none, which has no links.
    pub(crate) fn set(&self, own: u64, peers: Vec<PeerNode>) {
        let fits = |peer: &PeerNode| usize::from(peer.node.0) < NodeSet::NODES_MAX;
        let peers = peers.into_iter().filter(fits).collect();
        let mut list = lock(&self.list);
        *list = (own, peers);
        self.generation.fetch_add(1, Relaxed);
    }

    /// This node's incarnation, and the list.
    pub(crate) fn get(&self) -> (u64, Arc<[PeerNode]>) {
        lock(&self.list).clone()
    }

    pub(crate) fn find(&self, node: NodeId) -> Option<PeerNode> {
        let list = lock(&self.list);
        list.1.iter().find(|peer| peer.node == node).copied()
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }
}
