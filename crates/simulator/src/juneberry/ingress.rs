//! The server up to its workers: card, input threads, admission. What decides is the production
//! code; here is when.

use std::collections::VecDeque;

use curtail_ordered_queue::Verdict;

use crate::juneberry::{
    Datapath, Juneberry, Reads, WhenFull, place, queue_memory,
    run::{Event, Packet, Run, Tells},
    workers::Worker,
};

/// Card, input threads, persistent memory, workers: when each is free.
pub(super) struct Server<'a> {
    card_free: Vec<f64>,
    descriptors_free: Vec<f64>,
    input_free: Vec<f64>,
    persistent_free: f64,
    pub(super) workers: Vec<Worker<'a>>,
    /// Reads that any worker may take.
    pub(super) shared_reads: VecDeque<u32>,
}

/// Queues of a model.
pub(super) fn queues(model: &Juneberry, reads: Reads) -> usize {
    let workers = usize::from(model.workers);
    match reads {
        Reads::Shared => workers * 4,
        _ => workers,
    }
}

impl Server<'_> {
    pub(super) fn new(model: &Juneberry) -> Self {
        let workers = usize::from(model.workers);
        Self {
            card_free: vec![0.0; usize::from(model.prices.rx_cores)],
            descriptors_free: vec![0.0; workers],
            input_free: vec![0.0; usize::from(model.prices.io_threads)],
            persistent_free: 0.0,
            workers: (0..workers).map(Worker::new).collect(),
            shared_reads: VecDeque::new(),
        }
    }

    /// Writes so many bytes to persistent memory, which all share; when they are there.
    pub(super) fn persist(&mut self, now: f64, bytes: f64, byte_ns: f64) -> f64 {
        self.persistent_free = self.persistent_free.max(now) + bytes * byte_ns;
        self.persistent_free
    }
}

/// A thing that serves one after the other: when it has served one more.
fn serve(free: &mut f64, now: u64, ns: f64) -> u64 {
    *free = free.max(now as f64) + ns;
    free.round() as u64
}

impl<'a> Run<'a> {
    pub(super) fn at_card(&mut self, now: u64, packet: Packet) {
        let model = self.model;
        let prices = &model.prices;
        let connections = self.connections.len() as f64;
        let mut ns = prices.card_packet_ns(packet.bytes, connections, model.requests_per_buffer);
        if model.durable && packet.write {
            ns += prices.flush_card_ns;
        }
        if matches!(model.system, Datapath::Card(_)) && self.goes_through_queue(&packet) {
            ns += prices.admit_ns + f64::from(packet.bytes) * prices.admit_byte_ns;
        }
        let card = packet.connection as usize % self.server.card_free.len();
        let mut at = serve(&mut self.server.card_free[card], now, ns);
        if prices.descriptor_queue_ns > 0.0 {
            let queue = place(packet.hash, model.workers);
            let list_ns = prices.descriptor_queue_ns / model.requests_per_buffer;
            let free = &mut self.server.descriptors_free[queue];
            at = at.max(serve(free, now, list_ns));
        }
        if model.durable && packet.write {
            let bytes = f64::from(packet.bytes);
            let byte_ns = model.durable_costs().byte_ns;
            let there = self.server.persist(now as f64, bytes, byte_ns);
            at = at.max(there.round() as u64);
        }
        if at > now {
            self.events.plan(at, Event::AtServer(packet));
        } else {
            self.at_server(now, packet);
        }
    }

    pub(super) fn at_server(&mut self, now: u64, packet: Packet) {
        if self.is_out_of_order(&packet) {
            return;
        }
        let prices = &self.model.prices;
        match self.model.system {
            Datapath::RawRpc | Datapath::DeferredExec | Datapath::Erpc => self.take(now, packet),
            Datapath::Card(_) => self.admit(now, packet),
            Datapath::IoAck(_) => {
                let answer = if packet.write { prices.reply_ns } else { 0.0 };
                let ns = prices.receive_ns + prices.reserve_ns + answer;
                let thread = place(packet.hash, prices.io_threads);
                let at = serve(&mut self.server.input_free[thread], now, ns);
                self.events.plan(at, Event::PastInput(packet));
            }
        }
    }

