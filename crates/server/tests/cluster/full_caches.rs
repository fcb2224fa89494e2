//! What becomes of items in full nodes when a node dies or leaves (CL-3, CL-5..8).

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use curtail_testing::{Client, PATIENCE};
use curtail_types::NodeId;

use crate::{
    processes::Processes,
    support::{Cluster, Shape, answered},
};

/// Length of a value.
const VALUE_BYTES: usize = 1000;

/// Requests that are sent together.
const BATCH: usize = 50;

fn cluster(replicas: usize, evict: bool) -> Processes {
    let shape = Shape {
        replicas,
        evict,
        // A busy machine must not remove a node that lives.
        lease_ms: 6000,
        memory_bytes: 16 << 20,
        ..Shape::DEFAULT
    };
    Processes::start(shape, None)
}

fn client(cluster: &mut Processes, id: usize) -> Client {
    Client::connect_to(cluster.addresses()[id].unwrap())
}

/// Sets keys; those that were stored.
fn set(client: &mut Client, keys: impl Iterator<Item = String>) -> Vec<String> {
    let value = "v".repeat(VALUE_BYTES);
    let keys: Vec<String> = keys.collect();
    let mut stored = Vec::new();
    for batch in keys.chunks(BATCH) {
        let request = |key| format!("set {key} 0 0 {VALUE_BYTES}\r\n{value}\r\n");
        client.send(batch.iter().map(request).collect::<String>());
        for key in batch {
            match &*client.line() {
                "STORED" => stored.push(key.clone()),
                // It may have to be evicted first: a cache that is full of popular keys is slow.
                answer => assert!(answer.starts_with("SERVER_ERROR"), "{key}: {answer}"),
            }
        }
    }
    stored
}

/// Which of these keys there are.
fn found(client: &mut Client, keys: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for batch in keys.chunks(BATCH) {
        let request = |key| format!("mg {key} s\r\n");
        client.send(batch.iter().map(request).collect::<String>());
        let answers: Vec<String> = batch.iter().map(|_| client.line()).collect();
        for (key, answer) in batch.iter().zip(answers) {
            let answer = match answer.starts_with("SERVER_ERROR") {
                // A node was out of service for a moment.
                true => answered(client, &format!("mg {key} s\r\n")),
                false => answer,
            };
            match &*answer {
                "EN" => {}
                answer => {
                    assert_eq!(answer, format!("HD s{VALUE_BYTES}"), "{key}");
                    found.insert(key.clone());
                }
            }
        }
    }
    found
}

fn keys(kind: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{kind}{number}")).collect()
}

/// Removes a node, and waits until the others have settled.
fn remove(cluster: &mut Processes, (id, kills): (usize, bool), mut meanwhile: impl FnMut()) {
    match kills {
        true => cluster.kill(id),
        false => cluster.leave(id),
    }
    let others = cluster.shape.nodes - 1;
    let is_removed = |cluster: &Processes| {
        let roster = cluster.roster();
        let slices = roster.as_ref().and_then(|roster| roster.slices());
        slices.is_some_and(|slices| {
            slices.members.len() == others && !slices.members.contains(NodeId(id as u8))
        })
    };
    let started = Instant::now();
    while !is_removed(cluster) {
        assert!(started.elapsed() < 6 * PATIENCE, "the node is not removed");
        meanwhile();
        thread::sleep(Duration::from_millis(20));
    }
    println!("removed after {:?}", started.elapsed());
}

/// Goal: a full cache loses none of its popular keys with a node, and nothing that was deleted or
/// evicted comes back. Method: popular keys are read while others are written,
/// many more than there is room for; some popular keys are deleted.
fn popular_keys_stay(replicas: usize, kills: bool) {
    let mut cluster = cluster(replicas, true);
    let mut clients: Vec<Client> = (0..2).map(|id| client(&mut cluster, id)).collect();
    let popular = keys("popular", 0..500);
    assert_eq!(
        set(&mut clients[0], popular.iter().cloned()).len(),
        popular.len()
    );
    let count = 80_000 / replicas;
    for from in (0..count).step_by(1000) {
        let others = keys("other", from..from + 1000);
        set(&mut clients[from / 1000 % 2], others.into_iter());
        found(&mut clients[0], &popular);
    }
    let (gone, kept) = popular.split_at(100);
    for key in gone {
        answered(&mut clients[1], &format!("delete {key}\r\n"));
    }
    let client = &mut clients[0];
    let kept: Vec<String> = found(client, kept).into_iter().collect();
    assert!(
        kept.len() > 350,
        "popular keys were evicted: {}",
        kept.len()
    );
    let sample = keys("other", 0..count / 10);
    let there = found(client, &sample);
    let mut absent: Vec<String> = sample
        .into_iter()
        .filter(|key| !there.contains(key))
        .collect();
    assert!(
        absent.len() > 500,
        "the cache is not full: {}",
        absent.len()
    );
    absent.extend_from_slice(gone);
    // They stay popular.
    let client = &mut clients[0];
    remove(&mut cluster, (2, kills), || drop(found(client, &kept)));
    let lost = kept.len() - found(client, &kept).len();
    let back = found(client, &absent).len();
    assert_eq!((lost, back), (0, 0), "lost, and back");
}

