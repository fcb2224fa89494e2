//! The state that a machine keeps for a key, and which request for it runs next.
//!
//! | | value | |
//! |---|---|---|
//! | Valid | `valid` | readers may see it |
//! | Invalid | not `valid` | a write is on its way; its value is stored already |
//! | Write | not `valid`, `own.ts == ts` | and it is this node's |
//! | Trans | not `valid`, `own.ts < ts` | a later one came before this node's was complete |
//! | Replay | not `valid`, `replay` | this node completes somebody's write |

use curtail_types::{
    Cas, HotEpoch, Instant, Message, MessageKind, NodeId, NodeSet, RouteHash, View,
};

use super::mutant::Mutant;
use super::sequential::is_gone;
use super::table::{Dropped, Removed, Waiter, Waiting};
use super::{Access, Config, Mode, Model, Output, Place, Refusal, Ticket, Value, Visibility};

/// What is known about a key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Entry {
    pub(super) key: RouteHash,
    pub(super) place: Place,
    pub(super) epoch: HotEpoch,
    pub(super) stage: Stage,
    /// The write whose value is stored here.
    pub(super) ts: Cas,
    /// Whether that write depended on what was there.
    pub(super) update: bool,
    pub(super) valid: bool,
    pub(super) own: Option<Own>,
    /// Of a key that is not hot: its next write is to be later than this, too. There was nothing
    /// when the entry began, and what was there before may have had any version up to this one.
    pub(super) floor: Cas,
    /// Who has acknowledged the write `ts`, which this node completes for somebody.
    pub(super) replay: Option<NodeSet>,
    pub(super) running: Option<Running>,
    /// At home: who has followed into the mode. Elsewhere unused.
    pub(super) heard: NodeSet,
    /// At home: which holders have left the promotion with nothing.
    pub(super) lacks: NodeSet,
    /// Under SC: who is known to have `ts`.
    pub(super) settled: NodeSet,
    /// Which of the entries of hot keys that this machine made it is; 0 if the key is not hot.
    pub(super) number: u64,
    /// Sessions of this node have seen this write.
    pub(super) seen: Cas,
    /// Whether that write may have died with its writer: then everybody is asked for it.
    pub(super) is_sought: bool,
    /// Nobody in this view has a write between the one that is here and this one.
    pub(super) lost: Cas,
    /// Whether the value may be older than what the home before had alone.
    pub(super) is_doubtful: bool,
    /// Whether this node was one of the key's holders when the view came, or when it began to know
    /// the key since; or it was before, is to send the key on, and has not heard since of a home
    /// that is sure of it.
    pub(super) held: bool,
    /// Whether the home is known to go on with the promotion: a node that becomes live may have
    /// followed one that nobody else remembers.
    pub(super) is_confirmed: bool,
    /// Whether a home that was sure of the key has told this node of the promotion. What a home in
    /// doubt completes makes followers, too.
    pub(super) is_told: bool,
    /// Whether this node has said that the promotion may end without it. Until then it has not.
    pub(super) has_left: bool,
    /// When something is done about a write that gets no further.
    pub(super) write_due: Instant,
    /// When something is done about a stage that gets no further.
    pub(super) stage_due: Instant,
}

/// How this node takes part.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Stage {
    /// As one of the holders of a key that is not hot.
    Cold,
    /// As home of a hot key: the gatekeeper (CC-67).
    Home(Mode),
    /// It follows, and sends requests to the home.
    Shadow,
    /// It follows, and answers.
    Live,
    /// It follows still, and sends requests to the home.
    Leaving,
    /// Not any more: the entry goes at the end of the step.
    Forgotten,
}

/// A write of this node on its way round.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Own {
    pub(super) ts: Cas,
    pub(super) acks: NodeSet,
    /// Nobody's any more when it has been refused.
    pub(super) waiter: Option<Waiter>,
}

/// A request that may write, between its `Run` and the driver's answer.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Running {
    pub(super) waiter: Waiter,
    pub(super) ts: Cas,
}

