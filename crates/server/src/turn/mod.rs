//! The stages of a worker's turn: receive and decode, delegate, execute, compact, hand on, send;
//! and what is measured on the way.

pub(crate) mod compaction;
pub(crate) mod delegate;
pub(crate) mod execute;
pub(crate) mod hand_off;
pub(crate) mod large_write;
pub(crate) mod lifecycle;
pub(crate) mod rebalance;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod stage_times;
pub(crate) mod work_ahead;
