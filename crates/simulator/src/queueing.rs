//! The queueing model: cores, the queues before them, and what decides which core serves which
//! request. All figures of C-4 and of Minos, and ours, are points of it.
//!
//! ```text
//! arrivals --> [rx link] --> deciders: where to? --> queues --> core: serve, hand on, put aside
//!    ^                           |  ^                             |          |
//!    |                           |  +---- report (dispatcher) ----+          | ring of another
//!    |                           +---- what to take next? ------->+<---------+ core
//!    +------------------------ [tx link] <--- answered -----------+
//! ```
//!
//! What is decided is exchangeable ([`dispatchers::Deciders`]): the paper's dispatcher in the
//! network card, queues of a core's own with or without stealing, size-aware sharding, and what the
//! server ships. What it takes is exchangeable too ([`times::Times`]): the papers' own
//! distributions, a whole system's, or measured prices. Everything else is here once: requests and
//! their queues, versions of buckets that optimistic readers look at, windows of compaction, links
//! of a network, and the order of events.
//!
//! Not in it: sizes and associativity of private caches, the memory's bandwidth, lost packets, and
//! the time that a client needs. Memory depends on how many requests are under way, not on how many
//! there are.

pub(crate) mod arrivals;
pub(crate) mod compaction_windows;
pub(crate) mod dispatchers;
pub(crate) mod link;
pub(crate) mod outstanding_requests;
pub(crate) mod server_dispatch;
mod simulation_loop;
pub(crate) mod times;
pub(crate) mod tournament;
pub(crate) mod versions;

use curtail_dispatch::size_aware::SizePlan;

use crate::{
    histogram::Histogram,
    queueing::{
        arrivals::Arrivals, compaction_windows::Windows, dispatchers::Deciders, link::LinkSpeed,
        times::Times, versions::Versions,
    },
};

/// One point of the model, ready to run.
pub(crate) struct Point<'a, T> {
    pub(crate) cores: u16,
    pub(crate) arrivals: Arrivals<'a>,
    pub(crate) deciders: Deciders,
    pub(crate) times: T,
    /// What readers and writers look at; `None` where they need not.
    pub(crate) versions: Option<Versions>,
    pub(crate) windows: Option<Windows>,
    pub(crate) network: Network,
    /// From a dispatcher to a core, and back.
    pub(crate) channel_ns: u64,
    /// Whether it follows C-4's authors' simulator: reports are seen only with the next arrival,
    /// and a reader retries once.
    pub(crate) as_authors: bool,
    pub(crate) bound: Bound,
    /// Length of the windows that have a percentile of their own; 0: none.
    pub(crate) window_ns: u64,
    pub(crate) seed: u64,
}

/// What lies between clients and cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// Each direction; `None` takes no time.
    pub(crate) link: Option<LinkSpeed>,
    /// What is added to each latency.
    pub(crate) wire_ns: u64,
    /// Share of the replies that are sent.
    pub(crate) replies: f64,
}

/// Beyond what a run is saturated: its load is far above what can be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Requests under way at once, with which it ends early.
    pub(crate) under_way: usize,
    /// Requests under way when the last one comes.
    pub(crate) at_end: usize,
    /// Time that is left to work then.
    pub(crate) left_ns: u64,
}

/// What a run measured. Latencies, in nanoseconds, are the client's, of the requests that are
/// measured: not of a run's beginning, and, in whole systems, not of its end.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Of all requests.
    pub all: Histogram,
    /// Of writes.
    pub writes: Histogram,
    /// Of requests for tiny and small items.
    pub small: Histogram,
    /// Of requests for large items.
    pub large: Histogram,
    /// Requests answered until the last one arrived, and that time.
    pub answered: u64,
    /// See `answered`.
    pub elapsed_ns: u64,
    /// Reads that look at versions, and those of them that waited for a writer or retried.
    pub reads: u64,
    /// See `reads`.
    pub disturbed_reads: u64,
    /// Writes that found another core writing their bucket.
    pub write_waits: u64,
    /// Entries of the exclusive-writer table, summed over all placements.
    pub entries_sum: u64,
    /// See `entries_sum`.
    pub placements: u64,
    /// The most entries there were.
    pub entries_max: u32,
    /// Compaction windows, and the writes in them; as shipped, runs of two writes and more.
    pub windows: u64,
    /// See `windows`.
    pub window_writes: u64,
    /// The most writes in one window.
    pub window_writes_max: u64,
    /// Requests that their core handed to the one that holds their partition (as shipped).
    pub delegated: u64,
    /// When the last request was answered.
    pub ended_ns: u64,
    /// What each core did.
    pub cores: Vec<CoreUse>,
    /// Share of the time that the link to the clients was busy while requests came.
    pub link_busy: f64,
    /// The last plan, where sizes matter.
    pub plan: Option<Box<SizePlan>>,
    /// Small requests that a core had taken and then served after a large one.
    pub behind_large: u64,
    /// Small requests in whose own core's receive queue a large one was served while they waited.
    pub beside_large: u64,
    /// Small requests of all that `behind_large` and `beside_large` are counted of.
    pub small_served: u64,
    /// Bytes of large values that a core moved while a small request waited for it.
    pub bytes_ahead: Histogram,
    /// A percentile of each window of time.
    pub times: Vec<WindowOfTime>,
    /// More requests were under way, or more work was left, than a stable system would have.
    pub saturated: bool,
}

