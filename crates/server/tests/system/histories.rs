//! Whether every key stays linearizable under every policy: histories of real clients, judged.
//!
//! Clients pipeline reads, writes, inserts and deletes of a few keys whose items flip between small
//! and large, while sizes are now served apart and now together. Each request is recorded from when
//! its packet was sent to when its reply was read; requests of one pipeline overlap, so each
//! position counts as a client of its own, and that a client reads what it wrote before is checked
//! beside.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_history::{Action, Entry, History, Outcome, Verdict, check_linearizable};
use curtail_server::{Config, Fault, PolicyName, Server, Sizes};
use curtail_types::Instant;

use crate::support::{Client, config, start};

/// Requests in a pipeline.
const DEPTH: usize = 6;

const CLIENTS: u32 = 5;

/// Runs in which everything has to take part at least once.
const RUNS_MAX: usize = 20;

/// From here on values are large in these tests.
const LARGE_BYTES: u32 = 4500;

/// Steps that the checker may take for one key.
const STEPS_MAX: u64 = 2_000_000;

/// The same where a run that is too hard to judge is as good as one without a fault.
const STEPS_FEW: u64 = 100_000;

/// How much is asked.
#[derive(Clone, Copy)]
struct Amount {
    rounds: usize,
    keys: u64,
}

/// What all clients of a run share.
struct Run<'a> {
    server: &'a Server,
    started: Clock,
    next_value: AtomicU64,
    /// Some client read what it had overwritten.
    old: AtomicBool,
    amount: Amount,
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

impl Run<'_> {
    fn now(&self) -> Instant {
        let ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap();
        Instant { ns }
    }

    /// One client's requests.
    fn client(&self, number: u32) -> Vec<Entry> {
        let mut client = Client::connect(self.server);
        let mut random = Random(0x9e37_79b9 * u64::from(number + 1));
        let mut entries = Vec::new();
        for _ in 0..self.amount.rounds {
            let depth = 1 + random.below(DEPTH as u64);
            let mut asked: Vec<(u64, Action)> = Vec::new();
            let mut packet = Vec::new();
            // Often one key alone, so that runs of writes to it are many.
            let alone = (random.below(3) == 0).then(|| random.below(self.amount.keys));
            for _ in 0..depth {
                let key = alone.unwrap_or_else(|| random.below(self.amount.keys));
                let action = self.choose(&mut random);
                spell(&mut packet, key, action, &mut random);
                asked.push((key, action));
            }
            let invoked = self.now();
            client.send(&packet);
            let mut wrote: Vec<(u64, u64)> = Vec::new();
            for (position, (key, action)) in asked.into_iter().enumerate() {
                let outcome = read_reply(&mut client, action);
                let old = is_own_and_old(&mut wrote, key, action, outcome);
                self.old.fetch_or(old, Ordering::Relaxed);
                entries.push(Entry {
                    client: number * DEPTH as u32 + position as u32,
                    key,
                    invoked,
                    action,
                    returned: Some((self.now(), outcome)),
                });
            }
        }
        entries
    }

    fn choose(&self, random: &mut Random) -> Action {
        let value = || self.next_value.fetch_add(1, Ordering::Relaxed);
        match random.below(16) {
            0..7 => Action::Read,
            7..14 => Action::Write(value()),
            14 => Action::Insert(value()),
            _ => Action::Delete,
        }
    }
}

fn spell(packet: &mut Vec<u8>, key: u64, action: Action, random: &mut Random) {
    let mut write = |verb: &str, number: u64| {
        let bytes = [12, 12, 900, 2000, 4400, 5000, 9000][random.below(7) as usize];
        packet.extend(format!("{verb} k{key} 0 0 {bytes}\r\n{number:0bytes$}\r\n").bytes());
    };
    match action {
        Action::Read => packet.extend(format!("mg k{key} v\r\n").bytes()),
        Action::Write(number) => write("set", number),
        Action::Insert(number) => write("add", number),
        Action::Delete => packet.extend(format!("delete k{key}\r\n").bytes()),
        Action::CompareAndSet { .. } => unreachable!("not asked here"),
    }
}

