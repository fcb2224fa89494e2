//! The stream between a controller and its switch, and where it comes from.
//!
//! A process that can open it can change rules, so it belongs on a Unix socket in a directory of
//! the controller's user, or on a network that only switches and controllers are on: OpenFlow
//! itself proves nothing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// Where controller and switch meet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ControllerEndpoint {
    /// The switch connects to this Unix socket, which the controller makes.
    ListenUnix(PathBuf),
    /// The switch connects to this address.
    ListenTcp(SocketAddr),
    /// The controller connects to the switch's Unix socket (Open vSwitch's `BRIDGE.mgmt`).
    ConnectUnix(PathBuf),
    /// The controller connects to the switch.
    ConnectTcp(SocketAddr),
}

/// Where the next stream comes from.
#[derive(Debug)]
pub(crate) enum StreamSource {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
    Connect(ControllerEndpoint),
}

/// A connected stream.
#[derive(Debug)]
pub(crate) enum ControllerStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl StreamSource {
    /// Listens, if that is how they meet. The socket's file is the user's alone.
    pub(crate) fn open(endpoint: &ControllerEndpoint) -> io::Result<Self> {
        match endpoint {
            ControllerEndpoint::ListenUnix(path) => {
                let _ = std::fs::remove_file(path);
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(listener, path.clone()))
            }
            ControllerEndpoint::ListenTcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            other => Ok(Self::Connect(other.clone())),
        }
    }

    /// Where a TCP listener is.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            _ => None,
        }
    }

    /// The next stream, if there is one now. A read or write of it ends within `timeout`.
    pub(crate) fn next(&self, timeout: Duration) -> io::Result<Option<ControllerStream>> {
        let accepted = match self {
            Self::Unix(listener, _) => listener.accept().map(|(s, _)| ControllerStream::Unix(s)),
            Self::Tcp(listener) => listener.accept().map(|(s, _)| ControllerStream::Tcp(s)),
            Self::Connect(endpoint) => connect(endpoint, timeout),
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match &stream {
            ControllerStream::Unix(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(timeout))?;
            }
            ControllerStream::Tcp(stream) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(timeout))?;
            }
        }
        Ok(Some(stream))
    }
}

impl Drop for StreamSource {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn connect(endpoint: &ControllerEndpoint, timeout: Duration) -> io::Result<ControllerStream> {
    match endpoint {
        ControllerEndpoint::ConnectUnix(path) => {
            UnixStream::connect(path).map(ControllerStream::Unix)
        }
        ControllerEndpoint::ConnectTcp(address) => {
            TcpStream::connect_timeout(address, timeout).map(ControllerStream::Tcp)
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Whether it is no error that there is nobody yet.
fn is_nobody(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::WouldBlock | K::NotFound | K::ConnectionRefused | K::TimedOut | K::Interrupted
    )
}

impl ControllerStream {
    /// How long the next reads wait at most; nothing for not at all.
    pub(crate) fn set_wait(&self, wait: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_nonblocking(wait.is_none())?;
                stream.set_read_timeout(wait)
            }
            Self::Tcp(stream) => {
                stream.set_nonblocking(wait.is_none())?;
                stream.set_read_timeout(wait)
            }
        }
    }
}

impl Read for ControllerStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(room),
            Self::Tcp(stream) => stream.read(room),
        }
    }
}

impl Write for ControllerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
