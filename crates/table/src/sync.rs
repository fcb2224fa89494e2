//! The atomics, locks and waiting of this crate, so that loom can stand in for all of them.
//!
//! Nothing else in the crate names `std::sync` or `std::thread`. Under `cfg(loom)` every type here
//! is loom's, which explores the interleavings and the weak orderings that the memory model allows.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, AtomicUsize, Ordering, fence},
};

/// Rounds of busy waiting before a thread gives its core away. On a machine with few cores the
/// holder may have been stopped by the kernel, and spinning would burn its time slice.
const SPIN_ROUNDS_MAX: u32 = 7;

/// Waits a little before attempt `round` of something another thread stands in the way of: twice
/// as long each round, then by yielding the core.
#[cold]
pub(crate) fn pause(round: u32) {
    #[cfg(loom)]
    {
        let _ = (round, SPIN_ROUNDS_MAX);
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if round < SPIN_ROUNDS_MAX {
        for _ in 0..1_u32 << round {
            std::hint::spin_loop();
        }
    } else {
        std::thread::yield_now();
    }
}

/// Locks a mutex whose data cannot be left half-changed by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Keeps what it holds on cache lines of its own, so that writing it disturbs nobody else.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct OwnLine<T>(pub(crate) T);