fn read_reply(client: &mut Client, action: Action) -> Outcome {
    let line = client.line();
    match (action, line.as_str()) {
        (Action::Read, "EN") | (Action::Delete, "NOT_FOUND") => Outcome::Missing,
        (Action::Read, _) => {
            let bytes: usize = line.strip_prefix("VA ").unwrap().parse().unwrap();
            let value = client.line();
            assert_eq!(value.len(), bytes, "a torn value");
            Outcome::Value(value.parse().unwrap())
        }
        (Action::Insert(_), "NOT_STORED") => Outcome::Refused,
        (Action::Delete, "DELETED") | (_, "STORED") => Outcome::Done,
        _ => panic!("{action:?}: {line}"),
    }
}

/// What one client may not see in its own pipeline: a value of its own that it had overwritten
/// before.
fn is_own_and_old(wrote: &mut Vec<(u64, u64)>, key: u64, action: Action, outcome: Outcome) -> bool {
    match (action, outcome) {
        (Action::Write(value), Outcome::Done) => {
            wrote.push((key, value));
            false
        }
        (Action::Read, Outcome::Value(value)) => {
            let mut own = wrote.iter().filter(|own| own.0 == key);
            let found = own.position(|own| own.1 == value);
            found.is_some() && own.next().is_some()
        }
        _ => false,
    }
}

/// What came of a run.
struct Judgement {
    requests: usize,
    verdict: Verdict,
    old: bool,
    delegations: u64,
    compacted: u64,
    hand_offs: u64,
}

/// Runs clients against a server of `policy` and judges what they saw.
fn judge(policy: PolicyName, workers: usize, amount: Amount, fault: Fault) -> Judgement {
    let steps_max = match fault {
        Fault::Nothing | Fault::Contends => STEPS_MAX,
        _ => STEPS_FEW,
    };
    let server = start(Config {
        policy,
        workers,
        threshold: Some(LARGE_BYTES),
        epoch_ms: 2,
        fault,
        ..config()
    });
    let run = Run {
        server: &server,
        started: Clock::now(),
        next_value: AtomicU64::new(1),
        old: AtomicBool::new(false),
        amount,
    };
    let done = AtomicBool::new(false);
    let history: History = thread::scope(|scope| {
        let storm = scope.spawn(|| change_roles(&server, policy, &done));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let run = &run;
                scope.spawn(move || run.client(number))
            })
            .collect();
        let entries: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        storm.join().unwrap();
        entries.into_iter().flat_map(Result::unwrap).collect()
    });
    let mut client = Client::connect(&server);
    Judgement {
        requests: history.len(),
        verdict: check_linearizable(&history, steps_max),
        old: run.old.load(Ordering::Relaxed),
        delegations: client.stat("curtail", "delegations"),
        compacted: client.stat("curtail", "writes_compacted"),
        hand_offs: client.stat("curtail", "hand_offs"),
    }
}

/// Judges a server that has nothing wrong, and demands that everything took part: in one run, or in
/// a few on a machine where it rarely happens that writes meet. Returns how many requests were
/// judged.
#[track_caller]
fn judge_right(policy: PolicyName, workers: usize, amount: Amount) -> usize {
    let mut requests = 0;
    let (mut hand_offs, mut compacted, mut delegations) = (0, 0, 0);
    let delegates = policy.to_string() != "size-aware+crcw";
    for _ in 0..RUNS_MAX {
        let judged = judge(policy, workers, amount, Fault::Contends);
        // A history that is too hard to judge says nothing; another has to.
        if matches!(judged.verdict, Verdict::TooHard { .. }) {
            continue;
        }
        assert_eq!(judged.verdict, Verdict::Consistent, "{policy}, {workers}");
        requests += judged.requests;
        assert!(
            !judged.old,
            "{policy}: a client read what it had overwritten"
        );
        hand_offs += judged.hand_offs;
        compacted += judged.compacted;
        delegations += judged.delegations;
        let forced = compacted > 0 && (delegations > 0 || !delegates);
        if hand_offs > 0 && (forced || !cfg!(debug_assertions)) {
            return requests;
        }
    }
    panic!("{policy}: {hand_offs} hand-offs, {compacted} compacted, {delegations} delegations");
}

