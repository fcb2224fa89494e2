//! Clusters of slices as models: the replica machine of production, every order of what may happen.

mod accepted;
mod actions;
mod host;
mod in_words;
mod models;
#[cfg(test)]
mod tests;
mod world;

use std::collections::BTreeMap;

use curtail_consistency::replica::Model as Agreement;
use curtail_consistency::replica::{CopyState, Gate, Replica, ReplicaConfig, ReplicaMutant};
use curtail_consistency::slice_view::{RowStep, SliceId, SliceView, slice_of};
use curtail_types::{NodeId, NodeSet, RouteHash, ViewNumber};

pub(crate) use accepted::AcceptMutant;
pub(crate) use models::SLICE_MODELS;

use self::actions::{SliceAction, Stepper};
use self::world::{HeldCopy, Load, SliceNode, SliceWorld, Stage};
use crate::fault_counts::fault_counts;
use crate::interned_parts::Shared;
use crate::judge::{Linearizable, Written};
use crate::planted::planted;
use crate::requests::{Kind, Label};
use crate::search::{Model, ModelState as _};
use crate::setup::setup;
use crate::step_notes::StepNotes;
use crate::witnesses::witnesses;

setup! {
    /// A bounded cluster of slices.
    pub(crate) struct SliceSetup(ReplicaMutant) {
        /// Nodes, all members at first.
        nodes: u8,
        /// How many slices there are.
        slices: u16,
        /// How many nodes have a slice at first, all in sync.
        replicas: u8,
        /// The keys.
        keys: &'static [RouteHash],
        /// An error in how nodes treat accepted writes.
        accept_mutant: Option<AcceptMutant>,
        ..
        /// What is asked once, of any node, and of which key.
        operations: &'static [(Kind, usize)],
        /// The first of them, asked of node 0, have ended before anything else happens.
        done_before: u8,
        /// Items that a store has room for; 0 if it has no end.
        capacity: u64,
        /// The nodes that clients ask, a bit for each.
        asked: u8,
        /// What the placement wants, each until it is so or cannot be.
        wants: &'static [(SliceId, RowStep)],
        /// Whether a primary soon suspects a follower that does not answer.
        suspects: bool,
        /// Whether nodes accept writes before they execute them.
        accepts: bool,
        /// How copies of hot keys agree.
        model: Agreement,
        /// What may go wrong, and how often.
        faults: SliceFaults,
        /// What must be seen, or the model is too small to show anything.
        sees: u32,
        /// Whether it takes long.
        is_deep: bool,
    }
}

fault_counts! {
    /// How often something may happen.
    pub(crate) struct SliceFaults {
        /// A message is lost.
        losses: "losses",
        /// A message arrives twice.
        duplicates: "duplicates",
        /// A node dies, or is fenced.
        crashes: "crashes",
        /// A node that died comes back with nothing.
        restarts: "restarts",
        /// An item is evicted.
        evictions: "evictions",
        /// Slices are flushed.
        flushes: "flushes",
        /// The first key becomes hot.
        heats: "promotions",
        /// It ceases to be.
        cools: "demotions",
    }
}

witnesses! {
    ANSWERED = 1, "every request is answered";
    LOST = 2, "a slice is lost";
    ENTERED = 4, "a node enters an in-sync set";
    TOOK_OVER = 8, "another node takes over as primary";
    EVICTED = 16, "an item is evicted";
    EXITED = 32, "a node that runs leaves an in-sync set";
    SHARED = 64, "a copy of a hot key can be read";
    DRAINED = 128, "a gate that closes waits for an accepted write";
}

impl SliceSetup {
    fn machine(&self, me: NodeId) -> Replica {
        let config = ReplicaConfig {
            me,
            model: self.model,
            retransmit_ns: 0,
            suspicion_ns: if self.suspects { 0 } else { u64::MAX },
            patience_ns: u64::MAX / 2,
            learning_ns: 0,
            waiting_max: 4,
            window_max: 4,
            room_ask: u64::from(self.is_accounted()),
            catch_ups_max: 2,
            stage: (0, 1),
        };
        Replica::new(config).with_mutant(self.mutant)
    }

    /// The ticket of a flush of the first slice; those of others follow.
    const FLUSHES: u64 = 64;

