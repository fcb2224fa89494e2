//! A server that is a node of a cluster: any client may talk to any node (ccKVS, EuroSys 2018).
//!
//! ```text
//!                    clients
//!                       |
//!      worker: is the key ours, hot, or another node's?  (placement)
//!         |                     |                   |
//!       here              the machine of        node link to its home
//!     store, as           the key's slice       (links), relayed reply
//!     a server alone      (slices)
//!                           |       ^
//!                 messages to and from the other nodes
//! ```
//!
//! `active_view` is the view that this node acts on, `membership` who brings it; `execute`
//! carries out what was written down, `slice_jobs` is what that is. Everything is owned by workers:
//! there is no thread of the cluster on the path of a request.

mod active_view;
mod clock;
mod control_messages;
mod event_history;
mod execute;
mod forward;
mod forward_responses;
pub(crate) mod host;
mod hot_set;
mod inbox;
mod membership;
mod migration;
mod request_placement;
mod requests_elsewhere;
mod requests_from_peers;
mod slice_jobs;
mod slices;
mod worker;

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use curtail_consistency::{
    cluster_clock::Reading,
    membership::Heartbeat,
    placement::SLICES,
    symmetric::{self, Model},
};
use curtail_dispatch::SharedKeys;
use curtail_links::ConnectorHandle;
use curtail_membership::{StoreAsked, old::MemberHandle};
use curtail_types::{Access, Instant, NodeId, Now, RouteHash, ViewNumber, WriterId};
use tracing::warn;

use crate::{
    config::Config,
    limits::{SHARED_KEYS_MAX, SLICE_WAITING_MAX},
    log::component,
    node::{
        active_view::{InForce, Marks, Views},
        clock::WallClock,
        event_history::Journal,
        host::NodeHost,
        hot_set::{coordinator::Coordinator, promote::Prepared},
        migration::progress::Progress,
        slices::{Dues, Slice},
    },
    sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Relaxed, lock},
    test_faults::{Fault, TestFaults},
};

pub(crate) use crate::node::{
    event_history::Member,
    hot_set::coordinator::Proposal,
    inbox::MoveAsked,
    membership::{Membership, Opening},
    migration::Waiter,
    request_placement::{Way, route_of},
    slice_jobs::{Completed, Moved},
    worker::NodeWorker,
};

/// What the threads of a node share.
pub(crate) struct Cluster {
    pub(crate) me: NodeId,
    pub(crate) replicas: usize,
    pub(crate) workers: usize,
    pub(crate) keys: SharedKeys,
    slices: Box<[Slice]>,
    dues: Dues,
    views: Views,
    clock: WallClock,
    /// A view that is to be in force as soon as the clock is set.
    unset: Mutex<Option<Arc<InForce>>>,
    pub(crate) marks: Marks,
    pub(crate) connector: ConnectorHandle,
    member: OnceLock<MemberHandle>,
    /// The heartbeats to be sent, and how often there were new ones.
    beats: AtomicU64,
    heartbeats: Mutex<Vec<(NodeId, Heartbeat)>>,
    /// Keys that are to become hot.
    prepared: Mutex<VecDeque<Prepared>>,
    progress: Progress,
    /// Keys that have moved here, and lie with a worker that has not taken them in yet.
    untaken: AtomicUsize,
    coordinator: Mutex<Coordinator>,
    hot_keys_max: usize,
    /// Only a slice's own worker steps it: what it says to a node then goes over one link, in
    /// order, which sessions need under sequential consistency when a key cools down (CC-72).
    by_owner: bool,
    /// A session must see no earlier write than it has seen, wherever it asks (CC-11). What is
    /// linearizable needs nothing for that.
    keeps_sessions: bool,
    /// What a test has it do wrong.
    faults: TestFaults,
    /// Keys that are shared with others, as of the last epoch.
    hot_count: AtomicUsize,
    /// Slices that have forgotten what they knew since this node was removed, if it was: only then
    /// does it join anew.
    forgotten: AtomicUsize,
    journal: Journal,
    /// It was told to end, and has left.
    is_leaving: AtomicBool,
    has_left: AtomicBool,
}

const _: () = assert!(2 * Config::HOT_KEYS_MAX == SHARED_KEYS_MAX);

/// The writers of the machines: no worker has them, and one is nobody's. Each life of a node has
/// another, because what one life wrote may be lost with it, and its versions must not come again.
const MACHINES: std::ops::Range<u16> = WriterId::PER_NODE / 2..symmetric::NOBODY;

/// The writer of a node's machines in a life with this number.
fn machines(me: NodeId, life: u16) -> WriterId {
    WriterId::of(me, MACHINES.start + life % MACHINES.len() as u16)
}

const MS_NS: u64 = 1_000_000;

/// An own clock that differs by more from the cluster's is worth a line.
const APART_NS_MAX: u64 = 1000 * MS_NS;

