//! The connector: one thread that opens and accepts connections between nodes, authenticates both
//! sides, and gives each connection to its worker.
//!
//! ```text
//!   set_peers ---> dials ---> connect --+                      +--> worker 0
//!   a link is lost --^                  +--> handshake ok? ----+--> worker 1
//!   node port ---> accept --------------+        | no          +--> ...
//!                                                v
//!                                   retry after a pause; logged once
//! ```
//!
//! Bounds: handshakes under way at a time, bytes of one, time for one. Strangers can cost no more.

use std::{
    cmp::Reverse,
    fs::File,
    io::{self, Read},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use curtail_codec::node::{Greeting, Nonce, cluster_hash};
use curtail_runtime::{
    BindError, Clock, Events, Listener, PeerAddress, Poller, SocketOptions, Token, Waker, bind_tcp,
    connect_tcp, lock,
};
use curtail_types::NodeId;
use thiserror::Error;

use crate::{
    PeerNode,
    handshake::{Handshake, HandshakeEnd, Identity},
    log_once::Complaints,
    peer_list::PeerList,
    pending_handshake::PendingHandshake,
    reconnect::Dials,
    tls::Tls,
    transport::Transport,
};

/// See the head of this file.
pub struct Connector {
    me: Identity,
    listener: Listener,
    address: SocketAddr,
    poller: Poller,
    events: Events,
    random: File,
    clock: Clock,
    shared: Arc<ConnectorShared>,
    dials: Dials,
    pending: Vec<Option<Box<PendingHandshake>>>,
    complaints: Complaints,
    tls: Option<Tls>,
    deliver: Box<dyn Fn(usize, NewLink) + Send>,
    say: Box<dyn Fn(&str) + Send>,
}

/// What a connector is started with.
pub struct ConnectorConfig {
    /// This node.
    pub node: NodeId,
    /// The cluster's name.
    pub cluster: String,
    /// What every node of the cluster knows and nobody else.
    pub secret: Vec<u8>,
    /// Where to listen for nodes; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Workers that have links.
    pub workers: u16,
    /// What connections are secured with, if they are to be.
    pub tls: Option<Tls>,
    /// The oldest and the newest version of the protocol that it speaks.
    pub versions: (u8, u8),
    /// Hands a connection to a worker, by its index.
    pub deliver: Box<dyn Fn(usize, NewLink) + Send>,
    /// Tells the operator.
    pub say: Box<dyn Fn(&str) + Send>,
}

/// Why a connector could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The node port could not be listened on.
    #[error("cannot listen for nodes: {0}")]
    Bind(BindError),
    /// A system call failed.
    #[error("cannot {0}: {1}; check the limits of the process (ulimit -a)")]
    System(&'static str, io::Error),
}

/// Makes an error of a failed system call by which the connector tried to do `attempt`.
const fn system(attempt: &'static str) -> impl FnOnce(io::Error) -> ConnectorError {
    move |error| ConnectorError::System(attempt, error)
}

/// What most of the calls are for.
const WATCH: &str = "watch the links between nodes (epoll)";

/// A connection that has proved itself, on its way to its worker.
#[derive(Debug)]
pub struct NewLink {
    pub(crate) stream: Transport,
    /// What the peer has said of itself and of the link, in the version that both speak.
    pub(crate) greeting: Greeting,
    pub(crate) attempt: u64,
}

/// What the connector shares with the threads that use it.
#[derive(Debug)]
pub(crate) struct ConnectorShared {
    pub(crate) roster: PeerList,
    orders: Mutex<Vec<ConnectorCommand>>,
    waker: Waker,
}

/// What other threads ask of the connector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ConnectorCommand {
    /// There is another list of peers.
    Peers,
    /// The link of an attempt of ours is not connected any more.
    Lost(u64),
    /// End.
    Stop,
}

/// Reaches the connector from other threads.
#[derive(Clone, Debug)]
pub struct ConnectorHandle {
    pub(crate) shared: Arc<ConnectorShared>,
    address: SocketAddr,
}

const WAKER: Token = Token(usize::MAX);
const LISTENER: Token = Token(usize::MAX - 1);

