//! What strangers, liars and the impatient get: a defined answer, no more bytes than they sent, and
//! no effect.

use std::{net::UdpSocket, time::Duration};

use curtail_codec::native::{ErrorCode, Head, NackReason, Opcode, Reply, Request, Session, Status};
use curtail_server::{Config, NativeMode};
use curtail_testing::{Client as Memcached, eventually, native_address, native_config, start};
use curtail_workload::Random;

use crate::support::{
    Answer, Ask, Client, config_with, exchange, handshake, nonce, receive, serve, socket,
};

/// Writes a checksum that fits what was changed.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = Request::checksum(&bytes).unwrap();
    bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn is_silent(socket: &UdpSocket) -> bool {
    receive(socket).is_none()
}

/// The server never sends more bytes than a stranger's datagrams, of all lengths, brought.
#[test]
fn strangers_get_no_more_than_they_send() {
    let server = start(native_config(NativeMode::IoAck));
    let to = native_address(&server);
    let stranger = socket();
    stranger
        .set_read_timeout(Some(Duration::from_millis(2)))
        .unwrap();
    let mut random = Random::new(1);
    let (mut answers, mut errors, mut answerable) = (0, 0, 0);
    for round in 0..330_usize {
        let length = [1, 8, 60, 63, 64, 65, 100, 400, 1984, 1985, 2100][round % 11];
        let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        // Most look like the protocol at first.
        for (place, byte) in bytes.iter_mut().zip(*b"CN\x01") {
            if !random.next().is_multiple_of(8) {
                *place = byte;
            }
        }
        if random.next().is_multiple_of(2) && length >= 64 {
            bytes[3] = 1 + (random.next() % 17) as u8;
            bytes[4..8].fill(0);
            bytes = sealed(bytes);
        }
        answerable += usize::from(length >= 64 && bytes.starts_with(b"CN"));
        stranger.send_to(&bytes, to).unwrap();
        while let Some(Answer(answer)) = receive(&stranger) {
            answers += 1;
            assert_eq!(answer.len(), 64);
            let reply = Reply::decode(&answer).unwrap();
            errors += usize::from(matches!(reply, Reply::Error(_)));
            assert!(
                matches!(reply, Reply::Error(_) | Reply::Cookie { .. }),
                "{reply:?}"
            );
            // An answer may come late; never are there more than there were reasons for.
            assert!(answers <= answerable);
        }
    }
    assert!(
        answers > 50 && errors > 25,
        "{answers} answers, {errors} errors"
    );
    let foreign = Memcached::connect(&server).stat("curtail", "native:dropped_foreign");
    assert!(foreign > 80, "{foreign} dropped");
}

/// The right session from another address, and each part of it wrong, is refused.
#[test]
fn sessions_cannot_be_borrowed() {
    let (_server, mut client) = serve(native_config(NativeMode::IoAck));
    client.write(b"k", b"mine");
    let right = client.grant.session;
    let mut wrong = [right; 4];
    wrong[0].token ^= 1;
    wrong[1].generation += 1;
    wrong[2].index ^= 1;
    wrong[3].index = u32::MAX;
    let theirs = Ask::set(b"k", b"theirs").nilext();
    for session in wrong {
        for ask in [
            theirs,
            Ask::get(b"k"),
            Ask::new(Opcode::Ping, b""),
            Ask::new(Opcode::Flush, b""),
        ] {
            let bytes = ask.bytes(session, 0, 1000);
            let error = client.error(&bytes);
            assert_eq!(error, ErrorCode::Session, "{session:?} {ask:?}");
        }
    }
    let elsewhere = socket();
    for ask in [theirs, Ask::get(b"k"), Ask::new(Opcode::Close, b"")] {
        let answer = exchange(&elsewhere, client.to, &ask.bytes(right, 0, 1000));
        assert_eq!(answer.error(), ErrorCode::Session);
    }
    assert_eq!(client.get(b"k").unwrap(), b"mine");
    let close = client.bytes(0, Ask::new(Opcode::Close, b""));
    client.socket.send_to(&close, client.to).unwrap();
    assert!(is_silent(&client.socket));
    let late = client.bytes(0, Ask::get(b"k"));
    assert_eq!(client.error(&late), ErrorCode::Session);
}

/// A datagram that is recorded and sent again changes nothing.
#[test]
fn replayed_datagrams_change_nothing() {
    for mode in [NativeMode::IoAck, NativeMode::Raw] {
        let (_server, mut client) = serve(native_config(mode));
        client.write(b"n", b"0");
        let count = Ask::new(Opcode::Increment, b"n").argument(1);
        let recorded = client.bytes(0, count);
        assert_eq!(client.exchange(&recorded).number(), 1);
        for _ in 0..20 {
            assert_eq!(client.exchange(&recorded).number(), 1, "the answer is kept");
        }
        let marked = client.bytes(0, count.nilext());
        let pos = client.exchange(&marked).accepted();
        for _ in 0..5 {
            assert_eq!(client.exchange(&marked).accepted(), pos);
            // What was sent twice on a slow machine was answered twice.
            while client.receive().is_some() {}
            client.socket.send_to(&recorded, client.to).unwrap();
            assert!(client.receive_for(&recorded).is_none(), "over");
        }
        assert_eq!(client.get(b"n").unwrap(), b"2");
    }
}

