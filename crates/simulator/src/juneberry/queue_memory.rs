//! The memory of the queues, stamps and sessions of one run, with the production admission over it.
//!
//! An entry's payload is its key and the number of the request, which is what an executor needs
//! here: values are not stored, only their time is charged.

use std::sync::atomic::AtomicU64;

use curtail_ordered_queue::{
    Arrival, EntryKind, Ingress, OrderedQueue, Peer, QueueEntry, QueueState, SessionLimits,
    SessionName, Sessions, Stamps, layout,
};

use crate::juneberry::run::Packet;

/// Words that a run lends to the production structures.
#[derive(Debug)]
pub(super) struct Memory {
    queues: Vec<Box<[AtomicU64]>>,
    stamps: Box<[AtomicU64]>,
    sessions: Box<[AtomicU64]>,
    slots: u64,
}

impl Memory {
    /// `queues` (a power of two) of `slots` each, and room for a session for each connection.
    pub(super) fn new(queues: usize, slots: u64, connections: usize) -> Self {
        assert!(queues.is_power_of_two());
        let words = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            queues: (0..queues)
                .map(|_| words(layout::queue_words(slots)))
                .collect(),
            stamps: words(layout::STAMP_WORDS),
            sessions: words(connections * layout::SESSION_WORDS),
            slots,
        }
    }

    /// The queues, open, that acknowledge early while fewer than `early_max` entries wait.
    pub(super) fn queues(&self, early_max: u64) -> Vec<OrderedQueue<'_>> {
        let open = |words| {
            let queue = OrderedQueue::format(words, self.slots, 1);
            queue.set_backlog_max(early_max);
            queue.grant_bytes(u64::MAX / 2);
            queue.set_state(QueueState::Open);
            queue
        };
        self.queues.iter().map(|words| open(words)).collect()
    }

    pub(super) fn ingress<'a>(&'a self, queues: &'a [OrderedQueue<'a>]) -> Ingress<'a> {
        Ingress {
            queues,
            stamps: Stamps::new(&self.stamps),
            sessions: Sessions::new(&self.sessions),
            heartbeat_ns_max: u64::MAX,
        }
    }
}

/// A session for the connection of this number, each from an address of its own.
pub(super) fn session(sessions: Sessions<'_>, connection: usize) -> SessionName {
    let limits = SessionLimits {
        now_ns: 0,
        lease_ns: u64::MAX,
        per_address: 1,
    };
    let token = |index: u32, generation: u32| u64::from(index) << 32 | u64::from(generation);
    let granted = sessions.grant(peer(connection), 1, limits, connection as u64, token);
    granted.unwrap_or_else(|error| unreachable!("{connection}: {error:?}"))
}

pub(super) fn peer(connection: usize) -> Peer {
    Peer {
        address: [0, connection as u64],
        port: 1,
    }
}

/// A packet as the production admission takes it. A read that goes through the queue is a write
/// that may not be acknowledged early.
pub(super) fn arrival<'p>(
    packet: &Packet,
    session: SessionName,
    payload: &'p [u8; PAYLOAD_BYTES],
) -> Arrival<'p> {
    Arrival {
        session,
        peer: peer(packet.connection as usize),
        slot: packet.slot,
        sequence: packet.sequence,
        nilext: packet.write,
        kind: if packet.write {
            EntryKind::Set
        } else {
            EntryKind::Write
        },
        key_hash: packet.hash,
        arrived_ns: 0,
        payload,
        key_at: 0,
        key_bytes: KEY_BYTES,
        opcode_and_flags: (0, 0),
        rx_queue: 0,
    }
}

/// Key and number of a request as a payload.
pub(super) fn payload(packet: &Packet) -> [u8; PAYLOAD_BYTES] {
    let mut bytes = [0; PAYLOAD_BYTES];
    bytes[..8].copy_from_slice(&packet.hash.to_le_bytes());
    bytes[8..12].copy_from_slice(&packet.id.to_le_bytes());
    bytes[12..].copy_from_slice(&packet.serial.to_le_bytes());
    bytes
}

/// Whose entry it is: the request's place and its serial number.
pub(super) fn owner(entry: &QueueEntry<'_>) -> (u32, u32) {
    let mut bytes = [0; PAYLOAD_BYTES];
    entry.copy_payload(&mut bytes);
    let word = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(word)
    };
    (word(8), word(12))
}

/// A key, a place and a serial number.
pub(super) const PAYLOAD_BYTES: usize = 16;
const KEY_BYTES: u8 = 8;
