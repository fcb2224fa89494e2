//! Stream sockets: TCP and Unix, listening and connected, never blocking.
//!
//! A worker calls [`Stream::receive`] once and [`Stream::send`] or [`Stream::send_many`] once per
//! ready connection and turn; the answers say what the kernel took, so that nobody needs a second
//! call to learn that a socket is drained.

use std::{
    fs,
    io::{self, IoSlice, Read, Write},
    net::SocketAddr,
    os::{
        fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd},
        unix::fs::{FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use thiserror::Error;

use crate::{
    Token, WatchError,
    poll::{Poller, Registrar},
};

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// TCP over IPv4 or IPv6.
    Tcp(mio::net::TcpStream),
    /// A Unix domain socket.
    Unix(mio::net::UnixStream),
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP over IPv4 or IPv6.
    Tcp(mio::net::TcpListener),
    /// A Unix domain socket, and the file that is removed when it is dropped.
    Unix(mio::net::UnixListener, PathBuf),
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerAddress {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A process of this machine; it has no name.
    Unix,
}

/// What a receive brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Received {
    /// So many bytes; fewer than there was room for means that the socket is drained.
    Bytes(usize),
    /// Nothing now; the poller will tell.
    Nothing,
    /// The peer has finished sending, or the connection broke.
    End,
}

/// What a send took.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// So many bytes, perhaps fewer than were given; 0 when the kernel's buffer is full.
    Bytes(usize),
    /// The connection broke.
    Broken,
}

/// How a listening socket is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SocketOptions {
    /// Connections the kernel holds until they are accepted.
    pub backlog: i32,
    /// Whether it takes connections at once; if not, they are refused until
    /// [`listen`](Listener::listen).
    pub listens: bool,
}

/// A socket could not be made to listen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process listens there; stop it or choose another port.
    #[error("the address is already in use by another process")]
    InUse(io::Error),
    /// The address is not one of this machine's, or its kind is not supported.
    #[error("the address is not one of this machine: {0}")]
    NotHere(io::Error),
    /// Ports below 1024 and protected folders need more rights.
    #[error("permission denied")]
    NotAllowed(io::Error),
    /// Something else stands at the path of a Unix socket; it is left alone.
    #[error("the path exists and is not a socket")]
    NotASocket,
    /// Any other answer of the kernel.
    #[error("{0}")]
    Other(io::Error),
}

impl Stream {
    /// Receives once into `buffer`.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Received {
        loop {
            let answer = match self {
                Self::Tcp(stream) => stream.read(buffer),
                Self::Unix(stream) => stream.read(buffer),
            };
            match answer {
                Ok(0) => return Received::End,
                Ok(bytes) => return Received::Bytes(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Received::Nothing;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Received::End,
            }
        }
    }

    /// Sends from one piece of memory.
    pub fn send(&mut self, bytes: &[u8]) -> Sent {
        loop {
            let answer = match self {
                Self::Tcp(stream) => stream.write(bytes),
                Self::Unix(stream) => stream.write(bytes),
            };
            if let Some(sent) = judge_send(answer) {
                return sent;
            }
        }
    }

