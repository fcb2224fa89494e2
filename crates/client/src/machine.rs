//! The state machine of a session: which datagrams it sends, when it repeats them, and how it
//! interprets replies. It holds no socket, reads no clock and keeps no bytes.
//!
//! The driver asks for a slot ([`Machine::assign`]), hands in what happens ([`Machine::step`]), and
//! calls again at the latest at [`Machine::deadline`]. What is emitted is carried out in order.
//!
//! ```text
//!            COOKIE               GRANT
//!   Greeting -----> Confirming ----------> Open
//!      ^ ^             | ERROR Cookie       |
//!      | +-------------+                    | ERROR Session, lease over, numbers used up
//!      +------------------------------------+   writes: indeterminate; reads: parked, asked again
//! ```
//!
//! Invariants. A sequence number is given to one request. A request ends once: accepted, answered
//! or failed. A write that may have been executed never fails with anything but
//! [`ClientError::Indeterminate`], and is never sent in another session than its own. A queue never
//! has more writes outstanding than its window and its credits allow, as far as the
//! queues of keys are known (`last_queue_of_key`).

mod handshake;
mod last_queue_of_key;
mod random;
mod replies;
mod rtt;
mod slot;
mod window;

use std::time::Duration;

use curtail_codec::native::{
    ErrorCode, Flags, Grant, Head, Opcode, Reply, SEQUENCE_MAX, SLOTS, Session,
};
use curtail_types::Instant;

use self::{
    handshake::Handshake,
    last_queue_of_key::Routes,
    random::Random,
    rtt::Rtt,
    slot::{Slot, State},
    window::Window,
};
use crate::{
    command::Command,
    config::Config,
    error::{ClientError, Reason},
    outcome::Event,
};

/// The client's side of a session.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Machine {
    config: Config,
    random: Random,
    /// The session and its limits, while it is open.
    grant: Option<Grant>,
    handshake: Handshake,
    slots: Box<[Slot]>,
    /// One bit for each slot that is free.
    free: u64,
    /// One for each queue, and one for writes whose queue is not known.
    windows: Vec<Window>,
    /// How far each queue is durable.
    durable: Vec<u64>,
    routes: Routes,
    /// Of acknowledgements, which come before execution.
    early: Rtt,
    /// Of answers, which come after it.
    late: Rtt,
    stamp: u32,
    /// Nothing has to be done before this; it may be earlier than necessary.
    due_ns: u64,
    /// When the server was last heard, and when it was last sent something.
    heard_ns: u64,
    sent_ns: u64,
    counts: Counts,
}

/// A request as the machine needs to know it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ask {
    /// How the driver calls it.
    ticket: Option<u64>,
    key_hash: u64,
    /// Length of its frame, in bytes.
    bytes: usize,
    is_queued: bool,
    is_marked: bool,
    is_read: bool,
}

/// One transmission of a request: what its header says beside the request's own fields.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Transmission {
    /// In whose name.
    pub session: Session,
    /// Which slot.
    pub slot: u8,
    /// Which request in it.
    pub sequence: u64,
    /// Which transmission.
    pub stamp: u32,
    /// Over TCP.
    pub by_stream: bool,
}

/// What happens to a session.
#[derive(Clone, Copy, Debug)]
pub enum MachineInput<'a> {
    /// A datagram, or a frame of the stream.
    Reply(Reply<'a>),
    /// Time has passed.
    Tick,
    /// The stream broke, with whatever was under way on it.
    StreamLost,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineOutput<'a> {
    /// Send this header alone, as a datagram.
    Send(Head),
    /// Send the slot's request, again.
    Transmit(Transmission),
    /// Tell the requester.
    Tell(Event<'a>),
    /// A session was granted; requests that wait may be assigned.
    Open,
}

/// What a session has done since it began.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Counts {
    /// Requests that were given a slot.
    pub assigned: u64,
    /// Marked writes that were accepted.
    pub accepted: u64,
    /// Requests that were answered by a result.
    pub answered: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Transmissions because no answer came in time.
    pub resent: u64,
    /// Refusals because a queue was full.
    pub full: u64,
    /// Refusals for other reasons: not ready, busy.
    pub refused: u64,
    /// Replies that belong to nothing outstanding: repeated, late, or somebody else's.
    pub strays: u64,
    /// Sessions that were granted.
    pub sessions: u64,
}