/// A damaged datagram has no effect, and its number can still be used.
#[test]
fn damaged_datagrams_have_no_effect() {
    let (server, mut client) = serve(native_config(NativeMode::IoAck));
    for byte in [16, 20, 24, 33, 44, 60, 64, 69] {
        let right = client.bytes(0, Ask::set(b"k", b"value").nilext());
        let mut wrong = right.clone();
        wrong[byte] ^= 0x10;
        let code = client.error(&wrong);
        assert!(
            matches!(code, ErrorCode::Checksum | ErrorCode::Malformed),
            "byte {byte}: {code:?}"
        );
        client.exchange(&right).accepted();
    }
    let mut memcached = Memcached::connect(&server);
    assert_eq!(memcached.stat("curtail", "native:accepted"), 8);
    memcached.await_stat("curtail", "native:executed", 8);
}

/// What version 1 does not have is refused by name.
#[test]
fn unknown_things_are_refused_by_name() {
    let (_server, mut client) = serve(Config {
        flush_allowed: false,
        item_bytes_max: 1024,
        ..native_config(NativeMode::IoAck)
    });
    let plain = Ask::set(b"k", b"v");
    for (ask, byte, value, error) in [
        (plain, 2, 2, ErrorCode::Version),
        (plain, 3, 7, ErrorCode::Opcode),
        (plain, 4, 8, ErrorCode::Fragment),
        (plain, 4, 16, ErrorCode::Flags),
        // A slot out of range, and a field that a write does not have.
        (plain, 6, 64, ErrorCode::Malformed),
        (plain, 56, 1, ErrorCode::Malformed),
        (plain.nilext(), 3, Opcode::Add as u8, ErrorCode::NotNilext),
    ] {
        let mut bytes = client.bytes(0, ask);
        bytes[byte] = value;
        assert_eq!(client.error(&sealed(bytes)), error, "{byte} is {value}");
    }
    let flush = Ask::new(Opcode::Flush, b"");
    assert_eq!(client.ask(flush).error(), ErrorCode::Unsupported);
    let long = Ask::set(b"k", &[1; 1025]).nilext();
    assert_eq!(client.ask(long).error(), ErrorCode::TooLarge);
    client.write(b"k", &[1; 1024]);
    let ping = Ask::new(Opcode::Ping, b"").argument(16);
    assert_eq!(client.ask(ping).error(), ErrorCode::Malformed);
    assert!(Head::decode(&client.bytes(0, ping)).is_ok());
}

/// A cookie is good for who got it and what it was got for.
#[test]
fn cookies_cannot_be_borrowed() {
    let server = start(native_config(NativeMode::IoAck));
    let to = native_address(&server);
    let (first, second) = (socket(), socket());
    let number = nonce();
    let hello = Ask::new(Opcode::Hello, b"").argument(number);
    let answer = exchange(&first, to, &hello.bytes(Session::default(), 0, 0));
    let Reply::Cookie { cookie, .. } = answer.reply() else {
        panic!("no cookie");
    };
    let confirm = |cookie, number| {
        let session = Session {
            token: cookie,
            ..Session::default()
        };
        Ask::new(Opcode::Confirm, b"")
            .argument(number)
            .bytes(session, 0, 0)
    };
    let wrong = [
        (&second, confirm(cookie, number)),
        (&first, confirm(cookie, number + 1)),
        (&first, confirm(cookie ^ 1, number)),
    ];
    // On a busy machine requests are sent again, and answers to earlier ones come late.
    let settled = |socket, bytes: &[u8], is_late: fn(&Reply<'_>) -> bool| {
        let mut answers = (0..100).map(|_| exchange(socket, to, bytes));
        answers.find(|answer| !is_late(&answer.reply())).unwrap()
    };
    for (socket, bytes) in wrong {
        let answer = settled(socket, &bytes, |reply| {
            matches!(reply, Reply::Cookie { .. })
        });
        assert_eq!(answer.error(), ErrorCode::Cookie);
    }
    let is_late = |reply: &Reply<'_>| matches!(reply, Reply::Cookie { .. } | Reply::Error(_));
    let granted = settled(&first, &confirm(cookie, number), is_late);
    let again = settled(&first, &confirm(cookie, number), is_late);
    let (Reply::Grant(granted), Reply::Grant(again)) = (granted.reply(), again.reply()) else {
        panic!("no session");
    };
    assert_eq!(granted.session, again.session, "confirmed twice");
}

