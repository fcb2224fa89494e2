//! A write goes round before it is done: Lin, and cold keys with several holders (ccKVS, section
//! 5.2, in the form of Hermes, sections 3.2 to 3.6).
//!
//! ```text
//!   writer     INV(ts, value) ------>  stores it, readers wait       <------ ACK(ts)
//!              all acknowledged: done
//!              VAL(ts) ------------->  readers see it
//! ```
//!
//! The write with the highest timestamp wins. A superseded *replacement* is done when everybody has
//! it or a later one, or when the later one is complete: it took effect just before. An *update* is
//! different, for nothing may come between what it read and what it wrote:
//!
//! - it is never acknowledged by who knows a later write; so it loses, and is run again;
//! - while it is not complete nothing earlier is acknowledged by who knows it, so that nothing can
//!   become visible that it has not read;
//! - its writer does not help others to complete it, so that only the writer knows whether it is;
//! - where nothing is it has a version from a clock. So after the home has moved it may overtake a
//!   write that it has not read, which has no effect then.

use curtail_types::{Cas, Message, MessageKind, NodeId, NodeSet};

use super::entry::{Entry, NEVER, Own, Stage, Step};
use super::mutant::Mutant;
use super::table::Waiter;
use super::{Mode, Output, Value};

impl Entry {
    pub(super) fn begin_agreement(&mut self, step: &mut Step<'_>, waiter: Waiter) {
        self.valid = false;
        self.replay = None;
        self.own = Some(Own {
            ts: self.ts,
            acks: NodeSet::only(step.config.me),
            waiter: Some(waiter),
        });
        self.publish(step, Value::Stored);
        self.invalidate(step, self.peers(step));
        self.settle(step);
    }

    /// Sends the write that is stored here, and waits for what comes back.
    fn invalidate(&mut self, step: &mut Step<'_>, to: NodeSet) {
        self.send(step, to, self.invalidation(), self.ts);
        self.write_due = step.in_ns(step.config.retransmit_ns);
    }

    fn invalidation(&self) -> MessageKind {
        if self.update {
            MessageKind::InvalidateUpdate
        } else {
            MessageKind::Invalidate
        }
    }

    /// Completes the write that is stored here, whoever began it (Hermes, section 3.4).
    pub(super) fn begin_replay(&mut self, step: &mut Step<'_>) {
        self.replay = Some(NodeSet::only(step.config.me));
        self.invalidate(step, self.peers(step));
        self.settle(step);
    }

    pub(super) fn receive_invalidation(
        &mut self,
        step: &mut Step<'_>,
        from: NodeId,
        message: Message,
    ) {
        let ts = message.ts;
        let is_update = message.kind == MessageKind::InvalidateUpdate;
        if is_update && ts > self.ts && !self.is_read_by(ts) {
            self.lose_own(step);
        }
        self.count(step, from, ts, true);
        let helps = step.has(Mutant::UpdateHelped);
        let knows_later = is_update && !step.has(Mutant::UpdateAcknowledged);
        let guards = self.update && !self.valid && !step.has(Mutant::EarlierAcknowledged);
        if ts > self.ts {
            if step.has(Mutant::AckBeforePublish) {
                self.acknowledge(step, from, ts);
            }
            self.take(step, ts, is_update);
            if !step.has(Mutant::AckBeforePublish) {
                self.acknowledge(step, from, ts);
            }
        } else if ts == self.ts {
            if helps || !(self.update && self.is_writing()) {
                self.acknowledge(step, from, ts);
            }
        } else if knows_later || guards {
            self.send(step, NodeSet::only(from), self.invalidation(), self.ts);
        } else {
            self.acknowledge(step, from, ts);
        }
        self.settle(step);
        self.proceed(step);
    }

    /// A later write came, with its value.
    pub(super) fn take(&mut self, step: &mut Step<'_>, ts: Cas, is_update: bool) {
        if self.update && self.is_writing() {
            self.run_again(step);
        }
        self.ts = ts;
        self.settled = NodeSet::only(step.config.me);
        self.update = is_update;
        self.valid = false;
        self.replay = None;
        self.publish(step, Value::Incoming);
        self.await_validation(step);
    }

    /// Whether the update `ts` has read what is here. What it read is complete, so it was
    /// acknowledged here: what is here has no earlier clock.
    fn is_read_by(&self, ts: Cas) -> bool {
        ts.clock() <= self.ts.clock() + 1
    }

    /// The write that is on its way round has no effect, for the update that overtook it is done as
    /// if there was none. An update that loses is run again.
    fn lose_own(&mut self, step: &mut Step<'_>) {
        if !(self.update && self.is_writing()) {
            self.refuse_own(step);
        }
    }

    fn is_writing(&self) -> bool {
        self.own.is_some_and(|own| own.ts == self.ts)
    }

    /// The update that is on its way round has lost: it took no effect.
    fn run_again(&mut self, step: &mut Step<'_>) {
        if let Some(waiter) = self.own.take().and_then(|own| own.waiter) {
            step.waiting.push_first(waiter);
        }
    }

    fn acknowledge(&self, step: &mut Step<'_>, to: NodeId, ts: Cas) {
        self.send(step, NodeSet::only(to), MessageKind::Ack, ts);
    }

