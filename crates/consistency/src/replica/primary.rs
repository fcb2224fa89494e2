//! A slice of which this node is the primary: it orders all changes.
//!
//! ```text
//!   Collecting -- all tails are here --> Repairing -- all repairs are sent --> Serving
//!                                                                               |   ^
//!                                          a view without the hand-over --------+   | Draining
//! ```
//!
//! A request runs at once, and its answer waits until every counted follower has applied the last
//! change of its key: a node that takes over has whatever anybody was told.

use alloc::{
    boxed::Box,
    collections::{BTreeSet, VecDeque},
};

use curtail_types::{Access, Cas, Instant, NodeId, NodeSet, RouteHash, ViewNumber};

use super::{
    Gate, ReplicaMutant, ReplicaRefusal, ReplicaRequest, RunResult, Ticket,
    catch_up::CatchUp,
    hot::Write,
    machine::{Context, Waiting},
    message::{ChangeKind, CopyKind, CopyMessage, ReplicaMessage, SliceChange},
    stream::Streams,
};
use crate::slice_view::{RowChange, RowStep, SliceId, SliceRow};

/// What a primary knows of its slice.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Primary {
    pub(super) slice: SliceId,
    /// The view that it acts on, and the slice's row in it.
    view: ViewNumber,
    pub(super) row: SliceRow,
    pub(super) phase: Phase,
    pub(super) streams: Streams,
    /// Changes that are not committed: their numbers and keys.
    pub(super) pending: VecDeque<(u64, RouteHash)>,
    /// Who is answered when a change is committed, the lowest first.
    withheld: VecDeque<(u64, Asker)>,
    /// Requests that cannot run yet, and since when.
    pub(super) queue: VecDeque<Waiting>,
    pub(super) catch_up: Option<CatchUp>,
    /// A node that found no room, or was silent, begins to catch up again then.
    pub(super) rests_until: Instant,
    /// Until then it has seen too few reads of what it took over to judge what may be evicted.
    pub(super) learns_until: Option<Instant>,
    /// Changes of the row that it wants.
    pub(super) wishes: BTreeSet<RowStep>,
    pub(super) gate: Gate,
    /// A key of the slice is hot.
    has_hot: bool,
    /// Members may still show a key of the slice as of an earlier view.
    is_guarded: bool,
    /// Requests may still run beside the machine although the gate is closed.
    pub(super) is_closing: bool,
    /// No change of the slice that went through here has a later version, but those that were made
    /// while its gate was open.
    pub(super) seen: Cas,
    /// The last flush.
    pub(super) flushed: Cas,
}

/// Whom a primary answers.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Asker {
    /// Whoever made a request.
    Request(Ticket),
    /// The node that made a write of a hot key, in this view.
    Writer(NodeId, ViewNumber, Write),
}

/// How far a primary is.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) enum Phase {
    /// It waits for what these nodes know to be unfinished.
    Collecting(NodeSet, BTreeSet<RouteHash>),
    /// It sends what may be unfinished to all again.
    Repairing(BTreeSet<RouteHash>),
    /// It answers.
    #[default]
    Serving,
    /// It finishes what it has begun, to hand over to this node.
    Draining(NodeId),
}

/// Why a request did not run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stay {
    /// It has run.
    Ran,
    /// It has run on a hot key, and wrote this change and version: it is not answered.
    Wrote(u64, Cas),
    /// It waits.
    Waits,
    /// It waits for this node's own room.
    NeedsRoom,
    /// It cannot be done.
    Refused(ReplicaRefusal),
}

/// The key of a change that is about the whole slice.
pub(super) const WHOLE: RouteHash = RouteHash(u64::MAX);

impl Primary {
    /// The primary of `row`, whose changes `keys` may be unfinished.
    pub(super) fn new(
        slice: SliceId,
        (view, row): (ViewNumber, SliceRow),
        missing: NodeSet,
        keys: BTreeSet<RouteHash>,
        guards: bool,
    ) -> Self {
        Self {
            slice,
            view,
            row,
            phase: Phase::Collecting(missing, keys),
            is_guarded: guards,
            ..Self::default()
        }
    }

