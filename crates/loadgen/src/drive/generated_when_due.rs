//! The general driver: draws each request when it is due, for connections of any kind.
//!
//! Closed loop: every connection always has `pipeline` requests under way. Open loop: arrivals are
//! a process that waits for nobody; a request that finds no connection with room waits in a
//! queue, and its latency counts from the instant it was meant to be sent, so that neither a slow
//! server nor a late driver hides the waiting.
//!
//! ```text
//!   arrivals ──> waiting ──> connections (streams, sessions) ──> desk ──> recorder
//!                              ^ follow-ups (read-modify-write, compare-and-swap, fill)
//! ```

use std::time::Duration;

use super::{
    Clock, Ended, GRACE_NS, Plan, Session, Stall,
    arrivals::{Arrivals, Thinkers},
    request_accounting::{Desk, Pending},
    socket::Ready,
};
use crate::{error::LoadError, measure::NativeRecord, request_source::Asker};

/// What a driver thread sends its requests over.
pub(super) trait Connections {
    /// How many there are.
    fn count(&self) -> usize;

    /// Requests that a connection has under way or keeps.
    fn load(&self, index: usize) -> usize;

    /// Gives a connection a request, for the next flush.
    fn push(&mut self, index: usize, pending: Pending, now_ns: u64, desk: &Desk, clock: &Clock);

    /// Sends what can be sent of what a connection was given.
    fn flush(&mut self, index: usize, desk: &Desk, clock: &Clock) -> Result<(), LoadError>;

    /// Sends what is due without an event: nothing, unless requests wait for a time.
    fn resume(&mut self, _: &Desk, _: &Clock) -> Result<(), LoadError> {
        Ok(())
    }

    /// Waits so long at most, or until something is due; how many connections are ready.
    fn wait(&mut self, patience: Duration) -> Result<usize, LoadError>;

    /// One of those that are ready.
    fn ready(&self, number: usize) -> Ready;

    /// Receives once, has the desk count what was answered, and keeps what follows from it.
    /// Returns when it received.
    fn receive(&mut self, index: usize, desk: &mut Desk, clock: &Clock) -> Result<u64, LoadError>;

    /// What is not answered.
    fn drain(&mut self) -> Vec<Pending>;

    /// What only sessions of the native protocol tell.
    fn record(&mut self) -> Option<Box<NativeRecord>> {
        None
    }
}

/// One thread of the general driver.
pub(super) struct Generated<C> {
    asker: Asker,
    connections: C,
    desk: Desk,
    pipeline: usize,
    spin: bool,
    arrivals: Option<Arrivals>,
    thinkers: Option<Thinkers>,
    stall: Option<Stall>,
    /// When the run ends; earlier than planned when somebody asks.
    end_ns: u64,
    /// Connections that [`wake`](Self::wake) gave requests and has not flushed.
    woken: Vec<usize>,
}

