//! Promotion and demotion of keys whose home is this node.
//!
//! ```text
//!   change ---> slice: from now on requests come to the machine ---> a mark is set
//!                                                                       | every thread passes it:
//!   machine: tell all nodes <--- slice <--------------------------------+ nothing runs past it
//! ```

use curtail_consistency::placement::slice_of;
use curtail_types::RouteHash;

use crate::node::{
    Cluster, NodeWorker,
    host::{NodeArrival, NodeHost},
    request_placement::route_of,
    slice_jobs::Job,
};

/// A key that waits until no request bypasses its machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    mark: u64,
    key: RouteHash,
}

impl Cluster {
    /// Has `key` become hot, or cease to be, if this node is its home.
    pub(crate) fn change_hot(&self, host: &dyn NodeHost, key: &[u8], hot: bool) {
        let route = route_of(key);
        let job = match hot {
            true => Job::Prepare(route, key.into()),
            false => Job::Demote(route),
        };
        self.leave(host, slice_of(route), job);
    }

    /// Leaves a job for a slice, and has its worker look.
    pub(in crate::node) fn leave(&self, host: &dyn NodeHost, slice: usize, job: Job) {
        if let Some(found) = self.slices.get(slice) {
            found.leave(job);
        }
        host.send(slice % self.workers.max(1), NodeArrival::Wake(slice));
    }

    /// Notes that requests for `key` come to its machine from now on.
    pub(crate) fn note_prepared(&self, key: RouteHash) {
        let mut prepared = crate::sync::lock(&self.prepared);
        prepared.push_back(Prepared {
            mark: self.marks.set(),
            key,
        });
    }

    /// The next key whose machine no request bypasses any more.
    fn next_prepared(&self) -> Option<RouteHash> {
        let mut prepared = crate::sync::lock(&self.prepared);
        let first = prepared.front().copied()?;
        if !self.marks.is_passed(first.mark) {
            return None;
        }
        prepared.pop_front();
        Some(first.key)
    }
}

impl NodeWorker {
    /// Continues a prepared promotion, once no request bypasses the machine.
    pub(crate) fn promote_prepared(&mut self) {
        if self.cluster.marks.last() == self.mark_done {
            return;
        }
        let last = self.cluster.marks.last();
        while let Some(key) = self.cluster.next_prepared() {
            self.give(slice_of(key), Job::Promote(key));
        }
        if crate::sync::lock(&self.cluster.prepared).is_empty() {
            self.mark_done = last;
        }
    }
}
