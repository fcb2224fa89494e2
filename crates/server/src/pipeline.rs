//! The one direction in which data flows; start reading here.
//!
//! ```text
//!  wire -> collect ---> decide ---> execute ---> reply -> wire
//!          receive,     where a     prefetch,    one send
//!          decode,      request     then run     per
//!          prefetch     runs        in order     connection
//! ```
//!
//! A worker is one thread with one event loop, and this is its turn. Working on a batch instead of
//! a request is what makes it fast: the memory that all requests will touch is asked for before the
//! first one waits for it (buckets while decoding, items in a pass of their own), and the kernel is
//! entered once to receive and once to send per connection, however many requests that was.
//!
//! Nothing on this path allocates, waits, or reads a clock.

use crate::{
    batch::{Batch, Entry},
    worker::Worker,
};

/// Where a request runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Placement {
    /// On the worker where it arrived.
    Here,
}

/// How many requests ahead the rest of longer items is asked for: far enough to hide a miss, near
/// enough to stay in the first-level cache.
const VALUES_AHEAD: usize = 6;

impl Worker {
    /// One turn: everything that arrived, up to a bound, is answered. `area` is the memory to
    /// receive into; the batch borrows from it.
    pub(crate) fn turn(&mut self, area: &mut [u8]) {
        let mut batch = std::mem::take(&mut self.batch).recycle();
        self.collect(area, &mut batch);
        self.execute(&mut batch);
        self.reply();
        self.finish_turn();
        self.batch = batch.recycle();
    }

    fn execute(&mut self, batch: &mut Batch<'_>) {
        self.replies.begin_turn();
        for entry in batch.entries_mut() {
            self.kit.prefetch_item(entry);
        }
        for (number, entry) in batch.entries().iter().enumerate() {
            if let Some(ahead) = batch.entries().get(number + VALUES_AHEAD) {
                self.kit.store.prefetch_value(ahead.hint);
            }
            if self.kit.notice.on {
                self.notice(entry);
            }
            match decide(entry) {
                Placement::Here => self.carry_out(entry),
            }
        }
    }
}

/// Decides where a request runs. Speed alone depends on it: the store is right under any
/// assignment. Today every request runs where it arrived; the policies that balance writes and keep
/// large requests away from small ones take this function's place.
fn decide(_entry: &Entry<'_>) -> Placement {
    Placement::Here
}
