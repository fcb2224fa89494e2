//! The membership record in the store of the view, and the changes that a node may propose.
//!
//! A change is carried out on the very value that was read, and written only if that value is still
//! there, so views are numbered without gaps and everybody agrees on their order.

use curtail_types::{NodeId, NodeSet, View, ViewNumber};

pub use crate::members::Incarnation;

/// The members of a cluster, as its store holds them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Members {
    /// Who takes part, and how.
    pub view: View,
    /// Nodes on their way out: no keys are placed on them any more.
    pub leaving: NodeSet,
    /// Nodes that miss another's answers, and serve by the lease of the store alone: whoever takes
    /// one of them out waits for that lease.
    pub detached: NodeSet,
    /// The last view that one of them is not among any more.
    pub released: ViewNumber,
    /// The last view that took out a node which may not have known: it may serve until its lease
    /// has ended.
    pub removal: ViewNumber,
    /// The last view that changed where keys are placed.
    pub placement: ViewNumber,
    incarnations: [Incarnation; NodeSet::NODES_MAX],
}

/// What a node proposes to change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Change {
    /// It takes part from now on, following only; another life of it is removed.
    Join(Incarnation),
    /// Nobody is live: all who wait become so, at once.
    Form,
    /// It has every hot key, and answers clients.
    Live,
    /// Keys are placed on every live node that is not leaving.
    Place,
    /// All keys are where they are placed.
    Settle,
    /// This node is to leave.
    Drain(NodeId),
    /// It has left: it serves nobody any more.
    Depart,
    /// This node misses somebody's answers, and serves by the lease of the store alone.
    Detach,
    /// It has all answers again.
    Attach,
    /// These are silent.
    Remove(NodeSet),
}

impl Default for Members {
    fn default() -> Self {
        Self::NOBODY
    }
}

impl Members {
    /// A cluster before its first view.
    pub const NOBODY: Self = Self {
        view: View {
            number: ViewNumber(0),
            live: NodeSet::NONE,
            joining: NodeSet::NONE,
            placed: NodeSet::NONE,
            placed_before: NodeSet::NONE,
        },
        leaving: NodeSet::NONE,
        detached: NodeSet::NONE,
        released: ViewNumber(0),
        removal: ViewNumber(0),
        placement: ViewNumber(0),
        incarnations: [Incarnation(0); NodeSet::NODES_MAX],
    };

    /// Which life of `node` takes part; 0 if none does.
    pub fn incarnation(&self, node: NodeId) -> Incarnation {
        let found = self.incarnations.get(usize::from(node.0));
        found.copied().unwrap_or_default()
    }

    /// The same with `incarnation` as the life of `node`.
    pub fn with_incarnation(mut self, node: NodeId, incarnation: Incarnation) -> Self {
        if let Some(entry) = self.incarnations.get_mut(usize::from(node.0)) {
            *entry = incarnation;
        }
        self
    }

    /// Whether this life of `node` takes part.
    pub fn has(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.view.followers().contains(node) && self.incarnation(node) == incarnation
    }

    /// Nodes that keys shall be placed on: the live ones that are not leaving.
    pub fn staying(&self) -> NodeSet {
        self.view.live.difference(self.leaving)
    }

    /// Keys are about to move: they are not placed on all nodes that stay, and none is on its way.
    /// Nothing that a move must not meet may begin any more.
    pub fn awaits_placement(&self) -> bool {
        let staying = self.staying();
        !self.view.moves() && !staying.is_empty() && staying != self.view.placed
    }

    /// The nodes that have keys to move away, if keys are on their way.
    pub fn sources(&self) -> NodeSet {
        self.view.sources()
    }

