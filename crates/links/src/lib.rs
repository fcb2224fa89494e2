//! Links to the workers of other nodes: what one worker sends to them and receives from them.
//!
//! ```text
//!   connector (a thread)           worker: one turn
//!   connections that   mailbox  begin_turn   peers, silence, heartbeats
//!   proved themselves --------> adopt        the poller watches its socket
//!                               receive      frames that arrived, in order, each once
//!                               send ...     parts; those of one kind share a frame (CC-41)
//!                               flush        one send per connection
//! ```
//!
//! A worker is linked with one worker of each node, or with several of a node that has more
//! (CC-31), and over two connections each: what is large has one of its own. A link outlives its
//! connections: what was not received is sent again over the next one ([`session`]). It ends when
//! its node leaves the list of peers or returns as another incarnation; then [`LinkEvent::Reset`]
//! reports that everything outstanding there is lost.
//!
//! Nothing here waits. What a peer does not take makes sends be refused ([`SendError::Full`]),
//! never memory grow: that is bounded by the windows, for each link and class.

#![forbid(unsafe_code)]

mod chunk_pool;
mod connector;
mod handshake;
mod link;
mod log_once;
mod peer_list;
mod pending_handshake;
mod reconnect;
mod send_queue;
mod session;
mod tls;
mod transport;
mod worker_links;

use std::collections::VecDeque;

use curtail_codec::node::{Class, Frame, FrameShape, HEADER_BYTES, Part};
use curtail_runtime::{Readiness, Token};
use curtail_types::{Instant, NodeId, NodeSet, ViewNumber};

use crate::{
    chunk_pool::{CHUNK_BYTES, ChunkPool},
    link::{AREA_BYTES, Broken, PeerLink},
    send_queue::Pushed,
    worker_links::{LinkName, Neighbour},
};
pub use crate::{
    connector::{Connector, ConnectorConfig, ConnectorError, ConnectorHandle, NewLink},
    peer_list::PeerNode,
    tls::{Tls, TlsError},
};

/// One worker's links; see the head of this file.
#[derive(Debug)]
pub struct Links {
    config: LinksConfig,
    connector: ConnectorHandle,
    /// Which list of peers it goes by.
    generation: u64,
    /// The incarnation of this node that they belong to.
    own: u64,
    /// By the number of the node.
    neighbours: Vec<Option<Neighbour>>,
    /// By the number of the link, which its token is made of.
    links: Vec<Option<Box<PeerLink>>>,
    /// Links with something to receive, in the order of their turn.
    ready: VecDeque<usize>,
    /// Links with something to send.
    dirty: Vec<usize>,
    chunks: ChunkPool,
    area: Vec<u8>,
    events: VecDeque<LinkEvent>,
    /// The view that heartbeats say is in force.
    view: ViewNumber,
    now: Instant,
    /// When to look next for links that are silent.
    look: Instant,
    counted: LinkCounts,
    /// Nothing is received on connections for large items.
    holds_large: bool,
    /// Names streams; begins with a time, so that no other incarnation of this worker has the same.
    next_stream: u64,
}

/// How one worker's links are made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinksConfig {
    /// The worker, below [`ConnectorConfig::workers`].
    pub worker: u16,
    /// Bytes of unacknowledged demands for each link, and four times as many on the connection for
    /// large items; a single one may be longer.
    pub demand_bytes_max: usize,
    /// The same for answers.
    pub answer_bytes_max: usize,
    /// The longest part, in bytes; it is what one connection may make this node hold.
    pub part_bytes_max: usize,
}

/// The far end of a link: one of the workers of a node. Answers go where the request came from.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Endpoint {
    /// The node.
    pub node: NodeId,
    /// Which of the links between the two nodes.
    pub pair: u16,
}

/// Why something was not sent. It has no effect then.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum SendError {
    /// Too much is unacknowledged already; try again when the peer has caught up.
    Full,
    /// The node is not in the list of peers, or has no such link.
    Unknown,
    /// It is longer than this node sends or the peer takes; it never will be sent.
    TooLarge,
}

