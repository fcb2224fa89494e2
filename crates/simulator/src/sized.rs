//! Minos's model: cores with a receive queue each, small and large requests, and who takes which.
//!
//! Didona and Zwaenepoel, "Size-aware Sharding For Improving Tail Latencies in In-memory Key-value
//! Stores", NSDI 2019, section 2.2: 99.875 % of the requests take 1 unit of time, the others K;
//! arrivals are Poisson; dispatch, synchronisation and locality cost nothing. Beside the paper's
//! three ways to bind requests to cores stand the size-aware ones, which run the machines of
//! `curtail-dispatch`: the plan comes from the control loop, fed with the mix of the model.

use std::collections::VecDeque;

use curtail_dispatch::{
    Access, Worker,
    pull::{Binding, Pull, Puller, Source},
    size_aware::{
        ControlConfig, ControlInput, Route, SizeClasses, SizeControl, SizeCore, SizeHistogram,
        SizePlan, Stealing,
    },
};
use curtail_types::Instant;
use curtail_workload::{Chance, Phases, Poisson, Random, mix};

use crate::{
    earliest::{Earliest, NO_TIME},
    histogram::Histogram,
};

/// One point of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Sized {
    /// Who takes which request.
    pub sharding: Sharding,
    /// Cores.
    pub cores: u16,
    /// Time of a large request, in small ones.
    pub large_cost: u32,
    /// Share of large requests, per cent.
    pub large_percent: f64,
    /// Offered work as a share of what all cores can do, large requests included.
    pub load: f64,
    /// Requests that a core takes from its receive queue at once. Batches pay off only where
    /// taking costs something; in this model nothing does.
    pub batch: u16,
    /// Requests in all.
    pub requests: u64,
    /// Of all randomness.
    pub seed: u64,
}

/// How requests come to cores.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Sharding {
    /// One of the baselines.
    Bound(Binding),
    /// Minos.
    SizeAware {
        /// What idle cores take.
        stealing: Stealing,
        /// Whether there is a large core more than the costs ask for (section 6.4).
        extra_large: bool,
    },
}

/// What a run measured: latencies in thousandths of a small request.
#[derive(Clone, Debug)]
pub struct SizedOutcome {
    /// Of all requests.
    pub all: Histogram,
    /// Of small ones.
    pub small: Histogram,
    /// Of large ones.
    pub large: Histogram,
    /// More requests than [`QUEUED_MAX`] waited, and the run ended early.
    pub saturated: bool,
    /// Small cores of the plan; all, for the baselines.
    pub small_cores: u16,
}

impl Sized {
    /// The paper's: 8 cores, 0.125 % of the requests large.
    pub fn new(sharding: Sharding, large_cost: u32, load: f64) -> Self {
        Self {
            sharding,
            cores: 8,
            large_cost,
            large_percent: 0.125,
            load,
            batch: 1,
            requests: 1_000_000,
            seed: 1,
        }
    }

    /// Runs it.
    pub fn run(&self) -> SizedOutcome {
        let mut run = Run::new(self);
        let rate = Phases::fixed(self.rate());
        let mut arrivals = Poisson::new(rate, mix(self.seed));
        let mut left = self.requests;
        let mut arrival = arrivals.next();
        loop {
            let (at, core) = run.busy.first();
            match arrival.filter(|_| left > 0) {
                Some(now) if now < at => {
                    left -= 1;
                    arrival = arrivals.next();
                    run.arrive(now);
                }
                _ if at < NO_TIME => run.finish(at, core),
                _ => break,
            }
            if run.waiting > QUEUED_MAX {
                run.outcome.saturated = true;
                return run.outcome;
            }
        }
        assert_eq!(run.waiting, 0, "requests were left behind");
        run.outcome
    }

    /// Requests a second if a small one takes a microsecond.
    fn rate(&self) -> f64 {
        let large = self.large_percent / 100.0;
        let mean = 1.0 - large + large * f64::from(self.large_cost);
        self.load * f64::from(self.cores) * 1e6 / mean
    }

