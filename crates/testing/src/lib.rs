//! Tools for tests over sockets: servers in this process or as a process, a client that fails the
//! test at an unexpected reply, and waits with a time limit.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a failure here is a test's failure"
)]

mod client;
mod process;
mod undisturbed;

use std::{
    fs,
    io::{Read, Write},
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

pub use curtail_client::memcached::{Connection, connect};
use curtail_client::tier::{GetPath, PartitionMap, TierNetwork, TierTarget};
use curtail_server::{Config, Listen, NativeConfig, NativeMode, Server};
use tempfile::TempPath;

pub use self::{
    client::{Client, hit, set},
    process::{Process, listening, signal},
    undisturbed::undisturbed,
};

/// The longest that any single wait may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A configuration for a test: one worker, not pinned, a port of its own.
pub fn config() -> Config {
    Config {
        listen: vec![Listen {
            address: "127.0.0.1:0".parse().unwrap(),
            optional: false,
        }],
        workers: 1,
        pin: false,
        ..Config::default()
    }
}

/// The same, changed.
pub fn config_with(change: impl FnOnce(&mut Config)) -> Config {
    let mut config = config();
    change(&mut config);
    config
}

/// The configuration of a gateway to a tier of one back end behind this switch.
pub fn gateway_config(switch: SocketAddr) -> Config {
    config_with(|config| {
        config.cache_tier = Some(TierTarget {
            network: TierNetwork::Forwarder(switch),
            map: PartitionMap {
                epoch: 1,
                back_ends: 1,
            },
            gets: GetPath::ByKey,
        });
    })
}

/// A configuration with the native path in this mode, and small queues.
pub fn native_config(mode: NativeMode) -> Config {
    Config {
        native: Some(NativeConfig {
            mode: Some(mode),
            slots: Some(128),
            sessions: 64,
            ..NativeConfig::default()
        }),
        ..config()
    }
}

/// Starts a server whose `shutdown` requests go nowhere.
pub fn start(config: Config) -> Server {
    Server::start(config, |_| ()).unwrap()
}

/// Starts a server, with a client.
pub fn serve(config: Config) -> (Server, Client) {
    let server = start(config);
    let client = Client::connect(&server);
    (server, client)
}

/// Text of this length that differs from place to place, and with `salt`.
pub fn pattern(bytes: usize, salt: usize) -> Vec<u8> {
    let letter = |i| b'a' + ((i * 7 + i / 251 + salt) % 26) as u8;
    (0..bytes).map(letter).collect()
}

/// Where the native path of a server listens.
pub fn native_address(server: &Server) -> SocketAddr {
    server.native().unwrap().addresses[0]
}

/// What each of `count` threads returns, which run at once, each with its number.
pub fn together<T: Send>(count: usize, each: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let each = &each;
        let threads: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || each(number)))
            .collect();
        let threads = threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    })
}

/// Fails with the whole text where these words are not in it.
#[track_caller]
pub fn assert_contains(text: &str, words: &str) {
    assert!(text.contains(words), "{words} in {text}");
}

/// Waits until `is` holds.
#[track_caller]
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A path in the temporary folder that no other test uses; what a test puts there goes with it.
pub fn temporary_path() -> TempPath {
    let nothing = tempfile::Builder::new().prefix("curtail-").make(|_| Ok(()));
    nothing.unwrap().into_temp_path()
}

/// Such a path of a file with this text.
pub fn temporary_file(text: &str) -> TempPath {
    let path = temporary_path();
    fs::write(&path, text).unwrap();
    path
}

/// The page `/metrics` of a server, with its head.
pub fn scrape(server: &Server) -> String {
    http(server.admin_address().unwrap(), "GET /metrics")
}

/// What an HTTP server answers to a request line.
pub fn http(address: SocketAddr, line: &str) -> String {
    let mut stream = connect(address, PATIENCE).unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
