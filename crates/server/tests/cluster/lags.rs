//! A node that comes to a view late, or a part of it, and one whose lease ends before it answers.

use std::{
    thread,
    time::{Duration, Instant},
};

use curtail_consistency::placement::Placement;
use curtail_membership::Roster;
use curtail_server::Fault;
use curtail_testing::{Client, PATIENCE, eventually};
use curtail_types::{NodeId, NodeSet};

use crate::{
    processes::Processes,
    support::{Cluster, Shape, answered, await_placement, route, store, until},
};

/// Goal: keys that come before the view under which they move are not lost, with one holder each,
/// however long that view takes. Method: a node that comes back cannot read the view while keys
/// move to it; the others have long sent all.
#[test]
fn keys_that_come_before_their_view_are_not_lost() {
    let shape = Shape {
        nodes: 3,
        workers: 1,
        replicas: 1,
        model: "lin",
        lease_ms: 3000,
        fault: Fault::Nothing,
        secured: false,
    };
    let mut cluster = Processes::start(shape, None);
    let late = NodeId(2);
    cluster.kill(2);
    wait_for(&cluster, |roster| !roster.view().live.contains(late));
    let mut client = Client::connect_to(cluster.addresses()[0].unwrap());
    let keys = || (0..400).map(|number| format!("late{number}"));
    for key in keys() {
        store(&mut client, &key, "gold");
    }
    cluster.revive(2);
    wait_for(&cluster, |roster| roster.view().live.contains(late));
    cluster.hide_view(2, true);
    wait_for(&cluster, |roster| roster.view().placed.contains(late));
    // A lease is not over, and the others are done with theirs.
    thread::sleep(Duration::from_millis(700));
    cluster.hide_view(2, false);
    cluster.settle();
    for key in keys() {
        let answer = answered(&mut client, &format!("mg {key}\r\n"));
        assert_eq!(answer, "HD", "{key}");
    }
}

/// Goal: a key that has come to a node is not lost there, with one holder each, although the worker
/// that is to take it in is not the one that received it, and has no processor at the moment.
/// Method: nodes with one worker send to one that joins with two, the second of which dozes.
#[test]
fn keys_that_lie_with_a_slow_worker_are_not_lost() {
    let mut cluster = Cluster::start(Shape {
        workers: 1,
        ..Shape::default()
    });
    cluster.nodes[2] = None;
    let mut client = cluster.client(0);
    await_placement(&mut client, 2);
    let keys = || (0..400).map(|number| format!("doze{number}"));
    for key in keys() {
        store(&mut client, &key, "gold");
    }
    cluster.set_workers(2);
    cluster.set_fault(Fault::Dozes);
    cluster.revive(2);
    await_placement(&mut client, 3);
    for key in keys() {
        let answer = answered(&mut client, &format!("mg {key}\r\n"));
        assert_eq!(answer, "HD", "{key}");
    }
}

/// Goal: who asks for a key that does not come to its new home is told so in a while, and nothing
/// of it happens later. Method: a node that joins takes in nothing of what moves to it, and a
/// client of it counts up; then it takes all in.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn who_waits_for_a_key_that_does_not_come_is_told_so() {
    let mut cluster = Cluster::start(Shape {
        workers: 1,
        ..Shape::default()
    });
    cluster.nodes[2] = None;
    let mut client = cluster.client(0);
    await_placement(&mut client, 2);
    let homes = Placement::new(NodeSet::from_bits(0b111), 1);
    let comes = |key: &String| homes.home(route(key)) == NodeId(2);
    let keys = (0..).map(|number| format!("late{number}"));
    let keys: Vec<String> = keys.filter(comes).take(20).collect();
    for key in &keys {
        client.set(key, "5");
    }
    cluster.set_fault(Fault::TakesNoMoves);
    cluster.revive(2);
    let mut third = cluster.client(2);
    eventually("keys move", || {
        third.stat("curtail", "cluster_nodes_placed") == 3
    });
    third.send(
        keys.iter()
            .map(|key| format!("incr {key} 1\r\n"))
            .collect::<String>(),
    );
    for key in &keys {
        let answer = third.line();
        assert!(answer.contains("still on its way"), "{key}: {answer:?}");
    }
    third.demand("verbosity 1\r\n", "OK\r\n");
    for key in &keys {
        let answer = answered(&mut third, &format!("mg {key} v\r\n"));
        assert_eq!((&*answer, &*third.line()), ("VA 1", "5"), "{key}");
    }
}

