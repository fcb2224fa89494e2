//! Service times: the queueing model's own, those of C-4's whole system, and measured ones.

use curtail_workload::Random;

use crate::{
    c4::system_costs::FullSystem, combined::CombinedPrices, queueing::outstanding_requests::Request,
};

/// Times in nanoseconds. The event loop is compiled once for each kind, so that the queueing model
/// does not pay for what it leaves out.
pub(crate) trait Times {
    /// What surrounds the store, the same for every request.
    fn around(&self) -> Around;

    /// A core comes to the item of a request; it may have to wait there.
    fn come(&mut self, _: &Request) {}

    /// It is done with the item.
    fn leave(&mut self, _: &Request) {}

    /// A read of an item by `core`, which came to it, in the store; and what the core owes for
    /// steps before.
    fn read_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64;

    /// A write.
    fn write_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64;

    /// The write that stands for a window.
    fn apply_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64 {
        self.write_ns(core, request, owed_ns)
    }

    /// A part of a large value, of so many bytes.
    fn part_ns(&self, _: &Request, _: u32) -> u64 {
        0
    }

    /// Network packets of a request: of what comes in for a write, of what goes out for a read.
    fn packets(&self, _: &Request) -> u64 {
        1
    }
}

/// What surrounds the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around {
    /// Of a request outside the store: network stack, decoding, answering.
    pub(crate) fixed_ns: u64,
    /// Putting a write aside, in place of carrying it out.
    pub(crate) put_aside_ns: u64,
    /// Answering a write that was put aside.
    pub(crate) answer_ns: u64,
    pub(crate) publish: Publish,
    pub(crate) steps: Steps,
}

impl Around {
    /// The store's times are all there is of a request.
    pub(crate) fn nothing() -> Self {
        Self {
            fixed_ns: 0,
            put_aside_ns: 0,
            answer_ns: 0,
            publish: Publish::AtEnd { ns: 0 },
            steps: Steps::default(),
        }
    }
}

/// When the version of a bucket is odd that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Publish {
    /// As long as the write, so much later.
    Later { ns: u64 },
    /// For so long at its end.
    AtEnd { ns: u64 },
}

/// What the steps between queues cost a core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steps {
    /// Finding out how large an item is, before a request for it is handed on.
    pub lookup_ns: f64,
    /// Putting a request into another core's ring or into the shared queue.
    pub give_ns: f64,
    /// Taking a request from a ring or from the shared queue.
    pub take_ns: f64,
    /// Moving a request from the own receive queue into the own software queue.
    pub move_ns: f64,
    /// Taking from another core's queue.
    pub steal_ns: f64,
    /// A write that goes to the core that holds its partition, as shipped: both cores' parts.
    pub delegate_ns: f64,
}

/// The queueing model's: uniform, whatever the request.
pub(crate) struct Uniform {
    services: Vec<Random>,
    pub(crate) shortest_ns: u64,
    pub(crate) longest_ns: u64,
    around: Around,
}

/// A whole system's: uniform between two thirds and four thirds of a mean that depends on the
/// request, and what the item's cache lines add.
pub(crate) struct Whole {
    system: FullSystem,
    services: Vec<Random>,
    /// Of the most popular items; of others nobody has a copy, and their journey is in the mean.
    lines: Lines,
    around: Around,
}

/// By size, and what the bucket's cache lines add.
pub(crate) struct Priced {
    pub(crate) prices: CombinedPrices,
    /// `None` where lines are not followed.
    pub(crate) lines: Option<Lines>,
}

/// Where the lines of items are that matter: of the most popular ones, or of those used lately.
pub(crate) struct Lines {
    lines: Vec<Line>,
    by_rank: bool,
}

/// Where an item's lines are.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Which item's.
    item: u64,
    /// The cores that have them as they were last written.
    holders: [u64; 4],
    /// Cores that read or write the item now, or wait to.
    present: u64,
}

