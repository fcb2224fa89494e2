//! The effect of each kind of reply on a session's machine.
//!
//! Invariants: a reply to nothing outstanding changes nothing; what every reply tells of its queue
//! (credits, how far it is durable) is taken even from a refusal; an error that damage on the way
//! may have caused is believed only when several transmissions meet it.

use curtail_codec::native::{
    Echo, ErrorCode, Grant, Nack, NackReason, Place, Promise, Reply, ReplyError, SLOTS, Status,
};

use super::{Machine, MachineOutput, PAUSE_DOUBLINGS, QUEUES_MAX, ns, slot::State, window::Window};
use crate::{
    config::WhenFull,
    error::ClientError,
    outcome::{Accepted, Event, Outcome},
};

impl Machine {
    pub(super) fn reply(
        &mut self,
        now_ns: u64,
        reply: Reply<'_>,
        emit: &mut impl FnMut(MachineOutput<'_>),
    ) {
        match reply {
            Reply::Cookie { nonce, cookie, .. } => {
                if self.grant.is_none() && self.handshake.cookie(nonce, cookie) {
                    self.due_ns = now_ns;
                }
            }
            Reply::Grant(grant) => self.granted(now_ns, grant, emit),
            Reply::Ack(ack) => self.acknowledged(now_ns, ack.echo, ack.place, ack.promise, emit),
            Reply::Nack(nack) => self.refused_for_now(now_ns, nack, emit),
            Reply::Pong { echo, place } => {
                let outcome = Outcome {
                    status: Status::Done,
                    version: 0,
                    number: place.pos,
                    item_flags: 0,
                    value: &[],
                    place,
                };
                self.answered(now_ns, echo, outcome, emit);
            }
            Reply::Result {
                echo,
                place,
                status,
                version,
                number,
                item_flags,
                value,
            } => {
                let outcome = Outcome {
                    status,
                    version,
                    number,
                    item_flags,
                    value,
                    place,
                };
                self.answered(now_ns, echo, outcome, emit);
            }
            Reply::Error(error) => self.refused(now_ns, error, emit),
        }
    }

    fn granted(&mut self, now_ns: u64, grant: Grant, emit: &mut impl FnMut(MachineOutput<'_>)) {
        if self.grant.is_some() || !self.handshake.grants(&grant) {
            self.counts.strays += 1;
            return;
        }
        self.grant = Some(grant);
        self.heard_ns = now_ns;
        self.sent_ns = now_ns;
        self.counts.sessions += 1;
        let writes_max = self.config.window_max.clamp(1, u32::from(SLOTS));
        let window = Window::new(grant.credits, writes_max);
        let queues = usize::from(grant.queues).min(QUEUES_MAX);
        self.windows.clear();
        self.windows.resize(queues + 1, window);
        self.durable.clear();
        self.durable.resize(queues, 0);
        self.routes.forget();
        self.free = 0;
        let slots = grant.slots.min(SLOTS);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.sequence = 0;
            if slot.state == State::Free && index < usize::from(slots) {
                self.free |= 1 << index;
            }
        }
        for index in 0..self.slots.len() {
            self.unpark(index, now_ns, grant, emit);
        }
        emit(MachineOutput::Open);
    }

    /// A read that lost its session is asked in the new one.
    fn unpark(
        &mut self,
        index: usize,
        now_ns: u64,
        grant: Grant,
        emit: &mut impl FnMut(MachineOutput<'_>),
    ) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if slot.state != State::Parked {
            return;
        }
        if index >= usize::from(grant.slots) {
            return self.fail(index, ClientError::TimedOut, emit);
        }
        slot.state = State::Outstanding;
        slot.sequence += 1;
        let again = self.transmit(index, grant.session, now_ns, true);
        emit(MachineOutput::Transmit(again));
    }

    fn acknowledged(
        &mut self,
        now_ns: u64,
        echo: Echo,
        place: Place,
        promise: Promise,
        emit: &mut impl FnMut(MachineOutput<'_>),
    ) {
        let Some(index) = self.outstanding_slot(&echo) else {
            return;
        };
        if !self.slots.get(index).is_some_and(|slot| slot.is_marked) {
            return; // its result is still to come
        }
        self.note(index, now_ns, &echo, &place, emit);
        self.counts.accepted += 1;
        let accepted = Accepted { promise, place };
        if let Some(ticket) = self.release(index) {
            emit(MachineOutput::Tell(Event::Accepted { ticket, accepted }));
        }
    }

    fn answered(
        &mut self,
        now_ns: u64,
        echo: Echo,
        outcome: Outcome<'_>,
        emit: &mut impl FnMut(MachineOutput<'_>),
    ) {
        let Some(index) = self.outstanding_slot(&echo) else {
            return;
        };
        self.note(index, now_ns, &echo, &outcome.place, emit);
        if let Some(ticket) = self.release(index) {
            self.counts.answered += 1;
            emit(MachineOutput::Tell(Event::Answered { ticket, outcome }));
        }
    }

    fn refused_for_now(
        &mut self,
        now_ns: u64,
        nack: Nack,
        emit: &mut impl FnMut(MachineOutput<'_>),
    ) {
        let Nack {
            echo,
            place,
            reason,
        } = nack;
        let Some(index) = self.outstanding_slot(&echo) else {
            return;
        };
        let round_trip_ns = self
            .early
            .smoothed_ns()
            .unwrap_or(ns(self.config.pause_min));
        self.heard_ns = now_ns;
        self.tell_durable(&place, emit);
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let pause_max_ns = ns(self.config.pause_max);
        let pause_ns = ns(self.config.pause_min) << slot.refusals.min(PAUSE_DOUBLINGS);
        let pause_ns = match self.config.when_full {
            WhenFull::NotReady(pause) if reason == NackReason::Full => ns(pause),
            _ => self.random.around(pause_ns.min(pause_max_ns)),
        };
        slot.refusals = slot.refusals.saturating_add(1);
        slot.refusal = Some(reason);
        slot.last_word = Some(reason);
        slot.resend_ns = now_ns + pause_ns;
        let resend_ns = slot.resend_ns;
        self.soon(resend_ns);
        if reason != NackReason::Full {
            self.counts.refused += 1;
            return;
        }
        self.counts.full += 1;
        let key_hash = self.slots.get(index).map_or(0, |slot| slot.key_hash);
        self.routes.learn(key_hash, place.queue);
        let when_full = self.config.when_full;
        if let Some(window) = self.window_at(place.queue) {
            match when_full {
                WhenFull::Credits => {
                    window.refused(now_ns, round_trip_ns, pause_ns, place.credits);
                }
                WhenFull::NotReady(_) => window.not_ready(now_ns, pause_ns),
            }
            if let Some(opens_ns) = window.opens_ns(now_ns) {
                self.soon(opens_ns);
            }
        }
    }

    fn refused(
        &mut self,
        now_ns: u64,
        error: ReplyError,
        emit: &mut impl FnMut(MachineOutput<'_>),
    ) {
        let ReplyError { echo, code, .. } = error;
        if self.grant.is_none() {
            if self.handshake.refused(now_ns, echo, code, &mut self.random) {
                self.due_ns = now_ns;
            }
            return;
        }
        let Some(index) = self.outstanding_slot(&echo) else {
            return;
        };
        self.heard_ns = now_ns;
        if self.is_doubtful(index, code, echo.stamp) {
            let pause_ns = self.random.around(ns(self.config.pause_min));
            if let Some(slot) = self.slots.get_mut(index) {
                slot.resend_ns = slot.resend_ns.min(now_ns + pause_ns);
            }
            return self.soon(now_ns + pause_ns);
        }
        match code {
            ErrorCode::Session => self.lose(now_ns, emit),
            ErrorCode::TooLarge if self.divert(index) => {
                if let Some(grant) = self.grant {
                    let again = self.transmit(index, grant.session, now_ns, true);
                    emit(MachineOutput::Transmit(again));
                }
            }
            // Another copy of the datagram that was too large, and not the frame of the stream.
            ErrorCode::TooLarge if !self.was_sent(index, echo.stamp) => self.counts.strays += 1,
            code => self.fail(index, ClientError::Refused(code), emit),
        }
    }

    /// Whether an error may come from bytes that were damaged on their way, so that it is believed
    /// only when several transmissions meet it: what was encoded here is not malformed.
    fn is_doubtful(&mut self, index: usize, code: ErrorCode, stamp: u32) -> bool {
        let believed = match code {
            ErrorCode::Checksum => return true,
            ErrorCode::Session => 2,
            ErrorCode::Malformed
            | ErrorCode::Version
            | ErrorCode::Opcode
            | ErrorCode::Flags
            | ErrorCode::NotNilext
            | ErrorCode::Fragment => 3,
            _ => return false,
        };
        let Some(slot) = self.slots.get_mut(index) else {
            return false;
        };
        if slot.last.0 == stamp && slot.error_stamp != Some(stamp) {
            slot.error_stamp = Some(stamp);
            slot.errors = slot.errors.saturating_add(1);
        }
        slot.errors < believed
    }

    /// The slot of the request that a reply belongs to, while it waits for one.
    fn outstanding_slot(&mut self, echo: &Echo) -> Option<usize> {
        let index = usize::from(echo.slot);
        let found = self.grant.is_some_and(|grant| {
            grant.session.index == echo.index && grant.session.generation == echo.generation
        }) && self
            .slots
            .get(index)
            .is_some_and(|slot| slot.state == State::Outstanding && slot.sequence == echo.sequence);
        if !found {
            self.counts.strays += 1;
        }
        found.then_some(index)
    }

    /// What every good answer tells: how long it took, where the key's queue is, how that is.
    fn note(
        &mut self,
        index: usize,
        now_ns: u64,
        echo: &Echo,
        place: &Place,
        emit: &mut impl FnMut(MachineOutput<'_>),
    ) {
        self.heard_ns = now_ns;
        self.tell_durable(place, emit);
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        if let Some(took_ns) = slot.round_trip_ns(echo.stamp, now_ns) {
            match slot.is_marked {
                true => self.early.sample(took_ns),
                false => self.late.sample(took_ns),
            }
        }
        if slot.is_queued {
            self.routes.learn(slot.key_hash, place.queue);
            let forgets = self.config.when_full != WhenFull::Credits;
            if let Some(window) = self.window_at(place.queue) {
                window.accepted(place.credits);
                if forgets {
                    window.forget_credits();
                }
            }
        }
    }

    fn tell_durable(&mut self, place: &Place, emit: &mut impl FnMut(MachineOutput<'_>)) {
        let known = self.durable.get_mut(usize::from(place.queue));
        if let Some(known) = known.filter(|known| **known < place.durable_pos) {
            *known = place.durable_pos;
            emit(MachineOutput::Tell(Event::Durable { place: *place }));
        }
    }
}
