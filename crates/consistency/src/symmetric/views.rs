//! Nodes come and go: every write and every mode that is on its way starts again in the new view
//! (ccKVS requirements CC-62, CC-64, CC-65 and CC-73; Hermes, section 3.1).
//!
//! What a node has acknowledged it has, so a write needs nobody to look back: its writer, or else
//! whoever finds it invalid, sends it to the members of the new view. A hot key whose home is gone
//! goes on under its new home, which has it as everybody has it:
//!
//! - it followed, so it takes over as if it promoted the key, and every node says how far it is;
//! - if one says that it was told to leave, the home before had begun to demote the key, and the
//!   new one demotes it;
//! - if it was told to leave itself, the home before may have gone on without it, as a holder of a
//!   cold key. Unless somebody *vouches* for the promotion, or this node has held the key all
//!   along, it gives its value up, and tells the others to return to what they hold: the value
//!   moves in from whoever held the key before, or died with the last who did. Who vouches was
//!   told of the promotion by a home that was sure of it, and has not left: it cannot have ended
//!   without that node. So a node that vouches does not leave a home in doubt, and what a node in
//!   doubt has it tells nobody;
//! - if the home before had not come to the end of the promotion, or this node has not seen all
//!   views between, nobody can say who knows of it: a node that did not hold the key takes it as if
//!   it had been told to leave;
//! - if all who were live are gone, and those who joined begin anew, a node asks the home before it
//!   answers; what it has of a promotion that had not come to its end it doubts;
//! - who answers for a key, and has not left, goes on with it under whichever home: that needs its
//!   word before the promotion can end, unless it knows nothing of it. So nobody becomes live while
//!   a key is being demoted that it may never have followed;
//! - a home that hears of a later promotion than its own has missed the end of that;
//! - if it knows nothing of the promotion, because it has only just joined, it says the same to
//!   whoever reports to it.

use curtail_types::{NodeId, NodeSet, View};

use super::entry::{Entry, Stage, Step};
use super::mutant::Mutant;
use super::table::{Entries, Waiting};
use super::{Mode, Output, Place, Refusal, Value, Visibility};

/// What another view is to what is known of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewChange {
    /// All who were live are gone, or may be: those who joined begin anew, this node with them.
    forms: bool,
    /// This node has not seen all views between.
    skips: bool,
    /// Keys moved from this node under the view before.
    was_source: bool,
    /// The same keys move still.
    moves_on: bool,
}

impl ViewChange {
    pub(super) fn new(me: NodeId, before: &View, after: &View) -> Self {
        let was_source = before.moves() && before.placed_before.contains(me);
        // A later move has a source that the one before did not name: who a key moved to.
        let same_sources = before.placed_before.contains_all(after.placed_before);
        Self {
            // Else keys are not placed on who becomes live yet.
            forms: !before.live.contains(me) && after.placed_before.contains(me),
            skips: after.number.0 > before.number.0.saturating_add(1),
            was_source,
            moves_on: was_source && after.moves() && same_sources,
        }
    }

    /// Whether every key has the home that it had, all the time: what this node has ended as home
    /// it still has. Who is told so by nobody else would take up what was moved to it before.
    pub(super) fn keeps_homes(self, before: &View, after: &View) -> bool {
        !self.skips && before.placed == after.placed
    }

    /// Whether nobody has gone on with a key without this node, which held it before, in this
    /// stage. One that does not show a key has not sent it on either, so that the move has not
    /// ended.
    fn keeps(self, stage: Stage) -> bool {
        self.moves_on || (self.was_source && stage != Stage::Live)
    }
}

impl Entry {
    /// The view is another one: who had answered in the last one answers again.
    pub(super) fn forget_answers(&mut self, step: &Step<'_>, change: ViewChange) {
        let forms = change.forms;
        // Who was to hold it, and has it from a home in doubt only, holds nothing.
        let is_sure = self.held || (self.is_told && !self.is_doubtful);
        let held = is_sure && self.place.holders.contains(step.config.me);
        self.is_confirmed &= !(forms && self.stage == Stage::Live);
        if forms && self.stage == Stage::Live && !held {
            // Who told it of the promotion is gone, too: it begins anew, or is over.
            self.stage = Stage::Shadow;
            self.is_told = false;
        }
        // The key may be gone with them: this copy is not to come back.
        self.is_doubtful |= forms && self.stage == Stage::Shadow && !held;
        self.held = held || (self.held && change.keeps(self.stage));
        if change.skips {
            self.part_from_promotion();
        }
        let me = NodeSet::only(step.config.me);
        if let Some(own) = &mut self.own {
            own.acks = me;
        }
        self.replay = None;
        self.heard = me;
        self.settled = me;
        self.seek_of_the_gone(step, change.skips);
    }