    /// Sends from several pieces in one system call.
    pub fn send_many(&mut self, pieces: &[IoSlice<'_>]) -> Sent {
        loop {
            let answer = match self {
                Self::Tcp(stream) => stream.write_vectored(pieces),
                Self::Unix(stream) => stream.write_vectored(pieces),
            };
            if let Some(sent) = judge_send(answer) {
                return sent;
            }
        }
    }

    /// Has `poller` tell of changes under `token`.
    pub fn watch(&mut self, poller: &Poller, token: Token) -> Result<(), WatchError> {
        let interest = mio::Interest::READABLE | mio::Interest::WRITABLE;
        let (registry, token) = (poller.registry(), mio::Token(token.0));
        match self {
            Self::Tcp(stream) => registry.register(stream, token, interest),
            Self::Unix(stream) => registry.register(stream, token, interest),
        }
        .map_err(WatchError)
    }

    /// Ends [`watch`](Self::watch), so that another poller can go on. It cannot fail for a socket
    /// that is watched; for one that is not there is nothing to end.
    pub fn unwatch(&mut self, poller: &Poller) {
        self.deregister(poller.registry());
    }

    /// The same for another thread's poller.
    pub fn unwatch_at(&mut self, registrar: &Registrar) {
        self.deregister(registrar.registry());
    }

    fn deregister(&mut self, registry: &mio::Registry) {
        let _ = match self {
            Self::Tcp(stream) => registry.deregister(stream),
            Self::Unix(stream) => registry.deregister(stream),
        };
    }

    /// Whether it is reported as writable only after a send that found no room: a Unix socket is
    /// with every part that the peer takes.
    pub fn reports_room_when_asked(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// The descriptor's number, as `stats conns` names connections.
    pub fn number(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

fn judge_send(answer: io::Result<usize>) -> Option<Sent> {
    match answer {
        Ok(bytes) => Some(Sent::Bytes(bytes)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(Sent::Bytes(0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
        Err(_) => Some(Sent::Broken),
    }
}

impl Listener {
    /// Takes connections from now on, if it has not from the beginning.
    pub fn listen(&self, backlog: i32) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => {
                let socket = SockRef::from(listener);
                // Its connections inherit this: those that are closing do not block a next start.
                socket.set_reuse_address(true)?;
                socket.listen(backlog)
            }
            Self::Unix(listener, _) => SockRef::from(listener).listen(backlog),
        }
    }

    /// Takes one waiting connection; `None` when there is none now.
    pub fn accept(&self) -> io::Result<Option<(Stream, PeerAddress)>> {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, address)| {
                // Replies leave at once: a turn sends each connection one whole answer.
                let _ = stream.set_nodelay(true);
                (Stream::Tcp(stream), PeerAddress::Tcp(address))
            }),
            Self::Unix(listener, _) => listener
                .accept()
                .map(|(stream, _)| (Stream::Unix(stream), PeerAddress::Unix)),
        };
        match accepted {
            Ok(connection) => Ok(Some(connection)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has `poller` tell of waiting connections under `token`.
    pub fn watch(&mut self, poller: &Poller, token: Token) -> Result<(), WatchError> {
        let (registry, token) = (poller.registry(), mio::Token(token.0));
        match self {
            Self::Tcp(listener) => registry.register(listener, token, mio::Interest::READABLE),
            Self::Unix(listener, _) => registry.register(listener, token, mio::Interest::READABLE),
        }
        .map_err(WatchError)
    }

    /// The TCP address it really has, with the port the kernel chose for port 0.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// The path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(_, path) => Some(path),
        }
    }

    /// The descriptor's number, as `stats conns` names listeners.
    pub fn number(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener, _) => listener.as_raw_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens on a TCP address; port 0 lets the kernel choose.
pub fn bind_tcp(address: SocketAddr, options: SocketOptions) -> Result<Listener, BindError> {
    listen_tcp(address, options)
        .map(Listener::Tcp)
        .map_err(BindError::from_io)
}

fn listen_tcp(address: SocketAddr, options: SocketOptions) -> io::Result<mio::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // An address that may be reused is only held by a socket that listens: until then others could
    // bind it, too, and listen first.
    socket.set_reuse_address(options.listens)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    let bound = socket.bind(&address.into());
    match bound {
        // Connections of an earlier process may be closing.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && !options.listens => {
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
        }
        bound => bound?,
    }
    if options.listens {
        socket.listen(options.backlog)?;
    }
    Ok(mio::net::TcpListener::from_std(socket.into()))
}

/// Begins a TCP connection. The poller tells when it can be written to: it is connected then, or a
/// send answers that it broke.
pub fn connect_tcp(address: SocketAddr) -> io::Result<Stream> {
    let stream = mio::net::TcpStream::connect(address)?;
    // What is sent is gathered by who sends it.
    stream.set_nodelay(true)?;
    Ok(Stream::Tcp(stream))
}

/// Listens on a Unix socket at `path`, with the permissions `mode` (octal, as chmod takes it). A
/// socket that an earlier process left behind is replaced; anything else at the path is an error.
pub fn bind_unix(path: &Path, mode: u32, options: SocketOptions) -> Result<Listener, BindError> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(BindError::NotASocket);
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(BindError::InUse(io::ErrorKind::AddrInUse.into()));
        }
        fs::remove_file(path).map_err(BindError::from_io)?;
    }
    listen_unix(path, mode, options)
        .map(|listener| Listener::Unix(listener, path.to_path_buf()))
        .map_err(BindError::from_io)
}

