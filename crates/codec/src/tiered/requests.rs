//! The heads of a client's requests (SW-7 to SW-9, SW-14): each is addressed by its key, and says
//! where the reply goes.

use core::net::SocketAddr;

use curtail_types::{BackEndId, Key, KeyAddress};

use super::{
    AddressClass, GetPath, PartitionMap, TierAddress, TierEnd, TierNetwork, TieredDatagram,
    TieredFlags, TieredHead, TieredOpcode, TieredStatus,
};

/// Where a tier is, and how its keys are divided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TierTarget {
    /// How the switch is reached.
    pub network: TierNetwork,
    /// The back ends.
    pub map: PartitionMap,
    /// Where a `get` goes first.
    pub gets: GetPath,
}

/// Makes a client's datagrams.
#[derive(Clone, Debug)]
pub struct TierRequests {
    target: TierTarget,
    /// The client's number, which replies repeat.
    sender: u32,
    /// Where it receives.
    client: TierEnd,
    sequence: u64,
}

impl TierRequests {
    /// A client with this number that receives there. Its requests are numbered from `sequence`:
    /// begin where no client of this number was before, for example at the clock.
    pub const fn new(target: TierTarget, sender: u32, client: TierEnd, sequence: u64) -> Self {
        Self {
            target,
            sender,
            client,
            sequence,
        }
    }

    /// The head of a new request for `key`.
    pub fn head(&mut self, opcode: TieredOpcode, key: Key<'_>) -> TieredHead {
        let key = self.target.map.address(PartitionMap::route(key));
        self.new_head(match opcode {
            TieredOpcode::Get => (opcode, self.target.gets.first(key)),
            _ => (opcode, TierAddress::back_end(key)),
        })
    }

    /// The head of a request that has one back end remove all of its items, and the key that stands
    /// in it.
    pub fn flush(&mut self, back_end: BackEndId) -> (TieredHead, Key<'static>) {
        let address = KeyAddress {
            back_end,
            ..KeyAddress::default()
        };
        let head = self.new_head((TieredOpcode::Flush, TierAddress::back_end(address)));
        (head, FLUSH_KEY)
    }

    fn new_head(&mut self, (opcode, address): (TieredOpcode, TierAddress)) -> TieredHead {
        self.sequence += 1;
        TieredHead {
            sender: self.sender,
            epoch: self.target.map.epoch,
            sequence: self.sequence,
            client_ip: match self.client.socket {
                SocketAddr::V4(at) => at.ip().to_ipv6_mapped().octets(),
                SocketAddr::V6(at) => at.ip().octets(),
            },
            client_port: self.client.socket.port(),
            client_mac: self.client.mac.unwrap_or_default(),
            ..TieredHead::new(opcode, address)
        }
    }

    /// The same request when it is sent again: past the cache nodes.
    pub fn again(&self, head: TieredHead, key: Key<'_>) -> TieredHead {
        let mut head = self.past_caches(head, key);
        head.flags = head.flags.with(TieredFlags::RETRY);
        head
    }

    /// The same request on its way to the back end, after a cache node said that it has no copy.
    pub fn past_caches(&self, mut head: TieredHead, key: Key<'_>) -> TieredHead {
        // Others than reads go to the back end at once, a flush to one that no key names.
        if head.opcode == TieredOpcode::Get {
            let key = self.target.map.address(PartitionMap::route(key));
            head.address = TierAddress::back_end(key);
        }
        head
    }

    /// Whether this client's `reply` is about the request as it was sent last. That a cache node
    /// has no copy answers only a request that was sent to one, not one that was sent on since.
    pub fn answers(head: &TieredHead, reply: &TieredHead) -> bool {
        let was_at_cache = head.address.class == AddressClass::Host;
        head.sequence == reply.sequence && (reply.status != TieredStatus::NotCached || was_at_cache)
    }

    /// Where a request is sent.
    pub fn destination(&self, head: &TieredHead) -> TierEnd {
        self.target.network.destination(head.address)
    }

    /// The back end of a key.
    pub fn owner(&self, key: Key<'_>) -> BackEndId {
        self.target.map.owner(PartitionMap::route(key))
    }

    /// The reply that a datagram is, if it is one to this client.
    pub fn reply<'a>(&self, datagram: &'a [u8]) -> Option<TieredDatagram<'a>> {
        let reply = TieredDatagram::decode(datagram, None).ok()?;
        let is_ours = reply.head.opcode == TieredOpcode::Reply && reply.head.sender == self.sender;
        is_ours.then_some(reply)
    }
}

/// What stands in place of a key where none is named.
const FLUSH_KEY: Key<'static> = match Key::new(b"*") {
    Ok(key) => key,
    Err(_) => panic!("a byte is a key"),
};
