//! Join-bounded-shortest-queue, JBSQ(d): a request goes to the shortest of the queues that have
//! fewer than d outstanding requests; if there is none, it waits centrally.
//!
//! As C-4 uses it (Sutherland, Falsafi, Daglis, ASPLOS 2023, section 4; the policy is nanoPU's and
//! NeBuLA's). "Outstanding" counts what is on its way, queued, in service, and answered but not
//! yet reported. The bound keeps work central as long as possible, so it goes to the core that is
//! free first; a bound of 2 hides the way between dispatcher and worker.

use curtail_dispatch::{WORKERS_MAX, Worker};

/// The lengths of all workers' queues, and the choice among them.
#[derive(Clone, Debug)]
pub(crate) struct Jbsq {
    /// Outstanding requests of each worker.
    lengths: Vec<u32>,
    /// A worker with as many takes no balanced request.
    bound: u32,
    tie_break: TieBreak,
    /// Where the next search begins, for ties that rotate.
    turn: usize,
    /// Workers below the bound.
    open: usize,
}

/// Which of several equally short queues is taken.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum TieBreak {
    /// The lowest worker, as the authors' simulator has it; it loads low workers first.
    Lowest,
    /// The next one after the worker that was chosen last.
    #[default]
    Rotating,
}

impl Jbsq {
    /// Empty queues of `workers` workers (1 to [`WORKERS_MAX`]), with a bound of `depth` (1 to
    /// [`DEPTH_MAX`]) or none.
    pub(crate) fn new(workers: u16, depth: Option<u16>, tie_break: TieBreak) -> Self {
        assert!((1..=WORKERS_MAX).contains(&usize::from(workers)));
        assert!(depth.is_none_or(|depth| (1..=DEPTH_MAX).contains(&depth)));
        Self {
            lengths: vec![0; usize::from(workers)],
            bound: depth.map_or(u32::MAX, u32::from),
            tie_break,
            turn: 0,
            open: usize::from(workers),
        }
    }

    /// The worker that a balanced request would go to; `None` if all are at the bound. Does not
    /// place it.
    #[inline]
    pub(crate) fn shortest(&self) -> Option<Worker> {
        if !self.has_room() {
            return None;
        }
        let (low, high) = self.lengths.split_at(self.turn % self.lengths.len());
        let mut best = (u32::MAX, 0);
        for (index, length) in (low.len()..).zip(high).chain((0..).zip(low)) {
            if *length < best.0 {
                best = (*length, index);
                if *length == 0 {
                    break;
                }
            }
        }
        Some(Worker(best.1 as u16))
    }

    /// Whether a balanced request could be placed now.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.open > 0
    }

    /// One more request is on its way to `worker`, by choice or because it is bound to it: the
    /// bound stops balanced requests only.
    #[inline]
    pub(crate) fn place(&mut self, worker: Worker) {
        let length = &mut self.lengths[worker.index()];
        *length += 1;
        self.open -= usize::from(*length == self.bound);
        if self.tie_break == TieBreak::Rotating {
            self.turn = worker.index() + 1;
        }
    }

    /// `worker` has reported one request as done. Reporting more than were placed is a bug of the
    /// driver and panics.
    #[inline]
    pub(crate) fn complete(&mut self, worker: Worker) {
        let length = &mut self.lengths[worker.index()];
        assert!(*length > 0, "a completion without a request");
        self.open += usize::from(*length == self.bound);
        *length -= 1;
    }

    /// Outstanding requests of `worker`.
    #[cfg(test)]
    pub(crate) fn outstanding(&self, worker: Worker) -> u32 {
        self.lengths[worker.index()]
    }

    /// How many workers there are.
    #[inline]
    pub(crate) fn workers(&self) -> u16 {
        self.lengths.len() as u16
    }
}

/// The greatest bound that can be set.
pub const DEPTH_MAX: u16 = 64;

#[cfg(test)]
mod tests {
    use curtail_workload::Random;

    use super::*;

    #[test]
    fn the_shortest_below_the_bound_is_taken() {
        let mut queues = Jbsq::new(3, Some(2), TieBreak::Lowest);
        let mut placed = Vec::new();
        while let Some(worker) = queues.shortest() {
            queues.place(worker);
            placed.push(worker.0);
        }
        assert_eq!(placed, [0, 1, 2, 0, 1, 2]);
        queues.complete(Worker(1));
        assert_eq!(queues.shortest(), Some(Worker(1)));
        // Bound requests ignore the bound, and count.
        queues.place(Worker(1));
        queues.place(Worker(1));
        queues.complete(Worker(1));
        assert!(!queues.has_room());
        assert_eq!(queues.outstanding(Worker(1)), 2);
    }

    #[test]
    fn ties_rotate_over_all_workers() {
        let mut queues = Jbsq::new(5, Some(1), TieBreak::Rotating);
        for turn in 0..20 {
            let worker = queues.shortest().unwrap();
            assert_eq!(worker.0, turn % 5);
            queues.place(worker);
            queues.complete(worker);
        }
    }

    /// Goal: the choice is a minimum below the bound, and whether there is room is known. Method:
    /// random placements, bound and unbound, against the lengths.
    #[test]
    fn the_choice_is_a_minimum() {
        let mut random = Random::new(7);
        for depth in [Some(1), Some(2), Some(5), None] {
            let mut queues = Jbsq::new(70, depth, TieBreak::Rotating);
            for _ in 0..5_000 {
                let any = Worker(random.below(70) as u16);
                if random.below(2) == 0 && queues.outstanding(any) > 0 {
                    queues.complete(any);
                } else if random.below(2) == 0 {
                    queues.place(any);
                }
                let least = *queues.lengths.iter().min().unwrap();
                let bound = depth.map_or(u32::MAX, u32::from);
                let chosen = queues.shortest().map(|worker| queues.outstanding(worker));
                assert_eq!(chosen, (least < bound).then_some(least));
                assert_eq!(queues.has_room(), least < bound);
            }
        }
    }
}
