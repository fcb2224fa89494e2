//! The world of a run: what happens, in order of time.

mod chance;
mod events;
mod healing;
mod losses;
mod outages;

use curtail_consistency::{
    membership::{self, Change, Members},
    symmetric::Model,
};
use curtail_history::Verdict;
use curtail_types::{Instant, NodeId, NodeSet};
use curtail_workload::Random;

use self::{
    events::{Event, Events},
    losses::Keepers,
    outages::Outages,
};
use super::{
    ClusterOutcome, ClusterRun, Fault,
    clock::Clock,
    keys::Keys,
    network::Network,
    node::{Deed, Node},
    packet::{Answer, Parcel},
    record::{Asked, Record},
    sessions::Session,
    views::ViewStore,
};

/// Everything there is.
pub(super) struct World<'a> {
    run: &'a ClusterRun,
    now: u64,
    events: Events,
    random: Random,
    nodes: Vec<Node>,
    /// Whether a node runs at all.
    is_up: Vec<bool>,
    paused_until: Vec<u64>,
    /// When a node is woken next.
    wakes: Vec<u64>,
    network: Network,
    keys: Keys,
    store: ViewStore,
    /// Until when a node cannot reach the store.
    store_cut_until: Vec<u64>,
    sessions: Vec<Session>,
    clients: u32,
    /// Operations begun.
    begun: u64,
    healed: bool,
    /// From when on it shows.
    calm_at: u64,
    keepers: Keepers,
    outages: Outages,
    record: Record,
    outcome: ClusterOutcome,
}

impl<'a> World<'a> {
    pub(super) fn new(run: &'a ClusterRun) -> Self {
        let mut random = Random::new(run.seed);
        let count = usize::from(run.nodes);
        let drifts = run.faults.has(Fault::Drift);
        let nodes = (0..run.nodes).map(|me| {
            let clock = Clock::new(drifts, &mut random);
            Node::new(run, NodeId(me), 1, clock)
        });
        let nodes: Vec<Node> = nodes.collect();
        let network = Network::new(count, run.faults, &mut random);
        Self {
            run,
            now: 1,
            events: Events::default(),
            random,
            nodes,
            is_up: vec![true; count],
            paused_until: vec![0; count],
            wakes: vec![u64::MAX; count],
            network,
            keys: Keys::new(run.keys, run.replicas, run.seed),
            store: ViewStore::new(),
            store_cut_until: vec![0; count],
            sessions: (0..run.sessions as u32)
                .map(|client| Session::new(client, run.keys))
                .collect(),
            clients: run.sessions as u32,
            begun: 0,
            healed: false,
            calm_at: 0,
            keepers: Keepers::new(run.keys, count),
            outages: Outages::default(),
            record: Record::default(),
            outcome: ClusterOutcome::default(),
        }
    }

    /// Both phases, and the judgement.
    pub(super) fn run(mut self) -> ClusterOutcome {
        for node in 0..self.nodes.len() {
            let at = self.random.below(5_000_000);
            self.events.plan(at, Event::Start { node });
        }
        for session in 0..self.sessions.len() {
            self.events
                .plan(FORMED_NS + session as u64, Event::Next { session });
        }
        self.plan_chances();
        self.safety();
        if self.outcome.failure.is_none() {
            self.liveness();
        }
        self.outcome.elapsed_ns = self.now;
        if self.outcome.failure.is_none() {
            match self.record.judge(self.run.model) {
                Verdict::Consistent => {}
                Verdict::TooHard { .. } => self.outcome.unjudged += 1,
                Verdict::Violation(violation) => self.fail(violation.to_string()),
            }
        }
        self.outcome
    }

    /// Until every operation has begun.
    fn safety(&mut self) {
        while self.begun < self.run.operations && self.outcome.failure.is_none() {
            if self.now > FORMED_NS + self.run.operations * SLOWEST_NS {
                return self.fail("operations do not get on".into());
            }
            self.advance();
        }
    }

