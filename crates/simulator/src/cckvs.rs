//! ccKVS (EuroSys 2018): its equations, processors and skewed shards, and whole clusters in virtual
//! time.

mod bytes;
mod equations;
mod processor_model;
mod skew;
mod whole_cluster;

pub use bytes::MessageBytes;
pub use equations::{
    CACHED_SHARE, HotCopies, Link, STORED_KEYS, Traffic, TrafficShares, break_even, copies_worth,
    exact_hit_ratio, stated_hit_ratio,
};
pub use processor_model::{ClusterCosts, SharedCpu};
pub use skew::Shards;
pub(crate) use skew::base_mrps;
pub use whole_cluster::{Count, Hardware, WholeCluster, WholeOutcome};

#[cfg(test)]
mod tests;
