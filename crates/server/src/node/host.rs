//! The interface through which a node uses its server: the time, the other workers, and whether
//! clients may connect.

use curtail_runtime::Clock;
use curtail_types::LoadReport;

use crate::{
    log::Limit,
    metrics::counters::Counts,
    native::ReadBarrier,
    node::{Completed, requests_asked::Asked},
    store_context::StoreContext,
};

/// Something of the cluster that a worker takes in: another one received or completed it.
#[derive(Debug)]
pub(crate) enum NodeArrival {
    /// A link to another node.
    Link(Box<curtail_links::NewLink>),
    /// Something was left for a stage of the worker.
    Wake,
    /// A request of a thread that is no worker, and memory for what it shows: answers take memory
    /// along, so requests bring some.
    Asked(Asked, Vec<u8>),
    /// A request that was completed for one that waits there.
    Completed(Box<Completed>),
}

/// The server, as its node sees it.
pub(crate) trait NodeHost: Send + Sync {
    /// The clock of this machine.
    fn clock(&self) -> Clock;

    /// Seconds since the server started.
    fn uptime_seconds(&self) -> u64;

    /// Whether writes of a slice may be accepted by somebody outside this process.
    fn set_accepting(&self, slice: u16, may: bool);

    /// Up to where the writes that this server has accepted must be executed, so that all are that
    /// were accepted before those who accept were told to accept no more.
    fn accepted_tails(&self) -> Box<[u64]>;

    /// Whether they are executed up to there.
    fn has_executed(&self, tails: &[u64]) -> bool;

    /// Leaves something for a worker, and wakes it.
    fn send(&self, worker: usize, arrival: NodeArrival);

    /// Wakes every worker.
    fn wake_all(&self);

    /// Lets clients connect, or no more of them.
    fn set_open(&self, is_open: bool);

    /// The loads of keys that the workers last showed.
    fn key_loads(&self) -> Vec<LoadReport>;

    /// How long the value of a key is that this node has; 0 if it has none.
    fn value_bytes(&self, key: &[u8]) -> u32;

    /// The bound for log lines about commands.
    fn admin_lines(&self) -> &Limit;
}

/// What a worker lends its part of the node for a step.
pub(crate) struct NodeContext<'a> {
    pub(crate) host: &'a dyn NodeHost,
    pub(crate) store_cx: &'a mut StoreContext,
    pub(crate) counts: &'a mut Counts,
    /// What keeps requests behind accepted writes, if there may be some.
    pub(crate) barrier: Option<&'a mut ReadBarrier>,
    /// A large value could not be leased.
    pub(crate) lease_refused: &'a mut bool,
}
