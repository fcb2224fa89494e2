//! The driver of the native protocol: sessions in place of connections.
//!
//! Each session is a link of the client library that this thread drives; `pipeline` is how many of
//! its slots are used. A request whose window is closed waits here, and its latency goes on
//! counting. Closed and open loop mean the same as in the general driver.
//!
//! ```text
//!   arrivals --> waiting --> lane.held --> Link (window, slots) --> recorder
//!                              ^ follow-ups, and requests that found the window closed
//! ```

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use curtail_client::{ClientError, Command, Config, Event, Link, Status, WhenFull};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    Clock, Ended, Plan, Session, Stall,
    arrivals::{Arrivals, Thinkers, is_over, next_ns},
    epoch_ns,
};
use crate::{
    error::LoadError,
    load::{Asker, Marking, Request, Then, Wording},
    measure::{NativeRecord, Operation, Recorder, Times},
    protocol::{Reply, Verb},
    stop::Stop,
    terminal::Progress,
    verify::{Fault, Proof, Versions},
};

/// Slots of a session.
pub(super) const SLOTS: u8 = 64;

/// One thread of the native driver.
pub(super) struct Native {
    asker: Asker,
    lanes: Vec<Lane>,
    desk: Desk,
    pipeline: usize,
    spin: bool,
    arrivals: Option<Arrivals<Pending>>,
    thinkers: Option<Thinkers>,
    stall: Option<Stall>,
    /// When the run ends; earlier than planned when somebody asks.
    end_ns: u64,
}

/// One session.
struct Lane {
    link: Link,
    /// By ticket.
    under_way: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// What waits for a slot or a window.
    held: VecDeque<Pending>,
}

/// What all lanes share: how requests are worded and recorded.
struct Desk {
    wording: Wording,
    marking: Marking,
    recorder: Recorder,
    record: NativeRecord,
    versions: Option<Arc<Versions>>,
    /// Room for a key and a value.
    key: Vec<u8>,
    value: Vec<u8>,
    /// Requests that follow from what was just answered.
    follow_ups: Vec<Pending>,
}

#[derive(Clone, Copy)]
struct Pending {
    request: Request,
    intended_ns: u64,
    /// 0 until it is sent.
    sent_ns: u64,
    /// What a compare-and-swap compares with.
    token: u64,
    proof: Proof,
    /// The first value of a counter.
    is_counter: bool,
}

/// memcached takes a longer time to live for a date.
const TTL_S_MAX: u32 = 30 * 86_400;

impl Pending {
    fn new(request: Request, intended_ns: u64) -> Self {
        Self {
            request,
            intended_ns,
            sent_ns: 0,
            token: 0,
            proof: Proof::default(),
            is_counter: false,
        }
    }
}

impl Native {
    pub(super) fn new(plan: &Plan, session: &Session, thread: usize) -> Result<Self, LoadError> {
        let lane = |_| {
            Ok(Lane {
                link: open(&plan.target, plan.when_full)?,
                under_way: (0..plan.pipeline).map(|_| None).collect(),
                free: (0..plan.pipeline).rev().collect(),
                held: VecDeque::with_capacity(plan.pipeline),
            })
        };
        let lanes = (0..plan.connections_of(thread)).map(lane);
        Ok(Self {
            asker: plan.load.asker(plan.seed, thread, plan.threads),
            lanes: lanes.collect::<Result<_, LoadError>>()?,
            desk: Desk {
                wording: plan.load.wording(),
                marking: plan.load.marking,
                recorder: plan.recorder()?,
                record: NativeRecord::new()?,
                versions: session.versions.clone().filter(|_| plan.load.verify),
                key: Vec::new(),
                value: Vec::new(),
                follow_ups: Vec::new(),
            },
            pipeline: plan.pipeline,
            spin: plan.spin,
            arrivals: Arrivals::new(plan, thread),
            thinkers: Thinkers::new(plan, thread),
            stall: plan.stall,
            end_ns: 0,
        })
    }

    pub(super) fn run(mut self, clock: &Clock) -> Ended {
        let result = self.drive(clock);
        self.give_up(clock.now_ns());
        for lane in &self.lanes {
            self.desk.record.session(lane.link.counts());
        }
        let Desk {
            mut recorder,
            record,
            ..
        } = self.desk;
        recorder.native = Some(Box::new(record));
        clock.ended(result, recorder)
    }

