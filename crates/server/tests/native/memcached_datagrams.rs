//! memcached's own datagrams: what they do, and that nobody can be sent more than was sent.

use std::{net::UdpSocket, time::Duration};

use curtail_server::{Config, NativeMode, Server};
use curtail_testing::{native_config, serve, start};

use crate::support;

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

/// No answer is longer than its request, and what needs TCP is told so.
#[test]
fn small_answers_only() {
    let (server, mut memcached) = serve(with_datagrams());
    let demand = |table: &[(&str, Option<&str>)]| {
        for (commands, answer) in table {
            assert_eq!(asked(&server, commands).as_deref(), *answer, "{commands:?}");
        }
    };
    let padded = |command: &str| format!("{command}{}\r\n", " ".repeat(60));
    demand(&[
        ("set k 0 0 5\r\nvalue\r\n", Some("STORED\r\n")),
        ("get k\r\n", None),
        ("get nothing\r\n", Some("END\r\n")),
        ("mg k\r\n", Some("HD\r\n")),
        (&padded("get k"), Some("VALUE k 0 5\r\nvalue\r\nEND\r\n")),
        ("set n 0 0 2\r\n41\r\n", Some("STORED\r\n")),
        // The number may be longer than the question, so nothing is counted.
        ("incr n 1\r\n", None),
    ]);
    memcached.demand_value("k", "value");
    memcached.demand_value("n", "41");
    demand(&[
        ("incr n 00000000000000001\r\n", Some("42\r\n")),
        ("delete n\r\n", Some("DELETED\r\n")),
        (&padded("stats"), Some("SERVER_ERROR use TCP\r\n")),
        ("stats\r\n", None),
        (
            "set a 0 0 1\r\n1\r\nset b 0 0 1\r\n2\r\n",
            Some("STORED\r\nSTORED\r\n"),
        ),
    ]);
}

/// Frames that promise more datagrams, or none, are not answered.
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

/// Native writes that are accepted come before.
#[test]
fn accepted_writes_come_first() {
    let (server, mut client) = support::serve(with_datagrams());
    for round in 0..50 {
        let value = format!("{round}");
        client.write(b"k", value.as_bytes());
        let answer = asked(&server, &format!("get k{}\r\n", " ".repeat(60)));
        let expected = format!("VALUE k 0 {}\r\n{value}\r\nEND\r\n", value.len());
        assert_eq!(answer, Some(expected));
    }
}
