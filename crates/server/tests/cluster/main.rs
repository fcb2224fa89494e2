//! Clusters of servers in this process, on loopback, as their clients see them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod basics;
mod bereft;
mod callers;
mod counted;
#[path = "../counting/mod.rs"]
mod counting;
mod ends;
mod episode;
mod failures;
mod gaps;
mod histories;
mod lags;
mod leftovers;
mod losses;
mod metrics;
mod network;
mod paces;
mod processes;
mod real;
mod reasons;
mod restarts;
mod sessions;
mod support;
mod treasure;
