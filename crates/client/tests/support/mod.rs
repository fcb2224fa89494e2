//! What the tests talk to: a server of the protocol in its simplest form, and a network that is not
//! to be relied on.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "each test uses a part; a set-up that fails fails the test"
)]

pub(crate) mod proxy;
pub(crate) mod server;

use std::{
    thread,
    time::{Duration, Instant},
};

use curtail_client::{Command, Config, Promise, Session, Status};

/// Patient enough for a machine that builds something else meanwhile.
pub(crate) fn patient() -> Config {
    Config {
        patience: Duration::from_secs(30),
        connect_patience: Duration::from_secs(30),
        ..Config::default()
    }
}

/// Waits until `what` is true; fails after a while.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The decimal number at a key; 0 if there is none.
pub(crate) fn number_at(session: &Session, key: &[u8]) -> u64 {
    let answer = session.get(key).unwrap().result().unwrap();
    match answer.value.as_slice() {
        b"" => 0,
        digits => std::str::from_utf8(digits).unwrap().trim().parse().unwrap(),
    }
}

/// One of each command, with answers and marked, each as it should be.
pub(crate) fn every_command(session: &Session) {
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
    session.set(b"key", b"value").unwrap().accepted().unwrap();
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
pub(crate) fn increments_in_threads(session: &Session, rounds: u64) -> [u64; 3] {
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
