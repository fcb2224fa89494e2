//! A node that comes to a view late, or a part of it, and one whose lease ends before it answers.

use std::{fs, thread, time::Duration};

use curtail_membership::Roster;
use curtail_server::Fault;
use curtail_testing::{Client, eventually};
use curtail_types::NodeId;

use crate::{
    processes::Processes,
    support::{Cluster, Shape, answered, await_placement, store, until},
};

/// Keys with one holder arrive at a node before it can read the view that moves them.
#[test]
fn keys_that_come_before_their_view_are_not_lost() {
    let shape = Shape {
        workers: 1,
        ..Shape::DEFAULT
    };
    let mut cluster = Processes::start(shape, None);
    let late = NodeId(2);
    cluster.kill(2);
    wait_for(&cluster, |roster| !is_member(roster, late));
    let mut client = Client::connect_to(cluster.addresses()[0].unwrap());
    let keys = || (0..400).map(|number| format!("late{number}"));
    for key in keys() {
        store(&mut client, &key, "gold");
    }
    cluster.revive(2);
    wait_for(&cluster, |roster| is_member(roster, late));
    cluster.hide_view(2, true);
    wait_for(&cluster, |roster| holds_some(roster, late));
    // A lease is not over, and the others are done with theirs.
    thread::sleep(Duration::from_millis(700));
    cluster.hide_view(2, false);
    cluster.settle();
    all_there(&mut client, keys());
}

/// One worker receives a moved key and another, which dozes, is to take it in.
#[test]
fn keys_that_lie_with_a_slow_worker_are_not_lost() {
    let (mut cluster, mut client) = Cluster::two_of_three(|shape| shape.workers = 1);
    let keys = || (0..400).map(|number| format!("doze{number}"));
    for key in keys() {
        store(&mut client, &key, "gold");
    }
    cluster.shape.workers = 2;
    cluster.shape.fault = Fault::Dozes;
    cluster.revive(2);
    await_placement(&mut client, 3);
    all_there(&mut client, keys());
}

/// A node whose lease ends in its turn sends none of that turn's replies.
#[test]
fn replies_do_not_leave_when_the_lease_has_ended() {
    for replicas in [1, 2] {
        let (mut cluster, mut client) = Cluster::two_of_three(|shape| shape.replicas = replicas);
        cluster.shape.fault = Fault::LeaseEndsInTurn;
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
        let shown = shown.len();
        assert!((90..180).contains(&shown), "a third is there: {shown}");
    }
}

/// The store holds another cluster's view for less than a lease: nodes keep what they had.
#[test]
fn the_view_of_another_cluster_is_not_acted_on() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut client = cluster.client(0);
    client.set("kept", "1");
    let own = cluster.replace_view();
    thread::sleep(Duration::from_millis(1500));
    fs::write(cluster.view_file(), own).unwrap();
    for client in &mut cluster.clients() {
        all_there(client, ["kept".to_owned()].into_iter());
    }
}

/// A node dropped its items at once when a client asked it for `flush_all`, also if it was out of
/// service and refused the command.
#[test]
fn a_flush_that_is_refused_removes_nothing() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut client = cluster.client(0);
    let keys = || (0..30).map(|number| format!("kept{number}"));
    for key in keys() {
        client.set(&key, "1");
    }
    let own = cluster.replace_view();
    let node = cluster.nodes[0].as_ref().unwrap();
    eventually("its lease ends", || !node.is_in_service());
    let answer = client.ask("flush_all\r\n");
    assert_eq!(answer, "SERVER_ERROR this node is not in service");
    fs::write(cluster.view_file(), own).unwrap();
    all_there(&mut client, keys());
}

/// A node that is told to leave while its lease is over loses nothing, with one holder each.
#[test]
fn a_node_whose_lease_is_over_gives_its_keys_away() {
    let mut cluster = Cluster::start(Shape::DEFAULT);
    let mut client = cluster.client(0);
    let keys = || (0..100).map(|number| format!("kept{number}"));
    for key in keys() {
        client.set(&key, "1");
    }
    let own = cluster.replace_view();
    let leaver = cluster.nodes[2].take().unwrap();
    eventually("its lease ends", || !leaver.is_in_service());
    assert!(leaver.leave(), "it has keys to give");
    fs::write(cluster.view_file(), own).unwrap();
    eventually("it leaves", || leaver.has_left());
    drop(leaver.stop());
    all_there(&mut client, keys());
}

/// A node that is removed from the view while it leaves has left, and does not join again.
#[test]
fn who_is_taken_out_while_it_leaves_has_left() {
    let mut cluster = Cluster::start(Shape::DEFAULT);
    let leaver = cluster.nodes[2].take().unwrap();
    assert!(leaver.leave(), "it has keys to give");
    cluster.take_out(2);
    eventually("it leaves", || leaver.has_left());
    let mut client = cluster.client(0);
    client.await_stat("curtail", "cluster_nodes_live", 2);
    // Longer than it would take to join.
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(client.stat("curtail", "cluster_nodes_live"), 2);
}

/// A process that starts as the same node keeps the node's place and its links; node 0 makes all of
/// its connections itself.
#[test]
fn who_was_replaced_does_not_come_back() {
    let mut cluster = Cluster::start(Shape::DEFAULT);
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
    await_placement(&mut other, 3);
    let view = other.stat("curtail", "cluster_view");
    let relayed = other.stat("curtail", "cluster_relayed");
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
    let now = other.stat("curtail", "cluster_view");
    assert!(now <= view + 3, "views {view} to {now}: a node was removed");
}

#[track_caller]
fn all_there(client: &mut Client, keys: impl Iterator<Item = String>) {
    for key in keys {
        assert_eq!(answered(client, &format!("mg {key}\r\n")), "HD", "{key}");
    }
}

/// Whether a node has slices, or is sent some.
fn holds_some(roster: &Roster, id: NodeId) -> bool {
    let share = roster.share(id);
    share.in_sync + share.catching_up > 0
}

fn is_member(roster: &Roster, id: NodeId) -> bool {
    let slices = roster.slices();
    slices.is_some_and(|slices| slices.members.contains(id))
}

#[track_caller]
fn wait_for(cluster: &Processes, there: impl Fn(&Roster) -> bool) {
    eventually("it comes", || {
        cluster.roster().is_some_and(|roster| there(&roster))
    });
}
