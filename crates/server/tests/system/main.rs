//! The server over real sockets on loopback: what clients send, well and badly, and what they get.
//!
//! Every test starts a server of its own on a port that the system chooses, and every wait has an
//! end, so a hang is a failure and not a stuck build.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

mod compaction;
mod dumps;
mod fairness;
mod gateway;
mod histories;
mod hostile;
mod large_values;
mod lifecycle;
mod limits;
mod one_reply_per_request;
mod pipelines;
mod policies;
#[path = "../reply_counting/mod.rs"]
mod reply_counting;
mod stats_and_metrics;
mod support;
mod watching;