impl Ask {
    /// A request named `ticket`, with the client's own hash of its key.
    pub const fn new(command: &Command<'_>, ticket: u64, key_hash: u64) -> Self {
        Self {
            ticket: Some(ticket),
            key_hash,
            bytes: command.bytes(),
            is_queued: command.is_queued(),
            is_marked: command.is_marked(),
            is_read: matches!(command.opcode, Opcode::Get | Opcode::Ping),
        }
    }
}

impl Machine {
    /// A session that is not open yet; it greets at its first step.
    pub fn new(config: Config, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let handshake = Handshake::new(random.next());
        Self {
            config,
            random,
            grant: None,
            handshake,
            slots: vec![Slot::default(); usize::from(SLOTS)].into_boxed_slice(),
            free: 0,
            windows: Vec::new(),
            durable: Vec::new(),
            routes: Routes::new(),
            early: Rtt::default(),
            late: Rtt::default(),
            stamp: 0,
            due_ns: 0,
            heard_ns: 0,
            sent_ns: 0,
            counts: Counts::default(),
        }
    }

    /// Gives a request a slot and a number, to be sent at once; `None` if there is no session, no
    /// free slot, or no room in the window of its queue.
    pub fn assign(&mut self, now: Instant, ask: &Ask) -> Option<Transmission> {
        let grant = self.grant?;
        if self.is_over(now.ns) {
            self.due_ns = now.ns;
            return None;
        }
        if self.free == 0 {
            return None;
        }
        let window = match ask.is_queued {
            true => Some(self.window_of(ask.key_hash)),
            false => None,
        };
        if let Some(window) = window {
            let window = self.windows.get_mut(usize::from(window))?;
            if !window.admits(now.ns) {
                return None;
            }
            window.take();
        }
        let index = self.free.trailing_zeros() as usize;
        self.free &= self.free - 1;
        let by_stream = ask.bytes > grant.datagram_bytes_max as usize;
        let extra_ns = match by_stream {
            true => (ask.bytes as u64).saturating_mul(STREAM_NS_PER_BYTE),
            false => 0,
        };
        let give_up_ns = now.ns + ns(self.config.patience) + extra_ns;
        let slot = self.slots.get_mut(index)?;
        slot.take(ask, give_up_ns);
        slot.window = window;
        slot.by_stream = by_stream;
        self.counts.assigned += 1;
        Some(self.transmit(index, grant.session, now.ns, true))
    }

    /// Takes back a request that was assigned and could not be written; nothing of it was sent.
    pub fn withdraw(&mut self, sent: &Transmission) {
        let index = usize::from(sent.slot);
        let is_its = |slot: &Slot| slot.sequence == sent.sequence && slot.state != State::Free;
        if self.slots.get(index).is_some_and(is_its) {
            self.release(index);
        }
    }

