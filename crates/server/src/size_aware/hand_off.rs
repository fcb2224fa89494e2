//! Large requests are served by threads of their own, so that no small one waits behind them.
//!
//! Minos (Didona and Zwaenepoel, NSDI 2019), on connections: what moves between cores is not a
//! request but the connection that it stands on.
//!
//! ```text
//!  worker 0..n-1                                  large worker (parked while it has no connection)
//!  GET finds a large item: leases it    --+
//!  SET announces a large value:           +-->    sends, or receives, piece by piece, in turn with
//!    nothing of it is received            |       the other connections that it has
//!  any small request: served here       <-+---    gives the connection back when that is done
//! ```
//!
//! While a reply is sent, the connection stays watched by its own worker, unless the kernel takes
//! no more for now: so nothing has to be told to the kernel on the way there and back, and nobody
//! is woken at the end if the client has not asked for more.
//!
//! A large worker owns no idle connection and runs no request but the one that a connection came
//! with, so there is nothing that could wait behind it but other large requests. The kernel shares
//! the processors between workers and large workers; a plan's large cores say how many of the
//! latter take part and which sizes each has. When one has a queue already, the one with the
//! shortest takes the connection, within the epoch and without a new plan.
//!
//! Invariants: a connection that awaits other workers' answers is not handed on; its slot stays
//! reserved while it is away.

use std::sync::Arc;

use curtail_runtime::Token;

use crate::{
    config::Niceness,
    connection::{Connection, Departure, Visit, WatchedBy},
    metrics::{counters::Count, stage_histograms::StageName},
    sync::Relaxed,
    worker::{context::Kit, event_loop::Worker, mailbox::Arrival},
};

/// With so many connections a large worker has a queue, and another one with a shorter one helps.
const QUEUE_DEEP: usize = 3;

impl Worker {
    /// Hands the connection in `slot` to a large worker. False if it stays for now.
    pub(crate) fn depart(&mut self, slot: usize, departure: Departure) -> bool {
        let number = self.choose_large(departure.number);
        let index = self.kit.shared.config.workers + number;
        let Some(mut connection) = self.slots.lend(slot) else {
            return false;
        };
        connection.departs = None;
        // From here on the visit is measured.
        connection.pending = None;
        // A reply usually goes out without waiting; if not, this is made up for there.
        let stays = !departure.receives
            && connection.writable
            && connection.stream.reports_room_when_asked();
        if !stays {
            connection.stream.unwatch(&self.poller);
        }
        connection.visit = Some(Visit {
            home: self.index,
            slot,
            decodes: departure.receives,
            receives: departure.receives,
            watched_by: if stays {
                WatchedBy::Home
            } else {
                WatchedBy::Nobody
            },
            begun_ns: self.kit.now.instant.ns,
            since_ns: self.kit.now.instant.ns,
        });
        self.kit.pool.export(connection.buffers());
        self.away.lend(slot);
        self.kit.counts.add(Count::HandOffs, 1);
        let Some(face) = self.kit.shared.workers.get(index) else {
            return false;
        };
        let ahead = face.visitors.fetch_add(1, Relaxed);
        let stages = &mut self.kit.stages;
        stages.record(StageName::LargeQueue, ahead as u64);
        face.mail.send(Arrival::Visitor(connection));
        if self.kit.shared.config.large_nice == Niceness::Idle {
            self.kit.shared.control.watch();
        }
        true
    }

    /// The large worker that the plan names, or the one with the shortest queue if that one has a
    /// queue already.
    fn choose_large(&mut self, planned: u16) -> usize {
        let config = &self.kit.shared.config;
        let larges = self.kit.shared.workers.iter().skip(config.workers);
        let depths = larges.map(|face| face.visitors.load(Relaxed)).enumerate();
        let count = self.kit.shared.workers.len() - config.workers;
        let planned = usize::from(planned).min(count - 1);
        let mut shortest = (planned, usize::MAX);
        let mut planned_depth = 0;
        for (number, depth) in depths {
            if number == planned {
                planned_depth = depth;
            }
            if depth < shortest.1 {
                shortest = (number, depth);
            }
        }
        let deep = QUEUE_DEEP.min(config.large_connections_max);
        if planned_depth < deep || shortest.1 >= planned_depth {
            return planned;
        }
        self.kit.counts.add(Count::HandOffsRelieved, 1);
        shortest.0
    }

    /// A connection has come with its large request.
    pub(crate) fn receive_visitor(&mut self, mut connection: Box<Connection>) {
        self.kit.pool.import(connection.buffers());
        self.note_visit(&mut connection, |_| StageName::QueueLarge);
        let slot = self.slots.reserve();
        if !connection.is_watched_by(WatchedBy::Home) {
            // Whatever changed while nobody watched is found out by trying.
            connection.readable = true;
            connection.writable = true;
        }
        self.slots.restore(slot, connection);
        self.slots.queue(slot);
    }

