//! Nodes die, lose their lease, come and come back.

use curtail_consistency::symmetric::{Input, Symmetric};
use curtail_types::{NodeId, NodeSet};

use crate::driver::Driver;
use crate::setup::Setup;
use crate::shared::Shared;
use crate::world::{Content, KEY, Label, Node};

impl Driver<'_> {
    /// What it had, was doing and would have been told is gone.
    pub(crate) fn crash(&mut self, node: NodeId) {
        self.world.left.crashes -= 1;
        if let Some(state) = self.world.edit(node) {
            state.is_up = false;
            state.has_lease = false;
            state.late.clear();
        }
        let mut lost = Vec::new();
        self.world.parcels.retain(|parcel| {
            if let (true, Content::Request(label, _)) = (parcel.to == node, parcel.content) {
                lost.push(label);
            }
            parcel.to != node
        });
        for label in lost {
            self.lose(label);
        }
        self.lose_operations_of(node);
        // A cold key dies with its only holder.
        let is_hot = self.setup.starts_hot && self.setup.chances.demotions == 0;
        if self.setup.replicas == 1 && !is_hot {
            self.evict();
        }
        self.remove(node);
    }

    /// Those that are in the hands of a node that died.
    fn lose_operations_of(&mut self, node: NodeId) {
        let travels = |label: Label| {
            let mut parcels = self.world.parcels.iter();
            parcels.any(
                |parcel| matches!(parcel.content, Content::Request(other, _) if other == label),
            )
        };
        let operations = self.world.operations.iter();
        let lost = operations.filter(|one| {
            let is_there = one.label.session() == node || !self.waits_elsewhere(one.label, node);
            is_there && !travels(one.label)
        });
        let lost: Vec<Label> = lost.map(|one| one.label).collect();
        for label in lost {
            self.lose(label);
        }
    }

    /// Whether a living node has the request.
    fn waits_elsewhere(&self, label: Label, node: NodeId) -> bool {
        let mut nodes = self.world.nodes.iter().enumerate();
        nodes.any(|(id, other)| id != usize::from(node.0) && other.machine.holds(label.ticket()))
    }

    pub(crate) fn lose_lease(&mut self, node: NodeId) {
        self.world.left.lost_leases -= 1;
        if let Some(state) = self.world.edit(node) {
            state.has_lease = false;
        }
        self.remove(node);
    }

    pub(crate) fn join(&mut self) {
        self.world.left.joins -= 1;
        let view = self.world.newest();
        let joining = view.joining.with(Setup::JOINER);
        self.world.change_view(view.live, joining);
    }

    /// The node starts anew; what was sent to it before is lost, what it sent is not.
    pub(crate) fn rejoin(&mut self, node: NodeId, machine: Symmetric) {
        self.world.left.rejoins -= 1;
        if let Some(state) = self.world.nodes.get_mut(usize::from(node.0)) {
            *state = Shared::new(Node::new(machine));
        }
        let view = self.world.newest();
        self.world.change_view(view.live, view.joining.with(node));
    }

    pub(crate) fn admit(&mut self) {
        let view = self.world.newest();
        self.world.change_view(view.followers(), NodeSet::NONE);
    }

    fn remove(&mut self, node: NodeId) {
        let view = self.world.newest();
        self.world
            .change_view(view.live.without(node), view.joining);
    }

    pub(crate) fn adopt(&mut self, node: NodeId) {
        let view = self.world.newest();
        let chances = self.setup.chances;
        let joins = chances.joins + chances.rejoins > 0 && view.live.contains(node);
        if let Some(state) = self.world.edit(node) {
            state.view = view.number;
            state.has_lease |= joins;
        }
        self.step(node, Input::View(view), None);
        let place = self.world.place(self.setup, view.number);
        let known = self
            .world
            .node(node)
            .map(|node| node.machine.keys().count());
        if known > Some(0) {
            self.step(node, Input::Placed { key: KEY, place }, None);
        }
    }
}
