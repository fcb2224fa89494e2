//! Moving connections from the worker that does most to the one that does least.
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
    metrics::counters::Count,
    sync::{AtomicU64, Relaxed},
    turn::hand_off,
    worker::{Worker, mailbox::Arrival},
};

/// What the control asks a worker to give: the receiver in the upper 16 bits, requests of an epoch
/// below.
#[derive(Debug, Default)]
pub(crate) struct Order(AtomicU64);

/// What a worker did in an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) connections: usize,
}

/// A worker is to give connections that did so many requests in an epoch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shift {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) requests: u64,
}

/// Loads that differ by less than this part of the mean are even.
const UNEVEN_FROM: u64 = 4;

/// Requests a second below which nobody needs help.
const RATE_MIN: u64 = 1000;

/// Connections looked at, and moved, at a time.
const LOOKED_AT_MAX: usize = 128;
const MOVED_MAX: usize = 16;

const REQUESTS_BITS: u32 = 48;

impl Order {
    pub(crate) fn give(&self, shift: Shift) {
        let requests = shift.requests.min((1 << REQUESTS_BITS) - 1);
        self.0
            .store((shift.to as u64) << REQUESTS_BITS | requests, Relaxed);
    }

    /// The receiver and how much it is to get, once.
    fn take(&self) -> Option<(usize, u64)> {
        let order = self.0.swap(0, Relaxed);
        let requests = order & ((1 << REQUESTS_BITS) - 1);
        (requests > 0).then_some(((order >> REQUESTS_BITS) as usize, requests))
    }
}

/// What would make uneven loads of an epoch of `epoch_ms` more even.
pub(crate) fn shift(loads: &[Load], epoch_ms: u64) -> Option<Shift> {
    let (from, most) = loads
        .iter()
        .enumerate()
        .max_by_key(|(_, load)| load.requests)?;
    let (to, least) = loads
        .iter()
        .enumerate()
        .min_by_key(|(_, load)| load.requests)?;
    let total: u64 = loads.iter().map(|load| load.requests).sum();
    let difference = most.requests - least.requests;
    let uneven = difference * UNEVEN_FROM * loads.len() as u64 > total;
    let busy = most.requests * 1000 >= RATE_MIN * epoch_ms;
    (uneven && busy && most.connections > 1).then_some(Shift {
        from,
        to,
        requests: difference / 2,
    })
}

/// Does what the control asked for in the last epoch, if it asked before that, too.
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
    for slot in first..end.min(first + LOOKED_AT_MAX) {
        if let Some(connection) = worker.slots.get_mut(slot) {
            connection.requests_marked = connection.requests;
        }
    }
}

/// Gives connections that did up to `requests` since they were marked.
fn give(worker: &mut Worker, to: usize, mut requests: u64) {
    let first = worker.slots.marks.from;
    let end = worker.slots.end().min(first + LOOKED_AT_MAX);
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
        if moved < MOVED_MAX && done <= requests && move_away(worker, slot, to) {
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
    hand_off::seat(worker, slot, connection);
    worker.slots.queue(slot);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(all: &[(u64, usize)]) -> Vec<Load> {
        let load = |&(requests, connections)| Load {
            requests,
            connections,
        };
        all.iter().map(load).collect()
    }

    #[test]
    fn half_of_the_difference_goes_from_the_most_to_the_least() {
        let found = shift(&loads(&[(5000, 4), (9000, 4), (1000, 4)]), 1000);
        let wanted = Shift {
            from: 1,
            to: 2,
            requests: 4000,
        };
        assert_eq!(found, Some(wanted));
    }

    #[test]
    fn even_idle_and_single_ones_are_left_alone() {
        assert_eq!(shift(&loads(&[(5000, 4), (4000, 4)]), 1000), None);
        assert_eq!(shift(&loads(&[(900, 4), (0, 4)]), 1000), None);
        assert!(shift(&loads(&[(900, 4), (0, 4)]), 100).is_some());
        assert_eq!(shift(&loads(&[(9000, 1), (0, 4)]), 1000), None);
        assert_eq!(shift(&loads(&[(9000, 7)]), 1000), None);
    }

    /// Goal: orders end. Method: loads of connections of any weight, moved as a worker would move
    /// them; the difference never grows and soon nothing is asked for that could be done.
    #[test]
    fn nothing_goes_back_and_forth() {
        for seed in 1..200_u64 {
            let weight = |i: u64| (seed * 7919 + i * i * 104_729) % 3000 + 1;
            let mut workers: Vec<Vec<u64>> = vec![Vec::new(); 3];
            (0..24).for_each(|i| workers[(seed * i % 5 % 3) as usize].push(weight(i)));
            let sum = |worker: &[u64]| worker.iter().sum::<u64>();
            let mut moves = 0;
            loop {
                let now: Vec<Load> = workers
                    .iter()
                    .map(|worker| Load {
                        requests: sum(worker),
                        connections: worker.len(),
                    })
                    .collect();
                let spread = |loads: &[Load]| loads.iter().map(|load| load.requests.pow(2)).sum();
                let before: u64 = spread(&now);
                let Some(shift) = shift(&now, 1000) else {
                    break;
                };
                let mut left = shift.requests;
                workers[shift.from].sort_unstable_by(|one, other| other.cmp(one));
                let (go, stay) = workers[shift.from].iter().partition(|&&weight| {
                    let goes = weight <= left;
                    left -= if goes { weight } else { 0 };
                    goes
                });
                let go: Vec<u64> = go;
                if go.is_empty() {
                    break;
                }
                workers[shift.from] = stay;
                workers[shift.to].extend(go);
                let after: u64 = workers.iter().map(|worker| sum(worker).pow(2)).sum();
                assert!(after < before, "{seed}");
                moves += 1;
                assert!(moves < 50, "{seed}");
            }
        }
    }

    #[test]
    fn an_order_is_taken_once() {
        let order = Order::default();
        assert_eq!(order.take(), None);
        order.give(Shift {
            from: 0,
            to: 3,
            requests: 500,
        });
        assert_eq!((order.take(), order.take()), (Some((3, 500)), None));
    }
}
