//! Any node answers for any key.

use std::{thread, time::Duration};

use curtail_testing::{Client, PATIENCE, eventually};

use crate::support::{Cluster, Shape, store, until};

/// Every command works at a node that does not hold the key, alone and in a pipeline.
#[test]
fn any_node_answers_for_any_key() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut clients = cluster.clients();
    for number in 0..60 {
        let at = number % 3;
        let key = format!("key{number}");
        let (one, other) = (at, (at + 1) % 3);
        clients[one].demand(format!("set {key} 7 0 3\r\nabc\r\n"), "STORED\r\n");
        clients[other].demand(
            format!("get {key}\r\n"),
            format!("VALUE {key} 7 3\r\nabc\r\nEND\r\n"),
        );
        clients[other].demand(format!("append {key} 0 0 2\r\nde\r\n"), "STORED\r\n");
        clients[one].demand(format!("mg {key} v\r\n"), "VA 5\r\nabcde\r\n");
        clients[one].demand(format!("add {key} 0 0 1\r\nx\r\n"), "NOT_STORED\r\n");
        clients[other].demand(format!("delete {key}\r\n"), "DELETED\r\n");
        clients[one].demand(format!("get {key}\r\n"), "END\r\n");
        clients[one].demand(format!("ma {key} N0 J5 v\r\n"), "VA 1\r\n5\r\n");
        clients[other].demand(format!("incr {key} 10\r\n"), "15\r\n");
    }
    let keys: Vec<String> = (0..60).map(|number| format!("key{number}")).collect();
    let values: String = keys
        .iter()
        .map(|key| format!("VALUE {key} 0 2\r\n15\r\n"))
        .collect();
    let all = format!("get {}\r\n", keys.join(" "));
    clients[2].demand(format!("{all}mn\r\n"), format!("{values}END\r\nMN\r\n"));
    let quiet: String = keys
        .iter()
        .map(|key| format!("mg {key} v q k\r\n"))
        .collect();
    let found: String = keys
        .iter()
        .map(|key| format!("VA 2 k{key}\r\n15\r\n"))
        .collect();
    clients[1].demand(format!("{quiet}mn\r\n"), format!("{found}MN\r\n"));
}

/// A node compacts neighbouring increments of one key, and each still has its own answer.
#[test]
fn runs_are_compacted_at_their_home() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut clients = cluster.clients();
    let numbers: String = (1..=16).map(|number| format!("{number}\r\n")).collect();
    for number in 0..30 {
        let key = format!("run{number}");
        clients[number % 3].set(&key, "0");
        clients[1].demand(format!("incr {key} 1\r\n").repeat(16), &numbers);
    }
    let compacted = |client: &mut Client| client.stat("curtail", "writes_compacted");
    let compacted: u64 = clients.iter_mut().map(compacted).sum();
    assert!(compacted > 0, "no run was compacted");
}

/// Goal: over TLS a cluster is what it is without. Method: small, large and hot keys at every node.
#[test]
fn nodes_may_talk_over_tls() {
    let cluster = Cluster::with(|shape| shape.secured = true);
    let mut clients = cluster.clients();
    for (number, bytes) in [5, 5_000, 300_000].into_iter().cycle().take(24).enumerate() {
        let (key, value) = (format!("key{number}"), "v".repeat(bytes));
        clients[number % 3].set(&key, &value);
        // A write whose value is still coming in when its key becomes hot would be refused.
        if number % 2 == 0 {
            cluster.change_hot(&key, true);
        }
        for client in &mut clients {
            client.demand_value(&key, &value);
        }
    }
}

/// Every node sees the last write of a hot key, also while keys are promoted and demoted.
#[test]
fn a_hot_key_is_one_key_everywhere() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut clients = cluster.clients();
    for round in 0..4 {
        for number in 0..12 {
            let key = format!("hot{number}");
            clients[number % 3].set(&key, "00");
            cluster.change_hot(&key, round % 2 == 0);
        }
        thread::sleep(Duration::from_millis(50));
        for number in 0..12 {
            let key = format!("hot{number}");
            for write in 10..40 {
                let at = write % 3;
                clients[at].set(&key, write.to_string());
                for client in &mut clients {
                    client.demand(format!("mg {key} v\r\n"), format!("VA 2\r\n{write}\r\n"));
                }
            }
            clients[0].demand(format!("incr {key} 1\r\n"), "40\r\n");
            clients[1].demand(format!("incr {key} 1\r\n"), "41\r\n");
            clients[2].demand(format!("mg {key} v\r\n"), "VA 2\r\n41\r\n");
            clients[2].demand(format!("delete {key}\r\n"), "DELETED\r\n");
            clients[0].demand(format!("mg {key} v\r\n"), "EN\r\n");
        }
    }
}

