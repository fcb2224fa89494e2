//! The model for machines whose processors, not links, are the limit (CC-58).
//!
//! A node of a trial on one machine spends its time on requests and on messages between nodes; the
//! same sums as for bytes then hold for nanoseconds. The numbers are a file in TOML; the one that
//! is built in, `cckvs.toml`, says where each comes from.

use std::sync::LazyLock;

use curtail_consistency::replica::Model;
use serde::{Deserialize, Serialize};

use super::HotCopies;
use crate::costs::{CostsError, built_in, check, parse};

/// What a cluster's work costs, in nanoseconds of one core.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterCosts {
    /// A request of a client that is answered where it arrived.
    pub hit_ns: f64,
    /// What is added when another node carries it out: a request and a reply between nodes.
    pub remote_ns: f64,
    /// What a hot write costs for each other node, sequentially consistent: an update.
    pub update_ns: f64,
    /// The same, linearizable: an invalidation, an acknowledgement, a validation.
    pub lin_ns: f64,
}

/// A cluster whose nodes share the cores of one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedCpu {
    /// Cores that the nodes have together.
    pub cores: f64,
    /// What their work costs.
    pub costs: ClusterCosts,
}

impl ClusterCosts {
    /// Those that are built in.
    pub fn built_in() -> &'static Self {
        static COSTS: LazyLock<ClusterCosts> =
            LazyLock::new(|| built_in(ClusterCosts::parse(include_str!("../../cckvs.toml"))));
        &COSTS
    }

    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Self, CostsError> {
        parse(text, |costs: &Self| {
            let times = [
                ("hit_ns", costs.hit_ns),
                ("remote_ns", costs.remote_ns),
                ("update_ns", costs.update_ns),
                ("lin_ns", costs.lin_ns),
            ];
            let mut times = times.into_iter();
            times.try_for_each(|(name, ns)| check(name, (1.0..=1e9).contains(&ns)))
        })
    }

    /// What a hot write costs for each other node.
    pub fn hot_write_ns(&self, model: Model) -> f64 {
        match model {
            Model::Sc => self.update_ns,
            Model::Lin => self.lin_ns,
        }
    }

    /// The write ratio at which caching and not caching cost the same on `nodes` nodes: CC-56 with
    /// nanoseconds for bytes.
    pub fn break_even(&self, nodes: u16, model: Model) -> f64 {
        self.remote_ns / (f64::from(nodes) * self.hot_write_ns(model))
    }
}

impl SharedCpu {
    /// Thousands of requests a second of the whole cluster.
    pub fn throughput_krps(&self, load: &HotCopies, model: Model) -> f64 {
        let costs = &self.costs;
        let remote = load.remote() * costs.remote_ns;
        let writes = load.copies() * costs.hot_write_ns(model);
        self.cores * 1e6 / (costs.hit_ns + remote + writes)
    }
}
