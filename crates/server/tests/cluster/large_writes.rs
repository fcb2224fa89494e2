//! Writes of more than 4 KiB among other requests of their connection.

use std::{thread, time::Duration};

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