/// Handshakes that others have begun, at a time; beyond, one is given up for each.
const PENDING_MAX: usize = 64;

/// Connections taken in one turn.
const ACCEPTS_MAX: usize = 32;

/// How long a handshake may take, with connecting.
const HANDSHAKE_NS_MAX: u64 = 2_000_000_000;

/// How long to wait when the process is out of descriptors.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);

/// How long to wait when there is nothing to do.
const TICK: Duration = Duration::from_secs(1);

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 256;

impl Connector {
    /// Listens on the node port; nothing happens before [`Connector::run`].
    ///
    /// # Errors
    /// When the port cannot be listened on, or the system refuses a poller or randomness.
    pub fn bind(config: ConnectorConfig) -> Result<Self, ConnectorError> {
        let options = SocketOptions {
            backlog: BACKLOG,
            listens: true,
        };
        let mut listener = bind_tcp(config.listen, options).map_err(ConnectorError::Bind)?;
        let poller = Poller::new().map_err(system(WATCH))?;
        let waker = poller.waker(WAKER).map_err(system(WATCH))?;
        let watched = listener.watch(&poller, LISTENER);
        watched.map_err(|error| ConnectorError::System(WATCH, error.0))?;
        let me = Identity {
            node: config.node,
            incarnation: 0,
            workers: config.workers.max(1),
            cluster: cluster_hash(&config.cluster),
            secret: config.secret,
            versions: config.versions,
        };
        let shared = ConnectorShared {
            roster: PeerList::default(),
            orders: Mutex::default(),
            waker,
        };
        Ok(Self {
            me,
            address: listener.tcp_address().unwrap_or(config.listen),
            listener,
            poller,
            events: Events::with_capacity(PENDING_MAX),
            random: File::open("/dev/urandom").map_err(system("open /dev/urandom"))?,
            clock: Clock::start(),
            shared: Arc::new(shared),
            dials: Dials::default(),
            pending: Vec::new(),
            complaints: Complaints::default(),
            tls: config.tls,
            deliver: config.deliver,
            say: config.say,
        })
    }

    /// What reaches it from other threads.
    pub fn handle(&self) -> ConnectorHandle {
        ConnectorHandle {
            shared: Arc::clone(&self.shared),
            address: self.address,
        }
    }

    /// Makes and takes connections until it is stopped.
    pub fn run(mut self) {
        let mut accepts = true;
        loop {
            let orders = std::mem::take(&mut *lock(&self.shared.orders));
            if orders.contains(&ConnectorCommand::Stop) {
                return;
            }
            orders.into_iter().for_each(|order| self.follow(order));
            let more = if accepts { self.accept() } else { None };
            accepts = more.is_some();
            self.dial();
            self.step_all();
            let timeout = more.unwrap_or_else(|| self.pause());
            if self.poller.wait(&mut self.events, Some(timeout)).is_err() {
                continue;
            }
            let pending = &mut self.pending;
            self.events.for_each(|token, readiness| match token {
                LISTENER => accepts = true,
                Token(slot) => {
                    if let Some(Some(pending)) = pending.get_mut(slot) {
                        pending.note_readiness(readiness.read, readiness.write);
                    }
                }
            });
        }
    }

    fn follow(&mut self, order: ConnectorCommand) {
        let now_ns = self.now_ns();
        match order {
            ConnectorCommand::Peers => {
                let (own, peers) = self.shared.roster.get();
                // Handshakes of another incarnation of this node are dropped.
                if self.me.incarnation != own {
                    self.me.incarnation = own;
                    self.dials.clear();
                    self.pending.clear();
                }
                let peers: &[PeerNode] = if own == 0 { &[] } else { &peers };
                self.dials.set_peers(self.me.node, self.me.workers, peers);
            }
            ConnectorCommand::Lost(attempt) => self.dials.lose(attempt, now_ns),
            ConnectorCommand::Stop => {}
        }
    }

    fn now_ns(&self) -> u64 {
        self.clock.now().instant.ns
    }