    /// The keys of a slice, by their numbers.
    fn keys_of(&self, slice: SliceId) -> impl Iterator<Item = usize> + use<> {
        let (keys, slices) = (self.keys, self.slices);
        let keys = keys.iter().enumerate();
        keys.filter_map(move |(index, key)| (slice_of(*key, slices) == slice).then_some(index))
    }

    /// Whether stores have an end.
    fn is_accounted(&self) -> bool {
        self.capacity > 0
    }

    fn index_of(&self, key: RouteHash) -> usize {
        self.keys.iter().position(|one| *one == key).unwrap_or(0)
    }

    /// Its bounds but for faults, as a person reads them.
    fn parts(&self) -> Vec<String> {
        let Self {
            nodes, replicas, ..
        } = self;
        let mut parts = vec![
            format!("{nodes} nodes"),
            format!("{replicas} in sync at first"),
        ];
        let kinds = self.operations.iter();
        parts.extend(kinds.map(|(kind, key)| format!("{kind} key {key}")));
        if self.is_accounted() {
            parts.push(format!("room for {}", self.capacity));
        }
        let wants = self.wants.iter();
        parts.extend(wants.map(|(slice, step)| in_words::row_step_in_words(*slice, *step)));
        parts
    }

    /// The errors that can be planted in its machines, with their names.
    pub(crate) fn mutants() -> impl Iterator<Item = (ReplicaMutant, String)> {
        planted(ReplicaMutant::ALL, "replica")
    }

    fn stepper<'a>(&'a self, world: &'a mut SliceWorld) -> Stepper<'a> {
        Stepper { setup: self, world }
    }

    fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes).map(NodeId)
    }

    fn first_node(&self, id: NodeId) -> SliceNode {
        SliceNode {
            machine: Some(self.machine(id)),
            gates: vec![Gate::Closed; usize::from(self.slices)],
            ..SliceNode::default()
        }
    }

    /// Whether the rest of what may happen waits for time to pass.
    fn is_still(world: &SliceWorld) -> bool {
        world.parcels.is_empty()
    }

    fn client_actions(&self, world: &SliceWorld, actions: &mut Vec<SliceAction>) {
        for (label, &(kind, key)) in self.operations.iter().enumerate() {
            let (stage, label) = (world.operations[label], label as u8);
            let may_end = match stage {
                Stage::Beside(_) | Stage::Copied(..) => true,
                Stage::Accepted(at) => world.node(at).accepted.front() == Some(&Label(label)),
                _ => false,
            };
            if may_end {
                actions.push(SliceAction::End(label));
            }
            // Of requests that are alike the first is asked first.
            let before = &self.operations[..usize::from(label)];
            let mut alike = before.iter().zip(&*world.operations);
            let waits = alike.any(|(one, at)| *one == (kind, key) && *at == Stage::Unasked);
            if stage != Stage::Unasked || waits {
                continue;
            }
            let slice = slice_of(self.keys[key], self.slices);
            let asked = self.ids().filter(|id| self.asked & 1 << id.0 != 0);
            for node in asked.filter(|id| world.node(*id).machine.is_some()) {
                let is_busy = |stage: &Stage| match *stage {
                    Stage::Asked(at) | Stage::Beside(at) | Stage::Copied(at, ..) => at == node,
                    _ => false,
                };
                if world.sessions.is_some() && world.operations.iter().any(is_busy) {
                    continue;
                }
                if self.may_accept(world, label, node) {
                    actions.push(SliceAction::Accept(label, node));
                }
                let overtakes = self.errs(AcceptMutant::ClientsOvertake);
                if self.is_behind(world, node, key) && !overtakes {
                    continue;
                }
                let here = world.node(node);
                let gate = here.gates[usize::from(slice.0)];
                let copy = here.copies.get(&self.keys[key]);
                let shows = |copy: &HeldCopy| {
                    let has_image = copy.image.is_some() || gate != Gate::Closed;
                    kind == Kind::Get && copy.state == CopyState::Valid && has_image
                };
                let begins = match (gate, kind) {
                    _ if copy.is_some_and(|copy| !shows(copy)) => false,
                    (Gate::Closed, _) => copy.is_some(),
                    (Gate::Open, _) | (Gate::Reads, Kind::Get) => true,
                    (Gate::Reads, _) => false,
                };
                actions.push(match begins {
                    true => SliceAction::Begin(label, node),
                    false => SliceAction::Ask(label, node),
                });
            }
        }
        if world.left.flushes > 0 {
            let overtakes = self.errs(AcceptMutant::FlushOvertakes);
            let serving = world.view.rows().filter(|(slice, row)| {
                let waits = self.has_accepted(world, row.primary, *slice) && !overtakes;
                world.serves(*slice) && !waits
            });
            actions.extend(serving.map(|(slice, _)| SliceAction::Flush(slice)));
        }
    }

    fn network_actions(&self, world: &SliceWorld, actions: &mut Vec<SliceAction>) {
        for (index, parcel) in world.parcels.iter().enumerate() {
            if index > 0 && world.parcels[index - 1] == *parcel {
                continue;
            }
            let waits = match parcel.load {
                Load::Closed(slice) => self.runs_beside(world, parcel.to, slice),
                Load::Request(request) => {
                    let key = self.index_of(request.key);
                    let overtakes = self.errs(AcceptMutant::PeersOvertake);
                    self.is_behind(world, parcel.to, key) && !overtakes
                }
                _ => false,
            };
            if !waits {
                actions.push(SliceAction::Deliver(index, false));
            }
            if matches!(parcel.load, Load::Message(..)) {
                if world.left.losses > 0 {
                    actions.push(SliceAction::Lose(index));
                }
                if world.left.duplicates > 0 {
                    actions.push(SliceAction::Deliver(index, true));
                }
            }
        }
    }

    fn runs_beside(&self, world: &SliceWorld, node: NodeId, slice: SliceId) -> bool {
        let is_undrained = self.has_accepted(world, node, slice);
        if is_undrained && !self.errs(AcceptMutant::ClosesUndrained) {
            return true;
        }
        let mut stages = world.operations.iter().zip(self.operations);
        stages.any(|(stage, (_, key))| {
            *stage == Stage::Beside(node) && slice_of(self.keys[*key], self.slices) == slice
        })
    }

    fn hot_actions(&self, world: &SliceWorld, actions: &mut Vec<SliceAction>) {
        if !world.serves(slice_of(self.keys[0], self.slices)) {
            return;
        }
        if world.left.heats > 0 {
            actions.push(SliceAction::Heat(0, true));
        }
        if world.left.cools > 0 && world.left.heats < self.faults.heats {
            actions.push(SliceAction::Heat(0, false));
        }
    }

    fn view_actions(&self, world: &SliceWorld, actions: &mut Vec<SliceAction>) {
        for (index, (slice, step)) in self.wants.iter().enumerate() {
            let row = world.view.row(*slice);
            let applies = row.is_some_and(|row| row.after(*step, ViewNumber(0)).is_some());
            let is_member = world.view.members.contains(step.node());
            if world.wants & 1 << index != 0 && applies && is_member {
                actions.push(SliceAction::Want(index));
            }
        }
        for id in self.ids() {
            let node = world.node(id);
            let Some(machine) = &node.machine else {
                if world.view.members.contains(id) {
                    actions.push(SliceAction::Remove(id));
                } else if world.left.restarts > 0 {
                    actions.push(SliceAction::Restart(id));
                }
                continue;
            };
            if machine.view().map(|view| view.number) != Some(world.view.number) {
                actions.push(SliceAction::Adopt(id));
            }
            for change in &node.proposals {
                if change.view == world.view.number {
                    actions.push(SliceAction::Change(id, *change));
                }
            }
            let ups = self.ids().filter(|id| world.node(*id).machine.is_some());
            if world.left.crashes > 0 && ups.count() > 1 {
                actions.push(SliceAction::Crash(id));
            }
            if Self::is_still(world) && machine.deadline().is_some() {
                actions.push(SliceAction::Tick(id));
            }
        }
    }
}

impl Model for SliceSetup {
    type State = SliceWorld;
    type Action = SliceAction;

