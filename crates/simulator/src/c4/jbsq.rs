//! Join-bounded-shortest-queue, JBSQ(d): a request goes to the shortest of the queues that have
//! fewer than d outstanding requests; if there is none, it waits centrally.
//!
//! As C-4 uses it (Sutherland, Falsafi, Daglis, ASPLOS 2023, section 4; the policy is nanoPU's and
//! NeBuLA's). "Outstanding" counts what is on its way, queued, in service, and answered but not
//! yet reported. The bound keeps work central as long as possible, so it goes to whoever is free
//! first; a bound of 2 hides the way between dispatcher and worker.
//!
//! Workers of one length form a set of bits, so choosing is a few instructions and not a search:
//!
//! ```text
//! length 0: 0110 0000   the lowest set that has a bit, and in it a bit by the tie-break
//! length 1: 1000 0101
//! (2 or more: in no set)
//! ```

use curtail_dispatch::{WORKERS_MAX, Worker};

/// The lengths of all workers' queues, and the choice among them.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Jbsq {
    /// Outstanding requests of each worker.
    lengths: Box<[u32]>,
    /// `levels[n]`: the workers with n outstanding; as many levels as the bound. Empty: no bound.
    levels: Box<[WorkerSet]>,
    tie_break: TieBreak,
    /// Where the next search begins, for ties that rotate.
    turn: u16,
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

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct WorkerSet([u64; WORDS]);

impl Jbsq {
    /// Empty queues of `workers` workers (1 to [`WORKERS_MAX`]), with a bound of `depth` (1 to
    /// [`DEPTH_MAX`]) or none.
    pub(crate) fn new(workers: u16, depth: Option<u16>, tie_break: TieBreak) -> Self {
        assert!((1..=WORKERS_MAX).contains(&usize::from(workers)));
        if let Some(depth) = depth {
            assert!((1..=DEPTH_MAX).contains(&depth));
        }
        let mut all = WorkerSet::default();
        (0..workers).for_each(|worker| all.insert(worker));
        let mut levels = vec![WorkerSet::default(); usize::from(depth.unwrap_or(0))];
        if let Some(idle) = levels.first_mut() {
            *idle = all;
        }
        Self {
            lengths: vec![0; usize::from(workers)].into(),
            levels: levels.into(),
            tie_break,
            turn: 0,
        }
    }

    /// The worker that a balanced request would go to; `None` if all are at the bound. Does not
    /// place it.
    #[inline]
    pub(crate) fn shortest(&self) -> Option<Worker> {
        if self.levels.is_empty() {
            return Some(self.shortest_of_all());
        }
        let start = self.turn;
        let level = self.levels.iter().find(|level| !level.is_empty())?;
        level.first_from(start).map(Worker)
    }

    /// Whether a balanced request could be placed now.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.levels.is_empty() || self.levels.iter().any(|level| !level.is_empty())
    }

    /// One more request is on its way to `worker`, by choice or because it is bound to it: the
    /// bound stops balanced requests only.
    #[inline]
    pub(crate) fn place(&mut self, worker: Worker) {
        let length = self.lengths[worker.index()];
        self.lengths[worker.index()] = length + 1;
        self.shift(worker, length, length + 1);
        if self.tie_break == TieBreak::Rotating {
            self.turn = worker.0 + 1;
        }
    }

    /// `worker` has reported one request as done. Reporting more than were placed is a bug of the
    /// driver and panics.
    #[inline]
    pub(crate) fn complete(&mut self, worker: Worker) {
        let length = self.lengths[worker.index()];
        assert!(length > 0, "a completion without a request");
        self.lengths[worker.index()] = length - 1;
        self.shift(worker, length, length - 1);
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

    #[inline]
    fn shift(&mut self, worker: Worker, from: u32, to: u32) {
        if let Some(level) = self.levels.get_mut(from as usize) {
            level.remove(worker.0);
        }
        if let Some(level) = self.levels.get_mut(to as usize) {
            level.insert(worker.0);
        }
    }

    /// Without a bound every queue is looked at.
    fn shortest_of_all(&self) -> Worker {
        let start = usize::from(self.turn) % self.lengths.len();
        let (low, high) = self.lengths.split_at(start);
        let mut best = (u32::MAX, 0);
        for (index, length) in (start..).zip(high).chain((0..).zip(low)) {
            if *length < best.0 {
                best = (*length, index);
            }
        }
        Worker(best.1 as u16)
    }
}

impl WorkerSet {
    #[inline]
    fn insert(&mut self, worker: u16) {
        self.0[usize::from(worker >> 6) % WORDS] |= 1 << (worker & 63);
    }

    #[inline]
    fn remove(&mut self, worker: u16) {
        self.0[usize::from(worker >> 6) % WORDS] &= !(1 << (worker & 63));
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The first member at or after `start`, else the first of all.
    #[inline]
    fn first_from(&self, start: u16) -> Option<u16> {
        let word = usize::from(start >> 6);
        if let Some(bits) = self.0.get(word) {
            let after = bits & (u64::MAX << (start & 63));
            if after != 0 {
                return Some((word as u16) << 6 | after.trailing_zeros() as u16);
            }
        }
        let later = self.0.iter().enumerate().skip(word + 1);
        let mut all = later.chain(self.0.iter().enumerate());
        let (word, bits) = all.find(|(_, bits)| **bits != 0)?;
        Some((word as u16) << 6 | bits.trailing_zeros() as u16)
    }
}

/// The greatest bound that can be set.
pub const DEPTH_MAX: u16 = 64;
const WORDS: usize = WORKERS_MAX / 64;

const _: () = assert!(WORKERS_MAX.is_multiple_of(64));

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
        for workers in [1, 5, 64, 65, 200, 256] {
            let mut queues = Jbsq::new(workers, Some(1), TieBreak::Rotating);
            let mut seen = vec![0; usize::from(workers)];
            for _ in 0..100 * workers {
                let worker = queues.shortest().unwrap();
                queues.place(worker);
                seen[worker.index()] += 1;
                queues.complete(worker);
            }
            assert!(seen.iter().all(|&n| n == 100), "{seen:?}");
        }
    }

    /// Goal: the sets of bits agree with a plain search. Method: random placements, bound and
    /// unbound, against the minimum of the lengths.
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
                match queues.shortest() {
                    Some(worker) => {
                        assert_eq!(queues.outstanding(worker), least);
                        assert!(least < bound);
                    }
                    None => assert!(least >= bound),
                }
                assert_eq!(queues.has_room(), least < bound);
            }
        }
    }
}
