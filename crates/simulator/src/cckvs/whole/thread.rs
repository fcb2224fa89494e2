//! A thread's turn: what waits is taken, costs time, and ends in packets and answers.

use std::collections::VecDeque;

use curtail_consistency::symmetric::Model;
use curtail_types::{Instant, Message, NodeSet};

use super::{
    Hardware, WholeCluster,
    hot::{Deed, Hot},
    port::{CLASSES, Load, Packet, ThreadId, class},
    run::{Ask, Draw},
};

/// Something that waits for a thread.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// This session asks.
    Issue(u32),
    /// A request of this node for a store thread, or its answer; from whom.
    Local(ThreadId, u32),
    /// It came from another node.
    Packet(Packet),
}

/// One of a node's threads.
pub(super) struct Thread {
    id: ThreadId,
    inbox: VecDeque<Work>,
    turn: Option<Turn>,
    peers: Vec<Peer>,
}

/// What a turn comes to when it is over.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// What it takes, in nanoseconds.
    cost_ns: f64,
    pub(super) done: Vec<u32>,
    pub(super) refused: u64,
    pub(super) packets: Vec<Packet>,
    /// Requests of this node for a store thread of it, and their answers.
    pub(super) local: Vec<(ThreadId, u32)>,
}

/// What a request thread knows of another node.
#[derive(Debug, Default)]
struct Peer {
    /// Requests that may yet be sent, and those that wait for it.
    room: u16,
    waiting: VecDeque<(ThreadId, u32)>,
    classes: [Class; CLASSES],
}

/// Messages about hot writes, of one class.
#[derive(Debug, Default)]
struct Class {
    room: u16,
    waiting: VecDeque<(ThreadId, u64, Message)>,
    /// Those that came since their sender was given room.
    received: u16,
}

/// What a thread's turn needs of everything else.
pub(super) struct Around<'a> {
    pub(super) cluster: &'a WholeCluster,
    pub(super) hot: Option<&'a mut Hot>,
    pub(super) draw: &'a mut Draw,
    pub(super) now: Instant,
}

impl Thread {
    pub(super) fn new(cluster: &WholeCluster, id: ThreadId) -> Self {
        let room = cluster.hardware.requests_outstanding;
        let (credits, _) = credits(&cluster.hardware, cluster.copies);
        let peer = |_| Peer {
            room,
            classes: std::array::from_fn(|_| Class {
                room: credits,
                ..Class::default()
            }),
            ..Peer::default()
        };
        Self {
            id,
            inbox: VecDeque::new(),
            turn: None,
            peers: (0..cluster.nodes).map(peer).collect(),
        }
    }

    pub(super) fn put(&mut self, work: Work) {
        self.inbox.push_back(work);
    }

    /// Begins a turn, if there is something to do and none is under way; what it takes in
    /// nanoseconds.
    pub(super) fn begin(&mut self, around: &mut Around<'_>) -> Option<f64> {
        if self.turn.is_some() || self.inbox.is_empty() {
            return None;
        }
        let mut turn = Turn::default();
        for _ in 0..WORKS_MAX {
            let Some(work) = self.inbox.pop_front() else {
                break;
            };
            let threads = u32::from(around.cluster.hardware.threads);
            match self.id % (2 * threads) < threads {
                true => self.serve_client(work, &mut turn, around),
                false => serve_store(self.id, work, &mut turn, around.cluster),
            }
        }
        let cost_ns = turn.cost_ns;
        self.turn = Some(turn);
        Some(cost_ns)
    }

    pub(super) fn end(&mut self) -> Turn {
        self.turn.take().unwrap_or_default()
    }

    fn serve_client(&mut self, work: Work, turn: &mut Turn, around: &mut Around<'_>) {
        match work {
            Work::Issue(session) => self.issue(session, turn, around),
            Work::Local(_, session) => turn.done.push(session),
            Work::Packet(Packet { from, load, .. }) => {
                turn.cost_ns += around.cluster.hardware.packet_ns / 2.0;
                self.receive((from, load), turn, around);
            }
        }
    }

