//! The world of a run: what happens, in order of time.

mod healing;
mod random_faults;
mod unavailability;
mod views;

use std::{collections::BTreeMap, sync::Arc};

use curtail_consistency::{
    replica::{
        Gate, Model, ReplicaEvent, ReplicaMessage, ReplicaRefusal, ReplicaRequest, RunResult,
        Ticket,
    },
    slice_view::{RowStep, SliceId, SliceView},
};
use curtail_history::Verdict;
use curtail_types::{Access, Cas, NodeId, NodeSet, RouteHash, ViewNumber};
use curtail_workload::Random;

use super::{
    ClusterOutcome, ClusterRun, Fault, MemoryFull, STAGES,
    clients::Session,
    clock::Clock,
    histories::{Asked, Record},
    host::SimHost,
    keys::Keys,
    network::Network,
    node::{Beside, BesideKind, Made, Node, Origin},
    packet::{Answer, Demand, Effect, Item, Packet},
    run_state::{Event, RunState, What},
};
use crate::event_queue::EventQueue;

/// Everything there is.
pub(super) struct World<'a> {
    env: RunState<'a>,
    nodes: Vec<Node>,
    made: Vec<Made>,
    /// What the store of views holds.
    view: Arc<SliceView>,
    /// Members that leave in an orderly way, until when each has time for it.
    leaving: NodeSet,
    leaving_until: u64,
    /// What the placement wants of this view.
    plan: Plan,
    sessions: Vec<Session>,
    clients: u32,
    /// Operations begun.
    begun: u64,
    healed: bool,
    /// Every node may die at any time.
    is_ruthless: bool,
    /// When the last trouble of a node or a link ends.
    calm_since: u64,
    /// When the last trouble ended of each node that was to be missed.
    missed_until: BTreeMap<NodeId, u64>,
}

/// What the placement wants, of which view and with whom leaving.
type Plan = (ViewNumber, NodeSet, Arc<[(SliceId, RowStep)]>);

impl<'a> World<'a> {
    pub(super) fn new(run: &'a ClusterRun, keys: &'a Keys) -> Self {
        let mut random = Random::new(run.seed);
        let drifts = run.faults.has(Fault::Drift);
        let drawn = || random.one_of(&MemoryFull::ALL);
        let full = run.memory_full.unwrap_or_else(drawn);
        let members: NodeSet = (0..run.nodes).map(NodeId).collect();
        let made = |_| {
            let clock = Clock::new(drifts, &mut random);
            let capacity = capacity(run, full, &mut random);
            Made { clock, capacity }
        };
        let made: Vec<Made> = (0..run.nodes).map(made).collect();
        let ids = (0..run.nodes).map(NodeId).zip(&made);
        let nodes = ids.map(|(me, made)| Node::new(run, full, me, 0, *made));
        let nodes: Vec<Node> = nodes.collect();
        let count = nodes.len();
        let network = Network::new(count, run.faults, &mut random);
        let view = SliceView::first(ViewNumber(1), members, run.slices, run.replicas);
        let sessions = (0..run.sessions as u32).map(|client| Session::new(client, run.keys));
        Self {
            nodes,
            made,
            view: Arc::new(view),
            leaving: NodeSet::NONE,
            leaving_until: 0,
            plan: (ViewNumber(0), NodeSet::NONE, Arc::new([])),
            sessions: sessions.collect(),
            clients: run.sessions as u32,
            begun: 0,
            healed: false,
            is_ruthless: random.one_in(8),
            calm_since: 0,
            missed_until: BTreeMap::new(),
            env: RunState {
                run,
                keys,
                now: 1,
                events: EventQueue::default(),
                network,
                record: Record::default(),
                outcome: ClusterOutcome::default(),
                memory_full: full,
                lives: vec![0; count],
                views: vec![None; count],
                flushing: None,
                refuses: run.faults.has(Fault::Room) && full != MemoryFull::Ample,
                random,
            },
        }
    }

