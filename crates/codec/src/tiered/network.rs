//! Where a socket sends what has an address of the tier.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::TierAddress;

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
}

impl TierNetwork {
    /// Where a datagram with this address is sent.
    pub fn destination(&self, to: TierAddress) -> SocketAddr {
        match *self {
            Self::Forwarder(forwarder) => forwarder,
            Self::Ipv6 { cluster, port } => {
                SocketAddr::from((Ipv6Addr::from(to.to_ipv6(cluster)), port))
            }
        }
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

fn is_closed_ipv4(ip: Ipv4Addr) -> bool {
    ip.is_loopback() || ip.is_private() || ip.is_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

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
