//! Clusters of servers in this process, on loopback, as their clients see them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod basics;
mod etcd;
mod failures;
mod fault_episode;
mod full_caches;
mod histories;
mod idle_key_losses;
mod item_expiry;
mod keep_failure_logs;
mod large_writes;
mod late_views;
mod leftovers;
mod losses;
mod memcached_datagrams;
mod metrics;
#[path = "../../../runtime/tests/nic/namespace.rs"]
#[allow(dead_code, reason = "the tests of the program use all of it")]
mod namespace;
mod native_accepted;
mod native_clients;
mod native_promises;
#[path = "../native/support.rs"]
#[allow(dead_code, reason = "the tests of a server alone use all of it")]
mod native_support;
mod native_xdp;
mod network;
mod one_reply_per_request;
mod process_episodes;
mod process_faults;
mod processes;
mod recording_clients;
#[path = "../reply_counting/mod.rs"]
mod reply_counting;
mod restarts;
mod sequential_clients;
mod support;
mod troubles;
mod unanswered_time;
mod wrong_clocks;