    /// Both phases, and the judgement.
    pub(super) fn run(mut self) -> ClusterOutcome {
        for node in 0..self.nodes.len() {
            self.nodes[node].local.joined = Some(self.view.number);
            self.plan_life(node);
        }
        for session in 0..self.sessions.len() {
            let at = FORMED_NS + session as u64;
            self.env.events.plan(at, Event::Next(session));
        }
        self.plan_chances();
        self.safety();
        if self.env.outcome.failure.is_none() {
            self.liveness();
        }
        self.env.outcome.elapsed_ns = self.env.now;
        if self.env.outcome.failure.is_none() {
            match self.env.record.judge(self.env.run.model, self.env.keys) {
                Verdict::Consistent => {}
                Verdict::TooHard { .. } => self.env.outcome.unjudged += 1,
                Verdict::Violation(violation) => self.env.fail(violation.to_string()),
            }
        }
        self.env.outcome
    }

    /// What a node does again and again as long as it lives.
    fn plan_life(&mut self, node: usize) {
        let read = self.env.random.below(10_000);
        let place = self.env.random.below(PLACING_NS);
        self.env.plan_for(node, read, What::Read(true));
        self.env.plan_for(node, place, What::Place);
    }

    /// Until every operation has begun.
    fn safety(&mut self) {
        let operations = self.env.run.operations;
        while self.begun < operations && self.env.outcome.failure.is_none() {
            if self.env.now > FORMED_NS + operations * SLOWEST_NS {
                return self.env.fail("operations do not get on");
            }
            self.advance();
        }
    }

    fn advance(&mut self) {
        let Some((at, event)) = self.env.events.next() else {
            return self.env.fail("nothing is left to happen");
        };
        self.env.now = self.env.now.max(at);
        self.env.outcome.events += 1;
        match event {
            Event::Reply { number, answer } => self.answered(number, answer),
            Event::Next(session) => self.ask(session),
            Event::Start(node) => self.start(node),
            Event::Chance(fault) => self.take_chance(fault),
            Event::Store(change) => self.change_view(change),
            Event::Suspect(node, life) => self.suspect(node, life),
            Event::At { node, life, what } => self.come(node, life, what),
        }
    }

    fn come(&mut self, node: usize, life: u32, what: What) {
        let local = &mut self.nodes[node].local;
        if life != self.env.lives[node] || !local.is_up {
            if let What::Demand(asked) = what {
                self.answered(asked.demand.number, Err(ReplicaRefusal::Elsewhere));
            }
            return;
        }
        // Whatever comes to a node waits while that pauses.
        if local.paused_until > self.env.now {
            let at = local.paused_until;
            return self.env.events.plan(at, Event::At { node, life, what });
        }
        match what {
            What::Packet(from, packet) => self.receive(node, from, packet),
            What::Demand(asked) => self.admit(node, asked.demand),
            What::Wake => self.wake(node),
            What::End(beside) => self.end_beside(node, beside),
            What::Closed(slice) => {
                local.hybrid.follow(local.beside.last());
                self.step(node, stage_of(slice), ReplicaEvent::Closed(slice), None);
            }
            What::Scan(slice, number) => self.scan(node, slice, number),
            What::Read(repeats) => self.read_store(node, repeats),
            What::Said(started, view) => self.take_reading(node, started, view),
            What::Adopt => self.adopt(node),
            What::Place => self.place(node),
            What::Propose => self.send_proposals(node),
        }
    }

    // ---- machines ----

    /// Steps a machine; what it wanted evicted and its slices did not have, the node's other
    /// machines are asked for.
    fn step(&mut self, node: usize, stage: u16, event: ReplicaEvent<'_>, incoming: Option<Item>) {
        use ReplicaMessage::{Evict, Room};
        let asker = match event {
            ReplicaEvent::Message(from, Evict(_) | Room { .. }) => from,
            _ => self.nodes[node].local.me,
        };
        self.step_alone(node, stage, event, incoming);
        let lack = std::mem::take(&mut self.nodes[node].local.lack);
        if lack > 0 {
            for other in (0..STAGES).filter(|other| *other != stage) {
                let event = ReplicaEvent::Message(asker, &Evict(lack));
                self.step_alone(node, other, event, None);
            }
            self.nodes[node].local.lack = 0;
        }
    }

