//! The event loop, and what clients, card and workers share.

use curtail_ordered_queue::Ingress;
use curtail_workload::{Generator, Kind, Phases, Poisson, Random, Stream, mix};

use crate::{
    histogram::Histogram,
    juneberry::{
        ClientLoad, Counts, Datapath, Juneberry, JuneberryOutcome, UNDER_WAY_MAX, WhenFull, Wrong,
        audit::Audit,
        clients::Connection,
        events::{Answer, Event, Events, Tells},
        memory::{self, Memory},
        place,
        server::{Server, queues},
    },
};

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
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) id: u32,
    pub(super) serial: u32,
    pub(super) connection: u32,
    pub(super) slot: u8,
    pub(super) write: bool,
    pub(super) bytes: u32,
    pub(super) hash: u64,
    pub(super) sequence: u64,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Tells it from the next request in the same place.
    pub(super) serial: u32,
    /// When it was meant to be sent.
    pub(super) at: u64,
    /// When it was sent last.
    pub(super) sent: u64,
    pub(super) hash: u64,
    pub(super) execution_ns: u32,
    pub(super) value_bytes: u32,
    pub(super) connection: u32,
    pub(super) write: bool,
    pub(super) measured: bool,
    /// The client's number for it; 0: not sent yet.
    pub(super) sequence: u64,
    pub(super) slot: u8,
    pub(super) attempt: u8,
    /// Where it is in its queue.
    pub(super) pos: Option<u64>,
    /// What a read must see at least.
    pub(super) needs: u64,
    /// The server has it.
    pub(super) held: bool,
    pub(super) executed: bool,
    pub(super) answered: bool,
    alive: bool,
}

pub(super) struct Run<'a> {
    pub(super) model: &'a Juneberry,
    pub(super) ingress: Ingress<'a>,
    pub(super) events: Events,
    pub(super) requests: Requests,
    pub(super) connections: Vec<Connection>,
    pub(super) server: Server<'a>,
    pub(super) random: Random,
    pub(super) audit: Audit,
    pub(super) outcome: JuneberryOutcome,
    /// Until arrivals end, from when they are measured.
    pub(super) measured_ns: (u64, u64),
    pub(super) done: u64,
    source: Source,
    answer_ns: u64,
}

/// All requests under way.
#[derive(Debug, Default)]
pub(super) struct Requests {
    all: Vec<Request>,
    free: Vec<u32>,
    serials: u32,
}

