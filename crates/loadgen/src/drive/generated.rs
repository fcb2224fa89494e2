//! The general driver: draws each request when it is due.
//!
//! Closed loop: every connection always has `pipeline` requests under way. Open loop: arrivals are
//! a Poisson process that waits for nobody; a request that finds no connection with room waits in a
//! queue, and its latency counts from the instant it was meant to be sent, so that neither a slow
//! server nor a late driver hides the waiting.

use std::{collections::VecDeque, time::Duration};

use super::{
    Clock, Plan,
    framer::{Framer, LINE_BYTES_MAX},
    socket::{Poller, Ready, Socket},
};
use crate::{
    error::LoadError,
    measure::Recorder,
    workload::{Generator, Request},
};

/// One thread of the general driver.
pub(super) struct Generated {
    generator: Generator,
    connections: Vec<Connection>,
    poller: Poller,
    recorder: Recorder,
    buffer: Vec<u8>,
    pipeline: usize,
    spin: bool,
    arrivals: Option<Arrivals>,
}

/// The open loop's side: requests that are due and connections that have room.
struct Arrivals {
    gap_ns: f64,
    next_ns: f64,
    waiting: VecDeque<Pending>,
    /// Connections with room, the longest idle first.
    open: VecDeque<usize>,
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
}

/// Bytes received at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Requests that may wait for a connection; a load that outruns the server by more is hopeless.
const WAITING_MAX: usize = 1 << 24;

/// Replies are awaited this long after an open loop's end.
const GRACE_NS: u64 = 1_000_000_000;

impl Generated {
    pub(super) fn new(plan: &Plan, thread: usize) -> Result<Self, LoadError> {
        let poller = Poller::new()?;
        let count = plan.connections_of(thread);
        let connect = |connection| -> Result<_, LoadError> {
            Ok(Connection {
                socket: poller.connect(&plan.target, connection)?,
                output: Vec::new(),
                written: 0,
                under_way: VecDeque::with_capacity(plan.pipeline),
                framer: Framer::default(),
            })
        };
        let connections: Result<Vec<_>, _> = (0..count).map(connect).collect();
        let mut generator = Generator::new(&plan.workload, plan.seed ^ (thread as u64) << 32);
        let arrivals = plan.rate.map(|rate| {
            let gap_ns = 1e9 * plan.threads as f64 / rate;
            Arrivals {
                gap_ns,
                next_ns: generator.random().exponential(gap_ns),
                waiting: VecDeque::new(),
                open: (0..count).collect(),
            }
        });
        Ok(Self {
            generator,
            connections: connections?,
            poller,
            recorder: plan.recorder()?,
            buffer: vec![0; BUFFER_BYTES],
            pipeline: plan.pipeline,
            spin: plan.spin,
            arrivals,
        })
    }

    pub(super) fn run(mut self, clock: Clock) -> Result<Recorder, LoadError> {
        if self.arrivals.is_none() {
            for connection in 0..self.connections.len() {
                self.refill(connection, clock)?;
            }
        }
        loop {
            let now_ns = clock.now_ns();
            if self.is_over(now_ns, clock) {
                break;
            }
            self.admit(now_ns, clock)?;
            let patience = self.patience(clock);
            for index in 0..self.poller.wait(patience)? {
                let ready = self.poller.ready(index);
                self.serve(ready, clock)?;
            }
        }
        self.give_up(clock.now_ns());
        Ok(self.recorder)
    }

    /// A closed loop ends on time; an open loop waits for its last replies.
    fn is_over(&self, now_ns: u64, clock: Clock) -> bool {
        let Some(arrivals) = &self.arrivals else {
            return now_ns >= clock.end_ns;
        };
        let all_answered = || {
            let idle = |connection: &Connection| connection.under_way.is_empty();
            arrivals.waiting.is_empty() && self.connections.iter().all(idle)
        };
        now_ns >= clock.end_ns && (all_answered() || now_ns > clock.end_ns + GRACE_NS)
    }

