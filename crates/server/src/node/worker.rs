//! A worker's part of a node: its links, the machines of its stages, and the replies that it waits
//! for.
//!
//! ```text
//!   turn of a worker:  collect -> execute_in_cluster -> reply -> work -> wait
//!                                    |      ^                      |
//!     client requests: here, or -----+      +-- replies fill       +-- receive: jobs for stages,
//!     a job for a stage, or on to               their places           requests, answers
//!     another node                                                 +-- stages, scans, flush
//! ```

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use curtail_consistency::slice_placement::holds_nothing;
use curtail_links::{LinkCounts, Links};
use curtail_types::{Cas, Failure, Instant};

use crate::{
    metrics::counters::Count,
    node::{
        Cluster, ViewInForce,
        flush::Flushes,
        forward::{AGAIN_NS, Out},
        host::{NodeArrival, NodeContext},
        inbox::Inbox,
        peer_heartbeats::PlanLook,
        requests_elsewhere::KeysUnderWay,
        stages::{Asker, Completed, End, Job, STAGES, SliceScans, Spare, Stage, StageContext},
        work_costs::TurnCosts,
    },
    places::Places,
};

/// A worker's part in the cluster.
pub(crate) struct NodeWorker {
    pub(super) index: usize,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) links: Links,
    generation: u64,
    pub(super) in_force: Option<Arc<ViewInForce>>,
    /// This node may answer in this turn.
    pub(crate) serves: bool,
    has_handed_over: bool,
    pub(super) spare: Spare,
    pub(super) done: Vec<Completed>,
    /// What has been answered to clients of this worker in this turn.
    pub(crate) completed: Vec<Completed>,
    /// The stages whose machines this worker steps, at their places.
    pub(super) stages: Vec<Option<Stage>>,
    pub(super) scans: SliceScans,
    pub(super) flushes: Flushes,
    /// Requests that other nodes carry out.
    pub(super) out: Places<Out>,
    /// Those of them that have to be sent again.
    pub(super) parked: VecDeque<u32>,
    /// Answers to other nodes that found no room on their way.
    unanswered: VecDeque<Completed>,
    pub(super) under_way: KeysUnderWay,
    /// Own stages that have something to do.
    woken: u64,
    pub(super) inbox: Inbox,
    pub(super) planned: PlanLook,
    /// When the machines of this node were last told of hot keys.
    pub(super) heated_ns: u64,
    /// The last call: what it said and when.
    pub(super) called: (u32, Instant),
    pub(super) delegated: u64,
    /// When the turn began, and when what is out was last looked through.
    pub(super) now_ns: u64,
    pub(super) looked_ns: u64,
    /// What turns cost.
    costs: TurnCosts,
    /// Bytes of links that are counted against the limit of memory.
    accounted: usize,
}

/// Answers beyond that are dropped: their askers give up waiting.
const UNANSWERED_MAX: usize = 4096;

impl NodeWorker {
    /// The part of worker `index` of a process that started at `started_ns`, in Unix nanoseconds.
    pub(crate) fn new(index: usize, cluster: Arc<Cluster>, links: Links, started_ns: u64) -> Self {
        let workers = cluster.workers.max(1);
        let stage = |number| {
            let stage = || Stage::new(number, cluster.config, cluster.writer);
            (number % workers == index).then(stage)
        };
        Self {
            index,
            stages: (0..STAGES).map(stage).collect(),
            cluster,
            links,
            generation: 0,
            in_force: None,
            serves: false,
            has_handed_over: false,
            spare: Spare::default(),
            done: Vec::new(),
            completed: Vec::new(),
            scans: SliceScans::default(),
            flushes: Flushes::default(),
            out: Places::default(),
            parked: VecDeque::new(),
            unanswered: VecDeque::new(),
            under_way: KeysUnderWay::default(),
            woken: 0,
            inbox: Inbox::default(),
            planned: PlanLook::default(),
            heated_ns: 0,
            called: (0, Instant::default()),
            // Never one of this node's former life, for which an answer may still come.
            delegated: started_ns,
            now_ns: 0,
            looked_ns: 0,
            costs: TurnCosts::default(),
            accounted: 0,
        }
    }

    /// Looks at what may differ from turn to turn.
    pub(crate) fn begin_turn(&mut self, cx: &mut NodeContext<'_>) {
        let now = cx.store_cx.now.instant;
        self.delegated += 1;
        self.now_ns = now.ns;
        let requests = cx.counts.get(Count::Requests);
        self.costs
            .begin(self.delegated, requests, &self.cluster.costs);
        self.under_way.clear();
        if self.cluster.views.generation() != self.generation {
            self.generation = self.cluster.views.generation();
            self.in_force = self.cluster.views.current();
            self.has_handed_over = self.has_handed_over();
            self.tell_stages();
        }
        let may_serve = self.in_force.is_some() && !self.has_handed_over;
        self.serves = may_serve && self.cluster.holds_lease(now);
    }

