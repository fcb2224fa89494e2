//! Keys that move leave the time and the links to requests.

use curtail_server::Fault;
use curtail_testing::{Client, eventually};

use crate::support::{Cluster, Shape};

/// Keys that are stored before a node is added to two: about a sixth of them moves from either.
const KEYS: usize = 600;

/// The bound on what a worker of a source has on its way (`UNDER_WAY_BYTES_MAX`).
const UNDER_WAY_BYTES_MAX: usize = 32 << 10;

/// Two nodes that have all keys, with values of `value_bytes`.
fn two_nodes(fault: Fault, value_bytes: usize) -> (Cluster, Vec<Client>) {
    let mut cluster = Cluster::start(Shape {
        workers: 1,
        fault,
        ..Shape::default()
    });
    cluster.nodes[2] = None;
    let mut clients: Vec<_> = (0..2).map(|id| cluster.client(id)).collect();
    let value = "v".repeat(value_bytes);
    for number in 0..KEYS {
        let request = format!("set key{number} 0 0 {value_bytes}\r\n{value}\r\n");
        eventually("it is stored", || clients[0].ask(&request) == "STORED");
    }
    (cluster, clients)
}

/// Goal: the scan has no more on its way to a node than its bound, because what a request asks for
/// goes behind it. Method: a node is added that takes in nothing of what moves; its sources stop,
/// and what they had sent by then is counted.
#[test]
fn a_source_stops_when_much_is_on_its_way() {
    let value_bytes = 1024;
    let (mut cluster, mut clients) = two_nodes(Fault::Nothing, value_bytes);
    cluster.set_fault(Fault::TakesNoMoves);
    cluster.revive(2);
    for client in &mut clients {
        eventually("a source stops or ends", || {
            let sent = client.stat("curtail", "cluster_keys_sent");
            client.stat("curtail", "cluster_moves_held") > 0 || sent > KEYS as u64 / 12
        });
        let sent = client.stat("curtail", "cluster_keys_sent") as usize;
        assert!(sent * value_bytes <= UNDER_WAY_BYTES_MAX, "{sent} keys");
        assert!(sent > 1, "nothing moves");
    }
}

/// Goal: a batch of keys ends when its time is up, and the next comes after a pause. Method: nodes
/// on which every step seems to take longer than a batch may: each batch is one key, or a look for
/// some.
#[test]
fn keys_move_in_batches_that_end() {
    let (mut cluster, mut clients) = two_nodes(Fault::MovesSlowly, 8);
    cluster.set_fault(Fault::Nothing);
    cluster.revive(2);
    for client in &mut clients {
        eventually("keys move", || {
            client.stat("curtail", "cluster_keys_sent") > KEYS as u64 / 20
        });
        let sent = client.stat("curtail", "cluster_keys_sent");
        let batches = client.stat("curtail", "cluster_move_batches");
        assert!(sent <= batches, "{sent} keys in {batches} batches");
    }
}
