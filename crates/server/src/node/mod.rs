//! A server that is a node of a cluster: any client may talk to any node (ccKVS, EuroSys 2018).
//!
//! ```text
//!                    clients
//!                       |
//!      worker: may the request run beside its slice's machine?  (placement)
//!         |                     |                   |
//!       here              the machine of        node link to its primary
//!     store, as           the key's slice       (forward), relayed reply
//!     a server alone      (stages)
//!                           |       ^
//!                 messages to and from the other nodes
//! ```
//!
//! `active_view` is the view that this node acts on, `membership` who brings it. The protocol is
//! `curtail_consistency::replica`; `stages` is its host. Everything is owned by workers: there is
//! no thread of the cluster on the path of a request.

mod active_view;
mod answers_to_peers;
mod clock;
mod event_history;
mod execute;
mod flush;
mod forward;
mod forward_responses;
pub(crate) mod host;
mod hot_keys;
mod inbox;
mod membership;
mod peer_heartbeats;
mod request_placement;
mod requests_asked;
mod requests_elsewhere;
mod requests_of_threads;
mod stages;
mod work_costs;
mod worker;

use std::sync::{Arc, OnceLock};

use curtail_consistency::{
    cluster_clock::Reading,
    control_messages::ControlMessage,
    hot_list::HotCosts,
    members::Heartbeat,
    replica::{Gate, Model, ReplicaConfig},
    slice_view::{SLICES, SliceRow, slice_of},
};
use curtail_dispatch::{SharedKeys, SharedState};
use curtail_links::ConnectorHandle;
use curtail_membership::{MemberHandle, StoreAsked};
use curtail_types::{Access, Exptime, Instant, NodeId, NodeSet, Now, Outcome, RouteHash, WriterId};
use tracing::warn;

use crate::{
    completion::AskingThread,
    config::Config,
    limits::{SHARED_KEYS_MAX, STAGE_WAITING_MAX},
    log::component,
    node::{
        active_view::{Marks, Views},
        clock::WallClock,
        event_history::EventHistory,
        host::{NodeContext, NodeHost},
        hot_keys::HotState,
        requests_of_threads::ThreadAnswers,
        stages::{Gates, StageInbox, stage_of},
        work_costs::CostTally,
    },
    sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Relaxed, lock},
    test_faults::{Fault, TestFaults},
};

pub(crate) use crate::node::{
    active_view::ViewInForce,
    event_history::Member,
    membership::{Membership, Opening},
    request_placement::{SeenKey, Way, route_of},
    stages::{Completed, STAGES},
    worker::NodeWorker,
};

/// A longer value travels on a connection of its own.
const LARGE_BYTES: usize = 4 << 10;

/// What the threads of a node share.
pub(crate) struct Cluster {
    pub(crate) me: NodeId,
    pub(crate) replicas: usize,
    pub(crate) workers: usize,
    pub(crate) keys: SharedKeys,
    gates: Gates,
    stages: Box<[StageInbox]>,
    config: ReplicaConfig,
    /// The writer of the machines in this life.
    writer: WriterId,
    views: Views,
    clock: WallClock,
    /// A view that is to be in force as soon as the clock is set.
    unset: Mutex<Option<Arc<ViewInForce>>>,
    pub(crate) marks: Marks,
    pub(crate) connector: ConnectorHandle,
    member: OnceLock<MemberHandle>,
    outbox: Mutex<Outbox>,
    hot: Mutex<HotState>,
    costs: CostTally,
    /// Of each thread that asks.
    thread_answers: [ThreadAnswers; AskingThread::COUNT],
    hot_keys_max: usize,
    /// A session must see no earlier write than it has seen, wherever it asks (CC-11). What is
    /// linearizable needs nothing for that.
    keeps_sessions: bool,
    /// What a test has it do wrong.
    faults: TestFaults,
    /// Keys that are hot, as of the last epoch.
    hot_count: AtomicUsize,
    /// When everything is to be flushed, in Unix seconds; 0 for never.
    flush_at: AtomicU64,
    /// Stages that have forgotten what they knew since this node was removed, if it was, and the
    /// mark that all workers pass behind that: only then does it join anew.
    forgotten: AtomicUsize,
    forgotten_mark: AtomicU64,
    pub(crate) journal: EventHistory,
    /// It was told to end, and has left.
    is_leaving: AtomicBool,
    has_left: AtomicBool,
}