/// Under sequential consistency a session never reads an earlier value than it has seen.
#[test]
fn a_session_reads_what_it_wrote() {
    let cluster = Cluster::with(|shape| shape.model = "sc");
    let key = |client: usize, number: usize| format!("own{client}-{number}");
    let mut clients: Vec<_> = (0..12).map(|number| cluster.client(number % 3)).collect();
    for number in 0..60 {
        clients[0].set(format_args!("cold{number}"), "0");
        clients[1].demand(format!("mg cold{number} v\r\n"), "VA 1\r\n0\r\n");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        for own in 0..8 {
            client.set(key(number, own), "0");
            cluster.change_hot(&key(number, own), true);
        }
    }
    thread::sleep(Duration::from_millis(200));
    thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                for count in 1..=100 {
                    for own in 0..8 {
                        let key = key(number, own);
                        client.demand(format!("incr {key} 1\r\n"), format!("{count}\r\n"));
                        let length = count.to_string().len();
                        let shown = format!("VA {length}\r\n{count}\r\n");
                        client.demand(format!("mg {key} v\r\n"), &shown);
                    }
                }
            });
        }
    });
}

/// Goal: under sequential consistency a write that changes nothing is answered, too: no copy gets a
/// later version for it. Method: writes of hot keys whose condition fails, at every node.
#[test]
fn a_write_of_a_hot_key_that_changes_nothing_is_answered() {
    let cluster = Cluster::with(|shape| shape.model = "sc");
    let mut clients = cluster.clients();
    for number in 0..6 {
        let (there, gone) = (format!("there{number}"), format!("gone{number}"));
        clients[0].set(&there, "x");
        cluster.change_hot(&there, true);
        cluster.change_hot(&gone, true);
        thread::sleep(Duration::from_millis(50));
        for client in &mut clients {
            client.demand(format!("add {there} 0 0 1\r\ny\r\n"), "NOT_STORED\r\n");
            client.demand(format!("cas {there} 0 0 1 1\r\ny\r\n"), "EXISTS\r\n");
            client.demand(format!("delete {gone}\r\n"), "NOT_FOUND\r\n");
            client.demand(format!("incr {gone} 1\r\n"), "NOT_FOUND\r\n");
            client.demand(format!("replace {gone} 0 0 1\r\ny\r\n"), "NOT_STORED\r\n");
            client.demand(format!("mg {there} v\r\n"), "VA 1\r\nx\r\n");
        }
    }
}

/// Any node stores, joins and returns large values, also while their key becomes hot.
#[test]
fn large_values_are_at_any_node() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut clients = cluster.clients();
    for number in 0..24 {
        let key = format!("large{number}");
        let mut value = "v".repeat(3000 + 9000 * number);
        let set = |value: &str| format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        let found = |value: &str| format!("VA {}\r\n{value}\r\n", value.len());
        clients[number % 3].demand(set(&value), "STORED\r\n");
        clients[(number + 1) % 3].demand(format!("mg {key} v\r\n"), found(&value));
        if number % 2 == 0 {
            cluster.change_hot(&key, true);
            thread::sleep(Duration::from_millis(20));
        }
        clients[(number + 1) % 3].demand(format!("append {key} 0 0 3\r\nend\r\n"), "STORED\r\n");
        value += "end";
        for client in &mut clients {
            client.demand(format!("mg {key} v\r\n"), found(&value));
        }
        value = "w".repeat(5000);
        clients[(number + 2) % 3].demand(set(&value), "STORED\r\n");
        clients[number % 3].demand(format!("mg {key} v\r\n"), found(&value));
        let too_large = "x".repeat((1 << 20) + 1);
        clients[(number + 2) % 3].demand(
            set(&too_large),
            "SERVER_ERROR object too large for cache\r\n",
        );
        // A write above the limit removes what is there, wherever it is.
        clients[number % 3].demand(format!("mg {key} v\r\n"), "EN\r\n");
    }
}

