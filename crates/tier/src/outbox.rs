//! What a node sends: datagrams, gathered into few system calls.

use std::{collections::HashMap, io, net::SocketAddr};

use curtail_codec::tiered::{
    FrameEnds, FrameIp, ReplayWindow, TierAddress, TierEnd, TierNetwork, TierSecret,
    TieredDatagram, TieredHead, UdpEnd,
};
use curtail_runtime::{DatagramSocket, FrameSocket, Outbox};
use curtail_types::Key;

use crate::node_loop::TierInbox;

/// A node's way out.
#[derive(Debug)]
pub(crate) struct TierOutbox {
    socket: DatagramSocket,
    outbox: Outbox,
    frames: Option<FrameOutbox>,
    network: TierNetwork,
    secret: TierSecret,
    /// This node's number among those of its kind.
    sender: u32,
    /// The last sequence number that each peer was sent.
    sequences: HashMap<u32, u64>,
    /// What each peer has sent.
    seen: HashMap<u32, ReplayWindow>,
    began: u64,
}

/// What leaves as frames.
#[derive(Debug)]
struct FrameOutbox {
    socket: FrameSocket,
    outbox: Outbox,
    own: UdpEnd,
}

impl TierOutbox {
    pub(crate) fn new(
        inbox: &TierInbox,
        (network, secret): (TierNetwork, TierSecret),
        sender: u32,
        incarnation: u32,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: inbox.socket().duplicate()?,
            outbox: Outbox::new(BATCH),
            frames: FrameOutbox::of(inbox)?,
            network,
            secret,
            sender,
            sequences: HashMap::new(),
            seen: HashMap::new(),
            // Above all that an earlier incarnation has sent.
            began: u64::from(incarnation) << 32,
        })
    }

    pub(crate) const fn secret(&self) -> &TierSecret {
        &self.secret
    }

    /// Whether a peer's message is new, by its sequence number.
    pub(crate) fn admits(&mut self, peer: u32, sequence: u64) -> bool {
        let is_known = self.seen.contains_key(&peer);
        if !is_known && self.seen.len() >= PEERS_MAX {
            return false;
        }
        self.seen.entry(peer).or_default().admit(sequence)
    }

    /// Sends a message to another node.
    pub(crate) fn tell(&mut self, peer: u32, message: &TieredDatagram<'_>) {
        let datagram = self.numbered(peer, message);
        let to = self.network.destination(datagram.head.address);
        self.push(to, &datagram);
    }

    /// The same to the address of a socket.
    pub(crate) fn tell_at(&mut self, to: SocketAddr, peer: u32, message: &TieredDatagram<'_>) {
        let datagram = self.numbered(peer, message);
        self.push(to, &datagram);
    }

    /// The bytes of a message to another node, and where they go: to be sent later.
    pub(crate) fn message(
        &mut self,
        peer: u32,
        message: &TieredDatagram<'_>,
    ) -> Option<(TierEnd, Vec<u8>)> {
        let datagram = self.numbered(peer, message);
        let to = self.network.destination(datagram.head.address);
        Some((to, self.bytes(&datagram)?))
    }

    fn numbered<'a>(&mut self, peer: u32, message: &TieredDatagram<'a>) -> TieredDatagram<'a> {
        let sequence = self.sequences.entry(peer).or_insert(self.began);
        *sequence += 1;
        TieredDatagram {
            head: TieredHead {
                sender: self.sender,
                sequence: *sequence,
                ..message.head
            },
            ..*message
        }
    }

    /// The bytes of a datagram.
    pub(crate) fn bytes(&self, datagram: &TieredDatagram<'_>) -> Option<Vec<u8>> {
        let mut out = vec![0; curtail_codec::tiered::DATAGRAM_BYTES_MAX];
        let bytes = datagram.encode(&mut out, Some(&self.secret)).ok()?;
        out.truncate(bytes);
        Some(out)
    }

    /// Sends a request on to where its address leads.
    pub(crate) fn pass_on(&mut self, head: TieredHead, key: Key<'_>) {
        let to = self.network.destination(head.address);
        let value = &[];
        let key = Some(key);
        self.push(to, &TieredDatagram { head, key, value });
    }

    /// Where the client of a request receives, if nodes reply to such an address.
    pub(crate) fn client_of(&self, head: &TieredHead) -> Option<TierEnd> {
        self.network.client(head)
    }

    /// Sends a datagram.
    pub(crate) fn push(&mut self, to: impl Into<TierEnd>, datagram: &TieredDatagram<'_>) {
        let secret = self.secret;
        self.write(to.into(), |room| {
            let encoded = datagram.encode(room, Some(&secret));
            debug_assert!(encoded.is_ok(), "{encoded:?} {datagram:?}");
            encoded.ok()
        });
    }

    /// The same of one that was encoded before.
    pub(crate) fn push_bytes(&mut self, to: TierEnd, datagram: &[u8]) {
        self.write(to, |room| {
            room.get_mut(..datagram.len())?.copy_from_slice(datagram);
            Some(datagram.len())
        });
    }

    fn write(&mut self, to: TierEnd, write: impl FnOnce(&mut [u8]) -> Option<usize>) {
        let frames_are_full = |frames: &FrameOutbox| frames.outbox.is_full();
        if self.outbox.is_full() || self.frames.as_ref().is_some_and(frames_are_full) {
            self.flush();
        }
        match (to.in_frame(), &mut self.frames) {
            (Some(to), Some(frames)) => {
                let from = frames.own;
                let ends = FrameEnds { from, to };
                frames.outbox.push_frame(|room| ends.enclose(room, write));
            }
            _ => _ = self.outbox.push(to.socket, write),
        }
    }

    /// Sends what was gathered. What the kernel does not take is lost, as on any network.
    pub(crate) fn flush(&mut self) {
        if !self.outbox.is_empty() {
            self.outbox.send(&self.socket);
        }
        if let Some(frames) = &mut self.frames
            && !frames.outbox.is_empty()
        {
            frames.outbox.send_frames(&frames.socket);
        }
    }
}

impl FrameOutbox {
    fn of(inbox: &TierInbox) -> io::Result<Option<Self>> {
        let (Some(socket), Some(SocketAddr::V4(at))) = (inbox.frames(), inbox.socket().address())
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            socket: socket.duplicate()?,
            outbox: Outbox::new(BATCH),
            own: UdpEnd {
                mac: socket.mac(),
                ip: FrameIp::V4(at.ip().octets()),
                port: at.port(),
            },
        }))
    }
}

/// The address of the client of a request, as it stands in the reply.
pub(crate) const fn reply_address(head: &TieredHead) -> TierAddress {
    TierAddress::host(curtail_codec::tiered::HostId(head.sender))
}

/// Datagrams that are sent together.
const BATCH: usize = 64;
/// Peers whose numbers are remembered: more than a tier has.
const PEERS_MAX: usize = 1 << 16;