/// What the membership and the control thread have to say to other nodes; worker 0 sends it.
#[derive(Default)]
struct Outbox {
    /// The last heartbeats, if they were not sent.
    heartbeats: Option<Vec<(NodeId, Heartbeat)>>,
    news: Vec<(NodeId, ControlMessage)>,
}

/// The writers of the machines: no worker has them. Each life of a node has
/// another, because what one life wrote may be lost with it, and its versions must not come again.
const MACHINES: std::ops::Range<u16> = WriterId::PER_NODE / 2..WriterId::PER_NODE;

/// The writer of a node's machines in a life with this number.
fn machines(me: NodeId, life: u16) -> WriterId {
    WriterId::of(me, MACHINES.start + life % MACHINES.len() as u16)
}

/// The writer of the next life.
fn next_writer(writer: WriterId) -> WriterId {
    machines(writer.node(), writer.0.wrapping_add(1))
}

const MS_NS: u64 = 1_000_000;

/// Room that a primary asks of a follower at a time, in bytes.
const ROOM_ASK: u64 = 256 << 10;

/// An own clock that differs by more from the cluster's is worth a line.
const APART_NS_MAX: u64 = 1000 * MS_NS;

const _: () = assert!(8 * Config::HOT_KEYS_MAX == SHARED_KEYS_MAX);

impl Cluster {
    pub(crate) fn new(
        (me, now): (NodeId, Now),
        (model, replicas, lease_ms): (Model, usize, u64),
        (hot_keys_max, faults): (usize, TestFaults),
        (workers, threads): (usize, usize),
        connector: ConnectorHandle,
    ) -> Self {
        // In milliseconds or so: no two starts share a time, but for a chance in many.
        let life = (now.unix_ns >> 20) as u16;
        let config = ReplicaConfig {
            me,
            model,
            retransmit_ns: 20 * MS_NS,
            // Two that do not hear each other: one is removed after three leases at the latest. If
            // it had been alone with a slice by then, the slice would be lost.
            suspicion_ns: 4 * lease_ms * MS_NS,
            patience_ns: 5000 * MS_NS,
            learning_ns: 1000 * MS_NS,
            waiting_max: STAGE_WAITING_MAX,
            window_max: 256,
            room_ask: ROOM_ASK,
            catch_ups_max: 4,
            stage: (0, STAGES as u16),
        };
        Self {
            me,
            replicas,
            workers,
            keys: SharedKeys::new(SHARED_KEYS_MAX),
            gates: Gates::new(),
            stages: (0..STAGES).map(|_| StageInbox::default()).collect(),
            config,
            writer: machines(me, life),
            views: Views::default(),
            clock: WallClock::new(me, now, faults),
            unset: Mutex::default(),
            marks: Marks::new(threads),
            connector,
            member: OnceLock::new(),
            outbox: Mutex::default(),
            hot: Mutex::new(HotState::new(model, hot_keys_max)),
            costs: CostTally::default(),
            thread_answers: Default::default(),
            hot_keys_max,
            keeps_sessions: model == Model::Sc,
            faults,
            hot_count: AtomicUsize::new(0),
            flush_at: AtomicU64::new(0),
            forgotten: AtomicUsize::new(STAGES),
            forgotten_mark: AtomicU64::new(0),
            journal: EventHistory::default(),
            is_leaving: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        }
    }

    /// Has `show` look at the copy of a hot key, if readers here may see it.
    pub(crate) fn read_copy<T>(
        &self,
        now: Now,
        key: RouteHash,
        show: impl FnOnce(Outcome, &[u8]) -> T,
    ) -> Option<T> {
        let inbox = self.stages.get(stage_of(slice_of(key, SLICES)))?;
        inbox.copies.read(now, key, show)
    }

    /// Whether the primary of `key`, which is hot, may still tell a reader to store its stale item
    /// again.
    fn may_be_won(&self, key: RouteHash) -> bool {
        let inbox = self.stages.get(stage_of(slice_of(key, SLICES)));
        inbox.is_some_and(|inbox| inbox.copies.may_be_won(key))
    }