    /// Whether something is left to do when time has passed.
    pub(super) fn waits(&self) -> bool {
        let is_behind = !self.row.catching_up().is_empty() || self.catch_up.is_some();
        let is_serving = self.phase == Phase::Serving && self.queue.is_empty();
        is_behind || !is_serving || self.streams.waits() || self.learns_until.is_some()
    }

    // ---- becoming one ----

    /// Begins to answer when nobody is missing any more.
    pub(super) fn begin(&mut self, cx: &mut Context) {
        let Phase::Collecting(missing, keys) = &mut self.phase else {
            return;
        };
        if !missing.is_empty() && !cx.has(ReplicaMutant::TailsNotAwaited) {
            return;
        }
        let mut keys = core::mem::take(keys);
        if cx.has(ReplicaMutant::TailsNotRepaired) {
            keys.clear();
        }
        for node in self.row.in_sync.without(self.row.primary) {
            self.streams.add(node, true, cx.now);
        }
        if self.row.born < self.row.term && cx.config.learning_ns > 0 {
            let ns = cx.now.ns + cx.config.learning_ns;
            self.learns_until = Some(Instant { ns });
        }
        self.phase = Phase::Repairing(keys);
        self.repair(cx);
    }

    /// Takes what a node knows to be unfinished.
    pub(super) fn take_tail(&mut self, cx: &mut Context, from: NodeId, tail: &ReplicaMessage) {
        let ReplicaMessage::Tail {
            keys: tail,
            seen,
            flushed,
            ..
        } = tail
        else {
            return;
        };
        cx.host.saw(*seen);
        self.seen = self.seen.max(*seen);
        self.flushed = self.flushed.max(*flushed);
        if let Phase::Collecting(missing, keys) = &mut self.phase {
            *missing = missing.without(from);
            keys.extend(tail);
        }
    }

    /// Sends what may be unfinished again, as far as there is room. A follower that has none is not
    /// in sync: it leaves.
    pub(super) fn repair(&mut self, cx: &mut Context) {
        let Phase::Repairing(keys) = &mut self.phase else {
            return;
        };
        let mut keys = core::mem::take(keys);
        while let Some(key) = keys.first().copied() {
            let (version, room) = match key {
                WHOLE => (self.flushed, 0),
                _ => cx.host.item(key).unwrap_or_default(),
            };
            let change = match key {
                WHOLE => SliceChange::new(ChangeKind::Flush, key, version, 0),
                _ => SliceChange::new(ChangeKind::Store, key, version, room),
            };
            if !self.has_room(cx, room) {
                for node in self.streams.counted() {
                    if cx.credits.is_refused(node) {
                        self.wish(cx, RowStep::Exit(node));
                    }
                }
                break;
            }
            keys.remove(&key);
            if key == WHOLE {
                // What is later than the flush stays.
                cx.host.clear(self.slice, Some(version));
            }
            self.append(cx, change, None);
        }
        let is_done = keys.is_empty();
        self.phase = match is_done {
            true => Phase::Serving,
            false => Phase::Repairing(keys),
        };
    }

    // ---- requests ----

    /// The last change of a key that is not committed.
    fn need(&self, key: RouteHash) -> Option<u64> {
        let mut pending = self.pending.iter().rev();
        let last = pending.find(|&&(_, of)| of == key || of == WHOLE);
        last.map(|&(seq, _)| seq)
    }

    /// Runs a request if it may run now. A write of a key that is `hot`, of which that is the last
    /// version, is answered by its round.
    pub(super) fn run(
        &mut self,
        cx: &mut Context,
        (request, hot): (&ReplicaRequest, Option<Cas>),
    ) -> Stay {
        if self.phase != Phase::Serving || self.is_closing {
            return Stay::Waits;
        }
        let writes = request.access != Access::Read;
        if writes && self.streams.longest() >= cx.config.window_max {
            return Stay::Waits;
        }
        if writes && !self.has_room(cx, request.size) {
            let mut counted = self.streams.counted();
            return match counted.any(|node| cx.credits.is_refused(node)) {
                true => Stay::Refused(ReplicaRefusal::NoRoom),
                false => Stay::Waits,
            };
        }
        let version = cx.host.next_version();
        if writes && self.gate != Gate::Open {
            self.set_gate(cx, Gate::Closed);
        }
        let store = |room| SliceChange::new(ChangeKind::Store, request.key, version, room);
        let change = match cx.host.run(request, version) {
            RunResult::NoRoom if cx.host.evicts() => return Stay::NeedsRoom,
            RunResult::NoRoom => return Stay::Refused(ReplicaRefusal::NoRoom),
            RunResult::Unchanged => {
                if let Some(last) = hot {
                    cx.host.stamp(request.ticket, last);
                }
                self.answer(cx, request, self.need(request.key));
                self.commit(cx);
                return Stay::Ran;
            }
            RunResult::Stored(room) => store(room),
            RunResult::Removed => store(0),
        };
        self.seen = self.seen.max(version);
        let seq = self.append(cx, change, None);
        if hot.is_some() {
            return Stay::Wrote(seq, version);
        }
        self.answer(cx, request, Some(seq));
        self.commit(cx);
        Stay::Ran
    }

