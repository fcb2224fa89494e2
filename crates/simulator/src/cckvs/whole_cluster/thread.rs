//! A thread's turn: what waits is taken, costs time, and ends in packets and answers.

use std::collections::VecDeque;

use curtail_consistency::replica::Model;

use super::{
    Hardware, WholeCluster,
    hot_keys::Effect,
    port::{CLASSES, Load, Packet, REQUESTS, class},
    run::{Ask, World},
};

/// A thread of the cluster: its node, and its number there; request threads first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) node: u16,
    pub(super) index: u16,
}

/// Something that waits for a thread.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// This session asks.
    Issue(u32),
    /// A request of this node for a store thread, or its answer; from whom.
    Local(Place, u32),
    /// It came from another node.
    Packet(Packet),
}

/// One of a node's threads.
pub(super) struct Thread {
    pub(super) inbox: VecDeque<Work>,
    pub(super) turn: Option<Turn>,
    /// What it sends to each node: first the requests, then messages about hot writes, by class.
    flows: Vec<[Flow; 1 + CLASSES]>,
}

/// What a turn comes to when it is over.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) at: Place,
    /// What it takes, in nanoseconds.
    pub(super) cost_ns: f64,
    pub(super) done: Vec<u32>,
    pub(super) refused: u64,
    pub(super) packets: Vec<Packet>,
    /// Requests of this node for a store thread of it, and their answers.
    pub(super) local: Vec<(Place, u32)>,
}

/// What waits until another node has room for it.
#[derive(Debug, Default)]
struct Flow {
    room: u16,
    waiting: VecDeque<(Place, Load)>,
    /// Those that came from there since the node was given room.
    received: u16,
}

impl Thread {
    pub(super) fn new(cluster: &WholeCluster) -> Self {
        let (credits, _) = credits(&cluster.hardware, cluster.copies);
        let flow = |lane| Flow {
            room: match lane {
                REQUESTS => cluster.hardware.requests_outstanding,
                _ => credits,
            },
            ..Flow::default()
        };
        Self {
            inbox: VecDeque::new(),
            turn: None,
            flows: (0..cluster.nodes)
                .map(|_| std::array::from_fn(flow))
                .collect(),
        }
    }
}

