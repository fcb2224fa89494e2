//! The server over real sockets on loopback: what clients send, well and badly, and what they get.
//!
//! Every test starts a server of its own on a port that the system chooses, and every wait has an
//! end, so a hang is a failure and not a stuck build.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

mod counted;
#[path = "../counting/mod.rs"]
mod counting;
mod dumps;
mod fairness;
mod folding;
mod histories;
mod hostile;
mod large_values;
mod lifecycle;
mod limits;
mod observing;
mod pipelines;
mod policies;
mod support;
mod watching;
