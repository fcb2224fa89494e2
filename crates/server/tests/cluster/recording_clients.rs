//! Clients whose histories are checked: each talks to any node, and records which outcomes it does
//! not know.
//!
//! A request that is not answered as wished is sent once more, to another node, if the plan says
//! so; the first attempt is then an operation of its own that may happen at any time, or never.

use std::{
    io,
    net::SocketAddr,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_history::{Action, Entry, Outcome};
use curtail_testing::{Connection, together};
use curtail_types::Instant;
use curtail_workload::Random;

use crate::{
    memcached_datagrams::Datagrams,
    native_clients::Native,
    support::{Protocol, Shape},
};

/// What happens meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) shape: Shape,
    pub(crate) clients: u32,
    pub(crate) keys: u64,
    /// The number of the first of them.
    pub(crate) first_key: u64,
    /// How long a client waits for a reply.
    pub(crate) reply: Duration,
    pub(crate) lasts: Duration,
    /// Between two requests of a session.
    pub(crate) pace: Duration,
    /// Between two requests of a client that asks for anything.
    pub(crate) pause: Duration,
    /// Keys become hot and cease to be.
    pub(crate) churns: bool,
    pub(crate) nodes: Nodes,
    /// Native datagrams get lost, arrive twice, and long after their time.
    pub(crate) loses: bool,
}

/// What becomes of nodes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Nodes {
    /// Nothing.
    Stay,
    /// One after the other dies and comes back.
    Die,
    /// One after the other is asked to leave, ends, and is started again. Clients send once more
    /// what was not answered as wished.
    Restart,
}

/// What the clients of a run share.
pub(crate) struct Run {
    pub(crate) addresses: Mutex<Vec<Option<SocketAddr>>>,
    pub(crate) started: Clock,
    pub(crate) next_value: AtomicU64,
    pub(crate) done: AtomicBool,
    pub(crate) plan: Plan,
    /// Attempts, and requests whose every attempt failed.
    pub(crate) attempts_failed: AtomicU64,
    pub(crate) requests_failed: AtomicU64,
}

/// One client: a connection to each node that it has talked to.
pub(crate) struct Caller<'a> {
    run: &'a Run,
    number: u32,
    random: Random,
    connections: Vec<Option<(SocketAddr, Link)>>,
    /// The node that was asked last.
    last: usize,
    /// The last attempt failed: the next one goes to another node.
    avoids: bool,
    /// The node that it keeps to, if to any.
    only: Option<usize>,
    entries: Vec<Entry>,
}

/// The answer of a node that does nothing now.
const NOT_IN_SERVICE: &str = "SERVER_ERROR this node is not in service";

/// Between two requests of a client that asks for one key.
const PACE: Duration = Duration::from_millis(5);

/// What a client does that asks for one key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallFor {
    /// It reads.
    Reads,
    /// It writes.
    Writes,
    /// It does both in turn.
    Both,
}

/// A way to a node.
enum Link {
    Stream(Connection),
    Datagrams(Datagrams),
    Native(Box<Native>),
}

impl Link {
    fn to(address: SocketAddr, plan: &Plan) -> io::Result<Self> {
        Ok(match plan.shape.protocol {
            Protocol::Streams => Self::Stream(Connection::to(address, plan.reply)?),
            Protocol::Datagrams => Self::Datagrams(Datagrams::to(address, plan.reply)?),
            Protocol::Native => {
                let native = Native::to(address, plan.reply, plan.loses)?;
                Self::Native(Box::new(native))
            }
        })
    }

    fn ask(&mut self, request: &str) -> Option<String> {
        match self {
            Self::Stream(connection) => connection.ask(request).ok(),
            Self::Datagrams(datagrams) => datagrams.first_line(request),
            Self::Native(native) => native.first_line(request),
        }
    }

    fn line(&mut self) -> Option<String> {
        match self {
            Self::Stream(connection) => connection.line().ok(),
            Self::Datagrams(datagrams) => datagrams.line(),
            Self::Native(native) => native.line(),
        }
    }
}

/// What came of one attempt.
enum Attempt<T> {
    Answered(T),
    /// Nothing has happened, for certain.
    Refused,
    Unknown,
}

/// Ends the clients of a run, even if the test fails.
pub(crate) struct End<'a>(pub(crate) &'a Run);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Relaxed);
    }
}

