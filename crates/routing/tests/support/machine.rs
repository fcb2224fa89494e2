//! One end of the network: what a client, a cache node or a back end sends and receives by.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};

use curtail_codec::tiered::{
    AddressClass, DATAGRAM_BYTES_MAX, FrameEnds, FrameIp, TierAddress, TierFrame, UdpEnd,
};
use curtail_routing::{Destination, Encoding};
use curtail_runtime::FrameSocket;

use super::{PORT, destination};

/// A machine's socket.
pub(crate) struct Machine {
    at: usize,
    socket: Socket,
}

enum Socket {
    /// Sends to the forwarder.
    Loopback(UdpSocket, SocketAddr),
    /// Sends to addresses of keys.
    Ipv6(UdpSocket, u32),
    /// Sends frames.
    Frames(FrameSocket, [u8; 2]),
}

impl Machine {
    pub(crate) fn on_loopback(at: usize, forwarder: SocketAddr) -> Self {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = Socket::Loopback(socket, forwarder);
        Self { at, socket }
    }

    /// In the network namespace of this thread.
    pub(crate) fn here(at: usize, encoding: Encoding) -> Self {
        let socket = match encoding {
            Encoding::Ipv6 { cluster } => {
                let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap();
                socket.set_nonblocking(true).unwrap();
                Socket::Ipv6(socket, cluster)
            }
            Encoding::Mac { network } => {
                let socket = FrameSocket::bind("eth0", ETHERTYPE_IPV4).unwrap();
                socket.set_wait(None).unwrap();
                Socket::Frames(socket, network)
            }
        };
        Self { at, socket }
    }

    /// Where it receives; on loopback.
    pub(crate) fn address(&self) -> SocketAddr {
        match &self.socket {
            Socket::Loopback(socket, _) | Socket::Ipv6(socket, _) => socket.local_addr().unwrap(),
            Socket::Frames(..) => unreachable!("has no address of a socket"),
        }
    }

    /// The UDP port that it sends from.
    pub(crate) fn port(&self) -> u16 {
        match &self.socket {
            Socket::Loopback(socket, _) => socket.local_addr().unwrap().port(),
            Socket::Ipv6(..) | Socket::Frames(..) => PORT,
        }
    }

    pub(crate) fn send(&self, to: TierAddress, datagram: &[u8]) {
        match &self.socket {
            Socket::Loopback(socket, forwarder) => {
                socket.send_to(datagram, forwarder).unwrap();
            }
            Socket::Ipv6(socket, cluster) => {
                let to = Ipv6Addr::from(to.to_ipv6(*cluster));
                socket.send_to(datagram, (to, PORT)).unwrap();
            }
            Socket::Frames(socket, network) => {
                let mut out = [0; DATAGRAM_BYTES_MAX + TierFrame::HEADERS_BYTES_MAX];
                let from = own_address(self.at);
                let ip = |address: TierAddress| match address.class {
                    AddressClass::Host => FrameIp::V4([10, 99, 0, address.key.tag.to_bits() as u8]),
                    _ => FrameIp::V4(address.to_ipv4(*network)),
                };
                let end = |address: TierAddress| UdpEnd {
                    mac: address.to_mac(),
                    ip: ip(address),
                    port: PORT,
                };
                let ends = FrameEnds {
                    from: end(from),
                    to: end(to),
                };
                let bytes = TierFrame { ends, datagram }.encode(&mut out).unwrap();
                socket.send(&out[..bytes]).unwrap();
            }
        }
    }

    /// The next datagram, if there is one now.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut room = [0; 2048];
        match &self.socket {
            Socket::Loopback(socket, _) | Socket::Ipv6(socket, _) => {
                let bytes = socket.recv(&mut room).ok()?;
                Some(room[..bytes].to_vec())
            }
            Socket::Frames(socket, _) => loop {
                let bytes = socket.receive(&mut room).ok()?;
                let frame = TierFrame::decode(&room[..bytes]);
                if let Some(frame) = frame.filter(|frame| frame.ends.to.port == PORT) {
                    return Some(frame.datagram.to_vec());
                }
            },
        }
    }
}

/// A machine's own address: a host's, or a back end's with tag 0.
pub(crate) fn own_address(machine: usize) -> TierAddress {
    match destination(machine) {
        Destination::Host(host) => TierAddress::host(host),
        Destination::BackEnd(back_end) => TierAddress::back_end(curtail_types::KeyAddress {
            back_end,
            tag: curtail_types::KeyTag::default(),
        }),
    }
}

const ETHERTYPE_IPV4: u16 = 0x0800;
