//! Writes that a node has accepted and not executed, in a model: the Ordered Queue of a server as
//! it meets the machine.
//!
//! ```text
//!   Accept: gate open --> answered, queued      End: the first of the queue is executed
//!   everything else that asks for the key waits until it is executed
//!   `Closed` and a flush wait until the queue is empty
//! ```
//!
//! The judge holds an accepted write to have taken effect when it is accepted. It may be lost only
//! with its slice: while the gate is open no other node has that.

use std::collections::VecDeque;

use curtail_consistency::replica::Gate;
use curtail_consistency::slice_view::{SliceId, slice_of};
use curtail_types::{NodeId, listed_enum};

use super::SliceSetup;
use super::actions::Stepper;
use super::world::{SliceWorld, Stage};
use crate::requests::{Kind, Label};

/// The writes that a node has accepted, in the order in which it executes them.
pub(super) type AcceptedWrites = VecDeque<Label>;

listed_enum! {
    /// An error in how a node treats accepted writes.
    pub(crate) enum AcceptMutant {
        /// Requests of its own clients do not wait for them.
        ClientsOvertake,
        /// Requests of other nodes do not.
        PeersOvertake,
        /// A gate counts as closed although they are not executed.
        ClosesUndrained,
        /// A flush does not wait for them.
        FlushOvertakes,
        /// It accepts them although its gate is not open.
        AcceptsClosed,
    }
}

impl SliceSetup {
    pub(super) fn errs(&self, error: AcceptMutant) -> bool {
        self.accept_mutant == Some(error)
    }

    /// Whether a node may accept a request.
    pub(super) fn may_accept(&self, world: &SliceWorld, label: u8, node: NodeId) -> bool {
        let (kind, key) = self.operations[usize::from(label)];
        let key = self.keys[key];
        let here = world.node(node);
        let gate = here.gates[usize::from(slice_of(key, self.slices).0)];
        let is_open = match self.errs(AcceptMutant::AcceptsClosed) {
            true => gate != Gate::Closed,
            false => gate == Gate::Open,
        };
        let is_nilext = matches!(kind, Kind::Set | Kind::Delete);
        // Nothing else is looked at: while a gate is open no key of the slice is hot.
        self.accepts && is_nilext && is_open
    }

    /// Whether a node has accepted writes of a key that it has not executed.
    pub(super) fn is_behind(&self, world: &SliceWorld, node: NodeId, key: usize) -> bool {
        let mut accepted = world.node(node).accepted.iter();
        accepted.any(|label| self.operations[usize::from(label.0)].1 == key)
    }

    /// The same for a slice.
    pub(super) fn has_accepted(&self, world: &SliceWorld, node: NodeId, slice: SliceId) -> bool {
        let mut keys = self.keys_of(slice);
        keys.any(|key| self.is_behind(world, node, key))
    }
}

impl Stepper<'_> {
    /// A node accepts a write: its client is answered.
    pub(super) fn accept(&mut self, label: Label, node: NodeId) {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        self.world.operations.edit()[usize::from(label.0)] = Stage::Accepted(node);
        self.world.edit(node).accepted.push_back(label);
        self.world.accept(key, (label, kind));
    }

    /// It executes the first that it has accepted.
    pub(super) fn execute_accepted(&mut self, me: NodeId) {
        let Some(label) = self.world.edit(me).accepted.pop_front() else {
            return;
        };
        self.world.operations.edit()[usize::from(label.0)] = Stage::Answered;
        self.host(me, None).run_accepted(label);
    }
}
