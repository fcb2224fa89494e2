//! Promotion and demotion of a key (ccKVS names the need in section 4; the protocol is ours).
//!
//! ```text
//!   home  COLD -> PROMOTING  FILL(value) -> shadow     FILL-ACK(number)
//!         all: HOT           ACTIVATE(number) -> live
//!               DEMOTING     DEACTIVATE -> leaving     DEACTIVATE-ACK(ts), once nothing of its own
//!         all: COLD          DROP -> gone              is on its way
//! ```
//!
//! The home has the key's entry from the start of PROMOTING to the end of DEMOTING, and everything
//! that reaches it for the key goes through the entry. A node that follows takes part in every
//! write; only one that is *live* answers, the others send requests to the home.
//!
//! Messages may be late. Each carries the promotion (*epoch*) that it belongs to, and an entry
//! numbers itself: ACTIVATE must name the number, so that one from before never wakes an entry that
//! a late FILL has made. What the home does not know any more it answers with DROP.

use curtail_types::{Cas, HotEpoch, Message, MessageKind, NodeId, NodeSet, RouteHash};

use super::entry::{Entry, NEVER, Stage, Step};
use super::mutant::Mutant;
use super::{Mode, Output, Place, Value, Visibility, is_nothing};

impl Entry {
    /// Home makes the key hot.
    pub(super) fn promote(
        key: RouteHash,
        place: Place,
        epoch: HotEpoch,
        step: &mut Step<'_>,
    ) -> Self {
        let mut entry = Self::new(key, place, step);
        entry.take_number(step);
        entry.epoch = epoch;
        entry.enter(step, Mode::Promoting);
        entry.publish(step, Value::Stored);
        entry.proceed(step);
        entry
    }

    /// No other entry of a hot key that this machine made has it.
    fn take_number(&mut self, step: &mut Step<'_>) {
        *step.entries_made += 1;
        self.number = *step.entries_made;
    }

    /// Home begins a mode; everybody else is to follow.
    pub(super) fn enter(&mut self, step: &mut Step<'_>, mode: Mode) {
        self.stage = Stage::Home(mode);
        self.is_confirmed = true;
        self.is_told |= !self.is_doubtful;
        self.heard = NodeSet::only(step.config.me);
        self.lacks = NodeSet::NONE;
        self.moved(step, mode);
        self.tell(step);
        self.check_heard(step);
    }

    fn moved(&self, step: &mut Step<'_>, mode: Mode) {
        let (key, epoch) = (self.key, self.epoch);
        step.emit(Output::Moved { key, epoch, mode });
    }

    /// Home tells those who have not followed yet.
    fn tell(&mut self, step: &mut Step<'_>) {
        let to = self.members(step).difference(self.heard);
        match self.stage {
            Stage::Home(Mode::Promoting) => self.fill(step),
            Stage::Home(Mode::Hot) => self.send(step, to, MessageKind::Activate, Cas(0)),
            Stage::Home(Mode::Demoting) => self.deactivate(step, to),
            _ => {}
        }
        if matches!(self.stage, Stage::Home(_)) && !to.is_empty() {
            let soon = step.in_ns(step.config.retransmit_ns);
            self.stage_due = self.stage_due.min(soon);
        }
    }

    /// Tells them to leave. Only a home that is sure of its value names it.
    fn deactivate(&self, step: &mut Step<'_>, to: NodeSet) {
        let ts = if self.is_doubtful { Cas(0) } else { self.ts };
        self.send(step, to, MessageKind::Deactivate, ts);
    }

    /// Sends the value to those who lack it. A value that is not valid is not sent: whoever
    /// completes its write sends that to everybody.
    pub(super) fn fill(&mut self, step: &mut Step<'_>) {
        if self.valid {
            let to = self.members(step).difference(self.heard);
            self.send(step, to, MessageKind::Fill, self.ts);
        }
    }

    /// Home goes on when all have followed.
    fn check_heard(&mut self, step: &mut Step<'_>) {
        let all = self.heard.contains_all(self.members(step));
        if all && self.stage == Stage::Home(Mode::Promoting) {
            self.stage = Stage::Home(Mode::Hot);
            self.moved(step, Mode::Hot);
            // Who is live is known by its answer to this.
            self.heard = NodeSet::only(step.config.me);
            self.tell(step);
        }
    }

