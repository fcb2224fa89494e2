//! All nodes that had a key die while it moves: those that it was to come to find it among
//! themselves.

use std::{thread, time::Duration};

use curtail_consistency::placement::Placement;
use curtail_server::Fault;
use curtail_testing::{Client, eventually};
use curtail_types::{NodeId, NodeSet};

use crate::support::{Cluster, Shape, items, route};

/// Keys that are stored before nodes are added.
const KEYS: usize = 120;

const REPLICAS: usize = 3;

/// Keys move from two nodes to three, of which two take nothing in and one gives only what it is
/// asked for; then the two old holders die. A key that one new holder has is found.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn new_holders_find_a_key_among_themselves_when_all_old_ones_are_dead() {
    let mut cluster = Cluster::start(Shape {
        nodes: 2,
        workers: 1,
        replicas: REPLICAS,
        lease_ms: 6000,
        ..Shape::DEFAULT
    });
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key{number}")).collect();
    let mut client = cluster.client(0);
    for key in &keys {
        client.set(key, "v");
    }
    cluster.grow(5);
    for (id, fault) in [
        (2, Fault::TakesNoMoves),
        (3, Fault::TakesNoMoves),
        (4, Fault::OffersNothing),
    ] {
        cluster.shape.fault = fault;
        cluster.revive(id);
    }
    let placement = Placement::new(NodeSet::from_bits(0b11111), REPLICAS);
    let is_with_the_last = |key: &&String| placement.holders(route(key)).contains(NodeId(4));
    let (saved, lost): (Vec<&String>, Vec<&String>) = keys.iter().partition(is_with_the_last);
    let mut last = cluster.client(4);
    eventually("keys come to the last node", || {
        let placed = last.stat("curtail", "cluster_nodes_placed");
        assert!([2, 5].contains(&placed), "not placed on three at once");
        placed == 5 && items(&mut last, 4) == saved.len()
    });
    cluster.nodes[0] = None;
    cluster.nodes[1] = None;
    last.await_stat("curtail", "cluster_nodes_live", 3);
    let homes = Placement::new(NodeSet::from_bits(0b11100), REPLICAS);
    let of = |keys: &[&String], home| -> Vec<String> {
        let of_home = keys.iter().filter(|key| homes.home(route(key)) == home);
        of_home.map(|key| (*key).clone()).collect()
    };
    let mut talks: Vec<Talk> = [2, 3, 4]
        .map(|id| {
            let (there, gone) = (of(&saved, NodeId(id)), of(&lost, NodeId(id)));
            assert!(there.len() > 3, "{there:?}");
            // Whose home is the last node has it as a holder.
            assert_eq!(gone.len() > 3, id < 4, "{gone:?}");
            Talk::begin(&cluster, usize::from(id), there, gone)
        })
        .into();
    // All wait for what the first that they ask says, but for what the last node has itself.
    thread::sleep(Duration::from_millis(200));
    for id in [2, 3] {
        cluster.client(id).demand("verbosity 1\r\n", "OK\r\n");
    }
    talks.iter_mut().for_each(Talk::end);
}

/// A client that asks the home of some keys for all of them at once.
struct Talk {
    client: Client,
    there: Vec<String>,
    gone: Vec<String>,
}

impl Talk {
    fn begin(cluster: &Cluster, id: usize, there: Vec<String>, gone: Vec<String>) -> Self {
        let mut client = cluster.client(id);
        let asked = there.iter().chain(&gone);
        client.send(
            asked
                .map(|key| format!("mg {key} v\r\n"))
                .collect::<String>(),
        );
        Self {
            client,
            there,
            gone,
        }
    }

    fn end(&mut self) {
        for key in &self.there {
            let answer = self.client.line();
            assert_eq!(answer, "VA 1", "{key}");
            assert_eq!(self.client.line(), "v", "{key}");
        }
        for key in &self.gone {
            assert_eq!(self.client.line(), "EN", "{key}");
        }
    }
}
