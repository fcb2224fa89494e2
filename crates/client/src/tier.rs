//! A client of a cache tier (SwitchKV: Li, dissertation, 2016, section 2.2.1): it addresses every
//! request by its key, and the network brings it to the cache node that has the key, or to the
//! key's back end.
//!
//! [`TierSession`] is a blocking client: it sends again what is not answered, a `get` then past the
//! cache node (SW-14).

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use curtail_codec::tiered::{
    DATAGRAM_BYTES_MAX, FrameEnds, MacAddress, TierAddress, TierEnd, TierFrame, TieredDatagram,
    TieredFlags, TieredHead, TieredOpcode, TieredStatus, WRITE_RETRY_NS,
};
use curtail_types::{BackEndId, Cas, Key};

pub use curtail_codec::tiered::{GetPath, PartitionMap, TierNetwork, TierRequests, TierTarget};

/// An item, as a `get` finds it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TierValue {
    /// Its value.
    pub value: Vec<u8>,
    /// The 32 bits that are kept with it.
    pub flags: u32,
    /// Its version.
    pub version: Cas,
    /// Whether a cache node answered.
    pub is_from_cache: bool,
}

/// Why a request has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum TierClientError {
    /// The key is empty or too long, or key and value do not fit a datagram; nothing was sent.
    TooLong,
    /// The back end serves no more now, or has just started; nothing was changed.
    Busy,
    /// The store refused the write: it is full, or its disk fails. Nothing was changed.
    Refused,
    /// No answer. A write may have been executed, or may not.
    Unanswered,
    /// The back end has another map than this client.
    WrongPartition {
        /// The back end's map.
        epoch: u32,
    },
    /// The socket failed.
    Io(io::Error),
}

/// What a client of a tier sends and receives by.
///
/// Replies come to an ordinary socket. Requests leave by it, too, but with encoding `mac` as
/// frames, because no ordinary socket can name an address of a key (SW-87).
#[derive(Debug)]
pub struct TierSocket {
    socket: UdpSocket,
    own: TierEnd,
    frames: Option<FrameWay>,
    room: Box<[u8]>,
}

/// How whole Ethernet frames leave the interface of an IPv4 address: for example by a socket of the
/// family AF_PACKET (`curtail_runtime::FrameSocket`).
pub struct FrameWay {
    mac: MacAddress,
    send: SendFrame,
}

/// Sends a frame.
type SendFrame = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

impl FrameWay {
    /// Frames leave by an interface with this MAC address.
    pub fn new(
        mac: MacAddress,
        send: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let send = Box::new(send);
        Self { mac, send }
    }
}

impl fmt::Debug for FrameWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameWay").finish_non_exhaustive()
    }
}

impl TierSocket {
    /// A socket to a tier; `frames` opens what sends frames from an address of this host, and is
    /// only asked with encoding `mac`.
    ///
    /// # Errors
    /// There is no way to the switch, or frames cannot be sent.
    pub fn open(
        target: &TierTarget,
        frames: impl FnOnce(Ipv4Addr) -> io::Result<FrameWay>,
    ) -> io::Result<Self> {
        let socket = bind_towards(target)?;
        let at = socket.local_addr()?;
        let (own, frames) = match (target.network, at) {
            (TierNetwork::Mac { .. }, SocketAddr::V4(v4)) => {
                let way = frames(*v4.ip())?;
                let own = TierEnd::of_client(at, way.mac);
                (own.map_err(io::Error::other)?, Some(way))
            }
            _ => (at.into(), None),
        };
        Ok(Self {
            socket,
            own,
            frames,
            room: vec![0; DATAGRAM_BYTES_MAX + TierFrame::HEADERS_BYTES_MAX].into_boxed_slice(),
        })
    }

    /// Where it receives.
    pub const fn own(&self) -> TierEnd {
        self.own
    }