    /// The next view, as `me` proposes it, or nothing if the change does not fit or changes
    /// nothing. `replicas` is how many nodes hold a key.
    pub fn after(&self, change: Change, me: NodeId, replicas: usize) -> Option<Self> {
        let mut next = *self;
        match change {
            Change::Join(incarnation) => next.join(me, incarnation, replicas),
            Change::Form => next.form(),
            Change::Live => next.go_live(me),
            Change::Place => next.place(),
            Change::Settle => next.view.placed_before = next.view.placed,
            Change::Drain(node) => next.drain(node),
            Change::Depart => next.depart(me),
            Change::Detach => next.detach(me),
            Change::Attach => next.detached = next.detached.without(me),
            Change::Remove(nodes) => next.remove(nodes.without(me), replicas),
        }
        if next == *self {
            return None;
        }
        next.view.number = ViewNumber(self.view.number.0.checked_add(1)?);
        if self.takes_out_live(&next, change) {
            next.removal = next.view.number;
        }
        if !next.detached.contains_all(self.detached) {
            next.released = next.view.number;
        }
        let ring = |members: &Self| {
            let View {
                placed,
                placed_before,
                ..
            } = members.view;
            (placed, placed_before, members.sources())
        };
        if change != Change::Settle && ring(&next) != ring(self) {
            next.placement = next.view.number;
        }
        Some(next)
    }

    /// Whether `next` lacks a life of a node that may answer clients under this view. One that
    /// departs does not any more.
    fn takes_out_live(&self, next: &Self, change: Change) -> bool {
        let stays = |node| {
            next.view.live.contains(node) && next.incarnation(node) == self.incarnation(node)
        };
        change != Change::Depart && !self.view.live.into_iter().all(stays)
    }

    fn join(&mut self, me: NodeId, incarnation: Incarnation, replicas: usize) {
        if self.has(me, incarnation) {
            return;
        }
        self.remove(NodeSet::only(me), replicas);
        self.view.joining = self.view.joining.with(me);
        *self = self.with_incarnation(me, incarnation);
    }

    fn form(&mut self) {
        if !self.view.live.is_empty() {
            return;
        }
        self.view.live = self.view.joining;
        self.view.joining = NodeSet::NONE;
        self.leaving = NodeSet::NONE;
        self.view.placed = self.view.live;
        self.view.placed_before = self.view.live;
    }

    fn go_live(&mut self, me: NodeId) {
        // While keys are still looked for where an earlier life of it had them, it stays out.
        if self.view.joining.contains(me) && !self.view.placed_before.contains(me) {
            self.view.joining = self.view.joining.without(me);
            self.view.live = self.view.live.with(me);
        }
    }

    fn place(&mut self) {
        if !self.view.moves() && !self.staying().is_empty() {
            self.view.placed = self.staying();
        }
    }

    fn drain(&mut self, node: NodeId) {
        if self.view.followers().contains(node) {
            self.leaving = self.leaving.with(node);
        }
    }

    fn detach(&mut self, me: NodeId) {
        if self.view.live.contains(me) {
            self.detached = self.detached.with(me);
        }
    }

    fn depart(&mut self, me: NodeId) {
        self.take_out(NodeSet::only(me));
    }

    fn remove(&mut self, nodes: NodeSet, replicas: usize) {
        let (placed, before) = (self.view.placed, self.view.placed_before);
        self.take_out(nodes);
        let lost_a_holder = !placed.union(before).intersection(nodes).is_empty();
        if replicas > 1 && lost_a_holder && !self.view.placed.is_empty() {
            // Who still holds a key is found by where it was; the dead are among those named. While
            // keys move, that is where they were before: who they move to may not have them yet.
            self.view.placed_before = before;
        }
    }