fn listen_unix(
    path: &Path,
    mode: u32,
    options: SocketOptions,
) -> io::Result<mio::net::UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&socket2::SockAddr::unix(path)?)?;
    // Nobody can connect between bind and here: the socket does not listen yet.
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    if options.listens {
        socket.listen(options.backlog)?;
    }
    // SAFETY: the descriptor was just released by `socket`, so it is open and owned by nobody else.
    let listener = unsafe { std::os::unix::net::UnixListener::from_raw_fd(socket.into_raw_fd()) };
    Ok(mio::net::UnixListener::from_std(listener))
}

impl BindError {
    pub(crate) fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(error),
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported => Self::NotHere(error),
            io::ErrorKind::PermissionDenied => Self::NotAllowed(error),
            _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Self::NotHere(error),
            _ => Self::Other(error),
        }
    }
}

impl std::fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix => write!(f, "unix:"),
        }
    }
}

/// Has a blocking or polled receive on a TCP socket wait until `bytes` are there, the peer has hung
/// up or its window is full (`SO_RCVLOWAT`): one wake-up for a long answer in place of one for each
/// part of it. The kernel makes room for so many, up to the system's limit, unless the socket's
/// receive buffer was given a size.
pub fn wait_for_bytes(socket: &impl AsRawFd, bytes: i32) -> io::Result<()> {
    set_option(
        socket.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_RCVLOWAT,
        bytes,
    )
}

