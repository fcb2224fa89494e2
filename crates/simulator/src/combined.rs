//! Models of sizes, writes and skew together: size-aware sharding above, d-CREW with compaction
//! below.
//!
//! Minos (NSDI 2019) keeps small requests away from large ones and leaves writes to static owners;
//! C-4 (ASPLOS 2023) balances writes and knows no sizes. Here both run together, as the server runs
//! them, and each can be left out:
//!
//! ```text
//!            large write (its header says so) ----------------------+
//! arrival -+                                                        v
//!          +-> Dispatcher: JBSQ, CREW or d-CREW --> small core   ring of a large core
//!                                                     | large read: handed on --^
//!                                                     +-> Compactor -> store
//! ```
//!
//! As shipped ([`Mechanism::Shipped`]) there is no dispatcher: small cores have connections, claim
//! and hand on ([`crate::queueing::server_dispatch`]), and large requests are handed on when their
//! size is known.
//!
//! Without size awareness all cores are the dispatcher's. The dispatcher takes no time and no core,
//! with both sets of prices: it is a network card's, as C-4's. Buckets
//! have versions, which readers of small items wait for and check, and their cache lines travel
//! between the cores that use them. What is not in it: the network's link (it is taken to be wide
//! enough), other caches, and the memory's bandwidth. Memory depends on how many requests are under
//! way.

use curtail_dispatch::{
    Answers, Closing, CompactionConfig, Deadline, Policy, size_aware::ThresholdRule,
};
use curtail_workload::Workload;

use crate::{
    c4::{
        Mechanism,
        dispatcher::{DispatchConfig, Dispatcher},
    },
    costs::FullCosts,
    minos::{Demand, PlanCost, Prices, SHIPPED_THRESHOLD, Sample, UNDER_WAY_MAX},
    queueing::{
        Bound, Outcome, Point,
        arrivals::Arrivals,
        compaction_windows::{Scan, Windows},
        dispatchers::{self, Deciders},
        server_dispatch::Shipped,
        times::{Lines, Priced},
        versions::Versions,
    },
};

/// One point of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// Who may read and write where, among the cores for small requests.
    pub policy: Policy,
    /// Whose mechanism balances and compacts. As shipped, the plan's threshold is the server's too.
    pub mechanism: Mechanism,
    /// Whether workers compact writes, and when windows close.
    pub compaction: Option<Closing>,
    /// Whether large requests have cores of their own, and what their number is judged by.
    pub size_aware: Option<PlanCost>,
    /// Cores, 2 to 64.
    pub cores: u16,
    /// Outstanding requests of a core that is given no more balanced ones.
    pub depth: u16,
    /// What each step costs.
    pub prices: CombinedPrices,
    /// Keys, sizes, reads and writes; its rate is not looked at.
    pub workload: Workload,
    /// Offered load as a share of what all cores can do.
    pub load: f64,
    /// Requests in all; the first and the last sixth are not measured.
    pub requests: u64,
    /// Of all randomness.
    pub seed: u64,
}

/// What each step costs a core, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct CombinedPrices {
    /// Serving.
    pub serve: Prices,
    /// Putting a write aside, in place of carrying it out.
    pub put_aside_ns: f64,
    /// Answering a write of a window.
    pub answer_ns: f64,
    /// Time of a write in which its bucket's version is odd.
    pub publish_ns: f64,
    /// Reading a bucket whose line is not here, because another core has written it.
    pub read_line_ns: f64,
    /// Writing a bucket whose line others have.
    pub write_line_ns: f64,
}

impl CombinedPrices {
    /// The prices that Minos's throughputs give, with C-4's 100 ns for putting a write aside
    /// (section 3). What a reply costs without the store is taken to be half of a request; a line
    /// that travels is 60 ns.
    pub fn paper() -> Self {
        let serve = Prices::paper();
        Self {
            put_aside_ns: 100.0,
            answer_ns: serve.request_ns / 2.0,
            publish_ns: 100.0,
            read_line_ns: 60.0,
            write_line_ns: 60.0,
            serve,
        }
    }

