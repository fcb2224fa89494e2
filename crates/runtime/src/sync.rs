//! The atomics of this crate, in one place.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
