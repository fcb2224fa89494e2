//! Writes of more than 4 KiB among other requests of their connection.

use std::{thread, time::Duration};

use curtail_server::Fault;
use curtail_testing::Client;

use crate::support::{Cluster, Shape};

/// Goal: a large write does not overtake an earlier write of its key. Method: pipelines of clients
/// that hold each other up, at each node; the last write has to remain.
#[test]
fn a_large_write_follows_the_small_one_before_it() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let large = "l".repeat(4097);
    thread::scope(|scope| {
        for number in 0..6 {
            let (mut client, large) = (cluster.client(number % 3), &large);
            scope.spawn(move || {
                for round in 0..200 {
                    let key = format!("order{number}-{round}");
                    client.demand(
                        format!("ms {key} 1\r\ns\r\nms {key} 4097\r\n{large}\r\nmg {key} s\r\n"),
                        "HD\r\nHD\r\nHD s4097\r\n",
                    );
                }
            });
        }
    });
}

/// Goal: a large write is answered whose value a large worker has received because it came behind
/// a large read. Method: pairs of the two at a node that has no key for itself.
#[test]
fn a_large_write_behind_a_large_read_is_answered() {
    let cluster = Cluster::with(|shape| (shape.nodes, shape.replicas) = (2, 2));
    let (read, written) = ("r".repeat(100_000), "w".repeat(200_000));
    let mut client = cluster.client(0);
    for number in 0..40 {
        let key = format!("large{number}");
        client.set(&key, &read);
        client.demand(
            format!("mg {key} v\r\nms {key} 200000\r\n{written}\r\n"),
            format!("VA 100000\r\n{read}\r\nHD\r\n"),
        );
    }
}

/// Goal: a large append appends also if its key is hot when its value begins to come, and no more
/// when that is complete. Method: keys of every home, at one node.
#[test]
fn a_large_append_appends_though_its_key_cools_down_meanwhile() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let value = "v".repeat(5000);
    for number in 0..12 {
        let key = format!("cools{number}");
        let mut client = cluster.client(0);
        client.demand(format!("set {key} 7 0 3\r\nabc\r\n"), "STORED\r\n");
        cluster.change_hot(&key, true);
        thread::sleep(Duration::from_millis(100));
        client.send(format!("append {key} 0 0 5000\r\n{}", &value[..100]));
        thread::sleep(Duration::from_millis(30));
        cluster.change_hot(&key, false);
        thread::sleep(Duration::from_millis(200));
        assert_eq!(
            client.ask(format!("{}\r\n", &value[100..])),
            "STORED",
            "{key}"
        );
        let found = format!("VALUE {key} 7 5003\r\nabc{value}\r\nEND\r\n");
        client.demand(format!("get {key}\r\n"), found);
    }
}

/// Two nodes with one copy of each key, whose large workers get connections late, and a request at
/// node 0 for a key that becomes hot meanwhile.
fn lends_late(change: impl FnOnce(&mut Shape)) -> (Cluster, [Client; 2]) {
    let cluster = Cluster::with(|shape| {
        (shape.nodes, shape.fault) = (2, Fault::LendsLate);
        change(shape);
    });
    let clients = [0, 1].map(|node| cluster.client(node));
    (cluster, clients)
}

fn ask_while_it_gets_hot(cluster: &Cluster, key: &str, request: &str) -> String {
    let mut client = cluster.client(0);
    client.send(request);
    thread::sleep(Duration::from_millis(50));
    cluster.change_hot(key, true);
    client.line()
}

/// Goal: a large worker executes nothing whose key has become hot, or whose slice has moved, since
/// its connection was handed to it. It did, beside the machine: other nodes' copies went without
/// the write. Method: small appends to large values.
#[test]
fn a_large_worker_appends_to_no_key_that_has_become_hot() {
    let (cluster, mut clients) = lends_late(|_| {});
    let value = "v".repeat(100_000);
    for number in 0..6 {
        let key = format!("grows{number}");
        clients[0].set(&key, &value);
        let append = format!("append {key} 0 0 3\r\nend\r\n");
        let answer = ask_while_it_gets_hot(&cluster, &key, &append);
        assert_eq!(answer, "STORED", "{key}");
        for client in &mut clients {
            let found = format!("VA 100003\r\n{value}end\r\n");
            client.demand(format!("mg {key} v\r\n"), found);
        }
    }
}

/// Goal: a large set that finds no room removes the older value at every node, also if a large
/// worker was to receive it, and its key has become hot, or its slice has moved, meanwhile. It was
/// removed at the one node. Method: full nodes without eviction.
#[test]
fn a_large_worker_removes_nothing_at_one_node_alone() {
    let (cluster, mut clients) = lends_late(|shape| {
        (shape.evict, shape.memory_bytes) = (false, 16 << 20);
    });
    let keys: Vec<String> = (0..6).map(|number| format!("goes{number}")).collect();
    for key in &keys {
        clients[0].set(key, "old");
    }
    let filler = "f".repeat(3_000);
    for client in &mut clients {
        let set = |number| format!("set filler{number} 0 0 3000\r\n{filler}\r\n");
        let is_full = (0..100_000).any(|number| client.ask(set(number)) != "STORED");
        assert!(is_full);
    }
    let large = "l".repeat(900_000);
    for key in &keys {
        let set = format!("set {key} 0 0 900000\r\n{large}\r\n");
        let answer = ask_while_it_gets_hot(&cluster, key, &set);
        let refused = "SERVER_ERROR out of memory storing object";
        assert_eq!(answer, refused, "{key}");
        for client in &mut clients {
            client.demand(format!("mg {key} v\r\n"), "EN\r\n");
        }
    }
}

/// Goal: a node ignores the flag E of a large set, too: answers show versions of its machines, and
/// under `sc` one with a version beyond all others waited for a copy that never came. Method: one
/// node, which has its slices alone; a small and a large value.
#[test]
fn a_node_ignores_the_version_that_a_client_chooses() {
    let cluster = Cluster::with(|shape| shape.nodes = 1);
    let mut client = cluster.client(0);
    for bytes in [1, 5_000, 200_000] {
        let value = "v".repeat(bytes);
        client.demand(
            format!("ms key {bytes} E18446744073709551615\r\n{value}\r\n"),
            "HD\r\n",
        );
        let version = client.ask("mg key c\r\n");
        assert_ne!(version, "HD c18446744073709551615", "{bytes}");
    }
}
