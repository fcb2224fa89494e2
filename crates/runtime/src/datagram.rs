//! Datagrams: UDP sockets that receive and send many in one system call.
//!
//! A system call costs more than the request that it brings, so datagrams come and go in batches:
//! an [`Inbox`] is filled by one `recvmmsg`, an [`Outbox`] is emptied by one `sendmmsg`. Both own
//! their memory from the start, so that nothing is allocated while requests are served.
//!
//! ```text
//!   socket --recvmmsg--> Inbox [ datagram | sender ] x N
//!   Outbox [ datagram | receiver ] x N --sendmmsg--> socket
//! ```
//!
//! A socket that is bound to no address in particular has the kernel say which one each datagram
//! was sent to, so that the answer can leave by that one: a client takes answers from nobody else.
//!
//! Sockets never block. What the kernel has no room for when sending is lost, as it would be on the
//! network, and counted; a client that waits for it asks again.

use std::{
    io,
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, RawFd},
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{BindError, FrameSocket, Token, WatchError, poll::Poller, socket::set_option};

/// A UDP socket.
#[derive(Debug)]
pub struct DatagramSocket {
    socket: mio::net::UdpSocket,
}

/// How a UDP socket is made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DatagramOptions {
    /// Several sockets share the address, and the kernel spreads the senders over them.
    pub shared: bool,
    /// Bytes that the kernel holds until they are received; 0 for its default. It may give less.
    pub receive_bytes: usize,
}

/// Datagrams that were received together.
#[derive(Debug)]
pub struct Inbox {
    batch: Batch,
    received: Box<[Received]>,
}

/// Datagrams to be sent together.
#[derive(Debug)]
pub struct Outbox(Batch);

/// Slots, and what the kernel is told of them.
struct Batch {
    memory: Box<[u8]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    /// Datagrams that are there.
    count: usize,
    // INVARIANT: `parts[i]` points to the i-th slot of `memory`, `headers[i]` to `parts[i]`,
    // `names[i]` and `controls[i]`; the boxes are never replaced, so the pointers are good as long
    // as this lives.
    parts: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

/// What sending took.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Posted {
    /// Datagrams that the kernel took.
    pub sent: usize,
    /// Datagrams that it did not: no room, or no way to the receiver.
    pub lost: usize,
    /// System calls.
    pub calls: usize,
}

/// A datagram as it lies in an inbox.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    bytes: usize,
    truncated: bool,
}

/// An address as the kernel writes it.
type Name = libc::sockaddr_storage;

/// What the kernel says of a datagram, or is told, beside its address: room for one message.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// A header of 16 bytes and 20 of an IPv6 packet's information, rounded up.
const CONTROL_BYTES: usize = 48;

/// Bytes of an inbox's or outbox's slot: what a slot of a queue holds, rounded up, so that a longer
/// datagram is seen to be too long.
pub const DATAGRAM_SLOT_BYTES: usize = 2048;

// SAFETY: the pointers go to memory that the value itself owns (see INVARIANT) and are used in
// calls that borrow it mutably alone.
unsafe impl Send for Batch {}

impl DatagramSocket {
    /// The address it really has, with the port the kernel chose for port 0.
    pub fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Has `poller` tell of datagrams under `token`.
    pub fn watch(&mut self, poller: &Poller, token: Token) -> Result<(), WatchError> {
        let readable = mio::Interest::READABLE;
        let token = mio::Token(token.0);
        poller
            .registry()
            .register(&mut self.socket, token, readable)
            .map_err(WatchError)
    }

    /// The descriptor, for callers that wait for several sockets by other means.
    pub fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Another handle of the same socket.
    pub fn duplicate(&self) -> io::Result<Self> {
        use std::os::fd::{AsFd, OwnedFd};
        let copy: OwnedFd = self.socket.as_fd().try_clone_to_owned()?;
        let socket = mio::net::UdpSocket::from_std(std::net::UdpSocket::from(copy));
        Ok(Self { socket })
    }
}

/// Binds a UDP socket; port 0 lets the kernel choose.
pub fn bind_udp(
    address: SocketAddr,
    options: DatagramOptions,
) -> Result<DatagramSocket, BindError> {
    open_udp(address, options)
        .map(|socket| DatagramSocket { socket })
        .map_err(BindError::from_io)
}

fn open_udp(address: SocketAddr, options: DatagramOptions) -> io::Result<mio::net::UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if options.shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if options.receive_bytes > 0 {
        // The kernel's limit may be lower; then fewer datagrams wait.
        let _ = socket.set_recv_buffer_size(options.receive_bytes);
    }
    if address.ip().is_unspecified() {
        ask_destination(&socket, address.is_ipv6())?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(mio::net::UdpSocket::from_std(socket.into()))
}

