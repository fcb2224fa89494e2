//! A connection during its handshake: buffers bytes in and out, a message at a time.
//!
//! Nothing is received beyond the message that is awaited, so that the frames behind the handshake
//! are left for the worker that gets the connection. What it may take is bounded by the longest
//! message.

use std::net::SocketAddr;

use curtail_codec::node::{Greeting, HandshakeKind};
use curtail_runtime::{Received, Sent};

use crate::{
    handshake::{Handshake, HandshakeEnd, Identity},
    peer_list::PeerList,
    tls::{SPEAKS_TLS, is_tls},
    transport::Transport,
};

/// See the head of this file.
pub(crate) struct PendingHandshake {
    pub(crate) stream: Transport,
    pub(crate) address: SocketAddr,
    /// The attempt, on the side that connects.
    pub(crate) attempt: Option<u64>,
    /// When it must be done.
    pub(crate) until_ns: u64,
    handshake: Handshake,
    incoming: [u8; Greeting::BYTES],
    received: usize,
    outgoing: Vec<u8>,
    end: Option<HandshakeEnd>,
    readable: bool,
    writable: bool,
}

/// Bytes from which the length of a message is known, and which every message has.
const BEGINNING_BYTES: usize = 8;

impl PendingHandshake {
    /// A connection that this side makes in this attempt, or that the other side has made.
    pub(crate) fn new(
        stream: Transport,
        (address, attempt): (SocketAddr, Option<u64>),
        (handshake, outgoing): (Handshake, Vec<u8>),
        until_ns: u64,
    ) -> Self {
        // Before it is connected it can neither send nor receive; the poller reports when.
        let is_connected = attempt.is_none();
        Self {
            stream,
            address,
            attempt,
            until_ns,
            handshake,
            incoming: [0; Greeting::BYTES],
            received: 0,
            outgoing,
            end: None,
            readable: is_connected,
            writable: is_connected,
        }
    }

    pub(crate) fn note_readiness(&mut self, read: bool, write: bool) {
        self.readable |= read;
        self.writable |= write;
    }

    /// Goes on as far as it can; how it ended, if it has.
    pub(crate) fn step(&mut self, me: &Identity, roster: &PeerList) -> Option<HandshakeEnd> {
        loop {
            if !self.send() || !self.push() {
                return Some(HandshakeEnd::Broken);
            }
            if !self.outgoing.is_empty() {
                return None;
            }
            if self.end.is_some() {
                return self.end;
            }
            match self.receive() {
                Ok(Some(bytes)) => {
                    self.received = 0;
                    let message = self.incoming.get(..bytes).unwrap_or_default();
                    (self.outgoing, self.end) = self.handshake.take(me, roster, message);
                }
                Ok(None) => return None,
                Err(end) => return Some(end),
            }
        }
    }

    /// Sends what there is; false if the connection broke.
    fn send(&mut self) -> bool {
        while self.writable && !self.outgoing.is_empty() {
            match self.stream.send(&self.outgoing) {
                Sent::Bytes(0) => self.writable = false,
                Sent::Bytes(bytes) => drop(self.outgoing.drain(..bytes)),
                Sent::Broken => return false,
            }
        }
        true
    }

    /// Sends what TLS has to say.
    fn push(&mut self) -> bool {
        let is_well = !self.writable || self.stream.push();
        self.writable &= !self.stream.holds_back();
        is_well
    }

    /// Why it broke, if there is something that an operator can do about it.
    pub(crate) fn advice(&self) -> Option<String> {
        let arrived = self.incoming.get(..self.received).unwrap_or_default();
        match self.stream.fault() {
            Some(fault) => Some(fault.advice()),
            None => is_tls(arrived).then(|| SPEAKS_TLS.to_owned()),
        }
    }

    /// Receives until the awaited message is complete; its length.
    fn receive(&mut self) -> Result<Option<usize>, HandshakeEnd> {
        while self.readable {
            let arrived = self.incoming.get(..self.received).unwrap_or_default();
            let needed = match HandshakeKind::of(arrived) {
                Ok(None) => BEGINNING_BYTES,
                Ok(Some((_, bytes))) => bytes,
                Err(_) => return Err(HandshakeEnd::Broken),
            };
            if self.received == needed {
                return Ok(Some(needed));
            }
            let room = self.incoming.get_mut(self.received..needed);
            match self.stream.receive(room.unwrap_or_default()) {
                Received::Bytes(bytes) => self.received += bytes,
                Received::Nothing => self.readable = false,
                Received::End => return Err(HandshakeEnd::Broken),
            }
        }
        Ok(None)
    }
}

const _: () = assert!(BEGINNING_BYTES <= curtail_codec::node::HandshakeRefusal::BYTES);
