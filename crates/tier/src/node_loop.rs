//! The thread of a node: receives a batch, has the node take it in, sends what comes of it, and
//! waits until there is more or something is due.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use curtail_codec::tiered::{FrameIp, TierFrame, TierNetwork, UdpEnd};
use curtail_runtime::{
    BindError, DatagramOptions, DatagramSocket, Events, FrameSocket, Inbox, KeyedFrames, Poller,
    Token, Waker, bind_udp,
};

use crate::tier_file::TierFile;

/// A node, as its thread sees it.
pub trait TierNode: Send {
    /// A datagram came from this address.
    fn receive(&mut self, datagram: &[u8], from: SocketAddr);

    /// Does what is due, and sends what was gathered; how long it may wait for more.
    fn turn(&mut self) -> Duration;

    /// Its socket.
    fn inbox(&mut self) -> &mut TierInbox;
}

/// Why a node did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// Its address cannot be bound: another process has it, or it is not this machine's.
    Bind(SocketAddr, BindError),
    /// The system refused something.
    Io(&'static str, io::Error),
    /// The data directory cannot be used.
    Storage(curtail_storage::StorageError),
    /// What was asked for makes no sense.
    Refused(String),
}

/// A node's socket, and what waits for it.
///
/// With encoding `mac` a second one receives what is for addresses of keys, whose MAC address is
/// not the host's; the others are for the host itself.
#[derive(Debug)]
pub struct TierInbox {
    socket: DatagramSocket,
    frames: Option<FrameSocket>,
    poller: Poller,
    events: Events,
    has_more: bool,
}

/// A node that runs in a thread of this process, until this value ends.
#[derive(Debug)]
pub struct NodeThread {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TierInbox {
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, NodeError> {
        let options = DatagramOptions {
            receive_bytes: RECEIVE_BYTES,
            ..DatagramOptions::default()
        };
        let bound = bind_udp(address, options);
        let mut socket = bound.map_err(|error| NodeError::Bind(address, error))?;
        let poller = Poller::new().map_err(|error| NodeError::Io("epoll", error))?;
        let watched = socket.watch(&poller, SOCKET);
        watched.map_err(|error| NodeError::Io("epoll", error.0))?;
        Ok(Self {
            socket,
            frames: None,
            poller,
            events: Events::with_capacity(4),
            has_more: false,
        })
    }

    /// The sockets of a back end or a cache node that receives there.
    pub(crate) fn of_node(file: &TierFile, node: SocketAddr) -> Result<Self, NodeError> {
        let mut inbox = Self::bind(file.bound(node))?;
        if let (TierNetwork::Mac { network, port }, IpAddr::V4(own)) = (file.network(), node.ip()) {
            let frames = FrameSocket::receiver_at(own, KeyedFrames { network, port });
            let frames = frames.map_err(|error| NodeError::Io(FRAMES_NEED, error))?;
            let watched = frames.watch(&inbox.poller, FRAMES);
            watched.map_err(|error| NodeError::Io("epoll", error.0))?;
            inbox.frames = Some(frames);
        }
        Ok(inbox)
    }

    pub(crate) const fn frames(&self) -> Option<&FrameSocket> {
        self.frames.as_ref()
    }

    pub(crate) const fn socket(&self) -> &DatagramSocket {
        &self.socket
    }

    /// Ends a wait from another thread.
    pub(crate) fn waker(&self) -> io::Result<Waker> {
        self.poller.waker(WAKER)
    }

    fn wait(&mut self, left: Duration) {
        let timeout = match self.has_more {
            true => Duration::ZERO,
            false => left.min(LOOK_EVERY),
        };
        // Whatever it is, the socket is looked at, and a wait that fails at once is rare.
        if self.poller.wait(&mut self.events, Some(timeout)).is_err() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn fill(&mut self, batch: &mut NodeBatch) {
        let NodeBatch { datagrams, frames } = batch;
        self.has_more = datagrams.receive(&self.socket) == datagrams.capacity();
        if let Some(socket) = &self.frames {
            self.has_more |= frames.receive_frames(socket) == frames.capacity();
        }
    }
}

/// What a node receives together.
struct NodeBatch {
    datagrams: Inbox,
    frames: Inbox,
}

impl NodeBatch {
    fn new(inbox: &TierInbox) -> Self {
        let frames = if inbox.frames.is_some() { BATCH } else { 0 };
        Self {
            datagrams: Inbox::new(BATCH),
            frames: Inbox::new(frames),
        }
    }

    fn hand_to(&self, node: &mut dyn TierNode) {
        for number in 0..self.datagrams.len() {
            if let Some((datagram, from)) = self.datagrams.get(number) {
                node.receive(datagram, from);
            }
        }
        for number in 0..self.frames.len() {
            let frame = self.frames.bytes(number).and_then(TierFrame::decode);
            if let Some(frame) = frame {
                node.receive(frame.datagram, sender_of(&frame.ends.from));
            }
        }
    }
}

fn sender_of(end: &UdpEnd) -> SocketAddr {
    match end.ip {
        FrameIp::V4(ip) => (ip, end.port).into(),
        FrameIp::V6(ip) => (ip, end.port).into(),
    }
}

/// Runs a node until `stops` is set.
pub fn run(node: &mut dyn TierNode, stops: &AtomicBool) {
    let mut batch = NodeBatch::new(node.inbox());
    let mut left = node.turn();
    // Relaxed: the flag carries nothing with it.
    while !stops.load(Relaxed) {
        node.inbox().wait(left);
        node.inbox().fill(&mut batch);
        batch.hand_to(node);
        left = node.turn();
    }
}

impl NodeThread {
    /// Starts a thread for a node.
    pub fn start(name: &str, mut node: impl TierNode + 'static) -> io::Result<Self> {
        let stops = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stops);
        let named = thread::Builder::new().name(name.to_string());
        let thread = Some(named.spawn(move || run(&mut node, &its))?);
        Ok(Self { stops, thread })
    }
}

impl Drop for NodeThread {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(address, error) => write!(f, "cannot receive at {address}: {error}"),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::Storage(error) => error.fmt(f),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for NodeError {}

const SOCKET: Token = Token(0);
const WAKER: Token = Token(1);
const FRAMES: Token = Token(2);
/// What a socket for frames must have.
const FRAMES_NEED: &str = "a socket for frames (encoding mac needs CAP_NET_RAW)";
/// Datagrams that are received together.
const BATCH: usize = 64;
/// How often a thread looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const RECEIVE_BYTES: usize = 1 << 20;