/// What a step has at hand beside the entry.
pub(super) struct Step<'a> {
    pub(super) now: Instant,
    pub(super) stored: Cas,
    pub(super) config: &'a Config,
    pub(super) view: &'a View,
    pub(super) waiting: &'a mut Waiting,
    pub(super) dropped: &'a mut Dropped,
    /// The promotions that this node has ended as home, with the value.
    pub(super) ended: &'a mut Dropped,
    pub(super) removed: &'a mut Removed,
    pub(super) entries_made: &'a mut u64,
    pub(super) has_room: bool,
    pub(super) mutant: Option<Mutant>,
    pub(super) emit: &'a mut dyn FnMut(Output),
}

/// Who made a write.
pub(super) fn writer_of(ts: Cas) -> NodeId {
    ts.writer().node()
}

/// Later than anything.
pub(super) const NEVER: Instant = Instant { ns: u64::MAX };

impl Step<'_> {
    /// Whether the machine is to make this error.
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        cfg!(any(test, feature = "mutants")) && self.mutant == Some(mutant)
    }

    pub(super) fn emit(&mut self, output: Output) {
        (self.emit)(output);
    }

    pub(super) fn in_ns(&self, ns: u64) -> Instant {
        let ns = self.now.ns.saturating_add(ns);
        Instant { ns }
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, reason: Refusal) {
        self.emit(Output::Refuse { ticket, reason });
    }

    /// Sends what concerns a key that nothing is known about.
    pub(super) fn answer(&mut self, to: NodeId, key: RouteHash, message: Message) {
        self.emit(Output::Send {
            to: NodeSet::only(to),
            key,
            message: Message {
                view: self.view.number,
                ..message
            },
            value: Value::Stored,
        });
    }
}

impl Entry {
    /// The entry of a key whose item is the write `step.stored`, which is complete.
    pub(super) fn new(key: RouteHash, place: Place, step: &mut Step<'_>) -> Self {
        Self {
            key,
            place,
            epoch: HotEpoch(0),
            stage: Stage::Cold,
            ts: step.stored,
            floor: Cas(0),
            update: false,
            valid: true,
            own: None,
            replay: None,
            running: None,
            heard: NodeSet::NONE,
            lacks: NodeSet::NONE,
            settled: NodeSet::NONE,
            number: 0,
            seen: Cas(0),
            is_sought: false,
            lost: Cas(0),
            is_doubtful: false,
            held: place.holders.contains(step.config.me),
            is_confirmed: true,
            is_told: true,
            has_left: false,
            write_due: NEVER,
            stage_due: NEVER,
        }
    }

    pub(super) fn is_home(&self, step: &Step<'_>) -> bool {
        self.place.home == step.config.me
    }

    pub(super) fn is_hot(&self) -> bool {
        self.epoch > HotEpoch(0)
    }

    /// Whether writes go round before they are done. Those of cold keys always do.
    pub(super) fn agrees(&self, step: &Step<'_>) -> bool {
        !self.is_hot() || step.config.model == Model::Lin
    }

    /// Those whose acknowledgement a write needs, this node among them.
    pub(super) fn members(&self, step: &Step<'_>) -> NodeSet {
        let followers = step.view.followers();
        let members = match self.is_hot() {
            true => followers,
            false => self.place.holders.intersection(followers),
        };
        members.with(step.config.me)
    }

    pub(super) fn peers(&self, step: &Step<'_>) -> NodeSet {
        self.members(step).without(step.config.me)
    }

    /// Whether requests are carried out here.
    pub(super) fn serves(&self, step: &Step<'_>) -> bool {
        match self.stage {
            Stage::Home(_) => true,
            Stage::Live => self.is_confirmed,
            Stage::Cold | Stage::Shadow | Stage::Leaving => self.is_home(step),
            Stage::Forgotten => false,
        }
    }

