//! Nodes die and come back.

use std::{
    thread,
    time::{Duration, Instant},
};

use curtail_testing::{Client, PATIENCE};

use crate::support::{Cluster, answered, store};

/// The value of a key, or nothing.
fn value(client: &mut Client, key: &str) -> Option<String> {
    match &*answered(client, &format!("mg {key} v\r\n")) {
        "EN" => None,
        head => {
            assert!(head.starts_with("VA "), "{head}");
            Some(client.line())
        }
    }
}

/// Whether the nodes have sent keys to a third one, and all are where they belong.
fn have_moved(clients: &mut [Client]) -> bool {
    let is_over = |client: &mut Client| {
        client.stat("curtail", "cluster_moves") == 0
            && client.stat("curtail", "cluster_nodes_placed") == 3
    };
    let sent = |client: &mut Client| client.stat("curtail", "cluster_keys_sent");
    clients.iter_mut().all(is_over) && clients.iter_mut().map(sent).sum::<u64>() > 40
}

/// With two holders any one node may die, and no acknowledged write is lost.
#[test]
fn two_holders_lose_nothing_when_a_node_dies() {
    for dies in 0..3 {
        let mut cluster = Cluster::with(|shape| shape.replicas = 2);
        let mut client = cluster.client((dies + 1) % 3);
        for number in 0..200 {
            store(&mut client, &format!("key{number}"), &number.to_string());
        }
        cluster.nodes[dies] = None;
        for number in 0..200 {
            let key = format!("key{number}");
            assert_eq!(value(&mut client, &key), Some(number.to_string()), "{key}");
            store(&mut client, &key, "again");
        }
    }
}

/// Hot keys survive the death of their primary as other keys do, and may be written meanwhile.
#[test]
fn hot_keys_survive_their_primary() {
    let mut cluster = Cluster::with(|shape| shape.replicas = 2);
    let mut client = cluster.client(0);
    let keys: Vec<String> = (0..30).map(|number| format!("hot{number}")).collect();
    for key in &keys {
        store(&mut client, key, "before");
        cluster.change_hot(key, true);
    }
    thread::sleep(Duration::from_millis(100));
    cluster.nodes[2] = None;
    let mut other = cluster.client(1);
    for key in &keys {
        assert_eq!(value(&mut other, key), Some("before".into()), "{key}");
        store(&mut client, key, "after");
        assert_eq!(value(&mut other, key), Some("after".into()), "{key}");
    }
}

/// Keys that move to a joining node are neither lost nor older, under load until the move ends.
#[test]
fn keys_move_to_a_node_that_joins() {
    for replicas in [1, 2] {
        let mut cluster = Cluster::with(|shape| shape.replicas = replicas);
        let mut clients: Vec<_> = (0..2).map(|id| cluster.client(id)).collect();
        cluster.nodes[2] = None;
        let keys: Vec<String> = (0..300).map(|number| format!("key{number}")).collect();
        for key in &keys {
            store(&mut clients[0], key, "0");
        }
        cluster.revive(2);
        let started = Instant::now();
        let mut rounds = 0;
        while !have_moved(&mut clients) {
            assert!(started.elapsed() < PATIENCE, "keys do not move");
            rounds += 1;
            for (number, key) in keys.iter().enumerate() {
                let client = &mut clients[number % 2];
                let request = format!("incr {key} 1\r\n");
                let answer = answered(client, &request);
                assert_eq!(answer, rounds.to_string(), "{key}");
            }
        }
        cluster.await_service(2);
        let mut third = cluster.client(2);
        for key in &keys {
            assert_eq!(value(&mut third, key), Some(rounds.to_string()), "{key}");
        }
    }
}
