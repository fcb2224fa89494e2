//! A session against a server of the protocol, over a sound network and over a bad one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what fails here fails the test"
)]

mod support;

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use curtail_client::{ClientError, Command, Config, Reason, Session, Status};

use support::{
    eventually, every_command, increments_in_threads, number_at, patient,
    proxy::{Faults, Proxy},
    server::{Behaviour, Server},
};

/// Goal: every command does what it says. Method: one of each against a server, with answers and
/// marked.
#[test]
fn every_command_does_what_it_says() {
    let server = Server::start(Behaviour::default());
    let session = Session::open(server.address, patient()).unwrap();
    every_command(&session);
}

#[test]
fn what_makes_no_sense_is_refused_before_it_is_sent() {
    let server = Server::start(Behaviour::default());
    let session = Session::open(server.address, patient()).unwrap();
    let mark = |outcome: Result<(), ClientError>| assert_eq!(outcome, Err(ClientError::Mark));
    mark(session.write(&Command::set(b"k", b"v")).map(drop));
    mark(session.call(&Command::set(b"k", b"v").marked()).map(drop));
    mark(session.write(&Command::get(b"k").marked()).map(drop));
    let long = [b'k'; 251];
    for key in [&b""[..], &long] {
        let outcome = session.set(key, b"v").unwrap().accepted();
        assert!(
            matches!(outcome, Err(ClientError::Command(_))),
            "{outcome:?}"
        );
    }
    session.set(b"k", b"v").unwrap().accepted().unwrap();
}

/// Goal: a value that fits no datagram goes over TCP, both ways, unseen by the caller.
#[test]
fn large_values_go_over_the_stream() {
    let server = Server::start(Behaviour::default());
    let session = Session::open(server.address, patient()).unwrap();
    let large: Vec<u8> = (0..3_000_000_u32)
        .map(|i| (i * 7 + i / 251) as u8)
        .collect();
    session.set(b"large", &large).unwrap().accepted().unwrap();
    session.set(b"small", b"v").unwrap().accepted().unwrap();
    let found = session.get(b"large").unwrap().result().unwrap();
    assert!(
        found.value == large,
        "{} bytes came back",
        found.value.len()
    );
    assert_eq!(session.get(b"small").unwrap().result().unwrap().value, b"v");
    let answer = session
        .call(&Command::append(b"large", b"!"))
        .unwrap()
        .result()
        .unwrap();
    assert_eq!(answer.status, Status::Done);
}

/// Goal: many threads share one session, and every answer finds its asker. Method: each thread
/// writes and reads keys of its own, several at a time.
#[test]
fn threads_share_a_session() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 100;
    let server = Server::start(Behaviour::default());
    let session = Session::open(server.address, patient()).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let session = session.clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let keys: Vec<String> =
                        (0..8).map(|i| format!("{thread} {round} {i}")).collect();
                    let writes: Vec<_> = keys
                        .iter()
                        .map(|key| session.set(key.as_bytes(), key.as_bytes()).unwrap())
                        .collect();
                    for write in writes {
                        write.accepted().unwrap();
                    }
                    let reads: Vec<_> = keys
                        .iter()
                        .map(|key| session.get(key.as_bytes()).unwrap())
                        .collect();
                    for (key, read) in keys.iter().zip(reads) {
                        assert_eq!(read.result().unwrap().value, key.as_bytes());
                    }
                }
            });
        }
    });
    eventually("all are counted", || {
        session.counts().accepted == (THREADS * ROUNDS * 8) as u64
    });
    assert_eq!(server.state.lock().unwrap().sessions_granted, 1);
}

/// Goal: exactly once over a network that loses, repeats, delays, reorders and damages (JB-T3).
/// Method: threads increment counters, marked and unmarked; at the end every counter is the number
/// of its acknowledged increments, no more and no fewer.
#[test]
fn increments_are_counted_once_on_a_bad_network() {
    for seed in [1, 2] {
        let server = Server::start(Behaviour::default());
        let faults = Faults {
            drop: 100,
            repeat: 150,
            delay: 300,
            damage: 20,
            delay_max: Duration::from_millis(10),
            cut_bytes: 0,
        };
        let proxy = Proxy::start(server.address, faults, seed);
        let session = Session::open(proxy.address, patient()).unwrap();
        for key in [&b"a"[..], b"b", b"c"] {
            session.set(key, b"0").unwrap().accepted().unwrap();
        }
        let acknowledged = increments_in_threads(&session, 60);
        proxy.heal();
        for (key, count) in [b"a", b"b", b"c"].iter().zip(acknowledged) {
            assert_eq!(number_at(&session, *key), count, "seed {seed}");
        }
        let counts = session.counts();
        assert!(counts.resent > 20, "the network was bad: {counts:?}");
        assert!(server.state.lock().unwrap().repeated > 10);
    }
}