impl Uniform {
    /// Between `shortest_ns` and `longest_ns`.
    pub(crate) fn new(
        services: Vec<Random>,
        (shortest_ns, longest_ns): (u64, u64),
        around: Around,
    ) -> Self {
        Self {
            services,
            shortest_ns,
            longest_ns,
            around,
        }
    }

    #[inline]
    fn ns(&mut self, core: usize, owed_ns: f64) -> u64 {
        let choices = self.longest_ns - self.shortest_ns + 1;
        self.shortest_ns + self.services[core].below(choices) + owed_ns as u64
    }
}

impl Around {
    /// From when to when the version of a bucket is odd that is written at `now` until `ends`.
    #[inline]
    pub(crate) fn odd(&self, now: u64, ends: u64) -> (u64, u64) {
        match self.publish {
            Publish::Later { ns } => (now + ns, ends + ns),
            Publish::AtEnd { ns } => (ends - ns.min(ends - now), ends),
        }
    }
}

impl Times for Uniform {
    fn around(&self) -> Around {
        self.around
    }

    #[inline]
    fn read_ns(&mut self, core: usize, _: &Request, owed_ns: f64) -> u64 {
        self.ns(core, owed_ns)
    }

    #[inline]
    fn write_ns(&mut self, core: usize, _: &Request, owed_ns: f64) -> u64 {
        self.ns(core, owed_ns)
    }
}

impl Whole {
    /// `scans`: whether every write looks for others to its key in the queue.
    pub(crate) fn new(
        services: Vec<Random>,
        system: FullSystem,
        scans: bool,
        around: Around,
    ) -> Self {
        Self {
            services,
            lines: Lines::by_rank(),
            system: FullSystem {
                scan_ns: if scans { system.scan_ns } else { 0 },
                ..system
            },
            around,
        }
    }

    #[inline]
    fn ns(&mut self, mean: u64, core: usize, request: &Request) -> u64 {
        let cold = u64::from(request.key >= self.system.warm_items);
        let mean = mean + cold * self.system.cold_ns;
        mean * 2 / 3 + self.services[core].below(mean * 2 / 3 + 1)
    }
}

impl Times for Whole {
    fn around(&self) -> Around {
        self.around
    }

    #[inline]
    fn come(&mut self, request: &Request) {
        if let Some(line) = self.lines.get(request, 0) {
            line.present += 1;
        }
    }

    #[inline]
    fn leave(&mut self, request: &Request) {
        if let Some(line) = self.lines.get(request, 0) {
            line.present -= 1;
        }
    }

    #[inline]
    fn read_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64 {
        let ns = self.ns(self.system.read_ns, core, request);
        let line = self.lines.get(request, core);
        let travels = line.is_some_and(|line| line.read(core));
        ns + u64::from(travels) * self.system.line_read_ns + owed_ns as u64
    }

    #[inline]
    fn write_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64 {
        let ns = self.ns(self.system.write_ns + self.system.scan_ns, core, request);
        let line = self.lines.get(request, core);
        let journeys = line.map_or(0, |line| line.write(core));
        ns + journeys * self.system.line_write_ns + owed_ns as u64
    }

    #[inline]
    fn apply_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64 {
        self.write_ns(core, request, owed_ns) + self.system.apply_ns
    }
}

impl Priced {
    /// What is left of the whole for the store.
    #[inline]
    fn ns(&self, request: &Request, more_ns: f64) -> u64 {
        let serve = &self.prices.serve;
        let whole = serve.serve_ns(request.write, request.value_bytes) + more_ns;
        (whole as u64).saturating_sub(serve.request_ns as u64)
    }

    /// The line of a request's item, where lines are followed.
    #[inline]
    fn line(&mut self, core: usize, request: &Request) -> Option<&mut Line> {
        self.lines.as_mut()?.get(request, core)
    }
}

