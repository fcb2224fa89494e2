//! What a switch is connected to, and how it reads addresses.

use curtail_codec::tiered::{AddressClass, HostId, MacAddress, TierAddress};
use curtail_types::{BackEndId, RuleError, RuleTable};

/// A port of a switch, numbered from 1.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortNumber(pub u32);

/// How addresses stand in frames.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Encoding {
    /// In the IPv6 destination, of the cluster with this number (SW-87).
    Ipv6 {
        /// The cluster.
        cluster: u32,
    },
    /// In the MAC destination and the IPv4 destination, whose network begins like this (SW-10).
    Mac {
        /// The network.
        network: [u8; 2],
    },
}

/// An interface that is a port of a switch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SwitchPort {
    /// Its number.
    pub number: PortNumber,
    /// The interface's name.
    pub interface: String,
    /// What the switch makes of the MAC destination of what it sends there: ordinary sockets get
    /// only what is addressed to their host's MAC address (SW-87).
    pub mac: Option<MacAddress>,
}

/// What is at the other end of a port.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Destination {
    /// A back end: all of its keys.
    BackEnd(BackEndId),
    /// A client or a cache node.
    Host(HostId),
}

/// A route, and how many packets took it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CountedRoute {
    /// Where to.
    pub destination: Destination,
    /// By which port.
    pub port: PortNumber,
    /// Packets that it has matched.
    pub packets: u64,
}

/// What a switch has counted beside its rules of keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SwitchCounts {
    /// Of every route, in order of destinations.
    pub routes: Vec<CountedRoute>,
    /// Packets of the tier that had nowhere to go, and were dropped.
    pub unknown: u64,
}

/// A switch: a table of rules, and what its rules lead to.
pub trait Switch: RuleTable + std::any::Any {
    /// Connects a destination to a port, or disconnects it. Rules lead to a cache node by the port
    /// of the host with its number; when that changes, the cache node's rules are deleted.
    ///
    /// A new controller connects everything, and then calls [`poll`](RuleTable::poll): with the
    /// first `Restarted`, what an earlier controller connected and this one did not is
    /// disconnected. Until then the switch goes on as it was.
    fn connect(
        &mut self,
        destination: Destination,
        port: Option<PortNumber>,
    ) -> Result<(), RuleError>;

    /// What it has counted.
    fn counts(&mut self) -> Result<SwitchCounts, RuleError>;
}

impl Encoding {
    /// Where a frame goes: `None` if it is not addressed to the tier, `Some(None)` if it is and the
    /// address is none.
    pub fn read(self, frame: &[u8]) -> Option<Option<TierAddress>> {
        let (mac, rest) = frame.split_first_chunk::<6>()?;
        let kind = rest.get(6..8)?;
        let ip = rest.get(8..).unwrap_or_default();
        match self {
            Self::Ipv6 { cluster } => {
                let to = (kind == ETHERTYPE_IPV6).then(|| ip.get(24..40))??;
                let to: [u8; 16] = to.try_into().ok()?;
                let ours = TierAddress::host(HostId(0)).to_ipv6(cluster);
                (to[..6] == ours[..6]).then(|| TierAddress::from_ipv6(to, cluster))
            }
            Self::Mac { network } => {
                let class = AddressClass::from_number(mac[0])?;
                if class == AddressClass::Host {
                    return Some(TierAddress::from_mac_and_ipv4(*mac, [0; 4], network));
                }
                let to = (kind == ETHERTYPE_IPV4).then(|| ip.get(16..20))??;
                let to: [u8; 4] = to.try_into().ok()?;
                let is_ours = to[..2] == network;
                is_ours.then(|| TierAddress::from_mac_and_ipv4(*mac, to, network))
            }
        }
    }
}

impl Encoding {
    /// The UDP port that a frame comes from; 0 if it has none.
    pub fn sender(self, frame: &[u8]) -> u16 {
        let (kind, ip) = (frame.get(12..14), frame.get(14..).unwrap_or_default());
        let (udp, is_udp) = match self {
            Self::Ipv6 { .. } => (40, kind == Some(&ETHERTYPE_IPV6) && ip.get(6) == Some(&UDP)),
            Self::Mac { .. } => (20, kind == Some(&ETHERTYPE_IPV4) && ip.get(9) == Some(&UDP)),
        };
        let port = ip.get(udp..udp + 2).filter(|_| is_udp);
        port.and_then(|port| port.try_into().ok())
            .map_or(0, u16::from_be_bytes)
    }
}

const UDP: u8 = 17;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
