//! A worker's part of a node: its links, its slices, and the replies that it waits for.
//!
//! ```text
//!   turn of a worker:  collect -> execute_in_cluster -> reply -> work -> wait
//!                                    |      ^                      |
//!     client requests: here, or -----+      +-- replies fill       +-- receive: jobs for slices,
//!     a job for a slice, or on to               their places           requests, answers
//!     another node                                                 +-- slices, timers, flush
//! ```

use std::{collections::VecDeque, sync::Arc};

use curtail_codec::node::{Class, Part};
use curtail_consistency::{membership::Heartbeat, placement::slice_of};
use curtail_links::{Links, Vitals};
use curtail_types::{Cas, Failure, Instant, NodeId, NodeSet, RouteHash};

use crate::{
    metrics::counters::Count,
    node::{
        Cluster, InForce,
        control_messages::News,
        execute::ExecuteContext,
        forward::Out,
        host::{NodeArrival, NodeContext},
        inbox::Inbox,
        migration::Mover,
        slice_jobs::{Asker, Completed, End, Job, Origin, Spare},
        slices::{Relayed, SliceContext},
    },
};

/// A worker's part in the cluster.
pub(crate) struct NodeWorker {
    pub(super) index: usize,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) links: Links,
    generation: u64,
    pub(super) in_force: Option<Arc<InForce>>,
    /// This node may answer in this turn.
    pub(crate) serves: bool,
    pub(super) execute_cx: ExecuteContext,
    pub(super) spare: Spare,
    pub(super) done: Vec<Completed>,
    /// What has been answered to clients of this worker in this turn.
    pub(crate) completed: Vec<Completed>,
    elsewhere: Vec<Relayed>,
    /// Memory for jobs that are taken out of a slice's inbox.
    jobs: Vec<Job>,
    /// Requests that other nodes carry out.
    pub(super) out: Vec<Option<Out>>,
    pub(super) free: Vec<u32>,
    /// Those of them that have to be sent again.
    pub(super) parked: VecDeque<u32>,
    /// Slices that have got something to do from this worker.
    woken: u64,
    pub(super) inbox: Inbox,
    pub(super) mover: Mover,
    /// What could not be told or asked for want of room.
    pub(super) untold: Vec<(NodeId, News)>,
    pub(super) unasked: Vec<(NodeId, RouteHash, Box<[u8]>)>,
    /// Joining nodes that follow all hot keys of this worker's slices.
    pub(super) filled: NodeSet,
    /// The mark up to which everything prepared is under way.
    pub(super) mark_done: u64,
    /// The last heartbeat that was passed on, and the last call: what it said and when.
    beat: u64,
    pub(super) called: (u32, Instant),
    pub(super) delegated: u64,
    /// When the turn began, and when what is out was last looked through.
    pub(super) now_ns: u64,
    pub(super) looked_ns: u64,
    /// Bytes of links that are counted against the limit of memory.
    accounted: usize,
}

/// After how long it is sent again when a node was not ready for it.
pub(super) const AGAIN_NS: u64 = 500_000;

impl NodeWorker {
    pub(crate) fn new(index: usize, cluster: Arc<Cluster>, links: Links) -> Self {
        Self {
            index,
            cluster,
            links,
            generation: 0,
            in_force: None,
            serves: false,
            execute_cx: ExecuteContext::default(),
            spare: Spare::default(),
            done: Vec::new(),
            completed: Vec::new(),
            elsewhere: Vec::new(),
            jobs: Vec::new(),
            out: Vec::new(),
            free: Vec::new(),
            parked: VecDeque::new(),
            woken: 0,
            inbox: Inbox::default(),
            mover: Mover::default(),
            untold: Vec::new(),
            unasked: Vec::new(),
            filled: NodeSet::NONE,
            beat: 0,
            called: (0, Instant::default()),
            mark_done: 0,
            delegated: 0,
            now_ns: 0,
            looked_ns: 0,
            accounted: 0,
        }
    }