    fn step_alone(
        &mut self,
        node: usize,
        stage: u16,
        event: ReplicaEvent<'_>,
        incoming: Option<Item>,
    ) {
        let Node { machines, local } = &mut self.nodes[node];
        let machine = &mut machines[usize::from(stage)];
        let mut host = SimHost {
            local,
            env: &mut self.env,
            stage,
            incoming,
        };
        let before = machine.deadline();
        machine.step(event, &mut host);
        let due = machine.deadline().filter(|due| Some(*due) != before);
        if let Some(due) = due {
            self.wake_by(node, due);
        }
        let local = &mut self.nodes[node].local;
        if !local.proposals.is_empty() && !local.is_proposing {
            local.is_proposing = true;
            let delay = self.env.random.below(PROPOSING_NS);
            self.env.plan_for(node, delay, What::Propose);
        }
    }

    fn wake_by(&mut self, node: usize, due: curtail_types::Instant) {
        let local = &mut self.nodes[node].local;
        let at = local.clock.world(due).max(self.env.now);
        if at < local.wake_at {
            local.wake_at = at;
            self.env.plan_for(node, at - self.env.now, What::Wake);
        }
    }

    fn wake(&mut self, node: usize) {
        let local = &mut self.nodes[node].local;
        if local.wake_at > self.env.now {
            return;
        }
        local.wake_at = u64::MAX;
        let now = local.clock.instant(self.env.now);
        for stage in 0..STAGES {
            match self.nodes[node].machines[usize::from(stage)].deadline() {
                Some(due) if due <= now => self.step(node, stage, ReplicaEvent::Tick, None),
                Some(due) => self.wake_by(node, due),
                None => {}
            }
        }
    }

    fn receive(&mut self, node: usize, from: NodeId, packet: Packet) {
        if self.env.run.trace.is_some() {
            self.trace_packet(node, from, &packet);
        }
        match packet {
            Packet::Message {
                stage,
                message,
                item,
            } => self.step(node, stage, ReplicaEvent::Message(from, &message), item),
            Packet::Request(demand) => {
                let life = self.env.lives[usize::from(from.0)];
                let local = &mut self.nodes[node].local;
                if !local.serves(&self.env) {
                    let (number, answer) = (demand.number, Err(ReplicaRefusal::Elsewhere));
                    let me = local.me;
                    return self.env.send(me, from, Packet::Answer { number, answer });
                }
                if local.waited_for(demand.ticket(), false).is_some() {
                    // A reader that was sent again, for an earlier life of this node was removed:
                    // the answer to the first serves it.
                    return;
                }
                local.open(demand, Origin::Node(from, life));
                self.ask_machine(node, &demand, true);
            }
            Packet::Answer { number, answer } => {
                let ticket = Ticket(number);
                let local = &mut self.nodes[node].local;
                let Some(demand) = local.waited_for(ticket, true) else {
                    return;
                };
                let version = |effect: Effect| {
                    let shown = effect.stamp.map_or(Cas(0), |stamp| stamp.version);
                    shown.max(effect.as_of)
                };
                if let Ok(effect) = answer {
                    local.results.insert(ticket, effect);
                }
                let answer = answer.map(version);
                let stage = self.stage_of_key(demand.key);
                let event = ReplicaEvent::Answered(from, ticket, answer);
                self.step(node, stage, event, None);
            }
        }
    }

    /// Shows what arrives that may concern the key that somebody wants to see.
    fn trace_packet(&self, node: usize, from: NodeId, packet: &Packet) {
        let Some(key) = self.env.run.trace else {
            return;
        };
        let slice = self.env.keys.slice(key);
        let concerns = match packet {
            Packet::Message { message, .. } => match message {
                ReplicaMessage::Append(append) => append.slice == slice,
                ReplicaMessage::Applied { slice: of, .. }
                | ReplicaMessage::TailWanted { slice: of, .. }
                | ReplicaMessage::Tail { slice: of, .. } => *of == slice,
                ReplicaMessage::Copy(message) => message.key == self.env.keys.route(key),
                _ => true,
            },
            Packet::Request(demand) => demand.key == key,
            Packet::Answer { .. } => false,
        };
        if concerns {
            self.env
                .trace(|| format!("n{node} gets from n{}: {packet:?}", from.0));
        }
    }

    fn stage_of_key(&self, key: usize) -> u16 {
        stage_of(self.env.keys.slice(key))
    }