    /// The plan that the control loop makes of this mix.
    fn plan(&self, extra_large: bool) -> SizePlan {
        let config = ControlConfig {
            samples_min: 1,
            extra_large,
            ..ControlConfig::new(self.cores)
        };
        let mut control = SizeControl::new(config, Instant::default());
        let mut mix = SizeHistogram::new(SizeClasses::LogLinear);
        let large = (self.large_percent * MIX_SAMPLES / 100.0).round() as u32;
        for sample in 0..MIX_SAMPLES as u32 {
            match sample < large {
                true => mix.record(LARGE_BYTES, self.large_cost),
                false => mix.record(SMALL_BYTES, 1),
            }
        }
        let end = Instant {
            ns: config.epoch_ns,
        };
        // The extra core is what this variant is about, so it is taken at every load.
        let inputs = [
            ControlInput::Measured(&mix),
            ControlInput::SmallBusy { millicores: 0 },
            ControlInput::Tick,
        ];
        inputs
            .into_iter()
            .for_each(|input| control.step(end, input, |_| ()));
        control.plan().clone()
    }
}

#[derive(Clone, Copy, Debug)]
struct Request {
    at: u64,
    large: bool,
    hash: u64,
}

/// What decides for the cores.
enum Deciders {
    Bound(Binding, Vec<Puller>),
    SizeAware(Box<SizePlan>, Vec<SizeCore>),
}

struct Run<'a> {
    model: &'a Sized,
    deciders: Deciders,
    queues: Queues,
    /// What each core runs, and what it has taken beside it.
    running: Vec<Option<Request>>,
    taken: Vec<VecDeque<Request>>,
    busy: Earliest,
    /// Requests in queues that some core could take.
    waiting: usize,
    kinds: Random,
    places: Random,
    large: Chance,
    outcome: SizedOutcome,
}

/// All queues; a ring counts the request of it that is being served.
struct Queues {
    rx: Vec<VecDeque<Request>>,
    rings: Vec<VecDeque<Request>>,
    software: Vec<VecDeque<Request>>,
    shared: VecDeque<Request>,
    in_service: Vec<usize>,
}

impl Queues {
    fn new(cores: usize) -> Self {
        let empty = || vec![VecDeque::new(); cores];
        Self {
            rx: empty(),
            rings: empty(),
            software: empty(),
            shared: VecDeque::new(),
            in_service: vec![0; cores],
        }
    }

    fn of(&mut self, source: Source) -> &mut VecDeque<Request> {
        match source {
            Source::Rx(core) => &mut self.rx[core.index()],
            Source::Ring(core) => &mut self.rings[core.index()],
            Source::Software(core) => &mut self.software[core.index()],
            Source::Shared => &mut self.shared,
        }
    }

    #[inline]
    fn depth(&self, source: Source) -> usize {
        match source {
            Source::Rx(core) => self.rx[core.index()].len(),
            Source::Ring(core) => self.rings[core.index()].len() + self.in_service[core.index()],
            Source::Software(core) => self.software[core.index()].len(),
            Source::Shared => self.shared.len(),
        }
    }
}

impl<'a> Run<'a> {
    fn new(model: &'a Sized) -> Self {
        let cores = usize::from(model.cores);
        let workers = (0..model.cores).map(Worker);
        let deciders = match model.sharding {
            Sharding::Bound(binding) => {
                let puller = |me| Puller::new(binding, me, model.cores, model.batch);
                Deciders::Bound(binding, workers.map(puller).collect())
            }
            Sharding::SizeAware {
                stealing,
                extra_large,
            } => {
                let core = |me| SizeCore::new(me, model.batch, stealing);
                let plan = model.plan(extra_large);
                Deciders::SizeAware(Box::new(plan), workers.map(core).collect())
            }
        };
        let small_cores = match &deciders {
            Deciders::Bound(..) => model.cores,
            Deciders::SizeAware(plan, _) => plan.small,
        };
        Self {
            model,
            deciders,
            queues: Queues::new(cores),
            running: vec![None; cores],
            taken: vec![VecDeque::new(); cores],
            busy: Earliest::new(cores),
            waiting: 0,
            kinds: Random::of_stream(model.seed, 1),
            places: Random::of_stream(model.seed, 2),
            large: Chance::new(model.large_percent / 100.0),
            outcome: SizedOutcome {
                all: Histogram::new(),
                small: Histogram::new(),
                large: Histogram::new(),
                saturated: false,
                small_cores,
            },
        }
    }

