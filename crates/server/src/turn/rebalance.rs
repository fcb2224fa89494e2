//! Moves connections from the busiest worker to the least busy one.
//!
//! ```text
//!   control, once an epoch        worker with most                         worker with least
//!   loads uneven: ask it to give  1st time: marks what connections did
//!   half of the difference    ->  2nd time in a row: those that did    ->  takes them as its own
//!                                 no more than that, and rest just now
//! ```
//!
//! Connections are placed when nobody knows what they will do, so loads drift apart. What is moved
//! did at most half of the difference in the epoch before, so the difference shrinks with every
//! move and nothing goes back and forth; one client that is heavier than that stays alone where it
//! is, and the light ones leave it. A connection moves only while it rests: nothing received,
//! nothing queued, nothing with others. So no reply and no order can be lost.

use crate::{
    connection::Connection,
    limits::{REBALANCE_LOOKED_AT_MAX, REBALANCE_MOVED_MAX},
    metrics::counters::Count,
    sync::Relaxed,
    turn::hand_off_large,
    worker::{Worker, mailbox::Arrival},
};

/// Executes the control thread's order of the last epoch, if the epoch before had one, too.
pub(crate) fn give_connections(worker: &mut Worker) {
    let handle = worker.cx.shared.workers.get(worker.index);
    let Some((to, requests)) = handle.and_then(|handle| handle.order.take()) else {
        worker.slots.marks.is_set = false;
        return;
    };
    if worker.slots.marks.is_set {
        give(worker, to, requests);
        worker.slots.marks.is_set = false;
    } else {
        mark(worker);
    }
}

/// Notes what connections have done so far.
fn mark(worker: &mut Worker) {
    worker.slots.marks.is_set = true;
    let end = worker.slots.end();
    let first = if worker.slots.marks.from >= end {
        0
    } else {
        worker.slots.marks.from
    };
    worker.slots.marks.from = first;
    for slot in first..end.min(first + REBALANCE_LOOKED_AT_MAX) {
        if let Some(connection) = worker.slots.get_mut(slot) {
            connection.requests_marked = connection.requests;
        }
    }
}

/// Gives connections that did up to `requests` since they were marked.
fn give(worker: &mut Worker, to: usize, mut requests: u64) {
    let first = worker.slots.marks.from;
    let end = worker.slots.end().min(first + REBALANCE_LOOKED_AT_MAX);
    worker.slots.marks.from = end;
    let done = |connection: &Connection| connection.requests - connection.requests_marked;
    let mut candidates: Vec<(u64, usize)> = (first..end)
        .filter_map(|slot| {
            let connection = worker.slots.get_mut(slot)?;
            Some((done(connection), slot))
        })
        .filter(|(done, _)| (1..=requests).contains(done))
        .collect();
    candidates.sort_unstable_by(|one, other| other.cmp(one));
    let mut moved = 0;
    for (done, slot) in candidates {
        if moved < REBALANCE_MOVED_MAX && done <= requests && move_away(worker, slot, to) {
            requests -= done;
            moved += 1;
        }
    }
}

/// Moves the connection in `slot`, if it rests.
fn move_away(worker: &mut Worker, slot: usize, to: usize) -> bool {
    let rests = worker
        .slots
        .get_mut(slot)
        .is_some_and(|connection| connection.rests());
    let (Some(own), Some(other)) = (
        worker.cx.shared.workers.get(worker.index),
        worker.cx.shared.workers.get(to),
    ) else {
        return false;
    };
    if !rests || to == worker.index || to >= worker.cx.shared.config.workers {
        return false;
    }
    let Some(mut connection) = worker.slots.remove(slot) else {
        return false;
    };
    connection.stream.unwatch(&worker.poller);
    own.connections.fetch_sub(1, Relaxed);
    other.connections.fetch_add(1, Relaxed);
    other.mail.send(Arrival::Moved(connection));
    worker.cx.counts.add(Count::ConnectionsMoved, 1);
    true
}

/// A connection belongs here from now on.
pub(crate) fn receive_moved(worker: &mut Worker, mut connection: Box<Connection>) {
    let slot = worker.slots.reserve();
    connection.serial = worker.next_serial();
    connection.requests_marked = connection.requests;
    hand_off_large::seat(worker, slot, connection);
    worker.slots.queue(slot);
}
