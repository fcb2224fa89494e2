//! The TCP connection of a session, for requests and replies that fit no datagram: the same frames,
//! one behind another.
//!
//! It is opened when it is first needed and never waited for. When it breaks, everything that was
//! under way on it is sent again over another one by the owner of the requests.
//!
//! Invariants: a frame's length is known from its first 88 bytes and is bounded; memory for a value
//! is taken as its bytes arrive, not as they are announced.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

use curtail_codec::native::{HEADER_BYTES, Malformed, Reply, Request, VALUE_BYTES_MAX};
use rustix::event::PollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use crate::datagram_batch;

/// One TCP connection to the server.
#[derive(Debug)]
pub(crate) struct StreamConnection {
    socket: TcpStream,
    is_connected: bool,
    output: Vec<u8>,
    written: usize,
    input: Vec<u8>,
}

/// Bytes read at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// A RESULT's header, whose last field but one is the value's length.
const RESULT_BYTES: usize = HEADER_BYTES + 24;
const LENGTH_AT: usize = 80;
const KIND_AT: usize = 3;
const KIND_RESULT: u8 = 134;

impl StreamConnection {
    /// Begins to connect.
    pub(crate) fn open(server: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(
            Domain::for_address(server),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        let is_connected = match socket.connect(&server.into()) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(IN_PROGRESS) => false,
            Err(error) => return Err(error),
        };
        Ok(Self {
            socket: socket.into(),
            is_connected,
            output: Vec::new(),
            written: 0,
            input: Vec::new(),
        })
    }

    /// Adds a request to what is to be written.
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), Malformed> {
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        }
        datagram_batch::append(request, &mut self.output)
    }

    /// What is to be waited for.
    pub(crate) fn interest(&self) -> PollFlags {
        match self.written < self.output.len() || !self.is_connected {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        }
    }

    /// The socket, for waiting.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.is_connected {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            if self.socket.peer_addr().is_err() {
                return Ok(());
            }
            self.is_connected = true;
        }
        while let Some(rest) = self
            .output
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            match self.socket.write(rest) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.output.capacity() > CHUNK_BYTES {
            self.output = Vec::new(); // a large value's room is not kept
            self.written = 0;
        }
        Ok(())
    }

    /// Reads what is there and hands out whole replies. A connection that ended is an error.
    pub(crate) fn receive(&mut self, mut on: impl FnMut(Reply<'_>)) -> io::Result<()> {
        while self.is_connected {
            let start = self.input.len();
            let room = missing(&self.input)
                .unwrap_or(CHUNK_BYTES)
                .clamp(1, CHUNK_BYTES);
            self.input.resize(start + room, 0);
            let read = self
                .socket
                .read(self.input.get_mut(start..).unwrap_or_default());
            self.input.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => self.hand_out(&mut on)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The one frame that may be whole: no more than a frame is read at a time.
    fn hand_out(&mut self, on: &mut impl FnMut(Reply<'_>)) -> io::Result<()> {
        if missing(&self.input) != Some(0) {
            return Ok(());
        }
        let reply = Reply::decode(&self.input).map_err(|_| ErrorKind::InvalidData)?;
        on(reply);
        match self.input.capacity() > CHUNK_BYTES {
            true => self.input = Vec::new(),
            false => self.input.clear(),
        }
        Ok(())
    }
}

/// How many bytes a frame still lacks, as far as its beginning tells; `None` if it can be no frame.
fn missing(input: &[u8]) -> Option<usize> {
    let have = input.len();
    let Some(kind) = input.get(KIND_AT) else {
        return Some(HEADER_BYTES - have);
    };
    if *kind != KIND_RESULT || have < HEADER_BYTES {
        return Some(HEADER_BYTES.saturating_sub(have));
    }
    let Some(length) = input
        .get(LENGTH_AT..RESULT_BYTES)
        .and_then(|words| words.first_chunk::<4>())
    else {
        return Some(RESULT_BYTES - have);
    };
    let value_bytes = u32::from_le_bytes(*length);
    let frame_bytes = RESULT_BYTES + value_bytes as usize;
    (value_bytes <= VALUE_BYTES_MAX).then(|| frame_bytes.saturating_sub(have))
}

/// A connection that is being made.
const IN_PROGRESS: i32 = rustix::io::Errno::INPROGRESS.raw_os_error();
