//! Inside a node: which worker runs a request, in what order, and when it is answered.
//!
//! Everything that decides is a machine: time, randomness and configuration are arguments, and
//! what it wants done it emits. What several threads touch at once is not a machine but a structure
//! of safe atomics ([`SharedWriters`], [`SharedKeys`], [`Doorbell`]), and loom tests it.
//!
//! ```text
//!  a worker's batch -> Policy::placement --+-- here -----------------------> store
//!                                          +-- static owner ---------------> its batch of requests
//!                                          +-- claim in SharedWriters -----> here, or the holder's
//! ```
//!
//! Two papers are here, in the form that the server ships. C-4 (Sutherland, Falsafi, Daglis,
//! ASPLOS 2023): [`Policy`], [`Policy::placement`] and [`SharedWriters`]. The paper's own
//! mechanisms, a central dispatcher with bounded queues and windows that wait for further writes,
//! need a network card that balances requests; they are in the simulator, which compares the two
//! and holds [`SharedWriters`] to the paper's table. Only [`Compactor`] is in both, since the
//! Ordered Queue folds the sets of a turn with it. Minos (Didona, Zwaenepoel, NSDI 2019):
//! [`size_aware`], and its baselines in `pull_baselines`, behind the feature `baselines`.
//! Correctness never depends on these: a store is safe under every assignment of requests to
//! workers, and a policy decides speed alone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod compaction;
mod doorbell;
mod gate_words;
mod placement;
#[cfg(feature = "baselines")]
pub mod pull_baselines;
mod request;
mod shared_key_states;
mod shared_writers;
pub mod size_aware;
mod sync;

pub use compaction::{
    Answers, Closing, CompactionConfig, Compactor, Deadline, Decision, Effect, Situation,
    WRITES_MAX,
};
pub use doorbell::Doorbell;
pub use gate_words::{GateWords, SeenGate};
pub use placement::{Placement, Policy, static_owner};
pub use request::{Access, Partition, RequestId, WORKERS_MAX, Worker};
pub use shared_key_states::{Seen, SharedKeys, SharedState};
pub use shared_writers::{Claim, SharedWriters, Ticket};
