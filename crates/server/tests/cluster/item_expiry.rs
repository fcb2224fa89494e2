//! When items end, on nodes whose own clocks are far apart.

use std::{
    thread,
    time::{Duration, Instant},
};

use curtail_server::Fault;
use curtail_testing::{Client, PATIENCE};

use crate::support::{Cluster, Shape, await_placement, until};

/// Seconds that an item has left when it is written.
const SECONDS: u64 = 500;

/// Three nodes whose clocks are a thousand seconds apart.
fn cluster(fault: Fault) -> Cluster {
    Cluster::with(|shape| (shape.workers, shape.replicas, shape.fault) = (1, 2, fault))
}

/// Seconds that are left of `key` as `client`'s node sees it; `None` if it has ended.
fn left(client: &mut Client, key: &str) -> Option<u64> {
    let answer = until(client, &format!("mg {key} t\r\n"), |answer| {
        answer.starts_with("HD t") || answer == "EN"
    });
    let seconds = answer.trim().strip_prefix("HD t");
    seconds.map(|seconds| seconds.parse().unwrap())
}

/// What does not agree about when items end: cold keys of every home, written at every node, then
/// hot ones, whose copies are asked at every node.
fn disagreements(cluster: &Cluster) -> Vec<String> {
    let mut clients = cluster.clients();
    let mut found = Vec::new();
    for kind in ["cold", "hot"] {
        for number in 0..24 {
            let key = format!("{kind}{number}");
            if kind == "hot" {
                cluster.change_hot(&key, true);
            }
            let set = format!("set {key} 0 {SECONDS} 1\r\nx\r\n");
            clients[number % 3].demand(&set, "STORED\r\n");
            for (id, client) in clients.iter_mut().enumerate() {
                let left = left(client, &key);
                if left.is_none_or(|left| left.abs_diff(SECONDS) > PATIENCE.as_secs()) {
                    found.push(format!("{key} at node {id}: {left:?} s"));
                }
            }
        }
    }
    found
}

/// An item expires at the same time on every node, whatever their clocks show.
#[test]
fn an_item_ends_at_one_time_on_all_nodes() {
    let cluster = cluster(Fault::ClocksApart);
    assert_eq!(disagreements(&cluster), Vec::<String>::new());
    let mut clients = cluster.clients();
    cluster.change_hot("short2", true);
    for (number, client) in clients.iter_mut().enumerate() {
        let set = format!("set short{number} 0 2 1\r\nx\r\n");
        client.demand(&set, "STORED\r\n");
    }
    for client in &mut clients {
        for number in 0..3 {
            let started = Instant::now();
            while left(client, &format!("short{number}")).is_some() {
                assert!(started.elapsed() < PATIENCE, "short{number} does not end");
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
    for client in &mut clients {
        assert!(client.stat("curtail", "cluster_clock_error_us") < 1_000_000);
    }
}

/// A node that joins takes keys in by the cluster's time, which outlives the node that led it.
#[test]
fn who_joins_goes_by_the_time_of_the_others() {
    let mut cluster = cluster(Fault::ClocksApart);
    for key in ["one", "two"] {
        cluster.change_hot(key, true);
        let set = format!("set {key} 0 {SECONDS} 1\r\nx\r\n");
        cluster.client(1).demand(&set, "STORED\r\n");
    }
    for id in [0, 2] {
        drop(cluster.nodes[id].take());
        cluster.revive(id);
        cluster.await_service(id);
        await_placement(&mut cluster.client(id), 3);
        assert_eq!(disagreements(&cluster), Vec::<String>::new(), "node {id}");
        for node in 0..3 {
            for key in ["one", "two"] {
                let left = left(&mut cluster.client(node), key);
                let left = left.unwrap_or_else(|| panic!("{key} has ended at node {node}"));
                assert!(left <= SECONDS && left + 3 * PATIENCE.as_secs() > SECONDS);
            }
        }
    }
}

/// The lowest node led the cluster's time from the moment at which it followed a view, also if it
/// joined and had not heard the time: the others then went by its clock, and items ended early.
#[test]
fn a_lower_node_that_joins_brings_no_time_of_its_own() {
    let shape = Shape {
        workers: 1,
        replicas: 2,
        lease_ms: 1000,
        fault: Fault::ClocksApart,
        ..Shape::DEFAULT
    };
    let mut cluster = Cluster::start_from(1, shape);
    let set = format!("set key 0 {SECONDS} 1\r\nx\r\n");
    until(&mut cluster.client(1), &set, |answer| answer == "STORED");
    cluster.revive(0);
    cluster.await_service(0);
    await_placement(&mut cluster.client(0), 3);
    for node in 0..3 {
        let left = left(&mut cluster.client(node), "key");
        let left = left.unwrap_or_else(|| panic!("the key has ended at node {node}"));
        assert!(left <= SECONDS && left + 3 * PATIENCE.as_secs() > SECONDS);
    }
}

/// The check notices nodes that go by their own clocks: their hot keys differ. It looks again while
/// a key may not be hot yet.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn own_clocks_are_noticed() {
    let cluster = cluster(Fault::GoesByOwnClock);
    let started = Instant::now();
    loop {
        let found = disagreements(&cluster);
        if found.iter().any(|line| line.contains("hot")) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{found:?}");
    }
}
