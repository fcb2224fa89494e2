//! The XDP program against its Rust twin, and over the death of its server.
//!
//! All of it needs the privilege to load BPF programs: root without it fails, and nobody else is
//! tested, which standard error says (`namespace.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what cannot be set up fails the test"
)]

#[path = "../../ordered_queue/tests/arrival/mod.rs"]
mod arrival;
#[path = "nic/differential.rs"]
mod differential;
#[path = "nic/frames.rs"]
mod frames;
#[path = "nic/instruction_count.rs"]
mod instruction_count;
#[path = "nic/namespace.rs"]
mod namespace;
#[path = "nic/on_node.rs"]
mod on_node;
#[path = "nic/survival.rs"]
mod survival;
#[path = "nic/twin.rs"]
mod twin;
#[path = "nic/twin_memory.rs"]
mod twin_memory;
