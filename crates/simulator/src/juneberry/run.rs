//! The event loop, and what clients, card and workers share.

use curtail_ordered_queue::Ingress;
use curtail_workload::{Generator, Kind, Phases, Poisson, Random, Stream, mix};

use crate::{
    event_queue::EventQueue,
    juneberry::{
        ClientLoad, Datapath, Juneberry, JuneberryOutcome, UNDER_WAY_MAX, WhenFull,
        audit::Audit,
        clients::Connection,
        ingress::{Server, queues},
        place,
        queue_memory::{self, Memory},
    },
    queueing::outstanding_requests::Slab,
};

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next request of an open load.
    Arrival,
    /// A packet is past the card.
    AtServer(Packet),
    /// A packet comes to the card.
    AtCard(Packet),
    /// An input thread has dealt with a packet.
    PastInput(Packet),
    /// A worker has finished what it does.
    WorkerDone(u16),
    /// An answer is with the client.
    AtClient(Answer),
    /// A connection may send again.
    Resume(u32),
    /// A client sends a request again, if it still waits with this attempt.
    Resend { id: u32, serial: u32, attempt: u8 },
}

/// An answer on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) id: u32,
    pub(super) serial: u32,
    pub(super) tells: Tells,
    /// Free places of the queue.
    pub(super) credits: u32,
}

/// What an answer tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tells {
    /// The write has its place.
    Accepted,
    /// It is executed; the value, of a read.
    Done,
    /// The queue is full.
    Full,
    /// No buffer was ready.
    NotReady,
    /// The packet is in a buffer: a card's acknowledgement of what a worker will answer.
    Received,
}

/// Runs one point.
pub(super) fn run(model: &Juneberry) -> JuneberryOutcome {
    let connections = connections(model);
    let memory = match model.system.reads() {
        Some(reads) => Memory::new(queues(model, reads), model.queue_slots, connections),
        None => Memory::new(1, 1, 1),
    };
    let early_max = model.early_max.min(model.queue_slots);
    let queues = memory.queues(early_max);
    let mut run = Run::new(model, memory.ingress(&queues), connections);
    run.begin();
    while let Some((now, event)) = run.events.next() {
        run.happen(now, event);
        let packets_max = 1_000 * (run.outcome.counts.requests + 1_000);
        if run.requests.used() >= UNDER_WAY_MAX || run.outcome.counts.packets > packets_max {
            run.outcome.saturated = true;
            break;
        }
    }
    run.end()
}

/// A request in a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packet {
    pub(super) id: u32,
    /// Tells it from the next request in the same place; 0: it is over.
    pub(super) serial: u32,
    pub(super) connection: u32,
    pub(super) slot: u8,
    pub(super) write: bool,
    pub(super) bytes: u32,
    pub(super) hash: u64,
    /// The client's number for it; 0: not sent yet.
    pub(super) sequence: u64,
}

/// A request under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Request {
    pub(super) packet: Packet,
    /// When it was meant to be sent.
    pub(super) at: u64,
    /// When it was sent last.
    pub(super) sent: u64,
    pub(super) execution_ns: u32,
    pub(super) value_bytes: u32,
    pub(super) measured: bool,
    pub(super) attempt: u8,
    /// Where it is in its queue.
    pub(super) pos: Option<u64>,
    /// What a read must see at least.
    pub(super) needs: u64,
    /// The server has it.
    pub(super) held: bool,
    pub(super) executed: bool,
    pub(super) answered: bool,
}

pub(super) struct Run<'a> {
    pub(super) model: &'a Juneberry,
    pub(super) ingress: Ingress<'a>,
    pub(super) events: EventQueue<Event>,
    pub(super) requests: Slab<Request>,
    pub(super) connections: Vec<Connection>,
    pub(super) server: Server<'a>,
    pub(super) random: Random,
    pub(super) audit: Audit,
    pub(super) outcome: JuneberryOutcome,
    /// When requests come, of an open load, and what they ask for.
    arrivals: Option<Poisson>,
    generator: Generator,
    choices: Random,
    /// Until arrivals end, from when they are measured.
    measured_ns: (u64, u64),
    done: u64,
}

fn connections(model: &Juneberry) -> usize {
    let machines = usize::from(model.machines);
    let threads = match (&model.load, model.system) {
        (ClientLoad::Script(_), _) => 1,
        (_, Datapath::Erpc) => machines * usize::from(model.threads),
        _ => machines,
    };
    threads * usize::from(model.workers)
}

