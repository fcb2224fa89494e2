//! Carries out what a machine asks for, as a server's worker does.

use curtail_consistency::symmetric::{Input, Output, Ticket, Value, Visibility};
use curtail_types::{Cas, Instant, Message, NodeId, ViewNumber};

use crate::judge::Written;
use crate::mutants::DriverMutant;
use crate::setup::{Kind, Setup, Witness};
use crate::world::{Content, Item, Judge, KEY, OperationStage, Parcel, World, node_of};

/// A step of one node in a world.
pub(crate) struct Driver<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) mutant: Option<DriverMutant>,
    pub(crate) world: &'a mut World,
}

/// What is left of a step's outputs.
#[derive(Default)]
struct Rest {
    /// Something was sent or answered: what follows is seen later than that.
    is_late: bool,
    run: Option<(usize, Cas)>,
    /// Sessions of other nodes that have seen a write.
    seen: Vec<(NodeId, Cas)>,
}

impl Driver<'_> {
    pub(crate) fn is(&self, mutant: DriverMutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Gives `input` to the machine of node `at` and does what it says.
    pub(crate) fn step(&mut self, at: NodeId, input: Input, incoming: Option<Item>) {
        self.catch_up(at);
        let Some(node) = self.world.edit(at) else {
            return;
        };
        let stored = node.item.map_or(Cas(0), |item| item.ts);
        let mut outputs = Vec::new();
        node.machine
            .step(Instant::default(), input, stored, |output| {
                outputs.push(output)
            });
        let mut rest = Rest::default();
        for output in outputs {
            self.carry_out(at, output, incoming, &mut rest);
        }
        if let Some((number, ts)) = rest.run {
            self.write(at, number, ts);
        }
        for (session, ts) in rest.seen {
            self.step(session, Input::Seen { key: KEY, ts }, None);
        }
    }

    /// Carries out what was still to be.
    pub(crate) fn catch_up(&mut self, at: NodeId) {
        let late = self
            .world
            .node(at)
            .is_some_and(|node| !node.late.is_empty());
        if late && let Some(node) = self.world.edit(at) {
            for (state, item) in core::mem::take(&mut node.late) {
                self.show(at, state, item);
            }
        }
    }

    fn carry_out(&mut self, at: NodeId, output: Output, incoming: Option<Item>, rest: &mut Rest) {
        match output {
            Output::Run { ticket, ts } => self.run(at, number_of(ticket), ts, rest),
            Output::Done { ticket } => {
                let wrote = self.operation(number_of(ticket)).map(|one| one.wrote);
                self.answer(at, number_of(ticket), wrote, rest);
            }
            Output::Refuse { ticket, .. } => self.lose(number_of(ticket)),
            Output::Forward { ticket, to, after } => {
                self.world.see(Witness::Forwarded);
                let content = Content::Request(number_of(ticket), after);
                self.send(Parcel {
                    from: at,
                    to,
                    content,
                });
            }
            Output::Publish {
                ts, state, value, ..
            } => {
                let item = (value == Value::Incoming).then_some(incoming).flatten();
                if item.is_some_and(|item| item.ts != ts) {
                    self.world.fail("the wrong value was stored");
                }
                match self.world.edit(at) {
                    Some(node) if rest.is_late => node.late.push((state, item)),
                    _ => self.show(at, state, item),
                }
            }
            Output::Send { to, message, .. } => {
                rest.is_late = true;
                for to in to {
                    self.send_message(at, to, message);
                }
            }
            Output::Moved { mode, .. } => self.moved(at, mode),
        }
    }

    fn run(&mut self, at: NodeId, number: usize, ts: Cas, rest: &mut Rest) {
        if self.kind(number) == Kind::Get {
            let item = self.world.node(at).and_then(|node| node.item_in_the_end());
            self.answer(at, number, item, rest);
        } else {
            rest.run = Some((number, ts));
        }
    }

    /// The write itself; readers beside the machine are told before.
    fn write(&mut self, at: NodeId, number: usize, ts: Cas) {
        self.catch_up(at);
        let kind = self.kind(number);
        let before = self.world.node(at).and_then(|node| node.item);
        let value = before.map_or(ABSENT, |item| item.value).after(number, kind);
        let item = Item { ts, value };
        self.show(at, Visibility::Unsettled, Some(item));
        if let Some(operation) = self.world.operations.get_mut(number) {
            let ran_before = operation.wrote.ts > Cas(0);
            operation.wrote = item;
            if ran_before {
                self.world.see(Witness::UpdateRanAgain);
            }
        }
        let ticket = Ticket(number as u64);
        self.step(at, Input::Write { ticket, key: KEY }, None);
    }

    /// Changes the item and what readers see of it.
    fn show(&mut self, at: NodeId, state: Visibility, item: Option<Item>) {
        let home = self.home(at);
        let writes_back = !self.is(DriverMutant::NoWriteBack);
        let Some(node) = self.world.edit(at) else {
            return;
        };
        node.item = item.or(node.item).filter(|_| state != Visibility::Gone);
        if state == Visibility::Ordinary && !writes_back {
            node.item = node.item_when_cold.or(node.item);
        }
        let is_forgotten = matches!(state, Visibility::Ordinary | Visibility::Gone);
        node.state = (!is_forgotten).then_some(state);
        if state == Visibility::Gone && home == at {
            self.evict();
        }
        for operation in &mut self.world.operations {
            if let OperationStage::Copied(item, _) = operation.stage
                && operation.session == at
            {
                operation.stage = OperationStage::Copied(item, true);
            }
        }
    }

    /// A value is lost, as it may be: from now on the key may be absent.
    pub(crate) fn evict(&mut self) {
        if let Judge::Linearizable(judge) = self.world.judge.edit() {
            judge.asked_once(EVICTION, Kind::Set);
        }
    }

    fn moved(&mut self, at: NodeId, mode: curtail_consistency::symmetric::Mode) {
        use curtail_consistency::symmetric::Mode;
        match mode {
            Mode::Hot => self.world.see(Witness::Promoted),
            Mode::Cold => self.world.see(Witness::Demoted),
            Mode::Promoting | Mode::Demoting => {}
        }
        if at != NodeId(0) && mode != Mode::Cold {
            self.world.see(Witness::TookOver);
        }
        if let Some(node) = self.world.edit(at) {
            if mode == Mode::Promoting {
                node.item_when_cold = node.item;
            }
            node.mode = mode;
        }
    }

    fn send_message(&mut self, from: NodeId, to: NodeId, message: Message) {
        let item = self
            .world
            .node(from)
            .and_then(|node| node.item_in_the_end());
        let carried = item.filter(|_| message.kind.carries_value());
        let carried_ts = carried.map_or(Cas(0), |item| item.ts);
        if message.kind.carries_value() && carried_ts != message.ts {
            self.world
                .fail("a message carries the value of another write");
        }
        let is_of_other = node_of(message.ts.writer()) != from;
        if message.kind.carries_value() && is_of_other && self.world.node(from).is_some() {
            self.world.see(Witness::Replayed);
        }
        let content = Content::Message(message, carried.unwrap_or_default());
        self.send(Parcel { from, to, content });
    }

    pub(crate) fn send(&mut self, parcel: Parcel) {
        let is_up = self.world.node(parcel.to).is_some_and(|node| node.is_up);
        if !is_up {
            if let Content::Request(number, _) = parcel.content {
                self.lose(number);
            }
            return;
        }
        let parcels = &mut self.world.parcels;
        let place = if self.setup.is_ordered {
            let link = (parcel.from, parcel.to);
            parcels.partition_point(|other| (other.from, other.to) <= link)
        } else {
            parcels.partition_point(|other| *other <= parcel)
        };
        parcels.insert(place, parcel);
    }

    /// The client hears of it.
    fn answer(&mut self, at: NodeId, number: usize, item: Option<Item>, rest: &mut Rest) {
        rest.is_late = true;
        if self.conclude(at, number, item)
            && let Some(session) = self.operation(number).map(|one| one.session)
            && session != at
            && matches!(*self.world.judge, Judge::Sessions(_))
        {
            let ts = item.map_or(Cas(0), |item| item.ts);
            rest.seen.push((session, ts));
        }
    }

    /// Gives the answer to whoever judges it, unless the node may not answer any more.
    pub(crate) fn conclude(&mut self, at: NodeId, number: usize, item: Option<Item>) -> bool {
        let kind = self.kind(number);
        let has_lease = self.world.node(at).is_some_and(|node| node.has_lease);
        let Some(operation) = self.world.operations.get_mut(number) else {
            return false;
        };
        if !has_lease && self.mutant != Some(DriverMutant::AnswersWithoutLease) {
            operation.stage = OperationStage::Unknown;
            return false;
        }
        operation.stage = OperationStage::Answered;
        let session = usize::from(operation.session.0);
        let item = item.unwrap_or(Item {
            ts: Cas(0),
            value: ABSENT,
        });
        let is_right = match self.world.judge.edit() {
            Judge::Linearizable(judge) => judge.answered(number, kind, item.value),
            Judge::Sessions(judge) => judge.answered(session, kind, item.ts),
        };
        if !is_right {
            self.world
                .fail("no order of the requests explains this answer");
        }
        self.note_answer(at, kind, item);
        true
    }

    fn note_answer(&mut self, at: NodeId, kind: Kind, item: Item) {
        if kind == Kind::Get {
            if item.value != Written(0) {
                self.world.see(Witness::GetSawWrite);
            }
            if at != self.home(at) {
                self.world.see(Witness::GetAnsweredElsewhere);
            }
            if self.setup.chances.joins > 0 && at.0 + 1 == self.setup.nodes {
                self.world.see(Witness::GetAnsweredByJoiner);
            }
            if self.world.views.len() > 1 {
                self.world.see(Witness::GetAfterView);
            }
            let nodes = self.world.nodes.iter();
            let last = nodes.filter_map(|node| node.item).map(|item| item.ts).max();
            if last > Some(item.ts) {
                self.world.see(Witness::GetSawOldValue);
            }
        }
        let mut operations = self.world.operations.iter();
        if operations.all(|one| one.stage == OperationStage::Answered) {
            self.world.see(Witness::AllAnswered);
        }
    }

    /// The client will not know.
    pub(crate) fn lose(&mut self, number: usize) {
        if let Some(operation) = self.world.operations.get_mut(number) {
            operation.stage = OperationStage::Unknown;
        }
    }

    pub(crate) fn kind(&self, number: usize) -> Kind {
        self.setup
            .operations
            .get(number)
            .copied()
            .unwrap_or(Kind::Get)
    }

    fn operation(&self, number: usize) -> Option<&crate::world::Operation> {
        self.world.operations.get(number)
    }

    pub(crate) fn view_of(&self, at: NodeId) -> ViewNumber {
        let view = self.world.node(at).map(|node| node.view);
        view.unwrap_or_default()
    }

    pub(crate) fn home(&self, at: NodeId) -> NodeId {
        self.world.place(self.setup, self.view_of(at)).home
    }
}

fn number_of(ticket: Ticket) -> usize {
    ticket.0 as usize
}

/// What a key that has no item reads as: as if one more client had set it so.
const ABSENT: Written = Written(EVICTION as u64 + 1);
const EVICTION: usize = 14;