/// Goal: a queue that is full slows the client down and loses nothing. Method: queues of 4 places
/// with 300 us of execution, and 60 writes at once.
#[test]
fn a_full_queue_is_met_with_patience() {
    let server = Server::start(Behaviour {
        capacity: 4,
        service: Duration::from_micros(300),
        queues: 2,
        ..Behaviour::default()
    });
    let session = Session::open(server.address, patient()).unwrap();
    session.set(b"n", b"0").unwrap().accepted().unwrap();
    let increment = Command::increment(b"n", 1).marked();
    let writes: Vec<_> = (0..300)
        .map(|_| session.write(&increment).unwrap())
        .collect();
    for write in writes {
        write.accepted().unwrap();
    }
    assert_eq!(number_at(&session, b"n"), 300);
    assert!(server.state.lock().unwrap().nacks > 0, "the queue was full");
    eventually("refusals are counted", || session.counts().full > 0);
}

/// Goal: a server that forgets its sessions is met with a new one; writes that were under way are
/// indeterminate, reads are repeated, what had not been sent is sent.
#[test]
fn a_lost_session_is_renewed() {
    let server = Server::start(Behaviour {
        service: Duration::from_millis(50),
        ..Behaviour::default()
    });
    let session = Session::open(server.address, patient()).unwrap();
    session.set(b"key", b"value").unwrap().accepted().unwrap();
    let slow = session.call(&Command::append(b"key", b"!")).unwrap();
    eventually("it is under way", || {
        server.state.lock().unwrap().executed > 0
    });
    server.forget_sessions();
    let read = session.get(b"key").unwrap().result().unwrap();
    assert!(read.value.starts_with(b"value"), "{:?}", read.value);
    match slow.result() {
        Err(error) => {
            assert_eq!(error, ClientError::Indeterminate(Reason::SessionLost));
            assert!(error.may_have_happened());
        }
        Ok(answer) => assert_eq!(answer.status, Status::Done),
    }
    session.set(b"key", b"other").unwrap().accepted().unwrap();
    assert_eq!(
        session.get(b"key").unwrap().result().unwrap().value,
        b"other"
    );
    assert_eq!(server.state.lock().unwrap().sessions_granted, 2);
}

/// Goal: what was never answered is named as what it is. Method: the network goes away for good.
#[test]
fn silence_is_indeterminate_for_writes_and_nothing_for_reads() {
    let server = Server::start(Behaviour::default());
    let proxy = Proxy::start(server.address, Faults::default(), 1);
    let config = Config {
        patience: Duration::from_millis(150),
        connect_patience: Duration::from_secs(20),
        ..Config::default()
    };
    let session = Session::open(proxy.address, config).unwrap();
    let drop_all = Faults {
        drop: 1000,
        ..Faults::default()
    };
    *proxy.faults.lock().unwrap() = drop_all;
    let (write, read) = (session.set(b"k", b"v").unwrap(), session.get(b"k").unwrap());
    assert_eq!(
        write.accepted().unwrap_err(),
        ClientError::Indeterminate(Reason::Silence)
    );
    assert_eq!(read.result().unwrap_err(), ClientError::TimedOut);
    proxy.heal();
    // The number of the write that was given up is not used again: the slot works.
    eventually("it works again", || {
        session.set(b"k", b"w").unwrap().accepted().is_ok()
    });
    assert_eq!(session.get(b"k").unwrap().result().unwrap().value, b"w");
}

#[test]
fn nobody_there_is_an_error_in_time() {
    let (udp, _tcp) = support::server::sockets();
    let config = Config {
        connect_patience: Duration::from_millis(100),
        ..Config::default()
    };
    let refused = Session::open(udp.local_addr().unwrap(), config).err();
    assert_eq!(refused, Some(ClientError::NoSession(None)));
}

/// Goal: an idle session outlives its lease, because it is kept alive; without that it is renewed
/// when it is used again. Method: a lease of a second, and more than that of silence.
#[test]
fn an_idle_session_is_kept_or_renewed() {
    for (keep_alive, sessions) in [(true, 1), (false, 2)] {
        let server = Server::start(Behaviour {
            lease_ms: 1000,
            ..Behaviour::default()
        });
        let config = Config {
            keep_alive,
            ..patient()
        };
        let session = Session::open(server.address, config).unwrap();
        session.set(b"k", b"v").unwrap().accepted().unwrap();
        thread::sleep(Duration::from_millis(1500));
        session.set(b"k", b"w").unwrap().accepted().unwrap();
        let granted = server.state.lock().unwrap().sessions_granted;
        assert_eq!(granted, sessions, "keep alive: {keep_alive}");
    }
}

