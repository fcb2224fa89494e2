//! What becomes of items in full nodes when a node dies or leaves (CL-3, CL-5..8).

use std::collections::BTreeSet;

use curtail_testing::{Client, eventually};
use curtail_types::NodeId;

use crate::{
    processes::Processes,
    support::{Shape, answered, until},
};

/// Length of a value.
const VALUE_BYTES: usize = 1000;

fn cluster(replicas: usize, evict: bool) -> Processes {
    let shape = Shape {
        replicas,
        evict,
        lease_ms: 1500,
        memory_bytes: 16 << 20,
        ..Shape::DEFAULT
    };
    Processes::start(shape, None)
}

fn client(cluster: &mut Processes, id: usize) -> Client {
    Client::connect_to(cluster.addresses()[id].unwrap())
}

fn set(client: &mut Client, key: &str) -> String {
    let value = "v".repeat(VALUE_BYTES);
    let request = format!("set {key} 0 0 {VALUE_BYTES}\r\n{value}\r\n");
    until(client, &request, |answer| {
        answer == "STORED" || answer.contains("out of memory")
    })
}

fn has(client: &mut Client, key: &str) -> bool {
    match &*answered(client, &format!("mg {key} s\r\n")) {
        "EN" => false,
        answer => {
            assert_eq!(answer, format!("HD s{VALUE_BYTES}"), "{key}");
            true
        }
    }
}

/// Removes a node, and waits until the others have settled.
fn remove(cluster: &mut Processes, id: usize, kills: bool) {
    match kills {
        true => cluster.kill(id),
        false => cluster.leave(id),
    }
    let others = cluster.shape.nodes - 1;
    eventually("a node is removed", || {
        let roster = cluster.roster();
        let slices = roster.as_ref().and_then(|roster| roster.slices());
        slices.is_some_and(|slices| {
            slices.members.len() == others && !slices.members.contains(NodeId(id as u8))
        })
    });
}

/// Goal: with two copies, a full cache loses none of its popular keys with a node, and nothing
/// that was deleted or evicted comes back. Method: popular keys are read while others are written,
/// many more than there is room for; some popular keys are deleted.
fn popular_keys_stay(kills: bool) {
    let mut cluster = cluster(2, true);
    let mut clients: Vec<Client> = (0..2).map(|id| client(&mut cluster, id)).collect();
    let popular: Vec<String> = (0..500).map(|number| format!("popular{number}")).collect();
    for key in &popular {
        assert_eq!(set(&mut clients[0], key), "STORED");
    }
    let others = |number: usize| format!("other{number}");
    let count = 60_000;
    for number in 0..count {
        set(&mut clients[number % 2], &others(number));
        has(&mut clients[0], &popular[number % popular.len()]);
    }
    let (gone, kept) = popular.split_at(100);
    for key in gone {
        answered(&mut clients[1], &format!("delete {key}\r\n"));
    }
    let here = |client: &mut Client, key: &String| has(client, key);
    let kept: Vec<&String> = kept
        .iter()
        .filter(|key| here(&mut clients[0], key))
        .collect();
    assert!(
        kept.len() > 350,
        "popular keys were evicted: {}",
        kept.len()
    );
    let evicted = (0..count).step_by(20).map(others);
    let evicted: BTreeSet<String> = evicted.filter(|key| !here(&mut clients[0], key)).collect();
    assert!(
        evicted.len() > 500,
        "the cache is not full: {}",
        evicted.len()
    );
    remove(&mut cluster, 2, kills);
    let client = &mut clients[0];
    let lost = kept.iter().filter(|key| !has(client, key)).count();
    let back = evicted
        .iter()
        .chain(gone)
        .filter(|key| has(client, key))
        .count();
    assert_eq!((lost, back), (0, 0), "lost, and back");
}

#[test]
fn popular_keys_survive_a_death_in_a_full_cache() {
    popular_keys_stay(true);
}

#[test]
fn popular_keys_survive_a_removal_in_a_full_cache() {
    popular_keys_stay(false);
}

/// Goal: without eviction every write that was stored has its copies. Method: two copies; writes
/// until nodes are full and beyond; a node dies.
#[test]
fn what_a_full_cluster_stored_has_its_copies() {
    let mut cluster = cluster(2, false);
    let mut writer = client(&mut cluster, 0);
    let keys = (0..30_000).map(|number| format!("key{number}"));
    let stored: Vec<String> = keys
        .filter(|key| set(&mut writer, key) == "STORED")
        .collect();
    assert!(
        stored.len() < 30_000 && stored.len() > 5_000,
        "{}",
        stored.len()
    );
    remove(&mut cluster, 2, true);
    let missing = stored.iter().filter(|key| !has(&mut writer, key)).count();
    assert_eq!(missing, 0, "of {}", stored.len());
}

/// Goal: nothing is lost by an orderly removal without eviction, whether the others have room for
/// it or not; if they have none, the node stays. Method: one copy; nodes that are half full, then
/// full.
#[test]
fn a_removal_drops_nothing_where_nothing_may_be_evicted() {
    let mut cluster = cluster(1, false);
    let mut writer = client(&mut cluster, 0);
    let keys = (0..12_000).map(|number| format!("key{number}"));
    let stored: Vec<String> = keys
        .filter(|key| set(&mut writer, key) == "STORED")
        .collect();
    assert_eq!(stored.len(), 12_000);
    remove(&mut cluster, 2, false);
    let missing = stored.iter().filter(|key| !has(&mut writer, key)).count();
    assert_eq!(missing, 0, "of {}", stored.len());
    let keys = (0..40_000).map(|number| format!("more{number}"));
    let more: Vec<String> = keys
        .filter(|key| set(&mut writer, key) == "STORED")
        .collect();
    assert!(more.len() < 40_000, "the nodes are not full");
    cluster.leave(1);
    std::thread::sleep(std::time::Duration::from_secs(3));
    let all = stored.iter().chain(&more);
    let missing = all.filter(|key| !has(&mut writer, key)).count();
    let told = writer.stat("curtail", "cluster_items_lost");
    assert_eq!((missing, told), (0, 0), "of {}", stored.len() + more.len());
}
