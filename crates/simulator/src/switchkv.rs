//! SwitchKV's testbed in virtual time (Li, dissertation, 2016, section 2.3; SW-81).
//!
//! ```text
//!   client: draws ranks, adapts its rate every 10 ms to a loss of 0.5 to 1 %
//!      |  a rule for the key?
//!      +-- yes --> cache node:  copy? --> reply        rules <-- queue <-- admission
//!      |                          no  --> back end       ^
//!      +-- no ----------------> back end: limiter, tracker --reports--> cache
//! ```
//!
//! Every request is drawn and routed by itself. Leases, updates, admission, the queue of rule
//! changes and the table are the production machines of `consistency::tiered`, the trackers those
//! of `hotkeys`. What is simulated around them: a clock of 1 ms, in which requests arrive evenly; a
//! limiter of each node with a queue of 5 ms, beyond which requests are lost; messages
//! between back ends and cache that arrive at once, which is short beside a period of reports.
//!
//! [`StaticShares`] has the same sums without time, as SW-80's reference.

mod group;
mod hosts;
mod latency;
mod limiter;
mod shares;
mod tier_run;

use curtail_consistency::tiered::RuleBudget;
use curtail_workload::{Change, Popularity, Ranks, mix};

pub(crate) use group::TierGroup;
pub use latency::{TierLatency, TierPath};
pub use shares::StaticShares;
pub(crate) use tier_run::TierRun;

/// Where requests go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Architecture {
    /// To the back ends.
    NoCache,
    /// To the node that has the key, as the rules say.
    SwitchKv,
    /// Reads go to the cache, and after a miss the client asks the back end (SW-67).
    LookAside,
    /// Reads go to the cache, which sends misses on.
    LookThrough,
}

/// How keys come to the cache (SW-68).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CacheUpdate {
    /// Back ends report their hottest keys every second.
    pub periodic: bool,
    /// They send keys that burst at once.
    pub instant: bool,
    /// They send every key that is asked for.
    pub traditional: bool,
}

/// A testbed.
#[derive(Clone, Copy, Debug)]
pub struct SwitchKv {
    /// Where requests go.
    pub architecture: Architecture,
    /// How keys come to the cache.
    pub update: CacheUpdate,
    /// Back ends.
    pub back_ends: u16,
    /// Requests a second that each of them serves.
    pub back_end_qps: f64,
    /// Requests a second that the cache serves.
    pub cache_qps: f64,
    /// Keys that the cache shall hold; it has the hottest at first.
    pub cached: usize,
    /// All keys.
    pub keys: u64,
    /// The exponent of their popularity; 0 is uniform.
    pub gamma: f64,
    /// Share of the requests that write.
    pub write_share: f64,
    /// Whether writes are as popular as reads, or uniform.
    pub writes_like_reads: bool,
    /// What changes in the popularity.
    pub change: Option<Change>,
    /// How long ago the last change was, at the start.
    pub since_change_ns: u64,
    /// The share by which the client changes its rate in 10 ms, at most.
    pub client_step: f64,
    /// What the switch bears.
    pub rules: RuleBudget,
    /// Virtual time, in seconds.
    pub seconds: f64,
    /// Of all randomness.
    pub seed: u64,
}