#[test]
fn popular_keys_survive_a_death_in_a_full_cache() {
    popular_keys_stay(2, true);
}

#[test]
fn popular_keys_survive_a_removal_in_a_full_cache() {
    popular_keys_stay(2, false);
}

#[test]
fn popular_keys_survive_a_removal_with_one_copy() {
    popular_keys_stay(1, false);
}

/// Goal: without eviction every write that was stored has its copies. Method: two copies; writes
/// until nodes are full and beyond; a node dies.
#[test]
fn what_a_full_cluster_stored_has_its_copies() {
    let mut cluster = cluster(2, false);
    let mut client = client(&mut cluster, 0);
    let stored = set(&mut client, keys("key", 0..25_000).into_iter());
    let count = stored.len();
    assert!((5_000..25_000).contains(&count), "{count}");
    remove(&mut cluster, (2, true), || ());
    assert_eq!(found(&mut client, &stored).len(), count);
}

/// Goal: nothing is lost by an orderly removal without eviction, whether the others have room for
/// it or not; if they have none, the node stays. Method: one copy; nodes that are half full, then
/// full.
#[test]
fn a_removal_drops_nothing_where_nothing_may_be_evicted() {
    let mut cluster = cluster(1, false);
    let mut client = client(&mut cluster, 0);
    let mut stored = set(&mut client, keys("key", 0..12_000).into_iter());
    assert_eq!(stored.len(), 12_000);
    remove(&mut cluster, (2, false), || ());
    assert_eq!(found(&mut client, &stored).len(), stored.len());
    let more = set(&mut client, keys("more", 0..30_000).into_iter());
    assert!(more.len() < 30_000, "the nodes are not full");
    stored.extend(more);
    cluster.leave(1);
    thread::sleep(Duration::from_secs(3));
    let told = client.stat("curtail", "cluster_items_lost");
    let lost = stored.len() - found(&mut client, &stored).len();
    assert_eq!((lost, told), (0, 0), "of {}", stored.len());
}

/// Goal: a plain `set` that finds no room takes the older value with it at every node, and is
/// counted, also if its value is received by a node that does not execute it. Method: two copies;
/// full nodes; small sets of new keys, then large sets of small items, at all nodes.
#[test]
fn a_large_set_without_room_leaves_no_older_value() {
    let cluster = Cluster::with(|shape| {
        (shape.replicas, shape.evict, shape.memory_bytes) = (2, false, 16 << 20);
    });
    let mut clients = cluster.clients();
    let stored = set(&mut clients[0], keys("key", 0..25_000).into_iter());
    let count_of = |clients: &mut [Client]| {
        let count = |client: &mut Client| client.stat("", "store_no_memory");
        clients.iter_mut().map(count).sum::<u64>()
    };
    let before = count_of(&mut clients);
    let write = |key: &str, bytes: usize| {
        let value = "w".repeat(bytes);
        format!("set {key} 0 0 {bytes}\r\n{value}\r\n")
    };
    let is_refused = |answer: &str| answer == "SERVER_ERROR out of memory storing object";
    let small = keys("more", 0..100).into_iter().enumerate();
    let small =
        small.filter(|(number, key)| is_refused(&clients[number % 3].ask(write(key, VALUE_BYTES))));
    let small = small.count() as u64;
    let (mut refused, mut kept) = (0, 0);
    for (number, key) in stored.iter().take(300).enumerate() {
        if !is_refused(&clients[number % 3].ask(write(key, 20_000))) {
            continue;
        }
        refused += 1;
        for client in &mut clients {
            kept += u64::from(answered(client, &format!("mg {key} s\r\n")) != "EN");
        }
    }
    let are_full = small > 10 && refused > 100;
    assert!(are_full, "the nodes are not full: {small}, {refused}");
    let counted = count_of(&mut clients) - before;
    assert_eq!(kept, 0, "of {refused}");
    assert!(counted >= small + refused, "{counted}, {small}, {refused}");
}
