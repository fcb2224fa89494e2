//! What was done ahead of each request since its worker last looked for requests: how many others,
//! and how many bytes were moved.
//!
//! It is work, not time, so it does not depend on what else the machine does: what the policies are
//! judged by where clients and servers share processors. Measured in one turn of 64, request by
//! request, and by the size of the one that waits.
//!
//! ```text
//!  turn before          this turn
//!  ... | replies sent | received and decoded | request 1 | request 2 | request 3 | ...
//!        parts of       parts of large         \---------------------/
//!        large values   values                  their values, in and out
//!        |<---------------- ahead of request 3 ---------------------->|
//! ```

use curtail_codec::memcached::Request;

use crate::{
    metrics::stage_histograms::StageName,
    request::batch::{Batch, Entry, Work},
    worker::{context::WorkerContext, event_loop::Worker},
};

impl Worker {
    /// Carries out a batch like any other, and notes what is ahead of each request.
    #[cold]
    pub(crate) fn execute_measured(&mut self, batch: &Batch<'_>) {
        let mut bytes = self.cx.measured.large_moved;
        for (number, entry) in batch.entries().iter().enumerate() {
            self.look_ahead(batch, number);
            let (before, room) = (self.replies.bytes_for(entry.slot), self.replies.remaining());
            let decision = self.decide(entry);
            self.follow(entry, decision);
            if self.replies.is_closed_off(entry.slot) {
                // Not here, or not now.
                continue;
            }
            let came = value_bytes(entry);
            let answered = self.replies.bytes_for(entry.slot).saturating_sub(before);
            let is_large = came.max(answered) >= self.cx.turn.large_counts_from;
            let [requests, kilobytes] = if is_large { LARGE } else { SMALL };
            let stages = &mut self.cx.recorders.stages;
            stages.record(requests, number as u64);
            stages.record(kilobytes, bytes >> 10);
            // What is sent from where it lies is moved when the turn's replies are.
            let copied = room.saturating_sub(self.replies.remaining());
            bytes += (came + copied) as u64;
        }
    }
}

const SMALL: [StageName; 2] = [StageName::AheadSmall, StageName::KilobytesSmall];
const LARGE: [StageName; 2] = [StageName::AheadLarge, StageName::KilobytesLarge];

/// Bytes that came with a request.
fn value_bytes(entry: &Entry<'_>) -> usize {
    match &entry.work {
        Work::Request(Request::Item { value, .. }) => value.len(),
        Work::LargeSet { rest, .. } => rest.len(),
        _ => 0,
    }
}

impl WorkerContext {
    /// Notes that so many bytes of a value of `value_bytes` were moved.
    #[inline]
    pub(crate) fn note_moved(&mut self, value_bytes: usize, bytes: usize) {
        if value_bytes >= self.turn.large_counts_from {
            self.measured.large_moved += bytes as u64;
        }
    }
}
