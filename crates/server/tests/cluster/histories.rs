//! Whether every key stays linearizable on a cluster: histories of clients that talk to any node,
//! while keys become hot and cease to be, and nodes die and come back.
//!
//! An operation of which the client learns nothing is recorded as one that may happen at any time
//! after, or never. Short runs here; the long ones are behind `--ignored` and take
//! `CURTAIL_SECONDS` (60) each.

use std::{
    net::SocketAddr,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_history::{
    Action, Entry, History, Numbered, Outcome, Updates, Verdict, check_agreed, check_linearizable,
};
use curtail_server::Fault;

use crate::{
    callers::{Caller, End, Nodes, Plan, Run},
    support::{Cluster, Shape},
};

/// Steps that the checker may take for one key.
pub(crate) const STEPS_MAX: u64 = 20_000_000;

/// Runs clients against a cluster and returns what they saw.
fn record(plan: Plan, seed: u64) -> History {
    let mut cluster = Cluster::start(plan.shape);
    let run = Run::new(plan, cluster.addresses());
    thread::scope(|scope| {
        let clients: Vec<_> = (0..plan.clients)
            .map(|number| {
                let caller = Caller::new(&run, number, seed, None);
                scope.spawn(move || caller.call())
            })
            .collect();
        let end = End(&run);
        disturb(&mut cluster, &run);
        drop(end);
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
        if plan.nodes == Nodes::Die {
            match dead {
                None if step % 400 == 399 => {
                    let dies = (step / 400) as usize % plan.shape.nodes;
                    run.addresses.lock().unwrap()[dies] = None;
                    cluster.nodes[dies] = None;
                    dead = Some((dies, Clock::now()));
                }
                Some((died, at)) if at.elapsed() > 3 * plan.shape.lease() => {
                    cluster.revive(died);
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
    assert_eq!(verdict, Verdict::Consistent, "seed {seed}");
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Consistent => "consistent",
        Verdict::Violation(_) => "a violation",
        Verdict::TooHard { .. } => "too hard to judge",
    }
}

pub(crate) const PLAN: Plan = Plan {
    shape: Shape {
        nodes: 3,
        workers: 2,
        replicas: 1,
        model: "lin",
        lease_ms: 3000,
        fault: Fault::Nothing,
        secured: false,
    },
    clients: 6,
    keys: 4,
    first_key: 0,
    reply: Duration::from_secs(15),
    lasts: Duration::from_secs(3),
    churns: true,
    nodes: Nodes::Stay,
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
    plan.nodes = Nodes::Die;
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
    let run = Run::new(plan, addresses.clone());
    let numbered: Vec<Numbered> = thread::scope(|scope| {
        let sessions: Vec<_> = (0..plan.clients)
            .map(|number| {
                let (run, addresses) = (&run, &addresses);
                scope.spawn(move || session(run, number, addresses))
            })
            .collect();
        let end = End(&run);
        disturb(&mut cluster, &run);
        drop(end);
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
    let mut caller = Caller::new(run, number, 0, Some(node));
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
        plan.nodes = if kills { Nodes::Die } else { Nodes::Stay };
        plan.keys = 16;
        plan.lasts = Duration::from_secs(seconds);
        judge(plan, seed as u64);
    }
}
