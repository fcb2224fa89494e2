//! Sessions of the native protocol in place of connections.
//!
//! Each session is a link of the client library that the thread drives; `pipeline` is how many of
//! its slots are used. A request whose window is closed waits here, and its latency goes on
//! counting.
//!
//! ```text
//!   held --> Link (window, slots) --> desk
//!     ^ follow-ups, and requests that found the window closed
//! ```

use std::{collections::VecDeque, ops::Range, time::Duration};

use curtail_client::{ClientError, Command, Config, Event, Link, Status, WhenFull};
use curtail_workload::Kind;
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    Clock, Plan, epoch_ns,
    generated_when_due::Connections,
    request_accounting::{Answer, Desk, Pending},
    socket::{Ready, timespec},
};
use crate::{
    error::LoadError,
    measure::NativeRecord,
    request_source::{Request, Wording},
    stop::Stop,
    terminal::Progress,
    text_protocol::{Reply, TTL_S_MAX},
};

/// Slots of a session.
pub(super) const SLOTS: u8 = 64;

/// The sessions of a thread.
pub(super) struct Sessions {
    lanes: Vec<Lane>,
    record: Box<NativeRecord>,
    ready: Vec<usize>,
}

/// One session.
struct Lane {
    link: Link,
    /// By ticket.
    under_way: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// What waits for a slot or a window.
    held: VecDeque<Pending>,
    /// Room for a key and a value.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Sessions {
    pub(super) fn open(plan: &Plan, thread: usize) -> Result<Self, LoadError> {
        let lane = |_| {
            Ok(Lane {
                link: open(&plan.target, plan.when_full)?,
                under_way: vec![None; plan.pipeline],
                free: (0..plan.pipeline).rev().collect(),
                held: VecDeque::with_capacity(plan.pipeline),
                key: Vec::new(),
                value: Vec::new(),
            })
        };
        let lanes = (0..plan.connections_of(thread)).map(lane);
        Ok(Self {
            lanes: lanes.collect::<Result<_, LoadError>>()?,
            record: Box::new(NativeRecord::new()?),
            ready: Vec::new(),
        })
    }
}

impl Connections for Sessions {
    fn count(&self) -> usize {
        self.lanes.len()
    }

    fn load(&self, index: usize) -> usize {
        let lane = &self.lanes[index];
        lane.under_way.len() - lane.free.len() + lane.held.len()
    }

    fn push(&mut self, index: usize, pending: Pending, _: u64, _: &Desk, _: &Clock) {
        self.lanes[index].held.push_back(pending);
    }

    /// One request whose queue is full must not hold back the others.
    fn flush(&mut self, index: usize, desk: &Desk, clock: &Clock) -> Result<(), LoadError> {
        let lane = &mut self.lanes[index];
        for _ in 0..lane.held.len() {
            let Some(pending) = lane.held.pop_front() else {
                break;
            };
            if let Some(back) = lane.submit(pending, desk, clock)? {
                lane.held.push_back(back);
            }
        }
        self.record.waits(lane.held.len());
        lane.link.flush().map_err(network("sending"))
    }

    /// A window may have opened.
    fn resume(&mut self, desk: &Desk, clock: &Clock) -> Result<(), LoadError> {
        (0..self.lanes.len()).try_for_each(|index| self.flush(index, desk, clock))
    }

