//! A node that comes to a view late.

use std::{
    thread,
    time::{Duration, Instant},
};

use curtail_cluster::Roster;
use curtail_server::Fault;
use curtail_types::NodeId;

use crate::{
    failures::until,
    processes::Processes,
    support::{Client, PATIENCE, Shape},
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
    let mut client = Client::connect(cluster.addresses()[0].unwrap());
    let keys = || (0..400).map(|number| format!("late{number}"));
    for key in keys() {
        let request = format!("set {key} 0 0 4\r\ngold\r\n");
        until(&mut client, &request, |answer| answer == "STORED\r\n");
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
        let answer = until(&mut client, &format!("mg {key}\r\n"), |answer| {
            matches!(answer, "HD\r\n" | "EN\r\n")
        });
        assert_eq!(answer, "HD\r\n", "{key}");
    }
}

#[track_caller]
fn wait_for(cluster: &Processes, there: impl Fn(&Roster) -> bool) {
    let started = Instant::now();
    while !cluster.roster().is_some_and(|roster| there(&roster)) {
        assert!(started.elapsed() < PATIENCE, "it never came");
        thread::sleep(Duration::from_millis(5));
    }
}