impl<C: Connections> Generated<C> {
    pub(super) fn new(
        plan: &Plan,
        session: &Session,
        thread: usize,
        connections: C,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            asker: plan.load.asker(plan.seed, thread, plan.threads),
            connections,
            desk: Desk::new(plan, session)?,
            pipeline: plan.pipeline,
            spin: plan.spin,
            arrivals: Arrivals::new(plan, thread),
            thinkers: Thinkers::new(plan, thread),
            stall: plan.stall,
            end_ns: 0,
            woken: Vec::new(),
        })
    }

    pub(super) fn run(mut self, clock: &Clock) -> Ended {
        let result = self.drive(clock);
        self.give_up(clock.now_ns());
        self.desk.recorder.native = self.connections.record();
        clock.ended(result, self.desk.recorder)
    }

    fn drive(&mut self, clock: &Clock) -> Result<(), LoadError> {
        self.end_ns = clock.end_ns;
        if self.is_greedy() {
            for connection in 0..self.connections.count() {
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
            self.connections.resume(&self.desk, clock)?;
            let patience = self.patience(clock);
            for number in 0..self.connections.wait(patience)? {
                self.serve(self.connections.ready(number), clock)?;
            }
            Stall::happen(&mut self.stall, clock);
        }
    }

    /// A closed loop that does not think: a reply is the occasion of the next request.
    fn is_greedy(&self) -> bool {
        self.arrivals.is_none() && self.thinkers.is_none()
    }

    /// A closed loop ends on time, an open loop waits for its last replies.
    fn is_over(&self, now_ns: u64) -> bool {
        let Some(arrivals) = self.arrivals.as_ref().filter(|_| now_ns >= self.end_ns) else {
            return now_ns >= self.end_ns;
        };
        let is_idle = |index| self.connections.load(index) == 0;
        let all_idle = || (0..self.connections.count()).all(is_idle);
        now_ns > self.end_ns + GRACE_NS || arrivals.waiting.is_empty() && all_idle()
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
                self.desk.late(&pending, sent_ns);
            }
            sent += 1;
            self.send(index, pending, sent_ns, clock)?;
            self.reopen(index);
        }
        // What waits from now on waits for the server: the driver has done its part.
        let noticed = sent.max(waiting_before) - sent;
        if let Some(arrivals) = &self.arrivals {
            for pending in arrivals.waiting.iter().skip(noticed) {
                self.desk.late(pending, now_ns);
            }
        }
        Ok(())
    }

    fn reopen(&mut self, index: usize) {
        let has_room = self.connections.load(index) < self.pipeline;
        if let (Some(arrivals), true) = (&mut self.arrivals, has_room) {
            arrivals.open.push_back(index);
        }
    }

    /// Closed loop with thinking: a request for every slot that has thought. Those of a connection
    /// leave together.
    fn wake(&mut self, now_ns: u64, clock: &Clock) -> Result<(), LoadError> {
        let Some(thinkers) = &mut self.thinkers else {
            return Ok(());
        };
        let mut woken = std::mem::take(&mut self.woken);
        while let Some((due_ns, index)) = thinkers.take(now_ns) {
            let sent_ns = clock.now_ns();
            let pending = Pending::new(self.asker.draw(due_ns), due_ns);
            self.desk.late(&pending, sent_ns);
            let desk = &self.desk;
            self.connections.push(index, pending, sent_ns, desk, clock);
            woken.push(index);
        }
        woken.sort_unstable();
        woken.dedup();
        for &index in &woken {
            self.flush(index, clock)?;
        }
        woken.clear();
        self.woken = woken;
        Ok(())
    }

    /// How long to sleep: until the next request is due, unless every connection is taken.
    fn patience(&self, clock: &Clock) -> Duration {
        const LONG: Duration = Duration::from_millis(5);
        if self.spin {
            return Duration::ZERO;
        }
        let has_room = |arrivals: &&Arrivals| !arrivals.open.is_empty();
        let next_ns = match (self.arrivals.as_ref().filter(has_room), &self.thinkers) {
            (Some(arrivals), _) => arrivals.next_ns(),
            (None, Some(thinkers)) => thinkers.next_ns(),
            (None, None) => return LONG,
        };
        Duration::from_nanos(next_ns.saturating_sub(clock.now_ns())).min(LONG)
    }

    fn serve(&mut self, ready: Ready, clock: &Clock) -> Result<(), LoadError> {
        let index = ready.connection;
        if ready.writable {
            self.flush(index, clock)?;
        }
        if !ready.readable {
            return Ok(());
        }
        let before = self.connections.load(index);
        let received = self.connections.receive(index, &mut self.desk, clock);
        self.desk.settle();
        let now_ns = received?;
        if self.is_greedy() {
            return self.refill(index, clock);
        }
        self.flush(index, clock)?;
        let after = self.connections.load(index);
        if before >= self.pipeline && after < self.pipeline {
            self.reopen(index);
        }
        if let Some(thinkers) = &mut self.thinkers {
            (after..before).for_each(|_| thinkers.think(index, now_ns));
        }
        Ok(())
    }

    /// Closed loop: as many new requests as there is room for, sent at once.
    fn refill(&mut self, index: usize, clock: &Clock) -> Result<(), LoadError> {
        let now_ns = clock.now_ns();
        for _ in self.connections.load(index)..self.pipeline {
            let pending = Pending::new(self.asker.draw(now_ns), now_ns);
            let desk = &self.desk;
            self.connections.push(index, pending, now_ns, desk, clock);
        }
        self.flush(index, clock)
    }

    fn send(
        &mut self,
        index: usize,
        pending: Pending,
        now_ns: u64,
        clock: &Clock,
    ) -> Result<(), LoadError> {
        let desk = &self.desk;
        self.connections.push(index, pending, now_ns, desk, clock);
        self.flush(index, clock)
    }

    fn flush(&mut self, index: usize, clock: &Clock) -> Result<(), LoadError> {
        self.connections.flush(index, &self.desk, clock)
    }

    /// What is not answered at an open loop's end counts with the time it has waited. A closed loop
    /// always has requests under way at its end: of these, those count that are overdue.
    fn give_up(&mut self, now_ns: u64) {
        let left = self.connections.drain();
        match &mut self.arrivals {
            Some(arrivals) => {
                for pending in arrivals.waiting.drain(..).chain(left) {
                    self.desk.unfinished(&pending, now_ns);
                }
            }
            None => {
                let overdue = |pending: &&Pending| pending.has_waited(GRACE_NS, now_ns);
                for pending in left.iter().filter(overdue) {
                    self.desk.unfinished(pending, now_ns);
                }
            }
        }
    }
}
