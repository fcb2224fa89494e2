//! Models the server on few cores: workers with connections of their own, small requests, and a few
//! large ones.
//!
//! ```text
//! small --> a worker, at random --> its line ---------------------------> core
//! large --> a worker, at random --> the same line          (early)          ^
//!                               --> a part after each turn (together)       |
//!                               --> its command, handed on (apart) --> whenever the core's
//!                                                                     own line is empty
//! ```
//!
//! A part is what one call moves. A core that has begun one finishes it; that is all that a small
//! request can wait for where sizes are apart.

use curtail_workload::{Large, Mix, Phases, Popularity, SizeClass, Sizes, Workload};

pub(crate) use crate::queueing::dispatchers::Serving;
use crate::{
    costs::FullCosts,
    minos,
    queueing::{
        Bound, Outcome, Point,
        arrivals::Arrivals,
        dispatchers::Deciders,
        outstanding_requests::Request,
        times::{Around, Times},
    },
};

/// One point of the model.
#[derive(Clone, Debug)]
pub(crate) struct FewCores {
    pub(crate) serving: Serving,
    pub(crate) cores: u16,
    pub(crate) costs: FullCosts,
    /// Requests that share a receive and a send.
    pub(crate) batch: u32,
    /// Small requests a second.
    pub(crate) rate: f64,
    /// Their values, uniformly between these.
    pub(crate) small_bytes: (u32, u32),
    /// Large requests a second, 95 % of them reads; 0: none.
    pub(crate) large_rate: f64,
    pub(crate) large_bytes: u32,
    /// Small requests in all; the first sixth is not measured.
    pub(crate) requests: u64,
    pub(crate) seed: u64,
}

const READS: f64 = 0.95;
/// Requests under way beyond which a run ends: its queues grow without end.
const UNDER_WAY_MAX: usize = 100_000;

impl FewCores {
    /// Small requests a second that all cores can serve.
    pub(crate) fn peak(&self) -> f64 {
        let (least, most) = self.small_bytes;
        let mean = |write| {
            let steps = (0..=16).map(|step| least + (most - least) * step / 16);
            steps.map(|bytes| self.small_ns(write, bytes)).sum::<f64>() / 17.0
        };
        let ns = READS * mean(false) + (1.0 - READS) * mean(true);
        f64::from(self.cores) * 1e9 / ns
    }

    pub(crate) fn run(&self) -> Outcome {
        let requests = self.requests as f64 * (1.0 + self.large_rate / self.rate);
        let requests = requests as u64;
        let rate = self.rate + self.large_rate;
        let arrivals = Arrivals::of_workload(&self.workload(), rate, requests, self.seed);
        let arrivals = arrivals.measured(requests / 6..requests);
        let deciders = Deciders::InParts {
            serving: self.serving,
            moved: vec![false; usize::from(self.cores)],
        };
        let point = Point {
            bound: Bound::under_way(UNDER_WAY_MAX),
            ..Point::new(self.cores, arrivals, deciders, self, self.seed)
        };
        point.run()
    }

    fn workload(&self) -> Workload {
        let (least, most) = self.small_bytes;
        let sizes = |class| Sizes::new(vec![(class, 1.0)]);
        let small = sizes(SizeClass::Uniform(least, most));
        let large = sizes(SizeClass::Constant(self.large_bytes));
        let mut workload = minos::etc();
        if let (Ok(small), Ok(large), Some(mix)) = (small, large, Mix::get_share(READS)) {
            let percent = 100.0 * self.large_rate / (self.rate + self.large_rate);
            workload.sizes = small;
            workload.large = Some(Large {
                keys: 10_000,
                percent: Phases::fixed(percent),
                sizes: large,
            });
            workload.mix = mix;
        }
        workload.popularity = Popularity::Uniform;
        workload
    }

