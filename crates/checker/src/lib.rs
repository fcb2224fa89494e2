//! Searches every state of a tiny cluster, stepping the machines that the server runs.
//!
//! A model says how many nodes there are, what is asked of them and what may go wrong, and how
//! often. A search then looks at every state that this can lead to: every order of messages,
//! requests, timers and faults. What is stepped is `consistency`'s machine itself; what is modelled
//! is what drives it: a store with an item or two, requests beside the machine, a network, clients.
//!
//! A search that finds nothing says little by itself. So each model names what must have been seen,
//! and there are planted errors ([`mutants`]) that must be found.
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
mod setup;
mod slices;
mod step_notes;
mod tiered;
mod witnesses;

pub use search::{Counterexample, Limits, Outcome, Progress};
pub use setup::Checked;

use rules::{RULE_MODELS, RuleSetup};
use slices::{SLICE_MODELS, SliceSetup};
use tiered::{TIER_MODELS, TierSetup};

/// All models: of slices on the replica machine, of a cache in front of a back end, and of the
/// rules of a cache node.
pub fn models() -> impl Iterator<Item = &'static dyn Checked> {
    let slices = SLICE_MODELS.iter().map(|one| one as &dyn Checked);
    let tiers = TIER_MODELS.iter().map(|one| one as &dyn Checked);
    let rules = RULE_MODELS.iter().map(|one| one as &dyn Checked);
    slices.chain(tiers).chain(rules)
}

/// The names of all errors that can be planted.
pub fn mutants() -> impl Iterator<Item = String> {
    let slices = SliceSetup::mutants().map(|(_, name)| name);
    let tiers = TierSetup::mutants().map(|(_, name)| name);
    let rules = RuleSetup::mutants().map(|(_, name)| name);
    slices.chain(tiers).chain(rules)
}