    /// Open loop: draws what is due and gives it to connections with room.
    fn admit(&mut self, now_ns: u64, clock: Clock) -> Result<(), LoadError> {
        let Some(arrivals) = &mut self.arrivals else {
            return Ok(());
        };
        let due_ns = now_ns.min(clock.end_ns.saturating_sub(1)) as f64;
        while arrivals.next_ns <= due_ns {
            arrivals.waiting.push_back(Pending {
                request: self.generator.draw(),
                intended_ns: arrivals.next_ns as u64,
            });
            arrivals.next_ns += self.generator.random().exponential(arrivals.gap_ns);
        }
        if arrivals.waiting.len() > WAITING_MAX {
            return Err(LoadError::Arguments(
                "the offered load is far beyond what the server takes".into(),
            ));
        }
        while let (Some(pending), Some(index)) = self
            .arrivals
            .as_mut()
            .filter(|arrivals| !arrivals.waiting.is_empty() && !arrivals.open.is_empty())
            .map_or((None, None), |arrivals| {
                (arrivals.waiting.pop_front(), arrivals.open.pop_front())
            })
        {
            self.push(index, pending);
            self.recorder.lag(pending.intended_ns, clock.now_ns());
            self.flush(index)?;
            self.reopen(index);
        }
        Ok(())
    }

    fn reopen(&mut self, index: usize) {
        let has_room = self.connections[index].under_way.len() < self.pipeline;
        if let (Some(arrivals), true) = (&mut self.arrivals, has_room) {
            arrivals.open.push_back(index);
        }
    }

    /// How long to sleep: until the next arrival, unless every connection is taken.
    fn patience(&self, clock: Clock) -> Duration {
        const LONG: Duration = Duration::from_millis(5);
        if self.spin {
            return Duration::ZERO;
        }
        let next = self
            .arrivals
            .as_ref()
            .filter(|arrivals| !arrivals.open.is_empty());
        next.map_or(LONG, |arrivals| {
            let wait_ns = (arrivals.next_ns as u64).saturating_sub(clock.now_ns());
            Duration::from_nanos(wait_ns).min(LONG)
        })
    }

    fn serve(&mut self, ready: Ready, clock: Clock) -> Result<(), LoadError> {
        if ready.writable {
            self.flush(ready.connection)?;
        }
        if !ready.readable {
            return Ok(());
        }
        let was_full = self.connections[ready.connection].under_way.len() >= self.pipeline;
        let answered = self.receive(ready.connection, clock)?;
        if self.arrivals.is_none() {
            return self.refill(ready.connection, clock);
        }
        if was_full && answered > 0 {
            self.reopen(ready.connection);
        }
        Ok(())
    }

    /// Closed loop: as many new requests as there is room for, in one write.
    fn refill(&mut self, index: usize, clock: Clock) -> Result<(), LoadError> {
        let room = self.pipeline - self.connections[index].under_way.len();
        if room == 0 {
            return Ok(());
        }
        let intended_ns = clock.now_ns();
        for _ in 0..room {
            let request = self.generator.draw();
            self.push(
                index,
                Pending {
                    request,
                    intended_ns,
                },
            );
        }
        self.flush(index)
    }

    fn push(&mut self, index: usize, pending: Pending) {
        let connection = &mut self.connections[index];
        self.generator.put(&pending.request, &mut connection.output);
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

    /// Receives once and records every reply that ended; returns their number.
    fn receive(&mut self, index: usize, clock: Clock) -> Result<usize, LoadError> {
        let protocol = self.generator.workload().protocol;
        let connection = &mut self.connections[index];
        debug_assert!(self.buffer.len() > LINE_BYTES_MAX);
        let kept = connection.framer.restore(&mut self.buffer);
        let received = connection.socket.read(&mut self.buffer[kept..])?;
        let now_ns = clock.now_ns();
        let mut input = &self.buffer[..kept + received];
        let mut answered = 0;
        while !input.is_empty() {
            let Some(&Pending {
                request,
                intended_ns,
            }) = connection.under_way.front()
            else {
                return Err(LoadError::Protocol("a reply that nobody asked for".into()));
            };
            match connection.framer.next(protocol, request.kind, &mut input) {
                None => break,
                Some(reply) => {
                    self.recorder.reply(reply, request.value_bytes);
                    self.recorder.latency(request.kind, intended_ns, now_ns, 1);
                    connection.under_way.pop_front();
                    answered += 1;
                }
            }
        }
        if !connection.framer.keep(input) {
            return Err(LoadError::Protocol("a line without an end".into()));
        }
        Ok(answered)
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
            self.recorder
                .unfinished(pending.request.kind, pending.intended_ns, now_ns);
        }
    }
}
