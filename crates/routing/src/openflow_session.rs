//! One connection to a switch: greeting, requests and their answers, what the switch tells by
//! itself. It ends with the first thing that is wrong with it; the table then waits for another.

use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use curtail_codec::openflow::{
    DecodedOpenFlow, FlowMod, FlowSelection, FlowStat, HEADER_BYTES, MESSAGE_BYTES_MAX,
    OpenFlowError, OpenFlowMessage, PortChange, PortDescription, encode,
};

use crate::controller_stream::ControllerStream;

/// A connection after its greeting.
#[derive(Debug)]
pub(crate) struct OpenFlowSession {
    stream: ControllerStream,
    /// What has arrived and is not decoded.
    inbox: Vec<u8>,
    transaction: u32,
    timeout: Duration,
    /// What the switch has told of its ports since they were taken.
    ports: Vec<(PortChange, PortDescription)>,
}

/// Why a connection is of no more use.
#[derive(Debug)]
pub(crate) struct SessionLost;

/// What the switch said, apart from echoes and ports.
enum Incoming {
    Hello(bool),
    Features(u64),
    Refused(u32, OpenFlowError),
    Done(u32),
    Flows(u32, Vec<FlowStat>, bool),
    Ports(u32, Vec<PortDescription>, bool),
    /// Handled, or of no interest.
    Nothing,
}

/// Changes that are sent before their barrier is waited for: both sides' buffers take them.
const CHANGES_AT_A_TIME: usize = 512;
/// Ports that a switch may tell of before they are taken; one that tells more is of no use.
const PORTS_MAX: usize = 65_536;

impl From<io::Error> for SessionLost {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl OpenFlowSession {
    /// Greets the switch; its datapath, which has to be `expected` if that is given.
    pub(crate) fn greet(
        stream: ControllerStream,
        timeout: Duration,
        expected: Option<u64>,
    ) -> Result<(Self, u64), SessionLost> {
        let mut session = Self {
            stream,
            inbox: Vec::new(),
            transaction: 0,
            timeout,
            ports: Vec::new(),
        };
        let hello = OpenFlowMessage::Hello {
            is_compatible: true,
        };
        // No flow of ours sends frames to the controller; it is told of ports all the same.
        let config = OpenFlowMessage::SetConfig { miss_bytes: 128 };
        session.send(&[hello, OpenFlowMessage::FeaturesRequest, config])?;
        let deadline = Instant::now() + timeout;
        let mut is_greeted = false;
        loop {
            match session.next(deadline)? {
                Incoming::Hello(true) => is_greeted = true,
                Incoming::Hello(false) | Incoming::Refused(..) => return Err(SessionLost),
                Incoming::Features(datapath)
                    if is_greeted && expected.is_none_or(|one| one == datapath) =>
                {
                    return Ok((session, datapath));
                }
                Incoming::Nothing => {}
                _ => return Err(SessionLost),
            }
        }
    }

