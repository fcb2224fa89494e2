//! Sessions against a server, over a reliable and a faulty network, in every mode that needs no
//! privileges.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what fails here fails the test"
)]

mod guide_example;
mod proxy;

use std::{
    future::Future,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use curtail_client::{Answer, ClientError, Command, Config, Promise, Reason, Session, Status};
use curtail_server::{NativeConfig, NativeMode, Server};
use curtail_testing::{eventually, native_address, native_config};

use proxy::{Faults, Proxy};

const MODES: [NativeMode; 3] = [NativeMode::IoAck, NativeMode::Deferred, NativeMode::Raw];

/// A server with two workers, and where its native path listens.
fn start(mode: NativeMode, change: impl FnOnce(&mut NativeConfig)) -> (Server, SocketAddr) {
    let mut config = native_config(mode);
    config.workers = 2;
    change(config.native.as_mut().unwrap());
    let server = curtail_testing::start(config);
    let address = native_address(&server);
    (server, address)
}

/// A server of the usual mode, and a session with it.
fn open() -> (Server, Session) {
    let (server, address) = start(NativeMode::IoAck, |_| ());
    (server, Session::open(address, patient()).unwrap())
}

/// Patient enough for a machine that builds something else meanwhile.
fn patient() -> Config {
    Config {
        patience: Duration::from_secs(30),
        connect_patience: Duration::from_secs(30),
        ..Config::default()
    }
}

/// Sets, and waits until that is accepted.
fn set(session: &Session, key: &[u8], value: &[u8]) {
    session.set(key, value).unwrap().accepted().unwrap();
}

fn get(session: &Session, key: &[u8]) -> Answer {
    session.get(key).unwrap().result().unwrap()
}

/// The decimal number at a key; 0 if there is none.
fn number_at(session: &Session, key: &[u8]) -> u64 {
    let answer = get(session, key);
    match answer.value.as_slice() {
        b"" => 0,
        digits => std::str::from_utf8(digits).unwrap().trim().parse().unwrap(),
    }
}

/// Goal: a program can wait until an accepted write is executed, and is told that it is not
/// replicated where there is one copy. Method: every mode; the queue has executed the write then.
#[test]
fn an_accepted_write_can_be_waited_for_until_it_is_executed() {
    for mode in MODES {
        let (_server, address) = start(mode, |_| ());
        let session = Session::open(address, patient()).unwrap();
        // A value that goes over TCP has no place in a queue, where nothing was written yet.
        let write = session.set(b"large", &[b'v'; 100_000]).unwrap();
        let executed = write.executed(&session, Duration::from_secs(1)).unwrap();
        assert_eq!(executed.promise, Promise::Executed, "{mode:?}");
        for number in 0..50 {
            let key = format!("key{number}");
            let write = session.set(key.as_bytes(), b"value").unwrap();
            let executed = write.executed(&session, patient().patience).unwrap();
            assert_eq!(
                (executed.promise, executed.copies()),
                (Promise::Executed, 1)
            );
            let queue = session.queue(executed.place.queue).unwrap();
            assert!(queue.number > executed.place.pos, "{mode:?}");
            let again = session.executed(executed, Duration::ZERO);
            assert_eq!(again, Ok(executed));
        }
        let alone = session.set(b"key", b"value").unwrap().replicated();
        assert_eq!(alone, Err(ClientError::NotReplicated(1)));
        let answer = session.delete(b"key").unwrap().result().unwrap();
        assert_eq!((answer.promise(), answer.copies()), (Promise::Executed, 1));
    }
}

/// One of each command, with answers and marked, each as it should be.
fn every_command(session: &Session) {
    let call = |command: Command<'_>| session.call(&command).unwrap().result().unwrap();
    let write = |command: Command<'_>| {
        let accepted = session
            .write(&command.marked())
            .unwrap()
            .accepted()
            .unwrap();
        assert_eq!(accepted.promise, Promise::Accepted);
    };
    assert_eq!(call(Command::get(b"key")).status, Status::NotFound);
    set(session, b"key", b"value");
    // A value may come from a write that is accepted and not executed yet: without a version.
    let mut found = call(Command::get(b"key"));
    while found.version == 0 {
        found = call(Command::get(b"key"));
    }
    assert_eq!(
        (found.status, &*found.value),
        (Status::Value, &b"value"[..])
    );
    assert_eq!(call(Command::add(b"key", b"x")).status, Status::NotStored);
    assert_eq!(
        call(Command::set(b"key", b"x").if_version(found.version + 1)).status,
        Status::Exists
    );
    assert_eq!(
        call(Command::set(b"key", b"new").if_version(found.version)).status,
        Status::Done
    );
    assert_eq!(call(Command::append(b"key", b"er")).status, Status::Done);
    write(Command::prepend(b"key", b"a "));
    assert_eq!(call(Command::get_touch(b"key", 60)).value, b"a newer");
    write(Command::set(b"number", b"10").with_item_flags(7));
    assert_eq!(call(Command::increment(b"number", 5)).number, 15);
    write(Command::decrement(b"number", 4));
    let found = call(Command::get(b"number"));
    assert_eq!((&*found.value, found.item_flags), (&b"11"[..], 7));
    assert_eq!(
        call(Command::increment(b"key", 1)).status,
        Status::NotANumber
    );
    assert_eq!(call(Command::touch(b"key", 60)).status, Status::Done);
    assert_eq!(call(Command::delete(b"key")).status, Status::Done);
    assert_eq!(call(Command::delete(b"key")).status, Status::NotFound);
    assert_eq!(
        call(Command::replace(b"key", b"x")).status,
        Status::NotStored
    );
    assert_eq!(call(Command::flush()).status, Status::Done);
    assert_eq!(call(Command::get(b"number")).status, Status::NotFound);
}