    /// The socket that receives.
    pub const fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn send(&mut self, to: TierEnd, datagram: &[u8]) -> io::Result<()> {
        let ends = (self.own.in_frame(), to.in_frame());
        let (Some(frames), (Some(from), Some(to))) = (&mut self.frames, ends) else {
            return self.socket.send_to(datagram, to.socket).map(|_| ());
        };
        let ends = FrameEnds { from, to };
        let bytes = TierFrame { ends, datagram }.encode(&mut self.room);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        (frames.send)(self.room.get(..bytes).unwrap_or_default())
    }
}

/// The way to frames of a client that has none.
fn no_frames(_: Ipv4Addr) -> io::Result<FrameWay> {
    let why = "encoding mac: a client sends frames; open it with `TierSession::with_socket`";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// A blocking client: one request at a time.
#[derive(Debug)]
pub struct TierSession {
    socket: TierSocket,
    requests: TierRequests,
    patience: Duration,
    repeated: u64,
    room: Box<[u8]>,
}

impl TierSession {
    /// How long a request is repeated.
    pub const PATIENCE: Duration = Duration::from_nanos(WRITE_RETRY_NS);

    /// A client with this number, 256 or more, which no other client of the tier has.
    ///
    /// # Errors
    /// There is no way to the tier, or it takes frames (encoding `mac`): see
    /// [`with_socket`](Self::with_socket).
    pub fn open(target: TierTarget, sender: u32) -> io::Result<Self> {
        Ok(Self::with_socket(
            TierSocket::open(&target, no_frames)?,
            target,
            sender,
        ))
    }

    /// The same by a socket that was opened before.
    pub fn with_socket(socket: TierSocket, target: TierTarget, sender: u32) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let sequence = u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(1);
        Self {
            requests: TierRequests::new(target, sender, socket.own(), sequence),
            socket,
            patience: Self::PATIENCE,
            repeated: 0,
            room: vec![0; DATAGRAM_BYTES_MAX + 1].into_boxed_slice(),
        }
    }

    /// Requests that had to be sent again.
    pub const fn repeated(&self) -> u64 {
        self.repeated
    }

    /// How long a request is repeated, at most [`PATIENCE`](Self::PATIENCE).
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience.min(Self::PATIENCE);
    }

    /// The item of a key; `None` if there is none.
    ///
    /// # Errors
    /// The tier does not answer, or refuses.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<TierValue>, TierClientError> {
        let named = Key::new(key).map_err(|_| TierClientError::TooLong)?;
        let head = self.requests.head(TieredOpcode::Get, named);
        let reply = self.ask(head, named, &[])?;
        let head = reply.head;
        Ok((head.status == TieredStatus::Done).then(|| TierValue {
            value: reply.value,
            flags: head.item_flags,
            version: head.version,
            is_from_cache: head.flags.has(TieredFlags::FROM_CACHE),
        }))
    }

    /// Stores an item that ends at `expiry`, in Unix seconds, or never; its version.
    ///
    /// # Errors
    /// The tier does not answer, or refuses; see [`TierClientError`] for what is known then.
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expiry: Option<u32>,
    ) -> Result<Cas, TierClientError> {
        let named = Key::new(key).map_err(|_| TierClientError::TooLong)?;
        let mut head = self.requests.head(TieredOpcode::Put, named);
        head.item_flags = flags;
        if let Some(expiry) = expiry {
            head.flags = TieredFlags::EXPIRES;
            head.exptime = expiry;
        }
        Ok(self.ask(head, named, value)?.head.version)
    }

    /// Removes the item of a key; whether there was one.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<bool, TierClientError> {
        let named = Key::new(key).map_err(|_| TierClientError::TooLong)?;
        let head = self.requests.head(TieredOpcode::Delete, named);
        let reply = self.ask(head, named, &[])?;
        Ok(reply.head.status == TieredStatus::Done)
    }

    /// Removes every item of one back end.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    pub fn flush(&mut self, back_end: BackEndId) -> Result<(), TierClientError> {
        let (head, key) = self.requests.flush(back_end);
        self.ask(head, key, &[]).map(|_| ())
    }

    /// Sends a request until it is answered or patience ends.
    fn ask(
        &mut self,
        first: TieredHead,
        key: Key<'_>,
        value: &[u8],
    ) -> Result<OwnedReply, TierClientError> {
        let began = Instant::now();
        let mut head = first;
        let mut wait = FIRST_WAIT;
        // Whether some attempt has neither an answer nor a refusal.
        let mut is_open = false;
        loop {
            self.send(&head, key, value)?;
            let reply = self.receive(&head, wait)?;
            match reply {
                Some(reply) if reply.head.status == TieredStatus::NotCached => {
                    head = self.requests.past_caches(head, key);
                    continue;
                }
                Some(reply) if reply.head.status != TieredStatus::Busy => {
                    return known(reply);
                }
                Some(_) => std::thread::sleep(wait),
                None => is_open = true,
            }
            if began.elapsed() + wait >= self.patience {
                return Err(match is_open {
                    true => TierClientError::Unanswered,
                    false => TierClientError::Busy,
                });
            }
            self.repeated += 1;
            if is_open {
                head = self.requests.again(head, key);
            }
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    fn send(
        &mut self,
        head: &TieredHead,
        key: Key<'_>,
        value: &[u8],
    ) -> Result<(), TierClientError> {
        let datagram = TieredDatagram {
            head: *head,
            key: Some(key),
            value,
        };
        let encoded = datagram.encode(&mut self.room, None);
        let bytes = encoded.map_err(|_| TierClientError::TooLong)?;
        let to = self.requests.destination(head);
        let datagram = self.room.get(..bytes).unwrap_or_default();
        match self.socket.send(to, datagram) {
            Ok(()) => Ok(()),
            // An earlier datagram found nobody: as if it were lost.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(TierClientError::Io(error)),
        }
    }

    fn receive(
        &mut self,
        asked: &TieredHead,
        wait: Duration,
    ) -> Result<Option<OwnedReply>, TierClientError> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let socket = self.socket.socket();
            let set = socket.set_read_timeout(Some(left));
            set.map_err(TierClientError::Io)?;
            let bytes = match socket.recv(&mut self.room) {
                Ok(bytes) => bytes,
                Err(error) if is_passing(error.kind()) => continue,
                Err(error) => return Err(TierClientError::Io(error)),
            };
            let datagram = self.room.get(..bytes).unwrap_or_default();
            let reply = self.requests.reply(datagram);
            if let Some(reply) = reply.filter(|one| TierRequests::answers(asked, &one.head)) {
                return Ok(Some(OwnedReply {
                    head: reply.head,
                    value: reply.value.to_vec(),
                }));
            }
        }
    }
}