    fn drive(&mut self, clock: &Clock) -> Result<(), LoadError> {
        self.end_ns = clock.end_ns;
        loop {
            let now_ns = clock.now_ns();
            if clock.is_stopped() {
                self.end_ns = self.end_ns.min(now_ns);
            }
            if self.is_over(now_ns) {
                return Ok(());
            }
            self.admit(now_ns, clock)?;
            self.wake(now_ns, clock);
            for index in 0..self.lanes.len() {
                self.send(index, clock)?;
            }
            let patience = self.patience(clock);
            for index in self.wait(patience)? {
                self.serve(index, clock)?;
            }
            Stall::happen(&mut self.stall, clock);
        }
    }

    /// A closed loop that does not think: an answer is the occasion of the next request.
    fn is_greedy(&self) -> bool {
        self.arrivals.is_none() && self.thinkers.is_none()
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let all_idle = || self.lanes.iter().all(|lane| lane.load() == 0);
        is_over(self.arrivals.as_ref(), (now_ns, self.end_ns), all_idle)
    }

    /// Open loop: draws what is due and gives it to sessions with room.
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
            if sent >= waiting_before {
                let sent_ns = clock.now_ns();
                self.desk.recorder.late(pending.intended_ns, sent_ns);
            }
            sent += 1;
            let lane = &mut self.lanes[index];
            lane.held.push_back(pending);
            let has_room = lane.load() < self.pipeline;
            self.send(index, clock)?;
            if let (Some(arrivals), true) = (&mut self.arrivals, has_room) {
                arrivals.open.push_back(index);
            }
        }
        // What waits from now on waits for the server: the driver has done its part.
        let noticed = sent.max(waiting_before) - sent;
        if let Some(arrivals) = &self.arrivals {
            for pending in arrivals.waiting.iter().skip(noticed) {
                self.desk.recorder.late(pending.intended_ns, now_ns);
            }
        }
        Ok(())
    }

    /// Closed loop with thinking: a request for every slot that has thought.
    fn wake(&mut self, now_ns: u64, clock: &Clock) {
        while let Some((due_ns, index)) = self
            .thinkers
            .as_mut()
            .and_then(|thinkers| thinkers.take(now_ns))
        {
            self.desk.recorder.late(due_ns, clock.now_ns());
            let request = self.asker.draw(due_ns);
            self.lanes[index]
                .held
                .push_back(Pending::new(request, due_ns));
        }
    }

    /// Submits what a session holds, and fills it up in a greedy loop.
    fn send(&mut self, index: usize, clock: &Clock) -> Result<(), LoadError> {
        let greedy = self.is_greedy();
        let lane = &mut self.lanes[index];
        let now_ns = clock.now_ns();
        while greedy && lane.load() < self.pipeline {
            let request = self.asker.draw(now_ns);
            lane.held.push_back(Pending::new(request, now_ns));
        }
        // One whose queue is full must not hold back the others.
        for _ in 0..lane.held.len() {
            let Some(pending) = lane.held.pop_front() else {
                break;
            };
            if let Some(back) = self.desk.submit(lane, pending, clock)? {
                lane.held.push_back(back);
            }
        }
        self.desk.record.waits(lane.held.len());
        lane.link.flush().map_err(network("sending"))
    }

    /// How long to sleep: until the next request or a session is due.
    fn patience(&self, clock: &Clock) -> Duration {
        const LONG: Duration = Duration::from_millis(5);
        if self.spin {
            return Duration::ZERO;
        }
        let next_ns = next_ns(self.arrivals.as_ref(), self.thinkers.as_ref()).unwrap_or(u64::MAX);
        let mut patience = Duration::from_nanos(next_ns.saturating_sub(clock.now_ns())).min(LONG);
        for lane in &self.lanes {
            if let Some(deadline) = lane.link.deadline() {
                let left_ns = deadline.ns.saturating_sub(lane.link.now().ns);
                patience = patience.min(Duration::from_nanos(left_ns));
            }
        }
        patience
    }

    /// Sleeps until a session has something to do; which ones.
    fn wait(&self, patience: Duration) -> Result<Vec<usize>, LoadError> {
        let timeout = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let mut sockets = Vec::with_capacity(self.lanes.len());
        let mut owners = Vec::with_capacity(self.lanes.len());
        for (index, lane) in self.lanes.iter().enumerate() {
            let (datagrams, stream) = lane.link.sockets();
            sockets.push(PollFd::from_borrowed_fd(datagrams, PollFlags::IN));
            owners.push(index);
            if let Some(stream) = stream {
                sockets.push(PollFd::from_borrowed_fd(stream, PollFlags::IN));
                owners.push(index);
            }
        }
        match poll(&mut sockets, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(LoadError::machine("waiting for sockets")(error.into())),
        }
        let is_due = |index: &usize| {
            let link = &self.lanes[*index].link;
            let is_late = link.deadline().is_some_and(|at| at <= link.now());
            is_late || link.sockets().1.is_some()
        };
        let ready = sockets.iter().zip(&owners);
        let ready = ready.filter(|(socket, index)| !socket.revents().is_empty() || is_due(index));
        let mut ready: Vec<usize> = ready.map(|(_, index)| *index).collect();
        ready.dedup();
        Ok(ready)
    }

    fn serve(&mut self, index: usize, clock: &Clock) -> Result<(), LoadError> {
        let lane = &mut self.lanes[index];
        let before = lane.load();
        let Lane {
            link,
            under_way,
            free,
            ..
        } = lane;
        let desk = &mut self.desk;
        link.turn(Duration::ZERO, &mut |event| {
            let Some(ticket) = event.ticket().map(|ticket| ticket as usize) else {
                return;
            };
            if let Some(pending) = under_way.get_mut(ticket).and_then(Option::take) {
                free.push(ticket);
                desk.ended(&pending, &event, clock.now_ns());
            }
        })
        .map_err(network("receiving"))?;
        lane.held.extend(self.desk.follow_ups.drain(..));
        let after = lane.load();
        if let Some(arrivals) = &mut self.arrivals
            && before >= self.pipeline
            && after < self.pipeline
        {
            arrivals.open.push_back(index);
        }
        if let Some(thinkers) = &mut self.thinkers {
            let now_ns = clock.now_ns();
            (after..before).for_each(|_| thinkers.think(index, now_ns));
        }
        self.send(index, clock)
    }

    /// What is not answered at an open loop's end counts with the time it has waited.
    fn give_up(&mut self, now_ns: u64) {
        let Some(arrivals) = &mut self.arrivals else {
            return;
        };
        let lanes = self.lanes.iter_mut();
        let left = lanes.flat_map(|lane| {
            lane.under_way
                .iter_mut()
                .filter_map(Option::take)
                .chain(lane.held.drain(..))
        });
        for pending in arrivals.waiting.drain(..).chain(left) {
            let class = self.desk.hoped(&pending);
            let class = self.desk.recorder.class(class, pending.request.value_bytes);
            self.desk.recorder.unfinished(class, pending.times(now_ns));
        }
    }
}