/// Increments three keys in three threads, marked and unmarked, a few at a time; how many of each
/// were acknowledged.
fn increments_in_threads(session: &Session, rounds: u64) -> [u64; 3] {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3_u8)
            .map(|thread| {
                let session = session.clone();
                scope.spawn(move || increments(&session, thread, rounds))
            })
            .collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.fold([0; 3], |sum, counts| [0, 1, 2].map(|i| sum[i] + counts[i]))
    })
}

fn increments(session: &Session, thread: u8, rounds: u64) -> [u64; 3] {
    let mut counts = [0; 3];
    for round in 0..rounds {
        let which = ((round + u64::from(thread)) % 3) as usize;
        let key = [b'a' + which as u8];
        let marked = session
            .write(&Command::increment(&key, 1).marked())
            .unwrap();
        let called = session.call(&Command::increment(&key, 1)).unwrap();
        marked.accepted().unwrap();
        let answer = called.result().unwrap();
        assert_eq!(answer.status, Status::Done);
        counts[which] += 2;
    }
    counts
}

#[test]
fn every_command_does_what_it_says() {
    for mode in MODES {
        let (_server, address) = start(mode, |_| ());
        let session = Session::open(address, patient()).unwrap();
        every_command(&session);
    }
}

/// Goal: a value of any length is stored and read, whichever way it goes. Method: lengths around
/// the longest datagram, and a long one, under one key, so that each replaces one of another way.
#[test]
fn values_of_every_length_come_back() {
    for mode in MODES {
        let (_server, address) = start(mode, |_| ());
        let session = Session::open(address, patient()).unwrap();
        for bytes in [
            0, 1, 1300, 1384, 1385, 1386, 1387, 1388, 1400, 1984, 5000, 900_000, 10,
        ] {
            let value: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 251) as u8).collect();
            set(&session, b"key", &value);
            let found = get(&session, b"key");
            assert_eq!(found.status, Status::Value, "{mode:?}, {bytes} bytes");
            assert!(
                found.value == value,
                "{mode:?}: {} of {bytes} bytes",
                found.value.len()
            );
        }
        let appended = Command::append(b"key", &[b'!'; 5000]);
        let appended = session.call(&appended).unwrap().result().unwrap();
        assert_eq!(appended.status, Status::Done, "{mode:?}");
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
        assert_eq!(get(&session, b"none").status, Status::NotFound);
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
        ..Faults::default()
    };
    for (mode, seed) in MODES.into_iter().zip(1..) {
        let (_server, address) = start(mode, |_| ());
        let proxy = Proxy::start(address, faults, seed);
        let session = Session::open(proxy.address, patient()).unwrap();
        for key in [&b"a"[..], b"b", b"c"] {
            set(&session, key, b"0");
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
    let mut refused = 0;
    for mode in MODES {
        let (_server, address) = start(mode, |native| {
            native.slots = Some(16);
            native.service_ns = 50_000;
        });
        let sessions = [1, 2].map(|_| Session::open(address, patient()).unwrap());
        set(&sessions[0], b"n", b"0");
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
        refused += sessions
            .iter()
            .map(|session| session.counts().full)
            .sum::<u64>();
    }
    assert!(refused > 0, "no queue was full");
}

/// Goal: threads of one process share a session, and see each other's accepted writes at once.
#[test]
fn accepted_writes_are_seen_by_everybody() {
    let (server, address) = start(NativeMode::IoAck, |_| ());
    let session = Session::open(address, patient()).unwrap();
    let other = Session::open(address, patient()).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (session, other) = (session.clone(), other.clone());
            scope.spawn(move || {
                let key = format!("key {thread}");
                for round in 0..200 {
                    let value = format!("{round}");
                    set(&session, key.as_bytes(), value.as_bytes());
                    let found = get(&other, key.as_bytes());
                    assert_eq!(found.value, value.as_bytes());
                }
            });
        }
    });
    drop(server);
}

