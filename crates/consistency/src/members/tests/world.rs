//! A few nodes, one store, and everything that may go wrong between them, in virtual time and by
//! seed: clocks that drift, processes that stop for a while, die, leave or are started twice,
//! requests to the store that are slow, lost, answered late or carried out after they were given
//! up, heartbeats that do not arrive.
//!
//! A view that anybody acts on names everybody who serves, but who joins later. No slice begins
//! empty, or goes to who has not got it, while a life that was in sync of it is a member. When the
//! trouble ends, everybody has to end up serving, with slices on all of them.

use alloc::{collections::BTreeMap, format, string::String, sync::Arc, vec, vec::Vec};

use curtail_workload::Random;

use super::super::*;
use crate::{
    slice_placement::{is_settled, wished_steps},
    slice_view::{RowChange, RowStep, SliceView},
};

const MS: u64 = 1_000_000;
const LEASE_MS: u64 = 200;
const IDS: u8 = 4;
const PLAN: SlicePlan = SlicePlan {
    slices: 12,
    replicas: 2,
};
/// How much a clock may run fast or slow, in millionths: far more than real ones, so that it tells.
const DRIFT: u64 = 100_000;

/// What the drivers of the machines do wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    Nothing,
    /// Views that took somebody out are in force at once.
    NoWait,
    /// The lease is counted from the end of a reading.
    LeaseFromEnd,
    /// Nothing is added to the lease for what clocks differ by.
    NoMargin,
    /// Nobody looks at the clock before serving.
    NoClock,
    /// The order to stop is not carried out; only the clock ends the right to serve.
    NoStop,
    /// The store may answer with what it held a little before.
    StaleReads,
    /// The lease between two nodes is counted from the answer.
    LeaseFromAnswer,
    /// Heartbeats tell of the newest view as if it were in force.
    SaysAdopted,
    /// That somebody served by the lease of the store alone is kept from the others.
    NoRelease,
}

/// A process of a node.
struct Process {
    id: NodeId,
    incarnation: Incarnation,
    machine: MemberMachine,
    drift: i64,
    offset_ns: u64,
    paused_until: u64,
    store_cut_until: u64,
    runs: bool,
    /// As its workers know it, by its own clock.
    serve_until: u64,
    in_force: ClusterRecord,
    rejoin_at: Option<u64>,
    tell_at: u64,
}

enum Asked {
    Read { started: Instant },
    Propose { expected: u64, change: RecordChange },
}

/// A request to the store on its way.
struct Request {
    process: usize,
    asked: Asked,
    /// When the store carries it out, and when the answer is there. The first may come later.
    done_at: u64,
    answered_at: u64,
    answered: bool,
    fails: bool,
    done: Option<Done>,
}

/// What the store did: which of its contents was read, or written.
enum Done {
    Read(u64),
    Written(Option<u64>),
}

enum Letter {
    Heartbeat(NodeId, Heartbeat),
    Proposals(NodeId, Arc<[RowChange]>),
}

/// How often what happened, so that a check that never had anything to see is found out.
type Counts = BTreeMap<&'static str, u64>;

struct World {
    random: Random,
    now: u64,
    fault: Fault,
    trouble: bool,
    history: Vec<ClusterRecord>,
    revision: u64,
    processes: Vec<Process>,
    requests: Vec<Request>,
    letters: Vec<(u64, usize, Letter)>,
    cut: [[u64; IDS as usize]; IDS as usize],
    newest_in_force: ViewNumber,
    counts: Counts,
    found: Option<String>,
}

