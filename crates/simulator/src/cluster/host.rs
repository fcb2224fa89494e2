//! The host of a replica in the simulator: a bounded store, a network, and requests beside the
//! machine.

use curtail_consistency::{
    replica::{
        ChangeKind, CopyState, Gate, ReplicaHost, ReplicaMessage, ReplicaRefusal, ReplicaRequest,
        RunResult, SliceChange, Ticket,
    },
    slice_view::{RowChange, SliceId, SliceRow},
};
use curtail_history::Action;
use curtail_types::{Cas, Instant, NodeId, NodeSet, RouteHash};

use super::{
    MemoryFull, Mutant,
    node::{FLUSH, Local, Origin},
    packet::{Command, Demand, Effect, Item, Packet, Stamp},
    run_state::{RunState, What},
};

/// The host of one node's machine during a step.
pub(super) struct SimHost<'a, 'r> {
    pub(super) local: &'a mut Local,
    pub(super) env: &'a mut RunState<'r>,
    pub(super) stage: u16,
    /// What came with the message of this step.
    pub(super) incoming: Option<Item>,
}

impl SimHost<'_, '_> {
    /// The row of a slice in the view that this node follows.
    fn row(&self, slice: SliceId) -> Option<&SliceRow> {
        self.env.row(self.local.me, slice)
    }

    /// Where a write of this version stands now in a slice.
    fn stamp_in(&self, slice: SliceId, version: Cas) -> Stamp {
        let born = self.row(slice).map_or(0, |row| row.born.0);
        Stamp { born, version }
    }

    fn stamp_of(&self, key: usize, version: Cas) -> Stamp {
        self.stamp_in(self.env.keys.slice(key), version)
    }

    /// This primary runs a request for a key.
    fn note_runs(&mut self, key: usize) {
        let row = self.row(self.env.keys.slice(key));
        let term = row.map(|row| row.term).unwrap_or_default();
        self.env.record.runs(key, term, self.env.now);
    }

    fn trace(&self, key: usize, what: impl FnOnce() -> String) {
        self.env.trace_key(self.local.me, key, what);
    }

    fn trace_slice(&self, slice: SliceId, what: impl FnOnce() -> String) {
        self.env.trace_slice(self.local.me, slice, what);
    }

    fn demand(&self, ticket: Ticket) -> Option<Demand> {
        self.local.open.get(&ticket).map(|open| open.demand)
    }

    /// Whether a bounded store refuses just now.
    fn refuses(&mut self) -> bool {
        self.env.refuses && self.env.random.one_in(REFUSALS)
    }

    /// Whether primary `from` waits for this node, as far as it knows.
    fn counts_here(&self, from: NodeId, slice: SliceId) -> bool {
        let row = self.env.row(from, slice);
        row.is_some_and(|row| row.primary == from && row.in_sync.contains(self.local.me))
    }

    /// Whether readers beside the machine may show the stored item of a key now.
    fn shows_item(&self, key: usize) -> bool {
        let slice = self.env.keys.slice(key);
        self.local.gates[usize::from(slice.0)].gate == Gate::Reads
            && self.local.shown[key].state != CopyState::Invalid
    }

    /// What a primary says of copies is the number of nodes in sync: all of them, and no other.
    fn check_copies(&mut self, ticket: Ticket, copies: u8) {
        let key = self.demand(ticket).map(|demand| demand.key);
        let row = key.and_then(|key| self.row(self.env.keys.slice(key)));
        let of_here = row.filter(|row| copies != 0 && row.primary == self.local.me);
        if of_here.is_some_and(|row| usize::from(copies) != row.in_sync.len()) {
            self.env.fail(format!("{copies} copies in {of_here:?}"));
        }
    }

    /// An item changes that was shown, or was not: no reader may see that before the machine allows
    /// it. (Readers of the simulator come between steps only, those of a server at any moment.)
    fn note_change(&mut self, was_shown: bool) {
        if was_shown {
            self.env.fail("an item changes while readers may see it");
        }
    }