    /// Looks at what may differ from turn to turn.
    pub(crate) fn begin_turn(&mut self, cx: &mut NodeContext<'_>) {
        let now = cx.store_cx.now.instant;
        // Never one of this node's former life, for which an answer may still come.
        self.delegated = self.delegated.max(cx.host.started().unix_ns) + 1;
        self.now_ns = now.ns;
        if self.cluster.views.generation() != self.generation {
            self.generation = self.cluster.views.generation();
            let next = self.cluster.views.current();
            let left = self.end_last_move(cx, next.as_deref());
            self.in_force = next;
            self.tell_slices();
            for (route, key) in left {
                self.give(slice_of(route), Job::Sweep(route, key));
            }
            self.filled = NodeSet::NONE;
            self.begin_moves(cx);
        }
        self.serves = self.in_force.is_some() && self.cluster.holds_lease(now);
    }

    /// The slices that this worker sees to.
    pub(super) fn own_slices(&self) -> impl Iterator<Item = usize> + use<> {
        let workers = self.cluster.workers;
        (self.index..self.cluster.slices.len()).step_by(workers.max(1))
    }

    fn tell_slices(&mut self) {
        let in_force = self.in_force.clone();
        for number in self.own_slices() {
            let job = match &in_force {
                Some(in_force) => Job::View(Arc::clone(in_force)),
                None => Job::Forget,
            };
            self.give(number, job);
        }
    }

    /// Leaves a job for a slice, to be done before this turn ends.
    pub(super) fn give(&mut self, slice: usize, job: Job) {
        if let Some(slice) = self.cluster.slices.get(slice) {
            slice.leave(job);
        }
        self.woken |= 1 << slice;
    }

    /// Whether there is something to do at once.
    pub(crate) fn wants_turn(&self) -> bool {
        let moves = self.moves_due_ns().is_some_and(|ns| ns <= self.now_ns);
        self.links.wants_turn() || self.woken != 0 || !self.done.is_empty() || moves
    }

