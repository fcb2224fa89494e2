//! Keeps the requests of all other clients behind accepted writes: an access to an item takes the
//! stamp of its bucket first, and reads the store when the queue has been executed up to there
//! (JB-40, JB-41).
//!
//! ```text
//!   request --> reached?  yes --> as ever
//!                  |  no: help
//!                  v
//!               reached --> as ever
//!               not     --> put off, with all that follow on its connection
//! ```
//!
//! A request that is put off keeps its stamp: a later one could move on for ever while its bucket
//! is written. A flush waits for every queue.

use std::sync::Arc;

use curtail_types::KeyHash;

use crate::{
    native::{Executor, Native},
    store_context::StoreContext,
};

/// What a connection's first request waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Behind {
    queue: usize,
    stamp: u64,
    hash: KeyHash,
}

/// Keeps one thread's requests behind accepted writes.
pub(crate) struct ReadBarrier {
    native: Arc<Native>,
    pub(crate) executor: Executor,
}

/// Turns with a queue before a request is put off.
const TURNS_MAX: usize = 8;

impl ReadBarrier {
    pub(crate) fn new(native: Arc<Native>, executor: Executor) -> Self {
        Self { native, executor }
    }

    /// What a request for the key of `hash` waits for after some help, or has waited for already;
    /// `None` if nothing.
    pub(crate) fn behind(
        &mut self,
        store_cx: &mut StoreContext,
        hash: KeyHash,
        kept: Option<Behind>,
    ) -> Option<Behind> {
        let found = match kept.filter(|kept| kept.hash == hash) {
            Some(kept) => kept,
            None => {
                let (queue, stamp) = self.native.behind(hash.0)?;
                Behind { queue, stamp, hash }
            }
        };
        let (queue, stamp) = (found.queue, found.stamp);
        let is_reached = self.native.has_reached(queue, stamp)
            || self
                .executor
                .reach(&self.native, store_cx, queue, stamp, TURNS_MAX);
        (!is_reached).then_some(found)
    }

    /// Has every queue executed up to where it is now; whoever has a lease is waited for.
    pub(crate) fn reach_all(&mut self, store_cx: &mut StoreContext) {
        let native = &self.native;
        for number in 0..native.config.queues {
            let tail = native.queue(number).map_or(0, |queue| queue.backlog().tail);
            while !self
                .executor
                .reach(native, store_cx, number, tail, TURNS_MAX)
            {
                std::thread::yield_now();
            }
        }
    }
}
