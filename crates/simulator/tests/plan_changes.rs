//! Whether cores survive a storm of plans: roles change every few steps, and nothing is lost, run
//! twice, or left behind; a large request never starts on a core that holds small ones.

use std::collections::VecDeque;

use curtail_dispatch::{
    Worker,
    pull_baselines::Source,
    size_aware::{
        ControlConfig, ControlInput, Route, SizeClasses, SizeControl, SizeHistogram, SizePlan,
    },
};
use curtail_simulator::{SizeCore, Stealing};
use curtail_types::Instant;
use curtail_workload::Random;

const CORES: u16 = 6;
const SMALL_BYTES: u32 = 100;
const LARGE_BYTES: u32 = 300_000;

#[derive(Clone, Copy)]
struct Asked {
    id: usize,
    large: bool,
}

struct Storm {
    control: SizeControl,
    cores: Vec<SizeCore>,
    rx: Vec<VecDeque<Asked>>,
    rings: Vec<VecDeque<Asked>>,
    taken: Vec<VecDeque<Asked>>,
    /// Steps left of the large request that a core serves.
    serving: Vec<u32>,
    served: Vec<u32>,
    random: Random,
    plans: u64,
}

impl Storm {
    fn new(stealing: Stealing, batch: u16, seed: u64) -> Self {
        let config = ControlConfig {
            samples_min: 1,
            epoch_ns: 20,
            extra_large: seed.is_multiple_of(2),
            ..ControlConfig::new(CORES)
        };
        let queues = || vec![VecDeque::new(); usize::from(CORES)];
        Self {
            control: SizeControl::new(config, Instant::default()),
            cores: (0..CORES)
                .map(|me| SizeCore::new(Worker(me), batch, stealing))
                .collect(),
            rx: queues(),
            rings: queues(),
            taken: queues(),
            serving: vec![0; usize::from(CORES)],
            served: Vec::new(),
            random: Random::new(seed),
            plans: 0,
        }
    }

    fn random(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn run(&mut self, requests: usize) {
        let mut now = 0;
        while self.served.len() < requests || self.served.contains(&0) {
            now += 1;
            assert!(now < 500_000, "requests were left behind");
            if self.served.len() < requests && self.random(2) == 0 {
                let core = self.random(u64::from(CORES)) as usize;
                let asked = Asked {
                    id: self.served.len(),
                    large: self.random(20) == 0,
                };
                self.rx[core].push_back(asked);
                self.served.push(0);
            }
            let core = self.random(u64::from(CORES)) as usize;
            self.turn(core);
            if now % 20 == 0 {
                self.change_plan(now);
            }
        }
    }

    /// Costs are drawn anew, so the number of small cores jumps.
    fn change_plan(&mut self, now: u64) {
        let mut mix = SizeHistogram::new(SizeClasses::LogLinear);
        let (large_cost, busy) = (self.random(1_000) as u32, self.random(6_000) as u32);
        (0..99).for_each(|_| mix.record(SMALL_BYTES, 1));
        mix.record(LARGE_BYTES, large_cost);
        let inputs = [
            ControlInput::Measured(&mix),
            ControlInput::SmallBusy { millicores: busy },
            ControlInput::Tick,
        ];
        let plans = &mut self.plans;
        for input in inputs {
            self.control
                .step(Instant { ns: now }, input, |_| *plans += 1);
        }
    }

    fn turn(&mut self, core: usize) {
        if self.serving[core] > 0 {
            self.serving[core] -= 1;
            return;
        }
        let plan = self.control.plan().clone();
        if let Some(asked) = self.taken[core].pop_front() {
            return self.handle(core, asked, &plan);
        }
        let (rx, rings, serving) = (&self.rx, &self.rings, &self.serving);
        let depth = |source| match source {
            Source::Rx(core) => rx[core.index()].len(),
            Source::Ring(core) => {
                rings[core.index()].len() + usize::from(serving[core.index()] > 0)
            }
            Source::Software(_) | Source::Shared => 0,
        };
        let Some(take) = self.cores[core].next(&plan, depth) else {
            return;
        };
        match take.from {
            Source::Ring(ring) => {
                assert_eq!(ring.index(), core, "another core's ring");
                assert!(
                    self.taken[core].is_empty(),
                    "small requests behind a large one"
                );
                if let Some(asked) = self.rings[core].pop_front() {
                    self.serve(core, asked, 15);
                }
            }
            Source::Rx(queue) => {
                let queue = &mut self.rx[queue.index()];
                let count = queue.len().min(usize::from(take.max));
                self.taken[core].extend(queue.drain(..count));
            }
            Source::Software(_) | Source::Shared => panic!("no such queue here"),
        }
    }

    fn handle(&mut self, core: usize, asked: Asked, plan: &SizePlan) {
        let bytes = if asked.large {
            LARGE_BYTES
        } else {
            SMALL_BYTES
        };
        let hash = (asked.id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match plan.route(bytes, hash) {
            Route::Here => self.serve(core, asked, 0),
            Route::Ring(worker) => self.rings[worker.index()].push_back(asked),
        }
    }

    fn serve(&mut self, core: usize, asked: Asked, steps: u32) {
        self.served[asked.id] += 1;
        self.serving[core] = steps;
    }
}

#[test]
fn a_storm_of_plans_loses_nothing() {
    for stealing in [Stealing::Off, Stealing::SmallCores, Stealing::NaiveStandby] {
        for batch in [1, 4, 32] {
            for seed in 1..3 {
                let mut storm = Storm::new(stealing, batch, seed);
                storm.run(1_000);
                assert!(storm.plans > 50, "plans did change");
                assert!(storm.served.iter().all(|times| *times == 1));
                assert!(storm.rings.iter().all(VecDeque::is_empty));
            }
        }
    }
}
