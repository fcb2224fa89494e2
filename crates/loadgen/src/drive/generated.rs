//! The general driver: draws each request when it is due.
//!
//! Closed loop: every connection always has `pipeline` requests under way. Open loop: arrivals are
//! a process that waits for nobody; a request that finds no connection with room waits in a
//! queue, and its latency counts from the instant it was meant to be sent, so that neither a slow
//! server nor a late driver hides the waiting.
//!
//! ```text
//!   arrivals ──> waiting ──> connection.under_way ──> recorder
//!                              ^ follow-ups (read-modify-write, compare-and-swap, fill)
//! ```

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::{
    Clock, Ended, Plan, Session, Stall,
    arrivals::{Arrivals, Thinkers, is_over, next_ns},
    framer::{Framer, LINE_BYTES_MAX},
    socket::{Poller, Ready, Socket},
};
use crate::{
    error::LoadError,
    load::{Asker, Request, Then, Wording},
    measure::{Class, Operation, Recorder, Times},
    protocol::{Protocol, Reply, Verb},
    verify::{Fault, Proof, Versions},
};

/// One thread of the general driver.
pub(super) struct Generated {
    asker: Asker,
    wording: Wording,
    connections: Vec<Connection>,
    poller: Poller,
    recorder: Recorder,
    buffer: Vec<u8>,
    pipeline: usize,
    spin: bool,
    arrivals: Option<Arrivals<Pending>>,
    thinkers: Option<Thinkers>,
    versions: Option<Arc<Versions>>,
    stall: Option<Stall>,
    /// When the run ends; earlier than planned when somebody asks.
    end_ns: u64,
}

struct Connection {
    socket: Socket,
    output: Vec<u8>,
    written: usize,
    under_way: VecDeque<Pending>,
    framer: Framer,
}

#[derive(Clone, Copy)]
struct Pending {
    request: Request,
    intended_ns: u64,
    /// 0 until it is sent.
    sent_ns: u64,
    proof: Proof,
}

/// What is recorded of a reply.
type Latency = (Class, Times);

/// Bytes received at a time.
const BUFFER_BYTES: usize = 64 << 10;

impl Pending {
    fn new(request: Request, intended_ns: u64) -> Self {
        Self {
            request,
            intended_ns,
            sent_ns: 0,
            proof: Proof::default(),
        }
    }
}

impl Generated {
    pub(super) fn new(plan: &Plan, session: &Session, thread: usize) -> Result<Self, LoadError> {
        let poller = Poller::new()?;
        let connection = |socket| Connection {
            socket,
            output: Vec::new(),
            written: 0,
            under_way: VecDeque::with_capacity(plan.pipeline + 1),
            framer: Framer::keeping_bodies(plan.load.verify),
        };
        let sockets = plan.connect(&poller, thread)?;
        Ok(Self {
            asker: plan.load.asker(plan.seed, thread, plan.threads),
            wording: plan.load.wording(),
            connections: sockets.into_iter().map(connection).collect(),
            poller,
            recorder: plan.recorder()?,
            buffer: vec![0; BUFFER_BYTES],
            pipeline: plan.pipeline,
            spin: plan.spin,
            arrivals: Arrivals::new(plan, thread),
            thinkers: Thinkers::new(plan, thread),
            versions: session.versions.clone().filter(|_| plan.load.verify),
            stall: plan.stall,
            end_ns: 0,
        })
    }

    pub(super) fn run(mut self, clock: &Clock) -> Ended {
        let result = self.drive(clock);
        self.give_up(clock.now_ns());
        clock.ended(result, self.recorder)
    }

