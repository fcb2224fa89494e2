//! Latency of one architecture at one rate (figure 2.13): where a request has to go, and how long
//! it waits there.
//!
//! A transit of a machine is a fixed time, of which the network and the card take most; beside that
//! a request waits for those before it at the cache and at its back end, each of which serves in
//! the order of arrival at its own rate.

use curtail_workload::{Popularity, Random, Ranks};

use super::{Architecture, SwitchKv};
use crate::histogram::Histogram;

/// For which keys clients ask.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TierPath {
    /// Cached ones.
    Hits,
    /// Uniformly, with an empty cache.
    Misses,
    /// As the paper's workload does.
    Mixed,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct TierLatency {
    /// Of all requests, in nanoseconds.
    pub latency: Histogram,
    /// Sum of the latencies, in nanoseconds.
    pub sum_ns: f64,
    /// Machines that requests passed, the client not counted.
    pub transits: u64,
    /// Reads that the cache answered.
    pub hits: u64,
    /// Requests.
    pub requests: u64,
}

impl TierLatency {
    /// Simulates requests that arrive at random at a rate; `None` if the cache or the back ends
    /// together do not serve so many.
    pub fn run(model: &SwitchKv, path: TierPath, qps: f64, requests: u64) -> Option<Self> {
        let mut run = Run::new(model, path);
        if !run.bears(qps) {
            return None;
        }
        let mut random = Random::new(model.seed);
        let mut outcome = Self {
            latency: Histogram::new(),
            sum_ns: 0.0,
            transits: 0,
            hits: 0,
            requests,
        };
        let mut at_ns = 0.0;
        for _ in 0..requests {
            at_ns += random.exponential(1e9 / qps);
            let rank = run.ranks.rank(&mut random);
            let (done_ns, transits, is_hit) = run.request(at_ns, rank);
            outcome.latency.record((done_ns - at_ns) as u64);
            outcome.sum_ns += done_ns - at_ns;
            outcome.transits += transits;
            outcome.hits += u64::from(is_hit);
        }
        Some(outcome)
    }
}

struct Run<'a> {
    model: &'a SwitchKv,
    path: TierPath,
    ranks: Ranks,
    cached: u64,
    /// When each server has served all that has come.
    cache_free_ns: f64,
    free_ns: Vec<f64>,
}

impl<'a> Run<'a> {
    fn new(model: &'a SwitchKv, path: TierPath) -> Self {
        let cached = model.cached as u64;
        let zipf = Popularity::Zipf {
            exponent: model.gamma,
        };
        let (ranks, cached) = match path {
            TierPath::Hits => (Ranks::new(cached.max(1), zipf), cached.max(1)),
            TierPath::Misses => (Ranks::new(model.keys, Popularity::Uniform), 0),
            TierPath::Mixed => (Ranks::new(model.keys, zipf), cached),
        };
        Self {
            model,
            path,
            ranks,
            cached,
            cache_free_ns: 0.0,
            free_ns: vec![0.0; usize::from(model.back_ends)],
        }
    }

    /// Whether no server is asked for more than it serves.
    fn bears(&self, qps: f64) -> bool {
        let is_first = self.model.architecture != Architecture::SwitchKv;
        let cache_qps = self.model.cache_qps;
        let all_qps = f64::from(self.model.back_ends) * self.model.back_end_qps;
        match self.path {
            TierPath::Hits => qps < cache_qps,
            TierPath::Misses => qps < all_qps * 0.99 && (!is_first || qps < cache_qps),
            TierPath::Mixed => {
                let most = self.model.shares().sent_qps();
                qps <= most && (!is_first || qps < cache_qps)
            }
        }
    }

    /// When a request is answered, how many machines it passed, and whether the cache answered.
    fn request(&mut self, at_ns: f64, rank: u64) -> (f64, u64, bool) {
        let is_hit = rank < self.cached;
        let architecture = self.model.architecture;
        let mut now_ns = at_ns;
        let mut transits = 0;
        if is_hit || architecture != Architecture::SwitchKv {
            let service_ns = 1e9 / self.model.cache_qps;
            now_ns = serve(&mut self.cache_free_ns, now_ns, service_ns);
            transits += 1;
        }
        if is_hit {
            return (now_ns, transits, true);
        }
        if architecture == Architecture::LookAside {
            // The client hears of the miss, and asks again.
            now_ns += TRANSIT_NS;
            transits += 1;
        }
        let owner = self.model.owner(self.model.hash(rank));
        let service_ns = 1e9 / self.model.back_end_qps;
        (
            serve(&mut self.free_ns[owner], now_ns, service_ns),
            transits + 1,
            false,
        )
    }
}

/// A transit, with what waits before it: a limiter delays a request for those before it only.
fn serve(free_ns: &mut f64, at_ns: f64, service_ns: f64) -> f64 {
    let begins_ns = free_ns.max(at_ns);
    *free_ns = begins_ns + service_ns;
    begins_ns + TRANSIT_NS
}

/// Network, card and processing of one machine; an assumption, since the paper prints none.
const TRANSIT_NS: f64 = 10_000.0;
