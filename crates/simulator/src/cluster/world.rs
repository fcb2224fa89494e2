//! The world of a run: what happens, in order of time.

mod healing;
mod losses;
mod random_faults;
mod unanswered_time;

use curtail_consistency::{
    membership::{self, Members},
    symmetric::Model,
};
use curtail_history::Verdict;
use curtail_types::{Instant, NodeId, NodeSet};
use curtail_workload::Random;

use self::{losses::Keepers, unanswered_time::Outages};
use super::{
    ClusterOutcome, ClusterRun, Fault,
    clients::Session,
    clock::Clock,
    keys::Keys,
    network::Network,
    node::{Deed, Node, StoreAsk},
    packet::{Answer, Demand, Packet},
    record::{Asked, Record},
};
use crate::event_queue::EventQueue;

/// Everything there is.
pub(super) struct World<'a> {
    run: &'a ClusterRun,
    keys: &'a Keys,
    now: u64,
    /// All that is planned, in nanoseconds.
    events: EventQueue<Event>,
    random: Random,
    nodes: Vec<Node<'a>>,
    /// Whether a node runs at all.
    is_up: Vec<bool>,
    paused_until: Vec<u64>,
    /// When a node is woken next.
    wakes: Vec<u64>,
    network: Network,
    /// What the store of the views holds, a register that is read and replaced as a whole, and how
    /// often it was replaced.
    members: Members,
    revision: u64,
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

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Reply {
        number: u64,
        answer: Answer,
    },
    /// A session asks.
    Next(usize),
    /// A node starts.
    Start(usize),
    Chance(Fault),
    /// Something comes to a node, or from there to the store of views, in this life of it.
    To {
        node: usize,
        life: u64,
        what: What,
    },
}

#[derive(Clone, Debug)]
enum What {
    /// From another node, in this life of that.
    Packet((NodeId, u64), Packet),
    Demand(Asked),
    Wake,
    /// The link to this node is new at its other end.
    Reset(NodeId),
    StoreAsk(StoreAsk),
    StoreSays(Said),
}

impl<'a> World<'a> {
    pub(super) fn new(run: &'a ClusterRun, keys: &'a Keys) -> Self {
        let mut random = Random::new(run.seed);
        let count = usize::from(run.nodes);
        let drifts = run.faults.has(Fault::Drift);
        let nodes = (0..run.nodes).map(|me| {
            let clock = Clock::new(drifts, &mut random);
            Node::new((run, keys), NodeId(me), 1, clock)
        });
        let nodes: Vec<Node> = nodes.collect();
        let network = Network::new(count, run.faults, &mut random);
        Self {
            run,
            keys,
            now: 1,
            events: EventQueue::default(),
            random,
            nodes,
            is_up: vec![true; count],
            paused_until: vec![0; count],
            wakes: vec![u64::MAX; count],
            network,
            members: Members::NOBODY,
            revision: 0,
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
            self.events.plan(at, Event::Start(node));
        }
        for session in 0..self.sessions.len() {
            let at = FORMED_NS + session as u64;
            self.events.plan(at, Event::Next(session));
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
        // Whatever comes to a node waits while that pauses.
        if let Event::To { node, what, .. } = &event
            && !matches!(what, What::StoreAsk(_))
            && self.paused_until[*node] > self.now
        {
            return self.events.plan(self.paused_until[*node], event);
        }
        self.happen(event);
        self.note_found();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Reply { number, answer } => self.answered(number, answer),
            Event::Next(session) => self.ask(session),
            Event::Start(node) => self.start(node),
            Event::Chance(fault) => self.take_chance(fault),
            Event::To { node, life, what } => match what {
                What::StoreAsk(ask) => self.ask_store(node, life, ask),
                _ if self.is_alive(node, life) => self.come(node, what),
                What::Demand(asked) => self.answered(asked.demand.number, Answer::Refused),
                _ => {}
            },
        }
    }

    fn come(&mut self, node: usize, what: What) {
        match what {
            What::Packet(from, packet) => self.with(node, |node| node.receive(from, packet)),
            What::Demand(asked) => self.with(node, |node| node.admit(asked.demand)),
            What::Wake if self.wakes[node] <= self.now => {
                self.wakes[node] = u64::MAX;
                self.with(node, Node::tick);
            }
            What::Reset(peer) => self.with(node, |node| node.reset(peer)),
            What::StoreSays(said) => self.with(node, |node| node.member(said.input())),
            What::Wake | What::StoreAsk(_) => {}
        }
    }

    /// Plans what comes over the network outside of the links between nodes.
    fn plan_soon(&mut self, event: Event) {
        let at = self.now + Network::delay_ns(&mut self.random);
        self.events.plan(at, event);
    }

    /// Something for a node as it is now.
    fn event_to(&self, node: usize, what: What) -> Event {
        let life = self.nodes[node].life;
        Event::To { node, life, what }
    }

    fn is_alive(&self, node: usize, life: u64) -> bool {
        self.is_up[node] && self.nodes[node].life == life
    }

