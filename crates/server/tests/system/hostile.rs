//! Clients that send nonsense, too much, too little, or never read.

use std::{
    io::{ErrorKind, Write},
    time::Duration,
};

use curtail_testing::{Client, config, config_with, serve};

/// Whatever a client sends, it gets an error or is closed, and the next client is served.
#[test]
fn junk_hurts_only_its_sender() {
    let (server, mut good) = serve(config());
    good.set("good", "kept");
    let long_key = "k".repeat(251);
    let huge_key = "k".repeat(1 << 20);
    let junk: Vec<Vec<u8>> = vec![
        vec![0; 100_000],
        vec![0xff; 100_000],
        b"\x80\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x03\0\0\0\0\0\0\0\0\0\0\0\0abc".to_vec(),
        (0..=255).cycle().take(65_536).collect(),
        b"\r\n\r\n\r\n\n\n \r\n".to_vec(),
        format!("get {long_key}\r\n").into_bytes(),
        format!("set {long_key} 0 0 1\r\nx\r\n").into_bytes(),
        format!("set {huge_key} 0 0 1\r\nx\r\n").into_bytes(),
        format!("mg {huge_key} v\r\n").into_bytes(),
        b"set a 0 0 -1\r\n".to_vec(),
        b"set a 0 0 99999999999999999999\r\n".to_vec(),
        b"set a 0 0 4294967295\r\n".to_vec(),
        b"set a 4294967296 0 1\r\nx\r\n".to_vec(),
        b"set a 0 0 1000000000\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"ms a S99999999999 v\r\n".to_vec(),
        b"ms a 1048577\r\n".to_vec(),
        "mg a v v v v v v v v v v v v v v v v v v v v v v v v v\r\n"
            .repeat(50)
            .into_bytes(),
        b"a".repeat(3_000_000),
        b"get a".to_vec(),
        b"set a 0 0 100\r\nhalf of it".to_vec(),
        b"set a 0 0 100000\r\nhalf of it".to_vec(),
    ];
    for bytes in &junk {
        let mut bad = Client::connect(&server);
        bad.set_patience(Duration::from_millis(20));
        // The server may close while we are still sending.
        let _ = (&mut bad.stream()).write_all(bytes);
        bad.take(1);
        drop(bad);
        good.demand_value("good", "kept");
    }
    good.await_stat("", "curr_connections", 1);
    // A worker tells of its buffers when its turn ends.
    good.await_stat("", "read_buf_count", 0);
}

#[test]
fn a_value_above_the_limit_is_refused_and_swallowed() {
    let (_server, mut client) = serve(config_with(|config| config.item_bytes_max = 10_000));
    client.set("a", "x");
    let value = "v".repeat(10_001);
    client.demand(
        format!("set a 0 0 10001\r\n{value}\r\nget a\r\n"),
        "SERVER_ERROR object too large for cache\r\nEND\r\n",
    );
    client.demand(
        format!("ms a 10001\r\n{value}\r\nmn\r\n"),
        "SERVER_ERROR object too large for cache\r\nMN\r\n",
    );
    assert_eq!(client.stat("", "store_too_large"), 2);
    client.demand(
        format!("set a 0 0 10000\r\n{}\r\n", &value[1..]),
        "STORED\r\n",
    );
}

/// A client that asks without reading costs a bounded amount, and others are served.
#[test]
fn a_client_that_never_reads_is_bounded() {
    let (server, mut good) = serve(config());
    let value = "v".repeat(1000);
    good.set("a", &value);
    let bad = Client::connect(&server);
    bad.stream().set_nonblocking(true).unwrap();
    let requests = "get a a a a a a a a\r\n".repeat(1000);
    let mut stuck = 0;
    let mut sent = 0;
    while stuck < 20 {
        match (&mut bad.stream()).write(requests.as_bytes()) {
            Ok(bytes) => (sent, stuck) = (sent + bytes, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stuck += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent > 10_000);
    let held = good.stat("", "read_buf_bytes") - good.stat("", "read_buf_bytes_free");
    assert!(held < 1 << 20, "holds {held} bytes");
    good.demand_value("a", &value);
    drop(bad);
    good.await_stat("", "curr_connections", 1);
}

/// Replies far larger than the kernel's buffers reach a slow reader whole and in order.
#[test]
fn a_slow_reader_gets_everything() {
    let (_server, mut client) = serve(config());
    let small = "s".repeat(900);
    let large = "L".repeat(300_000);
    client.demand(format!("set s 7 0 900\r\n{small}\r\n"), "STORED\r\n");
    client.demand(format!("set l 9 0 300000\r\n{large}\r\n"), "STORED\r\n");
    let mut sender = client.stream().try_clone().unwrap();
    let rounds = 100;
    let sending = std::thread::spawn(move || {
        for _ in 0..rounds {
            sender.write_all(b"get s l s\r\nmg s v\r\n").unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    let replies = format!(
        "VALUE s 7 900\r\n{small}\r\nVALUE l 9 300000\r\n{large}\r\nVALUE s 7 900\r\n{small}\r\n\
         END\r\nVA 900\r\n{small}\r\n"
    );
    for _ in 0..rounds {
        client.expect(&replies);
    }
    sending.join().unwrap();
    client.await_stat("", "read_buf_count", 0);
    assert_eq!(client.stat("memory", "leased"), 0);
}
