//! Values that are received straight into the store and sent from where they lie.

use std::{
    io::Write,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use curtail_server::{Config, Fault};
use curtail_testing::{Client, PATIENCE, config, hit, pattern, serve, set, start};

/// Lengths around each border between the ways of handling a value, alone and in a pipeline.
#[test]
fn values_of_every_size_come_back() {
    let mut config = config();
    config.memory_bytes_max = 256 << 20;
    config.item_bytes_max = 16 << 20;
    let (_server, mut client) = serve(config);
    let borders = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20];
    let sizes = borders.iter().flat_map(|&size| [size - 1, size, size + 1]);
    for size in sizes.chain([0, 1, 5 << 20, 16 << 20]) {
        let value = pattern(size, size);
        client.demand(set("k", 3, &value), "STORED\r\n");
        client.demand("get k\r\n", hit("k", 3, &value));
        let mut both = set("k", 3, &value);
        both.extend_from_slice(b"get k\r\nmn\r\n");
        let mut sender = client.stream().try_clone().unwrap();
        let sending = std::thread::spawn(move || sender.write_all(&both).unwrap());
        client.expect("STORED\r\n");
        client.expect(hit("k", 3, &value));
        client.expect("MN\r\n");
        sending.join().unwrap();
    }
}

/// Cuts near the header, the end, and the line end behind it.
#[test]
fn a_large_value_may_come_in_pieces() {
    let (_server, mut client) = serve(config());
    let value = pattern(20_000, 1);
    let mut request = b"ms a2V5 20000 b k Oabc\r\n".to_vec();
    let header = request.len();
    request.extend_from_slice(&value);
    request.extend_from_slice(b"\r\n");
    let length = request.len();
    for cuts in [
        [1, header],
        [header - 1, header + 1],
        [header + 5000, length - 2],
        [header, length - 1],
        [length - 3, length - 1],
    ] {
        client.send(&request[..cuts[0]]);
        pause();
        client.send(&request[cuts[0]..cuts[1]]);
        pause();
        client.send(&request[cuts[1]..]);
        client.expect("HD ka2V5 b Oabc\r\n");
        client.demand_value("key", &value);
    }
}

#[test]
fn a_large_value_with_a_wrong_end_is_refused() {
    let (_server, mut client) = serve(config());
    let mut request = set("k", 3, pattern(20_000, 2));
    let end = request.len() - 2;
    request[end] = b'x';
    client.demand(&request, "CLIENT_ERROR bad data chunk\r\n");
    client.demand("get k\r\n", "END\r\n");
}

/// Clients that leave inside a large value leave nothing: five at a time, because more would
/// reserve more than the limit and evict.
#[test]
fn half_a_large_value_is_forgotten() {
    let (server, mut observer) = serve(config());
    observer.set("k", "old");
    for _ in 0..40 {
        for _ in 0..5 {
            let mut client = Client::connect(&server);
            client.send("set k 0 0 1000000\r\n");
            client.send(pattern(400_000, 3));
        }
        observer.await_stat("", "curr_connections", 1);
    }
    observer.demand_value("k", "old");
    // 200 halves are 80 MB: more than the whole limit, had they stayed.
    observer.demand(set("l", 3, pattern(1_000_000, 4)), "STORED\r\n");
}

/// A value that is half sent survives being replaced and evicted.
#[test]
fn a_value_on_its_way_is_not_overwritten() {
    let server = start(config());
    let (mut reader, mut writer) = (Client::connect(&server), Client::connect(&server));
    let old = pattern(1_000_000, 5);
    reader.demand(set("big", 3, &old), "STORED\r\n");
    reader.send("get big\r\n".repeat(4));
    let first = reader.take(500_000);
    for round in 0..200 {
        writer.demand(
            set(format_args!("fill{round}"), 3, pattern(900_000, round)),
            "STORED\r\n",
        );
    }
    writer.demand(set("big", 3, pattern(1_000_000, 6)), "STORED\r\n");
    let mut whole = first;
    let reply = hit("big", 3, &old);
    whole.append(&mut reader.take(reply.len() - whole.len()));
    assert!(whole == reply, "the first reply is the old value");
}

fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(10));
}

/// A worker that sleeps until it is woken hears a request that came while the connection was with a
/// large worker; a worker that forgets to say that it waits does not.
#[test]
fn a_request_behind_a_large_reply_is_heard() {
    assert!(all_are_heard(Fault::SleepsLong));
    assert!(!cfg!(debug_assertions) || !all_are_heard(Fault::ForgetsReturns));
}

/// Whether every request behind a large reply was answered.
fn all_are_heard(fault: Fault) -> bool {
    let (_server, mut client) = serve(Config {
        faults: fault.into(),
        ..config()
    });
    let value = pattern(500_000, 5);
    client.demand(set("large", 3, &value), "STORED\r\n");
    let reply_bytes = hit("large", 3, &value).len() + "MN\r\n".len();
    client.set_patience(Duration::from_secs(3));
    let mut is_heard = |delay: Duration| {
        client.send("get large\r\n");
        let sent = Instant::now();
        while sent.elapsed() < delay {
            std::hint::spin_loop();
        }
        client.send("mn\r\n");
        let reply = client.take(reply_bytes);
        reply.len() == reply_bytes && reply.ends_with(b"END\r\nMN\r\n")
    };
    (0..400).all(|round| is_heard(Duration::from_micros(round % 40 * 25)))
}

/// Busy threads, three to a processor, until a starved large worker was boosted.
#[test]
fn large_requests_do_not_starve() {
    if !curtail_runtime::may_step_forward() {
        eprintln!("skipped: threads that step aside may not come forward again (RLIMIT_NICE)");
        return;
    }
    let (_server, mut client) = serve(config());
    let value = pattern(1 << 20, 3);
    let boosts = |client: &mut Client| {
        let of = |large| client.stat("curtail", &format!("large:{large}:starvation_boosts"));
        [0, 1].map(of).iter().sum::<u64>()
    };
    let (is_over, processors) = (AtomicBool::new(false), curtail_runtime::cpus_usable());
    let came_forward = std::thread::scope(|scope| {
        for _ in 0..3 * processors {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        scopeguard::defer! { is_over.store(true, Relaxed) }
        let begun = Instant::now();
        while boosts(&mut client) == 0 && begun.elapsed() < PATIENCE {
            client.demand(set("large", 3, &value), "STORED\r\n");
            client.demand("get large\r\n", hit("large", 3, &value));
        }
        boosts(&mut client)
    });
    assert!(came_forward > 0);
}
