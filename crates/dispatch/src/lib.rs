//! Inside a node: which worker runs a request, in what order, and when it is answered.
//!
//! Everything that decides is a machine: time, randomness and configuration are arguments, and
//! what it wants done it emits. A server's thread and the simulator's event queue drive the same
//! code, so that the policy that was simulated is the policy that is shipped. What several threads
//! touch at once is not a machine but a structure of safe atomics ([`SharedWriters`],
//! [`SharedCredits`], [`Doorbell`]), and loom tests it.
//!
//! ```text
//!            +-- Dispatcher ----------------+          +-- worker -------------------+
//!  request ->| policy: EREW CREW d-CREW ... |-> run -->| queue -> Compactor -> store |
//!            | Jbsq: who has room           |          |  (writes of one key fold)   |
//!            | ExclusiveWriters: who writes |<- done --|                             |
//!            +------------------------------+          +-----------------------------+
//! ```
//!
//! Two papers are here. C-4 (Sutherland, Falsafi, Daglis, ASPLOS 2023): [`Dispatcher`] and
//! [`Compactor`]. Minos (Didona, Zwaenepoel, NSDI 2019): [`size_aware`], and its baselines in
//! [`pull`]. Correctness never depends on these: a store is safe under every assignment of
//! requests to workers, and a policy decides speed alone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod compaction;
mod counted;
mod dispatcher;
mod doorbell;
mod exclusive;
mod jbsq;
mod placement;
pub mod pull;
mod request;
mod shared;
mod shared_keys;
pub mod size_aware;
mod sync;

pub use compaction::{
    Answers, Closing, CompactionConfig, Compactor, Deadline, Decision, Effect, Situation,
    WRITES_MAX,
};
pub use counted::{Counted, Place};
pub use dispatcher::{
    Completion, DispatchConfig, Dispatcher, Input, Output, Overflow, Policy, Refusal, Sticky,
};
pub use doorbell::Doorbell;
pub use exclusive::{ClaimError, ExclusiveWriters, ReleaseError};
pub use jbsq::{DEPTH_MAX, Jbsq, TieBreak};
pub use placement::Placement;
pub use request::{Access, Partition, Request, RequestId, WORKERS_MAX, Worker};
pub use shared::{Claim, SharedCredits, SharedWriters, Ticket};
pub use shared_keys::{Seen, SharedKeys, SharedState};