/// Every 2 ms sizes are served apart, by another rule, or together.
fn change_roles(server: &Server, policy: PolicyName, done: &AtomicBool) {
    let mut client = Client::connect(server);
    let sizes = [Sizes::Learned, Sizes::Together, Sizes::Static];
    let mut sizes = sizes.into_iter().cycle();
    while !done.load(Ordering::Relaxed) {
        let sizes = sizes.next().unwrap();
        let name = PolicyName { sizes, ..policy };
        client.ask(format!("policy {name}\r\n"), "OK\r\n");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn every_policy_keeps_every_key_linearizable() {
    let few = Amount {
        rounds: 150,
        keys: 7,
    };
    for policy in PolicyName::all().filter(|policy| policy.sizes == Sizes::Learned) {
        judge_right(policy, 4, few);
    }
}

/// Goal: the same when workers are stopped in the middle of anything. Method: many more workers
/// than processors.
#[test]
fn a_crowd_of_workers_keeps_every_key_linearizable() {
    let few = Amount {
        rounds: 150,
        keys: 5,
    };
    judge_right(PolicyName::default(), 12, few);
}

/// Goal: the judges notice a bug in delegation, in compaction and in hand-offs. Method: servers
/// that have one, in debug builds; each is given runs until it
/// shows it, which takes one or two unless the machine is busy.
#[test]
#[cfg(debug_assertions)]
fn planted_bugs_are_caught() {
    let few = Amount {
        rounds: 120,
        keys: 4,
    };
    // Batches are looked through from eight requests on: a worker needs several of the clients.
    for (fault, policy, workers) in [
        (Fault::Overtakes, "size-aware+crew", 4),
        (Fault::FoldsAcross, "size-aware+d-crew", 1),
        (Fault::AnswersAhead, "size-aware+d-crew", 4),
    ] {
        let caught = (0..100).any(|_| {
            let judged = judge(policy.parse().unwrap(), workers, few, fault);
            judged.old || matches!(judged.verdict, Verdict::Violation(_))
        });
        assert!(caught, "{fault:?} went unnoticed");
    }
}

/// Ten million requests under one policy, with 2 to 8 workers. A history is judged whole, so the
/// millions come in runs. Says now and then how far it is.
fn judge_for_long(policy: &str) {
    let much = Amount {
        rounds: 4000,
        keys: 7,
    };
    let (started, mut requests, mut run) = (Clock::now(), 0, 0);
    while requests < 10_000_000 {
        requests += judge_right(policy.parse().unwrap(), 2 + run % 7, much);
        run += 1;
        if run.is_multiple_of(10) {
            let seconds = started.elapsed().as_secs();
            println!("{policy}: {run} histories, {requests} requests judged in {seconds} s");
        }
    }
}

#[test]
#[ignore = "ten million requests: an hour"]
fn the_default_keeps_every_key_linearizable_for_long() {
    judge_for_long("size-aware+d-crew");
}

#[test]
#[ignore = "ten million requests: an hour"]
fn crcw_keeps_every_key_linearizable_for_long() {
    judge_for_long("size-aware+crcw");
}

#[test]
#[ignore = "ten million requests: an hour"]
fn crew_keeps_every_key_linearizable_for_long() {
    judge_for_long("size-aware+crew");
}

#[test]
#[ignore = "ten million requests: an hour"]
fn erew_keeps_every_key_linearizable_for_long() {
    judge_for_long("size-aware+erew");
}