    /// Whether a write of a hot key that another node made can be stored.
    pub(super) fn may_take_copy(&mut self, cx: &mut Context) -> bool {
        let is_ready = self.phase == Phase::Serving && !self.is_closing;
        let fits = self.streams.longest() < cx.config.window_max;
        let bytes = cx.host.incoming_bytes();
        is_ready && fits && self.has_room(cx, bytes)
    }

    /// Stores one, of a key that readers see nothing of; whether it could.
    pub(super) fn take_copy(&mut self, cx: &mut Context, asker: Asker) -> bool {
        let Asker::Writer(.., (key, version)) = asker else {
            return false;
        };
        let RunResult::Stored(room) = cx.host.store_copy(key, version) else {
            return false;
        };
        self.seen = self.seen.max(version);
        let change = SliceChange::new(ChangeKind::Store, key, version, room);
        let seq = self.append(cx, change, None);
        match cx.has(ReplicaMutant::AcksUncommitted) {
            true => self.tell(cx, asker),
            false => self.withhold(seq, asker),
        }
        true
    }

    /// Whether nothing of a key is under way, beside the machine or uncommitted.
    pub(super) fn is_finished(&self, key: RouteHash) -> bool {
        !self.is_closing && self.need(key).is_none()
    }

    /// A key of the slice is hot, or none is any more: then requests may run beside the machine.
    pub(super) fn note_hot(&mut self, cx: &mut Context, (is_hot, is_guarded): (bool, bool)) {
        (self.has_hot, self.is_guarded) = (is_hot, is_guarded);
        if is_hot && self.gate == Gate::Open {
            self.set_gate(cx, Gate::Reads);
        }
        self.commit(cx);
    }

    /// How many nodes in sync have every committed change: this one, and its followers.
    pub(super) fn copies(&self) -> u8 {
        1 + self.streams.counted_of(self.row.in_sync)
    }

    /// Whether a change is committed.
    pub(super) fn has_committed(&self, seq: u64) -> bool {
        seq <= self.streams.committed()
    }

    /// Answers a request when change `need` is committed.
    pub(super) fn answer(&mut self, cx: &mut Context, request: &ReplicaRequest, need: Option<u64>) {
        let early = match request.access {
            Access::Read => cx.has(ReplicaMutant::ReadsUnfinished),
            _ => cx.has(ReplicaMutant::AnswersAtOnce),
        };
        let need = need.filter(|_| !early).unwrap_or(0);
        self.answer_at(cx, need, Asker::Request(request.ticket));
    }

    fn answer_at(&mut self, cx: &mut Context, seq: u64, asker: Asker) {
        match self.has_committed(seq) {
            true => self.tell(cx, asker),
            false => self.withhold(seq, asker),
        }
    }

    /// Has somebody be answered when a change is committed, and no member shows anything of an
    /// earlier view.
    pub(super) fn withhold(&mut self, seq: u64, asker: Asker) {
        let at = self.withheld.partition_point(|&(of, _)| of <= seq);
        self.withheld.insert(at, (seq, asker));
    }

    /// Whether a write of another node is not acknowledged; without one, whether any is.
    pub(super) fn has_taken(&self, write: Option<Write>) -> bool {
        let mut withheld = self.withheld.iter();
        withheld.any(|(_, asker)| match asker {
            Asker::Writer(.., of) => write.is_none_or(|write| write == *of),
            Asker::Request(_) => false,
        })
    }

