//! Consistency between nodes: whether a copy of a key may answer, and who must learn of a write
//! before it completes.
//!
//! Everything here is a machine: time and configuration are arguments, and what is to be done is
//! emitted. Values never come in here: a machine knows a value by the timestamp of its write, and
//! whoever drives it keeps the bytes. A server's workers, the simulator's event queue and the
//! checker drive the same code.
//!
//! Three papers are here. ccKVS (Gavrielatos, Katsarakis et al., EuroSys 2018): every node caches
//! the same hot keys ([`symmetric`]). Hermes (Katsarakis et al., ASPLOS 2020): the same when nodes
//! fail. SwitchKV (Li, dissertation, 2016, chapter 2): one cache node in front of disk-backed nodes
//! ([`tiered`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod byte_reader;
pub mod cluster_clock;
pub mod hot_list;
pub mod hot_set;
pub mod lease;
pub mod members;
pub mod membership;
pub mod moves;
pub mod placement;
pub mod placement_plan;
pub mod replica;
pub mod slice_view;
pub mod symmetric;
pub mod tiered;