    /// How long there is nothing to do.
    fn pause(&self) -> Duration {
        let pending = self.pending.iter().flatten();
        let until_ns = pending
            .map(|pending| pending.until_ns)
            .chain(self.dials.due_ns())
            .min();
        let ns = until_ns.map(|until_ns| until_ns.saturating_sub(self.now_ns()));
        // A poller counts in milliseconds and would wait for less than one not at all.
        ns.map_or(TICK, |ns| TICK.min(Duration::from_nanos(ns + 1_000_000)))
    }

    /// Takes connections of others; after how long there may be more, if there may.
    fn accept(&mut self) -> Option<Duration> {
        for _ in 0..ACCEPTS_MAX {
            let (stream, address) = match self.listener.accept() {
                Ok(Some((stream, PeerAddress::Tcp(address)))) => (stream, address),
                Ok(_) => return None,
                Err(_) => return Some(OUT_OF_DESCRIPTORS),
            };
            if let Some(nonce) = self.nonce() {
                let wire = match &self.tls {
                    None => Some(Transport::plain(stream)),
                    Some(tls) => tls.accept(stream),
                };
                if let Some(wire) = wire {
                    self.begin(wire, (address, None), Handshake::accept(nonce));
                }
            }
        }
        Some(Duration::ZERO)
    }

    /// Begins the connections that are due.
    fn dial(&mut self) {
        let now_ns = self.now_ns();
        while let Some((dial, attempt)) = self.dials.next_due(now_ns) {
            let (peer, of_link) = (dial.peer, (dial.pair, dial.large));
            let stream = connect_tcp(peer.address).ok();
            let wire = stream.and_then(|stream| match &self.tls {
                None => Some(Transport::plain(stream)),
                Some(tls) => tls.connect(stream, peer.address.ip()),
            });
            let Some((wire, nonce)) = wire.zip(self.nonce()) else {
                self.fail(Some(attempt));
                continue;
            };
            let handshake = Handshake::connect(&self.me, peer, of_link, nonce);
            self.begin(wire, (peer.address, Some(attempt)), handshake);
        }
    }

    fn nonce(&mut self) -> Option<Nonce> {
        let mut nonce = Nonce::default();
        self.random.read_exact(&mut nonce).ok()?;
        Some(nonce)
    }

    fn begin(
        &mut self,
        mut wire: Transport,
        name: (SocketAddr, Option<u64>),
        handshake: (Handshake, Vec<u8>),
    ) {
        let (slot, now_ns) = (self.free_slot(name.1.is_none()), self.now_ns());
        if wire.watch(&self.poller, Token(slot)).is_err() {
            return self.fail(name.1);
        }
        if let Some(place) = self.pending.get_mut(slot) {
            let until_ns = now_ns + HANDSHAKE_NS_MAX;
            let pending = PendingHandshake::new(wire, name, handshake, until_ns);
            *place = Some(Box::new(pending));
        }
    }

    /// An attempt of ours has failed, if it is one.
    fn fail(&mut self, attempt: Option<u64>) {
        if let Some(attempt) = attempt {
            self.dials.fail(attempt, self.now_ns());
        }
    }

    /// A slot for another handshake. Those of others are bounded; ours are as many as there are
    /// links.
    fn free_slot(&mut self, of_other: bool) -> usize {
        let pending = self.pending.iter().enumerate();
        let theirs: Vec<_> = pending
            .filter_map(|(slot, pending)| {
                let pending = pending.as_ref().filter(|it| it.attempt.is_none())?;
                Some((slot, pending.address.ip(), pending.until_ns))
            })
            .collect();
        if of_other
            && theirs.len() >= PENDING_MAX
            && let Some(slot) = victim(&theirs)
        {
            drop(self.pending.get_mut(slot).and_then(Option::take));
            return slot;
        }
        if let Some(slot) = self.pending.iter().position(Option::is_none) {
            return slot;
        }
        self.pending.push(None);
        self.pending.len() - 1
    }