impl Cluster {
    pub(crate) fn new(
        (me, now): (NodeId, Now),
        (model, replicas): (Model, usize),
        (hot_keys_max, faults): (usize, TestFaults),
        (workers, threads): (usize, usize),
        connector: ConnectorHandle,
    ) -> Self {
        // In milliseconds or so: no two starts share a time, but for a chance in many.
        let life = (now.unix_ns >> 20) as u16;
        let config = symmetric::Config {
            me,
            writer: machines(me, life),
            model,
            keys_max: SHARED_KEYS_MAX / SLICES,
            waiting_max: SLICE_WAITING_MAX,
            retransmit_ns: 20 * MS_NS,
            replay_ns: 50 * MS_NS,
            patience_ns: 3000 * MS_NS,
            settle_ns: 1000 * MS_NS,
        };
        Self {
            me,
            replicas,
            workers,
            keys: SharedKeys::new(SHARED_KEYS_MAX),
            slices: (0..SLICES)
                .map(|number| Slice::new(number, config))
                .collect(),
            dues: Dues::new(SLICES),
            views: Views::new(),
            clock: WallClock::new(me, now, faults),
            unset: Mutex::default(),
            marks: Marks::new(threads),
            connector,
            member: OnceLock::new(),
            beats: AtomicU64::new(0),
            heartbeats: Mutex::default(),
            prepared: Mutex::default(),
            progress: Progress::default(),
            untaken: AtomicUsize::new(0),
            coordinator: Mutex::new(Coordinator::new(model, hot_keys_max)),
            hot_keys_max,
            by_owner: model == Model::Sc,
            keeps_sessions: model == Model::Sc,
            faults,
            hot_count: AtomicUsize::new(0),
            forgotten: AtomicUsize::new(SLICES),
            journal: Journal::default(),
            is_leaving: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        }
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
        let here = |in_force: Arc<InForce>| matches!(self.place(&in_force, key, access), Way::Here);
        self.holds_lease(now) && self.views.current().is_some_and(here)
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
    fn put_in_force(&self, next: Option<Arc<InForce>>) {
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
                "the clock of this machine differs from the cluster's by {ms} ms; items expire by \
                 the cluster's clock: set this machine's clock"
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
        let view = self.views.current().map(|now| now.view).unwrap_or_default();
        stat("cluster_node", u64::from(self.me.0));
        stat("cluster_view", u64::from(view.number.0));
        stat("cluster_nodes_live", view.live.len() as u64);
        stat("cluster_nodes_joining", view.joining.len() as u64);
        stat("cluster_nodes_placed", view.placed.len() as u64);
        stat("cluster_moves", u64::from(view.moves()));
        stat("cluster_serves", u64::from(self.holds_lease(now.instant)));
        stat("cluster_replicas", self.replicas as u64);
        stat("cluster_hot_keys", self.hot_count.load(Relaxed) as u64);
        let (error_ns, apart_ns) = self.clock.errors_ns(now);
        stat("cluster_clock_error_us", error_ns / 1000);
        stat("cluster_clock_apart_us", apart_ns / 1000);
        if let Some(member) = self.member.get() {
            let pace = member.store_pace();
            stat(
                "cluster_view_read_us_max",
                pace.slowest_us(StoreAsked::Reading),
            );
            stat(
                "cluster_view_change_us_max",
                pace.slowest_us(StoreAsked::Change),
            );
            stat("cluster_view_slow", pace.slow());
        }
        self.journal.numbers(stat);
    }

    /// Who is there, and what has become of the cluster; this node has `items` items.
    pub(crate) fn journal(&self, items: u64, row: impl FnMut(&str, &dyn std::fmt::Display)) {
        self.journal.tell((self.me, items), row);
    }

    /// The cluster's name and consistency model, and its members, if it is known already; this node
    /// has `items` items.
    pub(crate) fn members(&self, items: u64) -> Option<(String, &'static str, Vec<Member>)> {
        self.journal.members((self.me, items))
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
        let in_force = self.views.current();
        Some(match in_force {
            None if !self.clock.is_set() => "this node does not know the cluster's time yet",
            None => "this node is not in the view of its cluster: it joins, or was removed",
            Some(now) if now.view.joining.contains(self.me) => "this node joins its cluster",
            Some(_) => {
                "the lease of this node has ended: it does not reach the others or the store of \
                 the view"
            }
        })
    }

    fn set_member(&self, member: MemberHandle) {
        // It is set once, at the start.
        let _ = self.member.set(member);
    }

    /// A heartbeat of another node, or one of this node itself: it gets to send them.
    fn heard(&self, from: NodeId, heartbeat: Heartbeat) {
        if let Some(member) = self.member.get() {
            member.heard(from, heartbeat);
        }
    }

    /// Another node knows of this view.
    fn heard_of(&self, view: ViewNumber, from: NodeId) {
        let heartbeat = Heartbeat {
            view,
            ..Heartbeat::default()
        };
        self.heard(from, heartbeat);
    }

    /// Has the links tell that this node is there. Only the membership's thread calls this.
    fn heartbeat(&self, heartbeats: &[(NodeId, Heartbeat)]) {
        let mut told = lock(&self.heartbeats);
        told.clear();
        told.extend_from_slice(heartbeats);
        self.beats.fetch_add(1, Relaxed);
    }

    /// The last heartbeats that were asked for, if they are others than `last`; and their number.
    fn heartbeats(&self, last: u64) -> Option<(u64, Vec<(NodeId, Heartbeat)>)> {
        if self.beats.load(Relaxed) == last {
            return None;
        }
        let told = lock(&self.heartbeats);
        Some((self.beats.load(Relaxed), told.clone()))
    }

    /// Joins anew, once every slice has forgotten what it knew.
    fn begin_anew(&self) {
        self.forgotten.store(0, Relaxed);
    }

    /// A slice has forgotten everything.
    fn note_forgotten(&self) {
        if self.forgotten.fetch_add(1, Relaxed) + 1 == self.slices.len()
            && !self.is_leaving.load(Relaxed)
            && let Some(member) = self.member.get()
        {
            member.rejoin();
        }
    }
}
