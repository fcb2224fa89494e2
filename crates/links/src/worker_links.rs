//! All links of a worker: peers that come and go, new connections, and silent peers.

use curtail_runtime::{Poller, Token};
use curtail_types::{Instant, NodeId};

use crate::{
    Endpoint, LINKS_MAX, LinkEvent, Links, NewLink, PeerNode, TOKEN_MAX, link::PeerLink,
    send_queue::WindowLimits, session::LinkSession,
};

/// A peer, and the links with it.
#[derive(Debug)]
pub(crate) struct Neighbour {
    pub(crate) peer: PeerNode,
    pub(crate) links: Vec<LinkName>,
}

/// Which one of a node's links, and its number here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkName {
    pub(crate) pair: u16,
    pub(crate) large: bool,
    pub(crate) number: usize,
}

/// After how long without anything sent a heartbeat goes, on connections for small and large items.
const HEARTBEAT_NS: [u64; 2] = [50_000_000, 500_000_000];

/// After so many heartbeats that did not come a connection is given up.
const HEARTBEATS_MISSED: u64 = 20;

/// How much more may be unacknowledged on a connection for large items.
const LARGE_WINDOWS: usize = 4;

impl Links {
    /// Takes a connection from the connector.
    pub fn adopt(&mut self, poller: &Poller, new: NewLink) {
        if self.generation != self.connector.shared.roster.generation() {
            self.take_peers();
        }
        let NewLink {
            mut stream,
            greeting,
            attempt,
        } = new;
        let endpoint = Endpoint {
            node: greeting.node,
            pair: greeting.pair,
        };
        let life = |neighbour: &Neighbour| neighbour.peer.incarnation;
        let is_peer = self.neighbour(endpoint.node).map(life) == Some(greeting.incarnation);
        let number = is_peer.then(|| self.open_link(endpoint, greeting.large));
        let Some(number) = number.flatten() else {
            self.connector.lost(attempt);
            return;
        };
        // What the one before was in the middle of is begun again on this one.
        self.disconnect(number);
        if stream.watch(poller, Token(TOKEN_MAX - number)).is_err() {
            self.connector.lost(attempt);
            return;
        }
        if let Some(Some(link)) = self.links.get_mut(number) {
            link.connect(stream, (attempt, greeting.version_max));
            self.line_up(number);
        }
        self.look = self.now;
    }

    /// Takes the present list of peers.
    pub(crate) fn take_peers(&mut self) {
        let roster = &self.connector.shared.roster;
        // The list may be a later one than its number says; then it is taken once more.
        self.generation = roster.generation();
        let (own, peers) = roster.get();
        let is_another_life = std::mem::replace(&mut self.own, own) != own;
        for place in 0..self.neighbours.len() {
            let node = NodeId(place as u8);
            let peer = peers.iter().find(|peer| peer.node == node).copied();
            let known = self.neighbour(node).map(|neighbour| neighbour.peer);
            let life = |peer: PeerNode| peer.incarnation;
            if known.is_some() && (is_another_life || known.map(life) != peer.map(life)) {
                self.remove(node);
            }
            if let Some(peer) = peer.filter(|_| own != 0) {
                self.welcome(peer);
            }
        }
    }

    fn welcome(&mut self, peer: PeerNode) {
        let place = self.neighbours.get_mut(usize::from(peer.node.0));
        match place {
            Some(Some(neighbour)) => neighbour.peer = peer,
            Some(place) => {
                let links = Vec::new();
                *place = Some(Neighbour { peer, links });
                let pair = self.config.worker;
                let node = peer.node;
                // What is sent before there is a connection waits in these.
                self.open_link(Endpoint { node, pair }, false);
                self.open_link(Endpoint { node, pair }, true);
            }
            None => {}
        }
    }

    fn remove(&mut self, node: NodeId) {
        let place = self.neighbours.get_mut(usize::from(node.0));
        let Some(neighbour) = place.and_then(Option::take) else {
            return;
        };
        for name in neighbour.links {
            self.disconnect(name.number);
            if let Some(place) = self.links.get_mut(name.number)
                && let Some(mut link) = place.take()
            {
                link.session.send_queue.clear(&mut self.chunks);
            }
            self.ready.retain(|&number| number != name.number);
            self.dirty.retain(|&number| number != name.number);
        }
        self.events.push_back(LinkEvent::Reset(node));
    }

    /// The number of a link, which is made if there is none; `None` if there are too many.
    fn open_link(&mut self, endpoint: Endpoint, large: bool) -> Option<usize> {
        if let Some(number) = self.number_of(endpoint, large) {
            return Some(number);
        }
        let free = self.links.iter().position(Option::is_none);
        let number = free.unwrap_or(self.links.len());
        if number >= LINKS_MAX {
            return None;
        }
        self.next_stream += 1;
        let times = if large { LARGE_WINDOWS } else { 1 };
        let windows = WindowLimits {
            demand_bytes_max: self.config.demand_bytes_max.saturating_mul(times),
            answer_bytes_max: self.config.answer_bytes_max.saturating_mul(times),
        };
        let session = LinkSession::new(self.next_stream, windows);
        let max = self.config.frame_bytes_max(large);
        let link = Some(Box::new(PeerLink::new(endpoint, large, session, max)));
        match self.links.get_mut(number) {
            Some(place) => *place = link,
            None => self.links.push(link),
        }
        let place = self.neighbours.get_mut(usize::from(endpoint.node.0));
        place?.as_mut()?.links.push(LinkName {
            pair: endpoint.pair,
            large,
            number,
        });
        Some(number)
    }

    /// Has heartbeats sent where nothing else was, and gives up connections that are silent.
    pub(crate) fn look_for_silence(&mut self) {
        let mut next_ns = self.now.ns + HEARTBEAT_NS[0];
        for number in 0..self.links.len() {
            let Some(Some(link)) = self.links.get_mut(number) else {
                continue;
            };
            if !link.is_connected() {
                continue;
            }
            let pause_ns = HEARTBEAT_NS[usize::from(link.large)];
            if link.is_silent(self.now, pause_ns * HEARTBEATS_MISSED) {
                self.give_up(number);
                continue;
            }
            if link.beat_due_ns(pause_ns) <= self.now.ns {
                link.beat(self.view);
                self.line_up(number);
            } else {
                next_ns = next_ns.min(link.beat_due_ns(pause_ns));
            }
        }
        self.look = Instant { ns: next_ns };
    }
}

impl PeerLink {
    /// Whether it is the one by which a worker judges whether the node is there.
    pub(crate) fn is_main(&self, worker: u16) -> bool {
        self.endpoint.pair == worker && !self.large
    }
}
