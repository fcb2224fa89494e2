//! Values that may be lost when nodes leave: tells the checkers when they may have been lost.
//!
//! A key's *keepers* are the nodes that have every acknowledged write of it for certain; when the
//! last of them goes it may be lost, and not otherwise. They are followed here by what the store of
//! views and the homes say, never by what the nodes have:
//!
//! - From when a key is **hot**, its home says so and every live node has answered for it, until
//!   a home begins to make it cold again, it is with all of them: one death is never an excuse.
//! - Else, with **several holders**, it is with all of them; they become fewer with every node that
//!   goes, and all are keepers again when the keys have moved.
//! - Else, with **one holder**, it is with its home; while it moves, with the old one and the new.
//!
//! What may have been lost is lost by the time at which the home of the newest view has begun it
//! and is sure of the key, or it never was.

use curtail_consistency::{
    membership::{Incarnation, Members},
    symmetric::{Mode, Model},
};
use curtail_types::{Cas, NodeId, NodeSet, View, ViewNumber};

use super::{Node, World};

/// Who has what.
#[derive(Debug)]
pub(super) struct Keepers {
    /// Of each key: its keepers as one with several holders.
    holders: Vec<NodeSet>,
    /// Of each key: its keepers as a hot one.
    hot: Vec<NodeSet>,
    /// Since when it is hot.
    hot_since: Vec<u64>,
    /// Of each key: who has answered for it as for a hot one.
    shown: Vec<NodeSet>,
    losing: Vec<Losing>,
    /// Of each node and key: the version that was there before what happens just now. Who acts on a
    /// view goes on writing in the same step.
    had: Vec<Vec<Cas>>,
}

/// A key that may just have been lost.
#[derive(Clone, Copy, Debug)]
struct Losing {
    key: usize,
    since: u64,
    /// With which node, in which life.
    node: NodeId,
    life: Incarnation,
    /// The first view without it.
    view: Option<ViewNumber>,
}

impl Keepers {
    pub(super) fn new(keys: usize, nodes: usize) -> Self {
        Self {
            had: vec![vec![Cas(0); keys]; nodes],
            holders: vec![NodeSet::NONE; keys],
            hot: vec![NodeSet::NONE; keys],
            hot_since: vec![0; keys],
            shown: vec![NodeSet::NONE; keys],
            losing: Vec::new(),
        }
    }

    /// Since when every node has the key and answers for it, if they do.
    pub(super) fn hot_since(&self, key: usize) -> Option<u64> {
        (!self.hot[key].is_empty()).then_some(self.hot_since[key])
    }
}