    pub(super) fn receive_ack(&mut self, step: &mut Step<'_>, from: NodeId, ts: Cas) {
        if step.has(Mutant::AckWithoutSender) {
            self.count_anybody(step);
        }
        self.count(step, from, ts, false);
        self.settle(step);
        self.proceed(step);
    }

    /// `from` has the write `ts` or a later one: it sends it (`is_sent`) or acknowledges it.
    fn count(&mut self, step: &Step<'_>, from: NodeId, ts: Cas, is_sent: bool) {
        let accepts_later = step.has(Mutant::UpdateAcknowledged);
        let writes_update = self.update && self.is_writing() && !accepts_later;
        if let Some(own) = &mut self.own
            && (ts == own.ts || (ts > own.ts && !writes_update))
        {
            own.acks = own.acks.with(from);
        }
        // That the writer of an update sends it says that it is not complete.
        let is_unfinished = is_sent && self.update && ts.writer().node() == from;
        if let Some(acks) = &mut self.replay
            && ts == self.ts
            && (!is_unfinished || step.has(Mutant::UpdateHelped))
        {
            *acks = acks.with(from);
        }
    }

    /// Only [`Mutant::AckWithoutSender`] does this.
    fn count_anybody(&mut self, step: &Step<'_>) {
        let members = self.members(step);
        if let Some(own) = &mut self.own {
            let missing = members.difference(own.acks).first();
            own.acks = missing.map_or(own.acks, |node| own.acks.with(node));
        }
    }

    /// Looks whether a write is complete.
    fn settle(&mut self, step: &mut Step<'_>) {
        let members = self.members(step);
        let has_all = |acks: NodeSet| acks.contains_all(members);
        if self.own.is_some_and(|own| has_all(own.acks)) {
            if self.is_writing() {
                self.complete(step, true);
            } else {
                self.finish_own(step);
                if self.replay.is_none() {
                    self.await_validation(step);
                }
                self.leave_if_quiet(step);
            }
        }
        if self.replay.is_some_and(has_all) {
            self.complete(step, true);
        }
    }

    pub(super) fn receive_validation(&mut self, step: &mut Step<'_>, ts: Cas) {
        let another = step.has(Mutant::ValidateAnother) && self.own.is_none();
        if (ts == self.ts || another) && !self.valid {
            self.complete(step, false);
        } else if self.own.is_some_and(|own| own.ts < ts) {
            self.finish_own(step);
            self.leave_if_quiet(step);
        }
        self.proceed(step);
    }

    /// The write that is stored here is everywhere.
    pub(super) fn complete(&mut self, step: &mut Step<'_>, announce: bool) {
        self.valid = true;
        self.replay = None;
        self.write_due = NEVER;
        self.publish(step, Value::Stored);
        if announce {
            self.send(step, self.peers(step), MessageKind::Validate, self.ts);
        }
        self.finish_own(step);
        if let Stage::Home(Mode::Promoting | Mode::Hot) = self.stage {
            self.fill(step);
        }
        self.leave_if_quiet(step);
    }

    /// What the home waits for before it may forget that the key was hot.
    pub(super) fn leave_if_quiet(&mut self, step: &mut Step<'_>) {
        if self.stage == Stage::Leaving {
            self.report(step, self.place.home);
        }
    }

    fn finish_own(&mut self, step: &mut Step<'_>) {
        if let Some(waiter) = self.own.take().and_then(|own| own.waiter) {
            let ticket = waiter.ticket;
            step.emit(Output::Done { ticket });
        }
    }

    /// From now on somebody else is to complete the write, for a while.
    pub(super) fn await_validation(&mut self, step: &mut Step<'_>) {
        let wanted = self.is_home(step) || step.waiting.first(self.key).is_some();
        let replays = if wanted { 1 } else { REPLAYS_UNASKED };
        self.write_due = step.in_ns(step.config.replay_ns.saturating_mul(replays));
    }

    /// A request waits: the write that it waits for must not take for ever.
    pub(super) fn hurry(&mut self, step: &mut Step<'_>) {
        if !self.valid && self.is_quiet() {
            let soon = step.in_ns(step.config.replay_ns);
            self.write_due = self.write_due.min(soon);
        }
    }

    /// A write of this node, or one that this node waits for, got no further for too long.
    pub(super) fn write_is_due(&mut self, step: &mut Step<'_>) {
        self.write_due = NEVER;
        let members = self.members(step);
        match (self.own, self.replay) {
            // What it has may be long over: nobody else is to take that for the key.
            _ if self.is_hot() && !self.is_sure() => self.await_validation(step),
            // If it is superseded, the later one serves: who has that has no need of this one.
            (Some(own), _) => self.invalidate(step, members.difference(own.acks)),
            (None, Some(acks)) => self.invalidate(step, members.difference(acks)),
            (None, None) if !self.valid && !step.has(Mutant::NoReplay) => {
                self.begin_replay(step);
            }
            (None, None) => {}
        }
        // Nobody may be left to answer.
        self.settle(step);
        self.proceed(step);
    }
}

/// How much longer a node waits that nobody asks for the key: its home is quicker.
const REPLAYS_UNASKED: u64 = 4;
