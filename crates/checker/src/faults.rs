//! Faults and changes of members: a node dies, loses its lease, joins or restarts.

use curtail_consistency::membership::{Change, Incarnation};
use curtail_consistency::symmetric::{Input, Mode, Symmetric, Visibility};
use curtail_types::{Cas, MessageKind, NodeId, NodeSet};

use crate::interned_parts::Shared;
use crate::moves::Moving;
use crate::outputs::Driver;
use crate::setup::{Setup, Witness};
use crate::world::{Content, FIRST_VERSION, Judge, KEY, Label, Node, Parcel, config};

impl Driver<'_> {
    /// What it had, was doing and would have been told is gone.
    pub(crate) fn crash(&mut self, node: NodeId) {
        self.world.counts.left.crashes -= 1;
        self.end_of(node);
        if self.setup.moves() {
            self.lose_moves_to(node);
            return self.change(Change::Remove(NodeSet::only(node)), node);
        }
        self.lose_key_of(node);
        self.change(Change::Remove(NodeSet::only(node)), node);
    }

    /// A cold key is lost with its only holder.
    fn lose_key_of(&mut self, node: NodeId) {
        let is_hot = self.setup.starts_hot && self.setup.chances.demotions == 0;
        let view = self.world.newest().number;
        let is_home = self.world.place(self.setup, view).home == node;
        if self.setup.replicas == 1 && !is_hot && is_home {
            self.evict();
        }
    }

    /// A node runs no more.
    fn end_of(&mut self, node: NodeId) {
        let state = self.world.edit(node);
        state.is_up = false;
        state.has_lease = false;
        state.late.clear();
        let mut lost = Vec::new();
        self.world.parcels.retain(|parcel| {
            if let (true, Content::Request(label, ..)) = (parcel.to == node, parcel.content) {
                lost.push(label);
            }
            parcel.to != node
        });
        for label in lost {
            self.lose(label);
        }
        self.lose_operations_of(node);
        if !self.keeps_past {
            self.bury(node);
        }
    }

    /// What a node had that runs no more is nowhere, and makes no difference between states: only
    /// what the clocks of others are later than, and which view it had come to.
    fn bury(&mut self, node: NodeId) {
        let machine = Symmetric::new(config(self.setup, node));
        let state = &mut self.world.nodes[usize::from(node.0)];
        let last = state.item.map_or(Cas(0), |item| item.ts);
        *state = Shared::new(Node {
            view: state.view,
            is_up: false,
            ..Node::new(machine)
        });
        self.world.last = self.world.last.max(last);
        if self.setup.moves()
            && let Judge::Sessions(judge) = self.world.judge.edit()
        {
            judge.end(usize::from(node.0), FIRST_VERSION);
        }
    }

    /// A node that has given away all that it had goes, having told its clients so.
    pub(crate) fn depart(&mut self, node: NodeId) {
        self.world.see(Witness::Departed);
        self.end_of(node);
        self.world.moving.retain(|moving| moving.to != node);
        self.change(Change::Depart, node);
    }

    /// The next view, as the membership makes it. Who proposes to remove a node is another.
    pub(crate) fn change(&mut self, change: Change, node: NodeId) {
        let live = self.world.newest().live;
        let by = match change {
            Change::Remove(_) => live.without(node).first().unwrap_or_default(),
            _ => node,
        };
        self.world.change_members(self.setup, change, by);
    }

    /// With one holder the key dies with a node, if it was there or on its way to or from there,
    /// and is not everywhere. Under SC its last writes do, if nobody else had them.
    fn lose_moves_to(&mut self, node: NodeId) {
        self.world.moving.retain(|moving| moving.to != node);
        let is_there = |moving: &Moving| moving.from != node && moving.item.is_some();
        let mut alive = self.setup.members().into_iter();
        let is_kept =
            alive.any(|other| self.has_surely(other)) || self.world.moving.iter().any(is_there);
        let is_hot = self.setup.starts_hot && self.setup.chances.demotions == 0;
        if self.setup.replicas == 1 && !is_kept && !is_hot {
            self.evict();
        }
        let alive = self.world.nodes.iter().filter(|other| other.is_up);
        let left = alive.filter_map(|other| other.item).map(|item| item.ts);
        let moving = self.world.moving.iter().filter_map(|moving| moving.item);
        let left = left.chain(moving.map(|item| item.ts)).max();
        if let Judge::Sessions(judge) = self.world.judge.edit() {
            judge.lose_after(left.unwrap_or_default());
        }
    }

    /// Whether the key cannot be lost as long as `node` lives: it has the item, and nobody has it
    /// instead. Of a promotion that has not come to its end, or that ends, its home is sure unless
    /// it is another by now, and who shows the key and was not told to leave.
    fn has_surely(&self, node: NodeId) -> bool {
        let other = self.world.node(node);
        let is_home = self.home(node) == node;
        let leaves = |parcel: &Parcel| {
            let Content::Message(message, _) = parcel.content else {
                return false;
            };
            parcel.to == node && message.kind == MessageKind::Deactivate
        };
        let is_sure = match other.state {
            None => true,
            Some(Visibility::Valid) => is_home || !self.world.parcels.iter().any(leaves),
            Some(_) => is_home && node == Setup::HOME && other.mode != Mode::Cold,
        };
        other.is_up && other.item.is_some() && is_sure
    }

    /// Those that are in the hands of a node that died.
    fn lose_operations_of(&mut self, node: NodeId) {
        let travels = |label: Label| {
            let mut parcels = self.world.parcels.iter();
            parcels.any(
                |parcel| matches!(parcel.content, Content::Request(other, ..) if other == label),
            )
        };
        let operations = self.world.operations.iter();
        let lost = operations.filter(|one| {
            let is_its = one.label.session() == node;
            let is_there = is_its || !self.waits_elsewhere(one.label, node);
            (is_there && !travels(one.label)) || (is_its && self.setup.moves())
        });
        let lost: Vec<Label> = lost.map(|one| one.label).collect();
        for label in lost {
            self.lose(label);
        }
    }

    /// Whether a living node has the request.
    fn waits_elsewhere(&self, label: Label, node: NodeId) -> bool {
        let mut nodes = self.world.nodes.iter().enumerate();
        nodes.any(|(id, other)| id != usize::from(node.0) && other.has(label))
    }

    pub(crate) fn lose_lease(&mut self, node: NodeId) {
        self.world.counts.left.lost_leases -= 1;
        self.world.edit(node).has_lease = false;
        self.lose_key_of(node);
        self.change(Change::Remove(NodeSet::only(node)), node);
    }

    pub(crate) fn join(&mut self) {
        self.world.counts.left.joins -= 1;
        self.change(Change::Join(Incarnation(1)), Setup::JOINER);
    }

    /// The node starts anew; what was sent to it before is lost, what it sent is not.
    pub(crate) fn rejoin(&mut self, node: NodeId, machine: Symmetric) {
        self.world.counts.left.rejoins -= 1;
        self.world.nodes[usize::from(node.0)] = Shared::new(Node::new(machine));
        self.change(Change::Join(Incarnation(1)), node);
    }

    /// Keys are not placed yet on who becomes live.
    pub(crate) fn admit(&mut self) {
        for joiner in self.world.newest().joining {
            self.change(Change::Live, joiner);
        }
    }

    pub(crate) fn adopt(&mut self, node: NodeId) {
        let before = self.view_of(node);
        let view = self.world.newest();
        let followed = self.shows(node) && self.world.view(before).joining.contains(node);
        if self.setup.moves() {
            self.end_last_move(node, view.number);
        }
        let chances = self.setup.chances;
        let joins = chances.joins + chances.rejoins > 0 && view.live.contains(node);
        let state = self.world.edit(node);
        state.view = view.number;
        state.has_lease |= joins;
        self.step(node, Input::View(view), None);
        let place = self.world.place(self.setup, view.number);
        let known = self.world.node(node).machine.keys().count();
        if known > 0 {
            self.step(node, Input::Placed { key: KEY, place }, None);
        }
        if followed && view.live.contains(node) && self.shows(node) {
            self.world.see(Witness::JoinerGoesOn);
        }
        if self.setup.moves() {
            self.begin_moves(node, before);
        }
    }

    fn shows(&self, node: NodeId) -> bool {
        self.world.node(node).state == Some(Visibility::Valid)
    }
}
