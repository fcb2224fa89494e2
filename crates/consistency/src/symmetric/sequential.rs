//! A write is done at once, the others hear of it: SC (ccKVS, section 5.2).
//!
//! Updates are not acknowledged. So that all nodes end up with the last write even if messages were
//! lost or their sender died, whoever has a write that others may lack asks for what they have some
//! time later, in the way of anti-entropy: a node asks the home, the home asks everybody. The
//! question is a validation, the answer an acknowledgement of what is there.
//!
//! A write that only its writer had dies with it, though a session may have seen it: by way of the
//! writer as home, or because it was given by who is gone, too. Who waits for such a write asks
//! everybody. When all have answered in one view that they have nothing later than it has itself,
//! that write is nowhere, and is waited for no longer.
//!
//! An update is atomic towards other updates, for all of them run at home; not towards a plain
//! write elsewhere at the same time, whose place in the order of writes may be before it.

use curtail_types::{Cas, MessageKind, NodeId, NodeSet};

use super::Value;
use super::entry::{Entry, NEVER, Step, writer_of};
use super::mutant::Mutant;

impl Entry {
    pub(super) fn begin_update(&mut self, step: &mut Step<'_>) {
        self.send(step, self.peers(step), MessageKind::Update, self.ts);
        self.spread(step, NodeSet::only(step.config.me));
    }

    /// A write was going round, and nobody will acknowledge it any more: writes of the key are now
    /// done at once. So this one is, too.
    pub(super) fn end_agreement(&mut self, step: &mut Step<'_>) {
        self.valid = true;
        self.replay = None;
        self.write_due = NEVER;
        self.refuse_own(step);
    }

    /// The write that is stored here is known to be with `settled` only.
    pub(super) fn spread(&mut self, step: &mut Step<'_>, settled: NodeSet) {
        self.settled = settled.with(step.config.me);
        self.stage_due = self.stage_due.min(step.in_ns(step.config.settle_ns));
    }

    pub(super) fn receive_update(&mut self, step: &mut Step<'_>, from: NodeId, ts: Cas) {
        if ts > self.ts || (ts < self.ts && step.has(Mutant::OlderUpdateTaken)) {
            self.ts = ts;
            self.publish(step, Value::Incoming);
            self.spread(step, NodeSet::only(from));
            self.leave_if_quiet(step);
        } else if ts == self.ts {
            self.note_settled(step, from);
        }
        self.proceed(step);
    }

    /// `from` has just what this node has.
    pub(super) fn note_settled(&mut self, step: &mut Step<'_>, from: NodeId) {
        self.settled = self.settled.with(from);
        self.end_search(step);
    }

    /// A session has seen the write `ts`, and its writer is gone: does anybody have it?
    pub(super) fn seek(&mut self, step: &mut Step<'_>, ts: Cas) {
        self.seen = self.seen.max(ts);
        self.is_sought = true;
        // What was answered before says nothing: a node may have come to a later view since, in
        // which it writes.
        self.settled = NodeSet::only(step.config.me);
        self.stage_due = step.now;
    }

    /// The view is another one, and what was answered in the last one counts no more.
    pub(super) fn seek_of_the_gone(&mut self, step: &Step<'_>, skips: bool) {
        self.lost = Cas(0);
        let is_gone = skips || is_gone(step, self.seen);
        self.is_sought |= is_gone && !self.agrees(step);
        self.is_sought &= self.seen > self.ts;
        if self.is_sought {
            self.stage_due = step.now;
        }
    }

    fn end_search(&mut self, step: &mut Step<'_>) {
        let has_it = self.seen <= self.ts;
        let is_nowhere =
            self.settled.contains_all(self.members(step)) && !step.has(Mutant::LostAwaited);
        if self.is_sought && (has_it || is_nowhere) {
            self.is_sought = false;
            self.lost = self.seen;
            self.seen = self.seen.min(self.ts);
            self.publish(step, Value::Stored);
            self.proceed(step);
        }
    }

    /// `from` asks whether this node has what it has.
    pub(super) fn receive_question(&mut self, step: &mut Step<'_>, from: NodeId, ts: Cas) {
        let to = NodeSet::only(from);
        if ts < self.ts {
            self.send(step, to, MessageKind::Update, self.ts);
        } else {
            self.send(step, to, MessageKind::Ack, self.ts);
        }
        if ts == self.ts {
            self.note_settled(step, from);
        }
    }

    pub(super) fn receive_answer(&mut self, step: &mut Step<'_>, from: NodeId, ts: Cas) {
        if ts < self.ts {
            self.send(step, NodeSet::only(from), MessageKind::Update, self.ts);
        } else if ts == self.ts {
            self.note_settled(step, from);
        }
    }

    /// Asks those who may lack the write; whether there was anybody.
    pub(super) fn ask(&mut self, step: &mut Step<'_>) -> bool {
        self.end_search(step);
        let asked = if self.is_home(step) || self.is_sought {
            self.peers(step)
        } else {
            NodeSet::only(self.place.home)
        };
        if step.has(Mutant::NoAntiEntropy) {
            return false;
        }
        let unsure = asked.difference(self.settled);
        self.send(step, unsure, MessageKind::Validate, self.ts);
        !unsure.is_empty()
    }
}

/// Whether the node that made a write may not have it any more. One that joins, maybe anew, has not
/// written in this life yet.
pub(super) fn is_gone(step: &Step<'_>, ts: Cas) -> bool {
    !step.view.live.contains(writer_of(ts))
}
