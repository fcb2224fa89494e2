//! Rolling restarts: each node in turn is asked to leave, ends and is started again, under load.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use curtail_history::{Verdict, check_linearizable};
use curtail_testing::{Client, PATIENCE};

use crate::{
    histories::{PLAN, STEPS_MAX},
    recording_clients::{Caller, Nodes, Plan, Run},
    support::{Cluster, answered, setting, store},
};

/// Keys that nobody writes while nodes restart: none may be lost.
const KEPT: usize = 400;

/// Of these so many are hot all the time.
const HOT: usize = 40;

/// A rolling restart of five nodes with one holder for each key loses nothing and shows nothing
/// stale; a client repeats a request at most once.
#[test]
fn a_rolling_restart_is_not_noticed() {
    restart_all(PLAN, 1);
}

/// The same, `CURTAIL_TIMES` in a row.
#[test]
#[ignore = "minutes: CURTAIL_TIMES of about ten seconds"]
fn rolling_restarts_in_a_row() {
    let times = setting("CURTAIL_TIMES").unwrap_or(6);
    for seed in 2..2 + times {
        let mut plan = PLAN;
        plan.shape.replicas = 1 + seed as usize % 2;
        restart_all(plan, seed);
        println!("{} of {times}", seed - 1);
    }
}

pub(crate) fn restart_all(plan: Plan, seed: u64) {
    let mut plan = Plan {
        clients: 4,
        keys: 12,
        nodes: Nodes::Restart,
        ..plan
    };
    plan.shape.nodes = 5;
    plan.shape.lease_ms = 2000;
    plan.shape.workers = 1;
    let mut cluster = Cluster::start(plan.shape);
    write_kept(&mut cluster.client(0));
    (0..HOT).for_each(|number| cluster.change_hot(&format!("kept{number}"), true));
    let run = Run::new(plan, cluster.addresses());
    let client = |number| Caller::new(&run, number, seed, None).call();
    let entries = run.record(client, || {
        (0..plan.shape.nodes).for_each(|id| restart(&mut cluster, &run, id));
    });
    let operations = entries.len();
    let attempts = run.attempts_failed.load(Ordering::Relaxed);
    let failed = run.requests_failed.load(Ordering::Relaxed);
    let took = run.started.elapsed();
    println!("{operations} operations in {took:?}, {attempts} of them sent again");
    assert_eq!(failed, 0, "requests that failed twice, seed {seed}");
    let verdict = check_linearizable(&entries.into_iter().collect(), STEPS_MAX);
    assert_eq!(verdict, Verdict::Consistent, "seed {seed}");
    assert!(operations > 50 * plan.shape.nodes, "too few to tell");
    let last = plan.shape.nodes - 1;
    read_kept(&mut cluster.client(last));
}

/// Has a node leave, end and come back.
fn restart(cluster: &mut Cluster, run: &Run, id: usize) {
    let server = cluster.nodes[id].take().unwrap();
    assert!(server.leave(), "node {id} is not in service");
    wait(cluster, run, "it leaves", || server.has_left());
    drop(server.stop());
    let again = cluster.node(id);
    wait(cluster, run, "it is back", || again.is_in_service());
    cluster.nodes[id] = Some(again);
    *run.addresses.lock().unwrap() = cluster.addresses();
}

/// Waits, while keys become hot and cease to be.
fn wait(cluster: &Cluster, run: &Run, what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    for step in 0.. {
        if done() {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{what}");
        let (key, keys) = (step % run.plan.keys, run.plan.keys);
        cluster.change_hot(&format!("k{key}"), (step / keys).is_multiple_of(2));
        thread::sleep(Duration::from_millis(5));
    }
}

fn write_kept(client: &mut Client) {
    for number in 0..KEPT {
        store(client, &format!("kept{number}"), &format!("{number:08}"));
    }
}

#[track_caller]
fn read_kept(client: &mut Client) {
    for number in 0..KEPT {
        // What a node refuses whose lease is over for a moment is not gone.
        let request = format!("mg kept{number} v\r\n");
        let answer = answered(client, &request);
        assert_eq!(answer, "VA 8", "kept{number}");
        assert_eq!(client.line(), format!("{number:08}"));
    }
}