/// Has the kernel say which address a datagram was sent to.
fn ask_destination(socket: &Socket, is_v6: bool) -> io::Result<()> {
    let (level, name) = match is_v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        false => (libc::IPPROTO_IP, libc::IP_PKTINFO),
    };
    set_option(socket.as_raw_fd(), level, name, 1)
}

impl Inbox {
    /// Room for `datagrams` at a time.
    pub fn new(datagrams: usize) -> Self {
        Self {
            batch: Batch::new(datagrams),
            received: vec![Received::default(); datagrams].into_boxed_slice(),
        }
    }

    /// Receives what is there, as much as there is room for; returns how many. None on any error:
    /// the next call tells of a socket that is broken by never bringing anything.
    pub fn receive(&mut self, socket: &DatagramSocket) -> usize {
        self.receive_from(socket.number())
    }

    /// The same of whole frames, which [`bytes`](Self::bytes) has.
    pub fn receive_frames(&mut self, socket: &FrameSocket) -> usize {
        self.receive_from(socket.number())
    }

    fn receive_from(&mut self, fd: RawFd) -> usize {
        self.batch.count = 0;
        for (header, part) in self.batch.headers.iter_mut().zip(&mut self.batch.parts) {
            header.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            part.iov_len = DATAGRAM_SLOT_BYTES;
        }
        let room = self.batch.headers.len() as libc::c_uint;
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: `headers` has `room` elements, whose pointers are good (INVARIANT) and to memory
        // that is borrowed mutably here; a null timeout is allowed.
        let answer = unsafe {
            libc::recvmmsg(
                fd,
                self.batch.headers.as_mut_ptr(),
                room,
                flags,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(answer).unwrap_or(0);
        for (received, header) in self
            .received
            .iter_mut()
            .zip(&self.batch.headers)
            .take(count)
        {
            *received = Received {
                bytes: (header.msg_len as usize).min(DATAGRAM_SLOT_BYTES),
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            };
        }
        self.batch.count = count;
        count
    }

    /// Datagrams of the last receive.
    pub fn len(&self) -> usize {
        self.batch.count
    }

    /// Whether the last receive brought nothing.
    pub fn is_empty(&self) -> bool {
        self.batch.count == 0
    }

    /// How many fit.
    pub fn capacity(&self) -> usize {
        self.received.len()
    }

    /// The bytes and the sender of one; bytes beyond a slot are cut off, and the length then is a
    /// whole slot's. `None` for a number beyond, or a sender of no known kind.
    pub fn get(&self, number: usize) -> Option<(&[u8], SocketAddr)> {
        let bytes = self.bytes(number)?;
        Some((bytes, to_address(self.batch.names.get(number)?)?))
    }

    /// The bytes of one, cut off as above.
    pub fn bytes(&self, number: usize) -> Option<&[u8]> {
        let received = self
            .received
            .get(number)
            .filter(|_| number < self.batch.count)?;
        let start = number * DATAGRAM_SLOT_BYTES;
        let bytes = match received.truncated {
            true => DATAGRAM_SLOT_BYTES,
            false => received.bytes,
        };
        self.batch.memory.get(start..start + bytes)
    }

    /// The address that one was sent to; `None` if the socket has only one, or there is none that
    /// an answer could leave by.
    pub fn local(&self, number: usize) -> Option<IpAddr> {
        let header = self
            .batch
            .headers
            .get(number)
            .filter(|_| number < self.batch.count)?;
        destination(&header.msg_hdr)
    }
}

impl Outbox {
    /// Room for `datagrams` at a time.
    pub fn new(datagrams: usize) -> Self {
        Self(Batch::new(datagrams))
    }

    /// Has `write` fill the next datagram, for `to`, and say how long it is; `None` from it leaves
    /// the place free. False if there is no place: [`Outbox::send`] first.
    pub fn push(&mut self, to: SocketAddr, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        self.push_from(None, to, write)
    }

    /// The same, to leave by the address `local` if there is one; otherwise the route chooses.
    pub fn push_from(
        &mut self,
        local: Option<IpAddr>,
        to: SocketAddr,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> bool {
        self.push_with(write, |header, name, control| {
            header.msg_namelen = from_address(to, name);
            header.msg_controllen = name_source(local, control) as _;
        })
    }

    /// The same with a whole frame.
    pub fn push_frame(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        self.push_with(write, |header, _, _| {
            // It has its destination within.
            (header.msg_namelen, header.msg_controllen) = (0, 0);
        })
    }

    fn push_with(
        &mut self,
        write: impl FnOnce(&mut [u8]) -> Option<usize>,
        address: impl FnOnce(&mut libc::msghdr, &mut Name, &mut Control),
    ) -> bool {
        let batch = &mut self.0;
        let start = batch.count * DATAGRAM_SLOT_BYTES;
        let room = batch.memory.get_mut(start..start + DATAGRAM_SLOT_BYTES);
        let (Some(room), Some(name), Some(control), Some(part), Some(header)) = (
            room,
            batch.names.get_mut(batch.count),
            batch.controls.get_mut(batch.count),
            batch.parts.get_mut(batch.count),
            batch.headers.get_mut(batch.count),
        ) else {
            return false;
        };
        if let Some(bytes) = write(room) {
            part.iov_len = bytes.min(DATAGRAM_SLOT_BYTES);
            address(&mut header.msg_hdr, name, control);
            batch.count += 1;
        }
        true
    }

    /// Sends everything and is empty then.
    pub fn send(&mut self, socket: &DatagramSocket) -> Posted {
        self.send_by(socket.number())
    }

    /// The same of frames.
    pub fn send_frames(&mut self, socket: &FrameSocket) -> Posted {
        self.send_by(socket.number())
    }

    fn send_by(&mut self, fd: RawFd) -> Posted {
        let mut posted = Posted::default();
        let mut first = 0;
        while first < self.0.count {
            let Some(headers) = self.0.headers.get_mut(first..self.0.count) else {
                break;
            };
            let flags = libc::MSG_DONTWAIT;
            let count = headers.len() as libc::c_uint;
            // SAFETY: `headers` has `count` elements, whose pointers are good (INVARIANT).
            let answer = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count, flags) };
            posted.calls += 1;
            match usize::try_from(answer) {
                Ok(taken) if taken > 0 => {
                    posted.sent += taken;
                    first += taken;
                }
                // The first of the rest cannot be sent; the others may go elsewhere.
                _ => {
                    posted.lost += 1;
                    first += 1;
                }
            }
        }
        self.0.count = 0;
        posted
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// Whether nothing more fits.
    pub fn is_full(&self) -> bool {
        self.0.count == self.0.headers.len()
    }
}

impl Batch {
    fn new(datagrams: usize) -> Self {
        let mut memory = vec![0; datagrams * DATAGRAM_SLOT_BYTES].into_boxed_slice();
        // SAFETY: all bytes zero are a valid `sockaddr_storage`, of no family.
        let empty: Name = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut names = vec![empty; datagrams].into_boxed_slice();
        let mut controls = vec![Control([0; CONTROL_BYTES]); datagrams].into_boxed_slice();
        let mut parts = parts(&mut memory);
        let headers = headers(&mut parts, &mut names, &mut controls);
        Self {
            memory,
            names,
            controls,
            count: 0,
            parts,
            headers,
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// One part for each slot of `memory`.
fn parts(memory: &mut [u8]) -> Box<[libc::iovec]> {
    let slots = memory.chunks_exact_mut(DATAGRAM_SLOT_BYTES);
    slots
        .map(|slot| libc::iovec {
            iov_base: slot.as_mut_ptr().cast(),
            iov_len: slot.len(),
        })
        .collect()
}

/// One header for each part.
fn headers(
    parts: &mut [libc::iovec],
    names: &mut [Name],
    controls: &mut [Control],
) -> Box<[libc::mmsghdr]> {
    // SAFETY: all bytes zero are a valid `mmsghdr`, with null pointers and zero lengths.
    let empty: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    let all = parts.iter_mut().zip(names).zip(controls);
    all.map(|((part, name), control)| {
        let mut header = empty;
        header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
        header.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
        header.msg_hdr.msg_controllen = 0;
        header
    })
    .collect()
}

fn to_address(name: &Name) -> Option<SocketAddr> {
    let pointer = std::ptr::from_ref(name);
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: of this family the kernel wrote a `sockaddr_in`, which a storage has room
            // and alignment for.
            let name = unsafe { pointer.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, a `sockaddr_in6`.
            let name = unsafe { pointer.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            let address = std::net::SocketAddrV6::new(ip, port, 0, name.sin6_scope_id);
            Some(SocketAddr::V6(address))
        }
        _ => None,
    }
}

/// The address that the kernel says a datagram was sent to, if it was asked and the address is one
/// of a host. Nothing else was asked for, so that there is one message at most.
fn destination(header: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: control memory and its length are as the kernel has left them (INVARIANT).
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: null, or a header in that memory, which is borrowed here.
    let message = unsafe { message.as_ref() }?;
    // SAFETY: it points into the same control memory.
    let data = unsafe { libc::CMSG_DATA(message) };
    let ip = match (message.cmsg_level, message.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // SAFETY: of this kind the kernel wrote an `in_pktinfo`, which there was room for.
            let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
            IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)))
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            // SAFETY: as above, an `in6_pktinfo`.
            let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
            IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr))
        }
        _ => return None,
    };
    (!ip.is_multicast() && !ip.is_unspecified()).then_some(ip)
}

