//! One step of the machine: from an input to outputs.

use curtail_types::{Cas, HotEpoch, Instant, Message, MessageKind, NodeId, RouteHash, View};

use super::entry::{Entry, NEVER, Stage, Step};
use super::mutant::Mutant;
use super::promotion::answer_unknown;
use super::table::{Dropped, Entries, Removed, Waiter, Waiting};
use super::views::{self, ViewChange};
use super::{Access, Config, Input, Mode, Output, Place, Refusal, Ticket};

/// Decides about the keys of one slice on one node.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Symmetric {
    config: Config,
    view: View,
    entries: Entries,
    waiting: Waiting,
    dropped: Dropped,
    ended: Dropped,
    removed: Removed,
    entries_made: u64,
    #[cfg(any(test, feature = "mutants"))]
    mutant: Option<Mutant>,
}

impl Symmetric {
    /// A machine that knows no key and is in no view. It allocates here and never again.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            view: View::default(),
            entries: Entries::new(config.keys_max),
            waiting: Waiting::new(config.waiting_max, config.keys_max),
            dropped: Dropped::new(config.keys_max),
            ended: Dropped::new(config.keys_max),
            removed: Removed::new(),
            entries_made: 0,
            #[cfg(any(test, feature = "mutants"))]
            mutant: None,
        }
    }

    /// A machine that makes an error.
    #[cfg(any(test, feature = "mutants"))]
    pub fn with_mutant(config: Config, mutant: Mutant) -> Self {
        let mutant = Some(mutant);
        Self {
            mutant,
            ..Self::new(config)
        }
    }

    /// Takes `input` at `now`, and says through `emit` what is to be done, in order. `stored` is
    /// the version of the item that the store has under the input's key, 0 if there is none.
    pub fn step(&mut self, now: Instant, input: Input, stored: Cas, mut emit: impl FnMut(Output)) {
        match input {
            Input::Tick => self.tick(now, &mut emit),
            Input::View(view) => self.change_view(now, view, &mut emit),
            input => self.about_key(now, input, stored, &mut emit),
        }
    }

    /// When [`Input::Tick`] is due.
    pub fn deadline(&self) -> Option<Instant> {
        let entries = self.entries.iter();
        let due = entries.map(|entry| entry.write_due.min(entry.stage_due));
        let first = due.min().filter(|due| *due < NEVER);
        first.into_iter().chain(self.waiting.deadline()).min()
    }

    /// The keys that it knows something about, in order.
    pub fn keys(&self) -> impl Iterator<Item = RouteHash> {
        self.entries.iter().map(|entry| entry.key)
    }

    /// Whether it knows something about `key`, or has a request for it.
    pub fn knows(&self, key: RouteHash) -> bool {
        self.entries.get(key).is_some()
    }

    /// Whether the request is here: it waits, runs, or its write goes round.
    pub fn holds(&self, ticket: Ticket) -> bool {
        let in_entries = self.entries.iter().any(|entry| {
            let own = entry.own.and_then(|own| own.waiter);
            let waiter = own.or(entry.running.map(|running| running.waiter));
            waiter.is_some_and(|waiter| waiter.ticket == ticket)
        });
        in_entries || self.waiting.iter().any(|waiter| waiter.ticket == ticket)
    }

    /// Whether this node is home of a hot key that `node` does not follow yet, or of one that is
    /// about to be hot no more, which it may never have followed: as its next home it would know
    /// nothing of what others answer for. A node that joins has every hot key when no live node
    /// says so.
    pub fn is_unfilled(&self, node: NodeId) -> bool {
        self.entries.iter().any(|entry| match entry.stage {
            Stage::Home(Mode::Promoting | Mode::Hot) => !entry.heard.contains(node),
            Stage::Home(Mode::Demoting) => true,
            _ => false,
        })
    }

    fn about_key(&mut self, now: Instant, input: Input, stored: Cas, emit: &mut dyn FnMut(Output)) {
        let Some(key) = key_of(&input) else {
            return;
        };
        let (entry, mutant) = (self.entries.get(key), self.mutant());
        let mut step = Step {
            now,
            stored,
            config: &self.config,
            view: &self.view,
            waiting: &mut self.waiting,
            dropped: &mut self.dropped,
            ended: &mut self.ended,
            removed: &mut self.removed,
            entries_made: &mut self.entries_made,
            has_room: !self.entries.is_full(),
            mutant,
            emit,
        };
        let entry = with_input(&mut step, key, entry, input);
        self.set(key, entry);
    }

    #[cfg(any(test, feature = "mutants"))]
    fn mutant(&self) -> Option<Mutant> {
        self.mutant
    }

    #[cfg(not(any(test, feature = "mutants")))]
    fn mutant(&self) -> Option<Mutant> {
        None
    }

    fn set(&mut self, key: RouteHash, entry: Option<Entry>) {
        let kept = entry.filter(|entry| entry.stage != Stage::Forgotten);
        self.entries.set(key, kept);
    }

    /// Lets `change` work on every entry in turn.
    fn for_each(
        &mut self,
        now: Instant,
        emit: &mut dyn FnMut(Output),
        mut change: impl FnMut(&mut Entry, &mut Step<'_>),
    ) {
        let (mut at, mutant) = (0, self.mutant());
        while let Some(mut entry) = self.entries.at(at) {
            let mut step = Step {
                now,
                stored: entry.ts,
                config: &self.config,
                view: &self.view,
                waiting: &mut self.waiting,
                dropped: &mut self.dropped,
                ended: &mut self.ended,
                removed: &mut self.removed,
                entries_made: &mut self.entries_made,
                has_room: !self.entries.is_full(),
                mutant,
                emit,
            };
            change(&mut entry, &mut step);
            self.set(entry.key, Some(entry));
            at += usize::from(entry.stage != Stage::Forgotten);
        }
    }

    fn tick(&mut self, now: Instant, emit: &mut dyn FnMut(Output)) {
        self.for_each(now, emit, |entry, step| {
            if entry.write_due <= now {
                entry.write_is_due(step);
            }
            if entry.stage_due <= now && entry.stage != Stage::Forgotten {
                entry.stage_is_due(step);
            }
            entry.lose_patience(step);
        });
        while let Some(waiter) = self.waiting.pop_late(now) {
            let (ticket, reason) = (waiter.ticket, Refusal::Late);
            emit(Output::Refuse { ticket, reason });
        }
    }

    fn change_view(&mut self, now: Instant, view: View, emit: &mut dyn FnMut(Output)) {
        let me = self.config.me;
        let change = ViewChange::new(me, &self.view, &view);
        if !change.keeps_homes(&self.view, &view) {
            self.ended.clear();
        }
        self.view = view;
        self.dropped.clear();
        self.removed.clear();
        if view.followers().contains(me) {
            self.for_each(now, emit, |entry, step| entry.forget_answers(step, change));
        } else {
            views::leave(&mut self.entries, &mut self.waiting, emit);
        }
    }
}

