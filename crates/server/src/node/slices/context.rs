//! What a step works with, and what comes out of it for others.

use curtail_consistency::symmetric::Refusal;
use curtail_types::{Cas, NodeId, RouteHash};

use crate::{
    node::{
        Cluster,
        execute::ExecuteContext,
        links::Links,
        slice_jobs::{Completed, End, Job, Origin, Spare},
        slices::Waiting,
    },
    worker::context::WorkerContext,
};

/// What a step works with.
pub(in crate::node) struct SliceContext<'a> {
    pub(in crate::node) cluster: &'a Cluster,
    pub(in crate::node) cx: &'a mut WorkerContext,
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

/// A request that a machine wants another node to carry out.
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
    /// A request about one item, carried.
    Item,
    /// `flush_all`: when, as eight bytes.
    Flush,
}

/// A longer value travels on a connection of its own.
pub(in crate::node) const LARGE_BYTES: usize = 4 << 10;

/// The answer when too much waits, or for too long.
pub(super) const BUSY: &[u8] = b"SERVER_ERROR busy\r\n";
const LATE: &[u8] = b"SERVER_ERROR timed out; a write may still take effect\r\n";
pub(super) const CHANGED: &[u8] =
    b"SERVER_ERROR the cluster changed meanwhile; a write may have taken effect\r\n";

impl SliceContext<'_> {
    pub(super) fn complete(&mut self, waiting: Waiting, end: End) {
        self.spare.give(waiting.bytes);
        self.done.push(Completed {
            origin: waiting.origin,
            end,
            reply: waiting.reply,
            ts: waiting.ts,
        });
    }

    pub(super) fn refuse(&mut self, origin: Origin, bytes: Vec<u8>, text: &'static [u8]) {
        let mut reply = bytes;
        reply.clear();
        reply.extend_from_slice(text);
        self.done.push(Completed {
            origin,
            end: End::Refused,
            reply,
            ts: Cas(0),
        });
    }
}

/// What the asker is told.
pub(super) fn text_of(reason: Refusal) -> &'static [u8] {
    match reason {
        Refusal::Late => LATE,
        Refusal::View => CHANGED,
        _ => BUSY,
    }
}
