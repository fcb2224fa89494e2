//! memcached's own datagrams: what they do, and that nobody can be sent more than was sent.

use std::{net::UdpSocket, time::Duration};

use curtail_server::{Config, NativeMode, Server};
use curtail_testing::{native_config, serve, start};

use crate::support::{Ask, Client};

fn asked(server: &Server, commands: &str) -> Option<String> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let frame = [0x12, 0x34, 0, 0, 0, 1, 0, 0];
    let datagram = [&frame[..], commands.as_bytes()].concat();
    socket
        .send_to(&datagram, server.udp_addresses()[0])
        .unwrap();
    let mut buffer = [0; 4096];
    let bytes = socket.recv(&mut buffer).ok()?;
    assert!(bytes <= datagram.len(), "{bytes} for {}", datagram.len());
    assert_eq!(buffer[..8], frame);
    Some(String::from_utf8(buffer[8..bytes].to_vec()).unwrap())
}

fn with_datagrams() -> Config {
    Config {
        udp_port: Some(0),
        ..native_config(NativeMode::IoAck)
    }
}

/// Goal: writes are answered, reads as far as they fit, everything else is told to use TCP, and no
/// answer is longer than its request.
#[test]
fn small_answers_only() {
    let (server, mut memcached) = serve(with_datagrams());
    let ask = |commands: &str| asked(&server, commands);
    assert_eq!(
        ask("set k 0 0 5\r\nvalue\r\n").as_deref(),
        Some("STORED\r\n")
    );
    assert_eq!(memcached.get("k").unwrap(), "value");
    assert_eq!(
        ask("get k\r\n"),
        None,
        "the value is longer than the question"
    );
    assert_eq!(ask("get nothing\r\n").as_deref(), Some("END\r\n"));
    assert_eq!(ask("mg k\r\n").as_deref(), Some("HD\r\n"));
    let padded = format!("get k{}\r\n", " ".repeat(60));
    assert_eq!(
        ask(&padded).as_deref(),
        Some("VALUE k 0 5\r\nvalue\r\nEND\r\n")
    );
    assert_eq!(ask("set n 0 0 2\r\n41\r\n").as_deref(), Some("STORED\r\n"));
    assert_eq!(
        ask("incr n 1\r\n"),
        None,
        "the number may be longer than the question"
    );
    assert_eq!(
        memcached.get("n").unwrap(),
        "41",
        "and so nothing was counted"
    );
    assert_eq!(
        ask("incr n 00000000000000001\r\n").as_deref(),
        Some("42\r\n")
    );
    assert_eq!(ask("delete n\r\n").as_deref(), Some("DELETED\r\n"));
    let stats = format!("stats{}\r\n", " ".repeat(60));
    assert_eq!(ask(&stats).as_deref(), Some("SERVER_ERROR use TCP\r\n"));
    assert_eq!(ask("stats\r\n"), None);
    let both = "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\n";
    assert_eq!(ask(both).as_deref(), Some("STORED\r\nSTORED\r\n"));
}

/// Goal: frames that promise more datagrams, or none, are not answered.
#[test]
fn odd_frames_are_not_answered() {
    let server = start(with_datagrams());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let frames: [&[u8]; 5] = [
        b"",
        b"\0\x01\0",
        b"\0\x01\0\0\0\x02\0\0mn\r\nmn\r\n",
        b"\0\x01\0\x01\0\x01\0\0mg k\r\n",
        b"\0\x01\0\0\0\x01\0\0set k 0 0 5000\r\nhalf",
    ];
    for frame in frames {
        socket.send_to(frame, server.udp_addresses()[0]).unwrap();
        assert!(socket.recv(&mut [0; 100]).is_err(), "{frame:?}");
    }
}

/// Goal: native writes that are accepted come before.
#[test]
fn accepted_writes_come_first() {
    let server = start(with_datagrams());
    let mut client = Client::connect(&server);
    for round in 0..50 {
        let value = format!("{round}");
        client
            .ask(Ask::set(b"k", value.as_bytes()).nilext())
            .accepted();
        let answer = asked(&server, &format!("get k{}\r\n", " ".repeat(60)));
        let expected = format!("VALUE k 0 {}\r\n{value}\r\nEND\r\n", value.len());
        assert_eq!(answer, Some(expected));
    }
}
