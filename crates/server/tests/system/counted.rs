//! One request, one reply, whatever fails: a client that counts, at servers that cannot do all that
//! it asks.

use curtail_server::{Config, Server};
use curtail_testing::{Client, config, serve, start};

use crate::counting::{Counted, READ_ONLY, Talk, converse};

const TALK: Talk = Talk {
    seed: 1,
    commands: 1500,
    item_bytes_max: 256 << 10,
    value_bytes_max: 60_000,
    flushes: true,
};

/// Holds some conversations at once and gives their sum.
fn converse_at_once(server: &Server, talk: Talk) -> Counted {
    let address = server.addresses()[0];
    let one = |number: u64| {
        let seed = talk.seed * 1000 + number;
        converse(address, Talk { seed, ..talk })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || one(number)))
            .collect();
        let mut sum = Counted::default();
        for thread in threads {
            let counted = thread.join().unwrap();
            assert!(!counted.closed, "the server closed a connection");
            sum.commands += counted.commands;
            sum.failed_gets += counted.failed_gets;
            sum.server_errors += counted.server_errors;
        }
        sum
    })
}

fn limited(workers: usize) -> Config {
    Config {
        workers,
        item_bytes_max: TALK.item_bytes_max,
        ..config()
    }
}

/// Goal: every command is answered once. Method: conversations at servers of each policy, so that
/// keys of one `get` are looked up here and at other workers.
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

/// Goal: a full server that evicts nothing refuses once. Method: conversations that bring more than
/// it has room for.
#[test]
fn every_command_is_answered_once_by_a_full_server() {
    let (server, mut client) = serve(Config {
        memory_bytes_max: 8 << 20,
        evict: false,
        ..limited(2)
    });
    for number in 0.. {
        client.send(format!(
            "set filler{number} 0 0 50000\r\n{}\r\n",
            "x".repeat(50_000)
        ));
        if client.line() != "STORED" {
            break;
        }
    }
    let talk = Talk {
        flushes: false,
        ..TALK
    };
    let counted = converse_at_once(&server, talk);
    assert!(counted.server_errors > 100, "{counted:?}");
}

/// Goal: a server that takes no more large requests says so once, also in the middle of a `get` of
/// many keys. Method: clients that never end their large writes take all places for large requests
/// there are, and conversations go on beside them.
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
        client.send(format!("get {large}\r\n"));
        let line = client.line();
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

/// Goal: who has not logged in is answered once for each command, and then as anybody.
#[test]
fn a_login_that_fails_is_answered_once() {
    let file = curtail_testing::temporary_path("logins");
    std::fs::write(&file, "name:password\n").unwrap();
    let (_server, mut client) = serve(Config {
        auth_file: Some(file.clone()),
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
    std::fs::remove_file(file).unwrap();
}
