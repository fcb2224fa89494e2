//! Searches every state of a tiny cluster, stepping the machines that the server runs.
//!
//! A [`Setup`] says how many nodes there are, what is asked of them and what may go wrong, and how
//! often. [`search()`] then looks at every state that this can lead to: every order of messages,
//! requests, timers and faults. What is stepped is `consistency`'s machine itself; what is modelled
//! is what drives it: a store with one item, readers beside the machine, a network, clients.
//!
//! A search that finds nothing says little by itself. So each model names what must have been seen
//! ([`Witness`]), and there are planted errors ([`Mutant`]) that must be found.
//!
//! It is a search of our own, of two pages: the states that matter here are found by the million,
//! so that what a state costs in memory and time decides how much can be searched at all.
#![forbid(unsafe_code)]

mod actions;
mod cluster_model;
mod counterexample;
mod faults;
mod frontier_state;
mod inputs;
mod interned_parts;
mod judge;
mod models;
mod moves;
mod mutants;
mod outputs;
mod reply_reduction;
mod search;
mod setup;
mod setup_builder;
mod slices;
#[cfg(test)]
mod tests;
mod tiered;
mod world;

pub use curtail_consistency::replica::ReplicaMutant;

pub use cluster_model::{Action, Cluster};
pub use frontier_state::{Packed, Pool};
pub use models::MODELS;
#[cfg(any(test, feature = "mutants"))]
pub use mutants::MachineMutant;
pub use mutants::{DriverMutant, Mutant};
pub use search::{Counterexample, Limits, Model, Outcome, Progress, search};
pub use setup::{Chances, Change, Kind, Network, Setup, Witness};
pub use slices::{
    PackedSlices, SLICE_MODELS, SliceAction, SliceFaults, SlicePool, SliceSetup, SliceWorld,
};
pub use tiered::{
    TIER_MODELS, TierAction, TierDriverMutant, TierFaults, TierModelMutant, TierPool, TierSetup,
    TierWorld,
};
pub use world::{Label, World};
