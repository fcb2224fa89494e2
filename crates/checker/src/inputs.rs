//! The inputs of a node's machine: a request, a message, a change of its view.

use curtail_consistency::symmetric::{Input, nothing_since};
use curtail_types::{Cas, HotEpoch, MessageKind, NodeId, WriterId};

use crate::judge::Written;
use crate::mutants::DriverMutant;
use crate::outputs::Driver;
use crate::setup::{Kind, Witness};
use crate::world::{Content, Item, Judge, KEY, Label, Operation, OperationStage};

impl Driver<'_> {
    pub(crate) fn ask(&mut self, kind: Kind, node: NodeId) {
        let label = self.open(kind, node);
        if self.setup.moves() {
            return self.route(label, node, self.view_of(node), Cas(0));
        }
        match self.shown(node) {
            Some(item) if kind == Kind::Get && self.setup.readers_take_time => {
                if let Some(operation) = self.world.edit_operation(label) {
                    operation.stage = OperationStage::Copied(item, false);
                }
            }
            Some(item) if kind == Kind::Get => {
                self.conclude(node, label, Some(item));
            }
            _ => self.request(label, node, Cas(0)),
        }
    }

    /// A thread is asked that acts on an earlier view.
    pub(crate) fn ask_slow(&mut self, kind: Kind, node: NodeId) {
        let label = self.open(kind, node);
        let behind = self.world.node(node).mover.behind;
        self.route(label, node, behind, Cas(0));
    }

    /// A request that was not asked yet is.
    fn open(&mut self, kind: Kind, node: NodeId) -> Label {
        let label = Label::next(self.world, node, kind);
        self.world.counts.unasked[kind as usize] -= 1;
        self.world.counts.writes[usize::from(node.0)] += u8::from(kind != Kind::Get);
        let operations = &mut self.world.operations;
        let place = operations.partition_point(|other| other.label < label);
        operations.insert(
            place,
            Operation {
                label,
                kind,
                stage: OperationStage::Asked,
                wrote: Item::default(),
            },
        );
        if let Judge::Linearizable(judge) = self.world.judge.edit() {
            judge.asked(label, kind);
        }
        label
    }

    /// The machine has a request.
    pub(crate) fn request(&mut self, label: Label, node: NodeId, after: Cas) {
        self.catch_up(node);
        let view = self.world.node(node).view;
        let has_item = self.world.node(node).item.is_some();
        let nodes = self.world.nodes.iter();
        let last = nodes.filter_map(|node| node.item).map(|item| item.ts).max();
        let last = last.max(Some(self.world.last));
        let input = Input::Request {
            ticket: label.ticket(),
            key: KEY,
            place: self.world.place(self.setup, view),
            access: self.kind(label).access(),
            after,
            floor: last.filter(|_| !has_item).unwrap_or_default(),
        };
        self.step(node, input, None);
    }

    pub(crate) fn look(&mut self, label: Label) {
        let stage = self.world.operation(label).map(|one| one.stage);
        if let Some(OperationStage::Copied(item, has_changed)) = stage {
            let session = label.session();
            if has_changed && !self.is(DriverMutant::ReaderLooksOnce) {
                self.world.see(Witness::ReaderStartedOver);
                if let Some(operation) = self.world.edit_operation(label) {
                    operation.stage = OperationStage::Asked;
                }
                self.request(label, session, Cas(0));
            } else {
                self.conclude(session, label, Some(item));
            }
        }
    }

    pub(crate) fn deliver(&mut self, index: usize, stays: bool) {
        let Some(&parcel) = self.world.parcels.get(index) else {
            return;
        };
        if !stays || !matches!(parcel.content, Content::Message(..)) {
            self.world.parcels.remove(index);
        }
        match parcel.content {
            Content::Request(label, after, view) if self.setup.moves() => {
                // Who asked finds where the key is now.
                let view = match parcel.to == label.session() {
                    true => self.view_of(parcel.to),
                    false => view,
                };
                self.route(label, parcel.to, view, after);
            }
            Content::Request(label, after, _) => self.request(label, parcel.to, after),
            Content::MoveRequest(view) => self.take_move_request(parcel, view),
            Content::Message(message, item) => {
                let view = self.world.node(parcel.to).view;
                if message.view < view {
                    self.world.see(Witness::LateMessage);
                }
                self.note_race();
                let input = Input::Message {
                    from: parcel.from,
                    key: KEY,
                    place: self.world.place(self.setup, view),
                    message,
                };
                self.step(parcel.to, input, Some(item));
            }
        }
    }

    fn note_race(&mut self) {
        let writers = self
            .world
            .parcels
            .iter()
            .filter_map(|parcel| match parcel.content {
                Content::Message(message, _) => {
                    let kinds = [MessageKind::Invalidate, MessageKind::Update];
                    kinds.contains(&message.kind).then_some(message.ts.writer())
                }
                Content::Request(..) | Content::MoveRequest(_) => None,
            });
        let mut writers = writers;
        let first = writers.next();
        if writers.any(|writer| Some(writer) != first) {
            self.world.see(Witness::WritesRaced);
        }
    }

    pub(crate) fn tick(&mut self, node: NodeId) {
        if !self.world.is_still() {
            self.world.counts.left.early_timers =
                self.world.counts.left.early_timers.saturating_sub(1);
        }
        self.step(node, Input::Tick, None);
    }

    pub(crate) fn promote(&mut self, node: NodeId) {
        self.catch_up(node);
        self.world.counts.left.promotions = self.world.counts.left.promotions.saturating_sub(1);
        let view = self.world.node(node).view;
        let all = u64::from(self.setup.chances.promotions);
        let place = self.world.place(self.setup, view);
        let count = 1 + all - u64::from(self.world.counts.left.promotions);
        let epoch = match self.setup.moves() {
            // Greater than all of views before, whichever node was home.
            true => HotEpoch(u64::from(view.0) << 4 | count),
            false => HotEpoch(count),
        };
        let (key, floor) = (KEY, self.floor_of_promotion(node));
        let input = Input::Promote {
            key,
            place,
            epoch,
            floor,
        };
        self.step(node, input, None);
    }

    /// That a key has no item is remembered with a version, too, while it is hot.
    fn floor_of_promotion(&mut self, node: NodeId) -> Cas {
        let item = self.world.node(node).item;
        if item.is_some() {
            return Cas(0);
        }
        let clock = Cas::new(self.world.last.clock() + 1, WriterId::of(node, 0));
        let ts = nothing_since(node, clock);
        self.world.last = ts;
        let value = Written::NOTHING;
        self.world.edit(node).item = Some(Item { ts, value });
        ts
    }

    pub(crate) fn demote(&mut self, node: NodeId) {
        self.world.counts.left.demotions -= 1;
        self.step(node, Input::Demote { key: KEY }, None);
    }
}
