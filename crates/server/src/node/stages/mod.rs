//! The machines of a node, one for each stage of its slices, and the host that they act through.
//!
//! ```text
//!   any worker:  give(stage, job) ---> inbox ---> the stage's worker: step ---> host
//!                                                                                |
//!        readers <--- gates, shared keys, copies  <------------------------------+
//!        store   <--- run, apply, evict, clear    <------------------------------+
//!        nodes   <--- send, forward               requester     <--- respond <---+
//! ```
//!
//! Invariants: only a stage's own worker steps its machine, so what it says to a node goes over one
//! link. What waits until no request runs beside the machine waits for a mark that every worker
//! passes, and for the writes that were accepted before.

mod host;
mod hot_copies;
mod jobs;
mod refusals;
mod scans;
mod sending;
mod slice_gates;
mod waiting;

use std::collections::VecDeque;

use curtail_codec::node::ItemRequest;
use curtail_consistency::{
    replica::{
        Gate, Replica, ReplicaConfig, ReplicaEvent, ReplicaMessage, ReplicaRefusal, ReplicaRequest,
        Ticket,
    },
    slice_view::{SLICES, SliceId},
};
use curtail_links::Links;
use curtail_store::Image;
use curtail_types::{
    Access, Cas, Failure, HybridClock, Instant, NodeId, RouteHash, ViewNumber, WriterId,
};

use crate::{
    metrics::counters::Count,
    node::{Cluster, host::NodeContext, inbox::ForwardAnswer},
    places::Places,
    sync::{Mutex, lock},
};

use host::StageHost;
pub(crate) use hot_copies::CopyTable;
use jobs::Carried;
pub(crate) use jobs::Completed;
pub(super) use jobs::{Asker, End, Job, Origin, Spare, written};
pub(super) use scans::SliceScans;
use sending::Unsent;
pub(super) use sending::forwarded;
pub(crate) use slice_gates::Gates;
use waiting::Waiting;

/// Machines that a node divides its slices among; slice `s` belongs to stage `s` modulo this.
pub(crate) const STAGES: usize = 8;

/// The stage of a slice.
#[inline]
pub(crate) const fn stage_of(slice: SliceId) -> usize {
    slice.0 as usize % STAGES
}

/// What other workers leave for a stage, and when its machine wants to be told the time.
#[derive(Debug, Default)]
pub(crate) struct StageInbox {
    jobs: Mutex<Vec<Job>>,
    pub(crate) copies: CopyTable,
}

/// A stage: its machine, and what belongs to its requests. One worker owns it.
#[derive(Debug)]
pub(super) struct Stage {
    machine: Replica,
    config: ReplicaConfig,
    state: StageState,
    /// Memory for jobs that are taken out of the inbox.
    jobs: Vec<Job>,
}

/// What the host of a machine keeps between its calls.
#[derive(Debug)]
pub(super) struct StageState {
    number: u16,
    requests: Places<Waiting>,
    clock: HybridClock,
    writer: WriterId,
    /// Slices whose gates were open.
    closing: VecDeque<ClosingGate>,
    /// Requests that could not be sent to another node.
    unforwarded: Vec<(NodeId, Ticket)>,
    /// Requests that are to be given to the machine again.
    again: Vec<Waiting>,
    /// Writes to copies that are under way.
    writes: Vec<(RouteHash, Cas, Ticket)>,
    /// Slices whose scans begin, or go on.
    pub(super) scans: Vec<(SliceId, bool)>,
    unsent: Unsent,
    key: Vec<u8>,
    value: Vec<u8>,
    message: Vec<u8>,
    /// With `key` and `value`: an item that is on its way out.
    image: Image,
}

/// What a stage works with.
pub(super) struct StageContext<'a, 'n> {
    pub(super) cluster: &'a Cluster,
    pub(super) cx: &'a mut NodeContext<'n>,
    pub(super) links: &'a mut Links,
    pub(super) spare: &'a mut Spare,
    /// What has been completed.
    pub(super) done: &'a mut Vec<Completed>,
    /// The view that this worker has come to, and the number of what it sends in this turn.
    pub(super) view: ViewNumber,
    pub(super) delegated: u64,
}

/// A gate that was open, until nothing runs any more that it let pass.
#[derive(Debug)]
struct ClosingGate {
    slice: SliceId,
    /// All workers are to pass this mark.
    mark: u64,
    /// Up to here the accepted writes are to be executed.
    tails: Box<[u64]>,
}

impl StageInbox {
    /// Leaves a job; whether it is the first.
    pub(super) fn leave(&self, job: Job) -> bool {
        let mut jobs = lock(&self.jobs);
        jobs.push(job);
        jobs.len() == 1
    }
}

impl Stage {
    pub(super) fn new(number: usize, config: ReplicaConfig, writer: WriterId) -> Self {
        let number = number as u16;
        let config = ReplicaConfig {
            stage: (number, STAGES as u16),
            ..config
        };
        Self {
            machine: Replica::new(config),
            config,
            state: StageState::new(number, writer, Cas(0)),
            jobs: Vec::new(),
        }
    }