impl Times for Priced {
    fn around(&self) -> Around {
        let prices = &self.prices;
        Around {
            fixed_ns: prices.serve.request_ns as u64,
            put_aside_ns: prices.put_aside_ns as u64,
            answer_ns: prices.answer_ns as u64,
            publish: Publish::AtEnd {
                ns: prices.publish_ns as u64,
            },
            steps: prices.serve.steps,
        }
    }

    #[inline]
    fn read_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64 {
        let line = self.line(core, request);
        let travels = line.is_some_and(|line| line.read(core));
        let line_ns = f64::from(u8::from(travels)) * self.prices.read_line_ns;
        self.ns(request, line_ns + owed_ns)
    }

    #[inline]
    fn write_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64 {
        let line = self.line(core, request);
        let travels = line.is_some_and(|line| line.write(core) > 0);
        let line_ns = f64::from(u8::from(travels)) * self.prices.write_line_ns;
        self.ns(request, line_ns + owed_ns)
    }

    fn packets(&self, request: &Request) -> u64 {
        u64::from(self.prices.serve.packets(request.value_bytes))
    }
}

impl Lines {
    /// Of the most popular items; of others nobody has a copy, and their journey is in the mean.
    fn by_rank() -> Self {
        let line = |item| Line {
            item,
            ..Line::default()
        };
        Self {
            lines: (0..RANKS as u64).map(line).collect(),
            by_rank: true,
        }
    }

    /// Of items used lately: an item pushes out the one that had its place. What is pushed out is
    /// in memory, where it costs what an uncontended access does.
    pub(crate) fn used_lately() -> Self {
        let line = Line {
            item: u64::MAX,
            ..Line::default()
        };
        Self {
            lines: vec![line; USED_LATELY],
            by_rank: false,
        }
    }

    /// The line of a request's item, which `core` asks for.
    #[inline]
    fn get(&mut self, request: &Request, core: usize) -> Option<&mut Line> {
        if self.by_rank {
            return self.lines.get_mut(request.key as usize);
        }
        let item = u64::from(request.partition);
        let spread = request.partition.wrapping_mul(0x9e37_79b9);
        let place = (spread >> (32 - USED_LATELY.ilog2())) as usize;
        let line = self.lines.get_mut(place)?;
        if line.item != item {
            let mut holders = [0; 4];
            holders[core / 64] = 1 << (core % 64);
            *line = Line {
                item,
                holders,
                present: 0,
            };
        }
        Some(line)
    }
}

impl Line {
    /// Whether they must travel to a core that reads.
    #[inline]
    fn read(&mut self, core: usize) -> bool {
        let (word, bit) = (core / 64, 1 << (core % 64));
        let has = self.holders[word] & bit != 0;
        self.holders[word] |= bit;
        !has
    }

    /// How many other cores at the item a writer takes them from, or disputes them with.
    #[inline]
    fn write(&mut self, core: usize) -> u64 {
        let mut alone = [0; 4];
        alone[core / 64] = 1 << (core % 64);
        let had = std::mem::replace(&mut self.holders, alone);
        let shared = u64::from(had != alone);
        self.present.saturating_sub(1).max(shared)
    }
}

/// Each core's stream of service times; all the same, as in the authors' simulator, if `same`. It
/// lets cores fall into step, which lengthens the tail of short runs.
pub(crate) fn services(cores: u16, seed: u64, same: bool) -> Vec<Random> {
    let own = |core: u64| if same { 0 } else { core };
    let all = 0..u64::from(cores);
    all.map(|core| Random::of_stream(seed, SERVICES + own(core)))
        .collect()
}

/// The first core's stream of service times; others follow.
const SERVICES: u64 = 16;
/// Items whose lines are followed by rank: under Zipf's law the next one has less than a thousandth
/// of the most popular one's requests.
const RANKS: usize = 4096;
const USED_LATELY: usize = 1 << 14;

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