    fn issue(&mut self, session: u32, turn: &mut Turn, around: &mut Around<'_>) {
        let (cluster, me) = (around.cluster, Place::of(around.cluster, self.id));
        match around.draw.ask(cluster, session) {
            Ask::Hot { rank, writes } => {
                turn.cost_ns += cluster.hardware.item_ns;
                let Some(hot) = around.hot.as_deref_mut() else {
                    return;
                };
                if !writes && hot.is_valid(me.node, rank) {
                    turn.done.push(session);
                    return;
                }
                let mut deeds = Vec::new();
                hot.request((me.node, rank), session, writes, around.now, &mut deeds);
                self.carry_out(rank, deeds, turn, cluster);
            }
            Ask::Cold { node, thread } => {
                let thread = thread.unwrap_or(me.index);
                let to = Place {
                    node,
                    index: cluster.hardware.threads + thread,
                };
                let to = to.id(cluster);
                if node == me.node {
                    turn.local.push((to, session));
                } else if let Some(peer) = self.peers.get_mut(usize::from(node)) {
                    peer.waiting.push_back((to, session));
                    self.send_requests(node, turn, cluster);
                }
            }
        }
    }

    fn receive(&mut self, came: (ThreadId, Load), turn: &mut Turn, around: &mut Around<'_>) {
        let (from, load) = came;
        let (cluster, me) = (around.cluster, Place::of(around.cluster, self.id));
        let node = Place::of(cluster, from).node;
        match load {
            Load::Requests(_) => {}
            Load::Replies(sessions) => {
                if let Some(peer) = self.peers.get_mut(usize::from(node)) {
                    peer.room += sessions.len() as u16;
                }
                turn.done.extend(sessions);
                self.send_requests(node, turn, cluster);
            }
            Load::Hot(rank, message) => {
                turn.cost_ns += cluster.hardware.item_ns;
                self.give_room((from, class(message.kind)), turn, cluster);
                let mut deeds = Vec::new();
                if let Some(hot) = around.hot.as_deref_mut() {
                    hot.receive((me.node, rank), node, message, around.now, &mut deeds);
                }
                self.carry_out(rank, deeds, turn, cluster);
            }
            Load::Credits(class, count) => {
                if let Some(class) = self.class(node, class) {
                    class.room += count;
                }
                self.send_messages((node, class), turn, cluster);
            }
        }
    }

    fn carry_out(&mut self, rank: u64, deeds: Vec<Deed>, turn: &mut Turn, cluster: &WholeCluster) {
        for deed in deeds {
            match deed {
                Deed::Done(session) => turn.done.push(session),
                Deed::Refused(session) => {
                    turn.refused += 1;
                    turn.done.push(session);
                }
                Deed::Send(to, message) => self.say((to, rank), message, turn, cluster),
            }
        }
    }

    fn say(
        &mut self,
        (to, rank): (NodeSet, u64),
        message: Message,
        turn: &mut Turn,
        cluster: &WholeCluster,
    ) {
        let index = Place::of(cluster, self.id).index;
        for node in to.into_iter().map(|to| u16::from(to.0)) {
            let thread = Place { node, index }.id(cluster);
            let class = class(message.kind);
            if let Some(class) = self.class(node, class) {
                class.waiting.push_back((thread, rank, message));
            }
            self.send_messages((node, class), turn, cluster);
        }
    }

    /// A message came: after some of them their sender is given room for as many.
    fn give_room(&mut self, at: (ThreadId, usize), turn: &mut Turn, cluster: &WholeCluster) {
        let (to, class) = at;
        let (_, per_message) = credits(&cluster.hardware, cluster.copies);
        let node = Place::of(cluster, to).node;
        let Some(own) = self.class(node, class) else {
            return;
        };
        own.received += 1;
        if own.received == per_message {
            own.received = 0;
            let load = Load::Credits(class, per_message);
            self.send(to, load, turn, cluster);
        }
    }