    /// A file of costs. A write's version is taken to be odd for half of the time that the shortest
    /// write takes.
    pub fn of(costs: &FullCosts, name: &'static str) -> Self {
        let serve = Prices::of(costs, name);
        Self {
            put_aside_ns: costs.put_aside.ns,
            answer_ns: serve.request_ns / 2.0,
            publish_ns: costs.set.ns(0) / 2.0,
            read_line_ns: costs.contended.read_ns(1.0),
            write_line_ns: costs.contended.write_ns(1.0),
            serve,
        }
    }

    /// Serving alone: nothing is put aside, and no lines travel.
    pub(crate) fn serving(serve: Prices) -> Self {
        Self {
            put_aside_ns: 0.0,
            answer_ns: 0.0,
            publish_ns: 0.0,
            read_line_ns: 0.0,
            write_line_ns: 0.0,
            serve,
        }
    }
}

impl Combined {
    /// The server's default, at a load of 0.7.
    pub fn new(prices: CombinedPrices, workload: Workload) -> Self {
        Self {
            policy: Policy::DynamicCrew,
            mechanism: Mechanism::Paper,
            compaction: Some(Closing::Adaptive),
            size_aware: Some(PlanCost::Time),
            cores: 8,
            depth: 2,
            prices,
            workload,
            load: 0.7,
            requests: 1_000_000,
            seed: 1,
        }
    }

    /// Runs it; `core_ns` is [`Combined::core_ns`] of its workload.
    pub fn run(&self, core_ns: f64) -> Outcome {
        let plan = self.size_aware.map(|cost| {
            let threshold = match self.mechanism {
                Mechanism::Paper => ThresholdRule::Percentile(99_000),
                Mechanism::Shipped => SHIPPED_THRESHOLD,
            };
            let costs = (&self.prices.serve, cost);
            let sample = (self.requests, self.seed);
            dispatchers::plan(&self.workload, (self.cores, threshold), costs, sample)
        });
        let small_cores = plan.as_ref().map_or(self.cores, |plan| plan.small);
        let rate = self.load * f64::from(self.cores) * 1e9 / core_ns;
        let sixth = self.requests / 6;
        let arrivals = Arrivals::of_workload(&self.workload, rate, self.requests, self.seed);
        let deciders = match self.mechanism {
            Mechanism::Paper => Deciders::Dispatched {
                dispatcher: Box::new(Dispatcher::new(self.dispatch(small_cores))),
                plan,
            },
            Mechanism::Shipped => {
                Deciders::Shipped(Box::new(Shipped::new(self.policy, self.cores, plan)))
            }
        };
        let times = Priced {
            prices: self.prices.clone(),
            lines: Some(Lines::used_lately()),
        };
        let arrivals = arrivals.measured(sixth..self.requests - sixth);
        let point = Point {
            versions: Some(Versions::new(REMEMBERED_NS)),
            windows: self.compaction.map(|closing| {
                let config = self.windows(closing, core_ns);
                let defers = self.policy == Policy::DynamicCrew;
                Windows::new(small_cores, config, Scan::Slots(8), defers)
            }),
            bound: Bound::stable(UNDER_WAY_MAX, self.requests, u64::MAX),
            ..Point::new(self.cores, arrivals, deciders, times, self.seed)
        };
        point.run()
    }

    fn dispatch(&self, workers: u16) -> DispatchConfig {
        DispatchConfig {
            depth: Some(self.depth),
            // Writes that were put aside keep their entries and not their credits.
            entries_max: 64 * u32::from(workers),
            ..DispatchConfig::new(self.policy, workers)
        }
    }

    fn windows(&self, closing: Closing, core_ns: f64) -> CompactionConfig {
        CompactionConfig {
            closing,
            deadline: Deadline::BeforeLimit {
                limit_ns: (10.0 * core_ns) as u64,
                apply_ns: self.prices.serve.serve_ns(true, 0) as u64,
                answer_ns: self.prices.answer_ns as u64,
            },
            answers: Answers::AfterApply,
            windows_max: 4,
            writes_max: 62,
        }
    }

    /// The mean time that a request takes a core, without hand-offs, conflicts and compaction.
    pub fn core_ns(&self) -> f64 {
        let sample = Sample {
            requests: self.requests,
            seed: self.seed,
        };
        Demand::of(&self.workload, &self.prices.serve, 1.0, sample).core_ns
    }
}

/// How long a write is remembered: longer than any reader that began before it takes.
const REMEMBERED_NS: u64 = 10_000_000;
