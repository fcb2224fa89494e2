//! What may happen in a cluster of slices, and what comes of it.

use curtail_consistency::replica::Ticket;
use curtail_consistency::replica::{Gate, ReplicaEvent, ReplicaRefusal, ReplicaRequest};
use curtail_consistency::slice_view::{RowChange, SliceId, slice_of};
use curtail_types::{Cas, NodeId, NodeSet, RouteHash};

use super::SliceSetup;
use super::host::ModelHost;
use super::world::{Load, SliceWorld, Stage, StoredItem};
use crate::judge::Written;
use crate::requests::{Kind, Label};

/// Something that happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SliceAction {
    /// A client asks a node.
    Ask(u8, NodeId),
    /// A request begins beside the machine.
    Begin(u8, NodeId),
    /// A node accepts a write, and executes it later.
    Accept(u8, NodeId),
    /// It ends there.
    End(u8),
    /// What is on its way arrives, and may arrive once more.
    Deliver(usize, bool),
    /// It does not.
    Lose(usize),
    /// A timer rings.
    Tick(NodeId),
    /// The placement wants a change.
    Want(usize),
    /// The view store takes a proposal.
    Change(NodeId, RowChange),
    /// A node comes to the newest view.
    Adopt(NodeId),
    /// A node dies, or is fenced.
    Crash(NodeId),
    /// The others remove it.
    Remove(NodeId),
    /// It starts again with nothing, and joins.
    Restart(NodeId),
    /// A key becomes hot, or ceases to be.
    Heat(usize, bool),
    /// A client flushes a slice.
    Flush(SliceId),
}

/// Steps a world.
pub(super) struct Stepper<'a> {
    pub(super) setup: &'a SliceSetup,
    pub(super) world: &'a mut SliceWorld,
}

