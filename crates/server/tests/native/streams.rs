//! The protocol over TCP: large values, the same sessions, retries that change transports.

use curtail_codec::native::{ErrorCode, Head, Opcode, Place, Promise, Reply, Status};
use curtail_server::{Config, NativeMode};
use curtail_testing::{Client as Memcached, native_config};

use crate::support::{Ask, Line, config_with, serve};

/// Bytes of every value, line ends and NUL among them.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|byte| (byte * 7 + byte / 251) as u8)
        .collect()
}

/// Values of every size go in and come out unchanged, and all clients see them.
#[test]
fn values_of_every_size_go_in_and_out() {
    let (server, mut client) = serve(native_config(NativeMode::IoAck));
    let mut line = Line::connect(&server);
    let mut memcached = Memcached::connect(&server);
    for bytes in [
        0,
        1,
        1000,
        1024,
        1025,
        1900,
        4096,
        4097,
        20_000,
        300_000,
        1 << 20,
    ] {
        let value = pattern(bytes);
        let stored = line.ask(&mut client, Ask::set(b"k", &value));
        assert_eq!(stored.status(), Status::Done, "{bytes}");
        let read = line.ask(&mut client, Ask::get(b"k"));
        assert!(read.result() == (Status::Value, value), "{bytes}");
        assert_eq!(read.version(), stored.version());
        assert_eq!(memcached.ask("mg k s\r\n"), format!("HD s{bytes}"));
        let over_udp = client.ask(Ask::get(b"k"));
        match bytes {
            ..1897 => assert_eq!(over_udp.result().1.len(), bytes),
            _ => assert_eq!(over_udp.error(), ErrorCode::TooLarge),
        }
    }
    let add = Ask::store(Opcode::Add, b"k", &[1; 9000]);
    assert_eq!(line.ask(&mut client, add).status(), Status::NotStored);
    let append = Ask::store(Opcode::Append, b"new", &[1; 9000]);
    assert_eq!(line.ask(&mut client, append).status(), Status::NotStored);
    line.ask(&mut client, Ask::set(b"new", b"start").nilext())
        .accepted();
    assert_eq!(line.ask(&mut client, append).status(), Status::Done);
    assert_eq!(memcached.ask("mg new s\r\n"), "HD s9005");
}

/// Small requests work over a stream too, all of them, pipelined, and cut anywhere.
#[test]
fn small_requests_pipelined_and_cut_anywhere() {
    let (server, mut client) = serve(native_config(NativeMode::IoAck));
    let mut line = Line::connect(&server);
    let asks = [
        Ask::set(b"n", b"10"),
        Ask::new(Opcode::Increment, b"n").argument(5),
        Ask::get(b"n"),
        Ask::new(Opcode::Touch, b"n"),
        Ask::new(Opcode::GetTouch, b"n"),
        Ask::new(Opcode::Delete, b"n"),
        Ask::get(b"n"),
        Ask::new(Opcode::Ping, b"").argument(3),
        Ask::new(Opcode::Flush, b""),
    ];
    let all: Vec<u8> = asks.iter().flat_map(|ask| client.bytes(0, *ask)).collect();
    for piece in [7, 64, 100, all.len()] {
        let renewed: Vec<u8> = asks.iter().flat_map(|ask| client.bytes(0, *ask)).collect();
        for part in renewed.chunks(piece) {
            line.send(part);
        }
        assert_eq!(line.answer().status(), Status::Done);
        assert_eq!(line.answer().number(), 15);
        assert_eq!(line.answer().result(), (Status::Value, b"15".to_vec()));
        assert_eq!(line.answer().status(), Status::Done);
        assert_eq!(line.answer().result(), (Status::Value, b"15".to_vec()));
        assert_eq!(line.answer().status(), Status::Done);
        assert_eq!(line.answer().status(), Status::NotFound);
        assert!(matches!(line.answer().reply(), Reply::Pong { place, .. } if place.queue == 3));
        assert_eq!(line.answer().status(), Status::Done);
    }
}

/// A request that was carried out is not carried out again, whichever way its copy comes.
#[test]
fn a_retry_may_change_transports() {
    let (server, mut client) = serve(native_config(NativeMode::IoAck));
    let mut line = Line::connect(&server);
    client.write(b"n", b"0");
    let count = Ask::new(Opcode::Increment, b"n").argument(1);
    for _ in 0..10 {
        let bytes = client.bytes(3, count);
        let first = client.exchange(&bytes).number();
        assert_eq!(line.exchange(&bytes).number(), first);
        let bytes = client.bytes(3, count);
        let second = line.exchange(&bytes).number();
        assert_eq!(
            (second, client.exchange(&bytes).number()),
            (first + 1, second)
        );
        let bytes = client.bytes(3, count.nilext());
        client.exchange(&bytes).accepted();
        line.exchange(&bytes).accepted();
        let large = client.bytes(3, Ask::set(b"large", &pattern(50_000)));
        let version = line.exchange(&large).version();
        assert_eq!(line.exchange(&large).version(), version);
    }
    assert_eq!(client.get(b"n").unwrap(), b"30");
}