/// What happened in 10 ms.
#[derive(Clone, Copy, Debug, Default)]
pub struct TierInterval {
    /// Requests that were sent.
    pub sent: u64,
    /// Requests that the cache answered.
    pub hits: u64,
    /// Requests that back ends answered.
    pub served: u64,
    /// Requests that a limiter refused.
    pub lost: u64,
    /// Requests that came to the cache in vain.
    pub detours: u64,
    /// Of the keys that came to the top in the last change, those with a rule.
    pub new_keys_ruled: u64,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct TierOutcome {
    /// Every 10 ms.
    pub intervals: Vec<TierInterval>,
    /// Requests that each back end answered in the second half.
    pub nodes: Vec<u64>,
    /// Rules that were installed.
    pub installs: u64,
    /// Rules that were withdrawn.
    pub withdrawals: u64,
    /// Updates that the cache applied for a write.
    pub updates: u64,
    /// Rule changes that were refused, because too many waited.
    pub refused: u64,
}

impl SwitchKv {
    /// The paper's testbed (table 2.2), static.
    pub const fn paper() -> Self {
        Self {
            architecture: Architecture::SwitchKv,
            update: CacheUpdate::NONE,
            back_ends: 128,
            back_end_qps: 100_000.0,
            cache_qps: CACHE_QPS,
            cached: 10_000,
            keys: KEYS,
            gamma: 0.99,
            write_share: 0.0,
            writes_like_reads: false,
            change: None,
            since_change_ns: 0,
            client_step: CLIENT_STEP,
            rules: RuleBudget {
                per_s: 400,
                burst: 4,
                queue_max: 800,
                delay_max_ns: 2_000_000_000,
            },
            seconds: 0.2,
            seed: 1,
        }
    }

    /// Simulates it.
    pub fn run(&self) -> TierOutcome {
        TierRun::new(self).run()
    }

    /// How its keys are divided, without time.
    pub fn shares(&self) -> StaticShares {
        StaticShares::of(self)
    }

    fn ranks(&self) -> Ranks {
        let exponent = self.gamma;
        Ranks::new(self.keys, Popularity::Zipf { exponent })
    }

    /// The hash of the key with this number; whose it is follows.
    fn hash(&self, key: u64) -> u64 {
        mix(key ^ mix(self.seed))
    }

    fn owner(&self, hash: u64) -> usize {
        let product = u128::from(hash) * u128::from(self.back_ends);
        (product >> 64) as usize
    }
}

impl CacheUpdate {
    /// What is cached stays.
    pub const NONE: Self = Self {
        periodic: false,
        instant: false,
        traditional: false,
    };

    /// Reports of the hottest keys only.
    pub const PERIODIC: Self = Self {
        periodic: true,
        ..Self::NONE
    };

    /// Instant reports only.
    pub const INSTANT: Self = Self {
        instant: true,
        ..Self::NONE
    };

    /// The paper's, both.
    pub const BOTH: Self = Self {
        instant: true,
        ..Self::PERIODIC
    };

    /// Every key that is asked for.
    pub const TRADITIONAL: Self = Self {
        traditional: true,
        ..Self::NONE
    };
}

impl TierOutcome {
    /// Requests answered a second, in millions, and of these the cache's, over the intervals of a
    /// part of the run.
    pub fn mqps(&self, part: std::ops::Range<usize>) -> (f64, f64) {
        let part = self.intervals.get(part).unwrap_or_default();
        let seconds = part.len() as f64 * INTERVAL_S;
        let sum = |of: fn(&TierInterval) -> u64| part.iter().map(of).sum::<u64>() as f64;
        let hits = sum(|one| one.hits);
        let all = hits + sum(|one| one.served);
        (all / seconds / 1e6, hits / seconds / 1e6)
    }
}

/// What the paper's cache node serves (figure 2.13: its baselines stop there).
pub(crate) const CACHE_QPS: f64 = 14e6;
/// The paper's keys.
pub(crate) const KEYS: u64 = 10_000_000_000;
/// The loss that the client keeps.
const LOSS_MIN: f64 = 0.005;
const LOSS_MAX: f64 = 0.01;
const LOSS: f64 = 0.0075;
/// The paper does not say how fast its client is. With 1 % in 10 ms the throughput in figure 2.15
/// falls and recovers as the paper says (periodic reports: to less than half, for 1 to 2 s).
pub(crate) const CLIENT_STEP: f64 = 0.01;
/// Between two changes of the client's rate.
pub(crate) const INTERVAL_S: f64 = 0.01;

#[cfg(test)]
mod tests;
