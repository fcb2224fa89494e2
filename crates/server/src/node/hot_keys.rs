//! Which keys are hot.

use curtail_consistency::replica::Model;
use curtail_types::NodeId;

use crate::node::{
    Cluster,
    host::{NodeArrival, NodeHost},
    request_placement::route_of,
    stages::{Job, STAGES, stage_of},
};

/// What a node knows of the hot list.
#[derive(Debug)]
pub(super) struct HotState {}

impl HotState {
    pub(super) fn new(_: Model, _: usize) -> Self {
        Self {}
    }
}

impl Cluster {
    /// Has `key` become hot, or cease to be, if this node is its primary.
    pub(crate) fn change_hot(&self, host: &dyn NodeHost, key: &[u8], hot: bool) {
        let Some(in_force) = self.views.current() else {
            return;
        };
        let route = route_of(key);
        let stage = stage_of(in_force.slices.slice_of(route));
        self.leave(host, stage, Job::Heat(route, hot));
    }

    /// Leaves a job for a stage, and has its worker look.
    pub(super) fn leave(&self, host: &dyn NodeHost, stage: usize, job: Job) {
        if let Some(inbox) = self.stages.get(stage)
            && inbox.leave(job)
        {
            host.send(stage % self.workers.max(1), NodeArrival::Wake);
        }
    }

    /// The end of an epoch of the control thread.
    pub(crate) fn end_epoch(&self, _: &dyn NodeHost) {
        let copies = self.stages.iter().map(|inbox| inbox.copies.len());
        self.hot_count.store(copies.sum(), crate::sync::Relaxed);
    }

    pub(super) fn take_hot(&self, _: NodeId, _: &[u8]) {}
}

const _: () = assert!(STAGES > 0);
