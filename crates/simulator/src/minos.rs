//! Minos's models (Didona and Zwaenepoel, "Size-aware Sharding For Improving Tail Latencies in
//! In-memory Key-value Stores", NSDI 2019): its queueing model of section 2.2 ([`MinosModel`]), and
//! its system of sections 5 and 6 ([`MinosSystem`]).
//!
//! The system has items of real sizes, reads and writes, cores with receive queues, a network link
//! with frames, and the control loop that learns sizes while it runs:
//!
//! ```text
//! clients --rx link--> RX queue of a core --take--> serve --tx queue of the core--+
//!    ^                    |  large: hand on           ^                           |
//!    |                    +--> ring of a large core --+                           |
//!    +---------------- tx link: the cores' queues in turn, frame by frame --------+
//! ```
//!
//! Latency is the client's: from sending to the last frame of the reply. The queueing model is the
//! same without link and prices: 99.875 % of the requests take 1 unit of time, the others K;
//! dispatch, synchronisation and locality cost nothing.

mod core_steps;
mod step_costs;

use curtail_dispatch::{
    pull_baselines::Binding,
    size_aware::{ControlConfig, CostRule, ThresholdRule},
};
use curtail_workload::{
    Catalogue, Kind, Large, Mix, Phases, Popularity, SizeClass, Sizes, Stream, Workload, mix,
};

pub use crate::queueing::link::LinkSpeed;
use crate::{
    combined::CombinedPrices,
    costs::SizeCosts,
    queueing::{
        Bound, Network, Outcome, Point,
        arrivals::Arrivals,
        dispatchers::{Deciders, Learning},
        times::{Priced, Steps},
    },
};

pub use core_steps::{SizeCore, Stealing};
pub use step_costs::{PlanCost, Prices};

/// One point of Minos's queueing model.
#[derive(Clone, Debug, PartialEq)]
pub struct MinosModel {
    /// How requests come to cores. Of a form of Minos, what idle cores take and the extra large
    /// core matter; its plan is set by hand and counts time.
    pub system: System,
    /// Cores.
    pub cores: u16,
    /// Time of a large request, in small ones.
    pub large_cost: u32,
    /// Share of large requests, per cent.
    pub large_percent: f64,
    /// Offered work as a share of what all cores can do, large requests included.
    pub load: f64,
    /// Requests in all.
    pub requests: u64,
    /// Of all randomness.
    pub seed: u64,
}

/// One point of Minos's system.
#[derive(Clone, Debug, PartialEq)]
pub struct MinosSystem {
    /// How requests come to cores.
    pub system: System,
    /// Cores, 1 to 256.
    pub cores: u16,
    /// What each step costs.
    pub prices: Prices,
    /// Keys, sizes, reads and writes; its rate is not looked at.
    pub workload: Workload,
    /// Requests a second, in millions.
    pub rate_mops: f64,
    /// Share of the replies that are sent; the others are prepared and dropped (section 6.4).
    pub replies: f64,
    /// Requests that a core takes from its receive queue at once.
    pub batch: u16,
    /// Requests in all; the first and the last sixth are not measured (section 5.4).
    pub requests: u64,
    /// Length of an epoch of the control loop; 0: a twelfth of the run.
    pub epoch_ns: u64,
    /// Length of the windows that have a percentile of their own; 0: none.
    pub window_ns: u64,
    /// Of all randomness.
    pub seed: u64,
}

/// How requests come to cores.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum System {
    /// One of the baselines.
    Bound {
        /// Which.
        binding: Binding,
        /// Whether reads go by key too.
        erew: bool,
    },
    /// Minos.
    SizeAware(SizeAware),
}

/// A form of Minos.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct SizeAware {
    /// What idle cores take.
    pub stealing: Stealing,
    /// Whether there may be a large core more than the costs ask for (section 6.4).
    pub extra_large: bool,
    /// Whether the plan is learned while it runs, which costs; else it is set at the start, as if
    /// by hand (section 6.2).
    pub learned: bool,
    /// What the plan judges requests by.
    pub cost: PlanCost,
    /// From which size on requests are large.
    pub threshold: ThresholdRule,
    /// What becomes of a standby core's large replies.
    pub large_replies: LargeReplies,
}

/// How the large replies of a standby core, which serves small requests too, leave.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LargeReplies {
    /// By its one transmit queue, and it stays large until they have left. The paper says that it
    /// "becomes a large core", not until when.
    Drained,
    /// By its one transmit queue: small replies that follow leave behind them.
    InLine,
    /// By a second transmit queue.
    Apart,
}

impl SizeAware {
    /// The paper's system.
    pub const PAPER: Self = Self {
        stealing: Stealing::Off,
        extra_large: false,
        learned: true,
        cost: PlanCost::Packets,
        threshold: ThresholdRule::Percentile(99_000),
        large_replies: LargeReplies::Drained,
    };