    fn wait(&mut self, patience: Duration) -> Result<usize, LoadError> {
        let due = self.lanes.iter().filter_map(|lane| {
            let left_ns = lane.link.deadline()?.ns.saturating_sub(lane.link.now().ns);
            Some(Duration::from_nanos(left_ns))
        });
        let timeout = timespec(due.fold(patience, Duration::min));
        let mut sockets = Vec::with_capacity(self.lanes.len());
        let mut owners = Vec::with_capacity(self.lanes.len());
        for (index, lane) in self.lanes.iter().enumerate() {
            let (datagrams, stream) = lane.link.sockets();
            for socket in std::iter::once(datagrams).chain(stream) {
                sockets.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
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
        self.ready.clear();
        self.ready.extend(ready.map(|(_, index)| *index));
        self.ready.dedup();
        Ok(self.ready.len())
    }

    fn ready(&self, number: usize) -> Ready {
        Ready {
            connection: self.ready[number],
            readable: true,
            writable: false,
        }
    }

    fn receive(&mut self, index: usize, desk: &mut Desk, clock: &Clock) -> Result<u64, LoadError> {
        let Lane {
            link,
            under_way,
            free,
            held,
            ..
        } = &mut self.lanes[index];
        let record = &mut self.record;
        link.turn(Duration::ZERO, &mut |event| {
            let Some(ticket) = event.ticket().map(|ticket| ticket as usize) else {
                return;
            };
            let Some(pending) = under_way.get_mut(ticket).and_then(Option::take) else {
                return;
            };
            free.push(ticket);
            let is_read = !pending.request.verb.is_write();
            let Some((answer, credits)) = answer(is_read, &event) else {
                return;
            };
            let now_ns = clock.now_ns();
            if let Some(credits) = credits.filter(|_| desk.recorder.measures(now_ns)) {
                record.credits(credits);
            }
            if let Event::Failed { error, .. } = &event {
                record.failed(error);
            }
            held.extend(desk.answered(&pending, &answer, now_ns));
        })
        .map_err(network("receiving"))?;
        Ok(clock.now_ns())
    }

    fn drain(&mut self) -> Vec<Pending> {
        let of_lane = |lane: &mut Lane| {
            let under_way = lane.under_way.iter_mut().filter_map(Option::take);
            under_way.chain(lane.held.drain(..)).collect::<Vec<_>>()
        };
        self.lanes.iter_mut().flat_map(of_lane).collect()
    }

    fn record(&mut self) -> Option<Box<NativeRecord>> {
        for lane in &self.lanes {
            self.record.session(lane.link.counts());
        }
        Some(self.record.clone())
    }
}

impl Lane {
    /// Submits a request; gives it back if there is no room now.
    fn submit(
        &mut self,
        mut pending: Pending,
        desk: &Desk,
        clock: &Clock,
    ) -> Result<Option<Pending>, LoadError> {
        let Some(ticket) = self.free.last().copied() else {
            return Ok(Some(pending));
        };
        desk.begins(&mut pending, clock.now_ns(), clock);
        let request = &pending.request;
        self.key.clear();
        self.value.clear();
        desk.wording.put_key(request, &mut self.key);
        if request.verb.has_value() {
            let version = pending.proof.version;
            desk.wording.put_value(request, version, &mut self.value);
        }
        let mut command = command(request, &self.key, &self.value, pending.token);
        if desk.is_marked(request) {
            command = command.marked();
        }
        match self.link.submit(&command, ticket as u64) {
            Ok(()) => {
                self.free.pop();
                self.under_way[ticket] = Some(pending);
                Ok(None)
            }
            Err(ClientError::Busy) => Ok(Some(pending)),
            Err(error) => Err(LoadError::Protocol(error.to_string())),
        }
    }
}

fn command<'a>(request: &Request, key: &'a [u8], value: &'a [u8], token: u64) -> Command<'a> {
    let command = match request.verb {
        Kind::Add => Command::add(key, value),
        Kind::Replace => Command::replace(key, value),
        Kind::Append => return Command::append(key, value),
        Kind::Prepend => return Command::prepend(key, value),
        Kind::Cas => Command::set(key, value).if_version(token),
        Kind::Delete => Command::delete(key),
        Kind::Increment => Command::increment(key, 1),
        Kind::Decrement => Command::decrement(key, 1),
        verb if verb.is_write() => Command::set(key, value),
        _ => Command::get(key),
    };
    match request.verb.has_value() && !request.begins_counter() {
        true => command.expires(request.ttl_s.min(TTL_S_MAX)),
        false => command,
    }
}

/// How a request ended, and the credits of an acknowledged write; `None` if it goes on.
fn answer<'a>(is_read: bool, event: &Event<'a>) -> Option<(Answer<'a>, Option<u32>)> {
    let (reply, value, credits) = match event {
        Event::Accepted { accepted, .. } => (Reply::Done, None, Some(accepted.place.credits)),
        Event::Answered { outcome, .. } => {
            let token = outcome.version;
            let value_bytes = outcome.value.len();
            let reply = match outcome.status {
                Status::Value => Reply::Hit { value_bytes, token },
                Status::NotFound if is_read => Reply::Miss,
                Status::Done | Status::Executed => Reply::Done,
                Status::NotFound | Status::NotStored | Status::Exists => Reply::Refused,
                _ => Reply::Error,
            };
            let credits = (!is_read).then_some(outcome.place.credits);
            (reply, Some(outcome.value), credits)
        }
        Event::Failed { .. } => (Reply::Error, None, None),
        Event::Durable { .. } => return None,
    };
    let answer = Answer {
        reply,
        value,
        is_accepted: matches!(event, Event::Accepted { .. }),
        is_unknown: matches!(event, Event::Failed { error, .. } if error.may_have_happened()),
    };
    Some((answer, credits))
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