/// Writes which address a datagram is to leave by; how many bytes that takes.
fn name_source(local: Option<IpAddr>, control: &mut Control) -> usize {
    let Some(local) = local else {
        return 0;
    };
    control.0.fill(0);
    let message = control.0.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: control memory is aligned and has room for a header; its data lies behind it.
    let data = unsafe { libc::CMSG_DATA(message) };
    let (level, kind, bytes) = match local {
        IpAddr::V4(ip) => {
            // SAFETY: all bytes zero are a valid `in_pktinfo`: any interface, no address.
            let mut info: libc::in_pktinfo = unsafe { MaybeUninit::zeroed().assume_init() };
            info.ipi_spec_dst.s_addr = u32::from(ip).to_be();
            // SAFETY: there is room behind the header (CONTROL_BYTES).
            unsafe { data.cast::<libc::in_pktinfo>().write_unaligned(info) };
            (
                libc::IPPROTO_IP,
                libc::IP_PKTINFO,
                size_of::<libc::in_pktinfo>(),
            )
        }
        IpAddr::V6(ip) => {
            // SAFETY: as above, an `in6_pktinfo`.
            let mut info: libc::in6_pktinfo = unsafe { MaybeUninit::zeroed().assume_init() };
            info.ipi6_addr.s6_addr = ip.octets();
            // SAFETY: as above.
            unsafe { data.cast::<libc::in6_pktinfo>().write_unaligned(info) };
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_PKTINFO,
                size_of::<libc::in6_pktinfo>(),
            )
        }
    };
    // SAFETY: aligned, all of it is written, and borrowed mutably here alone.
    let message = unsafe { &mut *message };
    message.cmsg_level = level;
    message.cmsg_type = kind;
    // SAFETY: it only computes.
    let length = unsafe { libc::CMSG_LEN(bytes as u32) };
    message.cmsg_len = length as _;
    // SAFETY: as above.
    let space = unsafe { libc::CMSG_SPACE(bytes as u32) };
    space as usize
}

