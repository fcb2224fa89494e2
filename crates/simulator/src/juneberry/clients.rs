//! Clients: connections with windows, what they do when they are refused, and when they send again.
//!
//! A connection belongs to one machine and one queue and is shared by the machine's threads
//! (JB-15); eRPC has one for each thread. With [`WhenFull::Credits`] its window grows by one for
//! each window of early answers, halves when the queue was full, loses an eighth when a write was
//! answered late (each once in a round trip), and is never above the places that the server said
//! were free. That late answers narrow it makes the shares of many connections equal: where they
//! did not, those that had been refused first waited four times as long as others. eRPC's window
//! is 8; while answers take more than 50 us its rate falls, otherwise nothing holds it back.

use std::collections::VecDeque;

use curtail_ordered_queue::{SessionName, layout};

use crate::juneberry::{
    ClientLoad, Datapath, Juneberry, WhenFull,
    run::{Answer, Event, Packet, Request, Run, Tells, goes_back, one_way_ns},
};

/// One connection, at the client.
#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) session: SessionName,
    waiting: VecDeque<u32>,
    outstanding: u32,
    window: f64,
    credits: u32,
    narrowed_ns: u64,
    free_slots: Vec<u8>,
    sequence: u64,
    /// Sent and not known to be received, in order; where connections go back.
    flight: VecDeque<u32>,
    /// Nothing is sent before.
    still_until: u64,
    /// The time between two packets; 0 where nothing holds the rate back.
    gap_ns: f64,
    /// At the server: the packet that everything waits for.
    pub(super) broken: Option<u32>,
}

impl Connection {
    pub(super) fn new(model: &Juneberry, session: SessionName) -> Self {
        let window = match (model.system, model.when_full) {
            (Datapath::Erpc, _) => ERPC_WINDOW,
            (Datapath::Card(_) | Datapath::IoAck(_), WhenFull::Credits) => WINDOW_FIRST,
            _ => WINDOW_MAX,
        };
        Self {
            session,
            window,
            credits: u32::MAX,
            free_slots: (0..layout::SESSION_SLOTS as u8).rev().collect(),
            ..Self::default()
        }
    }

    fn may_send(&self) -> bool {
        let credits = f64::from(self.credits.max(1));
        f64::from(self.outstanding) + 1.0 <= self.window.min(credits)
    }
}

