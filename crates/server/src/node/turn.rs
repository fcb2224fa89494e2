//! Where the turn of a worker meets the cluster.

use std::time::Duration;

use curtail_types::Instant;

use crate::{
    node::{
        Cluster, NodeWorker,
        links::{Links, LinksConfig, NewLink},
        slice_jobs::Completed,
    },
    test_faults::Fault,
    turn::delegate,
    worker::{Worker, mailbox::Arrival, shared::Shared},
};

/// For how long a worker is away before each turn if a test wants that.
const DOZE: Duration = Duration::from_millis(500);

/// What worker `index` is beside its clients: nothing on a server that is alone, nor if it is a
/// large worker.
pub(crate) fn node_worker(shared: &Shared, index: usize) -> Option<Box<NodeWorker>> {
    let cluster = shared.cluster.as_ref()?;
    if index >= shared.config.workers {
        return None;
    }
    let bytes = shared.config.item_bytes_max;
    let config = LinksConfig::for_items(u16::try_from(index).ok()?, bytes);
    let links = Links::new(cluster.linker.clone(), config, shared.started.unix_ns);
    Some(Box::new(NodeWorker::new(index, cluster.clone(), links)))
}

impl Worker {
    /// Looks at what may differ from turn to turn.
    pub(crate) fn begin_turn_in_cluster(&mut self) {
        let shared = std::sync::Arc::clone(&self.cx.shared);
        let Some(cluster) = shared.cluster.as_deref() else {
            return;
        };
        if self.cx.has(Fault::Dozes) && self.index + 1 == cluster.workers {
            std::thread::sleep(DOZE);
        }
        self.pass_mark(cluster);
        if let Some(node) = &mut self.node {
            node.begin_turn(&mut self.cx);
            self.routing.under_lease = node.serves;
        }
    }

    /// Notes that nothing from before the last mark is on its way any more.
    fn pass_mark(&mut self, cluster: &Cluster) {
        let last = cluster.marks.last();
        let next = delegate::next_delegated(self);
        let oldest = delegate::oldest_delegated(self);
        let Some(node) = &mut self.node else {
            return;
        };
        if last != node.mark_seen.0 {
            node.mark_seen = (last, Some(next));
        }
        if let (seen, Some(delegated)) = node.mark_seen
            && oldest.is_none_or(|oldest| oldest >= delegated)
        {
            cluster.marks.pass(self.index, seen);
            // Once is enough.
            node.mark_seen.1 = None;
        }
    }

    /// How long a worker may sleep for the cluster's sake.
    pub(crate) fn time_to_cluster(&self) -> Duration {
        let due = self.node.as_ref().and_then(|node| node.due());
        let Some(Instant { ns }) = due else {
            return Duration::MAX;
        };
        let now_ns = self.cx.shared.clock.now().instant.ns;
        Duration::from_nanos(ns.saturating_sub(now_ns))
    }

    pub(crate) fn adopt_link(&mut self, link: NewLink) {
        if let Some(node) = &mut self.node {
            node.links.adopt(&self.poller, link);
        }
    }

    /// Takes in what another worker received for the slices of this one.
    pub(crate) fn take_from_cluster(&mut self, arrival: Arrival) {
        let Some(mut node) = self.node.take() else {
            return;
        };
        match arrival {
            Arrival::Waiter(waiter) => node.await_arrival(&mut self.cx, *waiter),
            Arrival::Proposal(proposal) => node.propose(&self.cx, &proposal),
            Arrival::MovedKey(moved) => node.take_moved(&self.cx, *moved),
            Arrival::MoveAsked(asked) => node.take_move_request(&mut self.cx, *asked),
            _ => {}
        }
        self.node = Some(node);
    }

    pub(crate) fn wake(&mut self, slice: usize) {
        if let Some(node) = &mut self.node {
            node.wake(slice);
        }
    }

    /// Takes in what another worker completed for this one.
    pub(crate) fn take_completed(&mut self, completed: Completed) {
        if let Some(node) = &mut self.node {
            node.take_completed(completed);
        }
    }
}