    fn small_ns(&self, write: bool, bytes: u32) -> f64 {
        self.costs.around_ns(self.batch, u64::from(bytes)) + self.store_ns(write, bytes)
    }

    fn store_ns(&self, write: bool, bytes: u32) -> f64 {
        match write {
            true => self.costs.set.ns(u64::from(bytes)),
            false => self.costs.get.ns(u64::from(bytes)),
        }
    }

    /// A large request's command: received, looked up, and handed on if sizes are apart.
    fn command_ns(&self) -> f64 {
        let hand_off = match self.serving {
            Serving::Apart => self.costs.hand_off.ns,
            Serving::Early | Serving::Together => 0.0,
        };
        let received = self.costs.network.call_ns + self.costs.request.ns(self.batch);
        received + self.costs.get.ns(0) + hand_off
    }

    fn large_part_ns(&self, write: bool, bytes: u32) -> f64 {
        let share = f64::from(bytes) / f64::from(self.large_bytes);
        let frames = self.costs.network.frames(u64::from(bytes)) as f64;
        self.costs.network.call_ns
            + frames * self.costs.network.frame_ns
            + share * self.store_ns(write, self.large_bytes)
    }
}

/// All of a request, in one number.
impl Times for &FewCores {
    fn around(&self) -> Around {
        Around::nothing()
    }

    fn read_ns(&mut self, _: usize, request: &Request, _: f64) -> u64 {
        let ns = match (request.large, self.serving) {
            (false, _) => self.small_ns(request.write, request.value_bytes),
            (true, Serving::Early) => {
                self.command_ns() + self.large_part_ns(request.write, request.value_bytes)
            }
            (true, _) => self.command_ns(),
        };
        (ns.round() as u64).max(1)
    }

    fn write_ns(&mut self, core: usize, request: &Request, owed_ns: f64) -> u64 {
        self.read_ns(core, request, owed_ns)
    }

    fn part_ns(&self, request: &Request, bytes: u32) -> u64 {
        self.large_part_ns(request.write, bytes).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(serving: Serving) -> FewCores {
        let mut model = FewCores {
            serving,
            cores: 2,
            costs: FullCosts::measured().clone(),
            batch: 1,
            rate: 0.0,
            small_bytes: (14, 1400),
            large_rate: 0.0,
            large_bytes: 500_000,
            requests: 200_000,
            seed: 5,
        };
        model.rate = model.peak() * 0.5;
        model.large_rate = model.rate * 0.005;
        model
    }

    /// Goal: nobody is lost, and no core is idle while it has work. Method: a load of one half
    /// leaves every way stable, and all small requests are answered but for the last ones.
    #[test]
    fn every_way_carries_half_the_load() {
        for serving in [Serving::Early, Serving::Together, Serving::Apart] {
            let outcome = model(serving).run();
            assert!(!outcome.saturated, "{serving:?}");
            let measured = outcome.small.total();
            assert!((166_400..=166_900).contains(&measured), "{measured}");
            assert!(outcome.large.total() > 700, "{serving:?}");
        }
    }

    /// Goal: apart, a small request waits for one part at most that the core had begun; together,
    /// for more, and whole values in line are the worst. Method: bytes moved ahead of each.
    #[test]
    fn apart_no_more_than_one_part_is_ahead() {
        let worst = |serving| model(serving).run().bytes_ahead.largest();
        assert!(worst(Serving::Apart) <= 64 << 10);
        assert!(worst(Serving::Together) > 64 << 10);
        assert!(worst(Serving::Early) >= 500_000);
    }

    /// Goal: without large requests the ways are one. Method: the same arrivals.
    #[test]
    fn alone_all_ways_are_one() {
        let alone = |serving| {
            let mut model = model(serving);
            model.large_rate = 0.0;
            model.run().small
        };
        assert_eq!(alone(Serving::Early), alone(Serving::Apart));
        assert_eq!(alone(Serving::Together), alone(Serving::Apart));
    }
}