    fn arrive(&mut self, now: u64) {
        let request = Request {
            at: now,
            large: self.kinds.chance(self.large),
            hash: self.places.next(),
        };
        let cores = self.model.cores;
        let binding = match self.deciders {
            Deciders::Bound(binding, _) => binding,
            Deciders::SizeAware(..) => Binding::Early,
        };
        let random = self.places.next();
        let source = binding.arrival(request.hash, Access::Read, false, random, cores);
        self.queues.of(source).push_back(request);
        self.waiting += 1;
        let first = match source {
            Source::Rx(core) => core.index(),
            _ => (random % u64::from(cores)) as usize,
        };
        self.settle(now, first);
    }

    fn finish(&mut self, now: u64, core: usize) {
        if let Some(request) = self.running[core].take() {
            let latency = now - request.at;
            self.outcome.all.record(latency);
            match request.large {
                true => self.outcome.large.record(latency),
                false => self.outcome.small.record(latency),
            }
        }
        self.queues.in_service[core] = 0;
        self.busy.clear(core);
        self.settle(now, core);
    }

    /// Idle cores take what they may, `first` first, until nobody takes anything.
    fn settle(&mut self, now: u64, first: usize) {
        let cores = self.running.len();
        let mut again = true;
        while again {
            again = false;
            for offset in 0..cores {
                let core = (first + offset) % cores;
                let has_work = self.waiting > 0 || !self.taken[core].is_empty();
                if self.running[core].is_none() && has_work {
                    again |= self.take(now, core);
                }
            }
        }
    }

    /// An idle core takes its next request, if there is one; whether anything moved.
    fn take(&mut self, now: u64, core: usize) -> bool {
        let mut moved = false;
        loop {
            if let Some(request) = self.taken[core].pop_front() {
                if self.serve_or_hand_on(now, core, request) {
                    return true;
                }
                moved = true;
                continue;
            }
            let queues = &self.queues;
            let depth = |source| queues.depth(source);
            let pull = match &mut self.deciders {
                Deciders::Bound(_, pullers) => pullers[core].next(depth),
                Deciders::SizeAware(plan, all) => all[core].next(plan, depth).map(Pull::Run),
            };
            let Some(pull) = pull else { return moved };
            match pull {
                Pull::Run(take) => {
                    let queue = self.queues.of(take.from);
                    let count = queue.len().min(usize::from(take.max));
                    self.taken[core].extend(queue.drain(..count));
                    self.waiting -= count;
                    if let Source::Ring(owner) = take.from {
                        self.queues.in_service[owner.index()] = 1;
                    }
                }
                Pull::Move(take, to) => {
                    let queue = self.queues.of(take.from);
                    let count = queue.len().min(usize::from(take.max));
                    let batch: Vec<Request> = queue.drain(..count).collect();
                    self.queues.of(to).extend(batch);
                }
            }
            moved = true;
        }
    }

    /// Serves the request here, or puts it in the ring it belongs to; whether it is served here.
    fn serve_or_hand_on(&mut self, now: u64, core: usize, request: Request) -> bool {
        if let Deciders::SizeAware(plan, _) = &self.deciders
            && self.queues.in_service[core] == 0
        {
            let bytes = if request.large {
                LARGE_BYTES
            } else {
                SMALL_BYTES
            };
            if let Route::Ring(owner) = plan.route(bytes, request.hash) {
                self.queues.of(Source::Ring(owner)).push_back(request);
                self.waiting += 1;
                return false;
            }
        }
        let units = if request.large {
            self.model.large_cost
        } else {
            1
        };
        self.running[core] = Some(request);
        self.busy.set(core, now + u64::from(units) * UNIT);
        true
    }
}

/// A small request takes this long.
pub const UNIT: u64 = 1_000;
/// Requests that may wait; beyond, the load is far above what can be served.
pub const QUEUED_MAX: usize = 1 << 21;
const SMALL_BYTES: u32 = 64;
const LARGE_BYTES: u32 = 500_000;
/// From which the control loop learns the mix: shares to a hundredth of a per mille.
const MIX_SAMPLES: f64 = 100_000.0;