/// What happened to the links with a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkEvent {
    /// Small items arrive and leave.
    Up(NodeId),
    /// They do not at the moment; what was sent is kept and goes on with the next connection.
    Down(NodeId),
    /// Whatever was sent to it and not answered is lost, done or not; whatever it sent and was not
    /// answered need not be.
    Reset(NodeId),
}

/// What links did, since the counts were taken last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkCounts {
    /// Frames that were begun.
    pub frames: u64,
    /// What was put into them.
    pub parts: u64,
    /// Messages about keys among that.
    pub messages: u64,
    /// Frames of such messages.
    pub message_frames: u64,
    /// System calls that sent.
    pub sends: u64,
    /// System calls that received something.
    pub receives: u64,
}

/// The token of link 0; those of the others are below. The one above is left to its worker.
const TOKEN_MAX: usize = usize::MAX - 1;

/// Links that a worker may have.
const LINKS_MAX: usize = 1 << 16;

/// Longer parts travel on the connection for large ones.
const SMALL_PART_BYTES_MAX: usize = 8 << 10;

/// After so many bytes received the other connections wait for the next turn.
const RECEIVE_BYTES_MAX: usize = 512 << 10;

impl LinksConfig {
    /// What suits values of `item_bytes_max`, for one worker.
    pub fn for_items(worker: u16, item_bytes_max: usize) -> Self {
        Self {
            worker,
            demand_bytes_max: 1 << 20,
            answer_bytes_max: 2 << 20,
            // Beside its value an item has a key, and a reply its line.
            part_bytes_max: item_bytes_max + (4 << 10),
        }
    }

    fn frame_bytes_max(&self, large: bool) -> usize {
        match large {
            true => self.part_bytes_max + HEADER_BYTES + 64,
            false => CHUNK_BYTES,
        }
    }
}

