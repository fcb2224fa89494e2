//! What an ingress thread makes of a datagram that it has decoded.

use curtail_codec::native::{self, Flags, Opcode, Request};
use curtail_ordered_queue::{Arrival, EntryKind, Peer, SessionName};
use curtail_types::{HashSeed, Key};

pub(crate) fn arrival<'a>(
    request: &Request<'_>,
    datagram: &'a [u8],
    peer: Peer,
    seed: HashSeed,
    arrived_ns: u64,
) -> Arrival<'a> {
    let head = &request.head;
    let key = request.key.map_or(&[][..], Key::bytes);
    let is_plain_set = head.opcode == Opcode::Set && !head.flags.has(Flags::COMPARE);
    Arrival {
        session: SessionName {
            index: head.session.index,
            generation: head.session.generation,
            token: head.session.token,
        },
        peer,
        slot: head.slot,
        sequence: head.sequence,
        nilext: head.class().is_nilext(),
        kind: if is_plain_set {
            EntryKind::Set
        } else {
            EntryKind::Write
        },
        key_hash: seed.hash(key).0,
        arrived_ns,
        payload: datagram,
        key_at: native::HEADER_BYTES as u8,
        key_bytes: key.len() as u8,
        opcode_and_flags: (head.opcode as u8, head.flags.0 as u8),
        rx_queue: 0,
    }
}
