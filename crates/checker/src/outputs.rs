//! Performs the outputs of a machine, as a worker of the server does.

use curtail_consistency::symmetric::{Input, Output, Value, Visibility};
use curtail_types::{Cas, Instant, Message, NodeId, ViewNumber};

use crate::judge::Written;
use crate::mutants::DriverMutant;
use crate::setup::{Kind, Network, Setup, Witness};
use crate::world::{Content, Item, Judge, KEY, Label, Operation, OperationStage, Parcel, World};

/// A step of one node in a world.
pub(crate) struct Driver<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) mutant: Option<DriverMutant>,
    pub(crate) keeps_past: bool,
    pub(crate) world: &'a mut World,
}

/// What is left of a step's outputs.
#[derive(Default)]
struct Rest {
    /// Something was sent or answered: what follows is seen later than that.
    is_late: bool,
    run: Option<(Label, Cas)>,
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
        let node = self.world.edit(at);
        // That there is nothing has no version in a store.
        let item = node.item.filter(|item| item.value != Written::NOTHING);
        let stored = item.map_or(Cas(0), |item| item.ts);
        let mut outputs = Vec::new();
        node.machine
            .step(Instant::default(), input, stored, |output| {
                outputs.push(output)
            });
        let mut rest = Rest::default();
        for output in outputs {
            self.carry_out(at, output, incoming, &mut rest);
        }
        if let Some((label, ts)) = rest.run {
            self.write(at, label, ts);
        }
        for (session, ts) in rest.seen {
            self.step(session, Input::Seen { key: KEY, ts }, None);
        }
    }

    /// Carries out what was still to be.
    pub(crate) fn catch_up(&mut self, at: NodeId) {
        let late = !self.world.node(at).late.is_empty();
        if late {
            for (state, item) in core::mem::take(&mut self.world.edit(at).late) {
                self.show(at, state, item);
            }
        }
    }

    /// Carries out at once what nobody could see the difference of.
    pub(crate) fn carry_out_unseen(&mut self) {
        let nodes = 0..self.world.nodes.len() as u8;
        for at in nodes.map(NodeId) {
            if self.world.node(at).late.is_empty() {
                continue;
            }
            let is_read = |one: &Operation| {
                one.label.session() == at && matches!(one.stage, OperationStage::Copied(..))
            };
            if self.world.operations.iter().any(is_read) {
                continue;
            }
            let reads_come = self.world.counts.unasked[Kind::Get as usize] > 0;
            if !reads_come || self.shown(at) == self.shown_in_the_end(at) {
                self.catch_up(at);
            }
        }
    }

    /// What a reader beside the machine finds.
    pub(crate) fn shown(&self, at: NodeId) -> Option<Item> {
        let node = self.world.node(at);
        self.shown_of(at, node.state, node.item)
    }

    /// The same once everything that was emitted is carried out.
    fn shown_in_the_end(&self, at: NodeId) -> Option<Item> {
        let node = self.world.node(at);
        let last = node.late.last().map(|late| late.0);
        match last {
            Some(Visibility::Gone) => None,
            Some(Visibility::Ordinary) => self.shown_of(at, None, node.item_in_the_end()),
            _ => self.shown_of(at, last.or(node.state), node.item_in_the_end()),
        }
    }

    fn shown_of(&self, at: NodeId, state: Option<Visibility>, item: Option<Item>) -> Option<Item> {
        let is_home = self.home(at) == at;
        let is_shown = match state {
            Some(state) => state == Visibility::Valid,
            None => is_home || self.setup.moves(),
        };
        let reads_cold = is_home && self.is(DriverMutant::HomeReadsBesideEntry);
        item.filter(|_| is_shown || reads_cold)
    }

    fn carry_out(&mut self, at: NodeId, output: Output, incoming: Option<Item>, rest: &mut Rest) {
        match output {
            Output::Run { ticket, ts } => self.run(at, Label::of(ticket), ts, rest),
            Output::Done { ticket } => {
                let wrote = self.world.operation(Label::of(ticket)).map(|one| one.wrote);
                self.answer(at, Label::of(ticket), wrote, rest);
            }
            Output::Refuse { ticket, .. } => self.lose(Label::of(ticket)),
            Output::Forward { ticket, to, after } => {
                self.world.see(Witness::Forwarded);
                let label = Label::of(ticket);
                let (to, view) = match self.setup.moves() {
                    // A request goes over one link at most: its first node asks again.
                    true if at != label.session() => (label.session(), ViewNumber(0)),
                    true => (to, self.view_of(at)),
                    false => (to, ViewNumber(0)),
                };
                let tells = !self.is(DriverMutant::SendsOnWithoutSeen);
                let after = if tells { after } else { Cas(0) };
                let content = Content::Request(label, after, view);
                self.send(Parcel::new((at, to), content));
            }
            Output::Publish {
                ts, state, value, ..
            } => {
                let item = (value == Value::Incoming).then_some(incoming).flatten();
                if item.is_some_and(|item| item.ts != ts) {
                    self.world.fail("the wrong value was stored");
                }
                match rest.is_late {
                    true => self.world.edit(at).late.push((state, item)),
                    false => self.show(at, state, item),
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

    fn run(&mut self, at: NodeId, label: Label, ts: Cas, rest: &mut Rest) {
        if self.kind(label) == Kind::Get {
            let item = self.world.node(at).item_in_the_end();
            self.answer(at, label, item, rest);
        } else {
            rest.run = Some((label, ts));
        }
    }

    /// The write itself; readers beside the machine are told before.
    fn write(&mut self, at: NodeId, label: Label, ts: Cas) {
        self.catch_up(at);
        let kind = self.kind(label);
        let before = self.world.node(at).item;
        let before = before.map_or(Written::NOTHING, |item| item.value);
        let (value, said) = before.outcome(label, kind);
        if kind == Kind::Delete && before == Written::NOTHING {
            return self.decline(at, label, ts);
        }
        let item = Item { ts, value };
        self.note_written(item);
        self.show(at, Visibility::Unsettled, Some(item));
        if let Some(operation) = self.world.edit_operation(label) {
            let ran_before = operation.wrote.ts > Cas(0);
            operation.wrote = Item { ts, value: said };
            if ran_before {
                self.world.see(Witness::UpdateRanAgain);
            }
        }
        let ticket = label.ticket();
        self.step(at, Input::Write { ticket, key: KEY }, None);
    }

    /// Sessions are judged by versions, and nothing has none when the key is not hot.
    pub(crate) fn note_written(&mut self, item: Item) {
        if item.value == Written::NOTHING
            && let Judge::Sessions(_) = &*self.world.judge
            && let Judge::Sessions(judge) = self.world.judge.edit()
        {
            judge.removed(item.ts);
        }
    }

    /// A request finds that it has nothing to write.
    fn decline(&mut self, at: NodeId, label: Label, ts: Cas) {
        let value = Written::NOTHING;
        self.conclude(at, label, Some(Item { ts, value }));
        let ticket = label.ticket();
        self.step(at, Input::Decline { ticket, key: KEY }, None);
    }

    /// Changes the item and what readers see of it.
    fn show(&mut self, at: NodeId, state: Visibility, item: Option<Item>) {
        let home = self.home(at);
        let writes_back = !self.is(DriverMutant::NoWriteBack);
        let node = self.world.edit(at);
        let before = node.item;
        node.item = item.or(node.item).filter(|_| state != Visibility::Gone);
        if state == Visibility::Ordinary && !writes_back {
            node.item = node.item_when_cold.or(node.item);
        }
        let is_forgotten = matches!(state, Visibility::Ordinary | Visibility::Gone);
        node.state = (!is_forgotten).then_some(state);
        if self.setup.moves() {
            self.show_moving(at, state, before);
        } else if state == Visibility::Gone && home == at {
            self.evict();
        }
        if state == Visibility::Ordinary {
            self.forget_nothing(at);
        }
        for operation in &mut self.world.operations {
            if let OperationStage::Copied(item, _) = operation.stage
                && operation.label.session() == at
            {
                operation.stage = OperationStage::Copied(item, true);
            }
        }
    }

    /// That there is nothing is remembered by the machine alone; clocks are later all the same.
    fn forget_nothing(&mut self, at: NodeId) {
        let item = self.world.node(at).item;
        if let Some(item) = item.filter(|item| item.value == Written::NOTHING) {
            self.world.last = self.world.last.max(item.ts);
            self.world.edit(at).item = None;
        }
    }

    /// What a machine has come to with a key that may move.
    fn show_moving(&mut self, at: NodeId, state: Visibility, before: Option<Item>) {
        let keeps = self
            .in_force(self.view_of(at))
            .keeps(self.setup.route(), at);
        let node = self.world.edit(at);
        let now = node.item;
        let is_nothing = now.is_some_and(|item| item.value == Written::NOTHING);
        if state == Visibility::Ordinary && !keeps {
            node.item = None;
        }
        if is_nothing && now != before {
            self.note_gone(at, now.map_or(Cas(0), |item| item.ts));
        }
        self.world.last = self.world.last.max(now.map_or(Cas(0), |item| item.ts));
        if state != Visibility::Unsettled {
            self.take_late(at, state == Visibility::Gone);
        }
    }

    /// A value is lost, as it may be: from now on the key may be absent.
    pub(crate) fn evict(&mut self) {
        match self.world.judge.edit() {
            Judge::Linearizable(judge) => judge.asked_once(Label::EVICTION, Kind::Set),
            Judge::Sessions(judge) => judge.lose(),
        }
    }

    fn moved(&mut self, at: NodeId, mode: curtail_consistency::symmetric::Mode) {
        use curtail_consistency::symmetric::Mode;
        match mode {
            Mode::Hot => self.world.see(Witness::Promoted),
            Mode::Cold => self.world.see(Witness::Demoted),
            Mode::Promoting | Mode::Demoting => {}
        }
        if at != Setup::HOME && mode != Mode::Cold {
            self.world.see(Witness::TookOver);
        }
        let keeps_cold = self.is(DriverMutant::NoWriteBack);
        let node = self.world.edit(at);
        if mode == Mode::Promoting && keeps_cold {
            node.item_when_cold = node.item;
        }
        node.mode = mode;
    }

    fn send_message(&mut self, from: NodeId, to: NodeId, message: Message) {
        let item = self.world.node(from).item_in_the_end();
        let carried = item.filter(|_| message.kind.carries_value());
        let carried_ts = carried.map_or(Cas(0), |item| item.ts);
        if message.kind.carries_value() && carried_ts != message.ts {
            self.world
                .fail("a message carries the value of another write");
        }
        let is_of_other = message.ts.writer().node() != from;
        if message.kind.carries_value() && is_of_other {
            self.world.see(Witness::Replayed);
        }
        let content = Content::Message(message, carried.unwrap_or_default());
        self.send(Parcel::new((from, to), content));
    }

    pub(crate) fn send(&mut self, parcel: Parcel) {
        let is_up = self.world.node(parcel.to).is_up;
        if !is_up {
            if let Content::Request(label, ..) = parcel.content {
                self.lose(label);
            }
            return;
        }
        let parcels = &mut self.world.parcels;
        let place = if self.setup.network == Network::Ordered {
            let link = (parcel.from, parcel.to);
            parcels.partition_point(|other| (other.from, other.to) <= link)
        } else {
            parcels.partition_point(|other| *other <= parcel)
        };
        let is_there = place.checked_sub(1).and_then(|last| parcels.get(last)) == Some(&parcel);
        if self.setup.network != Network::Repeating || !is_there {
            parcels.insert(place, parcel);
        }
    }

    /// The client hears of it.
    fn answer(&mut self, at: NodeId, label: Label, item: Option<Item>, rest: &mut Rest) {
        rest.is_late = true;
        let session = label.session();
        let answers = self.conclude(at, label, item);
        if answers && session != at && matches!(*self.world.judge, Judge::Sessions(_)) {
            let ts = item.map_or(Cas(0), |item| item.ts);
            rest.seen.push((session, ts));
        }
    }

    /// Gives the answer to whoever judges it, unless the node may not answer any more, or the
    /// client has gone.
    pub(crate) fn conclude(&mut self, at: NodeId, label: Label, item: Option<Item>) -> bool {
        let kind = self.kind(label);
        let has_lease = self.world.node(at).has_lease;
        let operation = self.world.operation(label);
        if operation.is_none_or(|one| one.stage == OperationStage::Unknown) {
            return false;
        }
        if !has_lease && self.mutant != Some(DriverMutant::AnswersWithoutLease) {
            self.lose(label);
            return false;
        }
        self.world.operations.retain(|one| one.label != label);
        let session = usize::from(label.session().0);
        let item = item.unwrap_or(Item {
            ts: Cas(0),
            value: Written::NOTHING,
        });
        let newest = self.world.newest_write();
        let is_right = match self.world.judge.edit() {
            Judge::Linearizable(judge) => judge.answered(label, kind, item.value),
            Judge::Sessions(judge) => judge.answered(session, kind, (item, newest)),
        };
        if !is_right {
            self.world
                .fail("no order of the requests explains this answer");
        }
        self.note_answer(at, kind, item);
        true
    }

    fn note_answer(&mut self, at: NodeId, kind: Kind, item: Item) {
        if kind == Kind::Delete && item.value == Written::GONE {
            self.world.see(Witness::Deleted);
        }
        if kind == Kind::Get {
            if item.value != Written(0) {
                self.world.see(Witness::GetSawWrite);
            }
            if at != self.home(at) {
                self.world.see(Witness::GetAnsweredElsewhere);
            }
            if self.setup.chances.joins > 0 && at == Setup::JOINER {
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
        if self.world.operations.is_empty() && self.world.counts.unasked == [0; Kind::ALL.len()] {
            self.world.see(Witness::AllAnswered);
        }
    }

    /// The client will not know.
    pub(crate) fn lose(&mut self, label: Label) {
        if let Some(operation) = self.world.edit_operation(label) {
            operation.stage = OperationStage::Unknown;
        }
    }

    pub(crate) fn kind(&self, label: Label) -> Kind {
        let operation = self.world.operation(label);
        operation.map_or(Kind::Get, |one| one.kind)
    }

    pub(crate) fn view_of(&self, at: NodeId) -> ViewNumber {
        self.world.node(at).view
    }

    pub(crate) fn home(&self, at: NodeId) -> NodeId {
        self.world.place(self.setup, self.view_of(at)).home
    }
}
