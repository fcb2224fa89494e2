//! A server and its clients in one thread: one small thing happens at each instant, chosen by a
//! seed. The network loses, doubles and reorders, three receiving processors are each in the middle
//! of an admission, the process dies and is followed by another, and a store remembers positions.
//!
//! Histories go to the linearizability checker, counters are counted exactly, and every planted
//! fault must be found by one of the two.

#![allow(
    clippy::unwrap_used,
    reason = "a queue that makes no sense fails the test"
)]

use alloc::{collections::BTreeMap, vec::Vec};

use curtail_history::{
    Action, Entry as Recorded, History, Outcome, Verdict as Judged, check_linearizable,
};
use curtail_types::Instant;

use super::*;

/// What is wrong with the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    Nothing,
    /// The acknowledgement leaves before there is a place (against Rule 1).
    AckBeforeReserve,
    /// Nothing tells reads that a write waits.
    SkipStamp,
    /// The executor goes past a place that is not published yet.
    SkipHole,
    /// A slot counts as published whatever lap its entry is of: positions modulo the ring.
    ReusePosition,
    /// The session's word says committed before the entry is published.
    CommitBeforePublish,
    /// Every copy of a request gets a place.
    NoDedup,
    /// What may have been executed before a crash is executed again.
    RedoAfterCrash,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ask {
    Read,
    Set {
        nilext: bool,
    },
    Increment,
    /// A write that does not go through the queue: TCP, or large.
    Direct,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    client: usize,
    sequence: u64,
    key: u8,
    ask: Ask,
    value: u64,
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Ask(Request),
    Answer(usize, u64, Outcome),
}

/// A processor that is in the middle of an admission.
struct Processor {
    request: Request,
    ticket: Option<ClaimTicket>,
    reservation: Option<QueueReservation>,
    steps: u32,
}

struct Waiting {
    request: Request,
    stamp: u64,
}

struct World<'a> {
    ingress: Ingress<'a>,
    names: Vec<SessionName>,
    fault: Fault,
    word: u64,
    now: u64,
    network: Vec<Message>,
    processors: Vec<Processor>,
    waiting: Vec<Waiting>,
    /// Key to value and position + 1.
    store: BTreeMap<u8, (u64, u64)>,
    asking: Vec<Option<(Request, u64)>>,
    sequences: Vec<u64>,
    history: History,
    increments: u64,
    values: u64,
    asked: usize,
    /// How seldom the executors run: backlogs are where the faults show.
    slowness: usize,
}

const COUNTER: u8 = 0x1f;
const KEYS: [u8; 3] = [0x10, 0x20, 0x90];
const CLIENTS: usize = 4;

impl<'a> World<'a> {
    fn new(ingress: Ingress<'a>, fault: Fault, seed: u64) -> Self {
        let limits = SessionLimits {
            lease_ns: 1 << 60,
            ..LIMITS
        };
        let names = (0..CLIENTS as u64).map(|number| {
            let token = |index, _| u64::from(index) + 5;
            ingress
                .sessions
                .grant(peer(number), 1, limits, number, token)
                .unwrap()
        });
        Self {
            names: names.collect(),
            ingress,
            fault,
            word: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now: 0,
            network: Vec::new(),
            processors: Vec::new(),
            waiting: Vec::new(),
            store: BTreeMap::new(),
            asking: vec![None; CLIENTS],
            sequences: vec![0; CLIENTS],
            history: History::new(),
            increments: 0,
            values: 0,
            asked: 0,
            slowness: 1 + seed as usize % 8,
        }
    }

    /// Until `requests` are answered and executed; `None` if that never comes.
    fn run(mut self, requests: usize) -> Option<Self> {
        loop {
            self.now += 1;
            let is_over = self.asked == requests && self.asking.iter().all(Option::is_none);
            let backlog = |queue: &OrderedQueue<'_>| queue.backlog().head < queue.backlog().tail;
            if is_over && !self.ingress.queues.iter().any(backlog) && self.processors.is_empty() {
                return Some(self);
            }
            if self.now > 40_000 {
                return None;
            }
            match self.random(40) {
                0..8 => self.ask(requests),
                8..16 => self.deliver(),
                16..32 => self.admit(),
                32..36 if self.random(self.slowness) == 0 => self.execute(false),
                36..39 => self.answer_waiting(),
                _ if self.random(15) == 0 => self.crash(),
                _ => {}
            }
        }
    }