impl Stepper<'_> {
    pub(super) fn act(&mut self, action: &SliceAction) {
        match *action {
            SliceAction::Ask(label, node) => self.ask(Label(label), node),
            SliceAction::Begin(label, node) => self.begin(Label(label), node),
            SliceAction::Accept(label, node) => self.accept(Label(label), node),
            SliceAction::End(label) => self.end(Label(label)),
            SliceAction::Deliver(index, again) => self.deliver(index, again),
            SliceAction::Lose(index) => {
                self.world.left.losses -= 1;
                self.world.parcels.edit().remove(index);
            }
            SliceAction::Tick(node) => self.step(node, ReplicaEvent::Tick, None),
            SliceAction::Want(index) => self.want(index),
            SliceAction::Change(node, change) => {
                self.world.edit(node).proposals.remove(&change);
                self.change_view(&[change], NodeSet::NONE, NodeSet::NONE);
            }
            SliceAction::Adopt(node) => self.adopt(node),
            SliceAction::Crash(node) => self.crash(node),
            SliceAction::Remove(node) => {
                self.change_view(&[], NodeSet::NONE, NodeSet::only(node));
            }
            SliceAction::Restart(node) => self.restart(node),
            SliceAction::Heat(key, is_hot) => {
                let left = &mut self.world.left;
                match is_hot {
                    true => left.heats -= 1,
                    false => left.cools -= 1,
                }
                let key = self.setup.keys[key];
                let row = self.world.view.row(slice_of(key, self.setup.slices));
                let primary = row.map(|row| row.primary).unwrap_or_default();
                self.step(primary, ReplicaEvent::Heat(key, is_hot), None);
            }
            SliceAction::Flush(slice) => {
                self.world.left.flushes -= 1;
                let primary = self.world.view.row(slice).map(|row| row.primary);
                self.world.begin_flush(self.setup.keys_of(slice));
                let ticket = Ticket(SliceSetup::FLUSHES + u64::from(slice.0));
                let event = ReplicaEvent::Flush(slice, ticket);
                self.step(primary.unwrap_or_default(), event, None);
            }
        }
    }

    pub(super) fn step(
        &mut self,
        me: NodeId,
        event: ReplicaEvent<'_>,
        incoming: Option<StoredItem>,
    ) {
        let Some(mut machine) = self.world.edit(me).machine.take() else {
            return;
        };
        machine.step(event, &mut self.host(me, incoming));
        self.world.edit(me).machine = Some(machine);
    }

    pub(super) fn host(&mut self, me: NodeId, incoming: Option<StoredItem>) -> ModelHost<'_> {
        ModelHost {
            setup: self.setup,
            world: &mut *self.world,
            me,
            incoming,
        }
    }

    fn request(&self, label: Label) -> ReplicaRequest {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        ReplicaRequest {
            ticket: Ticket(u64::from(label.0)),
            key: self.setup.keys[key],
            access: kind.access(),
            size: u32::from(matches!(kind, Kind::Set | Kind::Append)),
            is_forwarded: false,
        }
    }

    fn note_asked(&mut self, label: Label) {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        self.world.judges.edit()[key].begun(label, kind);
    }

    fn ask(&mut self, label: Label, node: NodeId) {
        self.note_asked(label);
        self.send_to_machine(label, node);
    }

    fn send_to_machine(&mut self, label: Label, node: NodeId) {
        let request = self.request(label);
        self.world.operations.edit()[usize::from(label.0)] = Stage::Asked(node);
        self.world.edit(node).own.insert(request.ticket);
        self.step(node, ReplicaEvent::Request(request), None);
    }

    fn begin(&mut self, label: Label, node: NodeId) {
        self.note_asked(label);
        let key = self.setup.keys[self.setup.operations[usize::from(label.0)].1];
        let slice = slice_of(key, self.setup.slices);
        let here = self.world.node(node);
        let copy = here.copies.get(&key).filter(|copy| copy.image.is_some());
        let stage = match (here.gates[usize::from(slice.0)], copy) {
            (Gate::Closed, Some(copy)) => Stage::Copied(node, copy.shown(), false),
            (Gate::Open, _) if !here.copies.contains_key(&key) => Stage::Beside(node),
            _ => {
                let item = here.items.get(&key).copied();
                Stage::Copied(node, shown(item), false)
            }
        };
        self.world.operations.edit()[usize::from(label.0)] = stage;
    }

    fn end(&mut self, label: Label) {
        let (kind, key) = self.setup.operations[usize::from(label.0)];
        match self.world.operations[usize::from(label.0)] {
            Stage::Beside(node) => self.host(node, None).run_beside(label),
            Stage::Copied(node, result, false) => {
                self.world.answer(node, key, (label, kind), result);
            }
            Stage::Copied(node, _, true) => self.send_to_machine(label, node),
            Stage::Accepted(node) => self.execute_accepted(node),
            _ => {}
        }
    }

    pub(super) fn deliver_all(&mut self) {
        while !self.world.parcels.is_empty() {
            self.act(&SliceAction::Deliver(0, false));
        }
    }

    fn deliver(&mut self, index: usize, again: bool) {
        let parcel = match again {
            true => {
                self.world.left.duplicates -= 1;
                self.world.parcels[index].clone()
            }
            false => self.world.parcels.edit().remove(index),
        };
        let (from, to) = (parcel.from, parcel.to);
        match parcel.load {
            Load::Message(message, image) => {
                self.step(to, ReplicaEvent::Message(from, &message), image);
            }
            Load::Request(request) => self.step(to, ReplicaEvent::Request(request), None),
            Load::Answer(ticket, answer) => {
                if let Ok(result) = answer {
                    self.world.edit(to).results.insert(ticket, result);
                }
                let answer = answer.map(|(version, _)| version);
                self.step(to, ReplicaEvent::Answered(from, ticket, answer), None);
            }
            Load::Scan(slice, behind) => self.scan(to, slice, behind),
            Load::Closed(slice) => self.step(to, ReplicaEvent::Closed(slice), None),
        }
    }

    fn scan(&mut self, me: NodeId, slice: SliceId, behind: Option<RouteHash>) {
        let slices = self.setup.slices;
        let mut keys = self.world.node(me).items.keys().copied();
        let next = keys.find(|&key| {
            slice_of(key, slices) == slice && behind.is_none_or(|behind| key > behind)
        });
        if let Some(key) = next {
            self.world.edit(me).scans.insert(slice, key);
            self.step(me, ReplicaEvent::Scanned(slice, &[(key, 1)], false), None);
        } else {
            self.world.edit(me).scans.remove(&slice);
            self.step(me, ReplicaEvent::Scanned(slice, &[], true), None);
        }
    }

    // ---- views ----

    fn want(&mut self, index: usize) {
        let (slice, step) = self.setup.wants[index];
        let primary = self.world.view.row(slice).map(|row| row.primary);
        let event = ReplicaEvent::Wanted(slice, step);
        self.step(primary.unwrap_or_default(), event, None);
    }

    fn change_view(&mut self, changes: &[RowChange], joining: NodeSet, dead: NodeSet) {
        let Some(next) = self.world.view.next(changes, joining, dead) else {
            return;
        };
        for (index, (slice, step)) in self.setup.wants.iter().enumerate() {
            let mut changes = changes.iter();
            let is_done = changes.any(|one| (one.slice, one.step) == (*slice, *step));
            let is_dead = dead.contains(step.node());
            if is_done || is_dead {
                self.world.wants &= !(1 << index);
            }
        }
        let born = next.rows().filter(|(_, row)| row.born == next.number);
        let lost: Vec<SliceId> = born.map(|(slice, _)| slice).collect();
        for (index, key) in self.setup.keys.iter().enumerate() {
            // What only dead nodes had is gone, as if it were deleted.
            if lost.contains(&slice_of(*key, self.setup.slices)) {
                self.world.judges.edit()[index].asked_once(Label::LOSS, Kind::Delete);
                self.world.notes.seen |= super::LOST;
            }
        }
        let number = next.number.0;
        self.world
            .notes
            .add(|| format!("view {number} is in the view store"));
        *self.world.view.edit() = next;
    }

    fn adopt(&mut self, node: NodeId) {
        self.world.edit(node).proposals.clear();
        let view = (*self.world.view).clone();
        self.step(node, ReplicaEvent::View(&view), None);
    }

    fn crash(&mut self, id: NodeId) {
        self.world.left.crashes -= 1;
        for label in std::mem::take(&mut self.world.edit(id).accepted) {
            self.world.operations.edit()[usize::from(label.0)] = Stage::Answered;
        }
        self.world.edit(id).stop();
        self.world.parcels.edit().retain(|parcel| parcel.to != id);
        for label in 0..self.setup.operations.len() {
            let key = self.setup.operations[label].1;
            if let Stage::Asked(at) | Stage::Beside(at) | Stage::Copied(at, ..) =
                self.world.operations[label]
                && at == id
            {
                let label = Label(label as u8);
                self.world.refuse(key, label, ReplicaRefusal::Unknown);
            }
        }
    }

    fn restart(&mut self, id: NodeId) {
        self.world.left.restarts -= 1;
        self.world.parcels.edit().retain(|parcel| parcel.from != id);
        let machine = self.setup.machine(id);
        self.world.edit(id).machine = Some(machine);
        self.change_view(&[], NodeSet::only(id), NodeSet::NONE);
    }
}

/// What a reader sees of an item.
fn shown(item: Option<StoredItem>) -> (Cas, Written) {
    item.map_or((Cas(0), Written::NOTHING), |item| {
        (item.version, item.value)
    })
}
