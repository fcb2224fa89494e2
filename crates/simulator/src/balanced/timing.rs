//! How long a worker is in the store: the queueing model's uniform times, or those of a whole
//! system, where it matters which item it is and who touched it last.

use curtail_dispatch::Policy;
use curtail_workload::Random;

use crate::{balanced::Balanced, full::FullSystem};

/// Service times. The event loop is compiled once for each, so that the queueing model does not
/// pay for what it leaves out.
pub(super) trait Timing {
    /// Whether each worker's own work is counted.
    const COUNTS: bool;

    /// A worker comes to the item of `rank`; it may have to wait there.
    fn come(&mut self, rank: u32);

    /// It is done with the item.
    fn leave(&mut self, rank: u32);

    /// A read of an item by `worker`, which came to it.
    fn read_ns(&mut self, worker: usize, rank: u32) -> u64;

    /// A write.
    fn write_ns(&mut self, worker: usize, rank: u32) -> u64;

    /// The write that stands for a window.
    fn apply_ns(&mut self, worker: usize, rank: u32) -> u64 {
        self.write_ns(worker, rank)
    }
}

/// The queueing model's: uniform, whatever the request.
pub(super) struct Uniform {
    services: Vec<Random>,
    shortest: u64,
    /// How many times there are.
    choices: u64,
}

/// A whole system's: uniform between two thirds and four thirds of a mean that depends on the
/// request, and what the item's cache lines add.
pub(super) struct Whole {
    system: FullSystem,
    services: Vec<Random>,
    /// Of the most popular items; of others nobody has a copy, and their journey is in the mean.
    lines: Vec<Line>,
}

/// Where an item's lines are.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// The workers that have them as they were last written.
    holders: [u64; 4],
    /// Workers that read or write the item now, or wait to.
    present: u64,
}

impl Uniform {
    pub(super) fn new(model: &Balanced) -> Self {
        Self {
            services: streams(model),
            shortest: model.costs.service_min,
            choices: model.costs.service_max - model.costs.service_min + 1,
        }
    }

    #[inline]
    fn ns(&mut self, worker: usize) -> u64 {
        self.shortest + self.services[worker].below(self.choices)
    }
}

impl Timing for Uniform {
    const COUNTS: bool = false;

    #[inline]
    fn come(&mut self, _: u32) {}

    #[inline]
    fn leave(&mut self, _: u32) {}

    #[inline]
    fn read_ns(&mut self, worker: usize, _: u32) -> u64 {
        self.ns(worker)
    }

    #[inline]
    fn write_ns(&mut self, worker: usize, _: u32) -> u64 {
        self.ns(worker)
    }
}

impl Whole {
    pub(super) fn new(model: &Balanced, system: FullSystem) -> Self {
        Self {
            services: streams(model),
            lines: vec![Line::default(); LINES],
            // The table of exclusive writers knows whether another write of a partition is under
            // way, so that under d-CREW only those few look for it in their queue.
            system: match (model.compaction, model.policy) {
                (Some(_), Policy::Crew) => system,
                _ => FullSystem {
                    scan_ns: 0,
                    ..system
                },
            },
        }
    }

    #[inline]
    fn ns(&mut self, mean: u64, worker: usize, rank: u32) -> u64 {
        let cold = u64::from(u64::from(rank) >= self.system.warm_items);
        let mean = mean + cold * self.system.cold_ns;
        mean * 2 / 3 + self.services[worker].below(mean * 2 / 3 + 1)
    }
}

impl Timing for Whole {
    const COUNTS: bool = true;

    #[inline]
    fn come(&mut self, rank: u32) {
        if let Some(line) = self.lines.get_mut(rank as usize) {
            line.present += 1;
        }
    }

    #[inline]
    fn leave(&mut self, rank: u32) {
        if let Some(line) = self.lines.get_mut(rank as usize) {
            line.present -= 1;
        }
    }

    #[inline]
    fn read_ns(&mut self, worker: usize, rank: u32) -> u64 {
        let ns = self.ns(self.system.read_ns, worker, rank);
        let line = self.lines.get_mut(rank as usize);
        let travels = line.is_some_and(|line| line.read(worker));
        ns + u64::from(travels) * self.system.line_read_ns
    }

    #[inline]
    fn write_ns(&mut self, worker: usize, rank: u32) -> u64 {
        let ns = self.ns(self.system.write_ns + self.system.scan_ns, worker, rank);
        let line = self.lines.get_mut(rank as usize);
        ns + line.map_or(0, |line| line.write(worker)) * self.system.line_write_ns
    }

    #[inline]
    fn apply_ns(&mut self, worker: usize, rank: u32) -> u64 {
        self.write_ns(worker, rank) + self.system.apply_ns
    }
}

impl Line {
    /// Whether they must travel to a worker that reads.
    #[inline]
    fn read(&mut self, worker: usize) -> bool {
        let (word, bit) = (worker / 64, 1 << (worker % 64));
        let has = self.holders[word] & bit != 0;
        self.holders[word] |= bit;
        !has
    }

    /// How many other workers at the item a writer takes them from, or disputes them with.
    #[inline]
    fn write(&mut self, worker: usize) -> u64 {
        let mut alone = [0; 4];
        alone[worker / 64] = 1 << (worker % 64);
        let had = std::mem::replace(&mut self.holders, alone);
        let shared = u64::from(had != alone);
        self.present.saturating_sub(1).max(shared)
    }
}

/// Each worker's stream of service times.
fn streams(model: &Balanced) -> Vec<Random> {
    (0..u64::from(model.workers))
        .map(|worker| match model.same_services {
            true => Random::of_stream(model.seed, SERVICES),
            false => Random::of_stream(model.seed, SERVICES + worker),
        })
        .collect()
}

/// The first worker's stream of service times; others follow.
const SERVICES: u64 = 16;
/// Items whose lines are followed: under Zipf's law the next one has less than a thousandth of the
/// most popular one's requests.
const LINES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: lines travel when they must. Method: a story.
    #[test]
    fn lines_travel_when_they_must() {
        let mut line = Line {
            present: 1,
            ..Line::default()
        };
        assert_eq!(line.write(3), 1, "they come from somewhere");
        assert_eq!(line.write(3), 0, "it has them already");
        assert!([0, 70, 255].iter().all(|worker| line.read(*worker)));
        assert!(!line.read(70), "a copy is enough");
        assert!(!line.read(3), "the writer keeps its own");
        assert_eq!(line.write(3), 1, "the copies are taken back together");
        assert!(line.read(70), "its copy is gone");
        line.present = 5;
        assert_eq!(line.write(3), 4, "four others want them meanwhile");
    }
}