    fn random(&mut self, bound: usize) -> usize {
        self.word ^= self.word << 13;
        self.word ^= self.word >> 7;
        self.word ^= self.word << 17;
        (self.word >> 33) as usize % bound
    }

    /// A client asks, or asks again.
    fn ask(&mut self, requests: usize) {
        let client = self.random(CLIENTS);
        if let Some((request, _)) = self.asking[client] {
            return self.network.push(Message::Ask(request));
        }
        if self.asked == requests {
            return;
        }
        self.asked += 1;
        self.values += 1;
        self.sequences[client] += 1 + self.random(2) as u64;
        let ask = match self.random(10) {
            0..4 => Ask::Read,
            4..7 => Ask::Set { nilext: true },
            7 => Ask::Set { nilext: false },
            8 => Ask::Increment,
            _ => Ask::Direct,
        };
        let request = Request {
            client,
            sequence: self.sequences[client],
            key: match ask {
                Ask::Increment => COUNTER,
                _ => KEYS[self.random(KEYS.len())],
            },
            ask,
            value: self.values,
        };
        self.asking[client] = Some((request, self.now));
        self.network.push(Message::Ask(request));
    }

    /// A message arrives, is lost, or arrives and stays on its way.
    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let chosen = self.random(self.network.len());
        let message = self.network[chosen];
        if self.random(5) > 0 {
            self.network.swap_remove(chosen);
        }
        if self.random(8) == 0 {
            return;
        }
        match message {
            Message::Answer(client, sequence, outcome) => self.hear(client, sequence, outcome),
            Message::Ask(request) => self.arrive(request),
        }
    }

    fn hear(&mut self, client: usize, sequence: u64, outcome: Outcome) {
        let Some((request, invoked)) = self.asking[client] else {
            return;
        };
        if request.sequence != sequence {
            return;
        }
        self.asking[client] = None;
        if request.ask == Ask::Increment {
            self.increments += 1;
            return;
        }
        self.history.push(Recorded {
            client: client as u32,
            key: u64::from(request.key),
            invoked: Instant { ns: invoked },
            action: match request.ask {
                Ask::Read => Action::Read,
                _ => Action::Write(request.value),
            },
            returned: Some((Instant { ns: self.now }, outcome)),
        });
    }

    fn arrive(&mut self, request: Request) {
        match request.ask {
            Ask::Read | Ask::Direct => {
                // A direct write of this world is sent again by nobody twice: it has no dedup.
                let again = request.ask == Ask::Direct && self.is_known(&request);
                if !again {
                    let stamp = self.ingress.stamps.stamp(hash(request.key));
                    self.waiting.push(Waiting { request, stamp });
                }
            }
            _ if self.processors.len() < 3 => self.processors.push(Processor {
                request,
                ticket: None,
                reservation: None,
                steps: 0,
            }),
            _ => {}
        }
    }

    /// Whether a direct write was begun before; it claims its sequence number as any write does.
    fn is_known(&mut self, request: &Request) -> bool {
        let name = self.names[request.client];
        let peer = peer(request.client as u64);
        match self.ingress.sessions.claim(name, peer, 0, request.sequence) {
            Claim::Granted(ticket) => {
                self.ingress.sessions.commit_executed(ticket);
                false
            }
            _ => true,
        }
    }

    /// One processor does one step.
    fn admit(&mut self) {
        if self.processors.is_empty() {
            return;
        }
        let chosen = self.random(self.processors.len());
        let mut processor = self.processors.swap_remove(chosen);
        if self.step(&mut processor) {
            self.processors.push(processor);
        }
    }

    /// False when the processor is done with its request.
    fn step(&mut self, processor: &mut Processor) -> bool {
        let request = processor.request;
        let payload = payload(&request);
        let arrival = arrival(&request, self.names[request.client], &payload);
        let queue = *self.ingress.queue(arrival.key_hash);
        let sessions = self.ingress.sessions;
        processor.steps += 1;
        let Some(reservation) = &processor.reservation else {
            if processor.steps == 1 {
                return self.claim(processor, &arrival);
            }
            processor.reservation = queue.reserve(payload.len(), arrival.nilext);
            if processor.reservation.is_none() {
                if let Some(ticket) = processor.ticket {
                    sessions.reopen(ticket);
                }
                return false;
            }
            return true;
        };
        match processor.steps {
            3 => assert!(queue.fill(reservation, &arrival)),
            4 => queue.publish(reservation),
            5 if self.fault == Fault::SkipStamp => {}
            5 => self.ingress.stamps.raise(arrival.key_hash, reservation.pos),
            6 => {
                if let Some(ticket) = processor.ticket {
                    sessions.commit(ticket, reservation.pos, reservation.early);
                }
            }
            _ => {
                if reservation.early {
                    self.acknowledge(&request);
                }
                return false;
            }
        }
        true
    }

    fn claim(&mut self, processor: &mut Processor, arrival: &Arrival<'_>) -> bool {
        let request = processor.request;
        let claim = self.ingress.sessions.claim(
            arrival.session,
            arrival.peer,
            arrival.slot,
            arrival.sequence,
        );
        match claim {
            Claim::Granted(ticket) => {
                processor.ticket = Some(ticket);
                if self.fault == Fault::AckBeforeReserve && arrival.nilext {
                    self.acknowledge(&request);
                }
                if self.fault == Fault::CommitBeforePublish {
                    self.ingress.sessions.commit(ticket, 0, true);
                }
                true
            }
            _ if self.fault == Fault::NoDedup => true,
            Claim::Repeated { accepted: true, .. } if arrival.nilext => {
                self.acknowledge(&request);
                false
            }
            // The executor's to answer: if it has, it is answered from what it remembers.
            Claim::Repeated { pos, .. } => {
                let queue = self.ingress.queue(arrival.key_hash);
                if pos.is_some_and(|pos| queue.has_reached(pos + 1)) {
                    self.acknowledge(&request);
                }
                false
            }
            Claim::Stale => false,
            Claim::Unknown => panic!("the session is the sender's"),
        }
    }

    fn acknowledge(&mut self, request: &Request) {
        let answer = Message::Answer(request.client, request.sequence, Outcome::Done);
        self.network.push(answer);
    }

    /// The executor of a queue takes a turn, or, when the process is about to die, all of it but
    /// moving head.
    fn execute(&mut self, dies: bool) {
        let number = self.random(2);
        let bound = 1 + self.random(3);
        let queue = self.ingress.queues[number];
        let Some(mut lease) = queue.take_lease(Worker(1)) else {
            return;
        };
        if !matches!(lease.peek(0), Peek::Entry(_)) && queue.backlog().tail > lease.head() {
            self.past_a_hole(&mut lease);
            return;
        }
        if dies {
            if let Peek::Entry(entry) = lease.peek(0) {
                self.apply(&entry);
            }
            return core::mem::forget(lease);
        }
        let sessions = self.ingress.sessions;
        Turn::new().run(&mut lease, bound, Some(sessions), |step| match step {
            TurnStep::Apply(entry) => self.apply(&entry),
            TurnStep::Answer(entry) => {
                let client = entry.session_slot_client();
                let answer = Message::Answer(client, entry.sequence(), Outcome::Done);
                self.network.push(answer);
            }
        });
    }

    fn past_a_hole(&mut self, lease: &mut QueueLease<'a>) {
        match self.fault {
            Fault::SkipHole => lease.advance(1),
            Fault::ReusePosition => {
                if let Some(entry) = lease.queue().entry_of_any_lap(lease.head()) {
                    self.apply(&entry);
                    lease.advance(1);
                }
            }
            _ => {}
        }
    }

    fn apply(&mut self, entry: &QueueEntry<'_>) {
        let mut bytes = [0; layout::PAYLOAD_BYTES_MAX];
        let Some(9) = entry.copy_payload(&mut bytes) else {
            return;
        };
        let value = u64::from_le_bytes(bytes[1..9].try_into().unwrap());
        let item = self.store.entry(bytes[0]).or_default();
        if item.1 > entry.pos() && self.fault != Fault::RedoAfterCrash {
            return;
        }
        item.0 = if bytes[0] == COUNTER {
            item.0 + 1
        } else {
            value
        };
        item.1 = entry.pos() + 1;
    }

    /// A read, or a write past the queue, whose time may have come.
    fn answer_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let chosen = self.random(self.waiting.len());
        let Waiting { request, stamp } = self.waiting[chosen];
        let queue = self.ingress.queue(hash(request.key));
        let mut out = [0; layout::PAYLOAD_BYTES_MAX];
        let key = [request.key];
        let forward = match request.ask {
            Ask::Direct if queue.has_reached(stamp) => Forward::Executed,
            Ask::Direct => Forward::Wait,
            _ => queue.forward(stamp, hash(request.key), &key, &mut out),
        };
        let outcome = match forward {
            Forward::Wait => return,
            Forward::Payload { .. } => {
                Outcome::Value(u64::from_le_bytes(out[1..9].try_into().unwrap()))
            }
            Forward::Executed if request.ask == Ask::Direct => {
                self.store.entry(request.key).or_default().0 = request.value;
                Outcome::Done
            }
            Forward::Executed => match self.store.get(&request.key) {
                Some((value, _)) => Outcome::Value(*value),
                None => Outcome::Missing,
            },
        };
        self.waiting.swap_remove(chosen);
        if request.ask == Ask::Direct {
            // Its connection does not lose answers.
            self.hear(request.client, request.sequence, outcome);
        } else {
            let answer = Message::Answer(request.client, request.sequence, outcome);
            self.network.push(answer);
        }
    }

    /// The process dies anywhere, and the next one finds store, queues and sessions.
    fn crash(&mut self) {
        self.execute(true);
        self.processors.clear();
        // Reads are asked again; direct writes have a connection that reports the failure, which
        // this world leaves out: they survive.
        self.waiting
            .retain(|waiting| waiting.request.ask == Ask::Direct);
        let Ingress {
            queues,
            stamps,
            sessions,
            ..
        } = self.ingress;
        recover(queues, stamps, sessions, Worker(2));
    }
}