    fn scan(&mut self, node: usize, slice: SliceId, number: u32) {
        let Node { local, .. } = &mut self.nodes[node];
        let scan = &mut local.scans[usize::from(slice.0)];
        if scan.number != number {
            return;
        }
        let keys = self.env.keys;
        let route = |key| keys.route(key);
        let stored = keys.of_slice(slice).filter_map(|key| {
            let item = local.store.item(key)?;
            Some((route(key), item.bytes))
        });
        let behind = scan.behind;
        let found = stored.filter(|(route, _)| behind.is_none_or(|behind| *route > behind));
        let mut found: Vec<(RouteHash, u32)> = found.collect();
        found.sort_unstable();
        let is_done = found.len() < 2;
        found.truncate(1);
        scan.behind = found.last().map(|(route, _)| *route).or(behind);
        let event = ReplicaEvent::Scanned(slice, &found, is_done);
        self.step(node, stage_of(slice), event, None);
    }

    // ---- requests ----

    fn admit(&mut self, node: usize, demand: Demand) {
        let Node { local, .. } = &mut self.nodes[node];
        if !local.serves(&self.env) {
            return self
                .env
                .reply(demand.number, Err(ReplicaRefusal::Elsewhere));
        }
        local.open(demand, Origin::Client);
        let may = !self.env.random.one_in(4);
        if let Some(kind) = may.then(|| local.beside(&self.env, &demand)).flatten() {
            let delay = self.env.random.below(BESIDE_NS);
            let beside = Beside { demand, kind };
            return self.env.plan_for(node, delay, What::End(beside));
        }
        self.ask_machine(node, &demand, false);
    }

    fn ask_machine(&mut self, node: usize, demand: &Demand, is_forwarded: bool) {
        let access = demand.access();
        let needs_room = access != Access::Read && self.env.memory_full != MemoryFull::Ample;
        let request = ReplicaRequest {
            ticket: demand.ticket(),
            key: self.env.keys.route(demand.key),
            access,
            size: if needs_room { demand.size() } else { 0 },
            is_forwarded,
        };
        let stage = self.stage_of_key(demand.key);
        self.step(node, stage, ReplicaEvent::Request(request), None);
    }

    fn end_beside(&mut self, node: usize, beside: Beside) {
        let Beside { demand, kind } = beside;
        let slice = self.env.keys.slice(demand.key);
        let Node { local, .. } = &mut self.nodes[node];
        let serves = local.serves(&self.env);
        match kind {
            BesideKind::Copied(copied) => {
                if !local.counts(slice, demand.key, &copied) {
                    return self.ask_machine(node, &demand, false);
                }
                let effect = copied.effect;
                local.open.remove(&demand.ticket());
                let answer = serves.then_some(effect).ok_or(ReplicaRefusal::Elsewhere);
                self.env.reply(demand.number, answer);
            }
            BesideKind::Runs => {
                local.open.remove(&demand.ticket());
                let answer = match serves {
                    true => self.run_beside(node, &demand),
                    false => Err(ReplicaRefusal::Elsewhere),
                };
                self.env.reply(demand.number, answer);
                let gate = &mut self.nodes[node].local.gates[usize::from(slice.0)];
                gate.beside -= 1;
                if gate.beside == 0 && gate.closing {
                    gate.closing = false;
                    self.env.plan_for(node, 0, What::Closed(slice));
                }
            }
        }
    }

    /// Runs a request at once on a slice that this node alone holds.
    fn run_beside(&mut self, node: usize, demand: &Demand) -> Answer {
        let Node { local, .. } = &mut self.nodes[node];
        let version = local.next_beside(demand.key, self.env.now);
        let stage = stage_of(self.env.keys.slice(demand.key));
        let gates = local.gates.iter();
        let open: Vec<bool> = gates.map(|gate| gate.gate == Gate::Open).collect();
        let mut host = SimHost {
            local,
            env: &mut self.env,
            stage,
            incoming: None,
        };
        let mut ran = host.execute(demand, version);
        if ran.0 == RunResult::NoRoom && host.env.memory_full == MemoryFull::Evict {
            let mut is_open = |slice: SliceId| open[usize::from(slice.0)];
            host.evict_some(demand.size().into(), &mut is_open, &mut |_, _| {});
            ran = host.execute(demand, version);
        }
        match ran {
            (RunResult::NoRoom, _) | (_, None) => Err(ReplicaRefusal::NoRoom),
            (_, Some(effect)) => Ok(effect),
        }
    }