impl Lane {
    /// Requests that are under way or held.
    fn load(&self) -> usize {
        self.under_way.len() - self.free.len() + self.held.len()
    }
}

impl Pending {
    fn times(&self, now_ns: u64) -> Times {
        Times {
            intended_ns: self.intended_ns,
            sent_ns: self.sent_ns,
            now_ns,
        }
    }
}

impl Desk {
    /// Submits a request; gives it back if there is no room now.
    fn submit(
        &mut self,
        lane: &mut Lane,
        mut pending: Pending,
        clock: &Clock,
    ) -> Result<Option<Pending>, LoadError> {
        let Some(ticket) = lane.free.last().copied() else {
            return Ok(Some(pending));
        };
        let now_ns = clock.now_ns();
        if pending.sent_ns == 0 {
            pending.proof = self.begins(&pending, clock.epoch_ns + now_ns);
        }
        pending.sent_ns = now_ns;
        self.word(&pending);
        let command = self.command(&pending);
        match lane.link.submit(&command, ticket as u64) {
            Ok(()) => {
                lane.free.pop();
                lane.under_way[ticket] = Some(pending);
                Ok(None)
            }
            Err(ClientError::Busy) => Ok(Some(pending)),
            Err(error) => Err(LoadError::Protocol(error.to_string())),
        }
    }

