//! Sends the replies of a turn: one send per connection, and what follows from how far it got.

use crate::{
    connection::{
        Connection,
        output::{Progress, send_pieces},
    },
    metrics::{counters::Count, stage_histograms::StageName},
    request::reply_buffer::{Content, Piece},
    sync::Relaxed,
    turn::{execute, hand_off_large, lifecycle, note_work_ahead, send},
    worker::{Worker, context::WorkerContext},
};

/// Sends everything that was answered so far. Usually called once, at the end of the turn; in
/// between when the memory for replies is used up.
pub(crate) fn reply(worker: &mut Worker) {
    // A client that has its reply must find it counted.
    publish_counts(worker);
    execute::note_failed(worker);
    let (area, pieces) = worker.replies.take();
    let mut sent = Sent::default();
    for run in pieces.chunk_by_mut(|a, b| a.slot == b.slot) {
        let Some(slot) = run.first().map(|piece| piece.slot) else {
            continue;
        };
        let Some(connection) = worker.slots.get_mut(slot) else {
            continue;
        };
        let (value_bytes, awaits) = survey(run);
        if value_bytes >= worker.cx.turn.large_from {
            connection.departs_with(&worker.routing.snapshot, value_bytes);
        }
        let goes = connection.departs.is_none() && !awaits;
        let mut taken = 0;
        if goes && connection.output.is_empty() && connection.writable {
            let progress;
            (taken, progress) = send_pieces(&mut connection.stream, area, run);
            sent.note(&mut worker.cx, taken, value_bytes);
            match progress {
                Progress::All => continue,
                Progress::More => {}
                Progress::Full => connection.writable = false,
                Progress::Broken => {
                    worker.slots.broken.push(slot);
                    continue;
                }
            }
        }
        connection
            .output
            .keep(&mut worker.cx.pool, area, run, taken);
    }
    worker.replies.clear();
    while let Some(slot) = worker.slots.broken.pop() {
        lifecycle::close(worker, slot);
    }
}

/// Lines up the connections that had their turn and want another one, and closes those that
/// are done with.
pub(crate) fn finish_turn(worker: &mut Worker) {
    while let Some(slot) = worker.slots.served.pop() {
        let Some(connection) = worker.slots.get_mut(slot) else {
            continue;
        };
        if connection.closing && connection.output.is_empty() {
            lifecycle::close(worker, slot);
            continue;
        }
        connection.put_off = false;
        connection.show_waiting();
        let is_borrowed = connection.loan.is_some();
        if hand_off_large::is_done(connection) {
            hand_off_large::give_back(worker, slot);
            continue;
        }
        if let Some(departure) = connection.departure()
            && hand_off_large::depart(worker, slot, departure)
        {
            continue;
        }
        if is_borrowed {
            hand_off_large::host(worker, slot);
        }
        worker.slots.queue(slot);
    }
    relieve(worker);
}

/// Leases and buffers are capped, so one client that does not read could keep all others from large
/// values, or from being served at all: the one that holds most is closed.
fn relieve(worker: &mut Worker) {
    if std::mem::take(&mut worker.cx.measured.lease_refused) {
        let closed = close_heaviest(worker, Count::SlowReadersClosed, |connection| {
            connection.output.leased_bytes()
        });
        if !closed && !worker.is_large_worker() {
            hand_off_large::ask_for_relief(worker);
        }
    }
    let (_, bytes) = worker.cx.pool.bytes();
    if bytes > worker.cx.shared.buffer_bytes_max() {
        close_heaviest(worker, Count::ReadNoMemory, Connection::held_bytes);
    }
}

#[cold]
fn close_heaviest(
    worker: &mut Worker,
    count: Count,
    weight: impl Fn(&Connection) -> usize,
) -> bool {
    let weighed = |(slot, connection)| (weight(connection), slot);
    let Some((1.., slot)) = worker.slots.used().map(weighed).max() else {
        return false;
    };
    worker.cx.counts.add(count, 1);
    lifecycle::close(worker, slot);
    true
}

pub(crate) fn publish_counts(worker: &Worker) {
    let Some(handle) = worker.cx.shared.workers.get(worker.index) else {
        return;
    };
    handle.counts.publish(&worker.cx.counts);
    handle.in_line.store(worker.slots.ready_count(), Relaxed);
    let (bytes, bytes_used) = worker.cx.pool.bytes();
    let count = worker.cx.pool.buffers_out() as u64;
    handle.buffers.count.store(count, Relaxed);
    handle.buffers.bytes.store(bytes as u64, Relaxed);
    let unused = bytes - bytes_used;
    handle.buffers.bytes_unused.store(unused as u64, Relaxed);
}

/// What went out so far while the replies of a turn are sent.
#[derive(Debug, Default)]
struct Sent {
    bytes: u64,
    /// It contained something large, for which the connections behind have waited.
    large: bool,
}

impl Sent {
    fn note(&mut self, cx: &mut WorkerContext, taken: usize, value_bytes: usize) {
        cx.counts.add(Count::Sends, 1);
        cx.counts.add(Count::BytesWritten, taken as u64);
        cx.recorders
            .stages
            .record(StageName::Reply, self.bytes >> 10);
        self.bytes += taken as u64;
        note_work_ahead::note_moved(cx, value_bytes, taken);
        let is_large = value_bytes >= cx.turn.large_counts_from;
        if self.large && !is_large {
            cx.counts.add(Count::SmallBehindLarge, 1);
        }
        self.large |= is_large;
    }
}

/// The longest value in a connection's replies that is sent from where it lies, and whether they
/// have to wait for another worker.
fn survey(run: &[Piece]) -> (usize, bool) {
    let (mut value_bytes, mut awaits) = (0, false);
    for piece in run {
        match &piece.content {
            Content::Area { .. } | Content::Owned(_) | Content::Final { .. } => {}
            Content::Lease(lease) => value_bytes = value_bytes.max(lease.value_bytes()),
            Content::Awaited(..) => awaits = true,
        }
    }
    (value_bytes, awaits)
}

/// Holds replies until they may leave: a value read on a node of a cluster may be stale if the
/// node's lease has ended since; then the clients get no reply. With a disk tier in mode `sync` the
/// replies to writes wait until these are on stable storage.
pub(crate) fn commit(worker: &mut Worker) {
    if let Some(tier) = &mut worker.tier {
        tier.commit(&mut worker.replies);
    }
    if worker.routing.under_lease && !send::still_holds_lease(worker) {
        send::withhold(worker);
    }
}

/// Sends what was answered so far: the memory for replies is used up.
pub(crate) fn reply_early(worker: &mut Worker) {
    commit(worker);
    send::reply(worker);
}

/// Whether what was read until now may be shown.
pub(crate) fn still_holds_lease(worker: &Worker) -> bool {
    let shared = &worker.cx.shared;
    let now = shared.clock.now().instant;
    let cluster = shared.cluster.as_ref();
    cluster.is_none_or(|cluster| cluster.still_holds_lease(now))
}

/// The lease has ended, so what was read may be stale: its clients get no reply.
#[cold]
pub(crate) fn withhold(worker: &mut Worker) {
    let (_, pieces) = worker.replies.take();
    worker
        .slots
        .broken
        .extend(pieces.iter().map(|piece| piece.slot));
    worker.replies.clear();
    while let Some(slot) = worker.slots.broken.pop() {
        lifecycle::close(worker, slot);
    }
}
