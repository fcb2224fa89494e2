//! Sessions against the product's server, in every mode that needs no privileges.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod support;

use std::{
    net::{SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use curtail_client::{ClientError, Command, Session, Status};
use curtail_server::{Config, Listen, NativeConfig, NativeMode, Server};

use support::{
    eventually, every_command, increments_in_threads, number_at, patient,
    proxy::{Faults, Proxy},
};

const MODES: [NativeMode; 3] = [NativeMode::IoAck, NativeMode::Deferred, NativeMode::Raw];

fn config(mode: NativeMode) -> Config {
    Config {
        listen: vec![Listen {
            address: "127.0.0.1:0".parse().unwrap(),
            optional: false,
        }],
        workers: 2,
        pin: false,
        native: Some(NativeConfig {
            mode: Some(mode),
            slots: Some(128),
            ..NativeConfig::default()
        }),
        ..Config::default()
    }
}

fn start(config: Config) -> (Server, SocketAddr) {
    let server = Server::start(config, |_| ()).unwrap();
    let address = server.native().unwrap().addresses[0];
    (server, address)
}

#[test]
fn every_command_does_what_it_says() {
    for mode in MODES {
        let (_server, address) = start(config(mode));
        let session = Session::open(address, patient()).unwrap();
        every_command(&session);
    }
}

/// Goal: a value of any length is stored and read, whichever way it goes. Method: lengths around
/// the longest datagram, and a long one, under one key, so that each replaces one of another way.
#[test]
fn values_of_every_length_come_back() {
    for mode in MODES {
        let (_server, address) = start(config(mode));
        let session = Session::open(address, patient()).unwrap();
        for bytes in [
            0, 1, 1300, 1384, 1385, 1386, 1387, 1388, 1400, 1984, 5000, 900_000, 10,
        ] {
            let value: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
            session.set(b"key", &value).unwrap().accepted().unwrap();
            let found = session.get(b"key").unwrap().result().unwrap();
            assert_eq!(found.status, Status::Value, "{mode:?}, {bytes} bytes");
            assert!(
                found.value == value,
                "{mode:?}: {} of {bytes} bytes",
                found.value.len()
            );
        }
        let large = vec![0; 3 << 20];
        let refused = session
            .call(&Command::set(b"key", &large))
            .unwrap()
            .result();
        let is_refused = match &refused {
            Ok(answer) => answer.status == Status::TooLarge,
            Err(error) => matches!(error, ClientError::Refused(_)),
        };
        assert!(is_refused, "{mode:?}: {refused:?}");
        assert_eq!(
            session.get(b"none").unwrap().result().unwrap().status,
            Status::NotFound
        );
    }
}

/// Goal: exactly once over a network that loses, repeats, delays, reorders and damages (JB-T3).
#[test]
fn increments_are_counted_once_on_a_bad_network() {
    let faults = Faults {
        drop: 80,
        repeat: 150,
        delay: 300,
        damage: 10,
        delay_max: Duration::from_millis(10),
        cut_bytes: 0,
    };
    for (mode, seed) in MODES.into_iter().zip(1..) {
        let (_server, address) = start(config(mode));
        let proxy = Proxy::start(address, faults, seed);
        let session = Session::open(proxy.address, patient()).unwrap();
        for key in [&b"a"[..], b"b", b"c"] {
            session.set(key, b"0").unwrap().accepted().unwrap();
        }
        let acknowledged = increments_in_threads(&session, 40);
        proxy.heal();
        for (key, count) in [b"a", b"b", b"c"].into_iter().zip(acknowledged) {
            assert_eq!(number_at(&session, key), count, "{mode:?}");
        }
        assert!(
            session.counts().resent > 10,
            "{mode:?}: {:?}",
            session.counts()
        );
    }
}

/// Goal: queues that are full slow the clients down and lose nothing. Method: 16 slots, executions
/// of 50 us, and more writes than that at once from two sessions.
#[test]
fn full_queues_are_met_with_patience() {
    for mode in MODES {
        let mut config = config(mode);
        let native = config.native.as_mut().unwrap();
        native.slots = Some(16);
        native.service_ns = 50_000;
        let (_server, address) = start(config);
        let sessions = [1, 2].map(|_| Session::open(address, patient()).unwrap());
        sessions[0].set(b"n", b"0").unwrap().accepted().unwrap();
        thread::scope(|scope| {
            for session in &sessions {
                scope.spawn(move || {
                    let increment = Command::increment(b"n", 1).marked();
                    let writes: Vec<_> = (0..300)
                        .map(|_| session.write(&increment).unwrap())
                        .collect();
                    for write in writes {
                        write.accepted().unwrap();
                    }
                });
            }
        });
        assert_eq!(number_at(&sessions[0], b"n"), 600, "{mode:?}");
    }
}

/// Goal: threads of one process share a session, and see each other's accepted writes at once.
#[test]
fn accepted_writes_are_seen_by_everybody() {
    let (server, address) = start(config(NativeMode::IoAck));
    let session = Session::open(address, patient()).unwrap();
    let other = Session::open(address, patient()).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (session, other) = (session.clone(), other.clone());
            scope.spawn(move || {
                let key = format!("key {thread}");
                for round in 0..200 {
                    let value = format!("{round}");
                    session
                        .set(key.as_bytes(), value.as_bytes())
                        .unwrap()
                        .accepted()
                        .unwrap();
                    let found = other.get(key.as_bytes()).unwrap().result().unwrap();
                    assert_eq!(found.value, value.as_bytes());
                }
            });
        }
    });
    drop(server);
}

