//! Whole Ethernet frames to and from an interface (AF_PACKET), for destinations that no other
//! socket can name.

use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

/// A socket that is bound to one interface and one ethertype.
#[derive(Debug)]
pub struct FrameSocket {
    socket: Socket,
}

impl FrameSocket {
    /// Receives the frames of this ethertype that arrive at an interface of this network namespace;
    /// needs CAP_NET_RAW. Frames that are sent there are not received.
    pub fn bind(interface: &str, ethertype: u16) -> io::Result<Self> {
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: the name ends with a zero byte and lives past the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let protocol = i32::from(ethertype.to_be());
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(protocol)))?;
        socket.bind(&address(index, ethertype))?;
        Ok(Self { socket })
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