    /// When there will be something to do.
    pub(super) fn due(&self, now: Instant, retry_ns: u64) -> Option<Instant> {
        let waits = !self.state.closing.is_empty() || !self.state.unsent.is_empty();
        let soon = waits.then_some(now.later(retry_ns));
        [self.machine.deadline(), soon].into_iter().flatten().min()
    }

    /// Does what was left for it, and what is due.
    pub(super) fn work(&mut self, stage_cx: &mut StageContext<'_, '_>, inbox: &StageInbox) {
        let now = stage_cx.cx.store_cx.now.instant;
        self.state.send_again(stage_cx);
        if self.machine.deadline().is_some_and(|due| due <= now) {
            self.step(stage_cx, ReplicaEvent::Tick);
        }
        self.note_closed(stage_cx);
        let mut jobs = std::mem::take(&mut self.jobs);
        std::mem::swap(&mut jobs, &mut *lock(&inbox.jobs));
        for job in jobs.drain(..) {
            self.carry_out(stage_cx, job);
        }
        self.jobs = jobs;
        self.evict(stage_cx);
    }

    pub(super) fn carry_out(&mut self, stage_cx: &mut StageContext<'_, '_>, job: Job) {
        match job {
            Job::Request {
                origin,
                key,
                access,
                bytes,
            } => {
                stage_cx.cx.counts.add(Count::ClusterProtocol, 1);
                let waiting = Waiting::new(origin, (key, access), bytes, stage_cx.spare.take());
                self.place(stage_cx, waiting);
            }
            Job::Message(from, message, item) => {
                self.take_message(stage_cx, (from, &message), item);
            }
            Job::Answered(place, answer) => self.take_answer(stage_cx, place, answer),
            Job::View(view) => self.step(stage_cx, ReplicaEvent::View(&view)),
            Job::Forget => self.forget(stage_cx),
            Job::Wanted(slice, step) => self.step(stage_cx, ReplicaEvent::Wanted(slice, step)),
            Job::Heat(key, is_hot) => self.step(stage_cx, ReplicaEvent::Heat(key, is_hot)),
            Job::Flush(slice, origin) => {
                let ticket = Ticket(self.state.requests.keep(Waiting::flush(origin)));
                self.step(stage_cx, ReplicaEvent::Flush(slice, ticket));
            }
        }
    }

    /// Gives a request to the machine.
    fn place(&mut self, stage_cx: &mut StageContext<'_, '_>, mut waiting: Waiting) {
        let size = size_of_item(stage_cx, &waiting);
        waiting.size = size;
        let (key, access) = (waiting.key, waiting.access);
        let is_forwarded = matches!(waiting.done.origin.asker, Asker::Peer { .. });
        let ticket = Ticket(self.state.requests.keep(waiting));
        let request = ReplicaRequest {
            ticket,
            key,
            access,
            size,
            is_forwarded,
        };
        self.step(stage_cx, ReplicaEvent::Request(request));
    }

    fn take_message(
        &mut self,
        stage_cx: &mut StageContext<'_, '_>,
        (from, message): (NodeId, &ReplicaMessage),
        item: Option<Carried>,
    ) {
        let host = &mut StageHost {
            stage_cx,
            state: &mut self.state,
            incoming: item.as_ref(),
        };
        self.machine
            .step(ReplicaEvent::Message(from, message), host);
        if let Some(item) = item {
            stage_cx.spare.give(item.into_bytes());
        }
        self.settle(stage_cx);
    }

    fn take_answer(
        &mut self,
        stage_cx: &mut StageContext<'_, '_>,
        place: u32,
        answer: ForwardAnswer,
    ) {
        let ForwardAnswer {
            from,
            delegated,
            mut end,
            shown,
            copies,
            mut value,
            ..
        } = answer;
        let found = self.state.requests.at(place);
        let found = found.filter(|(_, waiting)| waiting.sent == Some((from, delegated)));
        let Some((name, waiting)) = found else {
            return stage_cx.spare.give(value);
        };
        waiting.sent = None;
        let mut answer = Err(ReplicaRefusal::Elsewhere);
        if end != End::Elsewhere {
            if !end.answers(&waiting.done.request, &value) {
                end = End::Failed(Failure::NodeLost);
            }
            let done = &mut waiting.done;
            (done.end, done.shown, done.copies) = (end, shown, copies);
            std::mem::swap(&mut done.value, &mut value);
            answer = Ok(shown);
        }
        stage_cx.spare.give(value);
        self.step(stage_cx, ReplicaEvent::Answered(from, Ticket(name), answer));
    }

    fn step(&mut self, stage_cx: &mut StageContext<'_, '_>, event: ReplicaEvent<'_>) {
        let host = &mut StageHost {
            stage_cx,
            state: &mut self.state,
            incoming: None,
        };
        self.machine.step(event, host);
        self.settle(stage_cx);
    }

