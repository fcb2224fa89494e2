//! The atomics of this crate, in one place.
//!
//! The server shares nothing on the request path but counters and hints; what must be ordered goes
//! through a mutex or a waker. So every use in this crate is `Relaxed`.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};

use std::sync::{MutexGuard, PoisonError};

/// Locks `mutex`. A thread that panicked while it held the lock ends the process in release
/// builds; in tests the data, which is only ever replaced whole, is still good.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