    fn begins(&self, pending: &Pending, version: u64) -> Proof {
        let Request { verb, key, .. } = pending.request;
        match &self.versions {
            Some(versions) if verb.is_read() => versions.read_begins(key),
            Some(versions) if !verb.counts() && !pending.is_counter => {
                versions.write_begins(key, version)
            }
            _ => Proof::default(),
        }
    }

    fn word(&mut self, pending: &Pending) {
        self.key.clear();
        self.value.clear();
        self.wording.put_key(&pending.request, &mut self.key);
        if pending.is_counter {
            self.value.push(b'0');
        } else if pending.request.verb.stores() {
            let version = pending.proof.version;
            self.wording
                .put_value(&pending.request, version, &mut self.value);
        }
    }

    fn command(&self, pending: &Pending) -> Command<'_> {
        let (key, value) = (&self.key, &self.value);
        let command = match pending.request.verb {
            _ if pending.is_counter => return Command::add(key, value),
            Verb::Get | Verb::Gets => Command::get(key),
            Verb::Set => Command::set(key, value),
            Verb::Add => Command::add(key, value),
            Verb::Replace => Command::replace(key, value),
            Verb::Append => return self.marked(pending, Command::append(key, value)),
            Verb::Prepend => return self.marked(pending, Command::prepend(key, value)),
            Verb::Cas => Command::set(key, value).if_version(pending.token),
            Verb::Delete => Command::delete(key),
            Verb::Increment => Command::increment(key, 1),
            Verb::Decrement => Command::decrement(key, 1),
        };
        let command = match pending.request.verb.stores() {
            true => command.expires(pending.request.ttl_s.min(TTL_S_MAX)),
            false => command,
        };
        self.marked(pending, command)
    }

    fn marked<'a>(&self, pending: &Pending, command: Command<'a>) -> Command<'a> {
        match self.is_marked(pending) {
            true => command.marked(),
            false => command,
        }
    }

    fn is_marked(&self, pending: &Pending) -> bool {
        let verb = pending.request.verb;
        match self.marking {
            _ if pending.is_counter || verb.is_read() => false,
            Marking::Sets => verb == Verb::Set,
            Marking::Writes => true,
            Marking::None => false,
        }
    }

    /// What a request will have been if all goes well.
    fn hoped(&self, pending: &Pending) -> Operation {
        let (value_bytes, token) = (0, 0);
        match pending.request.verb {
            _ if self.is_marked(pending) => Operation::Accepted,
            verb if verb.is_read() => Operation::of(verb, Reply::Hit { value_bytes, token }),
            verb => Operation::of(verb, Reply::Done),
        }
    }

    /// Records how a request ended.
    fn ended(&mut self, pending: &Pending, event: &Event<'_>, now_ns: u64) {
        let request = &pending.request;
        let (reply, credits) = match event {
            Event::Accepted { accepted, .. } => (Reply::Done, Some(accepted.place.credits)),
            Event::Answered { outcome, .. } => {
                let token = outcome.version;
                let value_bytes = outcome.value.len();
                let reply = match outcome.status {
                    Status::Value => Reply::Hit { value_bytes, token },
                    Status::NotFound if request.verb.is_read() => Reply::Miss,
                    Status::Done | Status::Executed => Reply::Done,
                    Status::NotFound | Status::NotStored | Status::Exists => Reply::Refused,
                    _ => Reply::Error,
                };
                let is_write = !request.verb.is_read();
                (reply, is_write.then_some(outcome.place.credits))
            }
            Event::Failed { error, .. } => {
                self.record.failed(error);
                (Reply::Error, None)
            }
            Event::Durable { .. } => return,
        };
        if let Some(credits) = credits.filter(|_| self.recorder.measures(now_ns)) {
            self.record.credits(credits);
        }
        let known = self.wording.lengths_are_known;
        let verb = match pending.is_counter {
            true => Verb::Add,
            false => request.verb,
        };
        let mut class = self.recorder.reply(verb, reply, request.value_bytes, known);
        if matches!(event, Event::Accepted { .. }) {
            class = self
                .recorder
                .class(Operation::Accepted, request.value_bytes);
        }
        self.recorder.latency(class, pending.times(now_ns), 1);
        self.verify(pending, event, reply);
        self.follow_up(pending, reply, now_ns);
    }

    /// Checks a value that came, or notes that a write ended.
    fn verify(&mut self, pending: &Pending, event: &Event<'_>, reply: Reply) {
        let Some(versions) = &self.versions else {
            return;
        };
        let Request { verb, key, .. } = pending.request;
        // A write of which nobody knows stays under way for ever: it may still take effect.
        let is_unknown = matches!(event, Event::Failed { error, .. } if error.may_have_happened());
        if !verb.is_read() {
            if pending.proof.version > 0 && !is_unknown {
                versions.write_ends(key, pending.proof, reply == Reply::Done);
            }
            return;
        }
        let (Reply::Hit { .. }, Event::Answered { outcome, .. }) = (reply, event) else {
            return;
        };
        let counts = &mut self.recorder.counts;
        counts.verified += 1;
        match versions.read_ends(key, pending.proof, outcome.value) {
            Ok(()) => {}
            Err(Fault::Torn) => counts.torn += 1,
            Err(Fault::Foreign) => counts.foreign += 1,
            Err(Fault::Stale) => counts.stale += 1,
        }
    }

    /// The second request of an operation, in the same session.
    fn follow_up(&mut self, pending: &Pending, reply: Reply, now_ns: u64) {
        let request = &pending.request;
        if request.verb.counts() && !pending.is_counter && reply == Reply::Refused {
            let is_counter = true; // counters do not begin by themselves
            let request = Request {
                then: Then::Nothing,
                ..*request
            };
            self.follow_ups.push(Pending {
                is_counter,
                ..Pending::new(request, now_ns)
            });
            return;
        }
        let (hit, token) = match reply {
            Reply::Hit { token, .. } => (true, token),
            Reply::Miss => (false, 0),
            _ => return,
        };
        if let Some(next) = request.follow_up(hit) {
            self.follow_ups.push(Pending {
                token,
                ..Pending::new(next, now_ns)
            });
        }
    }
}