    /// Home writes the value back, which is to say that it forgets that the key was hot: what is
    /// stored is the value.
    pub(super) fn finish_demotion(&mut self, step: &mut Step<'_>) {
        let members = self.members(step);
        let all = self.heard.contains_all(members) || step.has(Mutant::DemotionWithoutAcks);
        if !all || !self.is_quiet() {
            return;
        }
        if self.is_doubtful {
            return self.give_up(step);
        }
        let is_everywhere = self.agrees(step) || self.unsettled_holders(step).is_empty();
        if !self.is_at_rest(step) || !is_everywhere {
            return;
        }
        step.dropped.add(self.key, self.epoch);
        step.ended.add(self.key, self.epoch);
        self.send(step, self.peers(step), MessageKind::Drop, HOME_HAS_IT);
        self.moved(step, Mode::Cold);
        self.cool_down(step, self.lacks.is_empty());
        self.proceed(step);
    }

    /// Under SC: the holders that have followed to the end, and may have missed its last write.
    /// They must not go back to what they have: it may be asked for, or sent on, at once.
    fn unsettled_holders(&self, step: &Step<'_>) -> NodeSet {
        let holders = self.place.holders.intersection(self.members(step));
        let others = holders.without(step.config.me);
        others.difference(self.settled.union(self.lacks))
    }

    /// The key is not hot any more, and its value is here. The holders of a cold key agree on it;
    /// unless all are known to have it, they do first. About nothing there is nothing to agree on:
    /// what others of them wrote, who may not know of the promotion, is later.
    fn cool_down(&mut self, step: &mut Step<'_>, all_have: bool) {
        let agreed = all_have || is_nothing(self.ts) || self.place.holders.len() <= 1;
        self.epoch = HotEpoch(0);
        self.number = 0;
        self.stage = Stage::Cold;
        self.stage_due = NEVER;
        if !agreed || !self.valid {
            // What was done at once is done: while it goes round nothing earlier may come up, which
            // is what the protocol keeps for an update.
            self.update |= !agreed;
            self.valid = false;
            self.publish(step, Value::Stored);
            self.begin_replay(step);
        }
    }

    /// The value is not to be relied upon: whoever held the key has it, or nobody. What waits
    /// begins anew.
    fn give_up(&mut self, step: &mut Step<'_>) {
        self.refuse_own(step);
        self.end(step, Visibility::Gone);
        self.send(step, self.peers(step), MessageKind::Drop, Cas(0));
        self.moved(step, Mode::Cold);
        let (to, after) = (step.config.me, Cas(0));
        while let Some(waiter) = step.waiting.first(self.key) {
            step.waiting.pop(self.key);
            let ticket = waiter.ticket;
            step.emit(Output::Forward { ticket, to, after });
        }
    }

    /// Home hears of a later promotion than its own, and has nothing of that. Who has held the key
    /// all along has its value all the same.
    pub(super) fn be_overtaken(&mut self, step: &mut Step<'_>) {
        if self.is_doubtful || !self.held {
            return self.give_up(step);
        }
        self.refuse_own(step);
        self.moved(step, Mode::Cold);
        self.cool_down(step, false);
        self.proceed(step);
    }

    /// Nothing is known of the key from here on.
    fn end(&mut self, step: &mut Step<'_>, state: Visibility) {
        self.stage = Stage::Forgotten;
        let (key, ts) = (self.key, self.ts);
        step.emit(Output::Publish {
            key,
            ts,
            state,
            value: Value::Stored,
        });
    }

    /// A follower of a promotion that this node knows nothing of begins: from here on it takes part
    /// in every write.
    pub(super) fn follow(
        key: RouteHash,
        place: Place,
        epoch: HotEpoch,
        step: &mut Step<'_>,
    ) -> Self {
        let mut entry = Self::new(key, place, step);
        if !entry.held {
            // Whatever is here, of a version that may be greater than any since.
            entry.ts = Cas(0);
        }
        entry.rejoin(epoch, step);
        entry
    }

    /// The promotion that this entry was of ended long ago, and was not told so: what it left here
    /// counts for nothing.
    fn forget_promotion(&mut self, step: &mut Step<'_>) {
        self.refuse_own(step);
        self.replay = None;
        self.ts = Cas(0);
        self.update = false;
        self.valid = true;
        self.write_due = NEVER;
    }

    /// The same for an entry of an earlier promotion.
    pub(super) fn rejoin(&mut self, epoch: HotEpoch, step: &mut Step<'_>) {
        if self.is_hot() {
            self.forget_promotion(step);
        }
        self.take_number(step);
        self.epoch = epoch;
        self.is_doubtful = false;
        self.is_confirmed = true;
        self.is_told = false;
        self.has_left = false;
        self.stage = Stage::Shadow;
        self.stage_due = step.in_ns(step.config.retransmit_ns);
        if !self.agrees(step) {
            self.end_agreement(step);
        }
        self.publish(step, Value::Stored);
    }