    fn advance(&mut self) {
        let Some((at, event)) = self.events.next() else {
            return self.fail("nothing is left to happen".into());
        };
        self.now = self.now.max(at);
        if let Some(node) = event.node()
            && self.paused_until[node] > self.now
        {
            let until = self.paused_until[node];
            return self.events.plan(until, event);
        }
        self.happen(event);
        self.note_found();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(parcel) => self.arrive(parcel),
            Event::Demand { node, life, asked } => match self.is_alive(node, life) {
                true => self.with(node, |node, at, keys| node.admit(at, keys, asked.demand)),
                false => self.answered(asked.demand.number, Answer::Refused),
            },
            Event::Reply { number, answer } => self.answered(number, answer),
            Event::Wake { node, life } => {
                if self.is_alive(node, life) && self.wakes[node] <= self.now {
                    self.wakes[node] = u64::MAX;
                    self.with(node, |node, at, keys| node.tick(at, keys));
                }
            }
            Event::Next { session } => self.ask(session),
            Event::Start { node } => self.start(node),
            Event::Reset { node, life, peer } => {
                if self.is_alive(node, life) {
                    self.with(node, |node, at, keys| node.reset(at, keys, peer));
                }
            }
            Event::StoreRead {
                node,
                life,
                started,
            } => self.read_store(node, life, started),
            Event::StorePropose {
                node,
                life,
                expected,
                change,
            } => {
                self.propose_to_store(node, life, expected, change);
            }
            Event::StoreSays { node, life, said } => self.store_says(node, life, said),
            Event::Chance(chance) => self.take_chance(chance),
        }
    }

    fn is_alive(&self, node: usize, life: u64) -> bool {
        self.is_up[node] && self.nodes[node].life == life
    }

    /// Lets a node do something, and carries out what it wants.
    fn with(&mut self, node: usize, act: impl FnOnce(&mut Node, u64, &mut Keys)) {
        act(&mut self.nodes[node], self.now, &mut self.keys);
        let deeds = std::mem::take(&mut self.nodes[node].deeds);
        for deed in &deeds {
            self.carry_out(node, *deed);
        }
        let mut deeds = deeds;
        deeds.clear();
        if self.nodes[node].deeds.is_empty() {
            self.nodes[node].deeds = deeds;
        }
        self.note_versions(node);
        let due = self.nodes[node].deadline().max(self.now);
        if due < self.wakes[node] {
            self.wakes[node] = due;
            let life = self.nodes[node].life;
            self.events.plan(due, Event::Wake { node, life });
        }
    }

    fn carry_out(&mut self, node: usize, deed: Deed) {
        let life = self.nodes[node].life;
        match deed {
            Deed::Send { to, packet } => self.send(node, to, packet),
            Deed::Reply { number, answer } => {
                let at = self.now + Network::delay_ns(&mut self.random);
                self.events.plan(at, Event::Reply { number, answer });
            }
            Deed::Ran {
                number,
                from,
                version,
            } => self.record.ran(number, from, version),
            Deed::ReadStore { started } => {
                let at = self.now + Network::delay_ns(&mut self.random);
                self.events.plan(
                    at,
                    Event::StoreRead {
                        node,
                        life,
                        started,
                    },
                );
            }
            Deed::Propose { expected, change } => {
                let at = self.now + Network::delay_ns(&mut self.random);
                self.events.plan(
                    at,
                    Event::StorePropose {
                        node,
                        life,
                        expected,
                        change,
                    },
                );
            }
            Deed::Reborn => self.crash(node, 100_000),
            Deed::Broken(what) => self.fail(what.into()),
            Deed::Promoted { key, floor, before } => {
                self.outcome.promotions += 1;
                self.record.promoted_absent(key, self.now, [floor, before]);
            }
            Deed::Moved { key, mode } => self.note_mode(node, key, mode),
            Deed::Shown { key } => self.note_shown(node, key),
            Deed::Adopted => {
                self.outcome.views += 1;
                let everybody: NodeSet = self.nodes.iter().map(|node| node.me).collect();
                self.note_unshared(everybody.difference(self.nodes[node].view.followers()));
                self.note_adopted(node);
            }
        }
    }

    fn send(&mut self, from: usize, to: NodeId, packet: super::packet::Packet) {
        self.outcome.packets += 1;
        let from_id = NodeId(from as u8);
        let link = [from_id, to];
        let lives = [self.nodes[from].life, self.nodes[usize::from(to.0)].life];
        let parcel = Parcel {
            from: from_id,
            to,
            lives,
            packet,
        };
        let loose = packet.is_loose();
        for at in self
            .network
            .arrivals(self.now, link, loose, &mut self.random)
            .into_iter()
            .flatten()
        {
            self.events.plan(at, Event::Arrive(parcel));
        }
    }

    fn arrive(&mut self, parcel: Parcel) {
        let Parcel {
            from,
            to,
            lives: [of, life],
            packet,
        } = parcel;
        let node = usize::from(to.0);
        if self.is_alive(node, life) {
            self.with(node, |node, at, keys| {
                node.receive(at, keys, (from, of), packet)
            });
        }
    }

    /// A session asks its next question.
    fn ask(&mut self, session: usize) {
        if self.begun >= self.run.operations {
            return;
        }
        let Some(node) = self.choose_node(session) else {
            return self
                .events
                .plan(self.now + IDLE_NS, Event::Next { session });
        };
        self.begun += 1;
        let number = self.begun * self.sessions.len() as u64 + session as u64;
        let demand = self.sessions[session].demand(number, &mut self.random);
        self.ask_of(session, node, demand);
    }

    fn ask_of(&mut self, session: usize, node: NodeId, demand: super::packet::Demand) {
        let client = self.sessions[session].client(demand.key);
        let asked = Asked {
            client,
            invoked: self.now,
            demand,
        };
        self.sessions[session].asked = Some((asked, node));
        let node = usize::from(node.0);
        let life = self.nodes[node].life;
        let at = self.now + Network::delay_ns(&mut self.random);
        self.events.plan(at, Event::Demand { node, life, asked });
    }

    /// Under SC a session stays at its node (CC-11).
    fn choose_node(&mut self, session: usize) -> Option<NodeId> {
        let up: Vec<usize> = (0..self.nodes.len())
            .filter(|node| self.is_up[*node])
            .collect();
        if let Some(node) = self.sessions[session].pinned
            && self.is_up[usize::from(node.0)]
        {
            return Some(node);
        }
        let chosen = up.get(self.random.below(up.len() as u64) as usize)?;
        let node = NodeId(*chosen as u8);
        if self.run.model == Model::Sc {
            self.sessions[session].pinned = Some(node);
        }
        Some(node)
    }

    fn answered(&mut self, number: u64, answer: Answer) {
        let session = (number % self.sessions.len() as u64) as usize;
        let Some((asked, node)) = self.sessions[session]
            .asked
            .filter(|(asked, _)| asked.demand.number == number)
        else {
            return;
        };
        self.sessions[session].asked = None;
        if self.run.trace == Some(asked.demand.key) {
            self.trace(|| format!("{asked:?} is answered: {answer:?}"));
        }
        self.note_wait(&asked, node, &answer);
        match answer {
            Answer::Carried(effect) => {
                self.outcome.answered += 1;
                self.sessions[session].saw(&asked.demand, &effect);
                self.record.answered(asked, self.now, effect);
            }
            Answer::Refused => {
                if self.record.has_run(number) {
                    self.fail(format!(
                        "{:?} ran and was refused as if it had not",
                        asked.demand
                    ));
                }
                self.outcome.refused += 1;
                self.renew(session);
            }
            Answer::Unknown => {
                self.outcome.unknown += 1;
                self.record.unanswered(asked);
                self.renew(session);
            }
        }
        let pause = match answer {
            Answer::Carried(_) => self.random.below(THINK_NS),
            _ => IDLE_NS,
        };
        self.events.plan(self.now + pause, Event::Next { session });
    }

    /// A session ends, and its client begins another.
    fn renew(&mut self, session: usize) {
        self.clients += 1;
        self.sessions[session].renew(self.clients);
    }

    /// What a session asks of a key later may not show what it saw before, nor what it asks for
    /// now, which may be answered before or after.
    fn part_from(&mut self, session: usize, key: usize) {
        self.clients += 2;
        let clients = [self.clients - 1, self.clients];
        self.sessions[session].part_from(key, clients);
    }

    fn start(&mut self, node: usize) {
        if self.is_up[node] && self.nodes[node].view.number.0 == 0 && self.wakes[node] == u64::MAX {
            self.with(node, |node, at, keys| node.start(at, keys));
            return;
        }
        if self.is_up[node] {
            return;
        }
        let (life, clock) = (self.nodes[node].life + 1, self.nodes[node].clock);
        self.nodes[node] = Node::new(self.run, NodeId(node as u8), life, clock);
        self.is_up[node] = true;
        self.wakes[node] = u64::MAX;
        self.with(node, |node, at, keys| node.start(at, keys));
    }

    /// A node stops, forgets everything, and starts again after `down_ns`.
    fn crash(&mut self, node: usize, down_ns: u64) {
        if !self.is_up[node] {
            return;
        }
        self.outcome.crashes += 1;
        self.trace(|| format!("node {node} stops"));
        self.note_trouble(self.now);
        self.note_stop(node);
        self.is_up[node] = false;
        self.paused_until[node] = 0;
        let me = NodeId(node as u8);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let at = self.now + Network::delay_ns(&mut self.random);
            let life = self.nodes[other].life;
            self.events.plan(
                at,
                Event::Reset {
                    node: other,
                    life,
                    peer: me,
                },
            );
        }
        for session in 0..self.sessions.len() {
            // A session ends with its node (CC-11).
            if self.sessions[session].pinned == Some(me) {
                self.renew(session);
            }
            if let Some((asked, at)) = self.sessions[session].asked
                && at == me
            {
                let at = self.now + Network::delay_ns(&mut self.random);
                let number = asked.demand.number;
                self.events.plan(
                    at,
                    Event::Reply {
                        number,
                        answer: Answer::Unknown,
                    },
                );
            }
        }
        self.events.plan(self.now + down_ns, Event::Start { node });
    }

    fn read_store(&mut self, node: usize, life: u64, started: Instant) {
        let said = match self.store_cut_until[node] > self.now {
            true => Said::Nothing,
            false => Said::Read {
                started,
                revision: self.store.revision,
                members: Box::new(self.store.members),
            },
        };
        let at = self.now + Network::delay_ns(&mut self.random);
        self.events.plan(at, Event::StoreSays { node, life, said });
    }

    fn propose_to_store(&mut self, node: usize, life: u64, expected: u64, change: Change) {
        let me = NodeId(node as u8);
        let reached = self.store_cut_until[node] <= self.now;
        let before = self.store.members;
        let written = reached.then(|| self.store.propose(expected, change, me, self.run.replicas));
        self.note_change(&before);
        let lost_answer =
            self.run.faults.has(Fault::Loss) && !self.healed && self.random.below(20) == 0;
        let said = match written.flatten() {
            Some(revision) if !lost_answer => Said::Won(revision),
            _ => Said::Lost,
        };
        let at = self.now + Network::delay_ns(&mut self.random);
        self.events.plan(at, Event::StoreSays { node, life, said });
    }

    fn store_says(&mut self, node: usize, life: u64, said: Said) {
        if !self.is_alive(node, life) {
            return;
        }
        self.with(node, |node, at, keys| {
            let input = match &said {
                Said::Nothing => membership::Input::ReadFailed,
                Said::Won(revision) => membership::Input::Won {
                    revision: *revision,
                },
                Said::Lost => membership::Input::Lost,
                Said::Read {
                    started,
                    revision,
                    members,
                } => membership::Input::Read {
                    started: *started,
                    revision: *revision,
                    members,
                },
            };
            node.of_store(at, keys, input);
        });
    }

    /// Shows what happens, if somebody wants to see a key.
    fn trace(&self, what: impl FnOnce() -> String) {
        if self.run.trace.is_some() {
            eprintln!("{} {}", self.now, what());
        }
    }

    fn fail(&mut self, what: String) {
        self.outcome.failure.get_or_insert(what);
    }
}

/// What the store of views answers.
#[derive(Clone, Debug)]
enum Said {
    Nothing,
    Won(u64),
    Lost,
    Read {
        started: Instant,
        revision: u64,
        members: Box<Members>,
    },
}

/// When the clients begin.
const FORMED_NS: u64 = 10_000_000;
/// Longest pause of a client between two questions.
const THINK_NS: u64 = 50_000;
/// Its pause after it was turned away.
const IDLE_NS: u64 = 1_000_000;
/// Virtual time that an operation may take on average.
const SLOWEST_NS: u64 = 20_000_000;