/// Goal: a session outlives its server: the next one at the same port grants another. A write that
/// was under way is indeterminate, a read is repeated, and what is asked meanwhile waits. Method: a
/// server that executes slowly ends with a write in its queue.
#[test]
fn a_server_that_comes_back_is_found_again() {
    let (server, address) = start(NativeMode::IoAck, |native| native.service_ns = 50_000_000);
    let session = Session::open(address, patient()).unwrap();
    set(&session, b"key", b"one");
    let slow = session.call(&Command::append(b"key", b"!")).unwrap();
    eventually("it is under way", || session.counts().assigned > 1);
    drop(server.stop());
    let read = session.get(b"key").unwrap();
    let (_server, _) = start(NativeMode::IoAck, |native| native.port = address.port());
    let read = read.result().unwrap();
    assert_eq!(read.status, Status::NotFound, "its memory is gone");
    match slow.result() {
        Err(error) => {
            assert_eq!(error, ClientError::Indeterminate(Reason::SessionLost));
            assert!(error.may_have_happened());
        }
        Ok(answer) => assert_eq!(answer.status, Status::Done),
    }
    set(&session, b"key", b"two");
    assert_eq!(get(&session, b"key").value, b"two");
    eventually("two sessions were granted", || {
        session.counts().sessions == 2
    });
}

/// Goal: an idle session outlives its lease, because it is kept alive; without that it is renewed
/// when it is used again. Method: a lease of a second, and more than that of silence.
#[test]
fn an_idle_session_is_kept_or_renewed() {
    for (keep_alive, sessions) in [(true, 1), (false, 2)] {
        let (_server, address) = start(NativeMode::IoAck, |native| native.lease_ms = 1000);
        let config = Config {
            keep_alive,
            ..patient()
        };
        let session = Session::open(address, config).unwrap();
        set(&session, b"key", b"value");
        thread::sleep(Duration::from_millis(1500));
        set(&session, b"key", b"other");
        let granted = session.counts().sessions;
        assert_eq!(granted, sessions, "keep alive: {keep_alive}");
    }
}

/// Goal: a stranger's bytes are answered by no more than they are. Method: every kind of short or
/// wrong datagram, from a socket without a session.
#[test]
fn a_stranger_gets_no_more_than_it_sends() {
    let (_server, address) = start(NativeMode::IoAck, |_| ());
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

#[test]
fn what_makes_no_sense_is_refused_before_it_is_sent() {
    let (_server, session) = open();
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
    set(&session, b"k", b"v");
}

/// Goal: many threads share one session, and every answer finds its asker. Method: each thread
/// writes and reads keys of its own, several at a time.
#[test]
fn threads_share_a_session() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 100;
    let (_server, session) = open();
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
    assert_eq!(session.counts().sessions, 1);
}

/// Goal: what was never answered is named as what it is. Method: the network goes away for good.
#[test]
fn silence_is_indeterminate_for_writes_and_nothing_for_reads() {
    let (_server, address) = start(NativeMode::IoAck, |_| ());
    let proxy = Proxy::start(address, Faults::default(), 1);
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
    assert_eq!(get(&session, b"k").value, b"w");
}

