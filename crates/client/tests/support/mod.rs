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

use std::time::{Duration, Instant};

use curtail_client::{Config, Session};

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
