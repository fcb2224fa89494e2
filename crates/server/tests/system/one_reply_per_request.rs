//! One request, one reply, whatever fails: a client that counts, at servers that cannot do all that
//! it asks.

use curtail_server::{Config, Server};
use curtail_testing::{Client, config, serve, set, start};

use crate::reply_counting::{Counted, READ_ONLY, Talk, converse_with};

const TALK: Talk = Talk {
    seed: 1,
    commands: 1500,
    item_bytes_max: 256 << 10,
    value_bytes_max: 60_000,
    flushes: true,
};

/// Holds four conversations at once and gives their sum.
fn converse_at_once(server: &Server, talk: Talk) -> Counted {
    let counted = converse_with(&[server.addresses()[0]; 4], talk);
    assert!(!counted.closed, "the server closed a connection");
    counted
}

fn limited(workers: usize) -> Config {
    Config {
        workers,
        item_bytes_max: TALK.item_bytes_max,
        ..config()
    }
}

/// Each policy answers each command once, wherever the keys of one `get` are.
#[test]
fn every_command_is_answered_once_under_every_policy() {
    let names = ["erew", "crew", "crcw", "d-crew", "size-aware+d-crew"];
    for (seed, name) in (1..).zip(names) {
        let server = start(Config {
            policy: name.parse().unwrap(),
            ..limited(2)
        });
        let counted = converse_at_once(&server, Talk { seed, ..TALK });
        assert_eq!(counted.commands, 4 * TALK.commands, "{name}");
    }
}

/// A full server that evicts nothing refuses each command once.
#[test]
fn every_command_is_answered_once_by_a_full_server() {
    let (server, mut client) = serve(Config {
        memory_bytes_max: 8 << 20,
        evict: false,
        ..limited(2)
    });
    let filler = |number| set(format_args!("filler{number}"), 0, "x".repeat(50_000));
    (0..).find(|number| client.ask(filler(*number)) != "STORED");
    let talk = Talk {
        flushes: false,
        ..TALK
    };
    let counted = converse_at_once(&server, talk);
    assert!(counted.server_errors > 100, "{counted:?}");
}

/// Unfinished large writes take all places: each large request gets `busy` once, also in the middle
/// of a `get` of many keys.
#[test]
fn every_command_is_answered_once_by_a_server_that_is_busy() {
    let (server, mut client) = serve(Config {
        policy: "size-aware-static+erew".parse().unwrap(),
        threshold: Some(8 << 10),
        large_connections_max: 1,
        ..limited(2)
    });
    let value = "x".repeat(20_000);
    for number in READ_ONLY {
        client.set(format_args!("counted{number}"), &value);
    }
    let large = format!("counted{}", READ_ONLY.start);
    let holders: Vec<Client> = (0..16)
        .map(|number| {
            let mut holder = Client::connect(&server);
            holder.send(format!("set held{number} 0 0 200000\r\nthe beginning"));
            holder
        })
        .collect();
    curtail_testing::eventually("all places are taken", || {
        let line = client.ask(format!("get {large}\r\n"));
        if line.starts_with("VALUE ") {
            client.take(20_000 + "\r\nEND\r\n".len());
        }
        line == "SERVER_ERROR busy"
    });
    client.demand(
        format!("get {large} none {large}\r\nget none {large}\r\nmn\r\n"),
        "SERVER_ERROR busy\r\nSERVER_ERROR busy\r\nMN\r\n",
    );
    client.demand(
        format!(
            "set other 0 0 20000 noreply\r\n{value}\r\nappend {large} 0 0 1 noreply\r\nx\r\nmn\r\n"
        ),
        "MN\r\n",
    );
    let talk = Talk {
        flushes: false,
        ..TALK
    };
    let counted = converse_at_once(&server, talk);
    assert!(counted.failed_gets > 10, "{counted:?}");
    assert!(counted.server_errors > 10, "{counted:?}");
    drop(holders);
}

/// Who has not logged in is answered once for each command, and then as anybody.
#[test]
fn a_login_that_fails_is_answered_once() {
    let file = curtail_testing::temporary_file("name:password\n");
    let (_server, mut client) = serve(Config {
        auth_file: Some(file.to_path_buf()),
        ..limited(1)
    });
    client.demand(
        "get a b c\r\nmn\r\nset x 0 0 4\r\na b!\r\nset x 0 0 10\r\nname wrong\r\n",
        "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR unauthenticated\r\n\
         CLIENT_ERROR authentication failure\r\nCLIENT_ERROR authentication failure\r\n",
    );
    client.demand(
        "set x 0 0 13\r\nname password\r\nget a b c\r\nmn\r\n",
        "STORED\r\nEND\r\nMN\r\n",
    );
}
