//! A cache node in front of disk-backed nodes (SwitchKV: Li, dissertation, 2016, chapter 2).
//!
//! ```text
//!   writes, reads of what is not cached --> back end --Item, Update--> cache <-- reads of what is
//!                                              |   <--Fetch, Dropped--   |
//!                                            store      Renew, Lease    copies
//! ```
//!
//! A back end ([`TierBackEnd`]) stores its keys and orders their writes; it knows of which keys the
//! cache ([`TierCache`]) may have a copy, and answers a write of those only when the cache shows
//! it, or has lost its lease. The page `docs/reference/tiered-protocol.md` is the specification.
//!
//! Which keys the cache holds is decided beside that: [`Admission`] at the cache, [`LoadThreshold`]
//! and the trackers of `hotkeys` at the back ends, [`RuleQueue`] in front of the network's rules,
//! [`RuleSender`] and [`RuleController`] between the cache and the switch; of which keys all cache
//! nodes have copies, [`GroupKeys`] and [`GuestKeys`].

mod admission;
mod back_end;
mod cache;
mod group_keys;
mod interface;
mod load_threshold;
mod message;
mod mutant;
mod rule_controller;
mod rule_queue;
mod rule_sender;
#[cfg(test)]
mod tests;

pub use curtail_types::{BackEndId, CacheId};

pub use admission::{Admission, AdmissionConfig, Admitted};
pub use back_end::TierBackEnd;
pub use cache::{CacheSession, TierCache};
pub use group_keys::{GroupKeys, GuestKeys};
pub use interface::{
    BackEndConfig, BackEndEvent, BackEndHost, CacheConfig, CacheEvent, CacheHost, TierRefusal,
    TierRequest,
};
pub use load_threshold::LoadThreshold;
pub use message::{Generation, KeyMessage, KeyMessageKind, TierMessage};
pub use mutant::{RuleMutant, TierMutant};
pub use rule_controller::{RuleController, RuleCounts};
pub use rule_queue::{RuleBudget, RuleQueue, RuleQueueFull};
pub use rule_sender::{
    RuleChange, RuleLife, RuleSender, RulesAnswer, RulesMessage, RulesStatus, RulesTaken,
};