    /// As the server ships it: plans count time, the threshold weighs what hand-offs cost, and
    /// large replies leave apart.
    pub const SHIPPED: Self = Self {
        cost: PlanCost::Time,
        threshold: SHIPPED_THRESHOLD,
        large_replies: LargeReplies::Apart,
        ..Self::PAPER
    };
}

impl MinosSystem {
    /// The paper's: 8 cores, batches of 32, every reply sent.
    pub fn new(system: System, prices: Prices, workload: Workload, rate_mops: f64) -> Self {
        Self {
            system,
            cores: 8,
            prices,
            workload,
            rate_mops,
            replies: 1.0,
            batch: 32,
            requests: 1_000_000,
            epoch_ns: 0,
            window_ns: 0,
            seed: 1,
        }
    }

    /// Runs it.
    pub fn run(&self) -> Outcome {
        let sixth = self.requests / 6;
        let rate = self.rate_mops * 1e6;
        let arrivals = Arrivals::of_workload(&self.workload, rate, self.requests, self.seed);
        let arrivals = arrivals.measured(sixth..self.requests - sixth);
        let deciders = match self.system {
            System::Bound { binding, erew } => {
                Deciders::bound(binding, erew, self.cores, self.batch)
            }
            System::SizeAware(settings) => self.size_aware(settings),
        };
        let left_ns = (self.run_ns() / 100).max(LEFT_NS);
        let times = alone(self.prices.clone());
        let point = Point {
            network: Network {
                link: Some(self.prices.link),
                wire_ns: self.prices.wire_ns,
                replies: self.replies,
            },
            bound: Bound::stable(UNDER_WAY_MAX, self.requests, left_ns),
            window_ns: self.window_ns,
            ..Point::new(self.cores, arrivals, deciders, times, self.seed)
        };
        point.run()
    }

    fn size_aware(&self, settings: SizeAware) -> Deciders {
        let epoch_ns = match self.epoch_ns {
            0 => (self.run_ns() / 12).max(1),
            epoch_ns => epoch_ns,
        };
        let epoch_requests = (epoch_ns as f64 * self.rate_mops / 1e3) as u64;
        let config = ControlConfig {
            epoch_ns,
            samples_min: (epoch_requests / 2).clamp(1, 10_000),
            extra_large: settings.extra_large,
            threshold: settings.threshold,
            ..ControlConfig::new(self.cores)
        };
        let learning = Learning::new(config, self.prices.clone(), settings.cost);
        let learning = match settings.learned {
            true => learning,
            false => learning.set_by_hand(&self.workload, (self.requests, self.seed)),
        };
        let (stealing, replies) = (settings.stealing, settings.large_replies);
        Deciders::size_aware((self.cores, self.batch), stealing, learning, replies)
    }

    /// What the workload asks of a node on average, from a sample of its requests.
    pub fn demand(&self) -> Demand {
        let sample = Sample {
            requests: self.requests,
            seed: self.seed,
        };
        Demand::of(&self.workload, &self.prices, self.replies, sample)
    }

    /// The most that a node without losses could serve, in millions a second.
    pub fn capacity_mops(&self) -> f64 {
        let demand = self.demand();
        let cores = f64::from(self.cores) * 1e3 / demand.core_ns;
        cores.min(1e3 / demand.link_ns)
    }

    fn run_ns(&self) -> u64 {
        (self.requests as f64 * 1e3 / self.rate_mops) as u64
    }
}

/// What a mean request takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Of a core, without hand-offs.
    pub core_ns: f64,
    /// Of the busier direction of the link.
    pub link_ns: f64,
    /// End to end, for a read that waits for nothing: the paper's mean service time.
    pub get_ns: f64,
}

/// What a mean is taken from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sample {
    /// So many requests, but no more than [`SAMPLES`].
    pub(crate) requests: u64,
    /// Of the run that they are for; they are others.
    pub(crate) seed: u64,
}

impl Demand {
    /// From a sample of the workload's requests, of whose replies this share is sent.
    pub(crate) fn of(workload: &Workload, prices: &Prices, replies: f64, sample: Sample) -> Self {
        let mut generator = workload.generator(mix(sample.seed ^ SAMPLE), Stream::ONLY);
        let requests = sample.requests.clamp(1, SAMPLES);
        let (mut serve_ns, mut get_ns, mut gets, mut out_ns, mut in_ns) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let bare = prices.link.wire_ns(Prices::message_bytes());
        for _ in 0..requests {
            let request = generator.draw(0);
            let write = request.kind != Kind::Get;
            let bytes = request.item.value_bytes;
            let ns = prices.serve_ns(write, bytes);
            let whole = prices.link.wire_ns(bytes + Prices::message_bytes());
            serve_ns += ns;
            out_ns += if write { bare } else { whole };
            in_ns += if write { whole } else { bare };
            if !write {
                gets += 1.0;
                get_ns += ns + whole + bare + prices.wire_ns as f64;
            }
        }
        let requests = requests as f64;
        Self {
            core_ns: serve_ns / requests,
            link_ns: (out_ns * replies).max(in_ns) / requests,
            get_ns: get_ns / f64::max(gets, 1.0),
        }
    }
}