impl Run<'_> {
    pub(super) fn give_to_connection(&mut self, now: u64, request: Request) {
        let connection = request.connection;
        let waiting = &mut self.connections[connection as usize].waiting;
        if waiting.len() >= self.model.patience {
            self.outcome.counts.given_up += 1;
            return;
        }
        let id = self.requests.insert(request);
        waiting.push_back(id);
        self.send_waiting(now, connection);
    }

    /// Sends what the connection's window, slots and rate let it.
    pub(super) fn send_waiting(&mut self, now: u64, index: u32) {
        loop {
            let connection = &mut self.connections[index as usize];
            let Some(id) = connection.waiting.front().copied() else {
                return;
            };
            let is_new = self.requests.get(id).sequence == 0;
            let lacks_slot = is_new && connection.free_slots.is_empty();
            if now < connection.still_until || lacks_slot || !connection.may_send() {
                return;
            }
            connection.waiting.pop_front();
            connection.outstanding += 1;
            if goes_back(self.model) {
                connection.flight.push_back(id);
            }
            if connection.gap_ns > 0.0 {
                connection.still_until = now + connection.gap_ns as u64;
                self.events
                    .plan(connection.still_until, Event::Resume(index));
            }
            self.send(now, id);
        }
    }

    /// Puts a request on the wire.
    fn send(&mut self, now: u64, id: u32) {
        let needs = self.audit.needs(self.requests.get(id).hash);
        let request = self.requests.get_mut(id);
        request.sent = now;
        let connection = &mut self.connections[request.connection as usize];
        if request.sequence == 0 {
            connection.sequence += 1;
            request.sequence = connection.sequence;
            request.slot = connection.free_slots.pop().unwrap_or_default();
            request.needs = needs;
        }
        let packet = Packet {
            id,
            serial: request.serial,
            connection: request.connection,
            slot: request.slot,
            write: request.write,
            bytes: u32::from(request.write) * request.value_bytes
                + self.model.workload.key_bytes as u32
                + self.model.prices.header_bytes,
            hash: request.hash,
            sequence: request.sequence,
        };
        let prices = &self.model.prices;
        let at = now + one_way_ns(self.model) + (f64::from(packet.bytes) * prices.byte_ns) as u64;
        self.outcome.counts.packets += 1;
        if self.model.loss > 0.0 {
            let wait = prices.resend_ns << request.attempt.min(4);
            self.plan_resend(now + wait, id);
        }
        if !self.is_lost() {
            self.events.plan(at, Event::AtCard(packet));
        } else if goes_back(self.model) && !self.requests.get(id).held {
            // What comes after it is out of order, until it comes.
            let connection = &mut self.connections[packet.connection as usize];
            connection.broken.get_or_insert(packet.serial);
        }
    }

    pub(super) fn at_client(&mut self, now: u64, answer: Answer) {
        if !self.is_under_way(answer.id, answer.serial) || self.requests.get(answer.id).answered {
            return;
        }
        match answer.tells {
            Tells::Accepted | Tells::Done => self.complete(now, answer),
            Tells::Full => self.refused(now, answer),
            Tells::NotReady => self.go_back(now, answer.id, self.model.prices.not_ready_ns),
            Tells::Received => self.land(answer.id),
        }
    }

    fn complete(&mut self, now: u64, answer: Answer) {
        let request = self.requests.get_mut(answer.id);
        request.answered = true;
        let Request {
            at,
            hash,
            write,
            measured,
            connection,
            slot,
            pos,
            ..
        } = *request;
        let ns = now - at;
        if measured {
            self.outcome.commit.record(ns);
            match write {
                true => self.outcome.ack.record(ns),
                false => self.outcome.read.record(ns),
            }
        }
        if let Some(pos) = pos.filter(|_| write) {
            self.audit.accepted(hash, pos);
        }
        self.outcome.counts.early += u64::from(answer.tells == Tells::Accepted);
        self.land(answer.id);
        self.adapt(now, &answer, write, connection);
        let connection_state = &mut self.connections[connection as usize];
        connection_state.outstanding -= 1;
        connection_state.free_slots.push(slot);
        self.free_if_over(answer.id);
        self.send_waiting(now, connection);
        match &self.model.load {
            ClientLoad::Open { .. } => {}
            ClientLoad::Closed { .. } => {
                let sender = connection / u32::from(self.model.workers);
                let machine = match self.model.system {
                    Datapath::Erpc => sender / u32::from(self.model.threads),
                    _ => sender,
                };
                self.arrive_closed(now, machine);
            }
            ClientLoad::Script(_) => {
                self.outcome.script_ns.push(ns);
                self.arrive_script(now);
            }
        }
    }

    /// Widens the window, or eRPC's rate.
    fn adapt(&mut self, now: u64, answer: &Answer, write: bool, index: u32) {
        let model = self.model;
        let sent_ns = now - self.requests.get(answer.id).sent;
        let connection = &mut self.connections[index as usize];
        if model.system == Datapath::Erpc {
            connection.gap_ns = erpc_gap_ns(connection.gap_ns, sent_ns as f64);
            return;
        }
        if model.system.reads().is_none() || model.when_full == WhenFull::NotReady {
            return;
        }
        connection.credits = answer.credits;
        let window = connection.window;
        let is_late = write && answer.tells == Tells::Done;
        if !is_late {
            connection.window = (window + 1.0 / window).min(WINDOW_MAX);
        } else if now >= connection.narrowed_ns + sent_ns {
            connection.narrowed_ns = now;
            connection.window = (window * LATE).max(1.0);
        }
    }

    /// The queue was full: a narrower window, and this request again after a random pause.
    fn refused(&mut self, now: u64, answer: Answer) {
        let round_ns = self.model.prices.wire_ns as u64 + 1;
        let request = self.requests.get_mut(answer.id);
        request.attempt = request.attempt.saturating_add(1);
        let attempt = request.attempt;
        let connection = &mut self.connections[request.connection as usize];
        connection.credits = answer.credits;
        if now >= connection.narrowed_ns + round_ns {
            connection.narrowed_ns = now;
            connection.window = (connection.window / 2.0).max(1.0);
        }
        let longest = round_ns << attempt.min(PAUSE_DOUBLINGS_MAX);
        let pause = self.random.below(longest) + 1;
        self.plan_resend(now + pause, answer.id);
    }

    fn plan_resend(&mut self, at: u64, id: u32) {
        let Request {
            serial, attempt, ..
        } = *self.requests.get(id);
        let again = Event::Resend {
            id,
            serial,
            attempt,
        };
        self.events.plan(at, again);
    }

    /// A request's time has come, if it still waits with this attempt.
    pub(super) fn resend(&mut self, now: u64, (id, serial): (u32, u32), attempt: u8) {
        if !self.is_under_way(id, serial) {
            return;
        }
        let request = self.requests.get_mut(id);
        if request.answered || request.attempt != attempt {
            return;
        }
        request.attempt = attempt.saturating_add(1);
        match goes_back(self.model) {
            true => self.go_back(now, id, 0),
            false => self.send(now, id),
        }
    }

    /// Everything from this request on is sent again, after a while.
    fn go_back(&mut self, now: u64, id: u32, wait_ns: u64) {
        let index = self.requests.get(id).connection;
        let connection = &mut self.connections[index as usize];
        let Some(from) = connection.flight.iter().position(|other| *other == id) else {
            return;
        };
        let again = connection.flight.split_off(from);
        connection.outstanding -= again.len() as u32;
        for id in again.into_iter().rev() {
            let request = self.requests.get_mut(id);
            request.attempt = request.attempt.saturating_add(1);
            connection.waiting.push_front(id);
        }
        connection.still_until = now + wait_ns;
        self.events
            .plan(connection.still_until, Event::Resume(index));
    }

    /// A request is known to be received.
    fn land(&mut self, id: u32) {
        let index = self.requests.get(id).connection as usize;
        let flight = &mut self.connections[index].flight;
        if let Some(at) = flight.iter().position(|other| *other == id) {
            flight.remove(at);
        }
    }
}

