//! What is at the ports of a switch that is not the forwarder in user space.

use std::str::FromStr;

use curtail_codec::tiered::{HostId, TierAddress};
use curtail_routing::{Destination, Encoding, PortNumber, SwitchPort};
use curtail_types::{BackEndId, KeyAddress, KeyTag};

/// A port of a switch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TierPort {
    /// The name of its interface; for a switch that others run, its number there.
    pub interface: String,
    /// What is there. Its interface has the MAC address that its address gives.
    pub destination: Destination,
}

impl FromStr for TierPort {
    type Err = String;

    /// `INTERFACE=back-end3`, `INTERFACE=cache0` or `INTERFACE=host300`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not INTERFACE=back-end0, =cache0 or =host300");
        let (interface, place) = text.split_once('=').ok_or_else(wrong)?;
        let number = |kind: &str| place.strip_prefix(kind)?.parse::<u32>().ok();
        let destination = if let Some(id) = number("back-end") {
            let id = u16::try_from(id).ok().filter(|id| *id < BackEndId::END);
            Destination::BackEnd(BackEndId(id.ok_or_else(wrong)?))
        } else if let Some(host) = number("cache").or_else(|| number("host")) {
            Destination::Host(HostId(host))
        } else {
            return Err(wrong());
        };
        Ok(Self {
            interface: interface.to_string(),
            destination,
        })
    }
}

impl std::fmt::Display for TierPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.destination {
            Destination::BackEnd(id) => write!(f, "{}=back-end{}", self.interface, id.0),
            Destination::Host(id) => write!(f, "{}=host{}", self.interface, id.0),
        }
    }
}

impl TierPort {
    /// As a switch takes it. Ordinary sockets get what has their host's MAC address; a node of
    /// encoding `mac` takes frames as they were sent.
    pub(crate) fn at(&self, number: u32, encoding: Encoding) -> SwitchPort {
        let own = own_address(self.destination).to_mac();
        SwitchPort {
            number: PortNumber(number),
            interface: self.interface.clone(),
            mac: matches!(encoding, Encoding::Ipv6 { .. }).then_some(own),
        }
    }
}

/// A machine's own address: a host's, or a back end's with tag 0.
pub(crate) const fn own_address(destination: Destination) -> TierAddress {
    match destination {
        Destination::Host(host) => TierAddress::host(host),
        Destination::BackEnd(back_end) => TierAddress::back_end(KeyAddress {
            back_end,
            tag: KeyTag::from_bits(0),
        }),
    }
}
