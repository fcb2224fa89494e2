//! Where a datagram goes, as the network reads it.
//!
//! ```text
//!   word    | class | back end  | tag                              |   64 bits
//!   ipv6    fd00:CLUSTER:BACK END : class, 0, 0, tag                  /64 names the back end
//!   mac     class, tag                     and IPv4 NETWORK.BACK END
//! ```
//!
//! A class is the paper's prefix (SW-7): the switch may send class `CachedGet` to a cache node; the
//! other two it never does because of the key. All three make a MAC address that is unicast and
//! locally administered (SW-10).

use curtail_types::{BackEndId, KeyAddress, KeyTag, numbered_enum};

numbered_enum! {
    /// What the switch may do with a datagram: the first byte of its address.
    #[derive(Ord, PartialOrd)]
    pub enum AddressClass: u8 {
        /// A client's `get`: to the cache node that has a rule for the key, or to the back end.
        CachedGet = 0x02,
        /// To the back end, whatever rules there are.
        BackEnd = 0x06,
        /// To a host, named by its number in the tag's place.
        Host = 0x0a,
    }
}

/// A client or a cache node on the network. Cache nodes have their [`CacheId`]'s numbers, clients
/// higher ones.
///
/// [`CacheId`]: curtail_types::CacheId
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HostId(pub u32);

/// Six bytes of Ethernet.
pub type MacAddress = [u8; 6];

/// Class, back end and tag.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TierAddress {
    /// What the switch may do.
    pub class: AddressClass,
    /// The key; for a host, [`TierAddress::HOSTS`] and its number.
    pub key: KeyAddress,
}

impl TierAddress {
    /// What stands in the back end's place of a host's address.
    pub const HOSTS: BackEndId = BackEndId(u16::MAX);

    /// A `get` of `key` that a cache node may answer.
    pub const fn get(key: KeyAddress) -> Self {
        let class = AddressClass::CachedGet;
        Self { class, key }
    }

    /// Anything else about `key`.
    pub const fn back_end(key: KeyAddress) -> Self {
        let class = AddressClass::BackEnd;
        Self { class, key }
    }

    /// To a client or a cache node.
    pub const fn host(host: HostId) -> Self {
        let key = KeyAddress {
            back_end: Self::HOSTS,
            tag: KeyTag::from_bits(host.0 as u64),
        };
        let class = AddressClass::Host;
        Self { class, key }
    }

    /// The host's number, if it is a host's address.
    pub const fn to_host(self) -> Option<HostId> {
        match self.class {
            AddressClass::Host => Some(HostId(self.key.tag.to_bits() as u32)),
            _ => None,
        }
    }

    /// As one word; in memory of a little-endian machine the class is its last byte.
    #[inline]
    pub const fn to_word(self) -> u64 {
        (self.class as u64) << 56
            | (self.key.back_end.0 as u64) << KeyTag::BITS
            | self.key.tag.to_bits()
    }

    /// The address that a word is, if it is one.
    #[inline]
    pub const fn from_word(word: u64) -> Option<Self> {
        let Some(class) = AddressClass::from_number((word >> 56) as u8) else {
            return None;
        };
        let key = KeyAddress {
            back_end: BackEndId((word >> KeyTag::BITS) as u16),
            tag: KeyTag::from_bits(word),
        };
        let address = Self { class, key };
        match address.is_whole() {
            true => Some(address),
            false => None,
        }
    }

    /// A host's number has 32 bits, and only hosts are among the hosts.
    const fn is_whole(self) -> bool {
        let is_host = matches!(self.class, AddressClass::Host);
        match self.key.back_end.0 {
            BackEndId::END => false,
            u16::MAX => is_host && self.key.tag.to_bits() <= u32::MAX as u64,
            _ => !is_host,
        }
    }

    /// The IPv6 destination in the cluster with this number (SW-87).
    pub const fn to_ipv6(self, cluster: u32) -> [u8; 16] {
        let tag = self.key.tag.to_bits() | (self.class as u64) << 56;
        let network = 0xfd00 << 48 | (cluster as u64) << 16 | self.key.back_end.0 as u64;
        ((network as u128) << 64 | tag as u128).to_be_bytes()
    }