/// The key that an input is about.
fn key_of(input: &Input) -> Option<RouteHash> {
    match *input {
        Input::Tick | Input::View(_) => None,
        Input::Request { key, .. }
        | Input::Write { key, .. }
        | Input::Decline { key, .. }
        | Input::Message { key, .. }
        | Input::Promote { key, .. }
        | Input::Demote { key }
        | Input::Placed { key, .. }
        | Input::Seen { key, .. } => Some(key),
    }
}

/// What is known about a key after an input.
fn with_input(
    step: &mut Step<'_>,
    key: RouteHash,
    entry: Option<Entry>,
    input: Input,
) -> Option<Entry> {
    match input {
        Input::Request {
            ticket,
            place,
            access,
            after,
            floor,
            ..
        } => {
            let until = step.in_ns(step.config.patience_ns);
            let waiter = Waiter {
                key,
                ticket,
                access,
                after,
                until,
            };
            request(step, place, entry, (waiter, floor))
        }
        Input::Message {
            from,
            place,
            message,
            ..
        } => receive(step, (key, place), entry, from, message),
        Input::Promote {
            place,
            epoch,
            floor,
            ..
        } => promote(step, (key, place), entry, (epoch, floor)),
        input => {
            let mut entry = entry?;
            change(step, &mut entry, input);
            Some(entry)
        }
    }
}