    fn send_requests(&mut self, node: u16, turn: &mut Turn, cluster: &WholeCluster) {
        let next = |peers: &mut Vec<Peer>| {
            let peer = peers.get_mut(usize::from(node))?;
            peer.room = peer.room.checked_sub(u16::from(!peer.waiting.is_empty()))?;
            peer.waiting.pop_front()
        };
        while let Some((to, session)) = next(&mut self.peers) {
            self.send(to, Load::Requests(vec![session]), turn, cluster);
        }
    }

    fn send_messages(&mut self, at: (u16, usize), turn: &mut Turn, cluster: &WholeCluster) {
        let (node, class) = at;
        let next = |own: &mut Self| {
            let class = own.class(node, class)?;
            class.room = class
                .room
                .checked_sub(u16::from(!class.waiting.is_empty()))?;
            class.waiting.pop_front()
        };
        while let Some((to, rank, message)) = next(self) {
            self.send(to, Load::Hot(rank, message), turn, cluster);
        }
    }

    fn send(&mut self, to: ThreadId, load: Load, turn: &mut Turn, cluster: &WholeCluster) {
        let from = self.id;
        turn.send(Packet { from, to, load }, cluster);
    }

    fn class(&mut self, node: u16, class: usize) -> Option<&mut Class> {
        self.peers
            .get_mut(usize::from(node))?
            .classes
            .get_mut(class)
    }
}

impl Turn {
    /// A packet to send, or a part of one that is sent anyway.
    fn send(&mut self, packet: Packet, cluster: &WholeCluster) {
        let most = match cluster.coalesces {
            true => usize::from(cluster.hardware.requests_per_packet),
            false => 1,
        };
        let mut left = Some(packet);
        if most > 1 {
            for own in self.packets.iter_mut().rev() {
                left = left.and_then(|packet| own.join(packet, most));
            }
        }
        if let Some(packet) = left {
            self.packets.push(packet);
            self.cost_ns += cluster.hardware.packet_ns / 2.0;
        }
    }
}

/// A store thread's work.
fn serve_store(id: ThreadId, work: Work, turn: &mut Turn, cluster: &WholeCluster) {
    let hardware = &cluster.hardware;
    match work {
        Work::Local(from, session) => {
            turn.cost_ns += hardware.item_ns;
            turn.local.push((from, session));
        }
        Work::Packet(Packet { from, load, .. }) => {
            turn.cost_ns += hardware.packet_ns / 2.0;
            if let Load::Requests(sessions) = load {
                turn.cost_ns += sessions.len() as f64 * hardware.item_ns;
                let (to, load) = (from, Load::Replies(sessions));
                turn.send(Packet { from: id, to, load }, cluster);
            }
        }
        Work::Issue(_) => {}
    }
}

/// A thread as its node and its place there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) node: u16,
    pub(super) index: u16,
}

impl Place {
    pub(super) fn of(cluster: &WholeCluster, id: ThreadId) -> Self {
        let each = 2 * u32::from(cluster.hardware.threads);
        Self {
            node: (id / each) as u16,
            index: (id % each) as u16,
        }
    }

    pub(super) fn id(self, cluster: &WholeCluster) -> ThreadId {
        let each = 2 * u32::from(cluster.hardware.threads);
        u32::from(self.node) * each + u32::from(self.index)
    }
}

/// Credits of a class, and how many a message gives back.
fn credits(hardware: &Hardware, copies: Option<Model>) -> (u16, u16) {
    match copies {
        Some(Model::Lin) => (hardware.lin_credits, hardware.lin_credits_per_message),
        _ => (hardware.sc_credits, hardware.sc_credits_per_message),
    }
}

/// Of one turn.
const WORKS_MAX: usize = 64;
