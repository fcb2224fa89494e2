//! Early acknowledgement follows the measured time of execution, and the memory limit (JB-44).

use curtail_codec::native::Opcode;
use curtail_server::{Config, NativeMode, Server};
use curtail_testing::{Client as Memcached, eventually, start};

use crate::support::{Ask, Client, config_with, serve};

/// Sends one marked write in each of so many slots at once, and waits for the answer of each.
fn burst(client: &mut Client, slots: u8, ask: Ask<'_>) {
    let asked: Vec<_> = (0..slots)
        .map(|slot| client.bytes(slot, ask.nilext()))
        .collect();
    for bytes in &asked {
        client.socket.send_to(bytes, client.to).unwrap();
    }
    for bytes in &asked {
        client.exchange(bytes).accepted();
    }
}

fn limit(memcached: &mut Memcached) -> u64 {
    memcached.stat("curtail", "native:early_limit")
}

/// Waits until every queue has so many memory credits.
fn await_credits(memcached: &mut Memcached, bytes: u64) {
    eventually("all credits are back", || {
        let rows = memcached.rows("curtail").into_iter();
        let credits = rows.filter(|(name, _)| name.ends_with(":credits"));
        let credits: Vec<u64> = credits.map(|(_, bytes)| bytes.parse().unwrap()).collect();
        credits == [bytes; 16]
    });
}

/// Goal: the limit falls while execution is slow and rises when it is fast again. Method: no faked
/// time: appends that copy a large value, then sets of a small one, of one key and so one queue.
#[test]
fn the_limit_follows_the_time_of_execution() {
    let (server, mut client) = serve(config_with(NativeMode::IoAck, |native| {
        native.read_wait_us = 3000;
    }));
    let mut memcached = Memcached::connect(&server);
    let small = Ask::set(b"k", b"small");
    eventually("small writes may fill the queue", || {
        burst(&mut client, 60, small);
        limit(&mut memcached) == 128
    });
    for _ in 0..2 {
        memcached.set("k", vec![b'v'; 900_000]);
        eventually("slow writes may not", || {
            burst(&mut client, 60, Ask::store(Opcode::Append, b"k", b"v"));
            limit(&mut memcached) < 64
        });
        assert!(memcached.stat("curtail", "native:execution_ns") > 3_000_000 / 64);
        eventually("small writes may again", || {
            burst(&mut client, 60, small);
            limit(&mut memcached) == 128
        });
    }
}

/// Of a burst that would take longer than a read may wait, only a part is acknowledged early.
#[test]
fn a_burst_is_acknowledged_early_up_to_the_limit() {
    let slow = config_with(NativeMode::IoAck, |native| native.service_ns = 2_000_000);
    accept_up_to_the_limit(&start(slow));
}

/// Has a server that executes in 2 ms acknowledge a burst.
pub(crate) fn accept_up_to_the_limit(server: &Server) {
    let mut client = Client::connect(server);
    let mut memcached = Memcached::connect(server);
    client.write(b"k", b"");
    let append = Ask::store(Opcode::Append, b"k", b"v");
    eventually("the limit is the least", || {
        burst(&mut client, 20, append);
        limit(&mut memcached) == 8
    });
    memcached.await_stat("curtail", "native:backlog", 0);
    let count = |memcached: &mut Memcached| {
        ["native:accepted", "native:queued"].map(|name| memcached.stat("curtail", name))
    };
    let [accepted, queued] = count(&mut memcached);
    burst(&mut client, 60, append);
    let [accepted_now, queued_now] = count(&mut memcached);
    assert_eq!(accepted_now - accepted + queued_now - queued, 60);
    assert!(accepted_now >= accepted + 8, "{accepted} {accepted_now}");
    assert!(queued_now > queued, "{queued} {queued_now}");
}

/// Writes that are acknowledged and not stored take no more than their share of the memory limit,
/// and credits come back with execution.
#[test]
fn the_memory_limit_bounds_what_is_acknowledged_early() {
    const SHARE: u64 = (16 << 20) / 8 / 16;
    let (server, mut client) = serve(Config {
        memory_bytes_max: 16 << 20,
        ..config_with(NativeMode::IoAck, |native| {
            native.service_ns = 1_000_000;
            (native.backlog_max, native.read_wait_us) = (1000, 0);
        })
    });
    let mut other = Client::connect(&server);
    let mut memcached = Memcached::connect(&server);
    await_credits(&mut memcached, SHARE);
    client.write(b"k", b"");
    let value = vec![b'v'; 1800];
    let append = Ask::store(Opcode::Append, b"k", &value).nilext();
    for slot in 0..60 {
        for client in [&mut client, &mut other] {
            let bytes = client.bytes(slot, append);
            client.socket.send_to(&bytes, client.to).unwrap();
        }
    }
    memcached.await_stat("curtail", "native:executed", 121);
    assert!(
        memcached.stat("curtail", "native:queued") > 0,
        "all accepted"
    );
    assert!(memcached.stat("curtail", "native:accepted") > 30);
    await_credits(&mut memcached, SHARE);
}