/// Inputs that are nothing to a key that nothing is known about.
fn change(step: &mut Step<'_>, entry: &mut Entry, input: Input) {
    match input {
        Input::Write { ticket, .. } => entry.write(step, ticket),
        Input::Decline { ticket, .. } => entry.decline(step, ticket),
        Input::Demote { .. } => {
            if matches!(entry.stage, Stage::Home(Mode::Promoting | Mode::Hot)) {
                entry.enter(step, Mode::Demoting);
                entry.proceed(step);
            }
        }
        Input::Placed { place, .. } => entry.placed(step, place),
        Input::Seen { ts, .. } => entry.have_seen(step, ts),
        _ => {}
    }
}

fn request(
    step: &mut Step<'_>,
    place: Place,
    entry: Option<Entry>,
    (waiter, floor): (Waiter, Cas),
) -> Option<Entry> {
    let (ticket, ts) = (waiter.ticket, Cas(0));
    let is_home = place.home == step.config.me;
    let mut entry = match entry {
        Some(entry) => entry,
        None if !is_home => {
            let (to, after) = (place.home, Cas(0));
            step.emit(Output::Forward { ticket, to, after });
            return None;
        }
        None if waiter.access == Access::Read => {
            step.emit(Output::Run { ticket, ts });
            return None;
        }
        None if !step.has_room => {
            step.refuse(ticket, Refusal::Full);
            return None;
        }
        None => Entry {
            floor,
            ..Entry::new(waiter.key, place, step)
        },
    };
    if step.waiting.is_full() {
        step.refuse(ticket, Refusal::Full);
    } else {
        step.waiting.push(waiter);
    }
    entry.hurry(step);
    entry.proceed(step);
    Some(entry)
}

fn promote(
    step: &mut Step<'_>,
    (key, place): (RouteHash, Place),
    entry: Option<Entry>,
    (epoch, floor): (HotEpoch, Cas),
) -> Option<Entry> {
    if entry.is_none() && step.has_room && place.home == step.config.me {
        step.stored = step.stored.max(floor);
        return Some(Entry::promote(key, place, epoch, step));
    }
    if !entry.is_some_and(|entry| entry.is_hot()) {
        let mode = Mode::Cold;
        step.emit(Output::Moved { key, epoch, mode });
    }
    entry
}