    /// Carries out what a client asked, as a write of this version.
    pub(super) fn execute(&mut self, demand: &Demand, version: Cas) -> (RunResult, Option<Effect>) {
        self.note_runs(demand.key);
        let stores = demand.size() > 0;
        if stores && self.refuses() {
            return (RunResult::NoRoom, None);
        }
        let stamp = self.stamp_of(demand.key, version);
        let is_wrong = self.env.run.mutant == Some(Mutant::ReadsForSet)
            && matches!(demand.command, Command::Set(_))
            && self.env.random.one_in(REFUSALS);
        let command = if is_wrong {
            Command::Get
        } else {
            demand.command
        };
        let done = Demand { command, ..*demand };
        let (result, effect) = self.local.store.execute(&done, stamp);
        if matches!(result, RunResult::Stored(_) | RunResult::Removed) {
            self.env.record.ran(demand.number, effect.action, stamp);
            if effect.replaced.is_some_and(|before| before >= stamp) {
                let what = format!("{stamp:?} is not above the last one: {demand:?} {effect:?}");
                self.env.fail(what);
            }
        }
        self.trace(demand.key, || format!("ran {demand:?}: {effect:?}"));
        (result, Some(effect))
    }

    /// Evicts about so many bytes of the slices that `may_evict` names; returns how many.
    pub(super) fn evict_some(
        &mut self,
        bytes: u64,
        may_evict: &mut dyn FnMut(SliceId) -> bool,
        evicted: &mut dyn FnMut(SliceId, RouteHash),
    ) -> u64 {
        let count = self.env.keys.count();
        let (first, mut freed) = (self.env.random.below(count as u64) as usize, 0);
        for key in (0..count).map(|key| (first + key) % count) {
            let slice = self.env.keys.slice(key);
            let item = self.local.store.item(key).copied();
            let Some(item) = item.filter(|_| !self.local.shown[key].is_hot()) else {
                continue;
            };
            if freed >= bytes || !may_evict(slice) {
                continue;
            }
            freed += u64::from(item.bytes);
            self.local.store.put(key, None);
            self.env.outcome.evictions += 1;
            self.env.record.evicted(key, self.env.now, item.stamp);
            self.trace(key, || format!("evicted {item:?}"));
            evicted(slice, self.env.keys.route(key));
        }
        freed
    }

    fn answer(&mut self, ticket: Ticket, answer: Result<Effect, ReplicaRefusal>) {
        let Some(open) = self.local.open.remove(&ticket) else {
            return;
        };
        // Nothing may be told that was read, or written, under a lease that has ended.
        let answer = match answer {
            Ok(_) if !self.local.serves(self.env) => Err(ReplicaRefusal::Unknown),
            other => other,
        };
        match open.origin {
            Origin::Client => self.env.reply(ticket.0, answer),
            Origin::Node(node, life) if self.env.lives[usize::from(node.0)] == life => {
                let number = ticket.0;
                let packet = Packet::Answer { number, answer };
                self.env.send(self.local.me, node, packet);
            }
            Origin::Node(..) => {}
        }
    }

    fn post(&mut self, to: NodeSet, message: &ReplicaMessage, item: Option<Item>) {
        for to in to {
            let packet = Packet::Message {
                stage: self.stage,
                message: message.clone(),
                item,
            };
            self.env.send(self.local.me, to, packet);
        }
    }
}

impl ReplicaHost for SimHost<'_, '_> {
    fn run(&mut self, request: &ReplicaRequest, version: Cas) -> RunResult {
        let Some(demand) = self.demand(request.ticket) else {
            self.env.fail("a request runs that nobody waits for");
            return RunResult::Unchanged;
        };
        let was_shown = self.shows_item(demand.key);
        // While threads give versions beside the machine, its own might be below the item's.
        let slice = self.env.keys.slice(demand.key);
        let version = match self.local.gates[usize::from(slice.0)].gate {
            Gate::Open => self.local.next_beside(demand.key, self.env.now),
            _ => version,
        };
        let (result, effect) = self.execute(&demand, version);
        if matches!(result, RunResult::Stored(_) | RunResult::Removed) {
            self.note_change(was_shown);
        }
        if let (Some(effect), false) = (effect, result == RunResult::NoRoom) {
            self.local.results.insert(request.ticket, effect);
        }
        result
    }

    fn stamp(&mut self, ticket: Ticket, version: Cas) {
        if let Some(effect) = self.local.results.get_mut(&ticket) {
            effect.as_of = version;
        }
    }

    fn respond(&mut self, ticket: Ticket, copies: u8) {
        self.check_copies(ticket, copies);
        self.local.writes.remove(&ticket);
        let result = self.local.results.remove(&ticket);
        if ticket.0 & FLUSH != 0 {
            let serves = self.local.serves(self.env);
            if serves && !self.env.record.flush_answered(ticket.0, self.env.now) {
                self.env.fail("a flush is answered that did not run");
            }
        } else if let Some(effect) = result {
            self.answer(ticket, Ok(effect));
        } else {
            self.env.fail("an answer without a result");
        }
    }