/// A socket by which the nodes of a tier can reply: it has this host's address on the way to the
/// switch.
///
/// # Errors
/// There is no way to the switch.
pub fn bind_towards(target: &TierTarget) -> io::Result<UdpSocket> {
    let key = curtail_types::KeyAddress::default();
    let switch = target.network.destination(TierAddress::back_end(key));
    let switch = switch.socket;
    let here: SocketAddr = match switch {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let probe = UdpSocket::bind(here)?;
    probe.connect(switch)?;
    let mut own = probe.local_addr()?;
    drop(probe);
    own.set_port(0);
    UdpSocket::bind(own)
}

struct OwnedReply {
    head: TieredHead,
    value: Vec<u8>,
}

/// A reply that ends its request.
fn known(reply: OwnedReply) -> Result<OwnedReply, TierClientError> {
    match reply.head.status {
        TieredStatus::Done
        | TieredStatus::NotFound
        | TieredStatus::NotStored
        | TieredStatus::Exists
        | TieredStatus::NotANumber => Ok(reply),
        TieredStatus::WrongPartition => Err(TierClientError::WrongPartition {
            epoch: reply.head.epoch,
        }),
        TieredStatus::TooLarge => Err(TierClientError::TooLong),
        TieredStatus::Refused => Err(TierClientError::Refused),
        TieredStatus::Busy => Err(TierClientError::Busy),
        // A client that is asked to go elsewhere has done so.
        TieredStatus::NotCached => Err(TierClientError::Unanswered),
    }
}

fn is_passing(error: io::ErrorKind) -> bool {
    use io::ErrorKind as K;
    matches!(
        error,
        K::WouldBlock | K::TimedOut | K::Interrupted | K::ConnectionRefused
    )
}

impl fmt::Display for TierClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("key and value do not fit into a datagram"),
            Self::Busy => f.write_str("the back end is busy; nothing was changed"),
            Self::Refused => {
                f.write_str("the back end's store is full or has failed; nothing was changed")
            }
            Self::Unanswered => {
                f.write_str("no answer; if it was a write, it may have been executed")
            }
            Self::WrongPartition { epoch } => {
                write!(
                    f,
                    "the back end uses the map of epoch {epoch}: read the tier's file again"
                )
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TierClientError {}

const FIRST_WAIT: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_millis(320);

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use curtail_codec::tiered::{FrameIp, PartitionMap};

    use super::*;

    /// Its back ends have addresses of loopback, so that there is a way to them.
    const TARGET: TierTarget = TierTarget {
        network: TierNetwork::Mac {
            network: [127, 77],
            port: 11_300,
        },
        map: PartitionMap {
            epoch: 1,
            back_ends: 2,
        },
        gets: GetPath::ByKey,
    };

    /// Goal: with encoding `mac` a request leaves as a frame to the address of its key, and says
    /// where the reply goes; what is repeated goes to the back end. Method: frames are kept, not
    /// sent.
    #[test]
    fn requests_leave_as_frames() {
        let mac = [0x0a, 0, 0, 0, 1, 1];
        let sent = Arc::new(Mutex::new(Vec::new()));
        let frames = Arc::clone(&sent);
        let socket = TierSocket::open(&TARGET, |own| {
            assert!(own.is_loopback());
            Ok(FrameWay::new(mac, move |frame| {
                frames.lock().unwrap().push(frame.to_vec());
                Ok(())
            }))
        });
        let mut session = TierSession::with_socket(socket.unwrap(), TARGET, 256);
        session.set_patience(Duration::from_millis(50));
        let unanswered = session.get(b"key");
        assert!(matches!(unanswered, Err(TierClientError::Unanswered)));
        let key = PartitionMap::route(Key::new(b"key").unwrap());
        let key = TARGET.map.address(key);
        let ways = [TierAddress::get(key), TierAddress::back_end(key)];
        let sent = sent.lock().unwrap();
        assert!(sent.len() >= 2, "it was repeated");
        for (frame, way) in sent.iter().zip(ways) {
            let frame = TierFrame::decode(frame).unwrap();
            let to = frame.ends.to;
            let expected = FrameIp::V4(key_ip(key));
            assert_eq!((to.mac, to.ip, to.port), (way.to_mac(), expected, 11_300));
            assert_eq!(frame.ends.from.mac, mac);
            let request = TieredDatagram::decode(frame.datagram, None).unwrap();
            assert_eq!((request.head.client_mac, request.head.address), (mac, way));
            assert_eq!(request.head.client_port, frame.ends.from.port);
        }
    }

    fn key_ip(key: curtail_types::KeyAddress) -> [u8; 4] {
        TierAddress::get(key).to_ipv4([127, 77])
    }

    /// A host that cannot send frames is told what to do, and so is one with an interface to which
    /// no switch brings a reply.
    #[test]
    fn who_cannot_be_a_client_of_frames_is_told() {
        let refused = TierSession::open(TARGET, 256).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        let card = [0x52, 0x54, 0, 1, 2, 3];
        let refused = TierSocket::open(&TARGET, |_| Ok(FrameWay::new(card, |_| Ok(()))));
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("as 0a:00:00:00:01:01"), "{why}");
    }
}