    fn step_all(&mut self) {
        let now_ns = self.now_ns();
        for slot in 0..self.pending.len() {
            let Some(Some(pending)) = self.pending.get_mut(slot) else {
                continue;
            };
            let attempt = pending.attempt;
            let end = match pending.step(&self.me, &self.shared.roster) {
                _ if attempt.is_some_and(|attempt| !self.dials.is_wanted(attempt)) => {
                    Some(HandshakeEnd::Broken)
                }
                None if now_ns >= pending.until_ns => Some(HandshakeEnd::Broken),
                end => end,
            };
            if let Some(end) = end
                && let Some(pending) = self.pending.get_mut(slot).and_then(Option::take)
            {
                self.finish(*pending, end);
            }
        }
    }

    fn finish(&mut self, pending: PendingHandshake, end: HandshakeEnd) {
        let (address, attempt) = (pending.address.ip(), pending.attempt);
        if let HandshakeEnd::Linked(greeting) = end {
            self.complaints.forget(address);
            return self.link(pending, greeting);
        }
        self.fail(attempt);
        let complaint = match end {
            HandshakeEnd::Refuses(reason) => self.complaints.about(address, reason, true),
            HandshakeEnd::IsRefused(reason) => self.complaints.about(address, reason, false),
            HandshakeEnd::Linked(_) => None,
            HandshakeEnd::Broken => {
                let advice = pending.advice();
                advice.and_then(|advice| self.complaints.about_tls(address, advice))
            }
        };
        if let Some(complaint) = complaint {
            (self.say)(&complaint);
        }
    }

    fn link(&mut self, pending: PendingHandshake, greeting: Greeting) {
        let PendingHandshake {
            mut stream,
            attempt,
            ..
        } = pending;
        if let Some(attempt) = attempt {
            let Some(dial) = self.dials.succeed(attempt) else {
                return;
            };
            self.dials.add(dial.peer, greeting.workers);
        }
        stream.unwatch(&self.poller);
        let worker = usize::from(greeting.pair % self.me.workers);
        let link = NewLink {
            stream,
            greeting,
            attempt: attempt.unwrap_or(0),
        };
        (self.deliver)(worker, link);
    }
}

/// Which of others' handshakes (slot, address, end) is given up for another one: the oldest of
/// the address that has most, so that nodes get links however often a stranger connects.
fn victim(theirs: &[(usize, IpAddr, u64)]) -> Option<usize> {
    let count = |address: IpAddr| theirs.iter().filter(|other| other.1 == address).count();
    let worst = theirs
        .iter()
        .max_by_key(|(_, address, until_ns)| (count(*address), Reverse(*until_ns)));
    worst.map(|(slot, ..)| *slot)
}

impl ConnectorHandle {
    /// Where nodes are listened for, with the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes another list of peers, for this incarnation of this node: another one has no link in
    /// common with the one before. From the list this node may be absent or not. Links to nodes
    /// that are not in it, or have another incarnation, end and are reset.
    pub fn set_peers(&self, own: u64, peers: Vec<PeerNode>) {
        self.shared.roster.set(own, peers);
        self.order(ConnectorCommand::Peers);
    }

    /// Ends the connector; links that are connected stay so until their workers drop them.
    pub fn stop(&self) {
        self.order(ConnectorCommand::Stop);
    }

    /// The connection of an attempt is gone; 0 for those that the other side makes.
    pub(crate) fn lost(&self, attempt: u64) {
        if attempt != 0 {
            self.order(ConnectorCommand::Lost(attempt));
        }
    }

    fn order(&self, order: ConnectorCommand) {
        lock(&self.shared.orders).push(order);
        self.shared.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a stranger that connects again and again pushes no node out. Method: one address with
    /// many handshakes, all later than those of others.
    #[test]
    fn who_has_most_handshakes_gives_one_up() {
        let [node, other, stranger] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let theirs = [
            (0, node, 100),
            (3, stranger, 300),
            (4, stranger, 200),
            (5, other, 150),
            (7, stranger, 400),
        ];
        assert_eq!(victim(&theirs), Some(4));
        assert_eq!(victim(&theirs[..2]), Some(0));
        assert_eq!(victim(&[]), None);
    }
}
