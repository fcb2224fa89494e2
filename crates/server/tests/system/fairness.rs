//! Who has to wait for whom: counted in requests carried out ahead of somebody, never in time.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use curtail_server::{Config, PolicyName};
use curtail_testing::{Client, config, eventually, start, together};

use crate::support::beside;

/// Requests that a client sends at once: many turns' worth.
const DEEP: usize = 3000;

/// The bounds of a stage's classes that are not empty.
fn classes(client: &mut Client, stage: &str) -> Vec<u64> {
    let prefix = format!("stage:{stage}:");
    let bound = |(name, _): (String, String)| {
        let bound = name.strip_prefix(&prefix)?.strip_prefix("below_");
        Some(bound.map_or(u64::MAX, |bound| bound.parse().unwrap()))
    };
    let rows = client.rows("curtail").into_iter();
    rows.filter_map(bound).collect()
}

/// While four clients keep thousands of requests under way, a client that asks singly waits for one
/// batch at most: the server counts what runs ahead of each connection.
#[test]
fn deep_pipelines_starve_nobody() {
    for policy in ["size-aware+d-crew", "crcw"] {
        let server = start(Config {
            policy: policy.parse().unwrap(),
            ..config()
        });
        let ask_deeply = |client: &mut Client, _: usize| {
            client.send("mg none v\r\n".repeat(DEEP));
            assert_eq!(client.take(4 * DEEP).len(), 4 * DEEP);
        };
        beside(&server, 4, ask_deeply, || {
            let mut single = Client::connect(&server);
            for number in 0..300 {
                single.demand("mg none v\r\n", "EN\r\n");
                // Once all were seen at work; the first turns have few.
                if number > 200 && single.stat("curtail", "requests") > 50 * DEEP as u64 {
                    break;
                }
            }
        });
        let mut client = Client::connect(&server);
        eventually("stages are shown", || {
            !classes(&mut client, "line_requests_ahead").is_empty()
        });
        let ahead = classes(&mut client, "line_requests_ahead");
        let most = ahead.iter().max().unwrap();
        assert!((33..=256).contains(most), "{policy}: {ahead:?}");
    }
}

/// Busy connections, all with one worker at first, spread over both, and no reply is lost.
#[test]
fn connections_move_to_the_worker_that_does_least() {
    let server = start(Config {
        workers: 2,
        epoch_ms: 50,
        policy: PolicyName::default(),
        ..config()
    });
    let over = AtomicBool::new(false);
    let mut idle = Vec::new();
    thread::scope(|scope| {
        scopeguard::defer! { over.store(true, Ordering::Relaxed) }
        let mut observer = Client::connect(&server);
        for _ in 0..4 {
            // The observer has the first worker: these have the second, those the first.
            let mut busy = Client::connect(&server);
            busy.demand("mn\r\n", "MN\r\n");
            let over = &over;
            scope.spawn(move || {
                let mut number = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    number += 1;
                    let key = format!("k{}", number % 50);
                    let requests = format!("ms {key} 2\r\nab\r\nmg {key} v\r\nmn\r\n");
                    busy.demand(requests, "HD\r\nVA 2\r\nab\r\nMN\r\n");
                }
            });
            let mut other = Client::connect(&server);
            other.demand("mn\r\n", "MN\r\n");
            idle.push(other);
        }
        eventually("both workers have a share", || {
            let load = |worker| format!("worker:{worker}:requests_last_epoch");
            let loads = [0, 1].map(|worker| observer.stat("curtail", &load(worker)));
            let moved = observer.stat("curtail", "connections_moved") > 0;
            moved && loads.iter().min().unwrap() * 3 > *loads.iter().max().unwrap()
        });
    });
    let mut client = Client::connect(&server);
    for mut other in idle {
        other.demand("mg none v\r\n", "EN\r\n");
    }
    client.await_stat("", "curr_connections", 1);
    let connections = |worker| client.stat("curtail", &format!("worker:{worker}:connections"));
    let sum: u64 = [0, 1].map(connections).iter().sum();
    assert_eq!(sum, 1, "connections are counted where they are");
}

/// Of too many large requests each is answered, whole or `busy`, and never more than the bound are
/// under way.
#[test]
fn an_overload_is_answered_and_not_piled_up() {
    const CLIENTS: usize = 12;
    const ROUNDS: usize = 8;
    let server = start(Config {
        large_connections_max: 3,
        memory_bytes_max: 128 << 20,
        item_bytes_max: 8 << 20,
        ..config()
    });
    let value = "v".repeat(4 << 20);
    let mut client = Client::connect(&server);
    client.set("large", &value);
    let most = AtomicU64::new(0);
    let look = |small: &mut Client, _| {
        small.set("small", "v");
        for large in ["large:0:connections", "large:1:connections"] {
            most.fetch_max(small.stat("curtail", large), Ordering::Relaxed);
        }
    };
    let (whole, busy) = beside(&server, 1, look, || {
        let ask = || {
            let mut client = Client::connect(&server);
            let (mut whole, mut busy) = (0, 0);
            for _ in 0..ROUNDS {
                client.send("mg large v\r\n");
                match client.line().as_str() {
                    "SERVER_ERROR busy" => busy += 1,
                    line => {
                        assert_eq!(line, format!("VA {}", value.len()));
                        assert!(client.take(value.len() + 2).starts_with(value.as_bytes()));
                        whole += 1;
                    }
                }
            }
            (whole, busy)
        };
        let answers = together(CLIENTS, |_| ask()).into_iter();
        answers.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    });
    // A turn looks at the queue once, so one turn's worth may come on top of the bound.
    let most = most.into_inner();
    assert!(most <= 3 + CLIENTS as u64, "{most}");
    assert_eq!(whole + busy, (CLIENTS * ROUNDS) as u64);
    assert!(whole > 0 && busy > 0, "{whole} whole, {busy} busy");
    assert_eq!(client.stat("curtail", "large_refused"), busy);
    assert_eq!(client.stat("curtail", "small_behind_large"), 0);
}
