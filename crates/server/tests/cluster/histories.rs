//! Whether every key stays linearizable on a cluster: histories of clients that talk to any node,
//! while keys become hot and cease to be, and nodes die and come back.
//!
//! An operation of which the client learns nothing is recorded as one that may happen at any time
//! after, or never. Short runs here; the long ones are behind `--ignored` and take
//! `CURTAIL_SECONDS` (60) each.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_history::{
    Action, Entry, History, Numbered, Outcome, Updates, Verdict, check_agreed, check_linearizable,
};
use curtail_server::Fault;
use curtail_types::Instant;

use crate::support::{Cluster, Shape};

/// What happens meanwhile.
#[derive(Clone, Copy, Debug)]
struct Plan {
    shape: Shape,
    clients: u32,
    keys: u64,
    lasts: Duration,
    /// Keys become hot and cease to be.
    churns: bool,
    /// A node dies and comes back, again and again.
    kills: bool,
}

/// What the clients of a run share.
struct Run {
    addresses: Mutex<Vec<Option<SocketAddr>>>,
    started: Clock,
    next_value: AtomicU64,
    done: AtomicBool,
    plan: Plan,
}

/// One client: a connection to each node that it has talked to.
struct Caller<'a> {
    run: &'a Run,
    number: u32,
    random: u64,
    connections: Vec<Option<(SocketAddr, BufReader<TcpStream>)>>,
    /// The node that answered last.
    last: usize,
    /// The node that it keeps to, if to any.
    only: Option<usize>,
    entries: Vec<Entry>,
}

/// How long a client waits for a reply.
const REPLY: Duration = Duration::from_secs(15);

/// Steps that the checker may take for one key.
const STEPS_MAX: u64 = 20_000_000;

