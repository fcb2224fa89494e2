//! Whole Ethernet frames to and from an interface (AF_PACKET), for destinations that no other
//! socket can name.

use std::ffi::{CStr, CString};
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockFilter, Socket, Type};

use crate::{Poller, Token, WatchError};

/// A socket that is bound to one interface and one ethertype.
#[derive(Debug)]
pub struct FrameSocket {
    socket: Socket,
    mac: [u8; 6],
}

/// The datagrams that reach a host although they have neither its MAC address nor its IPv4 address:
/// those that are for addresses of keys, of this network and this UDP port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeyedFrames {
    /// The first two bytes of the destination.
    pub network: [u8; 2],
    /// The UDP port.
    pub port: u16,
}

impl FrameSocket {
    /// Receives the frames of this ethertype that arrive at an interface of this network namespace;
    /// needs CAP_NET_RAW. Frames that are sent there are not received.
    pub fn bind(interface: &str, ethertype: u16) -> io::Result<Self> {
        let name = CString::new(interface)?;
        Self::open(index_of(&name)?, ethertype, |_| Ok(()))
    }

    /// Sends from the interface that has this IPv4 address in this network namespace; receives
    /// nothing.
    pub fn sender_at(own: Ipv4Addr) -> io::Result<Self> {
        Self::open(interface_of(own)?, 0, |_| Ok(()))
    }

    /// The same, and receives such frames there that are not for the host's own MAC address: the
    /// others come to ordinary sockets. The interface takes frames with any MAC address from then
    /// on.
    pub fn receiver_at(own: Ipv4Addr, which: KeyedFrames) -> io::Result<Self> {
        let index = interface_of(own)?;
        // Nothing is received before the filter is in place.
        Self::open(index, ETHERTYPE_IPV4, |socket| {
            socket.attach_filter(&filter(which))?;
            // The kernel's limit may be lower; then fewer frames wait.
            let _ = socket.set_recv_buffer_size(RECEIVE_BYTES);
            take_any_address(socket, index)
        })
    }

    fn open(
        index: libc::c_uint,
        ethertype: u16,
        prepare: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> io::Result<Self> {
        // Without a protocol nothing is received until it is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None::<Protocol>)?;
        prepare(&socket)?;
        socket.bind(&address(index, ethertype))?;
        let mac = hardware_address(&socket.local_addr()?);
        Ok(Self { socket, mac })
    }

    /// The interface's MAC address.
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Another handle of the same socket.
    pub fn duplicate(&self) -> io::Result<Self> {
        let (socket, mac) = (self.socket.try_clone()?, self.mac);
        Ok(Self { socket, mac })
    }

    /// Has `poller` tell of frames under `token`.
    pub fn watch(&self, poller: &Poller, token: Token) -> Result<(), WatchError> {
        let readable = mio::Interest::READABLE;
        let registry = poller.registry();
        registry
            .register(&mut SourceFd(&self.number()), mio::Token(token.0), readable)
            .map_err(WatchError)
    }

    /// The descriptor.
    pub(crate) fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// How long [`receive`](Self::receive) waits; nothing for not at all.
    pub fn set_wait(&self, wait: Option<Duration>) -> io::Result<()> {
        self.socket.set_nonblocking(wait.is_none())?;
        self.socket.set_read_timeout(wait)
    }

    /// Sends a whole frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.socket).write_all(frame)
    }

    /// The next frame, from its Ethernet header on; what does not fit is cut off.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<usize> {
        (&self.socket).read(room)
    }
}

fn index_of(name: &CStr) -> io::Result<libc::c_uint> {
    // SAFETY: the name ends with a zero byte and lives past the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// The interface of this network namespace that has an IPv4 address.
fn interface_of(own: Ipv4Addr) -> io::Result<libc::c_uint> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is written by the call.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = None;
    let mut next = first;
    // SAFETY: null, or an entry of the list, which is freed below and not before.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if ipv4_of(entry) == Some(own) {
            // SAFETY: every entry has a name that ends with a zero byte, as long as the list.
            found = Some(CString::from(unsafe { CStr::from_ptr(entry.ifa_name) }));
            break;
        }
    }
    // SAFETY: it was made by `getifaddrs`, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    let none = || {
        let why = format!("no interface here has the address {own}");
        io::Error::new(io::ErrorKind::AddrNotAvailable, why)
    };
    index_of(&found.ok_or_else(none)?)
}

fn ipv4_of(entry: &libc::ifaddrs) -> Option<Ipv4Addr> {
    // SAFETY: null, or an address as long as its list.
    let address = unsafe { entry.ifa_addr.as_ref() }?;
    if i32::from(address.sa_family) != libc::AF_INET {
        return None;
    }
    let address = std::ptr::from_ref(address).cast::<libc::sockaddr_in>();
    // SAFETY: of this family it is a `sockaddr_in`.
    let address = unsafe { address.read_unaligned() };
    Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
}

