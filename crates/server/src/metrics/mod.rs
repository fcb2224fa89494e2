//! Measurements of the serving path, and how Prometheus and the slow log read them.

pub(crate) mod prefix_stats;

pub(crate) mod counters;
pub(crate) mod hot_keys;
pub(crate) mod latency;
pub(crate) mod slow_log;
pub(crate) mod stage_histograms;
pub(crate) mod turn_cpu_time;
