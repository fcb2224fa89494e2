//! The processes of a cache tier (SwitchKV: Li, dissertation, 2016, chapter 2): a back end with its
//! store, a cache node, and the switch with its controller.
//!
//! ```text
//!   client --datagram--> switch --rule for the key--> CacheNode --no copy--> switch
//!                          | ^                          |  ^
//!                          | +------- Rules ------------+  | Item, Update, Lease, Report
//!                          +--no rule--> BackEndNode ------+
//!                                            |
//!                                          store
//! ```
//!
//! Decisions are made by the machines of `consistency::tiered`, which the checker and the simulator
//! step too; here are their hosts: sockets, stores, clocks. A node is one thread that owns its
//! machine, its items and its socket; `curtail tier` runs one, tests run many.
//!
//! Invariants: what is queued, parked or remembered has a bound; a datagram that is malformed, that
//! was seen before or that is not for this node is counted and changes nothing; a reply leaves only
//! after what it shows is as durable as the store promises.
#![forbid(unsafe_code)]

mod answered_writes;
mod back_end;
mod back_end_requests;
mod back_end_state;
mod back_end_store;
mod cache;
mod cache_copies;
mod cache_group;
mod cache_rules;
mod hot_key_reports;
mod incarnation;
mod node_loop;
mod outbox;
mod rate_limit;
mod read_modify_write;
mod report_encoding;
mod rule_change;
mod rule_lags;
mod status;
mod switch;
mod switch_ports;
mod switch_start;
#[cfg(test)]
mod tests;
mod tier_file;
mod trial_namespaces;

pub use curtail_consistency::tiered::RuleBudget;
pub use curtail_routing::ControllerEndpoint;

pub use back_end::{BackEndNode, BackEndOptions};
pub use back_end_store::{StoreOptions, StorePlace};
pub use cache::{CacheNode, CacheOptions};
pub use cache_group::GROUP_KEY;
pub use hot_key_reports::UpdateMode;
pub use node_loop::{NodeError, NodeThread, TierNode, run};
pub use status::{NodeStatus, StatusError, ask_status};
pub use switch::{SwitchNode, SwitchOptions};
pub use switch_ports::TierPort;
/// Whether the programs of Open vSwitch are installed.
pub fn is_open_vswitch_installed() -> bool {
    curtail_routing::OpenVswitch::is_installed()
}

pub use tier_file::{MacNetwork, TierBaseline, TierFile, TierFileError, TierFileNetwork};
pub use trial_namespaces::{TrialEncoding, TrialNamespaces};
