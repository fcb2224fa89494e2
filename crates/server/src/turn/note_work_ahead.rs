//! Measures the work ahead of each request since its worker last polled: requests executed and
//! bytes moved.
//!
//! Work, unlike time, does not depend on what else the machine does, so policies can be compared
//! where clients and servers share processors. Measured in one turn of 64, request by request, and
//! by the size of the one that waits.
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
    request::batch::{Entry, Work},
    worker::{Worker, context::WorkerContext},
};

/// What was done ahead of the next request of a turn that is measured.
pub(crate) struct Ahead {
    requests: u64,
    bytes: u64,
}

/// Begins to measure a turn.
pub(crate) fn measure_ahead(worker: &Worker) -> Ahead {
    Ahead {
        requests: 0,
        bytes: worker.cx.measured.large_moved,
    }
}

/// Bytes of replies in this turn to the first connection of a run, and the room that is left.
#[inline]
pub(crate) fn answered_for(worker: &Worker, run: &[Entry<'_>]) -> (usize, usize) {
    let slot = run.first().map_or(usize::MAX, |entry| entry.slot);
    (worker.replies.bytes_for(slot), worker.replies.remaining())
}

/// Notes what is ahead of each request of a run, which was executed when [`answered_for`]
/// told `before`.
#[cold]
pub(crate) fn note_ahead(
    worker: &mut Worker,
    ahead: &mut Ahead,
    run: &[Entry<'_>],
    (before, room): (usize, usize),
) {
    for entry in run {
        let number = ahead.requests;
        ahead.requests += 1;
        if worker.replies.is_closed_off(entry.slot) {
            // Not here, or not now.
            continue;
        }
        let came = value_bytes(entry);
        let answered = worker.replies.bytes_for(entry.slot).saturating_sub(before);
        let is_large = came.max(answered) >= worker.cx.turn.large_counts_from;
        let [requests, kilobytes] = if is_large { LARGE } else { SMALL };
        let stages = &mut worker.cx.recorders.stages;
        stages.record(requests, number);
        stages.record(kilobytes, ahead.bytes >> 10);
        ahead.bytes += came as u64;
    }
    // What is sent from where it lies is moved when the turn's replies are.
    ahead.bytes += room.saturating_sub(worker.replies.remaining()) as u64;
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

/// Notes that so many bytes of a value of `value_bytes` were moved.
#[inline]
pub(crate) fn note_moved(cx: &mut WorkerContext, value_bytes: usize, bytes: usize) {
    if value_bytes >= cx.turn.large_counts_from {
        cx.measured.large_moved += bytes as u64;
    }
}
