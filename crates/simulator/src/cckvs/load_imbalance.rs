//! The load imbalance of servers that share skewed keys by hash.

use curtail_workload::{mix, zipf_sums};

use super::{Link, MessageBytes, STORED_KEYS};

/// Shares of all requests that go to each server, the most loaded first.
#[derive(Clone, Debug, PartialEq)]
pub struct Shards(Vec<f64>);

impl Shards {
    /// One draw of a hash function: the most popular keys are placed one by one, the others, of
    /// which each is less than a millionth of the load, spread evenly.
    ///
    /// # Panics
    /// Without servers.
    pub fn draw(exponent: f64, servers: u16, seed: u64) -> Self {
        assert!(servers > 0, "keys need a server");
        let all = zipf_sums::harmonic(STORED_KEYS, exponent);
        let evenly = 1.0 - zipf_sums::harmonic(PLACED, exponent) / all;
        let mut shares = vec![evenly / f64::from(servers); usize::from(servers)];
        let of_seed = mix(seed);
        for rank in 0..PLACED {
            let server = mix(rank ^ of_seed) % u64::from(servers);
            shares[server as usize] += ((rank + 1) as f64).powf(-exponent) / all;
        }
        shares.sort_by(|one, other| other.total_cmp(one));
        Self(shares)
    }

    /// The shares, the largest first; they sum to 1.
    pub fn shares(&self) -> &[f64] {
        &self.0
    }

    /// The share of the most loaded server: the median of several draws from this seed on.
    pub fn hottest(exponent: f64, servers: u16, seed: u64) -> f64 {
        Self::middle(exponent, servers, seed).0
    }

    /// The seed of the draw that [`Shards::hottest`] is of.
    pub fn median(exponent: f64, servers: u16, seed: u64) -> u64 {
        Self::middle(exponent, servers, seed).1
    }

    fn middle(exponent: f64, servers: u16, seed: u64) -> (f64, u64) {
        let draw = |seed| (Self::draw(exponent, servers, seed).0[0], seed);
        let mut draws: Vec<(f64, u64)> = (seed..seed + DRAWS).map(draw).collect();
        draws.sort_by(|one, other| one.0.total_cmp(&other.0));
        draws[draws.len() / 2]
    }
}

/// Millions of requests a second without a cache when one server has the share `hottest` of the
/// load: its link is full first. Requests arrive at every node alike.
pub(crate) fn base_mrps(nodes: u16, hottest: f64, bytes: &MessageBytes, link: &Link) -> f64 {
    let nodes = f64::from(nodes);
    // What the hottest node answers to others, and what it asks of them, for one request of all.
    let answers = hottest * (1.0 - 1.0 / nodes);
    let asks = (1.0 - hottest) / nodes;
    let sent = answers * bytes.reply + asks * bytes.request;
    let received = answers * bytes.request + asks * bytes.reply;
    let by_bytes = link.bytes_per_second / sent.max(received);
    let by_packets = link.packets_per_second / (answers + asks);
    by_bytes.min(by_packets) / 1e6
}

/// Keys that are placed one by one.
const PLACED: u64 = 1 << 16;
/// Odd, so that there is a median.
const DRAWS: u64 = 15;
