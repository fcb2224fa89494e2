//! The control thread's order to a worker to move connections to another one.

use crate::sync::{AtomicU64, Relaxed};

/// What the control thread asks a worker to give: the receiver in the upper 16 bits, requests of an
/// epoch below.
#[derive(Debug, Default)]
pub(crate) struct Order(AtomicU64);

impl Order {
    pub(crate) fn give(&self, shift: Shift) {
        let requests = shift.requests.min((1 << REQUESTS_BITS) - 1);
        self.0
            .store((shift.to as u64) << REQUESTS_BITS | requests, Relaxed);
    }

    /// The receiver and how much it is to get, once.
    pub(crate) fn take(&self) -> Option<(usize, u64)> {
        let order = self.0.swap(0, Relaxed);
        let requests = order & ((1 << REQUESTS_BITS) - 1);
        (requests > 0).then_some(((order >> REQUESTS_BITS) as usize, requests))
    }
}

pub(crate) const REQUESTS_BITS: u32 = 48;

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

/// Loads that differ by less than this part of the mean are even.
pub(crate) const UNEVEN_FROM: u64 = 4;

/// Requests a second below which nobody needs help.
pub(crate) const RATE_MIN: u64 = 1000;

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
    fn half_of_the_load_difference_moves_to_the_least_loaded_worker() {
        let found = shift(&loads(&[(5000, 4), (9000, 4), (1000, 4)]), 1000);
        let wanted = Shift {
            from: 1,
            to: 2,
            requests: 4000,
        };
        assert_eq!(found, Some(wanted));
    }

    #[test]
    fn even_idle_and_single_workers_get_no_order() {
        assert_eq!(shift(&loads(&[(5000, 4), (4000, 4)]), 1000), None);
        assert_eq!(shift(&loads(&[(900, 4), (0, 4)]), 1000), None);
        assert!(shift(&loads(&[(900, 4), (0, 4)]), 100).is_some());
        assert_eq!(shift(&loads(&[(9000, 1), (0, 4)]), 1000), None);
        assert_eq!(shift(&loads(&[(9000, 7)]), 1000), None);
    }

    /// Goal: orders end. Method: loads of connections of any weight, moved as a worker would move
    /// them; the difference never grows and soon nothing is asked for that could be done.
    #[test]
    fn connections_do_not_move_back_and_forth() {
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