    /// Has the membership hear something, once there is one.
    fn tell_member(&self, tell: impl FnOnce(&MemberHandle)) {
        if let Some(member) = self.member.get() {
            tell(member);
        }
    }

    /// Has worker 0 tell another node something.
    fn tell(&self, host: &dyn NodeHost, node: NodeId, news: ControlMessage) {
        lock(&self.outbox).news.push((node, news));
        host.wake_all();
    }

    /// Whether this node may answer at `now`.
    #[inline]
    pub(crate) fn holds_lease(&self, now: Instant) -> bool {
        let member = self.member.get();
        let holds = member.is_some_and(|member| member.lease().holds(now));
        (holds && self.clock.is_set()) || self.has(Fault::ServesPastLease)
    }

    /// Whether a request for `key` runs here at `now` as on a server that is alone.
    pub(crate) fn runs_here(&self, now: Instant, key: RouteHash, access: Access) -> bool {
        let here =
            |in_force: Arc<ViewInForce>| matches!(self.place(&in_force, key, access), Way::Here);
        self.holds_lease(now) && self.views.current().is_some_and(here)
    }

    /// Whether a write of `key` may be accepted at `now` before it is executed: nobody else holds
    /// its slice, so that all who ask for it ask here, beside the machine.
    pub(crate) fn may_accept(&self, now: Instant, key: RouteHash) -> bool {
        let (gate, _) = self.gates.look(slice_of(key, SLICES));
        let is_ordinary = self.keys.look(key).state == SharedState::Ordinary;
        gate == Gate::Open && is_ordinary && self.holds_lease(now)
    }

    /// Whether it still may when replies are about to leave: `now` is read after all was run.
    pub(crate) fn still_holds_lease(&self, now: Instant) -> bool {
        self.holds_lease(now) && !self.has(Fault::LeaseEndsInTurn)
    }

    /// Whether this node was started with this fault; in release builds it never was.
    #[inline(always)]
    fn has(&self, fault: Fault) -> bool {
        self.faults.has(fault)
    }