/// Sessions run out for who takes too many, and come back when they are not used.
#[test]
fn sessions_run_out_and_come_back() {
    let server = start(config_with(NativeMode::IoAck, |native| {
        native.sessions = 32;
        native.sessions_per_address = 3;
        native.lease_ms = 400;
    }));
    let to = native_address(&server);
    let mut used = Client::connect(&server);
    let sockets: Vec<_> = (0..3).map(|_| socket()).collect();
    let grants: Vec<_> = sockets
        .iter()
        .map(|socket| handshake(socket, to, nonce()))
        .collect();
    assert!(grants[0].is_ok() && grants[1].is_ok());
    assert_eq!(grants[2].err(), Some(ErrorCode::Sessions));
    eventually("unused sessions end", || {
        used.get(b"nothing");
        handshake(&sockets[2], to, nonce()).is_ok()
    });
    assert_eq!(used.get(b"nothing"), None, "who uses a session keeps it");
    let mut memcached = Memcached::connect(&server);
    assert!(memcached.stat("curtail", "native:grants_refused") > 0);
}

/// A client that ignores credits gets NACKs, loses nothing acknowledged, and delays no neighbour.
#[test]
fn who_ignores_credits_is_refused_and_loses_nothing() {
    let server = start(config_with(NativeMode::IoAck, |native| {
        native.slots = Some(16);
        native.service_ns = 300_000;
    }));
    let mut client = Client::connect(&server);
    let mut neighbour = Client::connect(&server);
    client.ask(Ask::set(b"n", b"0")).result();
    let count = Ask::new(Opcode::Increment, b"n").argument(1).nilext();
    let (mut accepted, mut full) = (0, 0);
    for round in 0..20 {
        let asked: Vec<_> = (0..64).map(|slot| client.bytes(slot, count)).collect();
        for bytes in &asked {
            client.socket.send_to(bytes, client.to).unwrap();
        }
        while let Some(answer) = client.receive() {
            match answer.reply() {
                Reply::Ack(_) => accepted += 1,
                Reply::Nack(nack) => {
                    assert_eq!(nack.reason, NackReason::Full);
                    full += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        let other = format!("neighbour{round}");
        neighbour.write(other.as_bytes(), b"v");
    }
    assert!(full > 100, "{full} refused");
    assert!(accepted > 100, "{accepted} accepted");
    assert_eq!(client.get(b"n").unwrap(), accepted.to_string().into_bytes());
}

/// The next server refuses a session of the last one, and names another incarnation.
#[test]
fn sessions_end_with_their_server() {
    let first = start(native_config(NativeMode::IoAck));
    let mut client = Client::connect(&first);
    client.write(b"k", b"v");
    let port = client.to.port();
    drop(first);
    let bytes = client.bytes(0, Ask::get(b"k"));
    client.socket.send_to(&bytes, client.to).unwrap();
    assert!(client.receive().is_none(), "nobody answers");
    let second = start(config_with(NativeMode::IoAck, |native| native.port = port));
    let answer = client.ask(Ask::get(b"k"));
    let Reply::Error(error) = answer.reply() else {
        panic!("{:?}", answer.reply());
    };
    assert_eq!(error.code, ErrorCode::Session);
    assert_ne!(error.incarnation, client.grant.incarnation);
    let mut again = Client::connect(&second);
    assert_eq!(again.get(b"k"), None);
}

/// Of too many reads that wait the last are told to come again, and none is forgotten.
#[test]
fn too_many_waiting_reads_are_told_to_come_again() {
    let server = start(config_with(NativeMode::IoAck, |native| {
        native.service_ns = 2_000_000;
        (native.backlog_max, native.read_wait_us) = (1000, 0);
    }));
    let mut writer = Client::connect(&server);
    for slot in 0..60 {
        let ask = Ask::store(Opcode::Append, b"k", b"v");
        let bytes = writer.bytes(slot, ask.nilext());
        writer.exchange(&bytes).accepted();
    }
    let mut readers: Vec<_> = (0..6).map(|_| Client::connect(&server)).collect();
    let mut asked = 0;
    for reader in &mut readers {
        for slot in 0..64 {
            let bytes = reader.bytes(slot, Ask::get(b"k"));
            reader.socket.send_to(&bytes, reader.to).unwrap();
            asked += 1;
        }
    }
    let (mut answered, mut busy) = (0, 0);
    eventually("all are answered", || {
        for reader in &readers {
            while let Some(answer) = reader.receive() {
                match answer.reply() {
                    Reply::Nack(nack) => {
                        assert_eq!(nack.reason, NackReason::Busy);
                        busy += 1;
                    }
                    Reply::Result { status, .. } => {
                        assert_eq!(status, Status::NotFound);
                        answered += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        answered + busy == asked
    });
    assert!(answered >= 256, "{answered} answered, {busy} refused");
}