    pub(super) fn receive_fill(&mut self, step: &mut Step<'_>, from: NodeId, ts: Cas) {
        if ts > self.ts {
            self.take(step, ts, false);
            // It may be nothing, of a version that nobody wrote: a write that was on its way is not
            // followed by another then, it just has no effect.
            self.refuse_own(step);
        }
        // Only a home that is sure of its value sends it.
        if from == self.place.home {
            self.is_told = true;
            self.is_doubtful = false;
        }
        // What home sends is complete.
        if ts == self.ts && !self.valid {
            self.complete(step, false);
        }
        self.report(step, from);
        self.proceed(step);
    }

    /// Tells the home how far this node has followed.
    pub(super) fn report(&mut self, step: &mut Step<'_>, home: NodeId) {
        let to = NodeSet::only(home);
        match self.stage {
            Stage::Shadow | Stage::Live => {
                let number = if self.vouches() { self.number } else { 0 };
                self.send(step, to, MessageKind::FillAck, Cas(number));
            }
            // Its last own write has to be complete before. Who has said so once says it again: its
            // home may have come to the end, where nobody helps to complete a write of before.
            Stage::Leaving if self.is_quiet() || (self.has_left && self.own.is_none()) => {
                self.has_left = true;
                self.send(step, to, MessageKind::DeactivateAck, self.ts);
            }
            _ => {}
        }
        if self.waits_for_home() {
            self.stage_due = step.in_ns(step.config.retransmit_ns);
        }
    }

    /// Whether nobody can have gone on with the key without this node.
    fn vouches(&self) -> bool {
        self.is_sure() && !self.has_left
    }

    /// Whether the promotion goes on, as far as this node was told.
    pub(super) fn is_sure(&self) -> bool {
        self.is_told && !self.is_doubtful
    }

    /// A node that leaves, and still writes, keeps the promotion from having ended: its home may be
    /// in doubt of that.
    pub(super) fn vouch(&self, step: &mut Step<'_>) {
        if self.stage == Stage::Leaving && self.vouches() {
            let to = NodeSet::only(self.place.home);
            self.send(step, to, MessageKind::FillAck, Cas(self.number));
        }
    }

    fn waits_for_home(&self) -> bool {
        let is_unsure = self.stage == Stage::Live && !self.is_confirmed;
        is_unsure || matches!(self.stage, Stage::Shadow | Stage::Leaving)
    }

    pub(super) fn receive_activate(&mut self, step: &mut Step<'_>, from: NodeId, number: Cas) {
        self.trust_home(step, from);
        let any = step.has(Mutant::AnyActivation) && number > Cas(0);
        let waits = self.waits_for_home() && self.stage != Stage::Leaving;
        // Whoever was live by this promotion has only to hear that its home goes on with it.
        let goes_on = number == Cas(0) && self.stage == Stage::Live;
        if waits && (any || goes_on || number == Cas(self.number)) {
            self.stage = Stage::Live;
            self.is_confirmed = true;
            self.is_doubtful = false;
            self.stage_due = NEVER;
            if !self.agrees(step) {
                self.spread(step, NodeSet::NONE);
            }
            self.publish(step, Value::Stored);
            self.proceed(step);
        }
        if number == Cas(0) {
            self.report(step, from);
        }
    }

    pub(super) fn receive_deactivate(&mut self, step: &mut Step<'_>, from: NodeId, ts: Cas) {
        let may_leave = ts > Cas(0) || !self.vouches();
        if matches!(self.stage, Stage::Shadow | Stage::Live) && may_leave {
            self.stage = Stage::Leaving;
            self.publish(step, Value::Stored);
        }
        if ts > Cas(0) {
            self.trust_home(step, from);
        }
        // Home goes on with the promotion, so nobody has gone on without this node.
        let is_current = Cas(0) < ts && ts <= self.ts && from == self.place.home;
        self.is_doubtful &= !is_current;
        // What it has of a write that goes further than the home's is of this promotion, too.
        self.is_told |= is_current;
        // Home must not forget a write that it has not heard of.
        if !self.agrees(step) && ts < self.ts {
            self.send(step, NodeSet::only(from), MessageKind::Update, self.ts);
        }
        self.proceed(step);
        self.report(step, from);
    }

    /// Home knows the promotion no more: whatever this node has come to, it is over. If home has
    /// the value it says so by `ts`. If not, the value is where the key was held before.
    pub(super) fn receive_drop(&mut self, step: &mut Step<'_>, ts: Cas) {
        if !matches!(self.stage, Stage::Shadow | Stage::Live | Stage::Leaving) {
            return;
        }
        step.dropped.add(self.key, self.epoch);
        self.stage = Stage::Leaving;
        self.proceed(step);
        if ts > Cas(0) {
            return self.forget(step);
        }
        self.refuse_own(step);
        let holds = self.place.holders.contains(step.config.me);
        if self.is_doubtful || (holds && !self.held) {
            self.end(step, Visibility::Gone);
        } else if holds {
            let all_have = self.agrees(step) && self.lacks.is_empty();
            self.cool_down(step, all_have);
            self.proceed(step);
        } else {
            self.end(step, Visibility::Ordinary);
        }
    }

