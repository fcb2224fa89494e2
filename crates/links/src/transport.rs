//! The bytes of a connection, plain or over TLS, behind one interface.
//!
//! ```text
//!   Plain      link ------------------------------- socket
//!   Secured    link -- plaintext -- TLS machine -- records -- socket
//!   Open       one of them, as soon as the other side has sent its first byte
//! ```
//!
//! Without TLS this is the socket itself. With it, what the socket does not take at once is held
//! back here ([`Transport::holds_back`]) and sent on when the socket can be written to again; more
//! than [`HELD_BYTES_MAX`] never is. Received bytes are handed out as from a socket: fewer than
//! there is room for means that there is no more now.

use std::io::{self, IoSlice, Read, Write};

use curtail_runtime::{Poller, Received, Sent, Stream, Token, WatchError};
use rustls::Connection;

/// See the head of this file.
#[derive(Debug)]
pub(crate) enum Transport {
    Plain(Stream),
    Secured(Box<Secured>),
    /// `None` in the hands of [`Transport::find_out`] only.
    Open(Option<Box<Secured>>),
}

/// TLS over a socket.
#[derive(Debug)]
pub(crate) struct Secured {
    stream: Stream,
    tls: Connection,
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
    /// The same over TLS.
    pub(crate) fn secured(stream: Stream, tls: Connection) -> Self {
        Self::Secured(Secured::new(stream, tls))
    }

    /// Over TLS or not, as the other side likes, which speaks first.
    pub(crate) fn open(stream: Stream, tls: Connection) -> Self {
        Self::Open(Some(Secured::new(stream, tls)))
    }

    /// Receives into `area`, which is not empty.
    #[inline]
    pub(crate) fn receive(&mut self, area: &mut [u8]) -> Received {
        match self {
            Self::Plain(stream) => stream.receive(area),
            Self::Secured(secured) => secured.receive(area),
            Self::Open(_) => self.find_out(area),
        }
    }

    /// Receives the first byte, which tells TLS from plaintext.
    #[cold]
    fn find_out(&mut self, area: &mut [u8]) -> Received {
        let Self::Open(open) = self else {
            return Received::Nothing;
        };
        let Some(mut secured) = open.take() else {
            return Received::End;
        };
        let received = secured.stream.receive(area);
        let Received::Bytes(bytes) = received else {
            *open = Some(secured);
            return received;
        };
        if area.first() != Some(&HANDSHAKE) {
            *self = Self::Plain(secured.stream);
            return received;
        }
        secured.early = area.get(..bytes).unwrap_or_default().to_vec();
        let received = secured.receive(area);
        *self = Self::Secured(secured);
        received
    }

    /// Sends from one piece of memory.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Sent {
        match self {
            Self::Plain(stream) => stream.send(bytes),
            Self::Secured(secured) => secured.send(&[IoSlice::new(bytes)]),
            Self::Open(_) => Sent::Bytes(0),
        }
    }

    /// Sends from several.
    #[inline]
    pub(crate) fn send_many(&mut self, pieces: &[IoSlice<'_>]) -> Sent {
        match self {
            Self::Plain(stream) => stream.send_many(pieces),
            Self::Secured(secured) => secured.send(pieces),
            Self::Open(_) => Sent::Bytes(0),
        }
    }

    /// Sends what is held back, as far as the socket takes it; false if the connection broke.
    #[inline]
    pub(crate) fn push(&mut self) -> bool {
        match self {
            Self::Plain(_) | Self::Open(_) => true,
            Self::Secured(secured) => secured.push(),
        }
    }

    /// Whether the socket has yet to take something that was sent, or that TLS itself has to say.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Open(_) => false,
            Self::Secured(secured) => secured.tls.wants_write(),
        }
    }

    pub(crate) fn watch(&mut self, poller: &Poller, token: Token) -> Result<(), WatchError> {
        match self.stream_mut() {
            Some(stream) => stream.watch(poller, token),
            None => Ok(()),
        }
    }

    pub(crate) fn unwatch(&mut self, poller: &Poller) {
        if let Some(stream) = self.stream_mut() {
            stream.unwatch(poller);
        }
    }

    /// Why TLS ended, if it did.
    pub(crate) fn fault(&self) -> Option<&TlsFailure> {
        match self {
            Self::Plain(_) | Self::Open(_) => None,
            Self::Secured(secured) => secured.fault.as_ref(),
        }
    }

    fn stream_mut(&mut self) -> Option<&mut Stream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Secured(secured) => Some(&mut secured.stream),
            Self::Open(open) => open.as_mut().map(|secured| &mut secured.stream),
        }
    }
}

impl Secured {
    fn new(stream: Stream, mut tls: Connection) -> Box<Self> {
        tls.set_buffer_limit(Some(HELD_BYTES_MAX));
        Box::new(Self {
            stream,
            tls,
            early: Vec::new(),
            fault: None,
        })
    }

    fn receive(&mut self, area: &mut [u8]) -> Received {
        let mut filled = 0;
        let is_over = loop {
            let room = area.get_mut(filled..).unwrap_or_default();
            match self.tls.reader().read(room) {
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
            match self.take_records() {
                Taken::Some => {}
                Taken::None => break false,
                Taken::Over => break true,
            }
        };
        // Whatever a handshake answers goes at once.
        let broken = !self.push();
        match (filled, is_over || broken) {
            (0, true) => Received::End,
            (0, false) => Received::Nothing,
            (_, _) => Received::Bytes(filled),
        }
    }

    /// Takes what the socket has.
    fn take_records(&mut self) -> Taken {
        let read = match self.early.is_empty() {
            true => self.tls.read_tls(&mut Socket(&mut self.stream)),
            false => {
                let read = self.tls.read_tls(&mut &*self.early);
                self.early.drain(..*read.as_ref().unwrap_or(&0));
                read
            }
        };
        match read {
            Ok(0) => {
                if self.tls.is_handshaking() && self.fault.is_none() {
                    self.fault = Some(TlsFailure::Silent);
                }
                Taken::Over
            }
            Ok(_) => match self.tls.process_new_packets() {
                Ok(_) => Taken::Some,
                Err(error) => {
                    self.fault = Some(TlsFailure::Refused(error));
                    Taken::Over
                }
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Taken::None,
            Err(_) => Taken::Over,
        }
    }

    /// Sends until the socket takes no more; what TLS has taken by then counts as sent.
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Sent {
        let mut sent = 0;
        for piece in pieces {
            let mut rest: &[u8] = piece;
            while !rest.is_empty() {
                if !self.push() {
                    return Sent::Broken;
                }
                if self.tls.wants_write() {
                    return Sent::Bytes(sent);
                }
                match self.tls.writer().write(rest) {
                    Ok(0) => return Sent::Bytes(sent),
                    Ok(bytes) => {
                        sent += bytes;
                        rest = rest.get(bytes..).unwrap_or_default();
                    }
                    Err(_) => return Sent::Broken,
                }
            }
        }
        match self.push() {
            true => Sent::Bytes(sent),
            false => Sent::Broken,
        }
    }

    fn push(&mut self) -> bool {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(&mut self.stream)) {
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }
}

/// What the socket had.
enum Taken {
    Some,
    None,
    Over,
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