    /// Makes changes, in order; the numbers of those that were refused, and why.
    pub(crate) fn change(
        &mut self,
        changes: &[FlowMod],
    ) -> Result<Vec<(usize, OpenFlowError)>, SessionLost> {
        let mut refused = Vec::new();
        for (number, some) in changes.chunks(CHANGES_AT_A_TIME).enumerate() {
            let first = self.transaction.wrapping_add(1);
            let mut messages: Vec<_> = some.iter().copied().map(OpenFlowMessage::FlowMod).collect();
            messages.push(OpenFlowMessage::BarrierRequest);
            let barrier = self.send(&messages)?;
            let deadline = Instant::now() + self.timeout;
            loop {
                match self.next(deadline)? {
                    Incoming::Done(transaction) if transaction == barrier => break,
                    Incoming::Refused(transaction, error) => {
                        let at = transaction.wrapping_sub(first) as usize;
                        if at < some.len() {
                            refused.push((number * CHANGES_AT_A_TIME + at, error));
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(refused)
    }

    /// The flows with these cookies.
    pub(crate) fn flows(&mut self, selection: FlowSelection) -> Result<Vec<FlowStat>, SessionLost> {
        let asked = self.send(&[OpenFlowMessage::FlowStatsRequest(selection)])?;
        let mut all = Vec::new();
        loop {
            // Every part may take as long.
            match self.next(Instant::now() + self.timeout)? {
                Incoming::Flows(transaction, flows, more) if transaction == asked => {
                    all.extend(flows);
                    if !more {
                        return Ok(all);
                    }
                }
                Incoming::Refused(transaction, _) if transaction == asked => {
                    return Err(SessionLost);
                }
                _ => {}
            }
        }
    }

    /// The ports as they are.
    pub(crate) fn ports(&mut self) -> Result<Vec<PortDescription>, SessionLost> {
        let asked = self.send(&[OpenFlowMessage::PortsRequest])?;
        let mut all = Vec::new();
        loop {
            match self.next(Instant::now() + self.timeout)? {
                Incoming::Ports(transaction, ports, more) if transaction == asked => {
                    all.extend(ports);
                    if !more {
                        return Ok(all);
                    }
                }
                Incoming::Refused(transaction, _) if transaction == asked => {
                    return Err(SessionLost);
                }
                _ => {}
            }
        }
    }

    /// Reads what has arrived, without waiting, and answers echoes.
    pub(crate) fn look(&mut self) -> Result<(), SessionLost> {
        self.stream.set_wait(None)?;
        let mut is_open = true;
        while is_open {
            is_open = match self.read() {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
                Err(error) => return Err(error.into()),
            };
        }
        self.stream.set_wait(Some(self.timeout))?;
        while self.decode()?.is_some() {}
        Ok(())
    }

    /// What the switch has told of its ports.
    pub(crate) fn take_ports(&mut self) -> Vec<(PortChange, PortDescription)> {
        std::mem::take(&mut self.ports)
    }

    /// Sends messages together; the transaction of the last.
    fn send(&mut self, messages: &[OpenFlowMessage<'_>]) -> Result<u32, SessionLost> {
        let mut out = Vec::with_capacity(messages.len() * 128);
        let mut room = [0; 1024];
        for message in messages {
            self.transaction = self.transaction.wrapping_add(1);
            let bytes = encode(message, self.transaction, &mut room).ok_or(SessionLost)?;
            out.extend_from_slice(room.get(..bytes).ok_or(SessionLost)?);
        }
        self.stream.write_all(&out)?;
        Ok(self.transaction)
    }

    /// The next message, by then.
    fn next(&mut self, deadline: Instant) -> Result<Incoming, SessionLost> {
        loop {
            if let Some(incoming) = self.decode()? {
                return Ok(incoming);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(SessionLost);
            }
            self.stream.set_wait(Some(left))?;
            match self.read() {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
    }

    /// Reads some bytes behind what is there.
    fn read(&mut self) -> io::Result<()> {
        let mut room = [0; 16_384];
        if self.inbox.len() > MESSAGE_BYTES_MAX + room.len() {
            return Err(io::ErrorKind::WouldBlock.into()); // decode first
        }
        let bytes = self.stream.read(&mut room)?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.inbox
            .extend_from_slice(room.get(..bytes).unwrap_or_default());
        Ok(())
    }

    /// Takes one message off the inbox, if it is whole.
    fn decode(&mut self) -> Result<Option<Incoming>, SessionLost> {
        let (incoming, taken) = match DecodedOpenFlow::of(&self.inbox) {
            DecodedOpenFlow::Incomplete(_) => return Ok(None),
            DecodedOpenFlow::Malformed => return Err(SessionLost),
            DecodedOpenFlow::Complete {
                message: OpenFlowMessage::EchoRequest(echo),
                transaction,
                bytes,
            } => {
                let reply = OpenFlowMessage::EchoReply(echo);
                let mut room = vec![0; HEADER_BYTES + echo.len()];
                let length = encode(&reply, transaction, &mut room).ok_or(SessionLost)?;
                self.stream.set_wait(Some(self.timeout))?;
                self.stream
                    .write_all(room.get(..length).unwrap_or_default())?;
                (Incoming::Nothing, bytes)
            }
            DecodedOpenFlow::Complete {
                message: OpenFlowMessage::PortStatus(change, port),
                bytes,
                ..
            } => {
                if self.ports.len() >= PORTS_MAX {
                    return Err(SessionLost);
                }
                self.ports.push((change, port));
                (Incoming::Nothing, bytes)
            }
            DecodedOpenFlow::Complete {
                message,
                transaction,
                bytes,
            } => (Incoming::of(message, transaction), bytes),
        };
        self.inbox.drain(..taken);
        Ok(Some(incoming))
    }
}

impl Incoming {
    fn of(message: OpenFlowMessage<'_>, transaction: u32) -> Self {
        match message {
            OpenFlowMessage::Hello { is_compatible } => Self::Hello(is_compatible),
            OpenFlowMessage::FeaturesReply { datapath, .. } => Self::Features(datapath),
            OpenFlowMessage::Error(error) => Self::Refused(transaction, error),
            OpenFlowMessage::BarrierReply => Self::Done(transaction),
            OpenFlowMessage::FlowStatsReply { flows, more } => {
                Self::Flows(transaction, flows.collect(), more)
            }
            OpenFlowMessage::PortsReply { ports, more } => {
                Self::Ports(transaction, ports.collect(), more)
            }
            _ => Self::Nothing,
        }
    }
}
