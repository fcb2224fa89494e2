//! What keeps all other clients' requests behind accepted writes: whoever touches an item takes the
//! stamp of its bucket first, and looks into the store when its queue has come that far (JB-40,
//! JB-41).
//!
//! ```text
//!   batch --> all reached?  yes --> as ever
//!                |  no: help
//!                v
//!             request by request: reached --> as ever
//!                                 not     --> put off, with all that follow on its connection
//! ```
//!
//! A request that is put off keeps its stamp: a later one could move on for ever while its bucket
//! is written. A flush waits for every queue.

use std::sync::Arc;

use curtail_codec::memcached::{Admin, Request};
use curtail_types::KeyHash;

use crate::{
    request::{
        batch::{Batch, Entry, Work},
        delegate::Decision,
    },
    worker::{event_loop::Worker, shared::Shared},
};

/// What a connection's first request waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Behind {
    queue: usize,
    stamp: u64,
    hash: KeyHash,
}

/// Turns with a queue before a request is put off.
const TURNS_MAX: usize = 8;

impl Worker {
    /// Whether a request of the batch has accepted writes before it that are not executed, nor
    /// could be now.
    #[inline(never)]
    pub(crate) fn is_behind(&mut self, batch: &Batch<'_>) -> bool {
        let mut is_behind = false;
        for entry in batch.entries() {
            is_behind |= match &entry.work {
                Work::Request(Request::Admin(Admin::FlushAll { .. })) => true,
                _ if touches_item(&entry.work) => self.behind(entry).is_some(),
                _ => false,
            };
        }
        is_behind
    }

    /// The batch, when some of it has to wait.
    #[cold]
    pub(crate) fn execute_behind(&mut self, batch: &Batch<'_>) {
        for (number, entry) in batch.entries().iter().enumerate() {
            self.look_ahead(batch, number);
            let decision = match &entry.work {
                Work::Request(Request::Admin(Admin::FlushAll { .. })) => {
                    self.reach_all();
                    self.decide(entry)
                }
                _ if !touches_item(&entry.work) => self.decide(entry),
                _ => match self.behind(entry) {
                    None => self.decide(entry),
                    Some(behind) => {
                        if let Some(connection) = self.slots.get_mut(entry.slot)
                            && !connection.put_off
                        {
                            connection.behind = Some(behind);
                        }
                        Decision::Later
                    }
                },
            };
            self.follow(entry, decision);
        }
    }

    /// What an entry waits for after some help; `None` if nothing.
    fn behind(&mut self, entry: &Entry<'_>) -> Option<Behind> {
        let shared = Arc::clone(&self.cx.shared);
        let native = shared.native.as_deref()?;
        let connection = self.slots.get_mut(entry.slot);
        let kept = connection.and_then(|connection| connection.behind);
        let found = match kept {
            Some(kept) if kept.hash == entry.hash => kept,
            _ => {
                let (queue, stamp) = native.behind(entry.hash.0)?;
                Behind {
                    queue,
                    stamp,
                    hash: entry.hash,
                }
            }
        };
        if !native.has_reached(found.queue, found.stamp) {
            let cx = &mut self.cx;
            let store_cx = &mut cx.store_cx;
            let executor = self.native.as_deref_mut()?;
            let (queue, stamp) = (found.queue, found.stamp);
            if !executor.reach(native, store_cx, queue, stamp, TURNS_MAX) {
                return Some(found);
            }
        }
        if let (Some(_), Some(connection)) = (kept, self.slots.get_mut(entry.slot)) {
            connection.behind = None;
        }
        None
    }

    /// Has every queue executed up to where it is now; whoever has a lease is waited for.
    fn reach_all(&mut self) {
        let shared: Arc<Shared> = Arc::clone(&self.cx.shared);
        let (Some(native), Some(executor)) = (shared.native.as_deref(), self.native.as_deref_mut())
        else {
            return;
        };
        let cx = &mut self.cx;
        let store_cx = &mut cx.store_cx;
        for number in 0..native.config.queues {
            let tail = native.queue(number).map_or(0, |queue| queue.backlog().tail);
            while !executor.reach(native, store_cx, number, tail, TURNS_MAX) {
                std::thread::yield_now();
            }
        }
    }
}

/// Whether it is about an item; the end of a large write has waited when it began.
fn touches_item(work: &Work<'_>) -> bool {
    match work {
        Work::Request(Request::Item { .. } | Request::SetTooLarge { .. })
        | Work::LargeSet { .. } => true,
        Work::Request(_)
        | Work::LargeSetEnd { .. }
        | Work::Login { .. }
        | Work::Malformed { .. } => false,
    }
}
