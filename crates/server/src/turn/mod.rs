//! The stages of a worker's turn: receive and decode, delegate, execute, compact, hand on, send;
//! and what is measured on the way.

pub(crate) mod compaction;
pub(crate) mod delegate;
pub(crate) mod execute;
pub(crate) mod hand_off_large;
pub(crate) mod large_write;
pub(crate) mod lifecycle;
pub(crate) mod log_events;
pub(crate) mod long_running;
pub(crate) mod note_latency;
pub(crate) mod note_slow;
pub(crate) mod note_work_ahead;
pub(crate) mod rebalance;
pub(crate) mod receive;
pub(crate) mod run_delegated;
pub(crate) mod send;
pub(crate) mod stage_times;