    fn refuse(&mut self, ticket: Ticket, refusal: ReplicaRefusal) {
        self.local.writes.remove(&ticket);
        self.local.results.remove(&ticket);
        self.answer(ticket, Err(refusal));
    }

    fn forward(&mut self, request: &ReplicaRequest, to: NodeId) {
        let Some(demand) = self.demand(request.ticket) else {
            return self
                .env
                .fail("a request is forwarded that nobody waits for");
        };
        let me = self.local.me;
        self.env.send(me, to, Packet::Request(demand));
    }

    fn send(&mut self, to: NodeSet, message: &ReplicaMessage) {
        let key = message.carries_image();
        let item = key.and_then(|key| self.local.store.item(self.env.keys.index_of(key)));
        self.post(to, message, item.copied());
    }

    fn apply(&mut self, from: NodeId, change: &SliceChange) -> bool {
        let key = self.env.keys.index_of(change.key);
        let of = (self.stage, from);
        if !self.local.store.spend(of, change.room.into()) {
            if self.counts_here(from, self.env.keys.slice(key)) {
                let me = self.local.me;
                let what = format!("no room at {me:?} for {change:?} of {from:?}");
                self.env.fail(what);
            }
            return false;
        }
        let item = self.incoming.filter(|_| change.kind == ChangeKind::Store);
        self.note_change(self.shows_item(key));
        self.local.store.put(key, item);
        if self.local.store.is_overfull() {
            self.env.fail("more is stored than there is room for");
        }
        self.trace(key, || format!("applied {change:?} {item:?}"));
        true
    }

    fn item(&mut self, key: RouteHash) -> Option<(Cas, u32)> {
        // A change of a whole slice has a key that no item has.
        let key = self.env.keys.index_of(key);
        let item = (key < self.env.keys.count()).then(|| self.local.store.item(key));
        let item = item.flatten();
        item.map(|item| (item.stamp.version, item.bytes))
    }

    fn promise(&mut self, to: NodeId, held: u64, wanted: u64) -> u64 {
        let wanted = if self.refuses() { 0 } else { wanted };
        let more = self.local.store.promise((self.stage, to), held, wanted);
        let (me, stage) = (self.local.me, self.stage);
        self.env
            .trace(|| format!("{me:?}.{stage} promises {to:?} {held} and {more} of {wanted}"));
        more
    }

    fn evicts(&self) -> bool {
        self.env.memory_full == MemoryFull::Evict
    }

    fn evict(
        &mut self,
        bytes: u64,
        may_evict: &mut dyn FnMut(SliceId) -> bool,
        evicted: &mut dyn FnMut(SliceId, RouteHash),
    ) {
        if self.evicts() {
            let freed = self.evict_some(bytes, may_evict, evicted);
            let lack = &mut self.local.lack;
            *lack = bytes.saturating_sub(freed).max(*lack);
        }
    }

    fn scan(&mut self, slice: SliceId, begins: bool) {
        let last = &mut self.local.scans[usize::from(slice.0)];
        if begins {
            last.number += 1;
            last.behind = None;
        }
        let number = last.number;
        let delay = self.env.random.below(SCAN_NS);
        let node = usize::from(self.local.me.0);
        self.env.plan_for(node, delay, What::Scan(slice, number));
    }

    fn clear(&mut self, slice: SliceId, before: Option<Cas>) {
        for key in self.env.keys.of_slice(slice) {
            let item = self.local.store.item(key);
            let goes = |item: &Item| before.is_none_or(|before| item.stamp.version < before);
            if item.is_some_and(goes) {
                self.note_change(self.shows_item(key));
                self.local.store.put(key, None);
            }
        }
        self.saw(before.unwrap_or_default());
        self.trace_slice(slice, || format!("clears {slice:?} before {before:?}"));
        if let (Some(version), Some(number)) = (before, self.env.flushing) {
            let stamp = self.stamp_in(slice, version);
            let keys = self.env.keys.of_slice(slice);
            self.env.record.flush_ran(number, keys, stamp);
        }
    }

    fn flush(&mut self, slice: SliceId) -> Cas {
        self.local.hybrid.follow(self.local.beside.last());
        let version = self.next_version();
        self.clear(slice, Some(version));
        self.local.beside.follow(version);
        version
    }