    /// Does what a step left to be done behind it.
    fn settle(&mut self, stage_cx: &mut StageContext<'_, '_>) {
        while let Some((to, ticket)) = self.state.unforwarded.pop() {
            let answer = Err(ReplicaRefusal::Elsewhere);
            self.step(stage_cx, ReplicaEvent::Answered(to, ticket, answer));
        }
        while let Some(waiting) = self.state.again.pop() {
            self.place(stage_cx, waiting);
        }
    }

    /// Tells of gates that no request passes any more.
    fn note_closed(&mut self, stage_cx: &mut StageContext<'_, '_>) {
        let (marks, host) = (&stage_cx.cluster.marks, stage_cx.cx.host);
        while let Some(closing) = self.state.closing.front() {
            if !marks.is_passed(closing.mark) || !host.has_executed(&closing.tails) {
                return;
            }
            let slice = closing.slice;
            self.state.closing.pop_front();
            // The machine's next versions are above those that threads gave while it was open.
            let last = stage_cx.cx.store_cx.store.last_cas();
            self.state.clock.follow(last);
            self.step(stage_cx, ReplicaEvent::Closed(slice));
        }
    }

    /// Makes room ahead of the writes that need it.
    fn evict(&mut self, stage_cx: &mut StageContext<'_, '_>) {
        let store = &stage_cx.cx.store_cx.store;
        if store.wants_eviction(self.state.number) {
            let message = ReplicaMessage::Evict(store.eviction_bytes());
            let me = self.config.me;
            self.step(stage_cx, ReplicaEvent::Message(me, &message));
        }
    }

    /// This node is no member any more: what the machine knows is of no use.
    fn forget(&mut self, stage_cx: &mut StageContext<'_, '_>) {
        self.machine = Replica::new(self.config);
        let (cluster, state) = (stage_cx.cluster, &mut self.state);
        for slice in (state.number..SLICES).step_by(STAGES).map(SliceId) {
            cluster.gates.set(slice, Gate::Closed);
            stage_cx.cx.host.set_accepting(slice.0, false);
            stage_cx.cx.store_cx.store.set_free(slice.0, false);
        }
        for node in 0..curtail_types::NodeSet::NODES_MAX {
            let account = state.account(NodeId(node as u8));
            stage_cx.cx.store_cx.store.promise(account, 0, 0);
        }
        let keys = &cluster.keys;
        if let Some(inbox) = cluster.stages.get(usize::from(state.number)) {
            let store = &stage_cx.cx.store_cx.store;
            inbox.copies.clear(|key| {
                store.let_go(store.hash_of_route(key));
                keys.settle(key, curtail_dispatch::SharedState::Ordinary);
            });
        }
        for place in state.requests.all() {
            let name = state.requests.at(place).map(|(name, _)| name);
            let Some(waiting) = name.and_then(|name| state.requests.take(name)) else {
                continue;
            };
            let Completed {
                origin, request, ..
            } = waiting.done;
            let failed = Completed::failed(origin, request, Failure::ViewChanged);
            stage_cx.done.push(failed);
        }
        let store_cx = &stage_cx.cx.store_cx;
        state.clock.follow(store_cx.store.last_cas());
        let last = state.clock.next(store_cx.now);
        // Each life of a node has another writer: what one life wrote may be lost with it.
        *state = StageState::new(state.number, super::next_writer(state.writer), last);
        cluster.note_forgotten();
    }
}

impl StageState {
    /// The state of a machine that writes as `writer`, later than `last`.
    fn new(number: u16, writer: WriterId, last: Cas) -> Self {
        Self {
            number,
            requests: Places::default(),
            clock: HybridClock::new(writer, last),
            writer,
            closing: VecDeque::new(),
            unforwarded: Vec::new(),
            again: Vec::new(),
            writes: Vec::new(),
            scans: Vec::new(),
            unsent: Unsent::default(),
            key: Vec::new(),
            value: Vec::new(),
            message: Vec::new(),
            image: Image::default(),
        }
    }

    /// Under which the store keeps room for changes of another node.
    fn account(&self, node: NodeId) -> u16 {
        self.number * curtail_types::NodeSet::NODES_MAX as u16 + u16::from(node.0)
    }
}

/// Bytes of the item that a request may store.
fn size_of_item(stage_cx: &mut StageContext<'_, '_>, waiting: &Waiting) -> u32 {
    let request = ItemRequest::decode(&waiting.done.request);
    let Some(request) = request.filter(|_| waiting.access != Access::Read) else {
        return 0;
    };
    let store_cx = &mut *stage_cx.cx.store_cx;
    let hash = store_cx.store.hash(request.key.bytes());
    store_cx.request_bytes(request.key, hash, &request.operation, request.value.len())
}

const _: () = assert!(SLICES as usize >= STAGES);
