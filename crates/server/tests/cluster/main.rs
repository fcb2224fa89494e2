//! Clusters of servers in this process, on loopback, as their clients see them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod basics;
mod callers;
mod failures;
mod histories;
mod restarts;
mod support;