    /// A follower has the key.
    pub(super) fn receive_fill_ack(&mut self, step: &mut Step<'_>, from: NodeId, number: Cas) {
        let to = NodeSet::only(from);
        match self.stage {
            Stage::Home(Mode::Promoting) if number != Cas(0) => {
                self.heard = self.heard.with(from);
                self.check_heard(step);
                self.proceed(step);
            }
            // It has no entry, or one that no home has told it of.
            Stage::Home(Mode::Promoting | Mode::Hot) if number == Cas(0) && self.valid => {
                self.send(step, to, MessageKind::Fill, self.ts);
            }
            Stage::Home(Mode::Hot) if number != Cas(0) => {
                self.heard = self.heard.with(from);
                self.send(step, to, MessageKind::Activate, number);
            }
            Stage::Home(Mode::Demoting) => {
                // Nobody has gone on without it, and it has the value as this node has.
                if number != Cas(0) && !self.is_sure() {
                    self.be_sure(step);
                }
                self.deactivate(step, to);
                self.proceed(step);
            }
            _ => {}
        }
    }

    /// Home was in doubt, and is so no more: from now on it counts who leaves.
    fn be_sure(&mut self, step: &mut Step<'_>) {
        self.is_doubtful = false;
        self.is_told = true;
        self.has_left = false;
        self.heard = NodeSet::only(step.config.me);
        self.tell(step);
        if !self.valid {
            self.write_is_due(step);
        }
    }

    /// A follower answers no more, and has nothing later than `ts`.
    pub(super) fn receive_deactivate_ack(&mut self, step: &mut Step<'_>, from: NodeId, ts: Cas) {
        match self.stage {
            // A home before this one had begun to demote the key.
            Stage::Home(Mode::Promoting | Mode::Hot) => self.enter(step, Mode::Demoting),
            Stage::Home(Mode::Demoting) if ts <= self.ts || self.is_doubtful => {
                self.heard = self.heard.with(from);
                if ts == Cas(0) && self.place.holders.contains(from) {
                    self.lacks = self.lacks.with(from);
                }
                self.note_left(step, from, ts);
            }
            _ => {}
        }
        self.proceed(step);
    }

    /// Under SC a node that has left may have missed a write. As a holder it says again what it has
    /// when that has come.
    fn note_left(&mut self, step: &mut Step<'_>, from: NodeId, ts: Cas) {
        if self.agrees(step) || self.is_doubtful {
            return;
        }
        if ts == self.ts {
            self.note_settled(step, from);
        } else if self.unsettled_holders(step).contains(from) {
            self.send(step, NodeSet::only(from), MessageKind::Update, self.ts);
        }
    }

    /// A stage got no further for too long.
    pub(super) fn stage_is_due(&mut self, step: &mut Step<'_>) {
        self.stage_due = NEVER;
        self.tell(step);
        if self.waits_for_home() {
            self.report(step, self.place.home);
            self.vouch(step);
        }
        if !self.agrees(step) && self.ask(step) {
            let soon = step.in_ns(step.config.settle_ns);
            self.stage_due = self.stage_due.min(soon);
        }
        self.proceed(step);
    }
}

/// The answer to a message about a promotion that this node knows nothing of, if one is due.
/// `is_over` says that this node, as home, ended the promotion and has the value.
pub(super) fn answer_unknown(me_is_home: bool, is_over: bool, message: Message) -> Option<Message> {
    let (kind, ts) = match message.kind {
        // Nothing of it is here, and nothing will be.
        MessageKind::Deactivate if !me_is_home => (MessageKind::DeactivateAck, Cas(0)),
        MessageKind::Activate if !me_is_home && message.ts == Cas(0) => {
            (MessageKind::FillAck, Cas(0))
        }
        // Also who completes a write of it: the others would not answer any more.
        MessageKind::FillAck
        | MessageKind::DeactivateAck
        | MessageKind::Invalidate
        | MessageKind::InvalidateUpdate
            if me_is_home && message.epoch > HotEpoch(0) =>
        {
            let ts = if is_over { HOME_HAS_IT } else { Cas(0) };
            (MessageKind::Drop, ts)
        }
        _ => return None,
    };
    Some(Message {
        kind,
        ts,
        ..message
    })
}

/// What DROP says besides: the home has the value. Else it has none.
const HOME_HAS_IT: Cas = Cas(1);