/// Goal: a session outlives its server: the next one at the same port grants another, and what is
/// asked meanwhile waits.
#[test]
fn a_server_that_comes_back_is_found_again() {
    let (server, address) = start(config(NativeMode::IoAck));
    let session = Session::open(address, patient()).unwrap();
    session.set(b"key", b"one").unwrap().accepted().unwrap();
    drop(server.stop());
    let read = session.get(b"key").unwrap();
    let mut again = config(NativeMode::IoAck);
    again.native.as_mut().unwrap().port = address.port();
    let (_server, _) = start(again);
    assert_eq!(
        read.result().unwrap().status,
        Status::NotFound,
        "its memory is gone"
    );
    session.set(b"key", b"two").unwrap().accepted().unwrap();
    assert_eq!(session.get(b"key").unwrap().result().unwrap().value, b"two");
    eventually("two sessions were granted", || {
        session.counts().sessions == 2
    });
}

/// Goal: an idle session is kept alive beyond its lease.
#[test]
fn an_idle_session_is_kept_alive() {
    let mut config = config(NativeMode::IoAck);
    config.native.as_mut().unwrap().lease_ms = 1000;
    let (_server, address) = start(config);
    let session = Session::open(address, patient()).unwrap();
    thread::sleep(Duration::from_millis(1500));
    session.set(b"key", b"value").unwrap().accepted().unwrap();
    assert_eq!(session.counts().sessions, 1);
}

/// Goal: a stranger's bytes are answered by no more than they are. Method: every kind of short or
/// wrong datagram, from a socket without a session.
#[test]
fn a_stranger_gets_no_more_than_it_sends() {
    let (_server, address) = start(config(NativeMode::IoAck));
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.connect(address).unwrap();
    stranger
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut buffer = [0; 4096];
    for (number, bytes) in [1, 63, 64, 65, 200, 1400].into_iter().enumerate() {
        let mut datagram = vec![number as u8; bytes];
        datagram[0] = b'C';
        if let Some(second) = datagram.get_mut(1) {
            *second = b'N';
        }
        stranger.send(&datagram).unwrap();
        let answered = stranger.recv(&mut buffer).unwrap_or(0);
        assert!(
            answered <= bytes && (answered == 0 || answered == 64),
            "{bytes}: {answered}"
        );
    }
}
