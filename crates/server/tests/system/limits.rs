//! Limits on connections, time and memory.

use std::time::{Duration, Instant};

use curtail_testing::{Client, config, config_with, eventually, serve, start};

#[test]
fn one_connection_too_many_is_told_so() {
    let server = start(config_with(|config| config.connections_max = 5));
    let mut clients: Vec<Client> = (0..5).map(|_| Client::connect(&server)).collect();
    clients
        .iter_mut()
        .for_each(|client| client.demand("mn\r\n", "MN\r\n"));
    let mut refused = Client::connect(&server);
    refused.expect("ERROR Too many open connections\r\n");
    refused.expect_closed();
    assert_eq!(clients[0].stat("", "rejected_connections"), 1);
    drop(clients.pop());
    eventually("there is room again", || {
        let mut client = Client::connect(&server);
        client.send("mn\r\n");
        client.take(4) == b"MN\r\n"
    });
}

#[test]
fn without_maxconns_fast_a_connection_waits() {
    let mut config = config();
    config.connections_max = 2;
    config.refuse_connections_fast = false;
    let (server, mut first) = serve(config);
    let mut second = Client::connect(&server);
    first.demand("mn\r\n", "MN\r\n");
    second.demand("mn\r\n", "MN\r\n");
    let mut waiting = Client::connect(&server);
    waiting.send("mn\r\n");
    first.await_stat("", "accepting_conns", 0);
    assert_eq!(first.stat("", "listen_disabled_num"), 1);
    drop(second);
    waiting.expect("MN\r\n");
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_stays() {
    let (server, mut idle) = serve(config_with(|config| config.idle_timeout_seconds = 1));
    let mut busy = Client::connect(&server);
    idle.demand("mn\r\n", "MN\r\n");
    let start = Instant::now();
    while busy.stat("", "idle_kicks") == 0 {
        assert!(start.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(100));
    }
    idle.expect_closed();
    assert_eq!(busy.stat("", "curr_connections"), 1);
}

/// Idle connections hold no buffers, also after half a request that was completed later.
#[test]
fn idle_connections_hold_nothing() {
    let (server, mut observer) = serve(config());
    let before = observer.stat("memory", "connections");
    let mut clients: Vec<Client> = (0..500).map(|_| Client::connect(&server)).collect();
    for client in &mut clients {
        client.send("set a 0 0 5\r\n12");
    }
    observer.await_stat("", "read_buf_count", 500);
    for client in &mut clients {
        client.demand("345\r\n", "STORED\r\n");
    }
    assert_eq!(observer.stat("", "read_buf_count"), 0);
    let each = (observer.stat("memory", "connections") - before) / 500;
    assert!(each < 2048, "an idle connection takes {each} bytes");
}

/// Ten times the limit in mixed sizes: memory stays within it, and what is read back is right.
#[test]
fn a_full_server_evicts_and_goes_on() {
    let (_server, mut client) = serve(config_with(|config| config.memory_bytes_max = 16 << 20));
    let size_of = |number: usize| 100 + number * 7919 % 60_000;
    let mut hits = 0;
    for number in 0..5000 {
        let value = format!("{number}.").repeat(size_of(number) / 8);
        client.set(format_args!("k{number}"), &value);
        let back = number - number % 13 * (number / 13);
        client.send(format!("get k{back}\r\n"));
        if client.line() != "END" {
            hits += 1;
            let value = format!("{back}.").repeat(size_of(back) / 8);
            client.expect(format!("{value}\r\nEND\r\n"));
        }
    }
    assert!(hits > 0);
    assert!(client.stat("", "evictions") > 0);
    assert!(client.stat("", "bytes") <= 16 << 20);
}

#[test]
fn a_full_server_refuses_where_it_may_not_evict() {
    let mut config = config();
    config.memory_bytes_max = 8 << 20;
    config.evict = false;
    let (_server, mut client) = serve(config);
    let value = "v".repeat(8192);
    let mut stored = 0;
    loop {
        client.send(format!("set k{stored} 0 0 8192\r\n{value}\r\n"));
        if client.line() != "STORED" {
            break;
        }
        stored += 1;
        assert!(stored < 2000);
    }
    assert!(stored > 200, "{stored}");
    for number in 0..stored {
        client.demand_value(format_args!("k{number}"), &value);
    }
    assert_eq!(client.stat("", "store_no_memory"), 1);
}

/// A worker spins only if there are more processors than workers.
#[test]
fn spinning_needs_a_processor_to_spare() {
    for workers in [curtail_runtime::cpus_usable(), 1] {
        let (_server, mut client) = serve(config_with(|config| config.workers = workers));
        for _ in 0..1000 {
            client.demand("mn\r\n", "MN\r\n");
        }
        let spins = client.stat("curtail", "spins_found") + client.stat("curtail", "spins_in_vain");
        let may = client.stat("curtail", "spinning") == 1;
        assert!(may || spins == 0);
        assert!(!may || workers < curtail_runtime::cpus_usable());
    }
}

/// More than eight times the limit at the start is refused, and changes nothing.
#[test]
fn a_refused_memory_limit_changes_nothing() {
    let (_server, mut client) = serve(config());
    let before = client.stat("settings", "maxbytes");
    let megabytes = 9 * before / (1 << 20);
    client.demand(
        format!("cache_memlimit {megabytes}\r\n"),
        "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
    );
    assert_eq!(client.stat("settings", "maxbytes"), before);
    client.demand("cache_memlimit 65\r\n", "OK\r\n");
    assert_eq!(client.stat("settings", "maxbytes"), 65 << 20);
}