/// Where requests come from.
struct Source {
    times: Option<Poisson>,
    generator: Generator,
    random: Random,
    drawn: u64,
    script: std::vec::IntoIter<(bool, u64)>,
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
            let session = has_queues.then(|| memory::session(ingress.sessions, index));
            Connection::new(model, session.unwrap_or_default())
        };
        let times = match model.load {
            ClientLoad::Open { mops } => {
                Some(Poisson::new(Phases::fixed(mops * 1e6), mix(model.seed)))
            }
            _ => None,
        };
        let script = match &model.load {
            ClientLoad::Script(script) => script.clone(),
            _ => Vec::new(),
        };
        Self {
            model,
            ingress,
            events: Events::default(),
            requests: Requests::default(),
            connections: (0..connections).map(connection).collect(),
            server: Server::new(model),
            random: Random::of_stream(model.seed, 5),
            audit: Audit::new(),
            outcome: JuneberryOutcome::empty(),
            measured_ns: (0, u64::MAX),
            done: 0,
            source: Source {
                times,
                generator: model.workload.generator(mix(model.seed), Stream::ONLY),
                random: Random::of_stream(model.seed, 6),
                drawn: 0,
                script: script.into_iter(),
            },
            answer_ns: one_way_ns(model),
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
            Event::Resume(connection) => self.resume(now, connection),
            Event::Resend {
                id,
                serial,
                attempt,
            } => self.resend(now, (id, serial), attempt),
        }
    }

    fn plan_arrival(&mut self) {
        if self.source.drawn < self.model.requests
            && let Some(at) = self.source.times.as_mut().and_then(Iterator::next)
        {
            self.events.plan(at, Event::Arrival);
        }
    }

    fn arrive(&mut self, now: u64) {
        let drawn = self.source.generator.draw(now);
        let write = drawn.kind != Kind::Get;
        let machine = self.source.random.below(u64::from(self.model.machines)) as u32;
        let key = (mix(drawn.key), drawn.item.value_bytes);
        self.enter(now, write, key, machine);
        self.plan_arrival();
    }

    /// A closed loop's next request, to a random worker.
    pub(super) fn arrive_closed(&mut self, now: u64, machine: u32) {
        if self.source.drawn < self.model.requests {
            let drawn = self.source.generator.draw(now);
            let hash = self.source.random.next();
            let key = (hash, drawn.item.value_bytes);
            self.enter(now, drawn.kind != Kind::Get, key, machine);
        }
    }

    pub(super) fn arrive_script(&mut self, now: u64) {
        if let Some((write, key)) = self.source.script.next() {
            self.enter(now, write, (mix(key), 0), 0);
        }
    }

    /// A request of a client on this machine.
    fn enter(&mut self, now: u64, write: bool, (hash, value_bytes): (u64, u32), machine: u32) {
        let model = self.model;
        let sixth = model.requests / 6;
        let number = self.source.drawn;
        self.source.drawn += 1;
        if number == sixth {
            self.measured_ns.0 = now;
            self.done = 0;
        }
        if number + 1 == model.requests {
            self.measured_ns.1 = now;
        }
        let spread = model.prices.spread;
        let share = 1.0 - spread + 2.0 * spread * self.source.random.unit();
        let mean = model.prices.execution_ns(write, value_bytes);
        let thread = self.source.random.below(u64::from(model.threads)) as u32;
        let sender = match model.system {
            Datapath::Erpc => machine * u32::from(model.threads) + thread,
            _ => machine,
        };
        let sender = match model.load {
            ClientLoad::Script(_) => 0,
            _ => sender,
        };
        let connection = sender * u32::from(model.workers) + place(hash, model.workers) as u32;
        let whole = model.requests < 6;
        let request = Request {
            serial: 0,
            at: now,
            sent: now,
            hash,
            execution_ns: (mean * share).round() as u32,
            value_bytes,
            connection,
            write,
            measured: whole || (sixth..model.requests - sixth).contains(&number),
            sequence: 0,
            slot: 0,
            attempt: 0,
            pos: None,
            needs: 0,
            held: false,
            executed: false,
            answered: false,
            alive: true,
        };
        self.outcome.counts.requests += 1;
        self.outcome.counts.writes += u64::from(write);
        self.give_to_connection(now, request);
    }

    /// Sends an answer; `ns` is when it leaves the server.
    pub(super) fn answer(&mut self, ns: u64, id: u32, tells: Tells) {
        let request = self.requests.get(id);
        let value = match (request.write, tells) {
            (false, Tells::Done) => request.value_bytes,
            _ => 0,
        };
        let serial = request.serial;
        let queue = self.ingress.queue(request.hash);
        let answer = Answer {
            id,
            serial,
            tells,
            credits: queue.backlog().free as u32,
        };
        let late = self.durable_ns(tells) + (f64::from(value) * self.model.prices.byte_ns) as u64;
        if !self.is_lost() {
            let at = ns + self.answer_ns + late;
            self.events.plan(at, Event::AtClient(answer));
        }
    }

    /// What persistent buffers add to an answer.
    fn durable_ns(&self, tells: Tells) -> u64 {
        let Some(costs) = self.model.prices.persistent.filter(|_| self.model.durable) else {
            return 0;
        };
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

    /// Frees a request that is over for client and server.
    pub(super) fn free_if_over(&mut self, id: u32) {
        let request = self.requests.get(id);
        if request.answered && (request.executed || !request.write) {
            self.requests.free(id);
        }
    }

    fn end(mut self) -> JuneberryOutcome {
        for request in self.requests.all.iter().filter(|request| request.alive) {
            let wrong = &mut self.audit.wrong;
            wrong.never_answered += u64::from(!request.answered);
            wrong.never_executed += u64::from(request.write && !request.executed);
        }
        if self.outcome.saturated {
            self.audit.wrong.never_answered = 0;
            self.audit.wrong.never_executed = 0;
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

impl Requests {
    pub(super) fn insert(&mut self, mut request: Request) -> u32 {
        self.serials = self.serials.wrapping_add(1);
        request.serial = self.serials;
        match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = request;
                id
            }
            None => {
                self.all.push(request);
                self.all.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> &Request {
        &self.all[id as usize]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> &mut Request {
        &mut self.all[id as usize]
    }

    /// Whether this place still holds this request.
    #[inline]
    pub(super) fn is(&self, id: u32, serial: u32) -> bool {
        let request = &self.all[id as usize];
        request.alive && request.serial == serial
    }

    pub(super) fn used(&self) -> usize {
        self.all.len() - self.free.len()
    }

    fn free(&mut self, id: u32) {
        self.all[id as usize].alive = false;
        self.free.push(id);
    }
}

impl JuneberryOutcome {
    fn empty() -> Self {
        Self {
            ack: Histogram::new(),
            read: Histogram::new(),
            commit: Histogram::new(),
            executed: Histogram::new(),
            backlog: Histogram::new(),
            script_ns: Vec::new(),
            done_mops: 0.0,
            offered_mops: 0.0,
            counts: Counts::default(),
            wrong: Wrong::default(),
            saturated: false,
        }
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
