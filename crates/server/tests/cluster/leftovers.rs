//! What was removed while keys moved, or since, does not come back by what is left of the move.

use std::{
    thread,
    time::{Duration, Instant},
};

use curtail_consistency::placement::Placement;
use curtail_server::Fault;
use curtail_testing::{Client, PATIENCE};
use curtail_types::{NodeId, NodeSet, RouteHash};
use twox_hash::XxHash3_64;

use crate::{
    failures::until,
    support::{Cluster, Shape},
};

/// Keys that are stored before a node is added to two.
const KEYS: usize = 60;

/// Keys of which nodes `holders` are the two holders, among nodes 0, 1 and 2.
fn keys_of(holders: u64) -> Vec<String> {
    let placement = Placement::new(NodeSet::from_bits(0b111), 2);
    let route = |key: &String| RouteHash(XxHash3_64::oneshot(key.as_bytes()));
    let keys = (0..KEYS).map(|number| format!("key{number}"));
    keys.filter(|key| placement.holders(route(key)).to_bits() == holders)
        .collect()
}

/// Two nodes, each of which has all keys.
fn two_nodes(fault: Fault) -> Cluster {
    let mut cluster = Cluster::start(Shape {
        workers: 1,
        replicas: 2,
        fault,
        ..Shape::default()
    });
    cluster.nodes[2] = None;
    has_settled(&cluster, 1, 2);
    let mut client = cluster.client(1);
    for number in 0..KEYS {
        let request = format!("set key{number} 0 0 1\r\nv\r\n");
        until(&mut client, &request, |answer| answer == "STORED");
    }
    cluster
}

/// Waits until keys are in their places on `placed` nodes, as node `at` has it.
fn has_settled(cluster: &Cluster, at: usize, placed: u64) {
    let mut client = cluster.client(at);
    wait("keys do not come to rest", || {
        // In this order: the other one is true of the view before keys are placed anew, too.
        client.stat("curtail", "cluster_nodes_placed") == placed
            && client.stat("curtail", "cluster_moves") == 0
    });
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn delete(client: &mut Client, keys: &[String]) {
    assert!(keys.len() > 3, "{keys:?}");
    for key in keys {
        let request = format!("delete {key}\r\n");
        let answer = until(client, &request, |answer| !answer.starts_with("SERVER"));
        assert_eq!(answer, "DELETED", "{key}");
    }
}

fn are_gone(client: &mut Client, keys: &[String]) {
    for key in keys {
        let answer = until(client, &format!("mg {key}\r\n"), |answer| {
            matches!(answer, "HD" | "EN")
        });
        assert_eq!(answer, "EN", "{key} is back");
    }
}

/// Goal: what a node had before it ceased to hold a key is not taken for what has arrived when it
/// is to hold the key again, neither if it has not swept it out yet, nor if it never heard that the
/// first move had ended. Method: keys move to a third node; they are deleted; they move back; their
/// home is ended.
#[test]
fn what_was_not_swept_out_does_not_come_back() {
    for fault in [Fault::SweepsNever, Fault::MissesSettled] {
        let mut cluster = two_nodes(fault);
        cluster.set_fault(Fault::Nothing);
        cluster.nodes[2] = Some(cluster.node(2));
        has_settled(&cluster, 1, 3);
        // Those that node 0 had, and has no part in any more.
        let keys = keys_of(0b110);
        delete(&mut cluster.client(1), &keys);
        cluster.nodes[2] = None;
        has_settled(&cluster, 1, 2);
        are_gone(&mut cluster.client(1), &keys);
        // Their home answers for both: what the other one has shows without it.
        cluster.nodes[1] = None;
        has_settled(&cluster, 0, 1);
        are_gone(&mut cluster.client(0), &keys);
    }
}

/// Goal: a key that is deleted while it is on its way to a new holder does not arrive there.
/// Method: a third node takes in nothing of what moves to it until the keys have been sent, and
/// deleted; then all of it, and becomes their home.
#[test]
fn what_is_deleted_on_its_way_does_not_arrive() {
    let mut cluster = two_nodes(Fault::Nothing);
    cluster.set_fault(Fault::TakesNoMoves);
    cluster.nodes[2] = Some(cluster.node(2));
    let keys = keys_of(0b101);
    let sent = keys_of(0b101).len() + keys_of(0b110).len();
    let mut clients = [cluster.client(0), cluster.client(1)];
    wait("keys are not sent", || {
        let sent_by = clients
            .iter_mut()
            .map(|client| client.stat("curtail", "cluster_keys_sent"));
        sent_by.sum::<u64>() >= sent as u64
    });
    // Requests for those whose home is the third node wait until they have arrived.
    let homes = Placement::new(NodeSet::from_bits(0b111), 2);
    let is_answered = |key: &String| {
        let route = RouteHash(XxHash3_64::oneshot(key.as_bytes()));
        homes.home(route) == NodeId(0)
    };
    let keys: Vec<String> = keys.into_iter().filter(is_answered).collect();
    delete(&mut clients[1], &keys);
    cluster.client(2).demand("verbosity 1\r\n", "OK\r\n");
    has_settled(&cluster, 2, 3);
    cluster.nodes[0] = None;
    has_settled(&cluster, 2, 2);
    are_gone(&mut cluster.client(2), &keys);
}