/// Goal: a value that its new node does not take holds nothing up: it is given up, and all others
/// move. Method: large and small keys move to a node that was started for shorter values.
#[test]
fn a_value_that_its_new_node_does_not_take_holds_no_move_up() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.nodes[2] = None;
    let mut client = cluster.client(0);
    await_placement(&mut client, 2);
    let keys = |kind: &'static str| (0..40).map(move |number| format!("{kind}{number}"));
    for (kind, bytes) in [("small", 100), ("large", 200_000)] {
        for key in keys(kind) {
            let value = "v".repeat(bytes);
            client.set(&key, &value);
        }
    }
    cluster.set_item_bytes_max(64 << 10);
    cluster.revive(2);
    await_placement(&mut client, 3);
    let there = |client: &mut Client, kind| {
        let found = keys(kind).filter(|key| client.ask(format!("mg {key}\r\n")) == "HD");
        found.count()
    };
    assert_eq!(there(&mut client, "small"), 40);
    let large = there(&mut client, "large");
    assert!((15..40).contains(&large), "a third of them: {large}");
}

/// Goal: what a node runs for others, or in its turn at last, is shown to nobody if its lease has
/// ended before the reply leaves. Method: a node that always finds so; the others ask it.
#[test]
fn replies_do_not_leave_when_the_lease_has_ended() {
    for replicas in [1, 2] {
        let mut cluster = Cluster::start(Shape {
            replicas,
            ..Shape::default()
        });
        cluster.nodes[2] = None;
        let mut client = cluster.client(0);
        await_placement(&mut client, 2);
        cluster.set_fault(Fault::LeaseEndsInTurn);
        cluster.revive(2);
        await_placement(&mut client, 3);
        let ask = |number| (number, client.ask(format!("mg key{number}\r\n")));
        let answers = (0..200).map(ask);
        let (shown, refused): (Vec<_>, Vec<_>) = answers.partition(|(_, answer)| answer == "EN");
        let is_refused = |(_, answer): &(u32, String)| answer.contains("lease ended");
        assert!(refused.iter().all(is_refused), "{refused:?}");
        let (value, there) = ("v".repeat(1020), refused[0].0);
        client.ask(format!("set key{there} 0 0 1020\r\n{value}\r\n"));
        // More than a worker has room for in one batch.
        let mut own = cluster.client(2);
        own.send(format!("mg key{there} v\r\n").repeat(2000));
        own.expect_closed();
        let counts = (shown.len(), refused.len());
        assert!(
            (90..180).contains(&counts.0),
            "a third of the keys is there: {counts:?}"
        );
    }
}

/// Goal: a view that is not this cluster's changes nothing: when the right one is back, the nodes
/// go on with what they had. Method: for less than a lease the store holds that of another name.
#[test]
fn the_view_of_another_cluster_is_not_acted_on() {
    let cluster = Cluster::start(Shape::default());
    let mut client = cluster.client(0);
    client.set("kept", "1");
    let (name, view) = (cluster.name(), cluster.view_file());
    let own = std::fs::read_to_string(&view).unwrap();
    let other = own.replace(&name, "another");
    assert_ne!(own, other);
    std::fs::write(&view, other).unwrap();
    thread::sleep(Duration::from_millis(1500));
    std::fs::write(&view, own).unwrap();
    for id in 0..3 {
        let mut client = cluster.client(id);
        let answer = answered(&mut client, "mg kept\r\n");
        assert_eq!(answer, "HD");
    }
}