    /// When there will be something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        let dues = &self.cluster.dues;
        let timers = self.own_slices().map(|slice| dues.of(slice)).min();
        let waits = !self.parked.is_empty()
            || self.cluster.marks.last() != self.mark_done
            || self.mover.awaits_taking();
        let again = waits.then_some(self.now_ns + AGAIN_NS);
        let moves = self.moves_due_ns();
        let earliest = [timers, again, moves].into_iter().flatten().min();
        let earliest = earliest
            .filter(|&ns| ns != u64::MAX)
            .map(|ns| Instant { ns });
        [earliest, self.links.due()].into_iter().flatten().min()
    }

    /// Everything of a turn that clients have no part in; fills `filled` with what has been
    /// answered to clients of this worker.
    pub(crate) fn work(&mut self, cx: &mut NodeContext<'_>, filled: &mut Vec<Completed>) {
        self.links.begin_turn(cx.store_cx.now.instant);
        self.beat(cx);
        self.receive();
        self.take_moves(cx);
        self.answer_peers(cx);
        self.take_answers(cx);
        self.take_events(cx);
        self.promote_prepared();
        self.work_slices(cx);
        self.send_again(cx);
        self.tell_again(cx);
        if self.is_moving() {
            self.move_some(cx);
        }
        self.look_through(cx);
        self.distribute(cx, filled);
        self.links.flush();
        self.count(cx);
        self.account(cx);
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

    fn count(&mut self, cx: &mut NodeContext<'_>) {
        let counted = self.links.take_counts();
        let counts = &mut cx.counts;
        counts.add(Count::ClusterFramesSent, counted.frames);
        counts.add(Count::ClusterPartsSent, counted.parts);
        counts.add(Count::ClusterMessagesSent, counted.messages);
        counts.add(Count::ClusterLinkSends, counted.sends);
        counts.add(Count::ClusterLinkReceives, counted.receives);
    }

    // ---- links ----

    /// Tells the others that this node is there, when the membership wants that.
    fn beat(&mut self, cx: &NodeContext<'_>) {
        if self.index != 0 {
            return;
        }
        let Some((beat, heartbeats)) = self.cluster.heartbeats(self.beat) else {
            return;
        };
        self.beat = beat;
        let view = heartbeats.first().map(|(_, heartbeat)| heartbeat.view);
        let view = view.unwrap_or_default();
        self.links.set_vitals(Vitals { view, load: 0 });
        let items = u32::try_from(cx.store_cx.store.counters().items_now).unwrap_or(u32::MAX);
        let sent_us = (self.now_ns / 1000) as u32;
        self.called = (sent_us, Instant { ns: self.now_ns });
        self.cluster.clock.keep(cx.host.clock().now());
        for (node, heartbeat) in heartbeats {
            self.tell_now(node, News::Beat { heartbeat, items });
            self.tell_now(node, News::Call { sent_us });
        }
        // A process that is too slow to send heartbeats must not suspect others.
        self.cluster.heard(self.cluster.me, Heartbeat::default());
    }

    /// Sends a node a message that is not worth a retry.
    pub(super) fn tell_now(&mut self, node: NodeId, news: News) {
        if let Some(to) = self.links.endpoint(node) {
            let bytes = news.to_bytes();
            // The next one follows soon.
            let _ = self.links.send(to, Class::Answer, &Part::Report(&bytes));
        }
    }

    fn receive(&mut self) {
        let Self {
            links,
            cluster,
            spare,
            woken,
            inbox,
            ..
        } = self;
        links.receive(|at, frame| inbox.take(cluster, (spare, woken), at, &frame.body));
    }

    /// Leaves a request for the machine of its key.
    pub(super) fn give_request(
        &mut self,
        origin: Origin,
        key: RouteHash,
        (access, after): (curtail_consistency::symmetric::Access, Cas),
        bytes: Vec<u8>,
    ) {
        let job = Job::Request {
            origin,
            key,
            access,
            after,
            bytes,
        };
        self.give(slice_of(key), job);
    }

    // ---- slices ----

    fn work_slices(&mut self, cx: &mut NodeContext<'_>) {
        let now_ns = cx.store_cx.now.instant.ns;
        for number in self.own_slices() {
            if self.cluster.dues.of(number) <= now_ns {
                self.give(number, Job::Tick);
            }
        }
        let cluster = Arc::clone(&self.cluster);
        let mut slice_cx = SliceContext {
            cluster: &cluster,
            cx,
            links: &mut self.links,
            execute_cx: &mut self.execute_cx,
            spare: &mut self.spare,
            done: &mut self.done,
            elsewhere: &mut self.elsewhere,
            jobs: &mut self.jobs,
        };
        let mut woken = std::mem::take(&mut self.woken);
        while woken != 0 {
            let number = woken.trailing_zeros() as usize;
            woken &= woken - 1;
            let owner = number % cluster.workers.max(1);
            if cluster.by_owner && owner != self.index {
                slice_cx.cx.host.send(owner, NodeArrival::Wake(number));
            } else if let Some(slice) = cluster.slices.get(number) {
                slice.work(&mut slice_cx);
            }
        }
        let mut elsewhere = std::mem::take(&mut self.elsewhere);
        for relayed in elsewhere.drain(..) {
            match relayed.origin.asker {
                Asker::Client { .. } => self.relay(cx.store_cx.now.instant, relayed),
                // A request goes over one link at most: its node asks again.
                Asker::Peer { .. } => self.done.push(Completed::without_value(
                    relayed.origin,
                    relayed.bytes,
                    End::Elsewhere,
                )),
            }
        }
        self.elsewhere = elsewhere;
    }

    // ---- answers ----

    /// Gives what is done to whoever waits for it.
    fn distribute(&mut self, cx: &NodeContext<'_>, filled: &mut Vec<Completed>) {
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
                Asker::Peer {
                    at,
                    delegated,
                    number,
                } => {
                    self.answer(at, (delegated, number), &completed);
                    self.give_back(completed);
                }
            }
        }
        self.done = done;
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
            completed.ts = Cas(0);
            completed.value.clear();
        }
    }

    /// Takes in what another worker received or completed for this one.
    pub(crate) fn take_arrival(&mut self, cx: &mut NodeContext<'_>, arrival: NodeArrival) {
        match arrival {
            NodeArrival::Waiter(waiter) => self.await_arrival(cx, *waiter),
            NodeArrival::Proposal(proposal) => self.propose(cx, &proposal),
            NodeArrival::MovedKey(moved) => self.take_moved(cx, *moved),
            NodeArrival::MoveAsked(asked) => self.take_move_request(cx, *asked),
            NodeArrival::Wake(slice) => self.woken |= 1 << slice,
            NodeArrival::Completed(completed) => self.done.push(*completed),
            _ => {}
        }
    }

    /// Takes the memory of what has been told to whoever asked.
    pub(crate) fn give_back(&mut self, completed: Completed) {
        self.spare.give(completed.request);
        self.spare.give(completed.value);
    }
}