/// Goal: a write that was executed over TCP has no position, whichever way its copy comes, so that
/// nobody takes it for the write at position 0 of a queue, or waits for that. Method: the first
/// requests of a server, marked or not, are repeated as datagrams.
#[test]
fn a_write_over_tcp_has_no_position() {
    let (server, mut client) = serve(native_config(NativeMode::IoAck));
    let mut line = Line::connect(&server);
    let marked = client.bytes(3, Ask::set(b"k", b"v").nilext());
    line.exchange(&marked);
    match client.exchange(&marked).reply() {
        Reply::Ack(ack) => {
            assert_eq!((ack.place.queue, ack.place.pos), (Place::NO_QUEUE, 0));
            assert_eq!(ack.promise, Promise::Executed);
        }
        other => panic!("not acknowledged: {other:?}"),
    }
    let unmarked = client.bytes(3, Ask::set(b"k", b"w"));
    let version = line.exchange(&unmarked).version();
    match client.exchange(&unmarked).reply() {
        Reply::Result {
            place,
            version: again,
            ..
        } => {
            assert_eq!((place.queue, place.pos), (Place::NO_QUEUE, 0));
            assert_eq!(again, version);
        }
        other => panic!("no result: {other:?}"),
    }
}

/// A refused request has no effect, and the stream goes on where the next one must begin.
#[test]
fn wrong_requests_are_refused() {
    let (server, mut client) = serve(native_config(NativeMode::IoAck));
    let mut line = Line::connect(&server);
    for bytes in [50, 100_000] {
        let mut wrong = client.bytes(0, Ask::set(b"k", &pattern(bytes)));
        *wrong.last_mut().unwrap() ^= 1;
        assert_eq!(line.exchange(&wrong).error(), ErrorCode::Checksum);
        *wrong.last_mut().unwrap() ^= 1;
        let stored = line.exchange(&wrong);
        assert_eq!(stored.status(), Status::Done, "the number was not used up");
        let mut stranger = client.grant.session;
        stranger.token ^= 1;
        let bytes = Ask::set(b"k", &pattern(bytes)).bytes(stranger, 0, 99);
        assert_eq!(line.exchange(&bytes).error(), ErrorCode::Session);
    }
    let long = client.bytes(0, Ask::set(b"k", &pattern((1 << 20) + 1)));
    assert_eq!(line.exchange(&long).error(), ErrorCode::TooLarge);
    let hello = Ask::new(Opcode::Hello, b"").argument(5);
    let hello = hello.bytes(curtail_codec::native::Session::default(), 0, 0);
    assert_eq!(line.exchange(&hello).error(), ErrorCode::Unsupported);
    assert_eq!(
        line.ask(&mut client, Ask::get(b"k")).result().1.len(),
        100_000
    );
    let mut unknown = client.bytes(0, Ask::get(b"k"));
    unknown[3] = 30;
    assert_eq!(line.exchange(&unknown).error(), ErrorCode::Opcode);
    line.expect_closed();
    let mut line = Line::connect(&server);
    line.send(b"get k\r\n                                                            ");
    line.expect_closed();
}

/// A stream that ends inside a value or a head leaves nothing, not even a used number.
#[test]
fn a_stream_that_breaks_leaves_nothing() {
    let (server, mut client) = serve(Config {
        memory_bytes_max: 64 << 20,
        ..native_config(NativeMode::IoAck)
    });
    let mut memcached = Memcached::connect(&server);
    let value = pattern(900_000);
    let bytes = client.bytes(0, Ask::set(b"k", &value));
    for cut in [10, 64, 66, 5000, 500_000] {
        let mut line = Line::connect(&server);
        line.send(&bytes[..cut]);
    }
    assert_eq!(memcached.get("k"), None);
    let mut line = Line::connect(&server);
    assert_eq!(line.exchange(&bytes).status(), Status::Done);
    assert_eq!(memcached.ask("mg k s\r\n"), "HD s900000");
    assert_eq!(Head::decode(&bytes).unwrap().sequence, 1);
}

/// A large write waits for earlier, slow, accepted ones, so none overwrites it.
#[test]
fn a_large_write_comes_after_what_was_accepted_before_it() {
    let config = config_with(NativeMode::IoAck, |native| {
        native.service_ns = 200_000;
        (native.backlog_max, native.read_wait_us) = (1000, 0);
    });
    let (server, mut client) = serve(config);
    let mut line = Line::connect(&server);
    let large = pattern(50_000);
    for _ in 0..10 {
        for slot in 1..40 {
            let bytes = client.bytes(slot, Ask::set(b"k", b"small").nilext());
            client.exchange(&bytes).accepted();
        }
        let stored = line.ask(&mut client, Ask::set(b"k", &large));
        assert_eq!(stored.status(), Status::Done);
        let read = line.ask(&mut client, Ask::get(b"k"));
        assert_eq!(
            read.result().1.len(),
            large.len(),
            "an older write came later"
        );
    }
    let mut memcached = Memcached::connect(&server);
    memcached.await_stat("curtail", "native:backlog", 0);
}
