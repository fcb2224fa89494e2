//! ccKVS (EuroSys 2018): its equations, processors and skewed shards, and whole clusters in virtual
//! time.

mod equations;
mod load_imbalance;
mod message_lengths;
mod processor_model;
mod whole_cluster;

pub use equations::{
    CACHED_SHARE, HotCopies, Link, STORED_KEYS, Traffic, TrafficShares, break_even, copies_worth,
    exact_hit_ratio, stated_hit_ratio,
};
pub use load_imbalance::Shards;
pub(crate) use load_imbalance::base_mrps;
pub use message_lengths::MessageBytes;
pub use processor_model::{ClusterCosts, SharedCpu};
pub use whole_cluster::{Count, Hardware, WholeCluster, WholeOutcome};

#[cfg(test)]
mod tests;