    /// Takes in what happened and says what to do about it.
    pub fn step(
        &mut self,
        now: Instant,
        input: MachineInput<'_>,
        emit: &mut impl FnMut(MachineOutput<'_>),
    ) {
        match input {
            MachineInput::Reply(reply) => self.reply(now.ns, reply, emit),
            MachineInput::Tick => {}
            MachineInput::StreamLost => self.stream_lost(now.ns),
        }
        if now.ns >= self.due_ns {
            self.tick(now.ns, emit);
        }
    }

    /// When to step at the latest; `None` if only the server can change anything.
    pub fn deadline(&self) -> Option<Instant> {
        let ns = self.due_ns;
        (ns < u64::MAX).then_some(Instant { ns })
    }

    /// The session and its limits, while it is open.
    pub const fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// Why the server grants no session, if it said so.
    pub const fn refusal(&self) -> Option<ErrorCode> {
        self.handshake.refusal()
    }

    /// What was done so far.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Requests that wait for an answer.
    pub fn outstanding(&self) -> usize {
        let waits = |slot: &&Slot| slot.state != State::Free && slot.ticket.is_some();
        self.slots.iter().filter(waits).count()
    }

    /// Slots that no request has.
    pub const fn free_slots(&self) -> u32 {
        self.free.count_ones()
    }

    /// Credits and window of a queue, in writes; `None` for a queue that the server does not have.
    pub fn queue(&self, queue: u16) -> Option<(u32, u32)> {
        let window = self.windows.get(usize::from(queue))?;
        let is_known = usize::from(queue) < self.durable.len();
        is_known.then(|| (window.credits(), window.writes()))
    }

    /// Ends every request: the client goes.
    pub fn abandon(&mut self, emit: &mut impl FnMut(MachineOutput<'_>)) {
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            let error = match slot.is_read {
                true => ClientError::Closed,
                false => ClientError::Indeterminate(Reason::Closed),
            };
            if slot.state != State::Free {
                self.fail(index, error, emit);
            }
        }
    }

    /// The header that gives the session back, if there is one; nothing is sent after it, and
    /// nothing more is told of what was under way.
    pub fn close(&mut self) -> Option<Head> {
        let grant = self.grant.take();
        for index in 0..self.slots.len() {
            self.release(index);
        }
        self.free = 0;
        self.handshake = Handshake::over(self.random.next());
        self.due_ns = u64::MAX;
        let grant = grant?;
        let sequence = self.slots.first_mut()?.sequence + 1;
        Some(Head {
            sequence: sequence.min(SEQUENCE_MAX),
            ..Head::new(Opcode::Close, Flags::NONE, grant.session)
        })
    }

    // Time.

    fn tick(&mut self, now_ns: u64, emit: &mut impl FnMut(MachineOutput<'_>)) {
        if self.is_over(now_ns) {
            self.lose(now_ns, emit);
        }
        if self.grant.is_none() {
            self.stamp = self.stamp.wrapping_add(1);
            if let Some(head) = self.handshake.tick(now_ns, self.stamp, &mut self.random) {
                emit(MachineOutput::Send(head));
            }
        }
        for index in 0..self.slots.len() {
            let due = self
                .slots
                .get(index)
                .is_some_and(|slot| slot.due_ns() <= now_ns);
            if due {
                self.overdue(index, now_ns, emit);
            }
        }
        self.keep_alive(now_ns, emit);
        self.due_ns = self.next_due_ns(now_ns);
    }

    /// A slot whose time has come: it is given up, or sent again.
    fn overdue(&mut self, index: usize, now_ns: u64, emit: &mut impl FnMut(MachineOutput<'_>)) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if now_ns >= slot.give_up_ns {
            let error = match (slot.is_read, slot.last_word) {
                (true, _) => ClientError::TimedOut,
                (false, Some(reason)) => ClientError::Indeterminate(Reason::Refused(reason)),
                (false, None) => ClientError::Indeterminate(Reason::Silence),
            };
            return self.fail(index, error, emit);
        }
        let Some(grant) = self.grant else {
            return;
        };
        if slot.refusal.is_none() && !slot.by_stream {
            slot.silences = slot.silences.saturating_add(1);
            slot.last_word = None;
            let window = slot.window;
            // A full queue says so; one lost datagram is no reason to go slower, two are.
            let is_silent_again = slot.silences > 1;
            self.counts.resent += 1;
            let round_trip_ns = self.early.smoothed_ns().unwrap_or(0);
            let window = window.filter(|_| is_silent_again);
            let window = window.and_then(|window| self.windows.get_mut(usize::from(window)));
            if let Some(window) = window {
                window.silent(now_ns, round_trip_ns);
            }
        }
        let again = self.transmit(index, grant.session, now_ns, false);
        match self.slots.get(index).and_then(|slot| slot.ticket) {
            Some(_) => emit(MachineOutput::Transmit(again)),
            None => emit(MachineOutput::Send(ping(&again))),
        }
    }

    /// An idle session asks something before its lease ends.
    fn keep_alive(&mut self, now_ns: u64, emit: &mut impl FnMut(MachineOutput<'_>)) {
        let Some(grant) = self.grant.filter(|_| self.config.keep_alive) else {
            return;
        };
        let is_idle = self.slots.iter().all(|slot| slot.state == State::Free);
        if !is_idle
            || now_ns
                < self
                    .sent_ns
                    .saturating_add(lease_ns(&grant) / KEEP_ALIVE_PARTS)
        {
            return;
        }
        let ask = Ask {
            ticket: None,
            key_hash: 0,
            bytes: 0,
            is_queued: false,
            is_marked: false,
            is_read: true,
        };
        if let Some(sent) = self.assign(Instant { ns: now_ns }, &ask) {
            emit(MachineOutput::Send(ping(&sent)));
        }
    }

    fn next_due_ns(&self, now_ns: u64) -> u64 {
        let slots = self.slots.iter().map(Slot::due_ns).min();
        let windows = self
            .windows
            .iter()
            .filter_map(|window| window.opens_ns(now_ns));
        let session = match &self.grant {
            None => self.handshake.due_ns(),
            Some(grant) if self.config.keep_alive => self
                .sent_ns
                .saturating_add(lease_ns(grant) / KEEP_ALIVE_PARTS),
            Some(_) => u64::MAX,
        };
        let soonest = slots.unwrap_or(u64::MAX).min(session);
        windows.fold(soonest, u64::min).max(now_ns + 1)
    }

    fn soon(&mut self, at_ns: u64) {
        self.due_ns = self.due_ns.min(at_ns);
    }

    /// Whether an idle session is not worth using: its lease has probably ended, or it has no
    /// numbers left.
    fn is_over(&self, now_ns: u64) -> bool {
        let Some(grant) = &self.grant else {
            return false;
        };
        let lease_ns = lease_ns(grant);
        let is_late = now_ns > self.heard_ns.saturating_add(lease_ns - lease_ns / 4);
        (is_late || self.free == 0) && self.slots.iter().all(|slot| slot.state == State::Free)
    }

    // Slots.

    /// The session ended: writes are indeterminate, reads wait for the next.
    fn lose(&mut self, now_ns: u64, emit: &mut impl FnMut(MachineOutput<'_>)) {
        self.grant = None;
        self.handshake = Handshake::new(self.random.next());
        self.due_ns = now_ns;
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get_mut(index) else {
                continue;
            };
            match slot.state {
                State::Outstanding if slot.is_read && slot.ticket.is_some() => {
                    slot.state = State::Parked;
                }
                State::Outstanding => {
                    let error = ClientError::Indeterminate(Reason::SessionLost);
                    self.fail(index, error, emit);
                }
                State::Free | State::Parked => {}
            }
        }
        self.free = 0;
    }

    /// What was under way on the stream is soon sent again, over another one.
    pub(crate) fn stream_lost(&mut self, now_ns: u64) {
        let pause_ns = self.random.around(ns(self.config.resend_min));
        for slot in self.slots.iter_mut() {
            if slot.state == State::Outstanding && slot.by_stream {
                slot.resend_ns = now_ns + pause_ns;
            }
        }
        self.soon(now_ns + pause_ns);
    }

    /// From now on the slot's request goes over TCP; false if it already does.
    fn divert(&mut self, index: usize) -> bool {
        let slot = self.slots.get_mut(index).filter(|slot| !slot.by_stream);
        slot.is_some_and(|slot| {
            slot.by_stream = true;
            true
        })
    }

    /// Whether a stamp is one of the first or the last transmission of its kind.
    fn was_sent(&self, index: usize, stamp: u32) -> bool {
        let slot = self.slots.get(index);
        slot.is_some_and(|slot| slot.round_trip_ns(stamp, 0).is_some())
    }

    fn transmit(
        &mut self,
        index: usize,
        session: Session,
        now_ns: u64,
        first: bool,
    ) -> Transmission {
        self.stamp = self.stamp.wrapping_add(1);
        self.sent_ns = now_ns;
        let stamp = self.stamp;
        let (min_ns, max_ns) = (ns(self.config.resend_min), ns(self.config.resend_max));
        let is_marked = self.slots.get(index).is_some_and(|slot| slot.is_marked);
        let rtt = if is_marked { &self.early } else { &self.late };
        let timeout_ns = rtt.timeout_ns(min_ns, max_ns);
        let jitter_ns = self.random.around(timeout_ns / 8);
        let mut sent = Transmission {
            session,
            slot: index as u8,
            sequence: 0,
            stamp,
            by_stream: false,
        };
        if let Some(slot) = self.slots.get_mut(index) {
            let doubled_ns = timeout_ns << slot.silences.min(RESEND_DOUBLINGS);
            let wait_ns = doubled_ns.min(max_ns) + jitter_ns;
            match first {
                true => slot.begin(stamp, now_ns, wait_ns),
                false => slot.again(stamp, now_ns, wait_ns),
            }
            sent.sequence = slot.sequence;
            sent.by_stream = slot.by_stream;
            let due_ns = slot.due_ns();
            self.soon(due_ns);
        }
        sent
    }

    fn fail(&mut self, index: usize, error: ClientError, emit: &mut impl FnMut(MachineOutput<'_>)) {
        if let Some(ticket) = self.release(index) {
            self.counts.failed += 1;
            emit(MachineOutput::Tell(Event::Failed { ticket, error }));
        }
    }

    /// Frees a slot; the ticket of its request.
    fn release(&mut self, index: usize) -> Option<u64> {
        let slot = self.slots.get_mut(index)?;
        slot.state = State::Free;
        // A slot whose numbers are used up stays out of use until the next session.
        if self.grant.is_some() && slot.sequence < SEQUENCE_MAX {
            self.free |= 1 << index;
        }
        let window = slot.window.take();
        let ticket = slot.ticket.take();
        let window = window.and_then(|window| self.windows.get_mut(usize::from(window)));
        if let Some(window) = window {
            window.release();
        }
        ticket
    }

    /// The window of a queue; the last of one that is not known, or where there are no queues.
    fn window_at(&mut self, queue: u16) -> Option<&mut Window> {
        let unknown = self.windows.len().saturating_sub(1);
        self.windows.get_mut(usize::from(queue).min(unknown))
    }

    /// The window for a key: its queue's as far as that is known, else the last.
    fn window_of(&self, key_hash: u64) -> u16 {
        let unknown = self.windows.len().saturating_sub(1) as u16;
        self.routes
            .guess(key_hash)
            .map_or(unknown, |queue| queue.min(unknown))
    }
}

/// The header of a ping that renews the lease; any queue will do.
fn ping(sent: &Transmission) -> Head {
    Head {
        slot: sent.slot,
        sequence: sent.sequence,
        stamp: sent.stamp,
        ..Head::new(Opcode::Ping, Flags::NONE, sent.session)
    }
}

fn lease_ns(grant: &Grant) -> u64 {
    match grant.lease_ms {
        0 => u64::MAX,
        ms => u64::from(ms) * 1_000_000,
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// Queues whose windows are kept; those beyond share the one of unknown queues.
const QUEUES_MAX: usize = 1024;
/// Pauses and waits are doubled so often at most; their bounds are usually met before.
const PAUSE_DOUBLINGS: u8 = 16;
const RESEND_DOUBLINGS: u8 = 10;
/// An idle session is renewed four times a lease, since the server notes a use only when an eighth
/// of the lease has passed.
const KEEP_ALIVE_PARTS: u64 = 4;
/// A value of a megabyte is given another 100 ms.
const STREAM_NS_PER_BYTE: u64 = 100;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