    fn drive(&mut self, clock: &Clock) -> Result<(), LoadError> {
        self.end_ns = clock.end_ns;
        if self.is_greedy() {
            for connection in 0..self.connections.len() {
                self.refill(connection, clock)?;
            }
        }
        loop {
            let now_ns = clock.now_ns();
            if clock.is_stopped() {
                self.end_ns = self.end_ns.min(now_ns);
            }
            if self.is_over(now_ns) {
                return Ok(());
            }
            self.admit(now_ns, clock)?;
            self.wake(now_ns, clock)?;
            let patience = self.patience(clock);
            for index in 0..self.poller.wait(patience)? {
                let ready = self.poller.ready(index);
                self.serve(ready, clock)?;
            }
            Stall::happen(&mut self.stall, clock);
        }
    }

    /// A closed loop that does not think: a reply is the occasion of the next request.
    fn is_greedy(&self) -> bool {
        self.arrivals.is_none() && self.thinkers.is_none()
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let is_idle = |connection: &Connection| connection.under_way.is_empty();
        let all_idle = || self.connections.iter().all(is_idle);
        is_over(self.arrivals.as_ref(), (now_ns, self.end_ns), all_idle)
    }

    /// Open loop: draws what is due and gives it to connections with room.
    fn admit(&mut self, now_ns: u64, clock: &Clock) -> Result<(), LoadError> {
        let Some(arrivals) = &mut self.arrivals else {
            return Ok(());
        };
        let due_ns = now_ns.min(self.end_ns.saturating_sub(1));
        let waiting_before = arrivals.draw(due_ns, |intended_ns| {
            Pending::new(self.asker.draw(intended_ns), intended_ns)
        })?;
        let mut sent = 0;
        while let Some((pending, index)) = self.arrivals.as_mut().and_then(Arrivals::next_to_send) {
            let sent_ns = clock.now_ns();
            if sent >= waiting_before {
                self.recorder.late(pending.intended_ns, sent_ns);
            }
            sent += 1;
            self.push(index, pending, sent_ns, 0, clock);
            self.flush(index)?;
            self.reopen(index);
        }
        // What waits from now on waits for the server: the driver has done its part.
        let noticed = sent.max(waiting_before) - sent;
        if let Some(arrivals) = &self.arrivals {
            for pending in arrivals.waiting.iter().skip(noticed) {
                self.recorder.late(pending.intended_ns, now_ns);
            }
        }
        Ok(())
    }

    fn reopen(&mut self, index: usize) {
        let has_room = self.connections[index].under_way.len() < self.pipeline;
        if let (Some(arrivals), true) = (&mut self.arrivals, has_room) {
            arrivals.open.push_back(index);
        }
    }

    /// Closed loop with thinking: sends for every slot that has thought.
    fn wake(&mut self, now_ns: u64, clock: &Clock) -> Result<(), LoadError> {
        while let Some((due_ns, index)) = self
            .thinkers
            .as_mut()
            .and_then(|thinkers| thinkers.take(now_ns))
        {
            let sent_ns = clock.now_ns();
            self.recorder.late(due_ns, sent_ns);
            let request = self.asker.draw(due_ns);
            self.push(index, Pending::new(request, due_ns), sent_ns, 0, clock);
            self.flush(index)?;
        }
        Ok(())
    }

    /// How long to sleep: until the next request is due, unless every connection is taken.
    fn patience(&self, clock: &Clock) -> Duration {
        const LONG: Duration = Duration::from_millis(5);
        if self.spin {
            return Duration::ZERO;
        }
        let Some(next_ns) = next_ns(self.arrivals.as_ref(), self.thinkers.as_ref()) else {
            return LONG;
        };
        Duration::from_nanos(next_ns.saturating_sub(clock.now_ns())).min(LONG)
    }

    fn serve(&mut self, ready: Ready, clock: &Clock) -> Result<(), LoadError> {
        let index = ready.connection;
        if ready.writable {
            self.flush(index)?;
        }
        if !ready.readable {
            return Ok(());
        }
        let before = self.connections[index].under_way.len();
        let now_ns = self.receive(index, clock)?;
        if self.is_greedy() {
            return self.refill(index, clock);
        }
        let after = self.connections[index].under_way.len();
        if before >= self.pipeline && after < self.pipeline {
            self.reopen(index);
        }
        if let Some(thinkers) = &mut self.thinkers {
            (after..before).for_each(|_| thinkers.think(index, now_ns));
        }
        Ok(())
    }

