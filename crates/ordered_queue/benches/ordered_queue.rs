//! What the Ordered Queue costs a write: admission (claim, reserve, fill, publish, raise, commit)
//! and execution (a turn of 64 entries that does nothing with them), in one thread. Run with
//! `cargo bench -p curtail-ordered-queue --bench ordered_queue`.
//!
//! Nothing here can allocate after construction: of the modules that are measured only the
//! compactor's constructor knows an allocator.

use std::{
    hint::black_box,
    sync::atomic::AtomicU64,
    time::{Duration, Instant as Clock},
};

use curtail_dispatch::Worker;
use curtail_ordered_queue::{
    Arrival, EntryKind, Ingress, OrderedQueue, Peer, QueueState, SessionLimits, SessionName,
    Sessions, Stamps, Turn, Verdict, layout,
};

const SLOTS: u64 = 4096;
const ROUNDS: u64 = 400;

fn main() {
    for payload_bytes in [64, 140, 1024] {
        bench(payload_bytes, true);
    }
    bench(140, false);
}

fn words(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// Fills the queue and empties it; `spread` says whether every write has a key of its own.
fn bench(payload_bytes: usize, spread: bool) {
    let (queue, stamps) = (
        words(layout::queue_words(SLOTS)),
        words(layout::STAMP_WORDS),
    );
    let sessions = words(64 * layout::SESSION_WORDS);
    let queues = [OrderedQueue::format(&queue, SLOTS, 1)];
    queues[0].set_state(QueueState::Open);
    queues[0].set_backlog_max(SLOTS);
    queues[0].grant_bytes(1 << 50);
    let ingress = Ingress {
        queues: &queues,
        stamps: Stamps::new(&stamps),
        sessions: Sessions::new(&sessions),
        heartbeat_ns_max: 1 << 40,
    };
    let names: Vec<SessionName> = (0..64)
        .map(|number| grant(ingress.sessions, number))
        .collect();
    let mut payload = vec![7; payload_bytes];
    let (mut admitting, mut executing) = (Duration::ZERO, Duration::ZERO);
    let mut turn = Turn::new();
    let mut number = 0_u64;
    for _ in 0..ROUNDS {
        let start = Clock::now();
        for _ in 0..SLOTS {
            let key = if spread { number } else { 1 };
            payload[..8].copy_from_slice(&key.to_le_bytes());
            let arrival = arrival(&names, number, key, &payload);
            let verdict = ingress.admit(&arrival, 0);
            assert!(matches!(verdict, Verdict::Accepted(_)));
            number += 1;
        }
        admitting += start.elapsed();
        let start = Clock::now();
        while let Some(mut lease) = queues[0].take_lease(Worker(0)) {
            let drained = turn.run(&mut lease, 64, None, |step| {
                black_box(&step);
            });
            if drained.entries == 0 {
                break;
            }
        }
        executing += start.elapsed();
    }
    let each = |time: Duration| time.as_nanos() as f64 / (ROUNDS * SLOTS) as f64;
    println!(
        "{payload_bytes:5} bytes, {}: admission {:6.1} ns, turn {:6.1} ns an entry",
        if spread { "many keys" } else { "one key  " },
        each(admitting),
        each(executing),
    );
}

fn grant(sessions: Sessions<'_>, number: u64) -> SessionName {
    let limits = SessionLimits {
        now_ns: 0,
        lease_ns: 1 << 60,
        per_address: 1,
    };
    let granted = sessions.grant(peer(number), 1, limits, number, |index, _| u64::from(index));
    match granted {
        Ok(name) => name,
        Err(error) => panic!("{error:?}"),
    }
}

fn peer(number: u64) -> Peer {
    Peer {
        address: [0, number],
        port: 1,
    }
}

/// The sessions' slots in turn.
fn arrival<'a>(names: &[SessionName], number: u64, key: u64, payload: &'a [u8]) -> Arrival<'a> {
    let session = number % 64;
    Arrival {
        session: names[session as usize],
        peer: peer(session),
        slot: (number / 64 % 64) as u8,
        sequence: number / 4096 + 1,
        nilext: true,
        kind: EntryKind::Set,
        key_hash: key.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        arrived_ns: number,
        payload,
        key_at: 0,
        key_bytes: 8,
        opcode_and_flags: (8, 1),
        rx_queue: 0,
    }
}
