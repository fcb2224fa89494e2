//! Counters of a node, as lines of text, and how they are asked for.

use std::{
    fmt, io,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use curtail_codec::tiered::{
    DATAGRAM_BYTES_MAX, HEADER_BYTES, HostId, TierAddress, TierSecret, TieredDatagram, TieredHead,
    TieredOpcode,
};

use crate::outbox::TierOutbox;

/// What a node has counted: a name and a number each.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeStatus {
    /// In the order in which the node names them.
    pub counters: Vec<(String, u64)>,
}

/// Why there is no status of a node.
#[derive(Debug)]
#[non_exhaustive]
pub enum StatusError {
    /// It does not answer: it does not run, or has another secret.
    Silent(SocketAddr),
    /// No socket, or nothing can be sent.
    Io(io::Error),
}

impl NodeStatus {
    /// A counter's number; 0 if the node has no such counter.
    pub fn get(&self, name: &str) -> u64 {
        let found = self.counters.iter().find(|(own, _)| own == name);
        found.map_or(0, |(_, number)| *number)
    }

    fn parse(text: &str) -> Self {
        let counters = text.lines().filter_map(|line| {
            let (name, number) = line.split_once(' ')?;
            Some((name.to_string(), number.parse().ok()?))
        });
        Self {
            counters: counters.collect(),
        }
    }
}

/// Asks the node that receives at this address for its counters.
///
/// # Errors
/// It does not answer within half a second.
pub fn ask_status(at: SocketAddr, secret: &TierSecret) -> Result<NodeStatus, StatusError> {
    let here: SocketAddr = match at {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(here).map_err(StatusError::Io)?;
    socket.connect(at).map_err(StatusError::Io)?;
    let wait = Some(PATIENCE / ATTEMPTS);
    socket.set_read_timeout(wait).map_err(StatusError::Io)?;
    let own = socket.local_addr().map_err(StatusError::Io)?;
    let head = TieredHead {
        client_ip: mapped(own),
        client_port: own.port(),
        ..TieredHead::new(TieredOpcode::Status, TierAddress::host(HostId(0)))
    };
    let (key, value) = (None, &[][..]);
    let asked = TieredDatagram { head, key, value };
    let mut room = [0; DATAGRAM_BYTES_MAX + 1];
    for _ in 0..ATTEMPTS {
        let Ok(bytes) = asked.encode(&mut room, Some(secret)) else {
            break;
        };
        // A port that nobody has is told by the next call; that is silence, too.
        if socket.send(room.get(..bytes).unwrap_or_default()).is_err() {
            continue;
        }
        let Ok(bytes) = socket.recv(&mut room) else {
            continue;
        };
        let answer = TieredDatagram::decode(room.get(..bytes).unwrap_or_default(), Some(secret));
        if let Ok(answer) = answer
            && answer.head.opcode == TieredOpcode::StatusText
        {
            return Ok(NodeStatus::parse(&String::from_utf8_lossy(answer.value)));
        }
    }
    Err(StatusError::Silent(at))
}

/// An address as it stands in a header.
pub(crate) fn mapped(address: SocketAddr) -> [u8; 16] {
    match address {
        SocketAddr::V4(ip) => ip.ip().to_ipv6_mapped().octets(),
        SocketAddr::V6(ip) => ip.ip().octets(),
    }
}

/// Answers who asked.
pub(crate) fn answer<N: fmt::Display>(
    outbox: &mut TierOutbox,
    head: &TieredHead,
    counters: &[(N, u64)],
) {
    let Some(to) = outbox.client_of(head) else {
        return;
    };
    let mut text = String::new();
    for (name, number) in counters {
        let line = format!("{name} {number}\n");
        if text.len() + line.len() <= DATAGRAM_BYTES_MAX - HEADER_BYTES {
            text.push_str(&line);
        }
    }
    let host = HostId(u32::MAX);
    let datagram = TieredDatagram {
        head: TieredHead::new(TieredOpcode::StatusText, TierAddress::host(host)),
        key: None,
        value: text.as_bytes(),
    };
    outbox.push(to, &datagram);
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(at) => write!(f, "there is no answer from {at}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StatusError {}

const PATIENCE: Duration = Duration::from_millis(600);
const ATTEMPTS: u32 = 3;