    /// Closed loop: as many new requests as there is room for, in one write.
    fn refill(&mut self, index: usize, clock: &Clock) -> Result<(), LoadError> {
        let room = self
            .pipeline
            .saturating_sub(self.connections[index].under_way.len());
        if room == 0 {
            return Ok(());
        }
        let now_ns = clock.now_ns();
        for _ in 0..room {
            let request = self.asker.draw(now_ns);
            self.push(index, Pending::new(request, now_ns), now_ns, 0, clock);
        }
        self.flush(index)
    }

    /// Words a request for a connection; the caller flushes.
    #[inline]
    fn push(&mut self, index: usize, pending: Pending, sent_ns: u64, token: u64, clock: &Clock) {
        let mut pending = Pending { sent_ns, ..pending };
        let request = &pending.request;
        if let Some(versions) = &self.versions {
            pending.proof = match request.verb {
                verb if verb.is_read() => versions.read_begins(request.key),
                verb if verb.counts() => Proof::default(),
                _ => versions.write_begins(request.key, clock.epoch_ns + sent_ns),
            };
        }
        let connection = &mut self.connections[index];
        let version = pending.proof.version;
        self.wording
            .put(request, version, token, &mut connection.output);
        connection.under_way.push_back(pending);
    }

    fn flush(&mut self, index: usize) -> Result<(), LoadError> {
        let connection = &mut self.connections[index];
        let rest = &connection.output[connection.written..];
        connection.written += self.poller.write(&mut connection.socket, rest)?;
        if connection.written == connection.output.len() {
            connection.output.clear();
            connection.written = 0;
        }
        Ok(())
    }

    /// Receives once and records every reply that ended; returns when it received.
    fn receive(&mut self, index: usize, clock: &Clock) -> Result<u64, LoadError> {
        let connection = &mut self.connections[index];
        debug_assert!(self.buffer.len() > LINE_BYTES_MAX);
        let kept = connection.framer.restore(&mut self.buffer);
        let received = connection.socket.read(&mut self.buffer[kept..])?;
        let now_ns = clock.now_ns();
        // The buffer is lent out, so that replies may lead to requests meanwhile.
        let buffer = std::mem::take(&mut self.buffer);
        let outcome = self.take_replies(index, &buffer[..kept + received], now_ns, clock);
        self.buffer = buffer;
        if outcome? {
            self.flush(index)?;
        }
        Ok(now_ns)
    }

    /// Whether a reply led to another request.
    fn take_replies(
        &mut self,
        index: usize,
        mut input: &[u8],
        now_ns: u64,
        clock: &Clock,
    ) -> Result<bool, LoadError> {
        let protocol = self.wording.protocol;
        let mut follows = false;
        let mut alike: Option<(Latency, u64)> = None;
        while !input.is_empty() {
            let connection = &mut self.connections[index];
            let Some(&pending) = connection.under_way.front() else {
                return Err(LoadError::Protocol("a reply that nobody asked for".into()));
            };
            let verb = pending.request.verb;
            let Some(reply) = connection.framer.next(protocol, verb, &mut input) else {
                break;
            };
            connection.under_way.pop_front();
            let latency = self.answered(&pending, reply, index, now_ns);
            match &mut alike {
                Some((last, count)) if *last == latency => *count += 1,
                _ => {
                    self.record(alike);
                    alike = Some((latency, 1));
                }
            }
            if pending.request.then != Then::Nothing || reply == Reply::Refused {
                follows |= self.follow_up(index, &pending, reply, now_ns, clock);
            }
        }
        self.record(alike);
        if !self.connections[index].framer.keep(input) {
            return Err(LoadError::Protocol("a line without an end".into()));
        }
        Ok(follows)
    }

