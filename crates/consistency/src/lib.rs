//! Consistency between nodes: whether a copy of a key may answer, and who must learn of a write
//! before it completes.
//!
//! Everything here is a machine: time and configuration are arguments, and what is to be done is
//! emitted. Values never come in here: a machine knows a value by the timestamp of its write, and
//! its driver keeps the bytes. A server's workers, the simulator's event queue and the
//! checker drive the same code.
//!
//! Three papers are here. PacificA (Lin et al., MSR-TR 2008): a primary and its followers
//! ([`replica`], with [`members`] and [`slice_view`]). ccKVS (Gavrielatos, Katsarakis et al.,
//! EuroSys 2018): every node has the same hot keys ([`replica`] and [`hot_list`]). SwitchKV (Li,
//! dissertation, 2016, chapter 2): one cache node in front of disk-backed nodes ([`tiered`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod by_node;
pub mod cluster_clock;
pub mod control_messages;
pub mod hot_list;
pub mod lease;
pub mod members;
pub mod replica;
pub mod slice_placement;
pub mod slice_view;
pub mod tiered;
mod wire;
