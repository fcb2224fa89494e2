//! Sizes, writes and skew at once: size-aware sharding above, d-CREW with compaction below.
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
//! Without size awareness all cores are the dispatcher's. The dispatcher takes no time and no core,
//! with both sets of prices: it is a network card's, as C-4's. Buckets
//! have versions, which readers of small items wait for and check, and their cache lines travel
//! between the cores that use them. What is not in it: the network's link (it is taken to be wide
//! enough), other caches, and the memory's bandwidth. Memory depends on how many requests are under
//! way.

mod buckets;
mod run;
mod worker;

use curtail_dispatch::{Closing, Policy};
use curtail_workload::Workload;

use crate::{
    costs::FullCosts,
    histogram::Histogram,
    stored::{Demand, PlanCost, Prices, Sample},
};

/// One point of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Combined {
    /// Who may read and write where, among the cores for small requests.
    pub policy: Policy,
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

/// What a run measured; latencies in nanoseconds, from arrival to reply.
#[derive(Clone, Debug)]
pub struct CombinedOutcome {
    /// Of all requests.
    pub all: Histogram,
    /// Of writes.
    pub writes: Histogram,
    /// Of requests for tiny and small items.
    pub small: Histogram,
    /// Of requests for large items.
    pub large: Histogram,
    /// Cores for small requests.
    pub small_cores: u16,
    /// Small requests that a core served after a large one that was before them in its queue.
    pub behind_large: u64,
    /// Small requests of all that this is counted of.
    pub small_served: u64,
    /// Writes that found another core writing their bucket; none where a partition has one writer.
    pub write_waits: u64,
    /// Reads that waited for a writer or read again, and all.
    pub disturbed_reads: u64,
    /// See `disturbed_reads`.
    pub reads: u64,
    /// Compaction windows, and the writes in them.
    pub windows: u64,
    /// See `windows`.
    pub window_writes: u64,
    /// More requests were under way when the last one came than a stable system would have.
    pub saturated: bool,
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
}

impl Combined {
    /// The server's default, at a load of 0.7.
    pub fn new(prices: CombinedPrices, workload: Workload) -> Self {
        Self {
            policy: Policy::DynamicCrew,
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
    pub fn run(&self, core_ns: f64) -> CombinedOutcome {
        run::run(self, core_ns)
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

impl CombinedOutcome {
    /// The 99th percentile in nanoseconds; `None` if the queues grew without end.
    pub fn p99_ns(&self) -> Option<u64> {
        self.all.quantile(0.99).filter(|_| !self.saturated)
    }

    /// Whether 99 of 100 requests were answered within `limit_ns`.
    pub fn meets(&self, limit_ns: f64) -> bool {
        self.p99_ns().is_some_and(|p99| p99 as f64 <= limit_ns)
    }
}