    /// After its turn: a visitor that has to wait for its socket is watched from here.
    #[cold]
    pub(crate) fn host(&mut self, slot: usize) {
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let wants_turn = connection.wants_turn();
        let Some(visit) = &mut connection.visit else {
            return;
        };
        if wants_turn || visit.watched_by == WatchedBy::Host {
            return;
        }
        if visit.watched_by == WatchedBy::Home
            && let Some(home) = self.kit.shared.workers.get(visit.home)
        {
            connection.stream.unwatch_at(&home.registrar);
        }
        visit.watched_by = WatchedBy::Host;
        if connection.stream.watch(&self.poller, Token(slot)).is_err() {
            self.close(slot);
        }
    }

    /// A connection is back; it was watched here all the time, or is again from now on.
    pub(crate) fn receive_returned(
        &mut self,
        slot: usize,
        mut connection: Box<Connection>,
        watched: bool,
    ) {
        let missed = self.away.take(slot);
        self.kit.pool.import(connection.buffers());
        if watched {
            connection.note(missed);
            self.slots.restore(slot, connection);
        } else {
            self.seat(slot, connection);
        }
        self.slots.queue(slot);
    }

    /// Connections that were asked for something while they were away are wanted back at once.
    #[cold]
    pub(crate) fn expect_returns(&mut self) {
        let shared = Arc::clone(&self.kit.shared);
        let Some(face) = shared.workers.get(self.index) else {
            return;
        };
        while self.away.is_wanted() {
            if face.mail.expect() {
                self.take_arrivals();
            } else {
                self.away.told();
            }
        }
    }

    pub(crate) fn seat(&mut self, slot: usize, mut connection: Box<Connection>) {
        // Whatever changed while nobody watched is found out by trying.
        connection.readable = true;
        connection.writable = true;
        if connection.stream.watch(&self.poller, Token(slot)).is_err() {
            connection.closing = true;
        }
        self.slots.restore(slot, connection);
    }

    /// A connection that was lent is closed.
    pub(crate) fn receive_lost(&mut self, slot: usize) {
        self.away.take(slot);
        self.watching.retain(|&watching| watching != slot);
        self.slots.free(slot);
        self.leave();
    }

    /// Whether a large worker is done with this connection.
    pub(crate) fn is_done(connection: &Connection) -> bool {
        let decodes = connection.visit.is_some_and(|visit| visit.decodes);
        let receives = connection.body.as_ref().is_some_and(|body| !body.is_whole);
        connection.visit.is_some()
            && connection.unsent.is_empty()
            && !receives
            && connection.decoder.swallowing() == 0
            && !decodes
    }

    /// Gives the connection in `slot` back to the worker it belongs to.
    pub(crate) fn give_back(&mut self, slot: usize) {
        let Some(mut connection) = self.slots.remove(slot) else {
            return;
        };
        self.note_visit(&mut connection, |visit| match visit.receives {
            true => StageName::ExecuteLarge,
            false => StageName::ReplyLarge,
        });
        let Some(visit) = connection.visit.take() else {
            return;
        };
        self.kit.note_large_latency(&visit, visit.since_ns);
        if connection.slow.is_some() {
            self.note_slow_visit(&mut connection, visit.begun_ns);
        }
        if visit.watched_by == WatchedBy::Host {
            connection.stream.unwatch(&self.poller);
        }
        self.kit.pool.export(connection.buffers());
        self.end_visit();
        let Some(home) = self.kit.shared.workers.get(visit.home) else {
            return;
        };
        let watched = visit.watched_by == WatchedBy::Home;
        let rests = watched && !connection.wants_turn();
        let returned = Arrival::Returned(visit.slot, connection, watched);
        match rests {
            true => home.mail.send_resting(returned),
            false => home.mail.send(returned),
        }
    }

    /// Ends a stage of a large request. It is rare and takes long, so it has a clock of its own.
    fn note_visit(&mut self, connection: &mut Connection, stage: impl FnOnce(&Visit) -> StageName) {
        let now_ns = self.kit.shared.clock.now().instant.ns;
        if let Some(visit) = &mut connection.visit {
            let us = now_ns.saturating_sub(visit.since_ns) / 1000;
            visit.since_ns = now_ns;
            self.kit.stages.record(stage(visit), us);
        }
    }

    pub(crate) fn end_visit(&self) {
        if let Some(face) = self.kit.shared.workers.get(self.index) {
            face.visitors.fetch_sub(1, Relaxed);
        }
    }

    /// Asks those who may hold leases of clients that do not read to let one go.
    pub(crate) fn ask_for_relief(&self) {
        for (index, face) in self.kit.shared.workers.iter().enumerate() {
            if index != self.index && index >= self.kit.shared.config.workers {
                face.mail.send(Arrival::Relieve);
            }
        }
    }

    /// Looks once a turn whether large requests can still be taken on.
    pub(crate) fn look_at_large_queues(&mut self) {
        let shared = &self.kit.shared;
        let mut larges = shared.workers.iter().skip(shared.config.workers);
        let full = |visitors: usize| visitors >= shared.config.large_connections_max;
        self.kit.large_full = larges.all(|face| full(face.visitors.load(Relaxed)));
    }
}

impl Kit {
    /// Whether a value of `bytes` is another's to serve.
    #[inline]
    pub(crate) fn is_large(&self, bytes: usize) -> bool {
        bytes >= self.large_from
    }
}
