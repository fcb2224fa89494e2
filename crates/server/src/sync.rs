//! The atomics of this crate, in one place.
//!
//! The server shares nothing on the request path but counters and hints; what must be ordered goes
//! through a mutex or a waker. So every use in this crate is `Relaxed`.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

pub(crate) use curtail_runtime::lock;