    pub(super) fn tell(&self, cx: &mut Context, asker: Asker) {
        match asker {
            Asker::Request(ticket) => cx.host.respond(ticket, self.copies()),
            Asker::Writer(to, view, of) => {
                let message = CopyMessage {
                    copies: self.copies(),
                    ..CopyMessage::new(view, of, CopyKind::Ack)
                };
                cx.host
                    .send(NodeSet::only(to), &ReplicaMessage::Copy(message));
            }
        }
    }

    /// Empties the slice of what is there.
    pub(super) fn flush(&mut self, cx: &mut Context, ticket: Ticket) -> bool {
        if self.phase != Phase::Serving || self.is_closing {
            return false;
        }
        if self.gate != Gate::Open {
            self.set_gate(cx, Gate::Closed);
        }
        let version = cx.host.flush(self.slice);
        (self.seen, self.flushed) = (self.seen.max(version), version);
        let seq = match cx.has(ReplicaMutant::FlushesAlone) {
            true => self.streams.committed(),
            false => {
                let flush = SliceChange::new(ChangeKind::Flush, WHOLE, version, 0);
                self.append(cx, flush, None)
            }
        };
        self.answer_at(cx, seq, Asker::Request(ticket));
        self.commit(cx);
        true
    }

    // ---- changes ----

    /// Whether every counted follower has promised so much room. A node that catches up and has
    /// none begins again later.
    fn has_room(&mut self, cx: &mut Context, bytes: u32) -> bool {
        let mut has_room = true;
        for node in self.streams.counted() {
            has_room &= cx.has_room(node, u64::from(bytes));
        }
        if let Some(catch_up) = &self.catch_up
            && catch_up.has_begun()
            && !self.streams.counts(catch_up.node)
            && !cx.has_room(catch_up.node, u64::from(bytes))
        {
            // Each view begins without credit: that alone is no reason to give up.
            match cx.credits.is_refused(catch_up.node) {
                true => self.end_catch_up(cx),
                false => has_room = false,
            }
        }
        has_room
    }

    /// Sends a change to all followers, or to one that catches up.
    pub(super) fn append(
        &mut self,
        cx: &mut Context,
        change: SliceChange,
        only: Option<NodeId>,
    ) -> u64 {
        let seq = self
            .streams
            .append(cx, (self.slice, self.row.term, self.seen), change, only);
        if only.is_none() && seq > self.streams.committed() {
            self.pending.push_back((seq, change.key));
        }
        seq
    }

    /// Sends again what is not acknowledged. A follower that is silent is to leave; a node that
    /// catches up, for which writes wait although they do not need it, begins again later.
    pub(super) fn send_again(&mut self, cx: &mut Context) {
        let silent = self.streams.send_again(cx, self.seen);
        for node in silent {
            match self.streams.counts(node) {
                true => self.wish(cx, RowStep::Exit(node)),
                false => self.end_catch_up(cx),
            }
        }
    }

    /// The store evicted a key of this slice.
    pub(super) fn note_evicted(&mut self, cx: &mut Context, key: RouteHash) {
        if self.streams.is_empty() || cx.has(ReplicaMutant::EvictsAlone) {
            return;
        }
        let change = SliceChange::new(ChangeKind::Evict, key, Cas(0), 0);
        self.set_gate(cx, Gate::Closed);
        self.append(cx, change, None);
    }

    /// Answers what is committed by now.
    pub(super) fn commit(&mut self, cx: &mut Context) {
        let committed = self.streams.committed();
        while self
            .pending
            .pop_front_if(|&mut (seq, _)| seq <= committed)
            .is_some()
        {}
        let is_told = |&mut (seq, _): &mut (u64, _)| seq <= committed && !self.is_guarded;
        while let Some((_, asker)) = self.withheld.pop_front_if(is_told) {
            self.tell(cx, asker);
        }
        let may_bypass = self.phase == Phase::Serving && self.pending.is_empty();
        if self.is_guarded {
            self.set_gate(cx, Gate::Closed);
        } else if may_bypass && !self.is_closing {
            let is_alone = self.streams.is_empty() && self.catch_up.is_none();
            let alone = is_alone && !self.has_hot;
            self.set_gate(cx, if alone { Gate::Open } else { Gate::Reads });
        }
        if let Phase::Draining(to) = self.phase
            && self.pending.is_empty()
            && !self.is_closing
        {
            self.wish(cx, RowStep::HandOver(to));
        }
    }

