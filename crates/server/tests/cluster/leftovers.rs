//! What was removed while keys moved, or since, does not come back by what is left of the move.

use curtail_consistency::placement::Placement;
use curtail_server::Fault;
use curtail_testing::{Client, eventually};
use curtail_types::{NodeId, NodeSet};

use crate::support::{Cluster, answered, await_placement, route, store};

/// Keys that are stored before a node is added to two.
const KEYS: usize = 60;

/// Keys of which nodes `holders` are the two holders, among nodes 0, 1 and 2.
fn keys_of(holders: u64) -> Vec<String> {
    let placement = Placement::new(NodeSet::from_bits(0b111), 2);
    let keys = (0..KEYS).map(|number| format!("key{number}"));
    keys.filter(|key| placement.holders(route(key)).to_bits() == holders)
        .collect()
}

/// Two nodes, each of which has all keys.
fn two_nodes(fault: Fault) -> Cluster {
    let (cluster, mut client) = Cluster::two_of_three(|shape| {
        (shape.workers, shape.replicas, shape.fault) = (1, 2, fault);
    });
    for number in 0..KEYS {
        store(&mut client, &format!("key{number}"), "v");
    }
    cluster
}

fn delete(client: &mut Client, keys: &[String]) {
    assert!(keys.len() > 3, "{keys:?}");
    for key in keys {
        let request = format!("delete {key}\r\n");
        assert_eq!(answered(client, &request), "DELETED", "{key}");
    }
}

fn are_gone(client: &mut Client, keys: &[String]) {
    for key in keys {
        let answer = answered(client, &format!("mg {key}\r\n"));
        assert_eq!(answer, "EN", "{key} is back");
    }
}

/// Keys move to a third node, are deleted and move back: their old holder, which has not swept them
/// out or never heard that the first move ended, must not revive them.
#[test]
fn what_was_not_swept_out_does_not_come_back() {
    for fault in [Fault::SweepsNever, Fault::MissesSettled] {
        let mut cluster = two_nodes(fault);
        cluster.shape.fault = Fault::Nothing;
        cluster.revive(2);
        await_placement(&mut cluster.client(1), 3);
        // Those that node 0 had, and has no part in any more.
        let keys = keys_of(0b110);
        delete(&mut cluster.client(1), &keys);
        cluster.nodes[2] = None;
        await_placement(&mut cluster.client(1), 2);
        are_gone(&mut cluster.client(1), &keys);
        // Their home answers for both: what the other one has shows without it.
        cluster.nodes[1] = None;
        await_placement(&mut cluster.client(0), 1);
        are_gone(&mut cluster.client(0), &keys);
    }
}

/// A key that is deleted while its new holder has not taken it in does not arrive there.
#[test]
fn what_is_deleted_on_its_way_does_not_arrive() {
    let mut cluster = two_nodes(Fault::Nothing);
    cluster.shape.fault = Fault::TakesNoMoves;
    cluster.revive(2);
    let keys = keys_of(0b101);
    let sent = keys_of(0b101).len() + keys_of(0b110).len();
    let mut clients = [cluster.client(0), cluster.client(1)];
    eventually("keys are sent", || {
        let sent_by = clients
            .iter_mut()
            .map(|client| client.stat("curtail", "cluster_keys_sent"));
        sent_by.sum::<u64>() >= sent as u64
    });
    // Requests for those whose home is the third node wait until they have arrived.
    let homes = Placement::new(NodeSet::from_bits(0b111), 2);
    let is_answered = |key: &String| homes.home(route(key)) == NodeId(0);
    let keys: Vec<String> = keys.into_iter().filter(is_answered).collect();
    delete(&mut clients[1], &keys);
    cluster.client(2).demand("verbosity 1\r\n", "OK\r\n");
    await_placement(&mut cluster.client(2), 3);
    cluster.nodes[0] = None;
    await_placement(&mut cluster.client(2), 2);
    are_gone(&mut cluster.client(2), &keys);
}