    pub(super) fn send(&self, step: &mut Step<'_>, to: NodeSet, kind: MessageKind, ts: Cas) {
        self.send_value(step, to, kind, ts, Value::Stored);
    }

    pub(super) fn send_value(
        &self,
        step: &mut Step<'_>,
        to: NodeSet,
        kind: MessageKind,
        ts: Cas,
        value: Value,
    ) {
        if to.is_empty() {
            return;
        }
        let message = Message {
            kind,
            view: step.view.number,
            epoch: self.epoch,
            ts,
        };
        let key = self.key;
        step.emit(Output::Send {
            to,
            key,
            message,
            value,
        });
    }

    /// Tells readers beside the machine where the key is.
    pub(super) fn publish(&self, step: &mut Step<'_>, value: Value) {
        let is_sure = self.is_confirmed && !self.is_doubtful;
        let shows = is_sure && self.valid && self.running.is_none() && self.ts >= self.seen;
        let state = match self.stage {
            Stage::Home(_) | Stage::Live if shows => Visibility::Valid,
            Stage::Forgotten if self.place.holders.contains(step.config.me) => Visibility::Ordinary,
            Stage::Forgotten => Visibility::Gone,
            _ => Visibility::Unsettled,
        };
        let (key, ts) = (self.key, self.ts);
        step.emit(Output::Publish {
            key,
            ts,
            state,
            value,
        });
    }

    /// Nothing of this node's is on its way.
    pub(super) fn is_quiet(&self) -> bool {
        self.own.is_none() && self.replay.is_none() && self.running.is_none()
    }

    /// The end of whatever happened: runs what can run, and takes the steps of its stage that
    /// waited for it.
    pub(super) fn proceed(&mut self, step: &mut Step<'_>) {
        self.run_waiting(step);
        match self.stage {
            Stage::Cold if self.is_at_rest(step) => self.forget(step),
            Stage::Home(Mode::Demoting) => self.finish_demotion(step),
            _ => {}
        }
    }

    /// Nothing is on its way, and nobody waits for anything but the end of a mode.
    pub(super) fn is_at_rest(&self, step: &Step<'_>) -> bool {
        let first = step.waiting.first(self.key);
        let waits = first.is_some_and(|waiter| !self.is_held_back(step, waiter));
        self.valid && self.is_quiet() && !waits
    }

    pub(super) fn forget(&mut self, step: &mut Step<'_>) {
        self.stage = Stage::Forgotten;
        if step.stored == Cas(0) && !step.has(Mutant::RemovedForgotten) {
            step.removed.add(self.key, self.ts);
        }
        self.refuse_own(step);
        self.publish(step, Value::Stored);
    }

    /// The write of this node that is on its way is nobody's any more.
    pub(super) fn refuse_own(&mut self, step: &mut Step<'_>) {
        if let Some(waiter) = self.own.take().and_then(|own| own.waiter) {
            step.refuse(waiter.ticket, Refusal::View);
        }
    }

    /// A session of this node has seen a write that may be on its way still.
    pub(super) fn have_seen(&mut self, step: &mut Step<'_>, ts: Cas) {
        if step.has(Mutant::SeenForgotten) {
            return;
        }
        let was_seen = self.seen;
        self.seen = was_seen.max(ts);
        if self.ts < self.seen && was_seen <= self.ts && !self.agrees(step) {
            self.publish(step, Value::Stored);
        }
    }

    /// A write of this node has gone round for too long: whoever asked for it is told so. It may
    /// take effect yet.
    pub(super) fn lose_patience(&mut self, step: &mut Step<'_>) {
        if let Some(own) = &mut self.own
            && let Some(waiter) = own.waiter.take_if(|waiter| waiter.until <= step.now)
        {
            step.refuse(waiter.ticket, Refusal::Late);
        }
    }