    pub(super) fn placed(&mut self, step: &mut Step<'_>, place: Place) {
        let moves_home = self.place.home != place.home;
        if moves_home && self.has_left && !self.place.holders.contains(step.config.me) {
            // The home before may have come to the end of the promotion, and be gone.
            self.held = false;
        }
        self.place = place;
        if moves_home {
            self.part_from_promotion();
        }
        if self.is_hot() {
            self.change_role(step, moves_home);
        } else if !place.holders.contains(step.config.me) {
            self.forget(step);
            return;
        }
        let is_writing = self.own.is_some();
        if is_writing || (!self.valid && self.is_home(step)) {
            self.write_is_due(step);
        } else if !self.valid {
            self.await_validation(step);
        }
        self.proceed(step);
    }

    /// Whoever is home now may know nothing of a promotion that has not come to its end.
    fn part_from_promotion(&mut self) {
        if self.stage == Stage::Shadow && (!self.held || self.is_doubtful) {
            self.stage = Stage::Leaving;
            self.has_left = true;
        }
    }

    /// The key's home is sure of its value, and may go on without who does not hold it.
    pub(super) fn trust_home(&mut self, step: &Step<'_>, from: NodeId) {
        if from == self.place.home {
            self.held = self.place.holders.contains(step.config.me);
        }
    }

    fn change_role(&mut self, step: &mut Step<'_>, moves_home: bool) {
        let is_unsure = self.has_left || !self.is_told;
        if self.stage == Stage::Leaving
            && is_unsure
            && !self.held
            && !step.has(Mutant::DoubtfulServed)
        {
            self.is_doubtful = true;
        }
        if self.stage == Stage::Live && self.is_home(step) && step.has(Mutant::HeirDoubts) {
            (self.stage, self.is_doubtful) = (Stage::Leaving, true);
        }
        match (self.stage, self.is_home(step)) {
            (Stage::Home(mode), true) => self.enter(step, mode),
            (Stage::Shadow | Stage::Live, true) => self.enter(step, Mode::Promoting),
            (Stage::Leaving, true) => self.enter(step, Mode::Demoting),
            (Stage::Home(mode), false) => {
                self.stage = match mode {
                    Mode::Hot => Stage::Live,
                    Mode::Promoting => Stage::Shadow,
                    Mode::Cold | Mode::Demoting => Stage::Leaving,
                };
            }
            (Stage::Cold | Stage::Forgotten, true) | (_, false) => {}
        }
        // Who may have to send the key on does so unless its new home says that it has it.
        let asks = moves_home && self.held && !step.has(Mutant::HomeUnasked);
        self.is_confirmed &= !(asks && self.stage == Stage::Live);
        // Who showed the key, and does no more, is not counted on before readers know.
        self.publish(step, Value::Stored);
        if !self.is_home(step) {
            self.vouch(step);
            self.report(step, self.place.home);
        }
    }
}

/// This node is no member any more: nothing that it knows counts.
pub(super) fn leave(entries: &mut Entries, waiting: &mut Waiting, emit: &mut dyn FnMut(Output)) {
    for entry in entries.iter() {
        let (key, ts) = (entry.key, entry.ts);
        let own = entry.own.and_then(|own| own.waiter);
        if let Some(waiter) = own.or(entry.running.map(|running| running.waiter)) {
            refuse(waiter.ticket, emit);
        }
        emit(Output::Publish {
            key,
            ts,
            state: Visibility::Gone,
            value: Value::Stored,
        });
    }
    entries.clear();
    while let Some(waiter) = waiting.pop_any() {
        refuse(waiter.ticket, emit);
    }
}

fn refuse(ticket: super::Ticket, emit: &mut dyn FnMut(Output)) {
    let reason = Refusal::View;
    emit(Output::Refuse { ticket, reason });
}
