//! The event loop, what sessions ask for, and what is counted.

use curtail_types::Instant;
use curtail_workload::{Popularity, Random, Ranks, mix};

use super::{
    Count, WholeCluster, WholeOutcome,
    hot_keys::Hot,
    port::{Packet, Port, pass_ps},
    thread::{Place, Thread, Work},
};
use crate::{
    cckvs::{CACHED_SHARE, MessageBytes, STORED_KEYS, Shards, TrafficShares},
    event_queue::EventQueue,
    histogram::Histogram,
};

/// What a session asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    /// A key that every node has.
    Hot { rank: u64, writes: bool },
    /// One that `node` has; there with a thread of its own if exclusive.
    Cold { node: u16, thread: Option<u16> },
}

/// Draws what is asked for.
pub(super) struct Draw {
    random: Random,
    ranks: Ranks,
    /// Where the keys are.
    placement: u64,
    /// For each session, whether its request is for a hot key.
    hits: Vec<bool>,
}

/// Latencies in nanoseconds.
#[derive(Debug, Default)]
struct Latencies {
    sum: u64,
    of: Histogram,
}

/// Something that happens.
#[derive(Debug)]
enum Event {
    TurnOver(Place),
    /// A packet is at the port of its node.
    Came(Box<Packet>),
    /// A port has passed one.
    Passed(usize),
}

pub(super) struct World<'a> {
    pub(super) cluster: &'a WholeCluster,
    bytes: MessageBytes,
    planned: EventQueue<Event>,
    now_ps: u64,
    threads: Vec<Thread>,
    /// Every node's to the switch, then every node's from there.
    ports: Vec<Port>,
    pub(super) hot: Option<Hot>,
    pub(super) draw: Draw,
    /// For each session, when it asked.
    asked_ps: Vec<u64>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    completed: u64,
    hits: u64,
    refused: u64,
    sent: TrafficShares<Count>,
    latencies: Latencies,
    /// When measuring began, and with how many completed.
    since_ps: u64,
    before: u64,
}

pub(super) fn run(cluster: &WholeCluster) -> WholeOutcome {
    let mut world = World::new(cluster);
    let sessions = u64::from(cluster.threads()) * u64::from(cluster.sessions);
    let warm = sessions * u64::from(cluster.warm_up);
    while world.tally.completed < warm + cluster.requests {
        let Some((at, event)) = world.planned.next() else {
            break;
        };
        world.now_ps = at;
        world.happen(event);
        if world.tally.before == 0 && world.tally.completed >= warm.max(1) {
            world.tally = Tally {
                completed: world.tally.completed,
                before: world.tally.completed,
                since_ps: at,
                ..Tally::default()
            };
        }
    }
    world.outcome()
}

impl<'a> World<'a> {
    fn new(cluster: &'a WholeCluster) -> Self {
        let nodes = usize::from(cluster.nodes);
        let all = 2 * cluster.threads();
        let ways = match cluster.coalesces {
            true => 2 * usize::from(cluster.hardware.threads) * nodes,
            false => 0,
        };
        let cached = (STORED_KEYS as f64 * CACHED_SHARE) as u64;
        let hot = cluster.copies;
        let leaving = (0..nodes).map(|_| Port::joining(ways));
        let coming = (0..nodes).map(|_| Port::default());
        let mut world = Self {
            cluster,
            bytes: MessageBytes::paper(cluster.value_bytes),
            planned: EventQueue::default(),
            now_ps: 0,
            threads: (0..all).map(|_| Thread::new(cluster)).collect(),
            ports: leaving.chain(coming).collect(),
            hot: hot.map(|model| Hot::new(cluster.nodes, model, cached)),
            draw: Draw::new(cluster, cached),
            asked_ps: Vec::new(),
            tally: Tally::default(),
        };
        let sessions = cluster.threads() * cluster.sessions;
        world.draw.hits = vec![false; sessions as usize];
        world.asked_ps = vec![0; sessions as usize];
        (0..sessions).for_each(|session| world.issue(session));
        world
    }

    fn happen(&mut self, event: Event) {
        let nodes = usize::from(self.cluster.nodes);
        match event {
            Event::TurnOver(at) => self.end_turn(at),
            Event::Came(packet) => {
                let port = nodes + usize::from(packet.to.node);
                self.ports[port].put(*packet, usize::MAX, 1);
                self.pass(port);
            }
            Event::Passed(port) => {
                match self.ports[port].end() {
                    Some(packet) if port < nodes => {
                        let wire_ps = (self.cluster.hardware.wire_ns * 1e3) as u64;
                        let came = Event::Came(Box::new(packet));
                        self.planned.plan(self.now_ps + wire_ps, came);
                    }
                    Some(packet) => self.give(packet.to, Work::Packet(packet)),
                    None => {}
                }
                self.pass(port);
            }
        }
    }

    pub(super) fn now(&self) -> Instant {
        let ns = self.now_ps / 1000;
        Instant { ns }
    }

    pub(super) fn thread(&mut self, at: Place) -> &mut Thread {
        let each = 2 * usize::from(self.cluster.hardware.threads);
        &mut self.threads[usize::from(at.node) * each + usize::from(at.index)]
    }