/// Sets an option that is a number and that socket2 has no function for.
pub(crate) fn set_option(
    socket: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let bytes = size_of_val(&value) as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: `value` points to `bytes` bytes that live past the call, and a number holds no
    // pointer that the kernel could follow.
    match unsafe { libc::setsockopt(socket, level, name, value, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OPTIONS: SocketOptions = SocketOptions {
        backlog: 16,
        listens: true,
    };

    #[test]
    fn an_address_in_use_is_said_so() {
        let first = bind_tcp("127.0.0.1:0".parse().unwrap(), OPTIONS).unwrap();
        let taken = first.tcp_address().unwrap();
        assert_ne!(taken.port(), 0);
        assert!(matches!(bind_tcp(taken, OPTIONS), Err(BindError::InUse(_))));
    }

    /// Goal: a listener that does not take connections yet refuses them, and takes them once it
    /// listens, of either kind.
    #[test]
    fn who_comes_before_it_listens_is_refused() {
        let options = SocketOptions {
            listens: false,
            ..OPTIONS
        };
        let tcp = bind_tcp("127.0.0.1:0".parse().unwrap(), options).unwrap();
        let address = tcp.tcp_address().unwrap();
        assert!(std::net::TcpStream::connect(address).is_err());
        // Nobody else gets the address meanwhile.
        for other in [OPTIONS, options] {
            assert!(matches!(bind_tcp(address, other), Err(BindError::InUse(_))));
        }
        tcp.listen(16).unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        // Its side of a connection is closed first, and does not block the address.
        let mut accepted = None;
        while accepted.is_none() {
            accepted = tcp.accept().unwrap();
        }
        drop((accepted, tcp, client));
        assert!(bind_tcp(address, options).is_ok());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let unix = bind_unix(&path, 0o700, options).unwrap();
        let connect = || std::os::unix::net::UnixStream::connect(&path);
        assert!(connect().is_err());
        unix.listen(16).unwrap();
        assert!(connect().is_ok());
    }

    /// Goal: a stale socket file is replaced, a live one and a plain file are not, and ours is
    /// removed at the end. Method: each in turn at one path.
    #[test]
    fn unix_sockets_replace_only_what_is_stale() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let ours = bind_unix(&path, 0o700, OPTIONS).unwrap();
        assert!(matches!(
            bind_unix(&path, 0o700, OPTIONS),
            Err(BindError::InUse(_))
        ));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(ours);
        assert!(!path.exists());
        fs::write(&path, b"a file").unwrap();
        assert!(matches!(
            bind_unix(&path, 0o700, OPTIONS),
            Err(BindError::NotASocket)
        ));
    }

    /// Goal: a connection that is begun here carries bytes once the poller tells, and one that is
    /// refused breaks at the first send. Method: a port that listens, and the same port afterwards.
    #[test]
    fn a_connection_is_made_or_breaks() {
        let listener = bind_tcp("127.0.0.1:0".parse().unwrap(), OPTIONS).unwrap();
        let address = listener.tcp_address().unwrap();
        let mut poller = Poller::new().unwrap();
        let mut events = crate::Events::with_capacity(4);
        let mut sends = |expected: Sent| {
            let mut stream = connect_tcp(address).unwrap();
            stream.watch(&poller, Token(0)).unwrap();
            poller.wait(&mut events, None).unwrap();
            assert_eq!(stream.send(b"ab"), expected);
            stream
        };
        let _made = sends(Sent::Bytes(2));
        let (mut stream, _) = listener.accept().unwrap().unwrap();
        let mut buffer = [0; 4];
        while stream.receive(&mut buffer) != Received::Bytes(2) {}
        drop((stream, listener));
        sends(Sent::Broken);
    }

    #[test]
    fn a_connection_carries_bytes_and_its_end() {
        let listener = bind_tcp("127.0.0.1:0".parse().unwrap(), OPTIONS).unwrap();
        let mut client = std::net::TcpStream::connect(listener.tcp_address().unwrap()).unwrap();
        let (mut stream, peer) = loop {
            if let Some(connection) = listener.accept().unwrap() {
                break connection;
            }
        };
        assert_eq!(peer, PeerAddress::Tcp(client.local_addr().unwrap()));
        let mut buffer = [0; 16];
        assert_eq!(stream.receive(&mut buffer), Received::Nothing);
        assert_eq!(
            stream.send_many(&[IoSlice::new(b"ab"), IoSlice::new(b"c")]),
            Sent::Bytes(3)
        );
        client.read_exact(&mut buffer[..3]).unwrap();
        assert_eq!(&buffer[..3], b"abc");
        drop(client);
        while stream.receive(&mut buffer) == Received::Nothing {}
        assert_eq!(stream.receive(&mut buffer), Received::End);
    }

    /// Goal: a thread that waits for bytes is not woken for fewer. Method: a part, then the rest; a
    /// non-blocking look at the poll set between.
    #[test]
    fn a_receive_waits_for_all_its_bytes() {
        let listener = bind_tcp("127.0.0.1:0".parse().unwrap(), OPTIONS).unwrap();
        let mut client = std::net::TcpStream::connect(listener.tcp_address().unwrap()).unwrap();
        let (mut stream, _) = loop {
            if let Some(connection) = listener.accept().unwrap() {
                break connection;
            }
        };
        wait_for_bytes(&stream.number(), 6).unwrap();
        let mut poller = Poller::new().unwrap();
        let mut events = crate::Events::with_capacity(4);
        stream.watch(&poller, Token(0)).unwrap();
        let mut is_readable = |patience| {
            let mut found = false;
            poller.wait(&mut events, Some(patience)).unwrap();
            events.for_each(|_, readiness| found |= readiness.read);
            found
        };
        client.write_all(b"abc").unwrap();
        assert!(!is_readable(Duration::from_millis(20)));
        client.write_all(b"def").unwrap();
        while !is_readable(Duration::from_secs(1)) {}
    }
}
