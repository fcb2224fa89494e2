//! The bytes of a connection, plain or over TLS, behind one interface.
//!
//! ```text
//!   plain      link ------------------------------- socket
//!   secured    link -- plaintext -- TLS machine -- records -- socket
//!   open       one of them, as soon as the other side has sent its first byte
//! ```
//!
//! Without TLS this is the socket itself. With it, what the socket does not take at once is held
//! back here ([`Transport::holds_back`]) and sent on when the socket can be written to again; more
//! than [`HELD_BYTES_MAX`] never is. Received bytes are handed out as from a socket: fewer than
//! there is room for means that there is no more now.

use std::{
    io::{self, IoSlice, Read, Write},
    ops::ControlFlow,
};

use curtail_runtime::{Poller, Received, Sent, Stream, Token, WatchError};
use rustls::Connection;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Transport {
    stream: Stream,
    /// `None` if it is plain.
    tls: Option<Box<TlsLayer>>,
}

/// TLS between a link and its socket.
#[derive(Debug)]
struct TlsLayer {
    connection: Connection,
    /// The first byte is still awaited, which tells TLS from plaintext.
    is_open: bool,
    /// Records that were received before it was known that they are some.
    early: Vec<u8>,
    fault: Option<TlsFailure>,
}

/// Why TLS ended.
#[derive(Clone, Debug)]
pub(crate) enum TlsFailure {
    /// One of the two sides refused the other.
    Refused(rustls::Error),
    /// The peer closed before it sent anything.
    Silent,
}

/// Bytes that TLS may hold for a socket that takes none.
const HELD_BYTES_MAX: usize = 64 << 10;

/// With what TLS begins: a record of a handshake (RFC 8446, section 5.1). Without TLS a node's
/// first byte is a C.
const HANDSHAKE: u8 = 22;

impl Transport {
    pub(crate) const fn plain(stream: Stream) -> Self {
        Self { stream, tls: None }
    }

    /// The same over TLS; if it `is_open`, over TLS or not, as the other side likes, which speaks
    /// first.
    pub(crate) fn secured(stream: Stream, mut connection: Connection, is_open: bool) -> Self {
        connection.set_buffer_limit(Some(HELD_BYTES_MAX));
        let tls = Some(Box::new(TlsLayer {
            connection,
            is_open,
            early: Vec::new(),
            fault: None,
        }));
        Self { stream, tls }
    }

    /// Receives into `area`, which is not empty.
    #[inline]
    pub(crate) fn receive(&mut self, area: &mut [u8]) -> Received {
        match &mut self.tls {
            None => self.stream.receive(area),
            Some(tls) if tls.is_open => self.find_out(area),
            Some(tls) => tls.receive(&mut self.stream, area),
        }
    }

    /// Receives the first byte, which tells TLS from plaintext.
    #[cold]
    fn find_out(&mut self, area: &mut [u8]) -> Received {
        let received = self.stream.receive(area);
        let (Received::Bytes(bytes), Some(tls)) = (received, &mut self.tls) else {
            return received;
        };
        if area.first() != Some(&HANDSHAKE) {
            self.tls = None;
            return received;
        }
        tls.is_open = false;
        tls.early = area.get(..bytes).unwrap_or_default().to_vec();
        tls.receive(&mut self.stream, area)
    }

    /// Sends from one piece of memory.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Sent {
        match &mut self.tls {
            None => self.stream.send(bytes),
            Some(tls) => tls.send(&mut self.stream, &[IoSlice::new(bytes)]),
        }
    }

    /// Sends from several.
    #[inline]
    pub(crate) fn send_many(&mut self, pieces: &[IoSlice<'_>]) -> Sent {
        match &mut self.tls {
            None => self.stream.send_many(pieces),
            Some(tls) => tls.send(&mut self.stream, pieces),
        }
    }

    /// Sends what is held back, as far as the socket takes it; false if the connection broke.
    #[inline]
    pub(crate) fn push(&mut self) -> bool {
        let stream = &mut self.stream;
        self.tls.as_mut().is_none_or(|tls| tls.push(stream))
    }

    /// Whether the socket has yet to take something that was sent, or that TLS itself has to say.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        let tls = self.tls.as_ref();
        tls.is_some_and(|tls| tls.connection.wants_write())
    }

    pub(crate) fn watch(&mut self, poller: &Poller, token: Token) -> Result<(), WatchError> {
        self.stream.watch(poller, token)
    }

    pub(crate) fn unwatch(&mut self, poller: &Poller) {
        self.stream.unwatch(poller);
    }

    /// Why TLS ended, if it did.
    pub(crate) fn fault(&self) -> Option<&TlsFailure> {
        self.tls.as_ref()?.fault.as_ref()
    }
}

