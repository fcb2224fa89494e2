//! The native protocol and the Ordered Queue together: what a datagram says is what the executor
//! reads, and the limits of both are the same.

#![cfg(not(loom))]
#![allow(
    clippy::unwrap_used,
    reason = "a packet that makes no sense fails the test"
)]

mod arrival;

use std::sync::atomic::AtomicU64;

use curtail_codec::native::{
    self, Class, Cookies, DATAGRAM_BYTES_MAX, Flags, Head, Opcode, Request, Session,
};
use curtail_dispatch::Worker;
use curtail_ordered_queue::{
    Ingress, OrderedQueue, Peer, QueueState, SessionLimits, Sessions, Stamps, TURN_MAX, Turn,
    TurnStep, Verdict, layout,
};
use curtail_types::{HashSeed, Key};

use arrival::arrival;

const _: () = assert!(layout::PAYLOAD_BYTES_MAX == DATAGRAM_BYTES_MAX);
const _: () = assert!(layout::SESSION_SLOTS == native::SLOTS as usize);

fn words(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// A session as it is granted to who has returned a cookie.
fn session(sessions: Sessions<'_>, peer: Peer) -> Session {
    let cookies = Cookies::new(HashSeed([3, 4]));
    let limits = SessionLimits {
        now_ns: 0,
        lease_ns: 1,
        per_address: 1,
    };
    let token = |index, generation| cookies.token(native::Peer::default(), index, generation, 9);
    let name = sessions.grant(peer, 1, limits, 0, token).unwrap();
    Session {
        index: name.index,
        generation: name.generation,
        token: name.token,
    }
}

/// Goal: a session is granted, datagrams of every length are admitted, and the executor decodes
/// the very same requests, in order; the greatest sequence number is taken.
#[test]
fn datagrams_go_through_the_queue_unchanged() {
    let seed = HashSeed([1, 2]);
    let memory = [
        words(layout::queue_words(32)),
        words(layout::STAMP_WORDS),
        words(4 * layout::SESSION_WORDS),
    ];
    let queues = [OrderedQueue::format(&memory[0], 32, 9)];
    queues[0].set_state(QueueState::Open);
    queues[0].set_backlog_max(32);
    queues[0].grant_bytes(1 << 30);
    let ingress = Ingress {
        queues: &queues,
        stamps: Stamps::new(&memory[1]),
        sessions: Sessions::new(&memory[2]),
        heartbeat_ns_max: 1,
    };
    let peer = Peer::default();
    let session = session(ingress.sessions, peer);
    let longest = DATAGRAM_BYTES_MAX - native::HEADER_BYTES - 3;
    let lengths = [0, 1, 7, 8, 9, 100, 1000, longest];
    let mut sent = Vec::new();
    for (slot, length) in (0..).zip(lengths) {
        let value: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
        let head = Head {
            slot,
            sequence: native::SEQUENCE_MAX,
            ..Head::new(Opcode::Set, Flags::NILEXT, session)
        };
        let key = [b'k', b'0' + slot, b'!'];
        let request = Request {
            head,
            key: Some(Key::new(&key).unwrap()),
            value: &value,
        };
        let mut room = vec![0; DATAGRAM_BYTES_MAX];
        let bytes = request.encode(&mut room).unwrap();
        room.truncate(bytes);
        let decoded = Request::decode(&room).unwrap();
        assert_eq!(decoded.head.class().class(), Class::Nilext);
        let arrival = arrival(&decoded, &room, peer, seed, 1);
        assert_eq!(
            ingress.admit(&arrival, 0),
            Verdict::Accepted(u64::from(slot))
        );
        assert_eq!(
            ingress.admit(&arrival, 0),
            Verdict::Repeated(u64::from(slot))
        );
        sent.push(room);
    }
    let mut lease = queues[0].take_lease(Worker(0)).unwrap();
    let mut room = [0; DATAGRAM_BYTES_MAX];
    let mut executed = Vec::new();
    Turn::new().run(&mut lease, TURN_MAX, None, |step| {
        if let TurnStep::Apply(entry) = step {
            let bytes = entry.copy_payload(&mut room).unwrap();
            assert!(Request::decode(&room[..bytes]).is_ok());
            executed.push(room[..bytes].to_vec());
        }
    });
    assert_eq!(executed, sent);
}