impl Caller<'_> {
    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % below
    }

    fn call(mut self) -> Vec<Entry> {
        while !self.run.done.load(Ordering::Relaxed) {
            let key = self.draw(self.run.plan.keys);
            match self.draw(10) {
                0..4 => self.read(key),
                4..7 => {
                    let value = self.value();
                    self.write(
                        key,
                        Action::Write(value),
                        format!("set k{key} 0 0 20\r\n{value:020}\r\n"),
                    );
                }
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

    fn value(&self) -> u64 {
        self.run.next_value.fetch_add(1, Ordering::Relaxed)
    }

    fn now(&self) -> Instant {
        let ns = self.run.started.elapsed().as_nanos();
        Instant { ns: ns as u64 }
    }

    fn read(&mut self, key: u64) {
        let invoked = self.now();
        if let Some((value, _)) = self.look(key) {
            let outcome = value.map_or(Outcome::Missing, Outcome::Value);
            self.note(key, invoked, Action::Read, Some(outcome));
        }
    }

    /// The value of a key and its version; nothing if no answer came.
    fn look(&mut self, key: u64) -> Option<(Option<u64>, u64)> {
        let head = self.ask(&format!("mg k{key} c v\r\n"))?;
        let mut words = head.split_whitespace();
        match words.next() {
            Some("EN") => Some((None, 0)),
            Some("VA") => {
                let version = words.nth(1)?.strip_prefix('c')?.parse().ok()?;
                let value = self.line()?.trim_end().parse().ok()?;
                Some((Some(value), version))
            }
            _ => None,
        }
    }

    fn compare_and_set(&mut self, key: u64) {
        let Some((Some(expected), version)) = self.look(key) else {
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
        let invoked = self.now();
        let outcome = match self.ask(&request).as_deref().map(str::trim_end) {
            Some("STORED" | "DELETED") => Some(Outcome::Done),
            Some("NOT_STORED" | "EXISTS") => Some(Outcome::Refused),
            Some("NOT_FOUND") => Some(Outcome::Missing),
            Some("SERVER_ERROR this node is not in service") => return,
            _ => None,
        };
        self.note(key, invoked, action, outcome);
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
    fn ask(&mut self, request: &str) -> Option<String> {
        let nodes = self.run.plan.shape.nodes;
        let drawn = self.draw(nodes as u64) as usize;
        let node = self.only.unwrap_or(drawn);
        let address = self.run.addresses.lock().unwrap()[node];
        let Some(address) = address else {
            thread::sleep(Duration::from_millis(1));
            return Some("SERVER_ERROR this node is not in service\r\n".into());
        };
        self.connections.resize_with(nodes, || None);
        if self.connections[node]
            .as_ref()
            .is_none_or(|(to, _)| *to != address)
        {
            let stream = TcpStream::connect_timeout(&address, REPLY);
            let Ok(stream) = stream else {
                return Some("SERVER_ERROR this node is not in service\r\n".into());
            };
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(REPLY)).unwrap();
            self.connections[node] = Some((address, BufReader::new(stream)));
        }
        let (_, stream) = self.connections[node].as_mut()?;
        let sent = stream.get_mut().write_all(request.as_bytes());
        let line = sent.ok().and_then(|()| line_of(stream));
        self.last = node;
        if line.is_none() {
            self.connections[node] = None;
        }
        line
    }

    /// The next line of the reply whose first was taken last.
    fn line(&mut self) -> Option<String> {
        let (_, stream) = self.connections[self.last].as_mut()?;
        line_of(stream)
    }
}

fn line_of(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match stream.read_line(&mut line) {
        Ok(1..) => Some(line),
        _ => None,
    }
}

/// Runs clients against a cluster and returns what they saw.
fn record(plan: Plan, seed: u64) -> History {
    let mut cluster = Cluster::start(plan.shape);
    let run = Run {
        addresses: Mutex::new(cluster.addresses()),
        started: Clock::now(),
        next_value: AtomicU64::new(1),
        done: AtomicBool::new(false),
        plan,
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..plan.clients)
            .map(|number| {
                let run = &run;
                let caller = Caller {
                    run,
                    number,
                    random: (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                        ^ u64::from(number) << 32
                        | 1,
                    connections: Vec::new(),
                    last: 0,
                    only: None,
                    entries: Vec::new(),
                };
                scope.spawn(move || caller.call())
            })
            .collect();
        disturb(&mut cluster, &run);
        run.done.store(true, Ordering::Relaxed);
        let entries = clients.into_iter().map(|client| client.join().unwrap());
        entries.flatten().collect()
    })
}

/// Has everything happen that the plan says, until the run is over.
fn disturb(cluster: &mut Cluster, run: &Run) {
    let plan = run.plan;
    let mut dead: Option<(usize, Clock)> = None;
    for step in 0.. {
        if run.started.elapsed() > plan.lasts {
            return;
        }
        if plan.churns {
            cluster.change_hot(
                &format!("k{}", step % plan.keys),
                (step / plan.keys).is_multiple_of(2),
            );
        }
        if plan.kills {
            match dead {
                None if step % 400 == 399 => {
                    let dies = (step / 400) as usize % plan.shape.nodes;
                    run.addresses.lock().unwrap()[dies] = None;
                    cluster.nodes[dies] = None;
                    dead = Some((dies, Clock::now()));
                }
                Some((died, at)) if at.elapsed() > 3 * plan.shape.lease() => {
                    let again = cluster.node(died);
                    cluster.nodes[died] = Some(again);
                    *run.addresses.lock().unwrap() = cluster.addresses();
                    dead = None;
                }
                _ => {}
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn judge(plan: Plan, seed: u64) {
    let history = record(plan, seed);
    let known = history.len();
    let verdict = check_linearizable(&history, STEPS_MAX);
    println!(
        "{plan:?}, seed {seed}: {known} operations, {}",
        word(&verdict)
    );
    assert!(known > 50, "only {known} operations in {:?}", plan.lasts);
    assert!(
        !matches!(verdict, Verdict::Violation(_)),
        "{verdict:?}, seed {seed}"
    );
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Consistent => "consistent",
        Verdict::Violation(_) => "a violation",
        Verdict::TooHard { .. } => "too hard to judge",
    }
}

const PLAN: Plan = Plan {
    shape: Shape {
        nodes: 3,
        workers: 2,
        replicas: 1,
        model: "lin",
        lease_ms: 3000,
        fault: Fault::Nothing,
    },
    clients: 6,
    keys: 4,
    lasts: Duration::from_secs(3),
    churns: true,
    kills: false,
};

/// Goal: hot keys are linearizable while they become hot and cease to be. Method: six clients at
/// all nodes, four keys, a change every five milliseconds.
#[test]
fn hot_keys_are_linearizable_while_the_hot_set_changes() {
    judge(PLAN, 1);
}

/// Goal: so are keys with two holders, hot or not. Method: the same.
#[test]
fn keys_with_two_holders_are_linearizable() {
    let mut plan = PLAN;
    plan.shape.replicas = 2;
    judge(plan, 2);
}

/// Goal: the judge would notice. Method: nodes that show what is not everywhere yet.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn a_copy_shown_too_early_is_noticed() {
    let mut plan = PLAN;
    plan.shape.fault = Fault::ShowsUnsettled;
    let caught = (0..20).any(|seed| {
        let verdict = check_linearizable(&record(plan, seed), STEPS_MAX);
        matches!(verdict, Verdict::Violation(_))
    });
    assert!(caught, "twenty runs without a violation");
}

/// Goal: with two holders they stay so, and nothing acknowledged is lost, when nodes die and come
/// back. Method: one node after the other.
#[test]
fn keys_are_linearizable_while_nodes_die() {
    let mut plan = PLAN;
    plan.shape.replicas = 2;
    plan.kills = true;
    plan.lasts = Duration::from_secs(15);
    judge(plan, 3);
}

/// Goal: under sequential consistency all sessions agree on the order of a hot key's writes, and
/// none goes back. Method: sessions that keep to a node read and write, with the version of each
/// answer as its number; the hot set changes meanwhile.
#[test]
fn hot_keys_are_sequentially_consistent() {
    let mut plan = PLAN;
    plan.shape.model = "sc";
    let mut cluster = Cluster::start(plan.shape);
    let addresses = cluster.addresses();
    let run = Run {
        addresses: Mutex::new(addresses.clone()),
        started: Clock::now(),
        next_value: AtomicU64::new(1),
        done: AtomicBool::new(false),
        plan,
    };
    let numbered: Vec<Numbered> = thread::scope(|scope| {
        let sessions: Vec<_> = (0..plan.clients)
            .map(|number| {
                let (run, addresses) = (&run, &addresses);
                scope.spawn(move || session(run, number, addresses))
            })
            .collect();
        disturb(&mut cluster, &run);
        run.done.store(true, Ordering::Relaxed);
        let sessions = sessions.into_iter().map(|session| session.join().unwrap());
        sessions.flatten().collect()
    });
    println!("sequential: {} operations", numbered.len());
    assert!(numbered.len() > 50);
    assert_eq!(check_agreed(&numbered, Updates::Loose), Verdict::Consistent);
}

/// Reads and writes at one node, with the versions that it was told.
fn session(run: &Run, number: u32, addresses: &[Option<SocketAddr>]) -> Vec<Numbered> {
    let node = number as usize % addresses.len();
    let mut caller = Caller {
        run,
        number,
        random: u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        connections: Vec::new(),
        last: 0,
        only: Some(node),
        entries: Vec::new(),
    };
    let mut numbered = Vec::new();
    while !run.done.load(Ordering::Relaxed) {
        let key = caller.draw(run.plan.keys);
        let invoked = caller.now();
        let (action, outcome, version) = if caller.draw(3) == 0 {
            let value = caller.value();
            let request = format!("ms k{key} 20 c\r\n{value:020}\r\n");
            let answer = caller.ask(&request).unwrap();
            let version = answer
                .trim_end()
                .strip_prefix("HD c")
                .unwrap()
                .parse()
                .unwrap();
            (Action::Write(value), Outcome::Done, version)
        } else {
            let (value, version) = caller.look(key).unwrap();
            let outcome = value.map_or(Outcome::Missing, Outcome::Value);
            (Action::Read, outcome, version)
        };
        numbered.push(Numbered {
            entry: Entry {
                client: number,
                key,
                invoked,
                action,
                returned: Some((caller.now(), outcome)),
            },
            number: version,
            replaced: 0,
        });
    }
    numbered
}

/// The same for long, in several shapes.
#[test]
#[ignore = "minutes: CURTAIL_SECONDS for each of six shapes"]
fn for_long() {
    let seconds = std::env::var("CURTAIL_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(60);
    for (seed, (nodes, replicas, kills)) in [
        (3, 1, false),
        (3, 2, false),
        (3, 2, true),
        (5, 2, true),
        (8, 1, false),
        (5, 3, true),
    ]
    .into_iter()
    .enumerate()
    {
        let mut plan = PLAN;
        plan.shape.nodes = nodes;
        plan.shape.replicas = replicas;
        plan.shape.workers = 1;
        plan.kills = kills;
        plan.keys = 16;
        plan.lasts = Duration::from_secs(seconds);
        judge(plan, seed as u64);
    }
}