    /// Runs requests in the order of their arrival, as far as the key allows. So a write queues
    /// behind this node's own (CC-22) and behind a reader that waits (CC-21), and else it may
    /// supersede the write that the key is waiting for.
    fn run_waiting(&mut self, step: &mut Step<'_>) {
        while self.running.is_none()
            && let Some(waiter) = step.waiting.first(self.key)
        {
            let elsewhere =
                !self.serves(step) || (waiter.access == Access::Update && !self.is_home(step));
            if elsewhere {
                step.waiting.pop(self.key);
                self.forward(step, waiter.ticket);
                continue;
            }
            let may_run = match waiter.access {
                Access::Read => self.valid,
                Access::Replace if step.has(Mutant::SetDropped) && self.own.is_some() => {
                    step.waiting.pop(self.key);
                    let ticket = waiter.ticket;
                    step.emit(Output::Done { ticket });
                    continue;
                }
                Access::Replace => self.own.is_none(),
                Access::Update => self.valid && self.own.is_none(),
            };
            let may_run = may_run && !self.is_held_back(step, waiter);
            if !may_run || self.is_doubtful || !self.shows_seen(step, waiter.after) {
                return;
            }
            step.waiting.pop(self.key);
            self.run(step, waiter);
        }
    }

    /// A write of SC is done at once: whoever is told of the key yet could miss it, and so could
    /// who is told of its end.
    fn is_held_back(&self, step: &Step<'_>, waiter: Waiter) -> bool {
        let changes = matches!(self.stage, Stage::Home(Mode::Promoting | Mode::Demoting));
        changes && !self.agrees(step) && waiter.access != Access::Read
    }

    /// Whether what is here is not before `after`, nor before what sessions of this node have seen.
    /// What is at the home of a key that is not hot is before nothing.
    fn shows_seen(&mut self, step: &mut Step<'_>, after: Cas) -> bool {
        if self.agrees(step) {
            return true;
        }
        if self.is_sought {
            return false;
        }
        let is_gone = is_gone(step, after);
        let awaited = match is_gone && after <= self.lost {
            true => Cas(0),
            false => after,
        };
        if self.ts < awaited && is_gone {
            self.seek(step, awaited);
            return false;
        }
        self.ts >= awaited.max(self.seen)
    }

    fn forward(&self, step: &mut Step<'_>, ticket: Ticket) {
        let after = if self.agrees(step) {
            Cas(0)
        } else {
            self.ts.max(self.seen)
        };
        let to = self.place.home;
        step.emit(Output::Forward { ticket, to, after });
    }

    fn run(&mut self, step: &mut Step<'_>, waiter: Waiter) {
        // What a hot key has, be it nothing, has a later version than whatever was there before.
        let floor = if self.is_hot() { Cas(0) } else { self.floor };
        let clock = self.ts.max(floor).clock();
        // A write that races with an update is the later one of the two (Hermes, section 3.6).
        let ts = match waiter.access {
            Access::Read => Cas(0),
            Access::Replace => Cas::new(clock + 2, step.config.writer),
            Access::Update if !step.has(Mutant::UpdateStepTwo) => {
                Cas::new(clock + 1, step.config.writer)
            }
            Access::Update => Cas::new(clock + 2, step.config.writer),
        };
        if waiter.access != Access::Read {
            self.running = Some(Running { waiter, ts });
        }
        let ticket = waiter.ticket;
        step.emit(Output::Run { ticket, ts });
    }

    /// The request that ran wrote.
    pub(super) fn write(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let Some(running) = self.running.take_if(|one| one.waiter.ticket == ticket) else {
            return;
        };
        self.ts = running.ts;
        self.update = running.waiter.access == Access::Update;
        if self.agrees(step) {
            self.begin_agreement(step, running.waiter);
        } else {
            self.publish(step, Value::Stored);
            self.begin_update(step);
            step.emit(Output::Done { ticket });
        }
        self.proceed(step);
    }

    /// The request that ran does not write.
    pub(super) fn decline(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let ran = self.running.take_if(|one| one.waiter.ticket == ticket);
        if ran.is_some() {
            self.publish(step, Value::Stored);
            self.proceed(step);
        }
    }
}