impl World {
    fn new(seed: u64, fault: Fault) -> Self {
        let mut world = Self {
            random: Random::new(seed),
            now: 0,
            fault,
            trouble: true,
            history: vec![ClusterRecord::NOBODY],
            revision: 0,
            processes: Vec::new(),
            requests: Vec::new(),
            letters: Vec::new(),
            cut: [[0; IDS as usize]; IDS as usize],
            newest_in_force: ViewNumber(0),
            counts: Counts::new(),
            found: None,
        };
        (0..IDS).for_each(|id| world.launch(NodeId(id)));
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn launch(&mut self, id: NodeId) {
        let founders = (0..IDS).map(NodeId).collect();
        let lease = MemberConfig::with_lease(id, LEASE_MS * MS);
        let margin_ns = match self.fault {
            Fault::NoMargin => 0,
            _ => 2 * LEASE_MS * MS * DRIFT / 1_000_000 + 5 * MS,
        };
        let config = MemberConfig {
            founders,
            margin_ns,
            plan: PLAN,
            ..lease
        };
        let incarnation = Incarnation(self.below(u64::MAX - 1) + 1);
        let drift = self.below(2 * DRIFT + 1) as i64 - DRIFT as i64;
        let offset_ns = self.below(1 << 40);
        self.processes.push(Process {
            id,
            incarnation,
            machine: MemberMachine::new(config),
            drift,
            offset_ns,
            paused_until: 0,
            store_cut_until: 0,
            runs: true,
            serve_until: 0,
            in_force: ClusterRecord::NOBODY,
            rejoin_at: None,
            tell_at: 0,
        });
        self.step(self.processes.len() - 1, MemberInput::Join(incarnation));
    }

    /// The clock of a process.
    fn clock(&self, index: usize) -> Instant {
        let process = &self.processes[index];
        let rate = (1_000_000 + process.drift) as u64;
        Instant {
            ns: process.offset_ns + self.now * rate,
        }
    }

    fn awake(&self, index: usize) -> bool {
        let process = &self.processes[index];
        process.runs && process.paused_until <= self.now
    }

    fn step(&mut self, index: usize, input: MemberInput) {
        let now = self.clock(index);
        let mut outputs = Vec::new();
        let machine = &mut self.processes[index].machine;
        machine.step(now, input, |output| outputs.push(output));
        for output in outputs {
            self.carry_out(index, now, output);
        }
    }

    fn carry_out(&mut self, index: usize, now: Instant, output: MemberOutput) {
        match output {
            MemberOutput::Read => self.ask(index, Asked::Read { started: now }),
            MemberOutput::Propose { expected, change } => {
                self.ask(index, Asked::Propose { expected, change });
            }
            MemberOutput::Heartbeat { to } => {
                for node in to {
                    let process = &self.processes[index];
                    let from = process.id;
                    let mut heartbeat = process.machine.heartbeat_to(node);
                    if self.fault == Fault::SaysAdopted {
                        heartbeat.adopted = heartbeat.view;
                    }
                    self.post(from, node, || Letter::Heartbeat(from, heartbeat));
                }
            }
            MemberOutput::Forward { to, changes } => {
                let from = self.processes[index].id;
                self.post(from, to, || Letter::Proposals(from, Arc::clone(&changes)));
            }
            MemberOutput::Adopt => self.adopt(index),
            MemberOutput::Serve { until } => self.processes[index].serve_until = until.ns,
            MemberOutput::StopServing if self.fault == Fault::NoStop => {}
            MemberOutput::StopServing => self.processes[index].serve_until = 0,
            MemberOutput::Event(event) => self.hear(index, event),
        }
    }

    fn ask(&mut self, process: usize, asked: Asked) {
        let cut = self.processes[process].store_cut_until > self.now;
        let slow = self.trouble && self.below(10) == 0;
        let longest = if slow { 3 * LEASE_MS } else { 6 };
        let (one, two) = (self.below(longest), self.below(longest));
        let fails = cut || (self.trouble && self.below(30) == 0);
        // What fails may be carried out all the same: never, before, or after its sender gave up.
        let never = fails && self.below(2) == 0;
        let (first, last) = (self.now + one.min(two), self.now + one.max(two));
        let late = fails && self.below(2) == 0;
        let (done_at, answered_at) = if late { (last, first) } else { (first, last) };
        self.requests.push(Request {
            process,
            asked,
            done_at: if never { u64::MAX } else { done_at },
            answered_at,
            answered: false,
            fails,
            done: None,
        });
    }

    fn post(&mut self, from: NodeId, to: NodeId, letter: impl Fn() -> Letter) {
        let (one, other) = (usize::from(from.0), usize::from(to.0));
        let lost = self.trouble && self.below(10) == 0;
        if lost || self.cut[one][other] > self.now {
            return;
        }
        for index in 0..self.processes.len() {
            if self.processes[index].id == to && self.processes[index].runs {
                let at = self.now + self.below(8);
                self.letters.push((at, index, letter()));
            }
        }
    }

    fn adopt(&mut self, index: usize) {
        let record = self.processes[index].machine.adopted().clone();
        let number = record.number;
        let written = &self.history[number.0 as usize];
        assert_eq!(record.slices(), written.slices(), "never written");
        let before = self.processes[index].in_force.number;
        if record.removal > before && before > ViewNumber(0) {
            self.count("waits for a lease");
        }
        self.processes[index].in_force = record;
        self.newest_in_force = self.newest_in_force.max(number);
    }

    fn hear(&mut self, index: usize, event: MemberNotice) {
        let soon = self.now + self.below(LEASE_MS);
        match event {
            MemberNotice::Removed | MemberNotice::Departed => {
                self.processes[index].rejoin_at = Some(soon)
            }
            MemberNotice::Replaced => self.processes[index].runs = false,
            _ => {}
        }
        self.count(match event {
            MemberNotice::Proposed(RecordChange::Remove(_)) => "removals",
            MemberNotice::Proposed(RecordChange::Rows(_)) => "changes of rows",
            MemberNotice::Lost { .. } => "lost slices",
            MemberNotice::Inherited { .. } => "inherited slices",
            MemberNotice::Proposed(RecordChange::Detach) => "went on without answers",
            MemberNotice::Proposed(RecordChange::Attach) => "came back to answers",
            MemberNotice::Fenced => "lost leases",
            MemberNotice::Departed => "departures",
            MemberNotice::Replaced => "nodes started twice",
            MemberNotice::Beaten(_) => "lost races",
            _ => return,
        });
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// One millisecond.
    fn pass(&mut self) {
        self.now += 1;
        if self.trouble {
            self.trouble();
        }
        self.store();
        self.deliver();
        for index in 0..self.processes.len() {
            if self.awake(index) {
                self.drive(index);
            }
        }
        if self.found.is_none() {
            self.found = self.wrong();
        }
    }

    fn trouble(&mut self) {
        let index = self.below(self.processes.len() as u64) as usize;
        let until = self.now + self.below(4 * LEASE_MS);
        let (one, other) = (self.below(4) as usize, self.below(4) as usize);
        let process = &mut self.processes[index];
        let id = process.id;
        match self.below(2500) {
            0..3 => self.processes[index].paused_until = until,
            3..5 => self.processes[index].store_cut_until = until,
            5..8 => self.cut[one][other] = until,
            8 => self.processes[index].runs = false,
            9..13 => self.step_awake(index, MemberInput::Leave),
            13 => self.launch(id),
            _ => {}
        }
        // A node without a process gets one after a while.
        let id = NodeId(one as u8);
        if self.below(300) == 0 && !self.has_process(id) {
            self.launch(id);
        }
    }

    fn step_awake(&mut self, index: usize, input: MemberInput) {
        if self.awake(index) {
            self.step(index, input);
        }
    }

    fn has_process(&self, id: NodeId) -> bool {
        let runs = |process: &Process| process.runs && process.id == id;
        self.processes.iter().any(runs)
    }

    /// The store carries out what has come to it, and answers arrive at the nodes that are awake.
    fn store(&mut self) {
        for at in 0..self.requests.len() {
            let request = &self.requests[at];
            let process = request.process;
            let here = self.awake(process) || !self.processes[process].runs;
            let due = here && !request.answered && request.answered_at <= self.now;
            if request.done.is_none() && request.done_at <= self.now {
                self.carry_out_at_store(at);
            }
            if due {
                self.requests[at].answered = true;
                self.answer(at);
            }
        }
        let over = |request: &Request| request.done.is_some() || request.done_at == u64::MAX;
        self.requests
            .retain(|request| !request.answered || !over(request));
    }

    fn carry_out_at_store(&mut self, at: usize) {
        let newest = self.history.len() - 1;
        let stale = self.fault == Fault::StaleReads && self.below(3) == 0;
        let seen = newest - usize::from(stale && newest > 0);
        let me = self.processes[self.requests[at].process].id;
        let done = match self.requests[at].asked {
            Asked::Read { .. } => Done::Read(seen as u64),
            Asked::Propose {
                expected,
                ref change,
            } if expected == self.revision => {
                let next = self.history[newest].after(change, me, PLAN).unwrap();
                self.note_losses(&next);
                self.history.push(next);
                self.revision += 1;
                Done::Written(Some(self.revision))
            }
            Asked::Propose { .. } => Done::Written(None),
        };
        self.requests[at].done = Some(done);
    }

    fn answer(&mut self, at: usize) {
        let request = &self.requests[at];
        let index = request.process;
        if request.done.is_none() && request.done_at < u64::MAX {
            self.count("writes carried out after they were given up");
        }
        let request = &self.requests[at];
        match (&request.asked, &request.done) {
            (Asked::Read { started }, Some(Done::Read(revision))) if !request.fails => {
                let (started, revision) = (*started, *revision);
                let mut record = self.history[revision as usize].clone();
                if self.fault == Fault::NoWait {
                    record.removal = ViewNumber(0);
                }
                if self.fault == Fault::NoRelease {
                    record.released = ViewNumber(0);
                }
                let started = match self.fault {
                    Fault::LeaseFromEnd => self.clock(index),
                    _ => started,
                };
                let record = &record;
                self.step_awake(
                    index,
                    MemberInput::Read {
                        started,
                        revision,
                        record,
                    },
                );
            }
            (Asked::Propose { .. }, Some(Done::Written(Some(revision)))) if !request.fails => {
                let revision = *revision;
                self.step_awake(index, MemberInput::Won { revision });
            }
            (Asked::Read { .. }, _) => self.step_awake(index, MemberInput::ReadFailed),
            (Asked::Propose { .. }, _) => self.step_awake(index, MemberInput::Lost),
        }
    }

    fn deliver(&mut self) {
        let mut at = 0;
        while at < self.letters.len() {
            let (due, index, _) = self.letters[at];
            if due > self.now || (self.processes[index].runs && !self.awake(index)) {
                at += 1;
                continue;
            }
            let (_, index, letter) = self.letters.swap_remove(at);
            let changes;
            let input = match letter {
                Letter::Heartbeat(from, mut heartbeat) => {
                    if self.fault == Fault::LeaseFromAnswer && heartbeat.answers.ns > 0 {
                        heartbeat.answers = self.clock(index);
                    }
                    MemberInput::Heartbeat { from, heartbeat }
                }
                Letter::Proposals(from, some) => {
                    changes = some;
                    let changes = &changes;
                    MemberInput::Proposed { from, changes }
                }
            };
            self.step_awake(index, input);
        }
    }

    /// What a process does by itself.
    fn drive(&mut self, index: usize) {
        if self.processes[index]
            .rejoin_at
            .is_some_and(|at| at <= self.now)
        {
            let incarnation = Incarnation(self.below(u64::MAX - 1) + 1);
            let process = &mut self.processes[index];
            process.rejoin_at = None;
            process.incarnation = incarnation;
            self.step(index, MemberInput::Join(incarnation));
        }
        if self.processes[index].tell_at <= self.now {
            self.processes[index].tell_at = self.now + 20 + self.below(30);
            self.tell(index);
        }
        if self.processes[index].machine.deadline() <= self.clock(index) {
            self.step(index, MemberInput::Tick);
        }
    }

    /// The primaries of slices wish what the plan says, and have followers enter that caught up.
    fn tell(&mut self, index: usize) {
        let process = &self.processes[index];
        let (me, record) = (process.id, process.in_force.clone());
        let Some(view) = record.slices() else {
            return;
        };
        let mut steps = wished_steps(view, &record.goal(PLAN.replicas));
        for (slice, row) in view.rows() {
            for node in row.catching_up() {
                if self.lives(&record, node) && self.below(3) == 0 {
                    steps.push((slice, RowStep::Enter(node)));
                }
            }
        }
        for (slice, step) in steps {
            if view.row(slice).map(|row| row.primary) == Some(me) && self.serves(index) {
                let view = record.number;
                self.step(index, MemberInput::Propose(RowChange { slice, view, step }));
            }
        }
    }

    /// Whether the life of a node that a record names runs.
    fn lives(&self, record: &ClusterRecord, node: NodeId) -> bool {
        let life = record.incarnation(node);
        let mut processes = self.processes.iter();
        processes.any(|one| one.runs && one.id == node && one.incarnation == life)
    }

    /// A slice may begin empty only when nobody in sync is a member any more: all who were have
    /// been removed, or have joined under another life.
    fn note_losses(&mut self, next: &ClusterRecord) {
        let before = &self.history[self.history.len() - 1];
        let (Some(old), Some(new)) = (before.slices(), next.slices()) else {
            return;
        };
        for ((slice, old), (_, new)) in old.rows().zip(new.rows()) {
            let stays = |node: &NodeId| next.has(*node, before.incarnation(*node));
            let mut had = old.in_sync.into_iter();
            if new.born != old.born && had.any(|node| stays(&node)) {
                self.found = Some(format!("{slice:?} begins empty though {old:?}"));
            } else if new.primary != old.primary
                && new.born == old.born
                && !old.in_sync.contains(new.primary)
            {
                self.found = Some(format!("{slice:?} goes to who has not got it: {new:?}"));
            }
        }
    }

    /// Whether a process would answer a client now. One that is paused may be in the middle of it.
    fn serves(&self, index: usize) -> bool {
        let process = &self.processes[index];
        let in_time = self.fault == Fault::NoClock || self.clock(index).ns < process.serve_until;
        process.runs && process.serve_until > 0 && in_time
    }

    /// The first thing that is not as it has to be.
    fn wrong(&self) -> Option<String> {
        let serving: Vec<&Process> = (0..self.processes.len())
            .filter(|&index| self.serves(index))
            .map(|index| &self.processes[index])
            .collect();
        let newest = &self.history[self.newest_in_force.0 as usize];
        for one in &serving {
            let (id, life) = (one.id.0, one.incarnation);
            if !one.in_force.serving().contains(one.id) {
                return Some(format!("node {id} serves without being a member"));
            }
            if one.in_force.number < newest.number && !newest.has(one.id, life) {
                return Some(format!("node {id} serves after it was taken out"));
            }
        }
        None
    }

    /// Lets trouble end, and sees everybody serve with keys on all of them.
    fn recover(&mut self) {
        self.trouble = false;
        self.cut = Default::default();
        for process in &mut self.processes {
            process.paused_until = process.paused_until.min(self.now);
            process.store_cut_until = 0;
        }
        for id in (0..IDS).map(NodeId) {
            if !self.has_process(id) {
                self.launch(id);
            }
        }
        let end = self.now + 100 * LEASE_MS;
        while !self.is_well() && self.found.is_none() {
            self.pass();
            if self.now > end {
                let view = self.history.last().map(|record| record.slices());
                self.found = Some(format!("stuck in {view:?}"));
            }
        }
    }

    fn is_well(&self) -> bool {
        let record = &self.history[self.history.len() - 1];
        let all: NodeSet = (0..IDS).map(NodeId).collect();
        let serving = (0..self.processes.len()).filter(|&index| self.serves(index));
        let settled = |view: &Arc<SliceView>| is_settled(view, &record.goal(PLAN.replicas));
        record.serving() == all
            && record.leaving.is_empty()
            && record.slices().is_some_and(settled)
            && serving.count() == IDS.into()
    }
}

/// Lets trouble rule for a while, then peace; what was wrong comes last.
fn run(seed: u64, fault: Fault) -> (Counts, Option<String>) {
    let mut world = World::new(seed, fault);
    while world.now < TROUBLE_MS && world.found.is_none() {
        world.pass();
    }
    world.recover();
    (world.counts, world.found)
}

const TROUBLE_MS: u64 = 20_000;

#[test]
fn serving_nodes_are_in_each_others_views_and_a_calm_network_heals() {
    let mut all = Counts::new();
    for seed in 0..SEEDS {
        let (counts, found) = run(seed, Fault::Nothing);
        assert_eq!(found, None, "seed {seed}");
        for (what, count) in counts {
            *all.entry(what).or_default() += count;
        }
    }
    // All of it was there to go wrong.
    assert_eq!(all.len(), 12, "{all:?}");
    assert!(all.values().all(|&count| count > SEEDS), "{all:?}");
}

#[test]
fn drivers_that_do_wrong_are_found_out() {
    for (fault, words) in [
        (Fault::NoWait, "taken out"),
        (Fault::LeaseFromEnd, "taken out"),
        (Fault::NoMargin, "taken out"),
        (Fault::NoClock, "taken out"),
        (Fault::NoStop, "serves"),
        (Fault::StaleReads, "serves"),
        (Fault::LeaseFromAnswer, "taken out"),
        (Fault::SaysAdopted, "taken out"),
        (Fault::NoRelease, "taken out"),
    ] {
        let mut seeds = (0..FAULT_SEEDS).map(|seed| run(seed, fault).1);
        let found = seeds.find_map(|found| found);
        let found = found.unwrap_or_default();
        assert!(found.contains(words), "{fault:?}: \"{found}\"");
    }
}

const SEEDS: u64 = 30;
const FAULT_SEEDS: u64 = 100;
