//! The machine of a node of a cluster: slices that are replicated (CL-1..8), and hot
//! keys that every member has a copy of (CL-9..12).
//!
//! ```text
//!   requests --> machine of a slice's primary --Append--> followers
//!                  |          ^                               |
//!                  Run        +----------Applied--------------+
//!                  v
//!                store        answers go out when all in-sync followers have applied
//! ```
//!
//! The primary of a slice orders its changes; the nodes in sync apply them in that order; a client
//! is answered when all of them have. Who is primary and who is in sync is said by the view alone
//! ([`slice_view`](crate::slice_view)). This is the protocol of PacificA (Lin and others, MSR-TR
//! 2008) with Kafka's in-sync sets. Server, simulator and checker drive the same machine by
//! [`ReplicaHost`].

mod catch_up;
mod follower;
mod forwarding;
mod hot;
mod hot_rounds;
mod interface;
mod machine;
mod message;
mod mutant;
mod primary;
mod room_credits;
mod stream;
mod wire;

pub use interface::{
    CopyState, Gate, Model, ReplicaConfig, ReplicaEvent, ReplicaHost, ReplicaRefusal,
    ReplicaRequest, RunResult, Ticket,
};
pub use machine::Replica;
pub use message::{Append, ChangeKind, CopyKind, CopyMessage, ReplicaMessage, SliceChange};
pub use mutant::ReplicaMutant;

#[cfg(test)]
mod tests;