impl Run {
    pub(crate) fn new(plan: Plan, addresses: Vec<Option<SocketAddr>>) -> Self {
        Self {
            addresses: Mutex::new(addresses),
            started: Clock::now(),
            next_value: AtomicU64::new(1),
            done: AtomicBool::new(false),
            plan,
            attempts_failed: AtomicU64::new(0),
            requests_failed: AtomicU64::new(0),
        }
    }

    /// What all clients note, of which each does `client`, until `meanwhile` is over.
    pub(crate) fn record<T: Send>(
        &self,
        client: impl Fn(u32) -> Vec<T> + Sync,
        meanwhile: impl FnOnce(),
    ) -> Vec<T> {
        let clients = self.plan.clients as usize;
        thread::scope(|scope| {
            let clients = scope.spawn(|| together(clients, |number| client(number as u32)));
            let end = End(self);
            meanwhile();
            drop(end);
            clients.join().unwrap().into_iter().flatten().collect()
        })
    }
}

impl<'a> Caller<'a> {
    pub(crate) fn new(run: &'a Run, number: u32, seed: u64, only: Option<usize>) -> Self {
        Self {
            run,
            number,
            random: Random::of_stream(seed, number.into()),
            connections: Vec::new(),
            last: 0,
            avoids: false,
            only,
            entries: Vec::new(),
        }
    }

    pub(crate) fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    pub(crate) fn call(self) -> Vec<Entry> {
        let Plan {
            first_key, keys, ..
        } = self.run.plan;
        self.call_among(first_key..first_key + keys)
    }

    /// Asks for any of these keys, anything.
    pub(crate) fn call_among(mut self, keys: Range<u64>) -> Vec<Entry> {
        while !self.run.done.load(Ordering::Relaxed) {
            if !self.run.plan.pause.is_zero() {
                thread::sleep(self.run.plan.pause);
            }
            let key = keys.start + self.draw(keys.end - keys.start);
            match self.draw(10) {
                0..4 => self.read(key),
                4..7 => self.set(key),
                7 => {
                    let value = self.value();
                    self.write(
                        key,
                        Action::Insert(value),
                        format!("add k{key} 0 0 20\r\n{value:020}\r\n"),
                    );
                }
                8 => self.compare_and_set(key),
                _ => self.write(key, Action::Delete, format!("delete k{key}\r\n")),
            }
        }
        self.entries
    }

    /// Asks for one key again and again, or writes it, or both in turn.
    pub(crate) fn call_for(mut self, key: u64, what: CallFor) -> Vec<Entry> {
        for turn in 0_u32.. {
            if self.run.done.load(Ordering::Relaxed) {
                break;
            }
            match what {
                CallFor::Reads => self.read(key),
                CallFor::Both if turn.is_multiple_of(2) => self.read(key),
                CallFor::Writes | CallFor::Both => self.set(key),
            }
            thread::sleep(PACE);
        }
        self.entries
    }

    fn set(&mut self, key: u64) {
        let value = self.value();
        let request = format!("set k{key} 0 0 20\r\n{value:020}\r\n");
        self.write(key, Action::Write(value), request);
    }