/// As Timely (Mittal and others, SIGCOMM 2015), as far as eRPC (NSDI 2019, section 5.2) uses it:
/// below the limit nothing, or back to it by steps; above it in proportion.
fn erpc_gap_ns(gap_ns: f64, round_ns: f64) -> f64 {
    if round_ns <= ERPC_ROUND_NS_MAX {
        let faster = gap_ns * 0.9;
        return if faster < ERPC_GAP_NS_MIN {
            0.0
        } else {
            faster
        };
    }
    let slower = 1.0 - 0.8 * (1.0 - ERPC_ROUND_NS_MAX / round_ns);
    (gap_ns.max(ERPC_GAP_NS_MIN) / slower).min(ERPC_GAP_NS_MAX)
}

const WINDOW_FIRST: f64 = 16.0;
/// What a late answer leaves of a window.
const LATE: f64 = 7.0 / 8.0;
const WINDOW_MAX: f64 = layout::SESSION_SLOTS as f64;
/// eRPC's requests of a session.
const ERPC_WINDOW: f64 = 8.0;
const ERPC_ROUND_NS_MAX: f64 = 50_000.0;
const ERPC_GAP_NS_MIN: f64 = 100.0;
/// Timely's lowest rate, 15 Mb/s, in packets of 100 bytes.
const ERPC_GAP_NS_MAX: f64 = 53_000.0;
/// A pause is up to so many doublings of a round trip.
const PAUSE_DOUBLINGS_MAX: u8 = 6;