/// Writes an address as the kernel reads it; its length.
fn from_address(address: SocketAddr, name: &mut Name) -> libc::socklen_t {
    let pointer = std::ptr::from_mut(name);
    // SAFETY: all bytes zero are valid for each of these; a storage has room and alignment for all.
    unsafe { pointer.write_bytes(0, 1) };
    match address.ip() {
        IpAddr::V4(ip) => {
            // SAFETY: just zeroed, which is a valid `sockaddr_in`; borrowed mutably here alone.
            let name = unsafe { &mut *pointer.cast::<libc::sockaddr_in>() };
            name.sin_family = libc::AF_INET as libc::sa_family_t;
            name.sin_port = address.port().to_be();
            name.sin_addr.s_addr = u32::from(ip).to_be();
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        IpAddr::V6(ip) => {
            // SAFETY: as above, a `sockaddr_in6`.
            let name = unsafe { &mut *pointer.cast::<libc::sockaddr_in6>() };
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_port = address.port().to_be();
            name.sin6_addr.s6_addr = ip.octets();
            if let SocketAddr::V6(address) = address {
                name.sin6_scope_id = address.scope_id();
            }
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(address: &str) -> DatagramSocket {
        bind_udp(address.parse().unwrap(), DatagramOptions::default()).unwrap()
    }

    /// Receives until something has come.
    fn received(inbox: &mut Inbox, socket: &DatagramSocket) -> usize {
        for _ in 0..2000 {
            let count = inbox.receive(socket);
            if count > 0 {
                return count;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("nothing came");
    }

    /// Goal: datagrams of all lengths go out together and come in together, unchanged and with
    /// their senders. Method: both kinds of loopback address, more than one batch.
    #[test]
    fn batches_go_out_and_come_in_unchanged() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(server) = bind_udp(address.parse().unwrap(), DatagramOptions::default()) else {
                continue;
            };
            let client = bound(address);
            let (to, from) = (server.address().unwrap(), client.address().unwrap());
            let mut outbox = Outbox::new(5);
            for number in 0..5_u8 {
                let bytes = usize::from(number) * 490;
                let pushed = outbox.push(to, |room| {
                    room[..bytes].fill(number);
                    Some(bytes)
                });
                assert!(pushed);
            }
            assert!(outbox.is_full() && !outbox.push(to, |_| Some(1)));
            let posted = outbox.send(&client);
            assert_eq!((posted.sent, posted.lost, posted.calls), (5, 0, 1));
            assert!(outbox.is_empty());
            let mut inbox = Inbox::new(3);
            let mut seen = 0;
            while seen < 5 {
                for number in 0..received(&mut inbox, &server) {
                    let (bytes, sender) = inbox.get(number).unwrap();
                    assert_eq!(sender, from);
                    assert_eq!(bytes, vec![seen as u8; seen * 490]);
                    seen += 1;
                }
            }
            assert_eq!(inbox.receive(&server), 0);
            assert!(inbox.get(0).is_none());
        }
    }

    /// Goal: what is longer than a slot is seen as a whole slot, and what cannot be sent does not
    /// stop the others.
    #[test]
    fn too_long_ones_are_cut_and_lost_ones_are_counted() {
        let (server, client) = (bound("127.0.0.1:0"), bound("127.0.0.1:0"));
        let to = server.address().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(&[7; 3000], to).unwrap();
        let mut inbox = Inbox::new(2);
        received(&mut inbox, &server);
        assert_eq!(inbox.get(0).unwrap().0.len(), DATAGRAM_SLOT_BYTES);
        let mut outbox = Outbox::new(2);
        let nowhere = "[::1]:9".parse().unwrap();
        assert!(outbox.push(nowhere, |_| Some(1)));
        assert!(outbox.push(to, |_| Some(2)));
        let posted = outbox.send(&client);
        assert_eq!((posted.sent, posted.lost), (1, 1));
        received(&mut inbox, &server);
        assert_eq!(inbox.get(0).unwrap().0.len(), 2);
    }

    /// Goal: a host answers from the address at which it was asked. Method: a socket at
    /// no address in particular is asked at two of loopback's, by a client that takes answers from
    /// whom it has asked and nobody else; and at IPv6's, where there is one.
    #[test]
    fn answers_leave_by_the_address_that_was_asked() {
        let pairs = [
            ("0.0.0.0:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.2"),
            ("[::]:0", "::1"),
        ];
        for (address, asked) in pairs {
            let Ok(server) = bind_udp(address.parse().unwrap(), DatagramOptions::default()) else {
                continue;
            };
            let ip: IpAddr = asked.parse().unwrap();
            let to = SocketAddr::new(ip, server.address().unwrap().port());
            let home = if ip.is_ipv4() {
                "127.0.0.1:0"
            } else {
                "[::1]:0"
            };
            let client = std::net::UdpSocket::bind(home).unwrap();
            client.connect(to).unwrap();
            let patience = std::time::Duration::from_secs(5);
            client.set_read_timeout(Some(patience)).unwrap();
            client.send(b"?").unwrap();
            let mut inbox = Inbox::new(2);
            received(&mut inbox, &server);
            assert_eq!(inbox.local(0), Some(ip));
            assert_eq!(inbox.local(1), None);
            let mut outbox = Outbox::new(1);
            let (_, from) = inbox.get(0).unwrap();
            outbox.push_from(inbox.local(0), from, |room| {
                room[0] = b'!';
                Some(1)
            });
            assert_eq!(outbox.send(&server).sent, 1);
            let mut answer = [0; 8];
            assert_eq!(client.recv(&mut answer).unwrap(), 1, "{asked}");
        }
        let named = bound("127.0.0.1:0");
        let client = bound("127.0.0.1:0");
        let mut outbox = Outbox::new(1);
        outbox.push(named.address().unwrap(), |_| Some(1));
        outbox.send(&client);
        let mut inbox = Inbox::new(1);
        received(&mut inbox, &named);
        assert_eq!(inbox.local(0), None, "there is only one");
    }

    #[test]
    fn sockets_may_share_an_address_only_if_they_say_so() {
        let shared = DatagramOptions {
            shared: true,
            ..DatagramOptions::default()
        };
        let first = bind_udp("127.0.0.1:0".parse().unwrap(), shared).unwrap();
        let taken = first.address().unwrap();
        assert!(bind_udp(taken, shared).is_ok());
        let alone = bind_udp(taken, DatagramOptions::default());
        assert!(matches!(alone, Err(BindError::InUse(_))));
    }
}