    /// Whether it has left the cluster, as it was told to.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Relaxed)
    }

    /// The time, as items see it: the cluster's.
    #[inline]
    pub(crate) fn unix_ns(&self, now: Instant) -> u64 {
        self.clock.unix_ns(now)
    }

    /// Has a view be in force, or none; if there is no common time yet, as soon as there is.
    fn put_in_force(&self, next: Option<Arc<ViewInForce>>) {
        let mut unset = lock(&self.unset);
        if next.is_some() && !self.clock.is_set() {
            *unset = next;
        } else {
            *unset = None;
            self.views.put_in_force(next);
        }
    }

    /// Another node, called at `sent`, has said what time it is. The first that is known puts the
    /// view in force that waits for it.
    fn set_clock(&self, host: &dyn NodeHost, (now, sent): (Instant, Instant), said: Reading) {
        let was_set = self.clock.is_set();
        self.clock.take_in(now, sent, said);
        if was_set || !self.clock.is_set() {
            return;
        }
        let (_, apart_ns) = self.clock.errors_ns(host.clock().now());
        if apart_ns > APART_NS_MAX {
            let (me, ms) = (self.me.0, apart_ns / MS_NS);
            warn!(
                target: component::CLUSTER,
                node = me,
                apart_ms = ms,
                "the clock of this machine differs by {ms} ms from the clock of the member with \
                 the lowest id. Items expire by that member's clock. Set the clock that is wrong"
            );
        }
        let mut unset = lock(&self.unset);
        if let Some(waits) = unset.take() {
            // Under the lock: a later view must not be there before it.
            self.views.put_in_force(Some(waits));
            host.wake_all();
        }
    }

    /// What `stats curtail` tells of it.
    pub(crate) fn statistics(&self, now: Now, mut stat: impl FnMut(&'static str, u64)) {
        let in_force = self.views.current();
        let slices = in_force.as_ref().map(|now| &*now.slices);
        let rows = || slices.into_iter().flat_map(|slices| slices.rows());
        let count =
            |is: &dyn Fn(&SliceRow) -> bool| rows().filter(|(_, row)| is(row)).count() as u64;
        let (me, replicas) = (self.me, self.replicas);
        let members = slices.map_or(NodeSet::NONE, |slices| slices.members);
        let holders = rows().fold(NodeSet::NONE, |all, (_, row)| all.union(row.holders));
        let wanted = replicas.min(members.len().max(1));
        let moving = in_force.as_ref().is_some_and(|now| !now.is_settled);
        let view = slices.map_or(0, |slices| u64::from(slices.number.0));
        stat("cluster_node", u64::from(me.0));
        stat("cluster_view", view);
        stat("cluster_nodes_live", members.len() as u64);
        stat("cluster_nodes_placed", holders.len() as u64);
        stat("cluster_moves", u64::from(moving));
        stat("cluster_slices", rows().count() as u64);
        let primary = count(&|row| row.primary == me);
        let held = count(&|row| row.holders.contains(me));
        let behind = count(&|row| !row.catching_up().is_empty());
        let few = count(&|row| row.in_sync.len() < wanted);
        stat("cluster_slices_primary", primary);
        stat("cluster_slices_held", held);
        stat("cluster_slices_catching_up", behind);
        stat("cluster_slices_under_replicated", few);
        stat("cluster_serves", u64::from(self.holds_lease(now.instant)));
        stat("cluster_replicas", self.replicas as u64);
        stat("cluster_hot_keys", self.hot_count.load(Relaxed) as u64);
        let costs = lock(&self.hot).costs.costs();
        let cost = |of: fn(&HotCosts) -> u32| costs.as_ref().map_or(0, |all| u64::from(of(all)));
        stat("cluster_cost_local_ns", cost(|all| all.local_ns));
        stat("cluster_cost_forwarded_ns", cost(|all| all.forwarded_ns));
        stat("cluster_cost_message_ns", cost(|all| all.message_ns));
        let (error_ns, apart_ns) = self.clock.errors_ns(now);
        stat("cluster_clock_error_us", error_ns / 1000);
        stat("cluster_clock_apart_us", apart_ns / 1000);
        if let Some(member) = self.member.get() {
            let pace = member.store_pace();
            let slowest_us = |asked| pace.slowest_us(asked);
            stat("cluster_view_read_us_max", slowest_us(StoreAsked::Reading));
            stat("cluster_view_change_us_max", slowest_us(StoreAsked::Change));
            stat("cluster_view_slow", pace.slow());
        }
        self.journal.numbers(stat);
    }

    /// How long this node's lease lasts from `now` on; 0 if it has ended.
    pub(crate) fn lease_ns_left(&self, now: Instant) -> u64 {
        let until = self.member.get().map(|member| member.lease().until());
        until.map_or(0, |until| until.ns.saturating_sub(now.ns))
    }

    /// Why this node answers no client at `now`, if it does not.
    pub(crate) fn out_of_service(&self, now: Instant) -> Option<&'static str> {
        if self.is_leaving.load(Relaxed) {
            return Some("this node leaves its cluster");
        }
        if self.holds_lease(now) {
            return None;
        }
        Some(if self.views.current().is_some() {
            "the lease of this node has ended: the view store or another node did not answer in \
             time, or this process got no processor time"
        } else if lock(&self.unset).is_some() {
            "this node does not know the cluster's time yet"
        } else {
            "this node is not in the view of its cluster: it joins, was removed, or the view store \
             does not answer; its log says which"
        })
    }

    /// A stage has forgotten everything.
    fn note_forgotten(&self) {
        if self.forgotten.fetch_add(1, Relaxed) + 1 == STAGES {
            self.forgotten_mark.store(self.marks.set(), Relaxed);
        }
    }

    /// Joins anew, if everything of the former life is forgotten.
    fn join_anew(&self, cx: &NodeContext<'_>) {
        let mark = self.forgotten_mark.load(Relaxed);
        if mark == 0 || !self.marks.is_passed(mark) {
            return;
        }
        // What was accepted goes with the contents of this life.
        if !cx.host.has_executed(&cx.host.accepted_tails()) {
            return;
        }
        self.forgotten_mark.store(0, Relaxed);
        cx.store_cx.store.flush_all(cx.store_cx.now, Exptime(0));
        if !self.is_leaving.load(Relaxed) {
            self.tell_member(MemberHandle::rejoin);
        }
    }
}