    pub(crate) fn value(&self) -> u64 {
        self.run.next_value.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Instant {
        let ns = self.run.started.elapsed().as_nanos();
        Instant { ns: ns as u64 }
    }

    fn read(&mut self, key: u64) {
        self.attempt(|caller| {
            let invoked = caller.now();
            let Some((value, _)) = caller.look(key) else {
                return Attempt::Refused;
            };
            let outcome = value.map_or(Outcome::Missing, Outcome::Value);
            caller.note(key, invoked, Action::Read, Some(outcome));
            Attempt::Answered(())
        });
    }

    /// Does something once, or twice if the first time fails and the plan allows for it.
    fn attempt<T>(&mut self, mut once: impl FnMut(&mut Self) -> Attempt<T>) -> Option<T> {
        let attempts = match self.run.plan.nodes {
            Nodes::Restart => 2,
            Nodes::Stay | Nodes::Die => 1,
        };
        for _ in 0..attempts {
            match once(self) {
                Attempt::Answered(answer) => {
                    self.avoids = false;
                    return Some(answer);
                }
                Attempt::Refused | Attempt::Unknown => {
                    self.avoids = true;
                    self.run.attempts_failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.avoids = false;
        self.run.requests_failed.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// The value of a key and its version; nothing if no answer came.
    pub(crate) fn look(&mut self, key: u64) -> Option<(Option<u64>, u64)> {
        let head = self.ask(&format!("mg k{key} c v\r\n"))?;
        let mut words = head.split_whitespace();
        match words.next() {
            Some("EN") => Some((None, 0)),
            Some("VA") => {
                let version = words.nth(1).and_then(|word| word.strip_prefix('c'));
                let line = self.line()?;
                let number = |text: &str| text.parse().ok();
                match (number(&line), version.and_then(number)) {
                    (Some(value), Some(version)) => Some((Some(value), version)),
                    _ => panic!("{head:?} and {line:?} for k{key}"),
                }
            }
            _ => no_answer(&head),
        }
    }

    fn compare_and_set(&mut self, key: u64) {
        let seen = self.attempt(|caller| match caller.look(key) {
            Some(seen) => Attempt::Answered(seen),
            None => Attempt::Refused,
        });
        let Some((Some(expected), version)) = seen else {
            return;
        };
        let new = self.value();
        let action = Action::CompareAndSet { expected, new };
        self.write(
            key,
            action,
            format!("cas k{key} 0 0 20 {version}\r\n{new:020}\r\n"),
        );
    }

    fn write(&mut self, key: u64, action: Action, request: String) {
        self.attempt(|caller| {
            let invoked = caller.now();
            let outcome = match caller.ask(&request).as_deref() {
                Some("STORED" | "DELETED") => Some(Outcome::Done),
                Some("NOT_STORED" | "EXISTS") => Some(Outcome::Refused),
                Some("NOT_FOUND") => Some(Outcome::Missing),
                Some(NOT_IN_SERVICE) => return Attempt::Refused,
                Some(other) => {
                    println!("{:?}: {request:?}: {other}", caller.run.started.elapsed());
                    no_answer(other)
                }
                None => None,
            };
            caller.note(key, invoked, action, outcome);
            outcome.map_or(Attempt::Unknown, |_| Attempt::Answered(()))
        });
    }

    fn note(&mut self, key: u64, invoked: Instant, action: Action, outcome: Option<Outcome>) {
        let returned = outcome.map(|outcome| (self.now(), outcome));
        let client = match returned {
            Some(_) => self.number,
            // What has no end is no part of what its client did next.
            None => 1000 + self.entries.len() as u32 * 100 + self.number,
        };
        self.entries.push(Entry {
            client,
            key,
            invoked,
            action,
            returned,
        });
    }

    /// Sends a request to some node and takes a line; nothing if that cannot be.
    pub(crate) fn ask(&mut self, request: &str) -> Option<String> {
        let nodes = self.run.plan.shape.nodes;
        let drawn = match self.avoids {
            true => (self.last + 1 + self.draw(nodes as u64 - 1) as usize) % nodes,
            false => self.draw(nodes as u64) as usize,
        };
        let node = self.only.unwrap_or(drawn);
        self.last = node;
        let address = self.run.addresses.lock().unwrap()[node];
        let Some(address) = address else {
            thread::sleep(Duration::from_millis(1));
            return Some(NOT_IN_SERVICE.into());
        };
        self.connections.resize_with(nodes, || None);
        if self.connections[node]
            .as_ref()
            .is_none_or(|(to, _)| *to != address)
        {
            let Ok(connection) = Link::to(address, &self.run.plan) else {
                thread::sleep(Duration::from_millis(1));
                return Some(NOT_IN_SERVICE.into());
            };
            self.connections[node] = Some((address, connection));
        }
        let (_, connection) = self.connections[node].as_mut()?;
        let line = connection.ask(request);
        if line.is_none() {
            self.connections[node] = None;
        }
        line
    }

    /// The next line of the reply whose first was taken last.
    fn line(&mut self) -> Option<String> {
        let (_, connection) = self.connections[self.last].as_mut()?;
        connection.line()
    }
}

/// What a server cannot do it says; anything else is no answer to what was asked.
fn no_answer<T>(line: &str) -> Option<T> {
    assert!(line.starts_with("SERVER_ERROR "), "{line:?}");
    None
}
