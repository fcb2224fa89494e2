//! Whether every key stays linearizable on a cluster: histories of clients that talk to any node,
//! while keys become hot and cease to be, and nodes die and come back.
//!
//! An operation of which the client learns nothing is recorded as one that may happen at any time
//! after, or never. Short runs here; the long ones are behind `--ignored` and take
//! `CURTAIL_SECONDS` (60) each.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant as Clock},
};

use curtail_history::{History, Updates, Verdict, check_agreed, check_linearizable};
use curtail_server::Fault;

use crate::{
    recording_clients::{Caller, Nodes, Plan, Run},
    sequential_clients::sessions,
    support::{Cluster, Shape, setting},
};

/// Steps that the checker may take for one key.
pub(crate) const STEPS_MAX: u64 = 20_000_000;

/// Runs clients against a cluster and returns what they saw.
pub(crate) fn record(plan: Plan, seed: u64) -> History {
    let mut cluster = Cluster::start(plan.shape);
    let run = Run::new(plan, cluster.addresses());
    let client = |number| Caller::new(&run, number, seed, None).call();
    let entries = run.record(client, || disturb(&mut cluster, &run));
    entries.into_iter().collect()
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
            let key = format!("k{}", step % plan.keys);
            cluster.change_hot(&key, (step / plan.keys).is_multiple_of(2));
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
pub(crate) fn judge(plan: Plan, seed: u64) {
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

pub(crate) fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Consistent => "consistent",
        Verdict::Violation(_) => "A VIOLATION",
        Verdict::TooHard { .. } => "TOO HARD TO JUDGE",
    }
}

pub(crate) const PLAN: Plan = Plan {
    shape: Shape::DEFAULT,
    clients: 6,
    keys: 4,
    first_key: 0,
    reply: Duration::from_secs(15),
    lasts: Duration::from_secs(3),
    pace: Duration::ZERO,
    pause: Duration::ZERO,
    churns: true,
    nodes: Nodes::Stay,
    loses: false,
};

/// Six clients at all nodes, four keys, a change of the hot set every 5 ms.
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
    values_shown_too_early_are_noticed(PLAN);
}

/// Of twenty runs with nodes that show what is not everywhere yet, the judge finds one.
pub(crate) fn values_shown_too_early_are_noticed(mut plan: Plan) {
    plan.shape.fault = Fault::ShowsUnsettled;
    let caught = (0..20).any(|seed| {
        let verdict = check_linearizable(&record(plan, seed), STEPS_MAX);
        matches!(verdict, Verdict::Violation(_))
    });
    assert!(caught, "twenty runs without a violation");
}

/// With two holders keys stay linearizable, and no write is lost, while nodes die and return.
#[test]
fn keys_are_linearizable_while_nodes_die() {
    let mut plan = PLAN;
    plan.shape.replicas = 2;
    plan.nodes = Nodes::Die;
    plan.lasts = Duration::from_secs(15);
    judge(plan, 3);
}

/// Sessions that keep to a node agree on the order of a hot key's writes, by their versions.
#[test]
fn hot_keys_are_sequentially_consistent() {
    let mut plan = PLAN;
    plan.shape.model = "sc";
    judge_sessions(plan);
}

/// Has sessions that keep to a node agree, and each get all of its answers.
#[track_caller]
pub(crate) fn judge_sessions(plan: Plan) {
    let mut cluster = Cluster::start(plan.shape);
    let run = Run::new(plan, cluster.addresses());
    let session = |number| {
        let node = number as usize % plan.shape.nodes;
        sessions(&run, (number, node), 0..plan.keys, None)
    };
    let numbered = run.record(session, || disturb(&mut cluster, &run));
    println!("sequential: {} operations", numbered.len());
    assert!(numbered.len() > 50);
    let failed = run.requests_failed.load(Ordering::Relaxed);
    assert_eq!(failed, 0, "requests without an answer");
    assert_eq!(check_agreed(&numbered, Updates::Loose), Verdict::Consistent);
}

/// The same for long, in several shapes.
#[test]
#[ignore = "minutes: CURTAIL_SECONDS for each of six shapes"]
fn for_long() {
    let seconds = setting("CURTAIL_SECONDS").unwrap_or(60);
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
