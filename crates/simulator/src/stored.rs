//! Minos's system whole: items of real sizes, reads and writes, cores with receive queues, a
//! network link with frames, and the control loop that learns sizes while it runs.
//!
//! Didona and Zwaenepoel, "Size-aware Sharding For Improving Tail Latencies in In-memory Key-value
//! Stores", NSDI 2019, sections 5 and 6. Who takes which request from where is decided by the
//! machines of `curtail-dispatch`; here are time, the network and the prices of each step:
//!
//! ```text
//! clients --rx link--> RX queue of a core --take--> serve --tx queue of the core--+
//!    ^                    |  large: hand on           ^                           |
//!    |                    +--> ring of a large core --+                           |
//!    +---------------- tx link: the cores' queues in turn, frame by frame --------+
//! ```
//!
//! What is not in it: caches, the memory's bandwidth, lock contention, lost packets, and the time
//! that a client needs. Latency is the client's: from sending to the last frame of the reply.
//! Memory depends on how many requests are under way, not on how many there are.

pub(crate) mod arrivals;
mod deciders;
mod link;
mod prices;
pub(crate) mod queues;
mod run;

use curtail_dispatch::{
    pull::Binding,
    size_aware::{SizePlan, Stealing},
};
use curtail_workload::{Kind, Stream, Workload, mix};

use crate::histogram::Histogram;

pub use link::LinkSpeed;
pub use prices::{PlanCost, Prices};

/// One point of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
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

/// What a run measured; latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct StoredOutcome {
    /// Of all requests.
    pub all: Histogram,
    /// Of requests for tiny and small items.
    pub small: Histogram,
    /// Of requests for large items.
    pub large: Histogram,
    /// What each core served of what was measured.
    pub cores: Vec<CoreLoad>,
    /// Share of the time that the link to the clients was busy while requests came.
    pub link_busy: f64,
    /// Requests a second, in millions, that were answered while requests came.
    pub answered_mops: f64,
    /// The last plan; none for the baselines.
    pub plan: Option<Box<SizePlan>>,
    /// Small requests that a core had taken and then served after a large one.
    pub behind_large: u64,
    /// Small requests in whose own core's receive queue a large one was served while they waited.
    pub beside_large: u64,
    /// Small requests of all that `behind_large` and `beside_large` are counted of.
    pub small_served: u64,
    /// A percentile of each window.
    pub windows: Vec<Window>,
    /// When the last request came, more requests were under way, or more work was left, than a
    /// stable system would have.
    pub saturated: bool,
}

/// What a core did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CoreLoad {
    /// Requests served.
    pub requests: u64,
    /// Their network packets: of what comes in for a write, of what goes out for a read.
    pub packets: u64,
    /// Time that it worked, in the whole run.
    pub busy_ns: u64,
}

/// A stretch of the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Window {
    /// When it ends.
    pub end_ns: u64,
    /// The 99th percentile of what was answered in it.
    pub p99_ns: u64,
    /// Large cores of the plan at its end; 0 is a standby core.
    pub large_cores: u16,
}

impl SizeAware {
    /// The paper's system.
    pub const PAPER: Self = Self {
        stealing: Stealing::Off,
        extra_large: false,
        learned: true,
        cost: PlanCost::Packets,
        large_replies: LargeReplies::Drained,
    };
}

impl Stored {
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
    pub fn run(&self) -> StoredOutcome {
        run::run(self)
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

impl StoredOutcome {
    /// The 99th percentile in nanoseconds; `None` if the queues grew without end.
    pub fn p99_ns(&self) -> Option<u64> {
        self.all.quantile(0.99).filter(|_| !self.saturated)
    }

    /// Whether 99 of 100 requests were answered within `limit_ns`.
    pub fn meets(&self, limit_ns: f64) -> bool {
        self.p99_ns().is_some_and(|p99| p99 as f64 <= limit_ns)
    }
}

/// Requests that may be under way at once; beyond, a run ends early.
pub const UNDER_WAY_MAX: usize = 1 << 20;
/// Requests from which a workload's means are taken.
const SAMPLES: u64 = 1_000_000;
const SAMPLE: u64 = 0x7361_6d70_6c65;