/// Takes frames that are for other MAC addresses, too, as long as the socket lives.
fn take_any_address(socket: &Socket, index: libc::c_uint) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: the request is what this option takes, and lives past the call.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            std::ptr::from_ref(&request).cast(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Passes a frame with another host's MAC address and a UDP datagram, without IPv4 options, that is
/// for the network and the port; drops every other one.
fn filter(which: KeyedFrames) -> [SockFilter; 12] {
    let load = |size: u32, at: u32| {
        SockFilter::new((libc::BPF_LD | libc::BPF_ABS | size) as u16, 0, 0, at)
    };
    let word = |at| load(libc::BPF_H, at);
    let byte = |at| load(libc::BPF_B, at);
    // Goes on if it is so, and to the last line if not.
    let is = |line: u8, value: u32| {
        SockFilter::new(
            (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            0,
            10 - line,
            value,
        )
    };
    let end = |bytes: u32| SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, bytes);
    let kind = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    [
        byte(kind),
        is(1, libc::PACKET_OTHERHOST as u32),
        byte(IP_AT),
        is(3, 0x45),
        byte(IP_AT + 9),
        is(5, libc::IPPROTO_UDP as u32),
        word(IP_AT + 16),
        is(7, u32::from(u16::from_be_bytes(which.network))),
        word(IP_AT + 20 + 2),
        is(9, u32::from(which.port)),
        end(u32::MAX),
        end(0),
    ]
}

/// The MAC address in the address of a bound socket.
fn hardware_address(bound: &SockAddr) -> [u8; 6] {
    let link = bound.as_ptr().cast::<libc::sockaddr_ll>();
    // SAFETY: the address of a socket of this family is a `sockaddr_ll`, in a storage that has room
    // and alignment for all of them.
    let link = unsafe { link.read() };
    let [a, b, c, d, e, f, ..] = link.sll_addr;
    [a, b, c, d, e, f]
}

/// The address of an interface in the packet family.
fn address(index: libc::c_uint, ethertype: u16) -> SockAddr {
    let link = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let mut storage = MaybeUninit::<SockAddrStorage>::zeroed();
    // SAFETY: a storage has room for every kind of address, is aligned for all, and is all zeros
    // before, so that every byte of it is initialised.
    unsafe { storage.as_mut_ptr().cast::<libc::sockaddr_ll>().write(link) };
    // SAFETY: it was zeroed, which is a valid storage, and written since.
    let storage = unsafe { storage.assume_init() };
    let bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the first `bytes` are an address of the family that they name.
    unsafe { SockAddr::new(storage, bytes) }
}

const ETHERTYPE_IPV4: u16 = 0x0800;
/// Where the IPv4 header begins.
const IP_AT: u32 = 14;
const RECEIVE_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use curtail_codec::tiered::{FrameEnds, FrameIp, UdpEnd};

    use super::*;
    use crate::{Inbox, Outbox, is_root};

    const WHICH: KeyedFrames = KeyedFrames {
        network: [10, 77],
        port: 11_300,
    };

    fn frame(mac: [u8; 6], ip: [u8; 4], port: u16) -> FrameEnds {
        let end = |mac, ip, port| UdpEnd {
            mac,
            ip: FrameIp::V4(ip),
            port,
        };
        FrameEnds {
            from: end([0; 6], [127, 0, 0, 1], 9),
            to: end(mac, ip, port),
        }
    }

    /// Goal: a batch of frames goes out, and of them those come in that are for addresses of keys
    /// in the network, and no others. Method: the loopback interface, whose MAC address is all
    /// zeros. Without root it is skipped, and says so.
    #[test]
    fn frames_for_keys_come_in_and_no_others() {
        if !is_root() {
            let _ = std::io::stderr().write_all(b"SKIPPED: frames: not root\n");
            return;
        }
        let receiver = FrameSocket::receiver_at(Ipv4Addr::LOCALHOST, WHICH).unwrap();
        let sender = FrameSocket::sender_at(Ipv4Addr::LOCALHOST).unwrap();
        assert_eq!(sender.mac(), [0; 6]);
        let key = [2, 0, 0, 0, 0, 7];
        let all = [
            frame(key, [10, 77, 0, 1], 11_300),
            frame([0; 6], [10, 77, 0, 1], 11_300), // the host's own
            frame(key, [10, 78, 0, 1], 11_300),
            frame(key, [10, 77, 0, 1], 11_301),
            frame([6, 0, 0, 0, 0, 7], [10, 77, 1, 2], 11_300),
        ];
        let mut outbox = Outbox::new(all.len());
        for (number, ends) in (0..).zip(&all) {
            let pushed = outbox.push_frame(|room| {
                ends.enclose(room, |room| {
                    room[0] = number;
                    Some(1)
                })
            });
            assert!(pushed);
        }
        let posted = outbox.send_frames(&sender);
        assert_eq!((posted.sent, posted.lost, posted.calls), (5, 0, 1));
        let mut inbox = Inbox::new(8);
        let mut came = Vec::new();
        for _ in 0..2000 {
            for number in 0..inbox.receive_frames(&receiver) {
                came.push(*inbox.bytes(number).unwrap().last().unwrap());
            }
            if came.len() >= 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(came, [0, 4]);
        assert_eq!(inbox.receive_frames(&receiver), 0);
        assert_eq!(inbox.receive_frames(&sender), 0, "it only sends");
    }

    #[test]
    fn an_address_that_is_not_here_has_no_interface() {
        let nowhere = FrameSocket::sender_at(Ipv4Addr::new(192, 0, 2, 1)).unwrap_err();
        assert_eq!(nowhere.kind(), io::ErrorKind::AddrNotAvailable);
        assert!(nowhere.to_string().contains("192.0.2.1"), "{nowhere}");
    }
}