impl QueueEntry<'_> {
    /// The client of this world, which has its number in its address.
    fn session_slot_client(&self) -> usize {
        self.peer().address[1] as usize
    }
}

fn hash(key: u8) -> u64 {
    u64::from(key) << 56
}

fn payload(request: &Request) -> [u8; 9] {
    let mut payload = [request.key; 9];
    payload[1..].copy_from_slice(&request.value.to_le_bytes());
    payload
}

fn arrival<'p>(request: &Request, session: SessionName, payload: &'p [u8]) -> Arrival<'p> {
    Arrival {
        session,
        peer: peer(request.client as u64),
        slot: 0,
        sequence: request.sequence,
        nilext: request.ask != Ask::Set { nilext: false },
        kind: match request.ask {
            Ask::Increment => EntryKind::Write,
            _ => EntryKind::Set,
        },
        ..set(session, request.sequence, request.key, payload)
    }
}

/// Why a run is wrong, if it is.
fn wrong(fault: Fault, seed: u64) -> Option<&'static str> {
    let memory = Memory::new();
    let queues = memory.queues();
    queues[1].set_backlog_max(2);
    let world = World::new(memory.ingress(&queues), fault, seed);
    let Some(world) = world.run(60) else {
        return Some("never over");
    };
    let counted = world.store.get(&COUNTER).map_or(0, |item| item.0);
    if counted != world.increments {
        return Some("counted wrongly");
    }
    match check_linearizable(&world.history, 1_000_000) {
        Judged::Consistent => None,
        Judged::Violation(_) => Some("not linearizable"),
        Judged::TooHard { .. } => panic!("seed {seed} is too hard"),
    }
}

const RUNS: u64 = 300;

#[test]
fn every_run_is_linearizable_and_exactly_once() {
    for seed in 0..RUNS {
        assert_eq!(wrong(Fault::Nothing, seed), None, "seed {seed}");
    }
}

/// Goal: each planted fault is found, and for what it does.
#[test]
fn planted_faults_are_found() {
    for (fault, reason) in [
        (Fault::AckBeforeReserve, "not linearizable"),
        (Fault::SkipStamp, "not linearizable"),
        (Fault::SkipHole, "not linearizable"),
        (Fault::ReusePosition, "not linearizable"),
        (Fault::CommitBeforePublish, "not linearizable"),
        (Fault::NoDedup, "counted wrongly"),
        (Fault::RedoAfterCrash, "counted wrongly"),
    ] {
        let reasons = (0..RUNS).filter_map(|seed| wrong(fault, seed));
        let found = reasons.filter(|found| *found == reason).count();
        assert!(found > 5, "{fault:?}: only {found}");
    }
}
