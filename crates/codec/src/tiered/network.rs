//! Where a socket sends what has an address of the tier.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{AddressClass, FrameIp, HostId, MacAddress, TierAddress, TieredHead, UdpEnd};

/// How clients and nodes reach the switch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TierNetwork {
    /// A forwarder in user space reads the address in the header.
    Forwarder(SocketAddr),
    /// The network reads the IPv6 destination (SW-87).
    Ipv6 {
        /// The number of the cluster, which is part of its addresses.
        cluster: u32,
        /// The UDP port of every node and client.
        port: u16,
    },
    /// The network reads the MAC destination, and the IPv4 destination (SW-7, SW-8, SW-10): nodes
    /// and clients send frames.
    Mac {
        /// The first two bytes of the addresses of back ends and cache nodes.
        network: [u8; 2],
        /// The UDP port of every node.
        port: u16,
    },
}

/// Where a datagram is sent to or received.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TierEnd {
    /// The address of a socket.
    pub socket: SocketAddr,
    /// Of a datagram that is sent as a frame: the MAC address.
    pub mac: Option<MacAddress>,
}

impl TierNetwork {
    /// Where a datagram with this address is sent.
    pub fn destination(&self, to: TierAddress) -> TierEnd {
        match *self {
            Self::Forwarder(forwarder) => forwarder.into(),
            Self::Ipv6 { cluster, port } => {
                SocketAddr::from((Ipv6Addr::from(to.to_ipv6(cluster)), port)).into()
            }
            Self::Mac { network, port } => {
                let ip = match to.to_host() {
                    None => to.to_ipv4(network).into(),
                    Some(host) => Self::host_ipv4(network, host),
                };
                TierEnd {
                    socket: (ip, port).into(),
                    mac: Some(to.to_mac()),
                }
            }
        }
    }

    /// The IPv4 address of a host in a network of encoding `mac`: above those of all back ends.
    /// Only cache nodes must have it; clients say in their requests which address they have.
    pub const fn host_ipv4([a, b]: [u8; 2], host: HostId) -> Ipv4Addr {
        let [c, d] = (FIRST_HOST + host.0 as u16 % HOSTS).to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    }

    /// Where the client of a request receives, if nodes reply to such an address.
    pub fn client(&self, head: &TieredHead) -> Option<TierEnd> {
        let ip = Ipv6Addr::from(head.client_ip).to_canonical();
        let socket = SocketAddr::new(ip, head.client_port);
        let is_reachable = Self::is_closed(ip) && head.client_port != 0;
        let mac = match self {
            // An operator's tool has an ordinary socket.
            Self::Mac { .. } if head.client_mac != [0; 6] => Some(head.client_mac),
            _ => None,
        };
        // Nothing that a back end or a cache node takes for a request.
        let is_host = |mac: MacAddress| mac[0] == AddressClass::Host as u8 && socket.is_ipv4();
        (is_reachable && mac.is_none_or(is_host)).then_some(TierEnd { socket, mac })
    }

    /// Whether a request may name this as its client: nodes reply to hosts of closed networks only,
    /// because a reply is longer than its request and nothing proves who asked.
    pub fn is_closed(client: IpAddr) -> bool {
        match client {
            IpAddr::V4(ip) => is_closed_ipv4(ip),
            IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
                Some(ip) => is_closed_ipv4(ip),
                None => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
            },
        }
    }
}

impl TierEnd {
    /// A client that sends frames from an interface with this MAC address.
    ///
    /// # Errors
    /// That is no host's address ([`TierAddress::host`]): the network would bring it no reply.
    pub fn of_client(socket: SocketAddr, mac: MacAddress) -> Result<Self, NoTierHost> {
        let is_host = mac[0] == AddressClass::Host as u8;
        let mac = Some(mac);
        let own = is_host.then_some(Self { socket, mac });
        own.ok_or_else(|| NoTierHost(socket.ip()))
    }

    /// One end of a frame; `None` of what is not sent as a frame.
    pub const fn in_frame(&self) -> Option<UdpEnd> {
        match (self.mac, self.socket) {
            (Some(mac), SocketAddr::V4(at)) => Some(UdpEnd {
                mac,
                ip: FrameIp::V4(at.ip().octets()),
                port: at.port(),
            }),
            _ => None,
        }
    }
}

/// The interface with this address has the MAC address of no host of a tier.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoTierHost(IpAddr);

impl fmt::Display for NoTierHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "encoding mac: the MAC address of the interface with {} must be that of a host of the \
             tier, as 0a:00:00:00:01:01",
            self.0
        )
    }
}

impl core::error::Error for NoTierHost {}

impl From<SocketAddr> for TierEnd {
    fn from(socket: SocketAddr) -> Self {
        Self { socket, mac: None }
    }
}

/// The last two bytes of the address of cache node 0, and how many hosts have one of their own.
const FIRST_HOST: u16 = 0xfe00;
const HOSTS: u16 = 0x200;

fn is_closed_ipv4(ip: Ipv4Addr) -> bool {
    ip.is_loopback() || ip.is_private() || ip.is_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where frames of encoding `mac` go, by example; and that no client gets a node to send what
    /// another node takes for a request.
    #[test]
    fn frames_have_addresses_of_the_network() {
        use crate::tiered::TieredOpcode;
        let (network, port) = ([10, 77], 11_300);
        let tier = TierNetwork::Mac { network, port };
        let key = curtail_types::KeyAddress {
            back_end: curtail_types::BackEndId(0x0102),
            tag: curtail_types::KeyTag::from_bits(0x03_0405_0607),
        };
        let get = tier.destination(TierAddress::get(key));
        assert_eq!(get.socket, "10.77.1.2:11300".parse().unwrap());
        assert_eq!(get.mac, Some([2, 3, 4, 5, 6, 7]));
        let cache = tier.destination(TierAddress::host(HostId(1)));
        assert_eq!(cache.socket, "10.77.254.1:11300".parse().unwrap());
        assert_eq!(cache.mac, Some([0x0a, 0, 0, 0, 0, 1]));
        let mut head = TieredHead::new(TieredOpcode::Get, TierAddress::get(key));
        head.client_ip = Ipv4Addr::new(10, 77, 255, 1).to_ipv6_mapped().octets();
        head.client_port = 4711;
        let tool = tier.client(&head).unwrap();
        assert_eq!(tool, SocketAddr::from(([10, 77, 255, 1], 4711)).into());
        assert_eq!(tool.in_frame(), None);
        head.client_mac = TierAddress::host(HostId(257)).to_mac();
        let client = tier.client(&head).unwrap().in_frame().unwrap();
        assert_eq!((client.mac, client.port), (head.client_mac, 4711));
        for mac in [[0xff; 6], [2, 0, 0, 0, 0, 1], [6, 0, 0, 0, 0, 1]] {
            head.client_mac = mac;
            assert_eq!(tier.client(&head), None, "{mac:?}");
        }
        let other = TierNetwork::Forwarder(tool.socket);
        assert_eq!(other.client(&head), Some(tool), "nobody sends frames there");
    }

    #[test]
    fn replies_go_to_closed_networks_only() {
        for ip in [
            "127.0.0.1",
            "::1",
            "10.1.2.3",
            "::ffff:192.168.1.1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(TierNetwork::is_closed(ip.parse().unwrap()), "{ip}");
        }
        for ip in [
            "8.8.8.8",
            "::ffff:8.8.8.8",
            "2001:db8::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
        ] {
            assert!(!TierNetwork::is_closed(ip.parse().unwrap()), "{ip}");
        }
    }
}
