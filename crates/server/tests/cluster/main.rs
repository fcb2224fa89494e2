//! Clusters of servers in this process, on loopback, as their clients see them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod basics;
mod failures;
mod fault_episode;
mod histories;
mod idle_key_losses;
mod item_expiry;
mod keep_failure_logs;
mod key_lost_mid_move;
mod late_views;
mod leftovers;
mod losses;
mod metrics;
mod migration_rate;
mod network;
mod one_reply_per_request;
mod process_faults;
mod processes;
mod recording_clients;
#[path = "../reply_counting/mod.rs"]
mod reply_counting;
mod restarts;
mod sequential_clients;
mod support;
mod unanswered_time;