#[test]
fn durable_is_waited_for_where_there_is_such_a_thing() {
    let server = Server::start(Behaviour {
        durable: true,
        ..Behaviour::default()
    });
    let session = Session::open(server.address, patient()).unwrap();
    let within = Duration::from_secs(20);
    session
        .set(b"k", b"v")
        .unwrap()
        .durable(&session, within)
        .unwrap();
    let forgetful = Server::start(Behaviour::default());
    let session = Session::open(forgetful.address, patient()).unwrap();
    let write = session.set(b"k", b"v").unwrap();
    let outcome = write.durable(&session, Duration::from_millis(30));
    assert_eq!(outcome.unwrap_err(), ClientError::NotDurable);
}

/// Goal: handles are futures. Method: polled by hand until they are ready.
#[test]
fn handles_are_futures() {
    let server = Server::start(Behaviour::default());
    let session = Session::open(server.address, patient()).unwrap();
    let mut write = Box::pin(session.set(b"k", b"v").unwrap());
    let mut context = Context::from_waker(Waker::noop());
    let mut accepted = None;
    eventually("the write is accepted", || {
        match write.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => accepted = Some(outcome.unwrap()),
            Poll::Pending => {}
        }
        accepted.is_some()
    });
    let mut read = session.get(b"k").unwrap();
    let mut answer = None;
    eventually("the read is answered", || {
        answer = read.try_result();
        answer.is_some()
    });
    assert_eq!(answer.unwrap().unwrap().value, b"v");
}

/// Goal: handles that are kept or dropped never block a session for good. Method: more of both than
/// there are cells.
#[test]
fn handles_that_are_kept_are_told_apart_from_a_busy_server() {
    let server = Server::start(Behaviour::default());
    let config = Config {
        handles_max: 64,
        ..patient()
    };
    let session = Session::open(server.address, config).unwrap();
    for _ in 0..500 {
        drop(session.set(b"k", b"v").unwrap());
    }
    let kept: Vec<_> = (0..64).map(|_| session.set(b"k", b"v").unwrap()).collect();
    let refused = session.set(b"k", b"v").err();
    assert_eq!(refused, Some(ClientError::Handles));
    drop(kept);
    session.set(b"k", b"v").unwrap().accepted().unwrap();
}

#[test]
fn a_closed_session_ends_what_is_under_way() {
    let server = Server::start(Behaviour {
        service: Duration::from_secs(60),
        ..Behaviour::default()
    });
    let session = Session::open(server.address, patient()).unwrap();
    let other = session.clone();
    let slow = session.call(&Command::delete(b"k")).unwrap();
    eventually("it is under way", || session.counts().assigned > 0);
    session.close();
    assert_eq!(
        slow.result().unwrap_err(),
        ClientError::Indeterminate(Reason::Closed)
    );
    assert_eq!(other.get(b"k").err(), Some(ClientError::Closed));
}

/// Goal: a stream that breaks in the middle of a value changes nothing but the time it takes.
#[test]
fn a_broken_stream_is_replaced() {
    let server = Server::start(Behaviour::default());
    let faults = Faults {
        cut_bytes: 700_000,
        ..Faults::default()
    };
    let proxy = Proxy::start(server.address, faults, 3);
    let session = Session::open(proxy.address, patient()).unwrap();
    let value = Arc::new(vec![7_u8; 300_000]);
    session.set(b"number", b"0").unwrap().accepted().unwrap();
    for round in 0..6_u8 {
        let mut value = value.to_vec();
        value[0] = round;
        session.set(b"large", &value).unwrap().accepted().unwrap();
        let found = session.get(b"large").unwrap().result().unwrap();
        assert!(found.value == value, "round {round}");
    }
}

/// Goal: a name with several addresses finds the server behind any of them. Method: the server
/// listens on IPv4 alone, and its name comes with an address of IPv6 before that.
#[test]
fn every_address_of_a_name_is_tried() {
    let server = Server::start(Behaviour::default());
    let nobody: std::net::SocketAddr = ([0, 0, 0, 0, 0, 0, 0, 1], server.address.port()).into();
    let config = Config {
        connect_patience: Duration::from_secs(2),
        ..patient()
    };
    let session = Session::open(&[nobody, server.address][..], config).unwrap();
    session.set(b"k", b"v").unwrap().accepted().unwrap();
}

/// Goal: a session that sleeps is woken by a request. Method: nothing else can wake it, since it
/// sends no pings; it is asked when it has slept for a while.
#[test]
fn a_sleeping_session_is_woken_by_a_request() {
    let server = Server::start(Behaviour::default());
    let config = Config {
        keep_alive: false,
        ..patient()
    };
    let session = Session::open(server.address, config).unwrap();
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(100));
        let mut write = session.set(b"k", b"v").unwrap();
        eventually("it is accepted", || write.try_accepted().is_some());
    }
}
