//! The times at which the requests of one thread are due.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use curtail_workload::{ClosedLoop, Constant, Poisson};

use super::{Pace, Plan, request_accounting::Pending};
use crate::error::LoadError;

/// Requests that may wait for a connection; a load that outruns the server by more is hopeless.
const WAITING_MAX: usize = 1 << 24;

/// An open loop's times, in nanoseconds since the run's origin.
#[derive(Debug)]
enum Times {
    Poisson(Poisson),
    Constant(Constant),
}

/// An open loop: what is due, what waits, and which connections have room.
pub(super) struct Arrivals {
    times: Times,
    next_ns: u64,
    waiting_max: usize,
    pub(super) waiting: VecDeque<Pending>,
    /// Connections with room, the longest idle first.
    pub(super) open: VecDeque<usize>,
}

/// A closed loop whose connections think between requests.
#[derive(Debug)]
pub(super) struct Thinkers {
    clients: ClosedLoop,
    /// When each slot of each connection has thought, the earliest first.
    due: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Arrivals {
    /// A thread's share of an open loop; `None` in closed loop.
    pub(super) fn new(plan: &Plan, thread: usize) -> Option<Self> {
        let Pace::Open { rate, is_constant } = &plan.pace else {
            return None;
        };
        let times = if *is_constant {
            let parts = plan.threads as u32;
            Times::Constant(Constant::spread(rate.clone(), thread as u32, parts))
        } else {
            Times::Poisson(Poisson::new(
                rate.scaled(1.0 / plan.threads as f64),
                seed(plan, thread),
            ))
        };
        let mut arrivals = Self {
            times,
            next_ns: 0,
            waiting_max: WAITING_MAX,
            waiting: VecDeque::with_capacity(1024),
            open: (0..plan.connections_of(thread)).collect(),
        };
        arrivals.advance();
        Some(arrivals)
    }

    /// When the next request is due.
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Has all that is due by `due_ns` wait, as what `draw` makes of its time. Returns how many
    /// waited before.
    pub(super) fn draw(
        &mut self,
        due_ns: u64,
        mut draw: impl FnMut(u64) -> Pending,
    ) -> Result<usize, LoadError> {
        let before = self.waiting.len();
        while self.next_ns <= due_ns {
            // A rate beyond all machines has more than that due at once.
            if self.waiting.len() >= self.waiting_max {
                return Err(LoadError::Overload(
                    "the offered load is far beyond what the server takes".into(),
                ));
            }
            self.waiting.push_back(draw(self.next_ns));
            self.advance();
        }
        Ok(before)
    }

    /// A request that waits, and a connection with room for it.
    pub(super) fn next_to_send(&mut self) -> Option<(Pending, usize)> {
        if self.waiting.is_empty() || self.open.is_empty() {
            return None;
        }
        Some((self.waiting.pop_front()?, self.open.pop_front()?))
    }

    fn advance(&mut self) {
        let next = match &mut self.times {
            Times::Poisson(times) => times.next(),
            Times::Constant(times) => times.next(),
        };
        self.next_ns = next.unwrap_or(u64::MAX);
    }
}

impl Thinkers {
    /// A thread's share of a closed loop that thinks; `None` otherwise. Every slot thinks first.
    pub(super) fn new(plan: &Plan, thread: usize) -> Option<Self> {
        let think_ns = match plan.pace {
            Pace::Closed { think_ns: 0 } | Pace::Open { .. } => return None,
            Pace::Closed { think_ns } => think_ns,
        };
        let mut thinkers = Self {
            clients: ClosedLoop::new(think_ns, seed(plan, thread)),
            due: BinaryHeap::new(),
        };
        for connection in 0..plan.connections_of(thread) {
            for _ in 0..plan.pipeline {
                thinkers.think(connection, 0);
            }
        }
        Some(thinkers)
    }

    /// A slot of a connection was answered.
    pub(super) fn think(&mut self, connection: usize, now_ns: u64) {
        let due_ns = self.clients.after(now_ns);
        self.due.push(Reverse((due_ns, connection)));
    }

    /// When the first slot has thought.
    pub(super) fn next_ns(&self) -> u64 {
        self.due
            .peek()
            .map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)
    }

    /// A connection that is due now, and since when.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        if self.next_ns() > now_ns {
            return None;
        }
        self.due.pop().map(|Reverse(due)| due)
    }
}

/// Arrivals are drawn apart from keys.
fn seed(plan: &Plan, thread: usize) -> u64 {
    const ARRIVALS: u64 = 0x6172_7269_7665;
    curtail_workload::mix(plan.seed ^ curtail_workload::mix(ARRIVALS + thread as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        request_source::{Load, Request},
        text_protocol::Protocol,
    };

    /// Goal: a rate beyond all machines ends in an error, not in memory without end. Method: more
    /// requests due at once than a time has digits for.
    #[test]
    fn what_is_due_at_once_has_a_bound() {
        let load = Load::drawn(Protocol::Text, "custom:keys=10".parse().unwrap());
        let mut plan = Plan::new(String::new(), load);
        for is_constant in [true, false] {
            let rate = curtail_workload::Phases::fixed(1e18);
            plan.pace = Pace::Open { rate, is_constant };
            let mut arrivals = Arrivals::new(&plan, 0).unwrap();
            arrivals.waiting_max = 1_000;
            let request = Request::new(curtail_workload::Kind::Get, 0, (4, 4, 0));
            let drawn = arrivals.draw(1_000_000, |ns| Pending::new(request, ns));
            assert!(matches!(drawn, Err(LoadError::Overload(_))));
            assert_eq!(arrivals.waiting.len(), 1_000);
        }
    }
}
