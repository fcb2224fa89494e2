//! Keys that move leave the time and the links to requests.

use curtail_server::Fault;
use curtail_testing::{Client, eventually};

use crate::support::{Cluster, store};

/// Keys that are stored before a node is added to two: about a sixth of them moves from either.
const KEYS: usize = 600;

/// The bound on what a worker of a source has on its way (`UNDER_WAY_BYTES_MAX`).
const UNDER_WAY_BYTES_MAX: usize = 32 << 10;

/// Two nodes that have all keys, with values of `value_bytes`.
fn two_nodes(fault: Fault, value_bytes: usize) -> (Cluster, Vec<Client>) {
    let (cluster, mut client) =
        Cluster::two_of_three(|shape| (shape.workers, shape.fault) = (1, fault));
    let value = "v".repeat(value_bytes);
    (0..KEYS).for_each(|number| store(&mut client, &format!("key{number}"), &value));
    let clients = vec![client, cluster.client(1)];
    (cluster, clients)
}

/// A scan stops at its bound of bytes in flight when the new node takes nothing in.
#[test]
fn a_source_stops_when_much_is_on_its_way() {
    let value_bytes = 1024;
    let (mut cluster, mut clients) = two_nodes(Fault::Nothing, value_bytes);
    cluster.shape.fault = Fault::TakesNoMoves;
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

/// A batch of keys ends when its time is up: with slow steps each has one key at most.
#[test]
fn keys_move_in_batches_that_end() {
    let (mut cluster, mut clients) = two_nodes(Fault::MovesSlowly, 8);
    cluster.shape.fault = Fault::Nothing;
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