    /// Lets a node do something, and carries out what it wants.
    fn with(&mut self, node: usize, act: impl FnOnce(&mut Node<'a>)) {
        self.nodes[node].now = self.now;
        act(&mut self.nodes[node]);
        self.nodes[node].settle();
        for deed in std::mem::take(&mut self.nodes[node].deeds) {
            self.carry_out(node, deed);
        }
        self.note_versions(node);
        let due = self.nodes[node].deadline().max(self.now);
        if due < self.wakes[node] {
            self.wakes[node] = due;
            self.events.plan(due, self.event_to(node, What::Wake));
        }
    }

    fn carry_out(&mut self, node: usize, deed: Deed) {
        match deed {
            Deed::Send { to, packet } => self.send(node, to, packet),
            Deed::Reply { number, answer } => self.plan_soon(Event::Reply { number, answer }),
            Deed::Ran {
                number,
                from,
                version,
            } => self.record.ran(number, from, version),
            Deed::Ask(ask) => self.plan_soon(self.event_to(node, What::StoreAsk(ask))),
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

    fn send(&mut self, from: usize, to: NodeId, packet: Packet) {
        self.outcome.packets += 1;
        let sender = (NodeId(from as u8), self.nodes[from].life);
        let (link, loose) = ([sender.0, to], packet.is_loose());
        let arrivals = (self.network).arrivals(self.now, link, loose, &mut self.random);
        for at in arrivals.into_iter().flatten() {
            let what = What::Packet(sender, packet);
            self.events.plan(at, self.event_to(usize::from(to.0), what));
        }
    }

    /// A session asks its next question.
    fn ask(&mut self, session: usize) {
        if self.begun >= self.run.operations {
            return;
        }
        let Some(node) = self.choose_node(session) else {
            return self.events.plan(self.now + IDLE_NS, Event::Next(session));
        };
        self.begun += 1;
        let number = self.begun * self.sessions.len() as u64 + session as u64;
        let demand = self.sessions[session].demand(number, &mut self.random);
        self.ask_of(session, node, demand);
    }

    fn ask_of(&mut self, session: usize, node: NodeId, demand: Demand) {
        let client = self.sessions[session].client(demand.key);
        let asked = Asked {
            client,
            invoked: self.now,
            demand,
        };
        self.sessions[session].asked = Some((asked, node));
        let node = usize::from(node.0);
        self.plan_soon(self.event_to(node, What::Demand(asked)));
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
            Answer::Refused | Answer::Elsewhere => {
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
        self.events.plan(self.now + pause, Event::Next(session));
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
        if !self.is_up[node] {
            let (life, clock) = (self.nodes[node].life + 1, self.nodes[node].clock);
            self.nodes[node] = Node::new((self.run, self.keys), NodeId(node as u8), life, clock);
            self.is_up[node] = true;
            self.wakes[node] = u64::MAX;
        } else if self.nodes[node].view.number.0 > 0 || self.wakes[node] < u64::MAX {
            return;
        }
        self.with(node, Node::start);
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
            self.plan_soon(self.event_to(other, What::Reset(me)));
        }
        for session in 0..self.sessions.len() {
            // A session ends with its node (CC-11).
            if self.sessions[session].pinned == Some(me) {
                self.renew(session);
            }
            if let Some((asked, at)) = self.sessions[session].asked
                && at == me
            {
                let (number, answer) = (asked.demand.number, Answer::Unknown);
                self.plan_soon(Event::Reply { number, answer });
            }
        }
        self.events.plan(self.now + down_ns, Event::Start(node));
    }

    /// A node asks the store of views.
    fn ask_store(&mut self, node: usize, life: u64, ask: StoreAsk) {
        let is_cut = self.store_cut_until[node] > self.now;
        let said = match ask {
            StoreAsk::Read(_) if is_cut => Said::Nothing,
            StoreAsk::Read(started) => Said::Read {
                started,
                revision: self.revision,
                members: Box::new(self.members),
            },
            StoreAsk::Propose { expected, change } => {
                let before = self.members;
                let (me, replicas) = (NodeId(node as u8), self.run.replicas);
                let reached = !is_cut && expected == self.revision;
                let after = reached.then(|| before.after(change, me, replicas));
                if let Some(after) = after.flatten() {
                    (self.members, self.revision) = (after, self.revision + 1);
                }
                self.note_change(&before);
                let may_lose = self.run.faults.has(Fault::Loss) && !self.healed;
                let is_lost = may_lose && self.random.below(20) == 0;
                match after.flatten() {
                    Some(_) if !is_lost => Said::Won(self.revision),
                    _ => Said::Lost,
                }
            }
        };
        let what = What::StoreSays(said);
        self.plan_soon(Event::To { node, life, what });
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

impl Said {
    fn input(&self) -> membership::Input<'_> {
        match self {
            Self::Nothing => membership::Input::ReadFailed,
            Self::Won(revision) => membership::Input::Won {
                revision: *revision,
            },
            Self::Lost => membership::Input::Lost,
            Self::Read {
                started,
                revision,
                members,
            } => membership::Input::Read {
                started: *started,
                revision: *revision,
                members,
            },
        }
    }
}

/// When the clients begin.
const FORMED_NS: u64 = 10_000_000;
/// Longest pause of a client between two questions.
const THINK_NS: u64 = 50_000;
/// Its pause after it was turned away.
const IDLE_NS: u64 = 1_000_000;
/// Virtual time that an operation may take on average.
const SLOWEST_NS: u64 = 20_000_000;