    fn gate(&mut self, slice: SliceId, gate: Gate) {
        let is_wrong = self.env.run.mutant == Some(Mutant::ClosedEarly);
        let me = usize::from(self.local.me.0);
        let of = &mut self.local.gates[usize::from(slice.0)];
        let before = std::mem::replace(&mut of.gate, gate);
        if gate == Gate::Open {
            self.local.beside.follow(self.local.hybrid.last());
        }
        of.closes += u32::from(gate == Gate::Closed);
        if before == Gate::Open {
            of.closing = true;
            if of.beside == 0 || is_wrong {
                of.closing = false;
                let delay = self.env.random.below(CLOSING_NS);
                self.env.plan_for(me, delay, What::Closed(slice));
            }
        }
        self.trace_slice(slice, || format!("gate of {slice:?} is {gate:?}"));
    }

    fn propose(&mut self, change: RowChange) {
        self.trace_slice(change.slice, || format!("proposes {change:?}"));
        self.local.proposals.push(change);
    }

    fn next_version(&mut self) -> Cas {
        let now = self.local.clock.now(self.env.now);
        self.local.hybrid.next(now)
    }

    fn saw(&mut self, version: Cas) {
        self.local.hybrid.follow(version);
    }

    fn show(&mut self, key: RouteHash, version: Cas, state: CopyState, takes_image: bool) {
        let key = self.env.keys.index_of(key);
        let mut own = self.local.writes.values();
        let own = own.find(|(of, item)| (*of, item.stamp.version) == (key, version));
        let own = own.map(|(_, item)| *item);
        let was_hidden = !self.shows_item(key);
        let shown = &mut self.local.shown[key];
        shown.changes += 1;
        shown.state = state;
        if state == CopyState::Absent {
            shown.item = None;
        } else if takes_image {
            shown.item = self.incoming;
        } else if own.is_some() {
            shown.item = own;
        }
        let item = shown.item;
        if state == CopyState::Absent && was_hidden && self.shows_item(key) {
            self.env
                .fail("a key ceases to be hot while a write of it is under way");
        }
        self.trace(key, || format!("shows {version:?} {state:?} {item:?}"));
    }

    fn read_copy(&mut self, request: &ReplicaRequest) {
        let key = self.env.keys.index_of(request.key);
        let effect = Effect::of_read(self.local.shown[key].item.as_ref());
        self.local.results.insert(request.ticket, effect);
    }

    fn write_copy(&mut self, request: &ReplicaRequest, version: Cas) -> bool {
        let Some(demand) = self.demand(request.ticket) else {
            return false;
        };
        let Command::Set(value) = demand.command else {
            return false;
        };
        let stamp = self.stamp_of(demand.key, version);
        let item = Item::new(stamp, value, demand.number);
        let effect = Effect::wrote(Action::Write(value), stamp, None);
        // A write that was not taken may be made again.
        let write = (demand.key, item);
        self.local.writes.insert(request.ticket, write);
        self.local.results.insert(request.ticket, effect);
        true
    }

    fn send_write(&mut self, to: NodeSet, message: &ReplicaMessage, ticket: Ticket) {
        let item = self.local.writes.get(&ticket).map(|(_, item)| *item);
        self.post(to, message, item);
    }

    fn store_copy(&mut self, key: RouteHash, version: Cas) -> RunResult {
        let key = self.env.keys.index_of(key);
        let Some(item) = self.incoming else {
            self.env.fail("a write of a copy without a value");
            return RunResult::NoRoom;
        };
        if self.refuses() || !self.local.store.fits(key, item.bytes) {
            return RunResult::NoRoom;
        }
        self.note_runs(key);
        let stamp = self.stamp_of(key, version);
        let action = Action::Write(item.value);
        self.env.record.ran(item.number, action, stamp);
        self.note_change(self.shows_item(key));
        self.local.store.put(key, Some(Item { stamp, ..item }));
        self.trace(key, || format!("took {item:?} of a copy"));
        RunResult::Stored(item.bytes)
    }

    fn incoming_bytes(&self) -> u32 {
        self.incoming.map_or(0, |item| item.bytes)
    }

    fn now(&self) -> Instant {
        self.local.clock.instant(self.env.now)
    }
}

/// One in so many times a store has no room without a reason.
const REFUSALS: u64 = 50;
/// The longest that a scan takes to find the next keys.
const SCAN_NS: u64 = 100_000;
/// The longest that it takes to learn that nothing runs beside a machine.
const CLOSING_NS: u64 = 20_000;