/// A key becomes hot when half of its large value has arrived, at its home and elsewhere.
#[test]
fn a_value_is_stored_though_its_key_becomes_hot_meanwhile() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let value = "v".repeat(600_000);
    let (first, second) = value.split_at(value.len() / 2);
    for number in 0..12 {
        let key = format!("becomes-hot{number}");
        let mut client = cluster.client(number % 3);
        client.send(format!("set {key} 0 0 {}\r\n{first}", value.len()));
        thread::sleep(Duration::from_millis(30));
        cluster.change_hot(&key, true);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(client.ask(format!("{second}\r\n")), "STORED", "{key}");
        // And the connection is where it belongs.
        client.demand("mn\r\n", "MN\r\n");
        for other in 0..3 {
            let answer = cluster.client(other).ask(format!("mg {key} s\r\n"));
            assert_eq!(answer, "HD s600000", "{key} at {other}");
        }
    }
}

/// Goal: the requests of a connection are executed in their order, wherever their keys are. Method:
/// pipelines with large values, which have links of their own.
#[test]
fn a_pipeline_is_executed_in_its_order() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut clients = cluster.clients();
    let set = |key: &str, bytes: usize| {
        let value = "v".repeat(bytes);
        format!("set {key} 0 0 {bytes}\r\n{value}\r\n")
    };
    for round in 0..100 {
        let keys: Vec<String> = (0..6)
            .map(|number| format!("key{round}-{number}"))
            .collect();
        for client in &mut clients {
            let (mut asked, mut answered) = (String::new(), String::new());
            for key in &keys {
                client.set(key, "old");
                // Just large, so that it arrives at once with what is before it.
                asked += &format!("mg {key} v\r\n{}", set(key, 4200));
                answered += "VA 3\r\nold\r\nSTORED\r\n";
            }
            client.demand(asked, answered);
            let last = &keys[round % keys.len()];
            client.demand(
                format!("{}flush_all\r\nmg {last}\r\n", set(last, 100_000)),
                "STORED\r\nOK\r\nEN\r\n",
            );
        }
    }
}

/// Goal: a read that changes its item shows the version that the item has then, wherever it is
/// replicated: a client can compare with it.
#[test]
fn a_changing_read_shows_a_version_to_compare_with() {
    let cluster = Cluster::with(|shape| shape.replicas = 2);
    let mut clients = cluster.clients();
    for number in 0..12 {
        let key = format!("key{number}");
        let client = &mut clients[number % 3];
        for read in ["T100", "R200", "N30", "N30 T100"] {
            match read.starts_with('N') {
                true => client.demand(format!("set {key} 0 -1 1\r\nx\r\n"), "STORED\r\n"),
                false => client.demand(format!("set {key} 0 100 1\r\nx\r\n"), "STORED\r\n"),
            };
            let shown = client.ask(format!("mg {key} {read} c\r\n"));
            let version = shown
                .split_whitespace()
                .nth(1)
                .unwrap()
                .trim_start_matches('c');
            let cas = format!("cas {key} 0 0 1 {version}\r\ny\r\n");
            assert_eq!(client.ask(cas), "STORED", "{read}: {shown}");
            let is_won = shown.ends_with(" W");
            assert_eq!(is_won, read != "T100", "{read}: {shown}");
        }
    }
}

/// Goal: `flush_all` at one node empties the cluster. Method: keys of every home, hot ones too.
#[test]
fn a_flush_is_for_all_nodes() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut clients = cluster.clients();
    for round in 0..3 {
        for number in 0..30 {
            clients[0].set(format_args!("key{number}"), "x");
            if number % 3 == 0 {
                cluster.change_hot(&format!("key{number}"), true);
            }
        }
        thread::sleep(Duration::from_millis(50));
        clients[round].demand("flush_all\r\n", "OK\r\n");
        for number in 0..30 {
            for client in &mut clients {
                client.demand(format!("mg key{number} v\r\n"), "EN\r\n");
            }
        }
    }
}

