//! Datagrams that one system call sends together at the end of a turn.
//!
//! The paper puts several requests into one buffer of the card (JB-14); a datagram of this protocol
//! holds one, so the batch is in the call (`sendmmsg`). What the socket does not take is kept for
//! the next flush.

use std::{
    io::{self, ErrorKind, IoSlice},
    net::UdpSocket,
    ops::Range,
};

use curtail_codec::native::{EncodeError, Malformed, Request};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

/// Datagrams waiting to be sent, one behind another.
#[derive(Debug, Default)]
pub(crate) struct SendBatch {
    bytes: Vec<u8>,
    datagrams: Vec<Range<usize>>,
    sent: usize,
}

impl SendBatch {
    /// Adds a request; what is wrong with it otherwise.
    pub(crate) fn push(&mut self, request: &Request<'_>) -> Result<(), Malformed> {
        let start = self.bytes.len();
        append(request, &mut self.bytes)?;
        self.datagrams.push(start..self.bytes.len());
        Ok(())
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.datagrams.len()
    }

    /// Whether it is as long as one call should carry.
    pub(crate) fn is_full(&self) -> bool {
        self.datagrams.len() - self.sent >= DATAGRAMS_MAX
    }

    /// Sends what the socket takes. A server that is not there is no error: it may come.
    pub(crate) fn flush(&mut self, socket: &UdpSocket) -> io::Result<()> {
        while !self.is_empty() {
            let waiting = self.datagrams.get(self.sent..).unwrap_or_default();
            let sent = match waiting {
                [only] => socket
                    .send(self.bytes.get(only.clone()).unwrap_or_default())
                    .map(|_| 1),
                many => send_many(socket, &self.bytes, many),
            };
            match sent {
                Ok(count) => self.sent += count.max(1),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted => {}
                    // What an earlier datagram met (the port was closed) is told at a later call,
                    // which then has sent nothing.
                    ErrorKind::ConnectionRefused => {}
                    ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => break,
                    _ => return Err(error),
                },
            }
        }
        self.bytes.clear();
        self.datagrams.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Appends a frame; what is wrong with the request otherwise.
pub(crate) fn append(request: &Request<'_>, output: &mut Vec<u8>) -> Result<(), Malformed> {
    let start = output.len();
    let key_bytes = request.key.map_or(0, |key| key.bytes().len());
    let bytes = curtail_codec::native::HEADER_BYTES + key_bytes + request.value.len();
    output.resize(start + bytes, 0);
    let room = output.get_mut(start..).unwrap_or_default();
    let outcome = match request.encode(room) {
        Ok(_) => return Ok(()),
        Err(EncodeError::Malformed(why)) => why,
        Err(_) => Malformed::Length,
    };
    output.truncate(start);
    Err(outcome)
}

fn send_many(socket: &UdpSocket, bytes: &[u8], datagrams: &[Range<usize>]) -> io::Result<usize> {
    let some = datagrams.get(..DATAGRAMS_MAX).unwrap_or(datagrams);
    let slice = |range: &Range<usize>| [IoSlice::new(bytes.get(range.clone()).unwrap_or_default())];
    let slices: Vec<[IoSlice<'_>; 1]> = some.iter().map(slice).collect();
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> = Vec::new();
    controls.resize_with(slices.len(), SendAncillaryBuffer::default);
    let pairs = slices.iter().zip(&mut controls);
    let mut messages: Vec<MMsgHdr<'_>> = pairs
        .map(|(slice, control)| MMsgHdr::new(slice, control))
        .collect();
    Ok(sendmmsg(socket, &mut messages, SendFlags::empty())?)
}

/// Datagrams in one call.
const DATAGRAMS_MAX: usize = 64;