    /// Whether this node leaves, and other nodes have all that it had: it ends what is under way
    /// while it is still a member, and begins nothing.
    fn has_handed_over(&self) -> bool {
        let is_empty =
            |in_force: &Arc<ViewInForce>| holds_nothing(&in_force.slices, self.cluster.me);
        self.cluster.is_leaving.load(Relaxed) && self.in_force.as_ref().is_some_and(is_empty)
    }

    fn tell_stages(&mut self) {
        let in_force = self.in_force.clone();
        for number in 0..self.stages.len() {
            if self.stages.get(number).is_some_and(Option::is_some) {
                let job = match &in_force {
                    Some(in_force) => Job::View(Arc::clone(&in_force.slices)),
                    None => Job::Forget,
                };
                self.give(number, job);
            }
        }
    }

    /// Leaves a job for a stage, to be done before this turn ends if this worker steps it.
    pub(super) fn give(&mut self, stage: usize, job: Job) {
        let Some(inbox) = self.cluster.stages.get(stage) else {
            return;
        };
        let is_first = inbox.leave(job);
        let is_own = self.stages.get(stage).is_some_and(Option::is_some);
        if is_own || is_first {
            self.woken |= 1 << stage;
        }
    }

    /// Whether there is something to do at once.
    pub(crate) fn wants_turn(&self) -> bool {
        self.links.wants_turn()
            || self.woken != 0
            || !self.done.is_empty()
            || !self.inbox.asked.is_empty()
            || self.scans.is_ready(self.now_ns)
    }