/// Goal: a flush for later reaches nodes that join meanwhile. Method: the new node takes over
/// slices with items before the time comes.
#[test]
fn a_flush_for_later_reaches_who_joins_meanwhile() {
    let mut cluster = Cluster::start_from(1, Shape::DEFAULT);
    let mut client = cluster.client(1);
    let keys: Vec<String> = (0..60).map(|number| format!("key{number}")).collect();
    for key in &keys {
        store(&mut client, key, "x");
    }
    client.demand("flush_all 6\r\n", "OK\r\n");
    cluster.revive(0);
    for key in &keys {
        let read = format!("mg {key}\r\n");
        eventually("a key is flushed", || client.ask(&read) == "EN");
    }
}

/// Goal: of all readers of a stale item, at whatever node, one is told to store it again, also
/// while the key is hot. Method: the nodes that have only copies are asked first.
#[test]
fn one_reader_of_a_stale_hot_key_stores_it_again() {
    let cluster = Cluster::start(Shape::DEFAULT);
    let mut clients = cluster.clients();
    for number in 0..12 {
        let key = format!("stale{number}");
        clients[0].set(&key, "x");
        cluster.change_hot(&key, true);
        thread::sleep(Duration::from_millis(50));
        clients[0].demand(format!("md {key} I T300\r\n"), "HD\r\n");
        let read = format!("mg {key} s\r\n");
        let mut read = |at: usize| clients[(number + at) % 3].ask(&read);
        assert_eq!(read(0), "HD s1 X W", "{key}");
        for at in 1..6 {
            assert_eq!(read(at), "HD s1 Z X", "{key}");
        }
        clients[number % 3].set(&key, "y");
        clients[(number + 1) % 3].demand(format!("mg {key} v\r\n"), "VA 1\r\ny\r\n");
    }
}

/// A key that clients read often becomes hot. The lease is long, and refused requests do not count,
/// because a lease may end on a busy machine. A second with fewer than 128 samples changes nothing,
/// so many requests go at once.
#[test]
fn a_popular_key_becomes_hot() {
    let cluster = Cluster::with(|shape| shape.lease_ms = 10_000);
    let mut clients = cluster.clients();
    store(&mut clients[0], "popular", "value");
    let started = std::time::Instant::now();
    loop {
        let mut hot = 0;
        for client in &mut clients {
            for _ in 0..4 {
                read_popular(client, 2000);
            }
            hot += usize::from(client.stat("curtail", "cluster_hot_reads") > 100);
        }
        if hot == 3 {
            break;
        }
        assert!(started.elapsed() < 6 * PATIENCE, "hot at {hot} nodes");
    }
    store(&mut clients[2], "popular", "other");
    until(&mut clients[1], "mg popular v\r\n", |answer| {
        answer == "VA 5"
    });
    assert_eq!(clients[1].line(), "other");
}

/// Goal: nodes measure what requests cost that they answer themselves, that they forward, and what
/// a message costs. Method: clients of all nodes read keys of all nodes, in short pipelines.
#[test]
fn nodes_measure_what_requests_cost() {
    let cluster = Cluster::with(|shape| shape.lease_ms = 10_000);
    let mut clients = cluster.clients();
    let costs = |client: &mut Client| {
        ["local", "forwarded", "message"]
            .map(|of| client.stat("curtail", &format!("cluster_cost_{of}_ns")))
    };
    let are_known =
        |[local, forwarded, message]: &[u64; 3]| 0 < *local && local < forwarded && 0 < *message;
    let started = std::time::Instant::now();
    loop {
        for client in &mut clients {
            for _ in 0..100 {
                let keys = (0..16).map(|key| format!("mg none{key}\r\n"));
                client.send(keys.collect::<String>());
                (0..16).for_each(|_| drop(client.line()));
            }
        }
        let found: Vec<_> = clients.iter_mut().map(costs).collect();
        if found.iter().all(are_known) {
            return;
        }
        assert!(started.elapsed() < 6 * PATIENCE, "{found:?}");
    }
}

/// Reads the key so many times at once; it is there whenever the node answers.
fn read_popular(client: &mut Client, times: usize) {
    client.send("mg popular v\r\n".repeat(times));
    for _ in 0..times {
        let head = client.line();
        if head.starts_with("SERVER_ERROR") {
            continue;
        }
        assert_eq!((&*head, &*client.line()), ("VA 5", "value"));
    }
}

/// Goal: a node that is in service as soon as its membership starts takes clients. Method: a node
/// alone, which waits for no other.
#[test]
fn a_node_alone_takes_clients() {
    let cluster = Cluster::with(|shape| shape.nodes = 1);
    cluster.client(0).set("key", "x");
}