impl<'a> Run<'a> {
    fn new(model: &'a Juneberry, ingress: Ingress<'a>, connections: usize) -> Self {
        let has_queues = model.system.reads().is_some();
        let connection = |index| {
            let session = has_queues.then(|| queue_memory::session(ingress.sessions, index));
            Connection::new(model, session.unwrap_or_default())
        };
        let arrivals = match model.load {
            ClientLoad::Open { mops } => {
                Some(Poisson::new(Phases::fixed(mops * 1e6), mix(model.seed)))
            }
            _ => None,
        };
        Self {
            model,
            ingress,
            events: EventQueue::default(),
            requests: Slab::default(),
            connections: (0..connections).map(connection).collect(),
            server: Server::new(model),
            random: Random::of_stream(model.seed, 5),
            audit: Audit::new(),
            outcome: JuneberryOutcome::default(),
            arrivals,
            generator: model.workload.generator(mix(model.seed), Stream::ONLY),
            choices: Random::of_stream(model.seed, 6),
            measured_ns: (0, u64::MAX),
            done: 0,
        }
    }

    fn begin(&mut self) {
        match self.model.load {
            ClientLoad::Open { .. } => self.plan_arrival(),
            ClientLoad::Closed { outstanding } => {
                let threads = u32::from(self.model.machines) * u32::from(self.model.threads);
                for number in 0..threads * u32::from(outstanding) {
                    self.arrive_closed(u64::from(number), number % u32::from(self.model.machines));
                }
            }
            ClientLoad::Script(_) => self.arrive_script(0),
        }
    }

    fn happen(&mut self, now: u64, event: Event) {
        match event {
            Event::Arrival => self.arrive(now),
            Event::AtCard(packet) => self.at_card(now, packet),
            Event::AtServer(packet) => self.at_server(now, packet),
            Event::PastInput(packet) => self.admit(now, packet),
            Event::WorkerDone(worker) => self.worker_done(now, worker),
            Event::AtClient(answer) => self.at_client(now, answer),
            Event::Resume(connection) => self.send_waiting(now, connection),
            Event::Resend {
                id,
                serial,
                attempt,
            } => self.resend(now, (id, serial), attempt),
        }
    }

    fn plan_arrival(&mut self) {
        if self.outcome.counts.requests < self.model.requests
            && let Some(at) = self.arrivals.as_mut().and_then(Iterator::next)
        {
            self.events.plan(at, Event::Arrival);
        }
    }

    fn arrive(&mut self, now: u64) {
        let drawn = self.generator.draw(now);
        let machine = self.choices.below(u64::from(self.model.machines)) as u32;
        let key = (mix(drawn.key), drawn.item.value_bytes);
        self.enter(now, drawn.kind != Kind::Get, key, machine);
        self.plan_arrival();
    }

    /// A closed loop's next request, to a random worker.
    pub(super) fn arrive_closed(&mut self, now: u64, machine: u32) {
        if self.outcome.counts.requests < self.model.requests {
            let drawn = self.generator.draw(now);
            let key = (self.choices.next(), drawn.item.value_bytes);
            self.enter(now, drawn.kind != Kind::Get, key, machine);
        }
    }

    pub(super) fn arrive_script(&mut self, now: u64) {
        if let ClientLoad::Script(script) = &self.model.load
            && let Some((write, key)) = script.get(self.outcome.counts.requests as usize)
        {
            self.enter(now, *write, (mix(*key), 0), 0);
        }
    }