    /// Takes `nodes` out of everything. Keys stay placed on somebody as long as somebody is live.
    fn take_out(&mut self, nodes: NodeSet) {
        for node in nodes {
            *self = self.with_incarnation(node, Incarnation(0));
        }
        let view = &mut self.view;
        view.live = view.live.difference(nodes);
        view.joining = view.joining.difference(nodes);
        view.placed = view.placed.difference(nodes);
        view.placed_before = view.placed_before.difference(nodes);
        self.leaving = self.leaving.difference(nodes);
        self.detached = self.detached.difference(nodes);
        let left = match self.staying() {
            staying if staying.is_empty() => self.view.live,
            staying => staying,
        };
        if self.view.placed.is_empty() {
            self.view.placed = left;
        }
        if self.view.placed_before.is_empty() {
            self.view.placed_before = self.view.placed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bits: u64) -> NodeSet {
        NodeSet::from_bits(bits)
    }

    fn formed(bits: u64) -> Members {
        let mut members = Members::NOBODY;
        for node in set(bits) {
            let join = Change::Join(Incarnation(100 + u64::from(node.0)));
            members = members.after(join, node, 1).unwrap();
        }
        members.after(Change::Form, NodeId(0), 1).unwrap()
    }

    #[test]
    fn a_cluster_forms_grows_and_shrinks() {
        // Every step of a node's life, one after the other, with what the others see of it.
        let three = formed(0b111);
        assert_eq!(three.view.number, ViewNumber(4));
        assert_eq!(three.view.placed, set(0b111));
        let join = Change::Join(Incarnation(7));
        let joining = three.after(join, NodeId(3), 1).unwrap();
        assert_eq!(joining.view.followers(), set(0b1111));
        let live = joining.after(Change::Live, NodeId(3), 1).unwrap();
        assert_eq!(
            (live.view.live, live.view.placed),
            (set(0b1111), set(0b111))
        );
        let placed = live.after(Change::Place, NodeId(0), 1).unwrap();
        assert!(placed.view.moves());
        assert_eq!(placed.sources(), set(0b111));
        assert_eq!(placed.placement, placed.view.number);
        assert_eq!(placed.after(Change::Place, NodeId(0), 1), None);
        let settled = placed.after(Change::Settle, NodeId(0), 1).unwrap();
        assert!(!settled.view.moves());
        let draining = settled.after(Change::Drain(NodeId(1)), NodeId(1), 1);
        let moving = draining
            .unwrap()
            .after(Change::Place, NodeId(0), 1)
            .unwrap();
        assert_eq!(moving.view.placed, set(0b1101));
        let settled = moving.after(Change::Settle, NodeId(0), 1).unwrap();
        let gone = settled.after(Change::Depart, NodeId(1), 1).unwrap();
        assert_eq!(gone.view.live, set(0b1101));
        assert_eq!(gone.leaving, NodeSet::NONE);
        assert_eq!(
            gone.removal,
            ViewNumber(0),
            "nobody has to wait for its lease"
        );
    }

    #[test]
    fn only_nodes_that_may_serve_are_waited_for() {
        let three = formed(0b111);
        let removed = three
            .after(Change::Remove(set(0b100)), NodeId(0), 1)
            .unwrap();
        assert_eq!(removed.removal, removed.view.number);
        let joining = three
            .after(Change::Join(Incarnation(9)), NodeId(5), 1)
            .unwrap();
        let removed = joining
            .after(Change::Remove(set(1 << 5)), NodeId(0), 1)
            .unwrap();
        assert_eq!(removed.removal, three.removal, "it never served");
        let reborn = three
            .after(Change::Join(Incarnation(9)), NodeId(1), 1)
            .unwrap();
        assert_eq!(reborn.removal, reborn.view.number, "its old life may serve");
        assert_eq!(reborn.view.placed, set(0b101));
        assert_eq!(three.after(Change::Remove(set(0b1)), NodeId(0), 1), None);
    }

    #[test]
    fn who_serves_by_the_store_alone_is_told_of() {
        let three = formed(0b111);
        let me = NodeId(1);
        let detached = three.after(Change::Detach, me, 1).unwrap();
        assert_eq!((detached.detached, detached.released.0), (set(0b10), 0));
        assert_eq!(detached.after(Change::Detach, me, 1), None);
        assert_eq!(detached.after(Change::Detach, NodeId(5), 1), None);
        let attached = detached.after(Change::Attach, me, 1).unwrap();
        assert_eq!(attached.detached, NodeSet::NONE);
        assert_eq!(attached.released, attached.view.number);
        let gone = detached.after(Change::Remove(set(0b10)), NodeId(0), 1);
        assert_eq!(gone.unwrap().released, gone.unwrap().view.number);
        let other = attached.after(Change::Remove(set(0b10)), NodeId(0), 1);
        assert_eq!(other.unwrap().released, attached.released);
    }

    #[test]
    fn what_holders_lose_is_made_good_from_those_who_are_left() {
        let three = formed(0b111);
        let one = three
            .after(Change::Remove(set(0b100)), NodeId(0), 1)
            .unwrap();
        assert!(
            !one.view.moves(),
            "with one holder there is nothing left to move"
        );
        let two = three
            .after(Change::Remove(set(0b100)), NodeId(0), 2)
            .unwrap();
        assert_eq!(two.view.placed, set(0b011));
        assert_eq!(two.view.placed_before, set(0b111));
        assert_eq!(two.sources(), set(0b011));
        assert_eq!(two.placement, two.view.number);
        let back = two
            .after(Change::Join(Incarnation(9)), NodeId(2), 2)
            .unwrap();
        assert_eq!(
            back.after(Change::Live, NodeId(2), 2),
            None,
            "keys still move"
        );
        let settled = back.after(Change::Settle, NodeId(0), 2).unwrap();
        assert!(settled.after(Change::Live, NodeId(2), 2).is_some());
    }

    /// Goal: a node that goes while keys move does not make a node their source that may not have
    /// them yet. Method: a third node joins two, and one of the two goes before all has moved.
    #[test]
    fn who_waits_for_a_key_is_not_named_as_its_holder() {
        let two = formed(0b011);
        let join = Change::Join(Incarnation(7));
        let joining = two.after(join, NodeId(2), 2).unwrap();
        let live = joining.after(Change::Live, NodeId(2), 2).unwrap();
        let placed = live.after(Change::Place, NodeId(0), 2).unwrap();
        let removed = placed.after(Change::Remove(set(0b010)), NodeId(0), 2);
        let view = removed.unwrap().view;
        assert_eq!((view.placed, view.placed_before), (set(0b101), set(0b011)));
        let sources = removed.unwrap().sources();
        assert_eq!(sources, set(0b101), "some keys may have come only there");
    }

    /// Goal: keys whose old holders are all gone are asked for where they were to come to, and the
    /// move does not end before that. Method: a node leaves two that keys move to, and goes.
    #[test]
    fn who_keys_move_to_send_each_other_what_came_when_no_source_is_left() {
        let three = formed(0b111);
        let mut leaving = three;
        leaving.leaving = set(0b001);
        leaving.view.placed = set(0b001);
        leaving.view.placed_before = set(0b001);
        let placed = leaving.after(Change::Place, NodeId(1), 2).unwrap();
        assert_eq!(placed.sources(), set(0b001));
        let removed = placed.after(Change::Remove(set(0b001)), NodeId(1), 2);
        let removed = removed.unwrap();
        assert_eq!(removed.view.placed_before, set(0b001));
        assert_eq!(removed.sources(), set(0b110));
        assert_eq!(removed.placement, removed.view.number);
    }

    #[test]
    fn keys_are_placed_on_somebody_as_long_as_somebody_is_live() {
        let mut members = formed(0b1);
        members = members
            .after(Change::Join(Incarnation(3)), NodeId(1), 1)
            .unwrap();
        members = members.after(Change::Live, NodeId(1), 1).unwrap();
        members = members
            .after(Change::Remove(set(0b1)), NodeId(1), 1)
            .unwrap();
        assert_eq!(members.view.placed, set(0b10));
        assert_eq!(members.view.placed_before, set(0b10));
        members = members.after(Change::Depart, NodeId(1), 1).unwrap();
        assert_eq!(members.view.placed, NodeSet::NONE);
    }
}
