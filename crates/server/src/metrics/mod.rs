//! What is measured while serving, and how Prometheus and the slow log read it.

pub(crate) mod counters;
pub(crate) mod health;
pub(crate) mod hot_keys;
pub(crate) mod http;
pub(crate) mod latency;
pub(crate) mod prometheus;
pub(crate) mod slow_log;
pub(crate) mod stage_histograms;
pub(crate) mod stage_times;
pub(crate) mod turn_cpu_time;
pub(crate) mod work_ahead;
