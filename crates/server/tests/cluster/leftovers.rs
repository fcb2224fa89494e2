//! What was removed while slices moved, or since, does not come back by what is left of the move.

use curtail_testing::Client;

use crate::support::{Cluster, answered, await_placement, store};

/// Keys that are stored before a node is added to two.
const KEYS: usize = 400;

fn names() -> impl Iterator<Item = String> {
    (0..KEYS).map(|number| format!("key{number}"))
}

/// Two nodes, each of which has all keys.
fn two_nodes() -> Cluster {
    let (cluster, mut client) =
        Cluster::two_of_three(|shape| (shape.workers, shape.replicas) = (1, 2));
    names().for_each(|key| store(&mut client, &key, "v"));
    cluster
}

fn delete(client: &mut Client) {
    for key in names() {
        let request = format!("delete {key}\r\n");
        assert_eq!(answered(client, &request), "DELETED", "{key}");
    }
}

fn are_gone(client: &mut Client) {
    for key in names() {
        let answer = answered(client, &format!("mg {key}\r\n"));
        assert_eq!(answer, "EN", "{key} is back");
    }
}

/// Slices move to a third node, their keys are deleted, and they move back, to nodes that had them
/// before.
#[test]
fn what_a_former_holder_had_does_not_come_back() {
    let mut cluster = two_nodes();
    cluster.revive(2);
    await_placement(&mut cluster.client(1), 3);
    delete(&mut cluster.client(1));
    cluster.nodes[2] = None;
    await_placement(&mut cluster.client(1), 2);
    are_gone(&mut cluster.client(1));
    cluster.nodes[1] = None;
    await_placement(&mut cluster.client(0), 1);
    are_gone(&mut cluster.client(0));
}

/// Keys that are deleted while a new holder catches up do not arrive there.
#[test]
fn what_is_deleted_on_its_way_does_not_arrive() {
    let mut cluster = two_nodes();
    cluster.revive(2);
    delete(&mut cluster.client(1));
    await_placement(&mut cluster.client(2), 3);
    cluster.nodes[0] = None;
    await_placement(&mut cluster.client(2), 2);
    are_gone(&mut cluster.client(2));
}
