//! Non-blocking sockets and the one epoll set that a driver thread waits on.

use std::{
    io::{self, ErrorKind, Read, Write},
    mem::MaybeUninit,
    net::TcpStream,
    os::fd::OwnedFd,
    time::Duration,
};

use curtail_client::memcached::Login;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::{blocking_connection, error::LoadError};

/// Waits for any of a thread's sockets.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: OwnedFd,
    ready: Vec<Ready>,
}

/// What happened to which connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) connection: usize,
    pub(super) readable: bool,
    pub(super) writable: bool,
}

/// One connection's socket and whether it waits to be writable.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    connection: usize,
    waits_to_write: bool,
}

const EVENTS_MAX: usize = 256;

/// A wait on the epoll set is rounded up to a millisecond: a shorter one is done by a call of its
/// own before.
const PRECISE_BELOW: Duration = Duration::from_millis(5);

impl Poller {
    pub(super) fn new() -> Result<Self, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| LoadError::machine("making an epoll set")(error.into()))?;
        Ok(Self {
            epoll,
            ready: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Connects, logs in and registers connection number `connection`.
    pub(super) fn connect(
        &self,
        target: &str,
        login: Option<&Login>,
        connection: usize,
    ) -> Result<Socket, LoadError> {
        let stream = blocking_connection::connect(target, login)?.into_stream();
        stream
            .set_nonblocking(true)
            .map_err(LoadError::network("making a socket non-blocking"))?;
        let data = epoll::EventData::new_u64(connection as u64);
        epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)
            .map_err(|error| LoadError::machine("registering a socket")(error.into()))?;
        Ok(Socket {
            stream,
            connection,
            waits_to_write: false,
        })
    }

    /// Waits at most `patience` and returns how many connections are ready.
    pub(super) fn wait(&mut self, patience: Duration) -> Result<usize, LoadError> {
        let mut left = patience;
        if !patience.is_zero() && patience < PRECISE_BELOW {
            let mut descriptors = [PollFd::new(&self.epoll, PollFlags::IN)];
            // However it ends, the wait below finds what there is.
            let _ = poll(&mut descriptors, Some(&timespec(patience)));
            left = Duration::ZERO;
        }
        self.ready.clear();
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut room, Some(&timespec(left))) {
            Ok((events, _)) => self.ready.extend(events.iter().map(Ready::from)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(LoadError::machine("waiting for sockets")(error.into())),
        }
        Ok(self.ready.len())
    }

    /// The `index`-th of the ready connections.
    pub(super) fn ready(&self, index: usize) -> Ready {
        self.ready[index]
    }

    /// Registers whether a socket is to be reported when it can be written to.
    fn want_write(&self, socket: &mut Socket, wanted: bool) -> Result<(), LoadError> {
        if socket.waits_to_write == wanted {
            return Ok(());
        }
        socket.waits_to_write = wanted;
        let flags = if wanted {
            epoll::EventFlags::IN | epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        let data = epoll::EventData::new_u64(socket.connection as u64);
        epoll::modify(&self.epoll, &socket.stream, data, flags)
            .map_err(|error| LoadError::machine("registering a socket")(error.into()))
    }

    /// Writes what the kernel takes of `bytes` and returns how much that was; asks to be told
    /// when it takes more.
    pub(super) fn write(&self, socket: &mut Socket, bytes: &[u8]) -> Result<usize, LoadError> {
        let mut written = 0;
        while written < bytes.len() {
            match socket.stream.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(LoadError::network("sending")(error)),
            }
        }
        self.want_write(socket, written < bytes.len())?;
        Ok(written)
    }
}

/// A time to wait as the system takes it.
pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

impl From<&epoll::Event> for Ready {
    fn from(event: &epoll::Event) -> Self {
        // The structure is packed: its fields are copied, never borrowed.
        let (flags, data) = (event.flags, event.data);
        Self {
            connection: data.u64() as usize,
            readable: flags.intersects(!epoll::EventFlags::OUT),
            writable: flags.contains(epoll::EventFlags::OUT),
        }
    }
}

impl Socket {
    /// Reads once; 0 when nothing is there yet. A closed connection is an error.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Result<usize, LoadError> {
        match (&self.stream).read(buffer) {
            Ok(0) => Err(LoadError::network("receiving")(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the server closed the connection",
            ))),
            Ok(count) => Ok(count),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            Err(error) => Err(LoadError::network("receiving")(error)),
        }
    }
}
