//! How many messages a second one link carries over loopback, with and without coalescing.
//!
//! `cargo test --release -p curtail-links --lib figures -- --ignored --nocapture`
//!
//! On two virtual processors, one for each side, in millions a second for values of 0, 40 and 1000
//! bytes:
//!
//! | messages in a frame | in a send | 0 | 40 | 1000 |
//! |---|---|---|---|---|
//! | 1 | 1 | 0.37 | 0.35 | 0.30 |
//! | 1 | 16 | 3.4 | 3.4 | 2.3 |
//! | 16 | 16 | 4.4 | 4.4 | 2.6 |
//! | 64 | 64 | 12.4 | 10.0 | 0.7 |
//!
//! The call to send is what coalescing saves first, the header second. In the last place nearly
//! every turn found the window full.

use std::sync::atomic::{AtomicBool, Ordering};

use curtail_codec::node::{Image, ReplicaItem, ReplicaPart};
use curtail_types::{Cas, Key};

use crate::tests::*;

/// How long each line is measured.
const MEASURED: Duration = Duration::from_secs(2);

/// What goes into one frame, and into one send.
#[derive(Clone, Copy)]
struct Gathered {
    messages_in_a_frame: usize,
    messages_in_a_send: usize,
}

#[test]
#[ignore = "a measurement"]
fn messages_a_second() {
    println!("| messages in a frame | in a send | bytes of a value | messages a second |");
    println!("|---|---|---|---|");
    for (messages_in_a_frame, messages_in_a_send) in [(1, 1), (1, 16), (16, 16), (64, 64)] {
        for value_bytes in [0, 40, 1000] {
            let gathered = Gathered {
                messages_in_a_frame,
                messages_in_a_send,
            };
            let rate = measure(gathered, value_bytes);
            println!(
                "| {messages_in_a_frame} | {messages_in_a_send} | {value_bytes} | {rate:.0} |"
            );
        }
    }
}

/// Messages a second from one worker to another, which receives on a thread of its own.
fn measure(gathered: Gathered, value_bytes: usize) -> f64 {
    let (mut a, mut b) = two(KIND, other());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let receiver = std::thread::spawn(move || {
        let mut count = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            let worker = &mut b.workers[0];
            poll(worker);
            worker.links.receive(|_, frame| {
                if let Body::Replica(items) = frame.body {
                    count += items
                        .map(|item| u64::from(item.item.is_some()))
                        .sum::<u64>();
                }
            });
            worker.links.flush();
        }
        count
    });
    let begun = Moment::now();
    let value = vec![1; value_bytes];
    while begun.elapsed() < MEASURED {
        let worker = &mut a.workers[0];
        poll(worker);
        worker.links.receive(|_, _| {});
        send(worker, gathered, &value);
    }
    stop.store(true, Ordering::Relaxed);
    receiver.join().unwrap() as f64 / begun.elapsed().as_secs_f64()
}

fn poll(worker: &mut Worker) {
    worker
        .poller
        .wait(&mut worker.events, Some(Duration::ZERO))
        .unwrap();
    let links = &mut worker.links;
    worker
        .events
        .for_each(|token, readiness| links.note_event(token, readiness));
    links.begin_turn(worker.clock.now().instant);
}

/// One turn's messages; another class begins another frame.
fn send(worker: &mut Worker, gathered: Gathered, value: &[u8]) {
    let to = worker.links.endpoint(NodeId(2)).unwrap();
    for number in 0..gathered.messages_in_a_send {
        let part = Part::Replica(ReplicaPart {
            stage: 0,
            message: &[1; 30],
            item: Some(ReplicaItem {
                version: Cas(1),
                key: Key::new(b"key:12345678").unwrap(),
                image: Image {
                    value,
                    ..Image::default()
                },
            }),
        });
        let class = match number / gathered.messages_in_a_frame % 2 {
            0 => Class::Demand,
            _ => Class::Answer,
        };
        if worker.links.send(to, class, &part).is_err() {
            break;
        }
    }
    worker.links.flush();
}