fn receive(
    step: &mut Step<'_>,
    (key, place): (RouteHash, Place),
    entry: Option<Entry>,
    from: NodeId,
    message: Message,
) -> Option<Entry> {
    // A write of SC counts whenever it was done: nobody waits for it, and nobody sends it again.
    let is_done = message.kind == MessageKind::Update
        && message.view < step.view.number
        && !step.has(Mutant::LateUpdateDropped);
    let is_fenced =
        step.view.followers().contains(from) && (message.view == step.view.number || is_done);
    if !is_fenced && !step.has(Mutant::AnyView) {
        return entry;
    }
    let me_is_home = place.home == step.config.me;
    let epoch = entry.map_or(HotEpoch(0), |entry| entry.epoch);
    let overtook_fill = epoch < message.epoch && message.kind != MessageKind::Fill;
    let is_over = epoch < message.epoch && step.dropped.covers(key, message.epoch);
    // What is known to be over is known in one view: a message of one before begins nothing.
    let is_done = is_done && !step.has(Mutant::LateUpdateBegins);
    let may_begin = begins(message) && !me_is_home && !is_over && !is_done;
    let mut entry = match entry {
        Some(entry) if epoch == message.epoch => entry,
        Some(mut entry) if epoch < message.epoch && may_begin => {
            entry.rejoin(message.epoch, step);
            entry
        }
        None if message.epoch > epoch && may_begin && step.has_room => {
            if step.has(Mutant::AbsentAcknowledged) && message.kind != MessageKind::Fill {
                let kind = MessageKind::Ack;
                step.answer(from, key, Message { kind, ..message });
                return None;
            }
            Entry::follow(key, place, message.epoch, step)
        }
        Some(entry) if activates(message) && step.has(Mutant::AnyActivation) => entry,
        None if message.epoch == epoch => return receive_cold(step, (key, place), from, message),
        // There was a later promotion, so this node's is long over.
        Some(mut entry) if me_is_home && entry.is_hot() && epoch < message.epoch => {
            entry.be_overtaken(step);
            if let Some(answer) = answer_unknown(me_is_home, false, message) {
                step.answer(from, key, answer);
            }
            return Some(entry);
        }
        // What is known is of a later promotion, or nothing is.
        _ => {
            let is_known_over =
                step.dropped.covers(key, message.epoch) || step.ended.covers(key, message.epoch);
            if message.kind == MessageKind::Drop && !me_is_home {
                step.dropped.add(key, message.epoch);
            }
            if let Some(answer) = answer_unknown(me_is_home, is_known_over, message)
                && epoch <= message.epoch
            {
                step.answer(from, key, answer);
            }
            return entry;
        }
    };
    deliver(step, &mut entry, from, message);
    if overtook_fill {
        entry.report(step, place.home);
    }
    Some(entry)
}

fn activates(message: Message) -> bool {
    message.kind == MessageKind::Activate && message.ts > Cas(0)
}

/// Whether who gets this takes part in the promotion from here on.
fn begins(message: Message) -> bool {
    message.kind.carries_value()
}

/// About a key that is not hot, and of which no write is on its way as far as this node knows.
fn receive_cold(
    step: &mut Step<'_>,
    (key, place): (RouteHash, Place),
    from: NodeId,
    message: Message,
) -> Option<Entry> {
    let invalidates = matches!(
        message.kind,
        MessageKind::Invalidate | MessageKind::InvalidateUpdate
    );
    if !invalidates || !step.has_room {
        return None;
    }
    let removed = step.removed.version(key);
    if step.stored == Cas(0) && message.ts <= removed {
        // An update is never acknowledged by who knows a later write.
        if message.kind == MessageKind::Invalidate || message.ts == removed {
            let kind = MessageKind::Ack;
            step.answer(from, key, Message { kind, ..message });
        }
        return None;
    }
    let mut entry = Entry::new(key, place, step);
    deliver(step, &mut entry, from, message);
    Some(entry)
}

fn deliver(step: &mut Step<'_>, entry: &mut Entry, from: NodeId, message: Message) {
    let (ts, agrees) = (message.ts, entry.agrees(step));
    match message.kind {
        MessageKind::Invalidate | MessageKind::InvalidateUpdate if agrees => {
            entry.receive_invalidation(step, from, message);
        }
        MessageKind::Ack if agrees => entry.receive_ack(step, from, ts),
        MessageKind::Validate if agrees => entry.receive_validation(step, ts),
        MessageKind::Update if !agrees => entry.receive_update(step, from, ts),
        MessageKind::Validate => entry.receive_question(step, from, ts),
        MessageKind::Ack => entry.receive_answer(step, from, ts),
        MessageKind::Fill => entry.receive_fill(step, from, ts),
        MessageKind::FillAck => entry.receive_fill_ack(step, from, ts),
        MessageKind::Activate => entry.receive_activate(step, from, ts),
        MessageKind::Deactivate => entry.receive_deactivate(step, from, ts),
        MessageKind::DeactivateAck => entry.receive_deactivate_ack(step, from, ts),
        MessageKind::Drop => entry.receive_drop(step, ts),
        MessageKind::Invalidate | MessageKind::InvalidateUpdate | MessageKind::Update => {}
    }
}
