//! A worker: what one thread with one event loop owns, and how others reach it.

pub(crate) mod context;
pub(crate) mod mailbox;
pub(crate) mod prefault;
pub(crate) mod routing_inputs;
pub(crate) mod shared;

use std::sync::Arc;

use curtail_dispatch::Doorbell;
use curtail_links::{Links, LinksConfig};
use curtail_runtime::{Events, Poller, Token};
use curtail_store::Writer;
use curtail_types::Instant;

use crate::{
    busy_poll::BusyPoll,
    connection::slab::ConnectionSlab,
    disk::DiskWorker,
    gateway::GatewayWorker,
    limits::EVENTS_MAX,
    metrics::turn_cpu_time::TurnClock,
    native::ReadBarrier,
    node::NodeWorker,
    request::{batch::Batch, outstanding_delegations::Delegation, reply_buffer::Replies},
    size_aware::lent_connections::LentConnections,
    sync::Relaxed,
    worker::{context::WorkerContext, mailbox::Arrival, routing_inputs::Routing, shared::Shared},
};

/// One worker; see the head of this file. The comment of a field names the part of the server that
/// it belongs to, if that is not the event loop.
pub(crate) struct Worker {
    /// Which one.
    pub(crate) index: usize,
    pub(crate) cx: WorkerContext,
    /// Its connections: `connection`.
    pub(crate) slots: ConnectionSlab,
    /// Connections that large workers have: `size_aware`.
    pub(crate) lent: LentConnections,
    /// The requests of a turn: `request::receive`.
    pub(crate) batch: Batch<'static>,
    /// Their replies: `request::execute`.
    pub(crate) replies: Replies,
    /// What routes follow from: `route`.
    pub(crate) routing: Routing,
    /// What other workers execute: `request::delegate`.
    pub(crate) delegation: Delegation,
    /// What keeps requests behind accepted writes, if the native path is on: `native`.
    pub(crate) native: Option<Box<ReadBarrier>>,
    /// What it is in a cluster, if the server is a node of one: `node`.
    pub(crate) node: Option<Box<NodeWorker>>,
    /// What it has to do with the disk, if memory is a cache of one: `disk`.
    pub(crate) tier: Option<Box<DiskWorker>>,
    /// Its way to the cache tier that has the items, if the server is a gateway to one: `gateway`.
    pub(crate) gateway: Option<Box<GatewayWorker>>,
    pub(crate) clock: TurnCount,
    pub(crate) poller: Poller,
    pub(crate) wait: WaitState,
    pub(crate) maintenance: Maintenance,
    /// When it stops although requests are under way.
    pub(crate) stop_at: Option<Instant>,
}

/// How many turns there were, and what they took.
#[derive(Debug, Default)]
pub(crate) struct TurnCount {
    pub(crate) turns: u64,
    /// The last epoch of the control thread that it ended.
    pub(crate) epoch: u64,
    pub(crate) cpu: TurnClock,
}

/// How a worker waits, and for what.
#[derive(Debug)]
pub(crate) struct WaitState {
    pub(crate) events: Events,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) busy_poll: BusyPoll,
}

/// Background work that a worker does between turns.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    pub(crate) is_under_way: bool,
    /// When the store's background work is looked for again (monotonic, ns).
    pub(crate) due_ns: u64,
    pub(crate) sweep: Sweep,
}

/// The search for idle connections: a few slots a turn, beginning once a second.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pub(crate) next_slot: usize,
    pub(crate) begun_seconds: u32,
}

/// The token of the waker; slots have the numbers below.
pub(crate) const WAKER: Token = Token(usize::MAX);

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<Shared>, writer: Writer, poller: Poller) -> Self {
        let is_small = index < shared.config.workers;
        let busy_poll = BusyPoll::new(shared.spins && is_small);
        let snapshot = shared.snapshots.current();
        let workers = shared.config.workers;
        let native = shared.native.as_ref().map(|native| {
            let executor = native.executor_of(index, workers);
            Box::new(ReadBarrier::new(Arc::clone(native), executor))
        });
        let node = node_worker(&shared, index);
        let tier = shared.tier.as_ref().map(Arc::clone);
        let tier = tier.map(|disk| Box::new(DiskWorker::new(disk, index)));
        let mut cx = WorkerContext::new(index, shared, writer);
        if !is_small {
            cx.pool.free_elsewhere();
        }
        Self {
            index,
            cx,
            slots: ConnectionSlab::default(),
            lent: LentConnections::default(),
            batch: Batch::default(),
            replies: Replies::new(),
            routing: Routing::new(snapshot),
            delegation: Delegation::new(workers),
            native,
            node,
            tier,
            gateway: None,
            clock: TurnCount::default(),
            poller,
            wait: WaitState {
                events: Events::with_capacity(EVENTS_MAX),
                arrivals: Vec::new(),
                busy_poll,
            },
            maintenance: Maintenance::default(),
            stop_at: None,
        }
    }

    pub(crate) fn bell(&self) -> Option<&Doorbell> {
        let handle = self.cx.shared.workers.get(self.index)?;
        Some(&handle.mail.bell)
    }

    /// Whether it serves large requests alone.
    pub(crate) fn is_large_worker(&self) -> bool {
        self.index >= self.cx.shared.config.workers
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.slots.next_serial += 1;
        self.slots.next_serial
    }

    pub(crate) fn leave(&self) {
        if let Some(handle) = self.cx.shared.workers.get(self.index) {
            handle.connections.fetch_sub(1, Relaxed);
        }
        self.cx.shared.doors.leave();
    }
}

/// What worker `index` is beside its clients: nothing on a server that is alone, nor if it is a
/// large worker.
fn node_worker(shared: &Shared, index: usize) -> Option<Box<NodeWorker>> {
    let cluster = shared.cluster.as_ref()?;
    if index >= shared.config.workers {
        return None;
    }
    let bytes = shared.config.item_bytes_max;
    let config = LinksConfig::for_items(u16::try_from(index).ok()?, bytes);
    let started_ns = shared.started.unix_ns;
    let links = Links::new(cluster.connector.clone(), config, started_ns);
    let node = NodeWorker::new(index, cluster.clone(), links, started_ns);
    Some(Box::new(node))
}