/// Goal: a node that is told to end while its lease is over loses nothing, with one holder each.
/// Method: the store holds another cluster's view for longer than a lease; a node leaves, and the
/// right view is back.
#[test]
fn a_node_whose_lease_is_over_gives_its_keys_away() {
    let mut cluster = Cluster::start(Shape::default());
    let mut client = cluster.client(0);
    let keys = || (0..100).map(|number| format!("kept{number}"));
    for key in keys() {
        client.set(&key, "1");
    }
    let (name, view) = (cluster.name(), cluster.view_file());
    let own = std::fs::read_to_string(&view).unwrap();
    std::fs::write(&view, own.replace(&name, "another")).unwrap();
    let leaver = cluster.nodes[2].take().unwrap();
    let started = Instant::now();
    while leaver.is_in_service() {
        assert!(started.elapsed() < PATIENCE, "its lease goes on");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(leaver.leave(), "it has keys to give");
    std::fs::write(&view, own).unwrap();
    while !leaver.has_left() {
        assert!(started.elapsed() < PATIENCE, "it does not leave");
        thread::sleep(Duration::from_millis(5));
    }
    drop(leaver.stop());
    for key in keys() {
        let answer = answered(&mut client, &format!("mg {key}\r\n"));
        assert_eq!(answer, "HD", "{key}");
    }
}

/// Goal: a node that is taken out while it leaves has left: it has nothing to give any more, and
/// does not come back. Method: three nodes; one that leaves is removed from the view.
#[test]
fn who_is_taken_out_while_it_leaves_has_left() {
    let mut cluster = Cluster::start(Shape::default());
    let leaver = cluster.nodes[2].take().unwrap();
    assert!(leaver.leave(), "it has keys to give");
    cluster.take_out(2);
    let started = Instant::now();
    while !leaver.has_left() {
        assert!(started.elapsed() < PATIENCE, "it does not leave");
        thread::sleep(Duration::from_millis(5));
    }
    let mut client = cluster.client(0);
    eventually("a node is removed", || {
        client.stat("curtail", "cluster_nodes_live") == 2
    });
    // Longer than it would take to join.
    thread::sleep(Duration::from_millis(1500));
    let stat = |name| cluster.client(0).stat("curtail", name);
    assert_eq!(
        (stat("cluster_nodes_live"), stat("cluster_nodes_joining")),
        (2, 0)
    );
}

/// Goal: who takes a node's place keeps it, and its links. Method: a node that has joined a cluster
/// of others, and another process as the same node: the lowest, which makes all of its connections.
#[test]
fn who_was_replaced_does_not_come_back() {
    let mut cluster = Cluster::start(Shape::default());
    cluster.nodes[0] = None;
    let mut other = cluster.client(1);
    await_placement(&mut other, 2);
    cluster.revive(0);
    await_placement(&mut other, 3);
    let mut first = cluster.client(0);
    let second = cluster.node(0);
    let mut client = Client::connect_to(second.addresses()[0]);
    let is_out = |answer: &str| answer.contains("not in service");
    let all_answer = |client: &mut Client| {
        for number in 0..30 {
            let request = format!("mg none{number}\r\n");
            until(client, &request, |answer| answer == "EN");
        }
    };
    all_answer(&mut client);
    all_answer(&mut other);
    let (view, relayed) = (
        other.stat("curtail", "cluster_view"),
        other.stat("curtail", "cluster_relayed"),
    );
    await_placement(&mut other, 3);
    for round in 0..20 {
        thread::sleep(Duration::from_millis(100));
        for number in 0..30 {
            let request = format!("mg none{number}\r\n");
            let answer = client.ask(&request);
            assert!(!is_out(&answer), "who was replaced is back");
            assert_eq!(answer, "EN", "round {round}, at who took the place");
            // A third of them goes over links with who took the place.
            assert_eq!(other.ask(&request), "EN", "round {round}");
        }
        let answer = first.ask("mg none\r\n");
        assert!(is_out(&answer), "{answer:?}");
    }
    assert!(other.stat("curtail", "cluster_relayed") > relayed + 20 * 10);
    let (before, now) = (view, other.stat("curtail", "cluster_view"));
    assert!(
        now <= before + 3,
        "views {before} to {now}: somebody was removed"
    );
}

#[track_caller]
fn wait_for(cluster: &Processes, there: impl Fn(&Roster) -> bool) {
    eventually("it comes", || {
        cluster.roster().is_some_and(|roster| there(&roster))
    });
}
