//! The inputs of a step of a slice, and the outputs for others.

use curtail_consistency::symmetric::Refusal;
use curtail_links::Links;
use curtail_types::{Cas, Failure, NodeId, RouteHash};

use crate::node::{
    Cluster,
    execute::ExecuteContext,
    host::NodeContext,
    slice_jobs::{Completed, Job, Origin, Spare},
    slices::Waiting,
};

/// What a step works with.
pub(in crate::node) struct SliceContext<'a, 'n> {
    pub(in crate::node) cluster: &'a Cluster,
    pub(in crate::node) cx: &'a mut NodeContext<'n>,
    pub(in crate::node) links: &'a mut Links,
    pub(in crate::node) execute_cx: &'a mut ExecuteContext,
    pub(in crate::node) spare: &'a mut Spare,
    /// What has been completed.
    pub(in crate::node) done: &'a mut Vec<Completed>,
    /// What is for another node after all.
    pub(in crate::node) elsewhere: &'a mut Vec<Relayed>,
    /// Empty memory for the jobs of a slice.
    pub(in crate::node) jobs: &'a mut Vec<Job>,
}

/// A request that another node is to execute.
#[derive(Debug)]
pub(in crate::node) struct Relayed {
    pub(in crate::node) origin: Origin,
    pub(in crate::node) to: NodeId,
    pub(in crate::node) key: RouteHash,
    pub(in crate::node) after: Cas,
    pub(in crate::node) bytes: Vec<u8>,
    pub(in crate::node) kind: RelayedKind,
}

/// What is in a relayed request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::node) enum RelayedKind {
    /// About one item: an `ItemRequest`.
    Item,
    /// `flush_all`: when, as eight bytes.
    Flush,
}

/// A longer value travels on a connection of its own.
pub(in crate::node) const LARGE_BYTES: usize = 4 << 10;

impl SliceContext<'_, '_> {
    pub(super) fn complete(&mut self, waiting: Waiting) {
        self.done.push(Completed {
            origin: waiting.origin,
            end: waiting.end,
            request: waiting.bytes,
            value: waiting.value,
            ts: waiting.ts,
        });
    }

    pub(super) fn refuse(&mut self, origin: Origin, bytes: Vec<u8>, failure: Failure) {
        self.done.push(Completed::failed(origin, bytes, failure));
    }
}

/// What the asker is told.
pub(super) const fn failure_of(reason: Refusal) -> Failure {
    match reason {
        Refusal::Late => Failure::Late,
        Refusal::View => Failure::ViewChanged,
        _ => Failure::Busy,
    }
}
