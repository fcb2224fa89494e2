//! Which keys are hot: every node reports what its clients ask for most, the coordinator makes a
//! list of it, and each primary has its keys of the list become hot.
//!
//! ```text
//!   workers' reports --> report --> coordinator (the lowest member) --> list --> every member
//!   (an epoch of the control thread)                                              |
//!                                machines <-- Heat, of keys of this primary <-----+
//! ```
//!
//! A list has all hot keys, and is sent again at the end of every epoch, so the next coordinator
//! goes on with it.

use std::collections::BTreeSet;

use curtail_consistency::{
    control_messages::ControlMessage,
    hot_list::{HotCoordinator, HotCosts, HotList, HotListConfig, HotReport, KeysToHeat},
    replica::Model,
};
use curtail_types::{KeyName, LoadReport, NodeId};

use crate::{
    node::{
        Cluster, NodeWorker,
        host::{NodeArrival, NodeHost},
        request_placement::route_of,
        stages::{Job, stage_of},
        work_costs::CostSums,
    },
    sync::{Relaxed, lock},
};

/// What a node knows of the hot list.
#[derive(Debug)]
pub(super) struct HotState {
    follower: KeysToHeat,
    /// Asked on the coordinator only.
    coordinator: HotCoordinator,
    /// Reports of this epoch, the newest of each node.
    reports: Vec<(NodeId, HotReport)>,
    /// What this node has measured.
    pub(super) costs: CostSums,
}

/// How often machines are told of hot keys.
const HEAT_NS: u64 = 200_000_000;

/// What a message is, in its first byte.
const REPORT: u8 = 0;
const LIST: u8 = 1;

impl HotState {
    pub(super) fn new(model: Model, keys_max: usize) -> Self {
        Self {
            follower: KeysToHeat::default(),
            coordinator: HotCoordinator::new(HotListConfig::new(keys_max, model)),
            reports: Vec::new(),
            costs: CostSums::new(),
        }
    }

    fn note_report(&mut self, from: NodeId, report: HotReport) {
        self.reports.retain(|(node, _)| *node != from);
        self.reports.push((from, report));
    }

    fn follow(&mut self, list: &HotList) {
        self.follower.take(list, |key| route_of(key.bytes()));
    }
}

impl Cluster {
    /// The end of an epoch of the control thread.
    pub(crate) fn end_epoch(&self, host: &dyn NodeHost) {
        let Some(in_force) = self.views.current() else {
            return;
        };
        let (slices, me) = (&in_force.slices, self.me);
        let copies = self.stages.iter().map(|inbox| inbox.copies.len());
        self.hot_count.store(copies.sum(), Relaxed);
        self.journal
            .note_hot(host.uptime_seconds(), self.hot_names());
        let coordinator = slices.members.first();
        if self.hot_keys_max == 0 {
            return;
        }
        let costs = {
            let mut hot = lock(&self.hot);
            hot.costs.end_epoch(&self.costs);
            hot.costs.costs()
        };
        let report = report_of(host, costs);
        if coordinator != Some(me) {
            if let (Some(report), Some(to)) = (report, coordinator) {
                let mut bytes = vec![REPORT];
                report.encode(&mut bytes);
                self.tell(host, to, ControlMessage::Hot(bytes.into()));
            }
            return;
        }
        let mut hot = lock(&self.hot);
        if let Some(report) = report {
            hot.note_report(me, report);
        }
        let HotState {
            follower,
            coordinator,
            reports,
            ..
        } = &mut *hot;
        let reports: Vec<HotReport> = reports.drain(..).map(|(_, report)| report).collect();
        coordinator.take_over(follower.list());
        let (view, nodes) = (slices.number, slices.members.len());
        let Ok(list) = coordinator.end_epoch(view, nodes, &reports).cloned() else {
            return;
        };
        hot.follow(&list);
        drop(hot);
        let mut bytes = vec![LIST];
        list.encode(&mut bytes);
        let message: Box<[u8]> = bytes.into();
        for node in slices.members.without(me) {
            self.tell(host, node, ControlMessage::Hot(message.clone()));
        }
    }

    /// The keys of the list.
    fn hot_names(&self) -> BTreeSet<KeyName> {
        let hot = lock(&self.hot);
        hot.follower.list().keys.iter().copied().collect()
    }

    /// What another node says of hot keys.
    pub(super) fn take_hot(&self, from: NodeId, message: &[u8]) {
        match message.split_first() {
            Some((&REPORT, report)) => {
                if let Some(report) = HotReport::decode(report) {
                    lock(&self.hot).note_report(from, report);
                }
            }
            Some((&LIST, list)) => {
                if let Some(list) = HotList::decode(list) {
                    lock(&self.hot).follow(&list);
                }
            }
            _ => {}
        }
    }

    /// Has `key` become hot, or cease to be, if this node is its primary.
    pub(crate) fn change_hot(&self, host: &dyn NodeHost, key: &[u8], hot: bool) {
        let in_force = self.views.current();
        let Some(in_force) = in_force.filter(|now| now.is_settled || !hot) else {
            return;
        };
        let route = route_of(key);
        let stage = stage_of(in_force.slices.slice_of(route));
        if let Some(inbox) = self.stages.get(stage)
            && inbox.leave(Job::Heat(route, hot))
        {
            host.send(stage % self.workers.max(1), NodeArrival::Wake);
        }
    }
}

impl NodeWorker {
    /// Tells the machines which keys of this primary shall be hot.
    pub(super) fn heat(&mut self) {
        let is_due = self.now_ns.saturating_sub(self.heated_ns) >= HEAT_NS;
        if self.index != 0 || !self.serves || !is_due || self.cluster.hot_keys_max == 0 {
            return;
        }
        self.heated_ns = self.now_ns;
        let Some(in_force) = self.in_force.clone().filter(|now| now.is_settled) else {
            return;
        };
        let heats = lock(&self.cluster.hot)
            .follower
            .heats(&in_force.slices, self.cluster.me);
        for (route, is_hot) in heats {
            let stage = stage_of(in_force.slices.slice_of(route));
            self.give(stage, Job::Heat(route, is_hot));
        }
    }
}

/// What this node reports; `None` if its clients asked for nothing.
fn report_of(host: &dyn NodeHost, costs: Option<HotCosts>) -> Option<HotReport> {
    let load = LoadReport::merged(&host.key_loads(), HotReport::KEYS_MAX).ok()??;
    let keys = load.keys.iter();
    Some(HotReport {
        value_bytes: keys.map(|key| host.value_bytes(key.key.bytes())).collect(),
        load,
        costs,
    })
}
