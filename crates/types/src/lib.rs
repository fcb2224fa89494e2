//! The values that everyone shares: keys and their hashes, time, versions, and what a client asks
//! of an item and is told about it.
//!
//! This crate is at the bottom of the house: it depends on nothing, holds no state and makes no
//! decision. A protocol (`codec`) turns bytes into [`Operation`]s, the `store` carries them out and
//! answers with the `...Outcome` types, and neither knows the other.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod cas;
mod cluster;
mod enums;
mod hash;
mod hot_keys;
mod inline_key;
mod key;
mod operation;
mod tier;
mod time;

pub use cas::{Cas, HybridClock, WriterId};
pub use cluster::{NodeId, NodeSet, Nodes, RouteHash, ViewNumber};
pub use enums::{UnknownName, dashed, unknown_name};
pub use hash::{HashSeed, KeyHash};
pub use hot_keys::{KeyLoad, Load, LoadReport, LoadScale, UnlikeReports};
pub use inline_key::KeyName;
pub use key::{Key, KeyError};
pub use operation::{
    Access, Arithmetic, ArithmeticOutcome, Delete, DeleteOutcome, Direction, Failure, Get,
    ItemStatus, Operation, Outcome, Set, SetMode, SetOutcome,
};
pub use tier::{
    BackEndId, CacheId, CacheSet, CountedRule, KeyAddress, KeyTag, Reconciled, Rule, RuleCookie,
    RuleError, RuleTable, SpreadSlots, SwitchEvent,
};
pub use time::{Expiry, Exptime, Instant, Now, date};