    /// A packet that has been admitted.
    pub(super) fn admit(&mut self, now: u64, packet: Packet) {
        if !self.goes_through_queue(&packet) {
            return self.take(now, packet);
        }
        let session = self.connections[packet.connection as usize].session;
        let payload = queue_memory::payload(&packet);
        let arrival = queue_memory::arrival(&packet, session, &payload);
        let number = self.ingress.queue_number(packet.hash);
        let backlog = self.ingress.queues[number].backlog();
        self.outcome.backlog.record(backlog.tail - backlog.head);
        let is_alive = self.is_under_way(packet.id, packet.serial);
        match self.ingress.admit(&arrival, now) {
            verdict @ (Verdict::Accepted(pos) | Verdict::Queued(pos)) => {
                if is_alive {
                    let request = self.requests.get_mut(packet.id);
                    (request.pos, request.held) = (Some(pos), true);
                }
                if matches!(verdict, Verdict::Accepted(_)) {
                    self.answer(now, packet.id, Tells::Accepted);
                } else if self.model.when_full == WhenFull::NotReady {
                    self.answer(now, packet.id, Tells::Received);
                }
                self.wake_for_entries(now, number);
            }
            verdict @ (Verdict::Repeated(_) | Verdict::Replay(_)) => {
                self.outcome.counts.repeated += 1;
                if is_alive && matches!(verdict, Verdict::Repeated(_)) {
                    self.answer(now, packet.id, Tells::Accepted);
                } else if is_alive && self.requests.get(packet.id).executed {
                    self.answer(now, packet.id, Tells::Done);
                }
            }
            Verdict::Full => {
                self.outcome.counts.refusals += 1;
                let tells = match self.model.when_full {
                    WhenFull::Credits => Tells::Full,
                    WhenFull::NotReady => {
                        let connection = &mut self.connections[packet.connection as usize];
                        connection.broken = Some(packet.serial);
                        Tells::NotReady
                    }
                };
                self.answer(now, packet.id, tells);
            }
            Verdict::Dropped => {}
            verdict => unreachable!("{verdict:?}"),
        }
    }

    /// Whether something before it on its connection was lost or refused.
    fn is_out_of_order(&mut self, packet: &Packet) -> bool {
        let broken = &mut self.connections[packet.connection as usize].broken;
        if *broken == Some(packet.serial) {
            *broken = None;
        }
        broken.is_some()
    }

    fn goes_through_queue(&self, packet: &Packet) -> bool {
        packet.write || self.model.system.reads() == Some(Reads::InOrder)
    }

    /// A request that does not go through a queue.
    fn take(&mut self, now: u64, packet: Packet) {
        if !self.is_under_way(packet.id, packet.serial) {
            return;
        }
        let worker = place(packet.hash, self.model.workers);
        let reads = self.model.system.reads();
        if reads.is_none() {
            let waiting = self.server.workers[worker].inbox.len() as u64;
            self.outcome.backlog.record(waiting);
        }
        let request = self.requests.get_mut(packet.id);
        if std::mem::replace(&mut request.held, true) {
            // Sent again because the answer was lost: it is answered again as it was.
            let is_executed = request.executed;
            self.outcome.counts.repeated += u64::from(reads.is_none());
            if is_executed {
                self.answer(now, packet.id, Tells::Done);
            }
        } else if reads == Some(Reads::Shared) {
            self.server.shared_reads.push_back(packet.id);
            self.wake_idle(now, packet.id as usize);
        } else {
            self.server.workers[worker].inbox.push_back(packet.id);
            self.wake(now, worker);
        }
    }
}