impl MinosModel {
    /// The paper's: 8 cores, 0.125 % of the requests large.
    pub fn new(system: System, large_cost: u32, load: f64) -> Self {
        Self {
            system,
            cores: 8,
            large_cost,
            large_percent: 0.125,
            load,
            requests: 1_000_000,
            seed: 1,
        }
    }

    /// Runs it; latencies are in thousandths of a small request.
    pub fn run(&self) -> Outcome {
        let workload = self.workload();
        let deciders = match self.system {
            System::Bound { binding, erew } => Deciders::bound(binding, erew, self.cores, 1),
            System::SizeAware(settings) => {
                let config = ControlConfig {
                    samples_min: 1,
                    extra_large: settings.extra_large,
                    ..ControlConfig::new(self.cores)
                };
                let learning = Learning::new(config, self.prices(), PlanCost::Time);
                let learning = learning.set_by_hand(&workload, (self.requests, self.seed));
                let replies = LargeReplies::InLine;
                Deciders::size_aware((self.cores, 1), settings.stealing, learning, replies)
            }
        };
        let arrivals = Arrivals::of_workload(&workload, self.rate(), self.requests, self.seed);
        let times = alone(self.prices());
        let point = Point {
            bound: Bound::under_way(QUEUED_MAX),
            ..Point::new(self.cores, arrivals, deciders, times, self.seed)
        };
        point.run()
    }

    /// Requests a second if a small one takes a microsecond.
    fn rate(&self) -> f64 {
        let large = self.large_percent / 100.0;
        let mean = 1.0 - large + large * f64::from(self.large_cost);
        self.load * f64::from(self.cores) * 1e6 / mean
    }

    /// Reads of two sizes.
    fn workload(&self) -> Workload {
        let size = |bytes| Sizes::new(vec![(SizeClass::Constant(bytes), 1.0)]);
        let mut workload = etc();
        if let (Ok(small), Ok(large), Some(reads)) =
            (size(SMALL_BYTES), size(LARGE_BYTES), Mix::get_share(1.0))
        {
            workload.sizes = small;
            workload.large = Some(Large {
                keys: 10_000,
                percent: Phases::fixed(self.large_percent),
                sizes: large,
            });
            workload.mix = reads;
        }
        workload.popularity = Popularity::Uniform;
        workload
    }

    /// Nothing but a unit of time, or so many.
    fn prices(&self) -> Prices {
        let unit = UNIT as f64;
        let more = (f64::from(self.large_cost) - 1.0) * unit;
        let costs = SizeCosts {
            points: vec![
                (f64::from(SMALL_BYTES), 0.0),
                (f64::from(LARGE_BYTES), more),
            ],
        };
        Prices {
            name: "units",
            request_ns: unit,
            frame_ns: 0.0,
            get: costs.clone(),
            set: costs,
            steps: Steps::default(),
            profile_ns: 0.0,
            ..Prices::paper()
        }
    }
}

/// Times of cores that look at no versions.
fn alone(prices: Prices) -> Priced {
    Priced {
        prices: CombinedPrices::serving(prices),
        lines: None,
    }
}

/// Minos's default workload (section 5.3).
pub(crate) fn etc() -> Workload {
    let etc = Catalogue::new().workload("etc");
    etc.unwrap_or_else(|error| unreachable!("{error}"))
}

/// The server's rule, from 32 KiB on as by default.
pub(crate) const SHIPPED_THRESHOLD: ThresholdRule =
    ThresholdRule::Cost(CostRule::of_server(32 << 10));
/// A small request of the queueing model takes this long.
pub const UNIT: u64 = 1_000;
/// Requests of the queueing model that may wait; beyond, the load is far above what can be served.
pub const QUEUED_MAX: usize = 1 << 21;
const SMALL_BYTES: u32 = 64;
const LARGE_BYTES: u32 = 500_000;
/// Work that may be left when the last request comes, or a hundredth of the run if that is more.
const LEFT_NS: u64 = 5_000_000;
/// Requests that may be under way at once; beyond, a run ends early.
pub const UNDER_WAY_MAX: usize = 1 << 20;
/// Requests from which a workload's means are taken.
const SAMPLES: u64 = 1_000_000;
const SAMPLE: u64 = 0x7361_6d70_6c65;