impl World<'_> {
    /// A home says how far it has come with a key.
    pub(super) fn note_mode(&mut self, node: usize, key: usize, mode: Mode) {
        match mode {
            Mode::Promoting | Mode::Cold if self.keepers.hot[key].is_empty() => {
                self.keepers.shown[key] = NodeSet::NONE;
            }
            Mode::Promoting | Mode::Cold => {}
            Mode::Hot => self.note_hot(node, key),
            Mode::Demoting => self.note_demotion(node, key),
        }
    }

    /// A node answers for a key by itself.
    pub(super) fn note_shown(&mut self, node: usize, key: usize) {
        let shown = &mut self.keepers.shown[key];
        *shown = shown.with(NodeId(node as u8));
        let home = self.nodes[node].places[key].home;
        self.note_hot(usize::from(home.0), key);
    }

    fn note_hot(&mut self, home: usize, key: usize) {
        let living = self.living(&self.members);
        let node = &self.nodes[home];
        let live = node.view.live;
        let all_show = self.keepers.shown[key].contains_all(live);
        if node.modes[key] == Mode::Hot && living.contains(node.me) && all_show {
            if self.keepers.hot[key].is_empty() {
                self.keepers.hot_since[key] = self.now;
            }
            self.keepers.hot[key] = live.intersection(living);
        }
    }

    /// A home makes a key cold: from here on it goes with those of its holders there that were
    /// certain to have it. If it moves to a new home that is gone already, it goes at once.
    fn note_demotion(&mut self, node: usize, key: usize) {
        let (me, living) = (NodeId(node as u8), self.living(&self.members));
        if self.is_unheard(node, living) {
            return;
        }
        self.keepers.shown[key] = NodeSet::NONE;
        let hot = self.keepers.hot[key];
        if hot.is_empty() {
            return;
        }
        // The home may not know yet who holds the key no more. The nodes' own rule for that is what
        // is judged here, so it is not asked.
        let view = self.members.view;
        let mut newest = self.keys.place(key, view.placed);
        if self.run.replicas > 1 && view.moves() {
            let before = self.keys.place(key, view.placed_before).holders;
            newest.holders = newest.holders.union(before.intersection(view.live));
        }
        let holders = self.nodes[node].places[key].holders.intersection(living);
        let holders = holders.intersection(newest.holders);
        let left = holders.intersection(hot);
        let is_one = self.run.replicas == 1;
        let is_gone = !living.contains(me) && holders.is_empty();
        let moves_to_dead = is_one && !living.contains(newest.home);
        if is_gone || is_one || !left.is_empty() {
            self.keepers.hot[key] = NodeSet::NONE;
            self.keepers.holders[key] = left;
        }
        if is_gone {
            self.note_loss(key, me);
        } else if moves_to_dead {
            self.note_loss(key, newest.home);
        }
    }

    /// Whether nobody hears of what a home begins: it has been taken out of the view, and the
    /// others act on a later one than it does.
    fn is_unheard(&self, home: usize, living: NodeSet) -> bool {
        let node = &self.nodes[home];
        let others = node.view.followers().intersection(living);
        let view_of = |other: NodeId| self.nodes[usize::from(other.0)].view.number;
        let act_later = others
            .into_iter()
            .all(|other| view_of(other) > node.view.number);
        !living.contains(node.me) && act_later
    }

    /// A node stops, and what it has is gone.
    pub(super) fn note_stop(&mut self, node: usize) {
        let me = NodeId(node as u8);
        self.note_unshared(NodeSet::only(me));
        for shown in &mut self.keepers.shown {
            // Its next life is bound to have the key when it has answered for it itself.
            *shown = shown.without(me);
        }
        if !self.living(&self.members).contains(me) {
            // It went when it was taken out of the view.
            return;
        }
        let view = self.members.view;
        for key in 0..self.run.keys {
            self.note_gone(key, NodeSet::only(me), &view);
        }
    }

    /// A view was written: whoever it takes out loses what it alone has.
    pub(super) fn note_change(&mut self, before: &Members) {
        let after = self.members;
        let (were, are) = (self.living(before), self.living(&after));
        let gone = were.difference(are);
        for losing in &mut self.keepers.losing {
            let is_in = after.has(losing.node, losing.life);
            losing.view = losing.view.or((!is_in).then_some(after.view.number));
        }
        self.note_trouble(if gone.is_empty() { 0 } else { self.now });
        let all_stay = after.view.live.contains_all(before.view.live);
        if all_stay && after.placement != before.placement {
            self.note_placement();
        }
        // Keys move to a new home and are forgotten where they were, though it is dead.
        let to_dead = after.view.placed.difference(before.view.placed);
        let to_dead = to_dead.difference(are);
        for key in 0..self.run.keys {
            self.note_gone(key, gone, &before.view);
            let is_hot = !self.keepers.hot[key].is_empty();
            let home = self.keys.place(key, after.view.placed).home;
            if self.run.replicas == 1 && !is_hot && to_dead.contains(home) {
                self.note_loss(key, home);
            }
            self.note_holders(key, before, &after);
        }
    }

    /// These nodes go from a cluster that has this view.
    fn note_gone(&mut self, key: usize, gone: NodeSet, view: &View) {
        let (hot, holders) = (self.keepers.hot[key], self.keepers.holders[key]);
        self.keepers.hot[key] = hot.difference(gone);
        self.keepers.holders[key] = holders.difference(gone);
        let remain = self.keepers.hot[key].union(self.keepers.holders[key]);
        if hot.is_empty() && self.run.replicas == 1 {
            for node in gone {
                if self.is_home(key, node, view) {
                    self.note_loss(key, node);
                }
            }
        } else if !hot.union(holders).is_empty() && remain.is_empty() {
            gone.into_iter().for_each(|node| self.note_loss(key, node));
        }
    }

    /// With several holders: all of them are keepers when no key moves any more.
    fn note_holders(&mut self, key: usize, before: &Members, after: &Members) {
        let settles = before.view.moves() && !after.view.moves();
        if self.run.replicas > 1 && (settles || self.keepers.holders[key].is_empty()) {
            let holders = self.keys.place(key, after.view.placed).holders;
            self.keepers.holders[key] = holders.intersection(self.living(after));
        }
    }

    /// Whether it is the key's home by its own view, or by this one, before or after a move.
    fn is_home(&mut self, key: usize, node: NodeId, view: &View) -> bool {
        let own = self.nodes[usize::from(node.0)].places[key].home;
        let homes = [
            own,
            self.keys.place(key, view.placed).home,
            self.keys.place(key, view.placed_before).home,
        ];
        homes.contains(&node)
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

    fn note_loss(&mut self, key: usize, node: NodeId) {
        if self.run.trace == Some(key) {
            self.trace(|| "what there was may be lost".into());
        }
        self.outcome.lost += 1;
        let members = &self.members;
        let runs = &self.nodes[usize::from(node.0)];
        let life = match self.is_up[usize::from(node.0)] {
            true => runs.incarnation(),
            false => members.incarnation(node),
        };
        let is_in = members.has(node, life);
        self.keepers.losing.push(Losing {
            key,
            since: self.now,
            node,
            life,
            view: (!is_in).then_some(members.view.number),
        });
    }

    /// Looks which of the keys that may have been lost somebody is sure of again.
    pub(super) fn note_found(&mut self) {
        for losing in std::mem::take(&mut self.keepers.losing) {
            let Losing { key, since, .. } = losing;
            if !self.is_certain(&losing) {
                self.keepers.losing.push(losing);
                continue;
            }
            if self.run.trace == Some(key) {
                self.trace(|| "what there was is lost, or never will be".into());
            }
            self.record.lost(key, [since, self.now]);
            if self.run.model == Model::Sc {
                // Whoever saw it may find it no more.
                self.part_all(key);
            }
        }
    }

    fn part_all(&mut self, key: usize) {
        (0..self.sessions.len()).for_each(|session| self.part_from(session, key));
    }

    /// A node acts on another view: as home of a key that may have been lost it may answer at once,
    /// before it is sure of it in the sense of what may yet come up.
    pub(super) fn note_adopted(&mut self, node: usize) {
        if self.run.model != Model::Sc {
            return;
        }
        let View { number, placed, .. } = self.nodes[node].view;
        let lost: Vec<usize> = (self.keepers.losing.iter())
            .filter(|losing| losing.view.is_some_and(|first| first <= number))
            .map(|losing| losing.key)
            .collect();
        for key in lost {
            if self.keys.place(key, placed).home == NodeId(node as u8) {
                self.part_all(key);
            }
        }
    }

    /// Whether the key's home under a view without that node knows what it has.
    fn is_certain(&mut self, losing: &Losing) -> bool {
        let Some(first) = losing.view else {
            return false;
        };
        (0..self.nodes.len()).any(|index| {
            let node = &self.nodes[index];
            let home = self.keys.place(losing.key, node.view.placed).home;
            self.is_up[index]
                && home == node.me
                && node.view.number >= first
                && node.serves(self.now)
                && node.is_sure_of(losing.key)
        })
    }

    /// What happened at a node is over.
    pub(super) fn note_versions(&mut self, node: usize) {
        let items = self.nodes[node].items.iter().map(|item| item.version);
        self.keepers.had[node].clear();
        self.keepers.had[node].extend(items);
    }

    /// Under SC a write that no other node had yet dies with its node: whoever saw it will not find
    /// it again.
    pub(super) fn note_unshared(&mut self, gone: NodeSet) {
        if self.run.model != Model::Sc {
            return;
        }
        for key in 0..self.run.keys {
            let (of_gone, of_others): (Vec<_>, Vec<_>) = (self.nodes.iter())
                .filter(|node| self.is_up[usize::from(node.me.0)])
                .partition(|node| gone.contains(node.me));
            let had = |node: &Node<'_>| self.keepers.had[usize::from(node.me.0)][key];
            let newest = |nodes: &[&Node<'_>]| nodes.iter().map(|node| had(node)).max();
            let shared = of_gone.iter().any(|node| node.is_shared(key));
            let kept = newest(&of_others).unwrap_or_default();
            if shared && newest(&of_gone) > Some(kept) {
                for session in 0..self.sessions.len() {
                    if self.sessions[session].may_have_seen_after(key, kept) {
                        self.part_from(session, key);
                    }
                }
            }
        }
    }
}