#[test]
fn nobody_there_is_an_error_in_time() {
    let (udp, _tcp) = proxy::sockets();
    let config = Config {
        connect_patience: Duration::from_millis(100),
        ..Config::default()
    };
    let refused = Session::open(udp.local_addr().unwrap(), config).err();
    assert_eq!(refused, Some(ClientError::NoSession(None)));
}

/// Goal: a write waits until it is durable, and says when that does not happen. Method: the server
/// has no durable mode yet, so a network that says in its name that positions are durable.
#[test]
fn durable_is_waited_for_where_there_is_such_a_thing() {
    let (_server, session) = open();
    let write = session.set(b"k", b"v").unwrap();
    let outcome = write.durable(&session, Duration::from_millis(30));
    assert_eq!(outcome.unwrap_err(), ClientError::NotDurable);
    let (_server, address) = start(NativeMode::IoAck, |_| ());
    let faults = Faults {
        durable: true,
        ..Faults::default()
    };
    let proxy = Proxy::start(address, faults, 1);
    let session = Session::open(proxy.address, patient()).unwrap();
    let write = session.set(b"k", b"v").unwrap();
    write.durable(&session, Duration::from_secs(20)).unwrap();
}

/// Goal: handles are futures. Method: polled by hand until they are ready.
#[test]
fn handles_are_futures() {
    let (_server, session) = open();
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
    let (_server, address) = start(NativeMode::IoAck, |_| ());
    let config = Config {
        handles_max: 64,
        ..patient()
    };
    let session = Session::open(address, config).unwrap();
    for _ in 0..500 {
        drop(session.set(b"k", b"v").unwrap());
    }
    let kept: Vec<_> = (0..64).map(|_| session.set(b"k", b"v").unwrap()).collect();
    let refused = session.set(b"k", b"v").err();
    assert_eq!(refused, Some(ClientError::Handles));
    let write = Command::set(b"k", b"v").marked();
    let refused = session.try_write(&write).err();
    assert_eq!(refused, Some(ClientError::Busy));
    let refused = session.try_call(&Command::get(b"k")).err();
    assert_eq!(refused, Some(ClientError::Busy));
    drop(kept);
    set(&session, b"k", b"v");
    session.try_write(&write).unwrap().accepted().unwrap();
    let found = session.try_call(&Command::get(b"k")).unwrap();
    assert_eq!(found.result().unwrap().value, b"v");
}

#[test]
fn a_closed_session_ends_what_is_under_way() {
    let (_server, address) = start(NativeMode::IoAck, |native| native.service_ns = 500_000_000);
    let session = Session::open(address, patient()).unwrap();
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
    let (_server, address) = start(NativeMode::IoAck, |_| ());
    let faults = Faults {
        cut_bytes: 700_000,
        ..Faults::default()
    };
    let proxy = Proxy::start(address, faults, 3);
    let session = Session::open(proxy.address, patient()).unwrap();
    let value = Arc::new(vec![7_u8; 300_000]);
    set(&session, b"number", b"0");
    for round in 0..6_u8 {
        let mut value = value.to_vec();
        value[0] = round;
        set(&session, b"large", &value);
        let found = get(&session, b"large");
        assert!(found.value == value, "round {round}");
    }
}

/// Goal: a name with several addresses finds the server behind any of them. Method: the server
/// listens on IPv4 alone, and its name comes with an address of IPv6 before that.
#[test]
fn every_address_of_a_name_is_tried() {
    let (_server, address) = start(NativeMode::IoAck, |_| ());
    let nobody = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], address.port()));
    let config = Config {
        connect_patience: Duration::from_secs(2),
        ..patient()
    };
    let session = Session::open(&[nobody, address][..], config).unwrap();
    set(&session, b"k", b"v");
}

/// Goal: a session that sleeps is woken by a request. Method: nothing else can wake it, since it
/// sends no pings; it is asked when it has slept for a while.
#[test]
fn a_sleeping_session_is_woken_by_a_request() {
    let (_server, address) = start(NativeMode::IoAck, |_| ());
    let config = Config {
        keep_alive: false,
        ..patient()
    };
    let session = Session::open(address, config).unwrap();
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(100));
        let mut write = session.set(b"k", b"v").unwrap();
        eventually("it is accepted", || write.try_accepted().is_some());
    }
}