    /// What an IPv6 destination says, if it is one of the cluster with this number.
    pub const fn from_ipv6(destination: [u8; 16], cluster: u32) -> Option<Self> {
        let bits = u128::from_be_bytes(destination);
        let (network, low) = ((bits >> 64) as u64, bits as u64);
        let is_ours = network >> 16 == 0xfd00 << 32 | cluster as u64;
        let spare = low << 8 >> (8 + KeyTag::BITS);
        if !is_ours || spare != 0 {
            return None;
        }
        Self::from_word(low | (network & 0xffff) << KeyTag::BITS)
    }

    /// The MAC destination: class and tag (SW-10).
    pub const fn to_mac(self) -> MacAddress {
        let bits = (self.class as u64) << KeyTag::BITS | self.key.tag.to_bits();
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        [a, b, c, d, e, f]
    }

    /// The IPv4 destination in a network of 16 bits (SW-8). That of a host's address means nothing:
    /// hosts are known by their MAC address, and have IPv4 addresses of their own.
    pub const fn to_ipv4(self, network: [u8; 2]) -> [u8; 4] {
        let [high, low] = self.key.back_end.0.to_be_bytes();
        [network[0], network[1], high, low]
    }

    /// What a MAC and an IPv4 destination say together, if they are of this network. For a host the
    /// IPv4 destination does not count.
    pub const fn from_mac_and_ipv4(mac: MacAddress, ip: [u8; 4], network: [u8; 2]) -> Option<Self> {
        let [class, a, b, c, d, e] = mac;
        let [x, y, high, low] = ip;
        let tag = u64::from_be_bytes([0, 0, 0, a, b, c, d, e]);
        let back_end = match class == AddressClass::Host as u8 {
            true => Self::HOSTS.0 as u64,
            false if x == network[0] && y == network[1] => u16::from_be_bytes([high, low]) as u64,
            false => return None,
        };
        Self::from_word((class as u64) << 56 | back_end << KeyTag::BITS | tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> KeyAddress {
        KeyAddress {
            back_end: BackEndId(0x0102),
            tag: KeyTag::from_bits(0x03_0405_0607),
        }
    }

    /// The addresses by example: what stands on the wire, and that it is read back.
    #[test]
    fn addresses_on_the_wire() {
        let get = TierAddress::get(key());
        let ipv6 = get.to_ipv6(0xaabb_ccdd);
        let expected = [
            0xfd, 0, 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 2, 0, 0, 3, 4, 5, 6, 7,
        ];
        assert_eq!(ipv6, expected);
        assert_eq!(TierAddress::from_ipv6(ipv6, 0xaabb_ccdd), Some(get));
        assert_eq!(
            TierAddress::from_ipv6(ipv6, 0xaabb_ccde),
            None,
            "another cluster"
        );
        assert_eq!(get.to_mac(), [2, 3, 4, 5, 6, 7]);
        assert_eq!(get.to_ipv4([10, 77]), [10, 77, 1, 2]);
        let host = TierAddress::host(HostId(0x0a0b_0c0d));
        assert_eq!(host.to_mac(), [0x0a, 0, 0x0a, 0x0b, 0x0c, 0x0d]);
        assert_eq!(host.to_ipv4([10, 77]), [10, 77, 255, 255]);
        assert_eq!(host.to_host(), Some(HostId(0x0a0b_0c0d)));
    }

    /// What is no address is refused in every encoding: unknown classes, set spare bits, numbers
    /// that name no back end, hosts among the back ends.
    #[test]
    fn what_is_no_address_is_refused() {
        let good = TierAddress::back_end(key()).to_word();
        assert!(TierAddress::from_word(good).is_some());
        for word in [
            good & !(0xff << 56),
            good | 0x01 << 56,
            good | 0xffff << 40,
            good & !(0xffff << 40) | 0xfffe << 40,
            0x0a << 56 | 0x0102 << 40 | 1,
            0x0a << 56 | 0xffff << 40 | 1 << 32,
        ] {
            assert_eq!(TierAddress::from_word(word), None, "{word:x}");
        }
        let mut ipv6 = TierAddress::get(key()).to_ipv6(1);
        ipv6[9] = 1;
        assert_eq!(TierAddress::from_ipv6(ipv6, 1), None);
    }
}
