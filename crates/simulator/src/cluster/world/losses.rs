//! What is lost when nodes go, and nobody promised to keep: the judges take it for deleted.
//!
//! With one holder a key that is not hot dies with its home. With several holders every
//! acknowledged write is with all of them; a key is lost when the last of them goes before another
//! node has it. These nodes, the *keepers* of a key, are followed here through the views of the
//! store: they become fewer with every node that goes, and all holders are keepers again when the
//! keys have moved. So that one node dies is never an excuse.

use curtail_consistency::{
    membership::{Incarnation, Members},
    symmetric::{Mode, Model},
};
use curtail_types::{Cas, NodeId, NodeSet, View};

use super::{Node, World};

impl World<'_> {
    /// A node stops, and what it has is gone.
    pub(super) fn note_stop(&mut self, node: usize) {
        self.note_unshared(NodeSet::only(NodeId(node as u8)));
        if self.run.replicas == 1 {
            return self.note_losses(node, self.store.members.view, true);
        }
        let gone = NodeSet::only(NodeId(node as u8));
        for key in 0..self.run.keys {
            let kept = self.keepers[key];
            self.keepers[key] = kept.difference(gone);
            if !kept.is_empty() && self.keepers[key].is_empty() && !self.is_hot_beside(key, node) {
                self.note_loss(key);
            }
        }
    }

    /// A view was written: whoever it takes out loses what it alone has.
    pub(super) fn note_change(&mut self, before: &Members) {
        let after = self.store.members;
        if self.run.replicas == 1 {
            for node in before.view.live.difference(after.view.live) {
                let node = usize::from(node.0);
                if self.is_up[node] {
                    self.note_losses(node, before.view, false);
                }
            }
            // Keys move to a new home and are forgotten where they were, though it is dead.
            let placed = after.view.placed.difference(before.view.placed);
            for node in placed.difference(self.living(&after)) {
                self.note_losses(usize::from(node.0), after.view, true);
            }
            return;
        }
        let settles = before.view.moves() && !after.view.moves();
        for key in 0..self.run.keys {
            let (kept, live) = (self.keepers[key], self.living(&after));
            let mut keepers = kept.intersection(live);
            if !kept.is_empty() && keepers.is_empty() {
                self.note_loss(key);
            }
            if settles || keepers.is_empty() {
                let holders = self.keys.holders(key, after.view.placed);
                keepers = holders.intersection(live);
            }
            self.keepers[key] = keepers;
        }
    }

    /// Under SC a write that no other node had yet dies with its node: whoever saw it will not find
    /// it again.
    pub(super) fn note_unshared(&mut self, gone: NodeSet) {
        if self.run.model != Model::Sc {
            return;
        }
        let (of_gone, of_others): (Vec<_>, Vec<_>) = (self.nodes.iter())
            .filter(|node| self.is_up[usize::from(node.me.0)])
            .partition(|node| gone.contains(node.me));
        let newest = |nodes: &[&Node], key: usize| {
            let versions = nodes.iter().map(|node| node.items[key].version);
            versions.max()
        };
        let is_lost = |key: usize| {
            let shared = of_gone.iter().any(|node| node.is_shared(key));
            shared && newest(&of_gone, key) > newest(&of_others, key)
        };
        if (0..self.run.keys).any(is_lost) {
            (0..self.sessions.len()).for_each(|session| self.separate(session));
        }
    }

    /// The live members of a view that run as the life that it names.
    fn living(&self, members: &Members) -> NodeSet {
        let runs = |node: &NodeId| {
            let index = usize::from(node.0);
            let life = self.nodes[index].incarnation();
            self.is_up[index] && life == members.incarnation(*node) && life != Incarnation(0)
        };
        members.view.live.into_iter().filter(runs).collect()
    }

    /// Whether a node beside this one answers for the key by itself and has what this one has.
    fn is_hot_beside(&self, key: usize, node: usize) -> bool {
        let version = self.nodes[node].items[key].version;
        let mut others = (0..self.nodes.len()).filter(|other| *other != node && self.is_up[*other]);
        others.any(|other| {
            let other = &self.nodes[other];
            other.is_shown(key) && other.items[key].version >= version
        })
    }

    /// With one holder a cold key dies with its home, and nobody promises more. `certain` is
    /// whether the node has stopped: one that does not know yet that it was removed may still make
    /// a key cold.
    fn note_losses(&mut self, node: usize, view: View, certain: bool) {
        for key in 0..self.run.keys {
            let version = self.nodes[node].items[key].version;
            let is_hot = certain && self.nodes[node].modes[key] == Mode::Hot;
            let others = (0..self.nodes.len()).filter(|other| *other != node && self.is_up[*other]);
            let elsewhere = others
                .map(|other| self.nodes[other].items[key].version)
                .max();
            // By its own view, or by the store's, which it may not know yet.
            let homes = [
                self.nodes[node].places[key].home,
                self.keys.home(key, view.placed),
                self.keys.home(key, view.placed_before),
            ];
            let is_home = homes.contains(&NodeId(node as u8));
            let has_it = version != Cas(0) || is_home;
            if has_it && !(is_hot && elsewhere >= Some(version)) {
                self.note_loss(key);
            }
        }
    }

    fn note_loss(&mut self, key: usize) {
        if self.run.trace == Some(key) {
            self.trace(|| "what there was may be lost".into());
        }
        self.outcome.lost += 1;
        self.record.lost(key, self.now);
        if self.run.model == Model::Sc {
            for session in 0..self.sessions.len() {
                self.separate(session);
            }
        }
    }

    /// What a session asks for later may not show what it saw before, nor what it asks for now,
    /// which may be answered before or after.
    pub(super) fn separate(&mut self, session: usize) {
        self.renew(session);
        let client = self.sessions[session].client;
        if let Some((asked, _)) = &mut self.sessions[session].asked {
            asked.client = client;
            self.renew(session);
        }
    }
}