/// Stores a range of keys in one session; how many were refused.
pub(crate) fn store(
    target: &str,
    wording: &Wording,
    keys: Range<u64>,
    progress: &Progress,
    stop: &Stop,
) -> Result<u64, LoadError> {
    let mut link = open(target, WhenFull::Credits)?;
    let version = epoch_ns();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let (mut sent, mut done, mut refused) = (keys.start, keys.start, 0);
    while done < keys.end && !stop.is_asked() {
        let before = done;
        while sent < keys.end {
            let request = wording.store(sent);
            key.clear();
            value.clear();
            wording.put_key(&request, &mut key);
            wording.put_value(&request, version, &mut value);
            let ttl_s = request.ttl_s.min(TTL_S_MAX);
            let command = Command::set(&key, &value).marked().expires(ttl_s);
            match link.submit(&command, sent) {
                Ok(()) => sent += 1,
                Err(ClientError::Busy) => break,
                Err(error) => return Err(LoadError::Protocol(error.to_string())),
            }
        }
        let turn = link.turn(Duration::from_millis(5), &mut |event| {
            if event.ticket().is_some() {
                done += 1;
                refused += u64::from(matches!(event, Event::Failed { .. }));
            }
        });
        turn.map_err(network("storing"))?;
        if before / 1024 != done / 1024 {
            progress.part(&keys, done - keys.start);
        }
    }
    Ok(refused)
}

fn open(target: &str, when_full: WhenFull) -> Result<Link, LoadError> {
    let config = Config {
        when_full,
        ..Config::default()
    };
    let link = Link::open(target, config);
    link.map_err(|error| LoadError::Protocol(format!("opening a session at {target}: {error}")))
}

fn network(doing: &'static str) -> impl FnOnce(ClientError) -> LoadError {
    move |error| LoadError::network(doing)(std::io::Error::other(error))
}
