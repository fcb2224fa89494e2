//! The XDP program in front of a real server, on `lo` of a namespace of the test's own;
//! `namespace.rs` says who fails and who skips without one.

use curtail_codec::native::{Opcode, Status};
use curtail_server::{Config, NativeMode};
use curtail_testing::{Client as Memcached, assert_contains, eventually, start};

use crate::early_limit::accept_up_to_the_limit;
use crate::namespace::Namespace;
use crate::support::{Ask, Client, config_with, serve};
use crate::veth::in_a_thread;

fn on_loopback(namespace: &Namespace) -> Config {
    config_with(NativeMode::Xdp, |native| {
        native.interface = Some("lo".to_owned());
        native.pin = namespace.pins.join("curtail");
    })
}

/// Writes that the program acknowledges or queues, reads, and memcached's clients see one store,
/// and a planned stop leaves no pins.
#[test]
fn the_program_and_the_server_are_one() {
    in_a_thread(|| {
        let Some(namespace) = Namespace::enter() else {
            return;
        };
        let server = start(on_loopback(&namespace));
        assert_eq!(server.native().unwrap().mode, NativeMode::Xdp);
        let mut client = Client::connect(&server);
        let mut memcached = Memcached::connect(&server);
        let first = client.write(b"k", b"1");
        assert_eq!(client.get(b"k").unwrap(), b"1");
        assert_eq!(memcached.get("k").unwrap(), "1");
        let counted = client.ask(Ask::new(Opcode::Increment, b"k").argument(41));
        assert_eq!(counted.status(), Status::Done);
        assert_eq!(memcached.get("k").unwrap(), "42");
        let last = client.accept(Ask::new(Opcode::Delete, b"k"));
        assert_eq!(last, first + 2, "one key, one queue");
        assert_eq!(memcached.get("k"), None);
        for number in 0..2000_u32 {
            let value = number.to_string();
            client.write(b"n", value.as_bytes());
        }
        assert_eq!(memcached.get("n").unwrap(), "1999");
        drop(server.stop());
        let pins = namespace.pins.join("curtail/lo");
        eventually("the pins are gone", || !pins.exists());
        let server = start(on_loopback(&namespace));
        let note = server.native().unwrap().note.unwrap_or_default().to_owned();
        assert!(!note.contains("earlier process"), "{note}");
    });
}

/// Without its interface the program is an error if it was demanded; else a thread replaces it.
#[test]
fn without_the_program_a_thread_acknowledges() {
    let mut config = config_with(NativeMode::Xdp, |native| {
        native.interface = Some("nowhere0".to_owned());
    });
    let refused = curtail_server::Server::start(config.clone(), |_| ());
    let words = refused.err().map(|error| error.to_string());
    let words = words.unwrap_or_default();
    assert_contains(&words, "no network interface named nowhere0");
    if let Some(native) = &mut config.native {
        native.mode = None;
    }
    let server = start(config);
    let native = server.native().unwrap();
    assert_eq!(native.mode, NativeMode::IoAck);
    assert!(native.note.unwrap_or_default().contains("nowhere0"));
    let mut client = Client::connect(&server);
    client.write(b"k", b"v");
    assert_eq!(client.get(b"k").unwrap(), b"v");
}

/// A planned stop (`-e`) saves what the program acknowledged, and a restart takes it again.
#[test]
fn what_the_program_acknowledged_is_saved() {
    in_a_thread(|| {
        let Some(namespace) = Namespace::enter() else {
            return;
        };
        let file = curtail_testing::temporary_path();
        let config = || Config {
            memory_file: Some(file.to_path_buf()),
            memory_bytes_max: 64 << 20,
            ..on_loopback(&namespace)
        };
        let (server, mut client) = serve(config());
        let key = |number: u32| format!("key {number}").into_bytes();
        for number in 0..500_u32 {
            let value = number.to_string();
            client.write(&key(number), value.as_bytes());
        }
        let saved = server.stop().save().unwrap();
        assert_eq!(saved.as_deref(), Some(&*file));
        let server = start(config());
        assert_eq!(server.native().unwrap().mode, NativeMode::Xdp);
        let mut client = Client::connect(&server);
        for number in 0..500_u32 {
            let found = client.get(&key(number));
            assert_eq!(found.unwrap(), number.to_string().as_bytes(), "{number}");
        }
        client.write(b"k", b"v");
        assert_eq!(client.get(b"k").unwrap(), b"v");
        drop(server.stop());
    });
}

/// The program acknowledges early up to the limit that the server measures (JB-44).
#[test]
fn the_program_goes_by_the_measured_limit() {
    in_a_thread(|| {
        let Some(namespace) = Namespace::enter() else {
            return;
        };
        let mut slow = on_loopback(&namespace);
        slow.native.as_mut().unwrap().service_ns = 2_000_000;
        accept_up_to_the_limit(&start(slow));
    });
}