    /// Lets requests run beside the machine, or not.
    pub(super) fn set_gate(&mut self, cx: &mut Context, gate: Gate) {
        if self.gate != gate {
            // Writes beside the machine may still be on their way.
            self.is_closing |= self.gate == Gate::Open;
            self.gate = gate;
            // First: once the gate is closed nothing may go that nobody is told of.
            self.free(cx);
            cx.host.gate(self.slice, gate);
        }
    }

    fn free(&self, cx: &mut Context) {
        let is_free = self.gate == Gate::Open && self.learns_until.is_none();
        cx.host.free(self.slice, is_free);
    }

    /// Judges what may be evicted once it has seen reads.
    pub(super) fn end_learning(&mut self, cx: &mut Context) {
        if self.learns_until.is_some_and(|until| until <= cx.now) {
            self.learns_until = None;
            self.free(cx);
        }
    }

    // ---- the row ----

    /// Asks for a change of the row, until a new view is in force.
    pub(super) fn wish(&mut self, cx: &mut Context, step: RowStep) {
        if self.wishes.insert(step) {
            self.propose(cx, step);
        }
    }

    pub(super) fn propose(&self, cx: &mut Context, step: RowStep) {
        cx.host.propose(RowChange {
            slice: self.slice,
            view: self.view,
            step,
        });
    }

    /// Finishes what it has begun before `to` takes over.
    pub(super) fn hand_over(&mut self, cx: &mut Context, to: NodeId) {
        if self.phase == Phase::Serving && self.row.in_sync.contains(to) && to != self.row.primary {
            self.phase = Phase::Draining(to);
            self.set_gate(cx, Gate::Closed);
            self.commit(cx);
        }
    }

    /// The same primary in another view: its followers may be others.
    pub(super) fn enter_row(
        &mut self,
        cx: &mut Context,
        (view, row, lasting): (ViewNumber, SliceRow, NodeSet),
        guards: bool,
    ) {
        (self.view, self.row) = (view, row);
        (self.has_hot, self.is_guarded) = (false, guards);
        let others = row.followers().intersection(lasting);
        self.streams.keep(cx, others);
        self.withheld.retain(|(_, asker)| match asker {
            Asker::Writer(from, ..) => lasting.contains(*from),
            Asker::Request(_) => true,
        });
        if let Phase::Collecting(missing, _) = &mut self.phase {
            *missing = missing.intersection(row.in_sync);
        }
        if let Some(catch_up) = &self.catch_up
            && (row.in_sync.contains(catch_up.node) || !others.contains(catch_up.node))
        {
            self.catch_up = None;
        }
        // A step of the plan for an earlier view may be one too many in this one: two exits, for
        // example. What is still wanted is said again.
        let still = |step: &RowStep| {
            let enters = matches!(step, RowStep::Enter(_));
            enters && row.after(*step, view).is_some() && lasting.contains(step.node())
        };
        self.wishes.retain(still);
        if let Phase::Draining(_) = self.phase {
            self.phase = Phase::Serving;
        }
        for &step in &self.wishes {
            self.propose(cx, step);
        }
        self.begin(cx);
        self.commit(cx);
    }

    /// Another node is the primary now: whatever is unfinished has no known end.
    pub(super) fn resign(&mut self, cx: &mut Context) -> Box<[RouteHash]> {
        for (_, asker) in self.withheld.drain(..) {
            if let Asker::Request(ticket) = asker {
                cx.host.refuse(ticket, ReplicaRefusal::Unknown);
            }
        }
        self.streams.keep(cx, NodeSet::NONE);
        if self.gate != Gate::Closed {
            cx.host.free(self.slice, false);
            cx.host.gate(self.slice, Gate::Closed);
        }
        // Requests beside the machine had versions, too.
        self.seen = cx.host.next_version();
        let unsent = match &mut self.phase {
            Phase::Collecting(_, keys) | Phase::Repairing(keys) => core::mem::take(keys),
            Phase::Serving | Phase::Draining(_) => BTreeSet::new(),
        };
        let pending = self.pending.drain(..).map(|(_, key)| key);
        unsent.into_iter().chain(pending).collect()
    }
}