    /// When there will be something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        let now = Instant { ns: self.now_ns };
        let stages = self.stages.iter().flatten();
        let stages = stages.filter_map(|stage| stage.due(now, AGAIN_NS)).min();
        let waits = !self.parked.is_empty()
            || !self.unanswered.is_empty()
            || !self.flushes.is_empty()
            || self.scans.waits()
            || self.cluster.forgotten_mark.load(Relaxed) != 0;
        let again = waits.then_some(self.now_ns + AGAIN_NS);
        let again = [again, self.plan_due_ns(), self.scans.due_ns()];
        let again = again.into_iter().flatten().min();
        let again = again.map(|ns| Instant { ns });
        [stages, again, self.links.due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Everything of a turn that clients have no part in; fills `filled` with what has been
    /// answered to clients of this worker.
    pub(crate) fn work(&mut self, cx: &mut NodeContext<'_>, filled: &mut Vec<Completed>) {
        self.costs.begin_work();
        self.links.begin_turn(cx.store_cx.now.instant);
        self.beat(cx);
        self.receive();
        self.take_news(cx);
        self.answer_asked(cx);
        self.take_answers(cx);
        self.take_events(cx);
        self.plan();
        self.heat();
        if self.index == 0 {
            self.flush_in_time(cx);
        }
        self.flush_again(cx);
        let since = self.costs.look();
        self.work_stages(cx);
        self.costs.end_machines(since);
        self.send_again(cx);
        self.look_through(cx);
        self.answer_again();
        self.distribute(cx, filled);
        self.links.flush();
        let counted = self.links.take_counts();
        count(cx, counted);
        let received = std::mem::take(&mut self.inbox.received);
        self.costs.end_work(received, &counted, !filled.is_empty());
        self.account(cx);
        if self.index == 0 {
            self.cluster.join_anew(cx);
        }
    }

    /// Has the memory of links counted against the one limit.
    fn account(&mut self, cx: &NodeContext<'_>) {
        let bytes = self.links.held_bytes();
        if bytes != self.accounted {
            let more = bytes.cast_signed() - self.accounted.cast_signed();
            cx.store_cx.store.account(more);
            self.accounted = bytes;
        }
    }

    fn receive(&mut self) {
        let Self {
            links,
            spare,
            inbox,
            ..
        } = self;
        links.receive(|at, frame| inbox.take(spare, at, &frame.body));
        let mut jobs = std::mem::take(&mut self.inbox.jobs);
        for (stage, job) in jobs.drain(..) {
            self.give(stage, job);
        }
        self.inbox.jobs = jobs;
    }

    // ---- stages ----

    fn work_stages(&mut self, cx: &mut NodeContext<'_>) {
        let cluster = Arc::clone(&self.cluster);
        let view = self.in_force.as_ref().map(|now| now.slices.number);
        let mut stage_cx = StageContext {
            cluster: &cluster,
            cx,
            links: &mut self.links,
            spare: &mut self.spare,
            done: &mut self.done,
            view: view.unwrap_or_default(),
            delegated: self.delegated,
        };
        let woken = std::mem::take(&mut self.woken);
        for (number, (stage, inbox)) in self.stages.iter_mut().zip(&cluster.stages).enumerate() {
            match stage {
                Some(stage) => stage.work(&mut stage_cx, inbox),
                None if woken & 1 << number != 0 => {
                    let owner = number % cluster.workers.max(1);
                    stage_cx.cx.host.send(owner, NodeArrival::Wake);
                }
                None => {}
            }
        }
        self.scans.collect(&mut self.stages);
        if self.scans.is_awake(self.now_ns) {
            let since = self.costs.cpu_ns();
            self.scans.step(&mut self.stages, &mut stage_cx);
            self.scans.rest(self.now_ns, self.costs.cpu_ns() - since);
        }
    }

    // ---- answers ----

    /// Gives the outcomes of completed operations to the requests that wait for them.
    fn distribute(&mut self, cx: &mut NodeContext<'_>, filled: &mut Vec<Completed>) {
        let mut done = std::mem::take(&mut self.done);
        self.check_lease(cx, &mut done);
        for completed in done.drain(..) {
            if completed.origin.worker != self.index {
                cx.host.send(
                    completed.origin.worker,
                    NodeArrival::Completed(Box::new(completed)),
                );
                continue;
            }
            match completed.origin.asker {
                Asker::Client { .. } => filled.push(completed),
                Asker::Peer { .. } => self.answer_or_keep(completed),
                Asker::Thread(_) => self.answer_thread(completed),
                Asker::Flush(number, slice) => {
                    self.note_slice_flushed((number, slice), completed.end);
                }
                Asker::Order(number) => self.note_node_flushed(cx, number, &completed),
                Asker::Nobody => {
                    if !matches!(completed.end, End::Done(_)) {
                        self.cluster.flush_soon();
                    }
                    self.give_back(completed);
                }
            }
        }
        // What was completed meanwhile waits for the next turn.
        done.append(&mut self.done);
        self.done = done;
    }

    fn answer_or_keep(&mut self, completed: Completed) {
        let Asker::Peer {
            at,
            delegated,
            number,
        } = completed.origin.asker
        else {
            return;
        };
        match self.answer(at, (delegated, number), &completed) {
            false if self.unanswered.len() < UNANSWERED_MAX => {
                self.unanswered.push_back(completed);
            }
            _ => self.give_back(completed),
        }
    }

    fn answer_again(&mut self) {
        for _ in 0..self.unanswered.len() {
            if let Some(completed) = self.unanswered.pop_front() {
                self.answer_or_keep(completed);
            }
        }
    }

    /// What was read here may be stale if the lease has ended since: then it is not shown.
    fn check_lease(&self, cx: &NodeContext<'_>, done: &mut [Completed]) {
        let of_here = |completed: &&mut Completed| matches!(completed.end, End::Done(_));
        let mut of_here = done.iter_mut().filter(of_here).peekable();
        if of_here.peek().is_none()
            || self
                .cluster
                .still_holds_lease(cx.host.clock().now().instant)
        {
            return;
        }
        for completed in of_here {
            completed.end = End::Failed(Failure::LeaseEnded);
            completed.shown = Cas(0);
            completed.value.clear();
        }
    }

    /// Takes in what another worker received or completed for this one.
    pub(crate) fn take_arrival(&mut self, arrival: NodeArrival) {
        match arrival {
            NodeArrival::Completed(completed) => self.done.push(*completed),
            NodeArrival::Asked(asked, memory) => {
                self.spare.give(memory);
                self.inbox.asked.push(asked);
            }
            NodeArrival::Link(_) | NodeArrival::Wake => {}
        }
    }

    /// Takes back the memory of an outcome that its requester has been told.
    pub(crate) fn give_back(&mut self, completed: Completed) {
        self.spare.give(completed.request);
        self.spare.give(completed.value);
    }
}

/// Counts what was received and sent.
fn count(cx: &mut NodeContext<'_>, counted: LinkCounts) {
    let counts = &mut cx.counts;
    counts.add(Count::ClusterFramesSent, counted.frames);
    counts.add(Count::ClusterPartsSent, counted.parts);
    counts.add(Count::ClusterMessagesSent, counted.messages);
    counts.add(Count::ClusterLinkSends, counted.sends);
    counts.add(Count::ClusterLinkReceives, counted.receives);
}