    /// A session asks its next question.
    fn ask(&mut self, session: usize) {
        if self.begun >= self.env.run.operations {
            return;
        }
        let Some(node) = self.choose_node(session) else {
            return self.env.plan_in(IDLE_NS, Event::Next(session));
        };
        self.begun += 1;
        let number = self.begun * self.sessions.len() as u64 + session as u64;
        let demand = self.sessions[session].demand(number, &mut self.env.random);
        self.ask_of(session, node, demand);
    }

    fn ask_of(&mut self, session: usize, node: NodeId, demand: Demand) {
        let asked = Asked {
            client: self.sessions[session].client,
            invoked: self.env.now,
            demand,
        };
        self.sessions[session].asked = Some((asked, node));
        let delay = Network::delay_ns(&mut self.env.random);
        self.env
            .plan_for(usize::from(node.0), delay, What::Demand(asked));
    }

    /// Under SC a session stays at its node (CC-11).
    fn choose_node(&mut self, session: usize) -> Option<NodeId> {
        let is_up = |node: &Node| node.local.is_up;
        if let Some(node) = self.sessions[session].pinned
            && is_up(&self.nodes[usize::from(node.0)])
        {
            return Some(node);
        }
        let up = self.nodes.iter().filter(|node| is_up(node));
        let up: NodeSet = up.map(|node| node.local.me).collect();
        let chosen = self.env.random.below(up.len() as u64) as usize;
        let node = up.into_iter().nth(chosen)?;
        if self.env.run.model == Model::Sc {
            self.sessions[session].pinned = Some(node);
        }
        Some(node)
    }

    fn answered(&mut self, number: u64, answer: Answer) {
        let session = (number % self.sessions.len() as u64) as usize;
        let asked = self.sessions[session].asked;
        let Some((asked, node)) = asked.filter(|(asked, _)| asked.demand.number == number) else {
            return;
        };
        self.sessions[session].asked = None;
        self.env.trace_key(node, asked.demand.key, || {
            format!("{asked:?} ends: {answer:?}")
        });
        self.note_wait(&asked, node, &answer);
        let outcome = &mut self.env.outcome;
        let mut pause = IDLE_NS;
        match answer {
            Ok(effect) => {
                outcome.answered += 1;
                pause = self.env.random.below(THINK_NS);
                self.sessions[session].saw(&asked.demand, &effect);
                self.env.record.answered(asked, self.env.now, effect);
            }
            Err(ReplicaRefusal::Unknown) => {
                outcome.unknown += 1;
                self.env.record.unanswered(asked);
                self.renew(session);
            }
            Err(refusal) => {
                outcome.refused += 1;
                outcome.no_room += u64::from(refusal == ReplicaRefusal::NoRoom);
                if self.env.record.has_run(number) {
                    let what = format!("{:?} ran and was refused: {refusal:?}", asked.demand);
                    self.env.fail(what);
                }
                if refusal != ReplicaRefusal::NoRoom {
                    self.renew(session);
                }
            }
        }
        self.env.plan_in(pause, Event::Next(session));
    }

    /// A session ends, and its client begins another.
    fn renew(&mut self, session: usize) {
        self.clients += 1;
        self.sessions[session].renew(self.clients);
    }
}

/// The room of a node.
fn capacity(run: &ClusterRun, full: MemoryFull, random: &mut Random) -> Option<u64> {
    let share = (run.keys * 2 * run.replicas) as f64 / f64::from(run.nodes);
    let room = (share * (0.75 + 1.5 * random.unit())) as u64 + 4;
    (full != MemoryFull::Ample).then_some(room)
}

/// The stage of a slice.
pub(super) const fn stage_of(slice: SliceId) -> u16 {
    slice.0 % STAGES
}

/// When the clients begin.
const FORMED_NS: u64 = 2_000_000;
/// Longest pause of a client between two questions.
const THINK_NS: u64 = 50_000;
/// Its pause after it was turned away.
const IDLE_NS: u64 = 1_000_000;
/// Virtual time that an operation may take on average.
const SLOWEST_NS: u64 = 20_000_000;
/// The longest that a request beside the machines takes.
const BESIDE_NS: u64 = 20_000;
/// Between two looks at what the placement wants.
const PLACING_NS: u64 = 2_000_000;
/// The longest that a node collects proposals.
const PROPOSING_NS: u64 = 100_000;
