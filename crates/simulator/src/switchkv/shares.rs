//! The testbed without time: the share of the load that each node has, and the most that all of
//! them serve together when the loss is what the client keeps (SW-80).

use curtail_workload::zipf_sums::{harmonic, top_share};

use super::{Architecture, LOSS, SwitchKv};

/// Of all requests, what each node is asked for.
#[derive(Clone, Debug)]
pub struct StaticShares {
    /// Of each back end.
    pub back_ends: Vec<f64>,
    /// Of the cache.
    pub cache: f64,
    /// Of these, what the cache answers.
    pub hits: f64,
    back_end_qps: f64,
    cache_qps: f64,
}

impl StaticShares {
    pub(super) fn of(model: &SwitchKv) -> Self {
        let cached = match model.architecture {
            Architecture::NoCache => 0,
            _ => model.cached as u64,
        };
        let reads = 1.0 - model.write_share;
        let like_reads = if model.writes_like_reads {
            model.write_share
        } else {
            0.0
        };
        let spread = model.write_share - like_reads;
        let hits = reads * top_share(cached, model.keys, model.gamma);
        let all = f64::from(model.back_ends);
        // One by one as far as a key is noticed; beyond, all back ends have alike.
        let single = SINGLE.min(model.keys);
        let rest = 1.0 - top_share(single, model.keys, model.gamma);
        let even = rest * (reads + like_reads) + spread;
        let mut back_ends = vec![even / all; usize::from(model.back_ends)];
        let total = harmonic(model.keys, model.gamma);
        for rank in 0..single {
            let share = ((rank + 1) as f64).powf(-model.gamma) / total;
            let reads = if rank < cached { 0.0 } else { reads };
            back_ends[model.owner(model.hash(rank))] += share * (reads + like_reads);
        }
        Self {
            back_ends,
            hits,
            cache: match model.architecture {
                Architecture::NoCache => 0.0,
                Architecture::SwitchKv => hits,
                Architecture::LookAside | Architecture::LookThrough => reads,
            },
            back_end_qps: model.back_end_qps,
            cache_qps: model.cache_qps,
        }
    }

    /// The rate at which a client sends that keeps its loss, in requests a second.
    pub fn sent_qps(&self) -> f64 {
        let (mut low, mut high) = (0.0, 1e12);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            match self.loss(middle) < LOSS {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// What is answered of that.
    pub fn served_qps(&self) -> f64 {
        self.sent_qps() * (1.0 - LOSS)
    }

    /// The share that is lost; a cache that is overloaded loses hits and misses alike.
    fn loss(&self, sent_qps: f64) -> f64 {
        let passed = match self.cache * sent_qps > self.cache_qps {
            true => self.cache_qps / (self.cache * sent_qps),
            false => 1.0,
        };
        let is_before = self.cache > self.hits;
        let arriving = sent_qps * if is_before { passed } else { 1.0 };
        let over = |share: &f64| (share * arriving - self.back_end_qps).max(0.0);
        let lost: f64 = self.back_ends.iter().map(over).sum();
        self.cache * (1.0 - passed) + lost / sent_qps.max(1e-9)
    }
}

/// Keys that are divided one by one; the next one has less than a millionth of the load.
const SINGLE: u64 = 200_000;