impl Links {
    /// The links of a worker; `started_ns` is the time in Unix nanoseconds.
    pub fn new(connector: ConnectorHandle, config: LinksConfig, started_ns: u64) -> Self {
        Self {
            config,
            connector,
            generation: 0,
            own: 0,
            neighbours: (0..NodeSet::NODES_MAX).map(|_| None).collect(),
            links: Vec::new(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            chunks: ChunkPool::default(),
            area: vec![0; AREA_BYTES],
            events: VecDeque::new(),
            view: ViewNumber::default(),
            now: Instant { ns: 0 },
            look: Instant { ns: 0 },
            counted: LinkCounts::default(),
            holds_large: false,
            next_stream: started_ns.max(1),
        }
    }

    /// The incarnation of a node that it is linked with.
    #[cfg(test)]
    fn incarnation(&self, node: NodeId) -> Option<u64> {
        self.neighbour(node)
            .map(|neighbour| neighbour.peer.incarnation)
    }

    /// Whether a token is one of a link's.
    #[inline]
    pub const fn owns(token: Token) -> bool {
        token.0 <= TOKEN_MAX && token.0 > TOKEN_MAX - LINKS_MAX
    }

    /// Notes what the poller reports about a link.
    #[inline]
    pub fn note_event(&mut self, token: Token, readiness: Readiness) {
        let number = TOKEN_MAX.wrapping_sub(token.0);
        if let Some(Some(link)) = self.links.get_mut(number) {
            link.note_readiness(readiness);
            self.line_up(number);
        }
    }

    /// The view that the next heartbeats say is in force.
    pub fn set_view(&mut self, view: ViewNumber) {
        self.view = view;
    }

    /// Looks at what may differ from turn to turn: the list of peers, and silent links.
    pub fn begin_turn(&mut self, now: Instant) {
        self.now = now;
        if self.generation != self.connector.shared.roster.generation() {
            self.take_peers();
        }
        if now >= self.look {
            self.look_for_silence();
        }
    }

    /// The link with a node that this worker begins with.
    pub fn endpoint(&self, node: NodeId) -> Option<Endpoint> {
        self.neighbour(node)?;
        let pair = self.config.worker;
        Some(Endpoint { node, pair })
    }

    /// Whether the peer speaks this version. Not known before its first connection.
    pub fn speaks(&self, to: Endpoint, version: u8) -> bool {
        let number = self.number_of(to, false);
        let link = number.and_then(|number| self.links.get(number)?.as_ref());
        link.is_some_and(|link| link.version >= version)
    }

    /// Whether small items arrive at `node` at the moment.
    #[cfg(test)]
    pub fn is_up(&self, node: NodeId) -> bool {
        self.main_link(node)
            .is_some_and(|link| link.session.is_running())
    }

    /// Appends `part` to what goes to `to` with the next [`Links::flush`]. What is long goes on the
    /// connection for large items whatever `class` says; the order between the two is not kept.
    ///
    /// # Errors
    /// When there is no such peer, too much on the way to it, or it is too large.
    pub fn send(&mut self, to: Endpoint, class: Class, part: &Part<'_>) -> Result<(), SendError> {
        let payload = part.payload();
        self.send_filled(to, class, part, payload.len(), |room| {
            room.copy_from_slice(payload);
        })
    }

    /// The same for a part whose payload of `payload_bytes` bytes is not in one piece: `fill`
    /// writes it to where it is sent from. The payload in `part` is not looked at.
    ///
    /// # Errors
    /// As [`Links::send`].
    pub fn send_filled(
        &mut self,
        to: Endpoint,
        class: Class,
        part: &Part<'_>,
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let bytes = part.bytes_with(payload_bytes);
        let class = match class {
            _ if bytes <= SMALL_PART_BYTES_MAX => class,
            Class::Demand | Class::LargeDemand => Class::LargeDemand,
            Class::Answer | Class::LargeAnswer => Class::LargeAnswer,
        };
        let number = self
            .number_of(to, class.is_large())
            .ok_or(SendError::Unknown)?;
        let Some(Some(link)) = self.links.get_mut(number) else {
            return Err(SendError::Unknown);
        };
        let whole = FrameShape::of(class, part).bytes() + bytes;
        let max = self.config.frame_bytes_max(class.is_large());
        if whole > max.min(link.session.frame_bytes_max) {
            return Err(SendError::TooLarge);
        }
        let chunks = &mut self.chunks;
        let frames_before = link.session.send_queue.frames_begun;
        match link
            .session
            .push(chunks, (class, part), payload_bytes, fill)
        {
            Pushed::Taken => {}
            Pushed::Full => return Err(SendError::Full),
            Pushed::Unfit => return Err(SendError::TooLarge),
        }
        let frames = link.session.send_queue.frames_begun - frames_before;
        self.counted.frames += frames;
        self.counted.parts += 1;
        if matches!(part, Part::Replica(_)) {
            self.counted.messages += 1;
            self.counted.message_frames += frames;
        }
        if !link.is_dirty {
            link.is_dirty = true;
            self.dirty.push(number);
        }
        Ok(())
    }

    /// Sends what was appended, with one call for each connection.
    pub fn flush(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for number in dirty.drain(..) {
            let Some(Some(link)) = self.links.get_mut(number) else {
                continue;
            };
            link.is_dirty = false;
            match link.send(self.now, &mut self.counted) {
                Ok(()) => self.line_up(number),
                Err(Broken) => self.give_up(number),
            }
        }
        // Those that have more came back into the other list; this one keeps its memory.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    /// Hands every frame that has arrived to `each`, in the order of its sender, once; of a bounded
    /// number of links, and of each a bounded number of bytes.
    pub fn receive(&mut self, mut each: impl FnMut(Endpoint, &Frame<'_>)) {
        let mut bytes_left = RECEIVE_BYTES_MAX;
        for _ in 0..self.ready.len() {
            if bytes_left == 0 {
                return;
            }
            let Some(number) = self.ready.pop_front() else {
                return;
            };
            let Some(Some(link)) = self.links.get_mut(number) else {
                continue;
            };
            link.in_line = false;
            let memory = (self.area.as_mut_slice(), &mut self.chunks);
            let counts = (self.now, &mut self.counted);
            let (received, happened) = link.receive(memory, counts, &mut each);
            bytes_left = bytes_left.saturating_sub(happened.bytes);
            let (node, is_main) = (link.endpoint.node, link.is_main(self.config.worker));
            if happened.reset {
                self.events.push_back(LinkEvent::Reset(node));
            }
            if happened.up && is_main {
                self.events.push_back(LinkEvent::Up(node));
            }
            match received {
                Ok(()) => self.line_up(number),
                Err(Broken) => self.give_up(number),
            }
        }
    }

    /// What happened to links since the last call, the oldest first.
    pub fn next_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// Bytes of memory that hold what was not acknowledged and what is not complete.
    pub fn held_bytes(&self) -> usize {
        self.chunks.bytes()
    }

    /// Has what is large wait where it is, with its sender in the end, or come again.
    pub fn hold_large(&mut self, hold: bool) {
        if std::mem::replace(&mut self.holds_large, hold) && !hold {
            (0..self.links.len()).for_each(|number| self.line_up(number));
        }
    }

    /// What was counted since the last call.
    pub fn take_counts(&mut self) -> LinkCounts {
        std::mem::take(&mut self.counted)
    }

    /// Whether there is something to receive or to send without an event.
    pub fn wants_turn(&self) -> bool {
        !(self.ready.is_empty() && self.dirty.is_empty())
    }

    /// When the next turn should be at the latest; `None` if there is no link.
    pub fn due(&self) -> Option<Instant> {
        let any = self.links.iter().flatten().any(|link| link.is_connected());
        any.then_some(self.look)
    }

    /// Puts a link into the lists of those with something to do.
    fn line_up(&mut self, number: usize) {
        let Some(Some(link)) = self.links.get_mut(number) else {
            return;
        };
        let is_held = link.large && self.holds_large;
        if !link.in_line && !is_held && link.wants_to_receive() {
            link.in_line = true;
            self.ready.push_back(number);
        }
        if !link.is_dirty && link.wants_to_send() {
            link.is_dirty = true;
            self.dirty.push(number);
        }
    }

    fn neighbour(&self, node: NodeId) -> Option<&Neighbour> {
        self.neighbours.get(usize::from(node.0))?.as_ref()
    }

    fn number_of(&self, to: Endpoint, large: bool) -> Option<usize> {
        let links = &self.neighbour(to.node)?.links;
        let is_it = |name: &&LinkName| (name.pair, name.large) == (to.pair, large);
        Some(links.iter().find(is_it)?.number)
    }

    #[cfg(test)]
    fn main_link(&self, node: NodeId) -> Option<&PeerLink> {
        let number = self.number_of(self.endpoint(node)?, false)?;
        self.links.get(number)?.as_deref()
    }

    /// Ends the connection of a link, and has another made.
    fn give_up(&mut self, number: usize) {
        let attempt = match self.links.get(number) {
            Some(Some(link)) => link.attempt,
            _ => return,
        };
        self.disconnect(number);
        self.connector.lost(attempt);
    }

    fn disconnect(&mut self, number: usize) {
        let Some(Some(link)) = self.links.get_mut(number) else {
            return;
        };
        let was_up = link.session.is_running() && link.is_main(self.config.worker);
        link.disconnect(&mut self.chunks);
        if was_up {
            self.events.push_back(LinkEvent::Down(link.endpoint.node));
        }
    }
}

const _: () = assert!(SMALL_PART_BYTES_MAX + 64 < CHUNK_BYTES);

#[cfg(test)]
mod tests;
