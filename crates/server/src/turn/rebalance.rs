//! Moves connections from the busiest worker to the least busy one.
//!
//! ```text
//!   control thread, once an epoch      busiest worker                     least busy worker
//!   loads differ: orders it to move -> 1st order: notes the requests of
//!   half of the difference             its connections
//!                                      2nd order in a row: moves       -> owns these connections
//!                                      connections with no more requests
//!                                      than that, if they are idle
//! ```
//!
//! A worker gets a connection before its load is known, so loads become uneven. Together the
//! connections that move had at most half of the difference in requests in the last epoch. So each
//! move reduces the difference, and connections do not move back and forth. A connection with more
//! requests than that stays, and connections with fewer requests leave its worker. A connection
//! moves only while it is idle: it has no unprocessed input, no queued output, and no request at
//! another thread. So no reply is lost, and replies keep their order.

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