impl World<'_> {
    /// Begins a turn of a thread, if there is something to do and none is under way.
    pub(super) fn begin_turn(&mut self, at: Place) {
        let thread = self.thread(at);
        if thread.turn.is_some() || thread.inbox.is_empty() {
            return;
        }
        let count = thread.inbox.len().min(WORKS_MAX);
        let works: Vec<Work> = thread.inbox.drain(..count).collect();
        let mut turn = Turn {
            at,
            ..Turn::default()
        };
        for work in works {
            match at.index < self.cluster.hardware.threads {
                true => self.serve_client(work, &mut turn),
                false => serve_store(work, &mut turn, self.cluster),
            }
        }
        self.plan_end(at, turn.cost_ns);
        self.thread(at).turn = Some(turn);
    }

    fn serve_client(&mut self, work: Work, turn: &mut Turn) {
        match work {
            Work::Issue(session) => self.serve_session(session, turn),
            Work::Local(_, session) => turn.done.push(session),
            Work::Packet(Packet { from, load, .. }) => {
                turn.cost_ns += self.cluster.hardware.packet_ns / 2.0;
                self.receive(from, load, turn);
            }
        }
    }

    fn serve_session(&mut self, session: u32, turn: &mut Turn) {
        let (hardware, now) = (&self.cluster.hardware, self.now());
        match self.draw.ask(self.cluster, session) {
            Ask::Hot { rank, writes } => {
                turn.cost_ns += hardware.item_ns;
                let Some(hot) = &mut self.hot else {
                    return;
                };
                if !writes && hot.is_valid(turn.at.node, rank) {
                    turn.done.push(session);
                    return;
                }
                let effects = hot.request((turn.at.node, rank), session, writes, now);
                self.carry_out(effects, turn);
            }
            Ask::Cold { node, thread } => {
                let index = hardware.threads + thread.unwrap_or(turn.at.index);
                let to = Place { node, index };
                if node == turn.at.node {
                    turn.local.push((to, session));
                } else {
                    self.send(to, Load::Requests(vec![session]), turn);
                }
            }
        }
    }

    fn receive(&mut self, from: Place, load: Load, turn: &mut Turn) {
        let now = self.now();
        match load {
            Load::Requests(_) => {}
            Load::Replies(sessions) => {
                self.give_room((from.node, REQUESTS), sessions.len() as u16, turn);
                turn.done.extend(sessions);
            }
            Load::Credits(class, count) => self.give_room((from.node, 1 + class), count, turn),
            load => {
                match &load {
                    Load::Answer(..) => self.give_room((from.node, REQUESTS), 1, turn),
                    _ => turn.cost_ns += self.cluster.hardware.item_ns,
                }
                if let Load::Hot(_, message) = &load {
                    self.note_received(from, class(message.kind), turn);
                }
                if let Some(hot) = &mut self.hot {
                    let effects = hot.receive(turn.at.node, from, load, now);
                    self.carry_out(effects, turn);
                }
            }
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>, turn: &mut Turn) {
        let index = turn.at.index;
        for effect in effects {
            match effect {
                Effect::Done(session) => turn.done.push(session),
                Effect::Refused(session) => {
                    turn.refused += 1;
                    turn.done.push(session);
                }
                Effect::Send(to, load) => {
                    for node in to.into_iter().map(|to| u16::from(to.0)) {
                        self.send(Place { node, index }, load.clone(), turn);
                    }
                }
                Effect::Answer(to, load) => turn.send(to, load, self.cluster),
            }
        }
    }

    /// A message came: after some of them their sender is given room for as many.
    fn note_received(&mut self, from: Place, class: usize, turn: &mut Turn) {
        let (_, per_message) = credits(&self.cluster.hardware, self.cluster.copies);
        let flow = &mut self.thread(turn.at).flows[usize::from(from.node)][1 + class];
        flow.received += 1;
        if flow.received == per_message {
            flow.received = 0;
            turn.send(from, Load::Credits(class, per_message), self.cluster);
        }
    }

    fn give_room(&mut self, at: (u16, usize), count: u16, turn: &mut Turn) {
        let (node, lane) = at;
        self.thread(turn.at).flows[usize::from(node)][lane].room += count;
        self.send_waiting(at, turn);
    }

    /// Sends it as soon as there is room.
    fn send(&mut self, to: Place, load: Load, turn: &mut Turn) {
        let lane = load.lane();
        let flow = &mut self.thread(turn.at).flows[usize::from(to.node)][lane];
        flow.waiting.push_back((to, load));
        self.send_waiting((to.node, lane), turn);
    }

    fn send_waiting(&mut self, (node, lane): (u16, usize), turn: &mut Turn) {
        let cluster = self.cluster;
        let flow = &mut self.thread(turn.at).flows[usize::from(node)][lane];
        while flow.room > 0
            && let Some((to, load)) = flow.waiting.pop_front()
        {
            flow.room -= 1;
            turn.send(to, load, cluster);
        }
    }
}

impl Turn {
    /// A packet to send, or a part of one that is sent anyway.
    fn send(&mut self, to: Place, load: Load, cluster: &WholeCluster) {
        let from = self.at;
        let mut left = Some(Packet { from, to, load });
        if cluster.coalesces {
            let most = usize::from(cluster.hardware.requests_per_packet);
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
fn serve_store(work: Work, turn: &mut Turn, cluster: &WholeCluster) {
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
                turn.send(from, Load::Replies(sessions), cluster);
            }
        }
        Work::Issue(_) => {}
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
