//! One request, one reply, whatever becomes of the node that was asked or of the one that has the
//! key: a client that counts, while nodes fail.

use std::{
    fs,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use curtail_testing::{Connection, PATIENCE, eventually};

use crate::{
    processes::Processes,
    reply_counting::{Counted, Talk, converse_with},
    support::{Cluster, Shape},
};

const TALK: Talk = Talk {
    seed: 1,
    commands: 300,
    item_bytes_max: 1 << 20,
    value_bytes_max: 60_000,
    flushes: true,
};

/// Every command is answered once by a cluster, keys of one `get` at several nodes included.
#[test]
fn every_command_is_answered_once_by_a_cluster() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let counted = converse_with(&addresses(&cluster), TALK);
    assert_eq!(counted.commands, 3 * TALK.commands, "{counted:?}");
}

fn addresses(cluster: &Cluster) -> Vec<SocketAddr> {
    cluster.addresses().into_iter().flatten().collect()
}

/// How long a lease is where all of them are to end.
const LEASE_MS: u64 = 800;

/// Leases end because nobody can read the view: a `get` of many keys gets one line, and a request
/// without reply none.
#[test]
fn a_node_out_of_service_answers_every_command_once() {
    let cluster = Cluster::with(|shape| shape.lease_ms = LEASE_MS);
    let view = cluster.view_file();
    fs::rename(&view, view.with_extension("away")).unwrap();
    let refusal = "SERVER_ERROR this node is not in service";
    // In the turn in which its lease ends a node closes the connections that it would have
    // answered.
    thread::sleep(3 * Duration::from_millis(LEASE_MS));
    let mut client = cluster.client(0);
    eventually("the lease ends", || client.ask("mg key\r\n") == refusal);
    client.demand("get a b c d e f\r\nmn\r\n", format!("{refusal}\r\nMN\r\n"));
    client.demand("gats 10 a b\r\nmn\r\n", format!("{refusal}\r\nMN\r\n"));
    client.demand(
        "set a 0 0 1 noreply\r\nx\r\ndelete a noreply\r\nincr a 1 noreply\r\nmn\r\n",
        "MN\r\n",
    );
    let long = "x".repeat(30_000);
    client.demand(
        format!("set a 0 0 30000 noreply\r\n{long}\r\nmn\r\n"),
        "MN\r\n",
    );
    client.demand(
        format!("set a 0 0 30000\r\n{long}\r\nmn\r\n"),
        format!("{refusal}\r\nMN\r\n"),
    );
    let counted = converse_with(&addresses(&cluster)[..2], TALK);
    assert_eq!(counted.commands, 2 * TALK.commands, "{counted:?}");
    assert!(counted.failed_gets > 50, "{counted:?}");
    assert!(counted.server_errors > 50, "{counted:?}");
}

/// Talks to two nodes, again and again, while something is done to the third one; until some
/// commands have failed and all are answered again.
fn talk_through(cluster: &mut Processes, disturb: fn(&mut Processes, bool)) {
    let addresses = cluster.addresses();
    let addresses: Vec<SocketAddr> = addresses.into_iter().take(2).flatten().collect();
    disturb(cluster, true);
    let (mut sum, started) = (Counted::default(), Instant::now());
    for seed in 2.. {
        let counted = converse_with(&addresses, Talk { seed, ..TALK });
        sum.add(counted);
        let is_over = counted.failed_gets + counted.server_errors < 200 && !counted.closed;
        if started.elapsed() > Duration::from_secs(2) && is_over {
            break;
        }
        assert!(started.elapsed() < 3 * PATIENCE, "never over: {sum:?}");
    }
    disturb(cluster, false);
    cluster.settle();
    let counted = converse_with(&addresses, TALK);
    assert_eq!(counted.commands, 2 * TALK.commands, "{counted:?}");
}

/// Two nodes answer each command once while the third is killed or stopped.
#[test]
fn while_a_node_is_away_every_command_is_answered_once() {
    let shape = Shape {
        lease_ms: 1500,
        ..Shape::DEFAULT
    };
    let mut cluster = Processes::start(shape, None);
    talk_through(&mut cluster, |cluster, begins| match begins {
        true => cluster.kill(2),
        false => cluster.revive(2),
    });
    talk_through(&mut cluster, |cluster, begins| cluster.stop(2, begins));
}

/// All nodes answer each command once while one of them is removed from the view.
#[test]
fn while_a_node_is_removed_every_command_is_answered_once() {
    let cluster = Cluster::with(|shape| shape.lease_ms = 1500);
    let addresses = addresses(&cluster);
    thread::scope(|scope| {
        let talking = scope.spawn(|| {
            for seed in 2..8 {
                converse_with(&addresses, Talk { seed, ..TALK });
            }
        });
        cluster.take_out(2);
        talking.join().unwrap();
    });
    let started = Instant::now();
    let ask = || Connection::to(addresses[2], PATIENCE)?.ask("mg key\r\n");
    while !ask().is_ok_and(|answer| answer == "EN") {
        assert!(started.elapsed() < 3 * PATIENCE, "it never comes back");
        thread::sleep(Duration::from_millis(20));
    }
    let counted = converse_with(&addresses, TALK);
    assert!(!counted.closed, "{counted:?}");
}