/// What a core did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CoreUse {
    /// Requests that it answered.
    pub answered: u64,
    /// Those of them that are measured.
    pub requests: u64,
    /// Their network packets: of what comes in for a write, of what goes out for a read.
    pub packets: u64,
    /// Time without anything to do.
    pub idle_ns: u64,
}

/// A stretch of the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WindowOfTime {
    /// When it ends.
    pub end_ns: u64,
    /// The 99th percentile of what was answered in it.
    pub p99_ns: u64,
    /// Large cores of the plan at its end; 0 is a standby core.
    pub large_cores: u16,
}

impl<'a, T: Times> Point<'a, T> {
    /// Without versions, windows, and a network.
    pub(crate) fn new(
        cores: u16,
        arrivals: Arrivals<'a>,
        deciders: Deciders,
        times: T,
        seed: u64,
    ) -> Self {
        Self {
            cores,
            arrivals,
            deciders,
            times,
            versions: None,
            windows: None,
            network: Network {
                link: None,
                wire_ns: 0,
                replies: 1.0,
            },
            channel_ns: 0,
            as_authors: false,
            bound: Bound::under_way(usize::MAX),
            window_ns: 0,
            seed,
        }
    }

    /// Runs it.
    pub(crate) fn run(self) -> Outcome {
        simulation_loop::run(self)
    }
}

impl Bound {
    /// No more than so many requests under way, whenever that is.
    pub(crate) const fn under_way(under_way: usize) -> Self {
        Self {
            under_way,
            at_end: usize::MAX,
            left_ns: u64::MAX,
        }
    }

    /// The same, and when the last of `requests` comes no more than a half per cent of them.
    pub(crate) fn stable(under_way: usize, requests: u64, left_ns: u64) -> Self {
        Self {
            under_way,
            at_end: (requests / 200).max(2_000) as usize,
            left_ns,
        }
    }
}

impl Outcome {
    fn new(cores: usize) -> Self {
        Self {
            cores: vec![CoreUse::default(); cores],
            ..Self::default()
        }
    }

    /// A quantile of one of its histograms; `None` if the queues grew without end.
    pub(crate) fn stable(&self, histogram: &Histogram, share: f64) -> Option<f64> {
        let quantile = histogram.quantile(share).filter(|_| !self.saturated);
        quantile.map(|value| value as f64)
    }

    /// The 99th percentile in nanoseconds; `None` if the queues grew without end.
    pub fn p99_ns(&self) -> Option<u64> {
        self.all.quantile(0.99).filter(|_| !self.saturated)
    }

    /// Whether 99 of 100 requests were answered within `limit_ns`.
    pub fn meets(&self, limit_ns: f64) -> bool {
        self.p99_ns().is_some_and(|p99| p99 as f64 <= limit_ns)
    }

    /// Millions of requests answered a second while requests arrived.
    pub fn throughput_mrps(&self) -> f64 {
        self.answered as f64 * 1e3 / self.elapsed_ns.max(1) as f64
    }

    /// Entries of the exclusive-writer table, the mean at placements; `None` if there is no table.
    pub fn entries_mean(&self) -> Option<f64> {
        let known = self.entries_max > 0 && self.placements > 0;
        known.then(|| self.entries_sum as f64 / self.placements as f64)
    }

    /// Writes of a compaction window, the mean.
    pub fn batch_mean(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.window_writes as f64 / self.windows as f64)
    }

    /// Share of the reads that were disturbed.
    pub fn retry_share(&self) -> Option<f64> {
        (self.reads > 0).then(|| self.disturbed_reads as f64 / self.reads as f64)
    }

    /// What one core did.
    fn core(&self, core: usize) -> CoreUse {
        self.cores.get(core).copied().unwrap_or_default()
    }

    /// Share of the time in which a core had something to do.
    pub fn utilization(&self, core: usize) -> f64 {
        1.0 - self.core(core).idle_ns as f64 / self.ended_ns.max(1) as f64
    }

    /// Millions of requests a second that a core answered.
    pub fn core_mrps(&self, core: usize) -> f64 {
        self.core(core).answered as f64 * 1e3 / self.ended_ns.max(1) as f64
    }

    /// A core's time for one request, with what it waited for versions and lines.
    pub fn core_service_ns(&self, core: usize) -> f64 {
        self.utilization(core) * 1e3 / self.core_mrps(core).max(1e-9)
    }
}

#[cfg(test)]
mod tests;