    fn record(&mut self, alike: Option<(Latency, u64)>) {
        if let Some(((class, times), count)) = alike {
            self.recorder.latency(class, times, count);
        }
    }

    /// Counts a reply; its latency is recorded together with those of the same class and times
    /// that follow it, as most of a pipeline do.
    #[inline]
    fn answered(&mut self, pending: &Pending, reply: Reply, index: usize, now_ns: u64) -> Latency {
        let request = &pending.request;
        let known = self.wording.lengths_are_known;
        let class = self
            .recorder
            .reply(request.verb, reply, request.value_bytes, known);
        if self.versions.is_some() {
            self.verify(pending, reply, index);
        }
        let times = Times {
            intended_ns: pending.intended_ns,
            sent_ns: pending.sent_ns,
            now_ns,
        };
        (class, times)
    }

    /// Checks a value that came, or notes that a write ended.
    fn verify(&mut self, pending: &Pending, reply: Reply, index: usize) {
        let Some(versions) = &self.versions else {
            return;
        };
        let Request { verb, key, .. } = pending.request;
        if !verb.is_read() {
            // Counters have no version, and neither does their first value.
            if pending.proof.version > 0 {
                versions.write_ends(key, pending.proof, reply == Reply::Done);
            }
            return;
        }
        let Reply::Hit { value_bytes, .. } = reply else {
            return;
        };
        let body = self.connections[index].framer.body();
        let (value, end) = body.split_at(value_bytes.min(body.len()));
        let counts = &mut self.recorder.counts;
        counts.verified += 1;
        if !matches!(end, b"\r\n" | b"\r\nEND\r\n") {
            counts.torn += 1;
            return;
        }
        match versions.read_ends(key, pending.proof, value) {
            Ok(()) => {}
            Err(Fault::Torn) => counts.torn += 1,
            Err(Fault::Foreign) => counts.foreign += 1,
            Err(Fault::Stale) => counts.stale += 1,
        }
    }

    /// The second request of an operation, on the same connection; whether there is one.
    fn follow_up(
        &mut self,
        index: usize,
        pending: &Pending,
        reply: Reply,
        now_ns: u64,
        clock: &Clock,
    ) -> bool {
        let request = &pending.request;
        if request.verb.counts() && self.wording.protocol == Protocol::Text {
            // memcached's classic counters do not begin by themselves.
            let connection = &mut self.connections[index];
            self.wording.put_counter(request, &mut connection.output);
            let begin = Request {
                verb: Verb::Add,
                value_bytes: 1,
                ..*request
            };
            let pending = Pending::new(begin, now_ns);
            connection.under_way.push_back(Pending {
                sent_ns: now_ns,
                ..pending
            });
            return true;
        }
        let (hit, token) = match reply {
            Reply::Hit { token, .. } => (true, token),
            Reply::Miss => (false, 0),
            _ => return false,
        };
        let Some(next) = request.follow_up(hit) else {
            return false;
        };
        self.push(index, Pending::new(next, now_ns), now_ns, token, clock);
        true
    }

    /// What is not answered at an open loop's end counts with the time it has waited.
    fn give_up(&mut self, now_ns: u64) {
        let Some(arrivals) = &mut self.arrivals else {
            return;
        };
        let under_way = self
            .connections
            .iter_mut()
            .flat_map(|c| c.under_way.drain(..));
        for pending in arrivals.waiting.drain(..).chain(under_way) {
            let Request {
                verb, value_bytes, ..
            } = pending.request;
            let hoped = match verb.is_read() {
                true => Reply::Hit {
                    value_bytes: 0,
                    token: 0,
                },
                false => Reply::Done,
            };
            let class = self.recorder.class(Operation::of(verb, hoped), value_bytes);
            let times = Times {
                intended_ns: pending.intended_ns,
                sent_ns: pending.sent_ns,
                now_ns,
            };
            self.recorder.unfinished(class, times);
        }
    }
}
