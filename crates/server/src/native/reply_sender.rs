//! Converts peers and positions between wire and queue, and sends replies to their clients.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use curtail_codec::native::{self, HEADER_BYTES, Opcode, Place, Reply, Session};
use curtail_ordered_queue::{OrderedQueue, Peer, SessionName};
use curtail_runtime::{Outbox, SteerBy, Steering};

use crate::native::{
    Native,
    counters::{NativeCount, NativeCounts},
};

/// Where a reply goes: the socket that its request came by, and the sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sender {
    /// The number of the address that it was sent to.
    pub(crate) socket: u8,
    pub(crate) address: SocketAddr,
    /// The address that it was sent to, where the socket has several.
    pub(crate) local: Option<IpAddr>,
}

/// Replies on their way out; of one thread.
pub(crate) struct Post {
    /// One for each address that is listened at.
    boxes: Vec<Outbox>,
    /// The first of the sockets that this thread sends from.
    first_socket: usize,
}

/// Replies that are sent together.
const REPLIES: usize = 64;

impl Post {
    pub(crate) fn new(addresses: usize, first_socket: usize) -> Self {
        Self {
            boxes: (0..addresses).map(|_| Outbox::new(REPLIES)).collect(),
            first_socket,
        }
    }

    /// Adds a reply; sends first if there is no place.
    pub(crate) fn reply(
        &mut self,
        native: &Native,
        counts: &mut NativeCounts,
        to: Sender,
        reply: &Reply<'_>,
    ) {
        let socket = usize::from(to.socket);
        let is_full = self.boxes.get(socket).is_some_and(Outbox::is_full);
        if is_full {
            self.send(native, counts);
        }
        if let Some(outbox) = self.boxes.get_mut(socket) {
            outbox.push_from(to.local, to.address, |room| reply.encode(room).ok());
        }
    }

    /// Sends everything.
    pub(crate) fn send(&mut self, native: &Native, counts: &mut NativeCounts) {
        for (number, outbox) in self.boxes.iter_mut().enumerate() {
            if outbox.is_empty() {
                continue;
            }
            if let Some(socket) = native.sockets.get(self.first_socket + number) {
                let posted = outbox.send(socket);
                counts.add(NativeCount::Sent, posted.sent as u64);
                counts.add(NativeCount::LostSending, posted.lost as u64);
            }
        }
    }
}

/// How requests are spread over the sockets of so many receivers.
pub(super) fn steering(by: SteerBy, receivers: usize) -> Steering {
    Steering {
        by,
        sockets: u32::try_from(receivers).unwrap_or(1),
        opcode_at: OPCODE_AT,
        read_opcode: Opcode::Get as u8,
        key_bytes_at: KEY_BYTES_AT,
        key_at: HEADER_BYTES as u32,
    }
}

/// Where a request's header has these (docs/reference/protocol.md).
pub(super) const OPCODE_AT: u32 = 3;
const KEY_BYTES_AT: u32 = 7;

/// The address in 16 bytes, IPv4 in its mapped form.
fn octets(address: SocketAddr) -> [u8; 16] {
    match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// A sender as cookies and tokens know it.
pub(crate) fn codec_peer(address: SocketAddr) -> native::Peer {
    native::Peer {
        address: octets(address),
        port: address.port(),
    }
}

/// A sender as sessions know it.
pub(crate) fn queue_peer(address: SocketAddr) -> Peer {
    let bytes = octets(address);
    let (words, _) = bytes.as_chunks::<8>();
    let mut peer = Peer {
        port: address.port(),
        ..Peer::default()
    };
    for (word, bytes) in peer.address.iter_mut().zip(words) {
        *word = u64::from_le_bytes(*bytes);
    }
    peer
}

/// The address of a sender that a queue's entry names.
pub(crate) fn address_of(peer: Peer) -> SocketAddr {
    let mut bytes = [0; 16];
    let (chunks, _) = bytes.as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(peer.address) {
        *chunk = word.to_le_bytes();
    }
    SocketAddr::new(Ipv6Addr::from(bytes).to_canonical(), peer.port)
}

/// A session as the table knows it.
pub(crate) const fn session_name(session: Session) -> SessionName {
    SessionName {
        index: session.index,
        generation: session.generation,
        token: session.token,
    }
}

/// What a reply says of a queue.
#[inline]
pub(crate) fn place(number: usize, queue: &OrderedQueue<'_>, incarnation: u64, pos: u64) -> Place {
    Place {
        queue: number as u16,
        credits: u32::try_from(queue.backlog().free).unwrap_or(u32::MAX),
        incarnation,
        pos,
        durable_pos: queue.durable_pos(),
    }
}

/// Longest value that a reply of `bytes` has room for.
pub(crate) const fn value_bytes_max(bytes: usize) -> usize {
    bytes.saturating_sub(HEADER_BYTES + RESULT_BYTES)
}

/// Bytes of a result beside its header and its value.
const RESULT_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_addresses_survive_encoding_as_words() {
        for text in [
            "127.0.0.1:4000",
            "[::1]:5",
            "[2001:db8::7]:65535",
            "10.1.2.3:1",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(address_of(queue_peer(address)), address);
            assert_eq!(codec_peer(address).port, address.port());
        }
        let mapped = codec_peer("127.0.0.1:1".parse().unwrap()).address;
        assert_eq!(mapped[10..], [0xff, 0xff, 127, 0, 0, 1]);
    }

    #[test]
    fn a_result_without_value_has_its_bytes() {
        let empty = Reply::Result {
            echo: native::Echo::default(),
            place: Place::default(),
            status: native::Status::Done,
            version: 0,
            number: 0,
            item_flags: 0,
            value: &[],
        };
        assert_eq!(empty.bytes(), HEADER_BYTES + RESULT_BYTES);
        assert_eq!(value_bytes_max(100), 12);
    }
}