    fn start(&self) -> SliceWorld {
        let all: NodeSet = self.ids().collect();
        let view = SliceView::first(ViewNumber(1), all, self.slices, self.replicas.into());
        let judges = vec![Linearizable::new(Written::NOTHING); self.keys.len()];
        let nodes = self.ids().map(|id| Shared::new(self.first_node(id)));
        let mut world = SliceWorld {
            nodes: nodes.collect(),
            parcels: Shared::new(Vec::new()),
            operations: Shared::new(vec![Stage::Unasked; self.operations.len()]),
            executed: 0,
            left: self.faults,
            judges: Shared::new(judges),
            sessions: (self.model == Agreement::Sc).then(BTreeMap::new),
            view: Shared::new(view),
            wants: ((1_u16 << self.wants.len()) - 1) as u8,
            notes: StepNotes::default(),
        };
        let mut stepper = self.stepper(&mut world);
        for id in self.ids() {
            stepper.act(&SliceAction::Adopt(id));
        }
        stepper.deliver_all();
        for label in 0..self.done_before {
            stepper.act(&SliceAction::Ask(label, NodeId(0)));
            stepper.deliver_all();
        }
        world.renumber();
        world.seal();
        world
    }

    fn actions(&self, world: &SliceWorld, actions: &mut Vec<SliceAction>) {
        self.client_actions(world, actions);
        self.network_actions(world, actions);
        self.hot_actions(world, actions);
        self.view_actions(world, actions);
    }

    fn act(&self, world: &mut SliceWorld, action: &SliceAction) {
        self.stepper(world).act(action);
    }

    fn settle(&self, before: &SliceWorld, world: &mut SliceWorld) {
        let mut seen = world.notes.seen;
        let is_over = |stage: &Stage| matches!(stage, Stage::Answered | Stage::Unknown);
        if world.operations.iter().all(is_over) {
            seen |= ANSWERED;
        }
        for ((_, old), (_, new)) in before.view.rows().zip(world.view.rows()) {
            let went = old.in_sync.difference(new.in_sync);
            if !old.in_sync.contains_all(new.in_sync) {
                seen |= ENTERED;
            }
            let lives = |id: NodeId| world.node(id).machine.is_some();
            if went.into_iter().any(lives) {
                seen |= EXITED;
            }
            if old.primary != new.primary && new.born == old.born {
                seen |= TOOK_OVER;
            }
        }
        let is_valid = |copy: &HeldCopy| copy.state == CopyState::Valid && copy.image.is_some();
        let mut copies = world.nodes.iter().flat_map(|node| node.copies.values());
        if copies.any(is_valid) {
            seen |= SHARED;
        }
        let waits = |parcel: &world::SliceParcel| match parcel.load {
            Load::Closed(slice) => self.has_accepted(world, parcel.to, slice),
            _ => false,
        };
        if self.accepts && world.parcels.iter().any(waits) {
            seen |= DRAINED;
        }
        if world.left.evictions < before.left.evictions {
            seen |= EVICTED;
        }
        world.notes.seen = seen;
        world.renumber();
    }

    fn fault_at_end(&self, world: &SliceWorld) -> Option<&'static str> {
        let mut stages = world.operations.iter();
        if stages.any(|stage| matches!(stage, Stage::Asked(_))) {
            return Some("a request is never answered");
        }
        for node in &world.nodes {
            let mut promised = node.promised.iter().filter(|(_, room)| **room > 0);
            if promised.any(|(to, _)| !world.view.members.contains(*to)) {
                return Some("room is kept for a node that has left");
            }
        }
        let mut copies = world.nodes.iter().flat_map(|node| node.copies.values());
        if copies.any(|copy| copy.state == CopyState::Invalid) {
            return Some("a copy is never valid again");
        }
        for (slice, row) in world.view.rows() {
            let here = |id: NodeId| {
                let items = world.node(id).items.iter();
                items.filter(|(key, _)| slice_of(**key, self.slices) == slice)
            };
            let machine = world.node(row.primary).machine.as_ref();
            if machine.is_some_and(|machine| !machine.serves(slice)) {
                return Some("a slice is never served");
            }
            for id in row.in_sync {
                if !here(id).eq(here(row.primary)) {
                    return Some("nodes in sync differ for ever");
                }
            }
        }
        None
    }

    fn in_words(&self, before: &SliceWorld, action: &SliceAction) -> String {
        self.action_in_words(before, action)
    }
}