    /// A request of a client on this machine.
    fn enter(&mut self, now: u64, write: bool, (hash, value_bytes): (u64, u32), machine: u32) {
        let model = self.model;
        let sixth = model.requests / 6;
        let number = self.outcome.counts.requests;
        if number == sixth {
            self.measured_ns.0 = now;
            self.done = 0;
        }
        if number + 1 == model.requests {
            self.measured_ns.1 = now;
        }
        let spread = model.prices.spread;
        let share = 1.0 - spread + 2.0 * spread * self.choices.unit();
        let mean = model.prices.execution_ns(write, value_bytes);
        let thread = self.choices.below(u64::from(model.threads)) as u32;
        let sender = match (&model.load, model.system) {
            (ClientLoad::Script(_), _) => 0,
            (_, Datapath::Erpc) => machine * u32::from(model.threads) + thread,
            _ => machine,
        };
        let whole = model.requests < 6;
        self.outcome.counts.requests += 1;
        self.outcome.counts.writes += u64::from(write);
        let packet = Packet {
            serial: (self.outcome.counts.requests as u32).max(1),
            connection: sender * u32::from(model.workers) + place(hash, model.workers) as u32,
            write,
            bytes: u32::from(write) * value_bytes
                + model.workload.key_bytes as u32
                + model.prices.header_bytes,
            hash,
            ..Packet::default()
        };
        let request = Request {
            packet,
            at: now,
            sent: now,
            execution_ns: (mean * share).round() as u32,
            value_bytes,
            measured: whole || (sixth..model.requests - sixth).contains(&number),
            ..Request::default()
        };
        self.give_to_connection(now, request);
    }

    /// Sends an answer; `ns` is when it leaves the server.
    pub(super) fn answer(&mut self, ns: u64, id: u32, tells: Tells) {
        let request = self.requests.get(id);
        let value = match (request.packet.write, tells) {
            (false, Tells::Done) => request.value_bytes,
            _ => 0,
        };
        let serial = request.packet.serial;
        let queue = self.ingress.queue(request.packet.hash);
        let answer = Answer {
            id,
            serial,
            tells,
            credits: queue.backlog().free as u32,
        };
        let late = self.durable_ns(tells) + (f64::from(value) * self.model.prices.byte_ns) as u64;
        if !self.is_lost() {
            let at = ns + one_way_ns(self.model) + late;
            self.events.plan(at, Event::AtClient(answer));
        }
    }

    /// What persistent buffers add to an answer.
    fn durable_ns(&self, tells: Tells) -> u64 {
        let costs = self.model.durable_costs();
        match tells {
            Tells::Accepted => costs.flush_ns as u64,
            Tells::Done => (costs.fetch_ns - costs.fetch_worker_ns).max(0.0) as u64,
            _ => 0,
        }
    }

    /// Whether the next packet is.
    #[inline]
    pub(super) fn is_lost(&mut self) -> bool {
        self.model.loss > 0.0 && self.random.unit() < self.model.loss
    }

    /// A write is executed, or a read answered, at the server.
    pub(super) fn note_done(&mut self, now: u64) {
        if now <= self.measured_ns.1 {
            self.done += 1;
        }
    }

    /// Whether this place still holds this request.
    #[inline]
    pub(super) fn is_under_way(&self, id: u32, serial: u32) -> bool {
        self.requests.get(id).packet.serial == serial
    }

    /// Frees a request that is over for client and server.
    pub(super) fn free_if_over(&mut self, id: u32) {
        let request = self.requests.get_mut(id);
        if request.answered && (request.executed || !request.packet.write) {
            request.packet.serial = 0;
            self.requests.remove(id);
        }
    }

    fn end(mut self) -> JuneberryOutcome {
        if !self.outcome.saturated {
            for request in self
                .requests
                .iter()
                .filter(|request| request.packet.serial > 0)
            {
                let wrong = &mut self.audit.wrong;
                wrong.never_answered += u64::from(!request.answered);
                wrong.never_executed += u64::from(request.packet.write && !request.executed);
            }
        }
        let (from, to) = self.measured_ns;
        let microseconds = to.saturating_sub(from).max(1) as f64 / 1e3;
        self.outcome.wrong = self.audit.wrong;
        self.outcome.done_mops = self.done as f64 / microseconds;
        let sixth = self.model.requests / 6;
        self.outcome.offered_mops = (self.model.requests - sixth) as f64 / microseconds;
        self.outcome
    }
}

/// From a client's decision to the server's card, or back. A thread of eRPC has connections of its
/// own and delegates nothing.
#[inline]
pub(super) fn one_way_ns(model: &Juneberry) -> u64 {
    let prices = &model.prices;
    let delegation_ns = match model.system {
        Datapath::Erpc => 0.0,
        _ => prices.delegation_ns,
    };
    ((prices.wire_ns + prices.client_ns + delegation_ns) / 2.0).round() as u64
}

/// Whether connections deliver in order and go back.
pub(super) fn goes_back(model: &Juneberry) -> bool {
    model.when_full == WhenFull::NotReady || model.system == Datapath::Erpc && model.loss > 0.0
}