impl TlsLayer {
    fn receive(&mut self, stream: &mut Stream, area: &mut [u8]) -> Received {
        let mut filled = 0;
        let is_over = loop {
            let room = area.get_mut(filled..).unwrap_or_default();
            match self.connection.reader().read(room) {
                Ok(0) => break true,
                Ok(bytes) => {
                    filled += bytes;
                    if filled == area.len() {
                        return Received::Bytes(filled);
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break true,
            }
            if let ControlFlow::Break(is_over) = self.take_records(stream) {
                break is_over;
            }
        };
        // Whatever a handshake answers goes at once.
        let broken = !self.push(stream);
        match (filled, is_over || broken) {
            (0, true) => Received::End,
            (0, false) => Received::Nothing,
            (_, _) => Received::Bytes(filled),
        }
    }

    /// Takes what the socket has; if it had nothing, whether that is the end.
    fn take_records(&mut self, stream: &mut Stream) -> ControlFlow<bool> {
        let read = match self.early.is_empty() {
            true => self.connection.read_tls(&mut Socket(stream)),
            false => {
                let read = self.connection.read_tls(&mut &*self.early);
                self.early.drain(..*read.as_ref().unwrap_or(&0));
                read
            }
        };
        match read {
            Ok(0) => {
                if self.connection.is_handshaking() && self.fault.is_none() {
                    self.fault = Some(TlsFailure::Silent);
                }
                ControlFlow::Break(true)
            }
            Ok(_) => match self.connection.process_new_packets() {
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    self.fault = Some(TlsFailure::Refused(error));
                    ControlFlow::Break(true)
                }
            },
            Err(error) => ControlFlow::Break(error.kind() != io::ErrorKind::WouldBlock),
        }
    }

    /// Sends until the socket takes no more; what TLS has taken by then counts as sent.
    fn send(&mut self, stream: &mut Stream, pieces: &[IoSlice<'_>]) -> Sent {
        let mut sent = 0;
        if self.is_open {
            return Sent::Bytes(sent);
        }
        for piece in pieces {
            let mut rest: &[u8] = piece;
            while !rest.is_empty() {
                if !self.push(stream) {
                    return Sent::Broken;
                }
                if self.connection.wants_write() {
                    return Sent::Bytes(sent);
                }
                match self.connection.writer().write(rest) {
                    Ok(0) => return Sent::Bytes(sent),
                    Ok(bytes) => {
                        sent += bytes;
                        rest = rest.get(bytes..).unwrap_or_default();
                    }
                    Err(_) => return Sent::Broken,
                }
            }
        }
        match self.push(stream) {
            true => Sent::Bytes(sent),
            false => Sent::Broken,
        }
    }

    fn push(&mut self, stream: &mut Stream) -> bool {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(stream)) {
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

/// The socket as TLS wants it.
struct Socket<'a>(&'a mut Stream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.receive(buffer) {
            Received::Bytes(bytes) => Ok(bytes),
            Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            Received::End => Ok(0),
        }
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        judge(self.0.send(bytes))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        judge(self.0.send_many(pieces))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn judge(sent: Sent) -> io::Result<usize> {
    match sent {
        Sent::Bytes(0) => Err(io::ErrorKind::WouldBlock.into()),
        Sent::Bytes(bytes) => Ok(bytes),
        Sent::Broken => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
