//! Searches every state of a tiny cluster, stepping the machines that the server runs.
//!
//! A [`SliceSetup`], [`TierSetup`] or [`RuleSetup`] says how many nodes there are, what is asked of
//! them and what may go wrong, and how often. [`search()`] then looks at every state that this can
//! lead to: every order of messages, requests, timers and faults. What is stepped is
//! `consistency`'s machine itself; what is modelled is what drives it: a store with an item or two,
//! requests beside the machine, a network, clients.
//!
//! A search that finds nothing says little by itself. So each model names what must have been seen,
//! and there are planted errors ([`ReplicaMutant`], [`TierModelMutant`]) that must be found.
//!
//! It is a search of our own, of two pages: the states that matter here are found by the million,
//! so that what a state costs in memory and time decides how much can be searched at all.
#![forbid(unsafe_code)]

mod fault_counts;
mod interned_parts;
mod judge;
mod planted;
mod requests;
mod rules;
mod search;
mod setters;
mod slices;
mod step_description;
mod tiered;
mod witnesses;

pub use curtail_consistency::replica::ReplicaMutant;
pub use curtail_consistency::tiered::RuleMutant;

pub use requests::Kind;
pub use rules::{RULE_MODELS, RuleAction, RuleFaults, RuleSetup, RuleWorld};
pub use search::{Counterexample, Limits, Model, Outcome, Progress, search};
pub use slices::{
    AcceptMutant, SLICE_MODELS, SliceAction, SliceFaults, SlicePool, SliceSetup, SliceWorld,
};
pub use tiered::{
    TIER_MODELS, TierAction, TierDriverMutant, TierFaults, TierModelMutant, TierPool, TierSetup,
    TierWorld,
};