    /// Something for a thread to do.
    fn give(&mut self, at: Place, work: Work) {
        self.thread(at).inbox.push_back(work);
        self.begin_turn(at);
    }

    /// A turn that takes so long begins.
    pub(super) fn plan_end(&mut self, at: Place, cost_ns: f64) {
        let over = self.now_ps + (cost_ns * 1e3) as u64;
        self.planned.plan(over, Event::TurnOver(at));
    }

    fn end_turn(&mut self, at: Place) {
        let Some(turn) = self.thread(at).turn.take() else {
            return;
        };
        let port = usize::from(at.node);
        for packet in turn.packets {
            let nodes = usize::from(self.cluster.nodes);
            let way = usize::from(at.index) * nodes + usize::from(packet.to.node);
            let most = usize::from(self.cluster.hardware.requests_per_packet);
            self.ports[port].put(packet, way, most);
            self.pass(port);
        }
        for (to, session) in turn.local {
            self.give(to, Work::Local(at, session));
        }
        self.tally.refused += turn.refused;
        for session in turn.done {
            self.tally.completed += 1;
            self.tally.hits += u64::from(self.draw.hits[session as usize]);
            let took_ps = self.now_ps - self.asked_ps[session as usize];
            self.tally.latencies.note(took_ps / 1000);
            self.issue(session);
        }
        self.begin_turn(at);
    }

    /// A session asks any node, as the paper's clients do.
    fn issue(&mut self, session: u32) {
        let (nodes, threads) = (self.cluster.nodes, self.cluster.hardware.threads);
        let random = &mut self.draw.random;
        let node = random.below(u64::from(nodes)) as u16;
        let index = random.below(u64::from(threads)) as u16;
        self.asked_ps[session as usize] = self.now_ps;
        self.give(Place { node, index }, Work::Issue(session));
    }

    /// A port passes its next packet, which is counted where it leaves.
    fn pass(&mut self, port: usize) {
        let leaves = port < usize::from(self.cluster.nodes);
        if let Some(packet) = self.ports[port].begin() {
            let bytes = match leaves {
                true => packet.count(&self.bytes, &mut self.tally.sent),
                false => packet.count(&self.bytes, &mut TrafficShares::default()),
            };
            let over = self.now_ps + pass_ps(self.cluster, bytes);
            self.planned.plan(over, Event::Passed(port));
        }
    }

    fn outcome(&self) -> WholeOutcome {
        let tally = &self.tally;
        let seconds = (self.now_ps - tally.since_ps) as f64 / 1e12;
        let millions = |count: u64| count as f64 / seconds / 1e6;
        let nodes = f64::from(self.cluster.nodes);
        WholeOutcome {
            mrps: millions(tally.completed - tally.before),
            hits_mrps: millions(tally.hits),
            sent: tally.sent,
            link_gigabits: tally.sent.bytes().total() * 8.0 / seconds / nodes / 1e9,
            refused: tally.refused,
            mean_us: tally.latencies.mean_us(),
            p95_us: tally.latencies.p95_us(),
        }
    }
}

impl Latencies {
    fn note(&mut self, ns: u64) {
        self.sum += ns;
        self.of.record(ns);
    }

    fn mean_us(&self) -> f64 {
        self.sum as f64 / self.of.total().max(1) as f64 / 1e3
    }

    fn p95_us(&self) -> f64 {
        self.of.quantile(0.95).unwrap_or(0) as f64 / 1e3
    }
}

impl Draw {
    fn new(cluster: &WholeCluster, cached: u64) -> Self {
        let (count, servers) = match (cluster.copies, cluster.is_exclusive) {
            (Some(_), _) => (cached, 1),
            (None, true) => (STORED_KEYS, cluster.nodes * cluster.hardware.threads),
            (None, false) => (STORED_KEYS, cluster.nodes),
        };
        let placement = match cluster.gamma > 0.0 && cluster.copies.is_none() {
            true => Shards::median(cluster.gamma, servers, cluster.seed),
            false => cluster.seed,
        };
        Self {
            random: Random::new(cluster.seed),
            ranks: Ranks::new(
                count,
                Popularity::Zipf {
                    exponent: cluster.gamma,
                },
            ),
            placement: mix(placement),
            hits: Vec::new(),
        }
    }

    /// What a session asks for.
    pub(super) fn ask(&mut self, cluster: &WholeCluster, session: u32) -> Ask {
        let random = &mut self.random;
        let is_hot = cluster.copies.is_some() && random.unit() < cluster.hit_ratio;
        self.hits[session as usize] = is_hot;
        if is_hot {
            let writes = random.unit() < cluster.write_ratio;
            let rank = self.ranks.rank(random);
            return Ask::Hot { rank, writes };
        }
        let nodes = u64::from(cluster.nodes);
        // A cold key is too little of the load for its place to matter.
        let place = match cluster.copies.is_some() || cluster.gamma == 0.0 {
            true => random.next(),
            false => mix(self.ranks.rank(random) ^ self.placement),
        };
        match cluster.is_exclusive {
            true => {
                let shard = place % (nodes * u64::from(cluster.hardware.threads));
                Ask::Cold {
                    node: (shard % nodes) as u16,
                    thread: Some((shard / nodes) as u16),
                }
            }
            false => Ask::Cold {
                node: (place % nodes) as u16,
                thread: None,
            },
        }
    }
}
