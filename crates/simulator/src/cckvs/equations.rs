//! ccKVS's equations (EuroSys 2018, section 8.7): throughput from what each request sends.
//!
//! A cluster of N nodes with a cache of the same hot keys on each is bound by its network. A
//! request that misses and whose key lives elsewhere costs a request and a reply; a write that hits
//! costs one update (SC), or an invalidation, an acknowledgement and an update (Lin), to each other
//! node. Divided into what the links carry, that is the throughput. The paper counts bytes against
//! 21.5 Gb/s; its section 8.4 says that what was really exhausted was the switch's packets, so
//! [`Link`] knows both and the scarcer one decides.

use curtail_consistency::replica::Model;
use curtail_workload::zipf_sums::top_share;

use super::{Count, MessageBytes, message_lengths};

/// A cluster under a load, as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotCopies {
    /// Nodes, 1 or more.
    pub nodes: u16,
    /// Share of the requests whose key every node has; 0 is no cache.
    pub hit_ratio: f64,
    /// Share of the requests that write.
    pub write_ratio: f64,
}

/// What a node's link carries in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Packets a second; infinite where only bytes count.
    pub packets_per_second: f64,
}

/// Packets and bytes on the network for one request of a client, the mean of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Packets.
    pub packets: f64,
    /// Bytes, headers included.
    pub bytes: f64,
}

/// What makes up a system's traffic; in a model bytes for one request of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficShares<T = f64> {
    /// Requests to other nodes and their replies: the cache's misses.
    pub misses: T,
    /// Hot writes that are sent to their primary, and its answers; the paper has none.
    pub forwarded: T,
    /// Values of hot writes.
    pub updates: T,
    /// Messages of a hot write that have no value (Lin): its announcement, or in a simulation,
    /// where the value travels with that, its end.
    pub invalidations: T,
    /// Acknowledgements of hot writes (Lin; in a simulation SC has them as well).
    pub acknowledgements: T,
    /// Messages that give back room for messages.
    pub credits: T,
}

impl HotCopies {
    /// Share of the requests that another node must carry out: (1 - h)(1 - 1/N).
    pub fn remote(&self) -> f64 {
        (1.0 - self.hit_ratio) * (1.0 - 1.0 / f64::from(self.nodes))
    }

    /// Copies of one kind of message about hot writes, for one request: h w (N - 1).
    pub fn copies(&self) -> f64 {
        self.hit_ratio * self.write_ratio * (f64::from(self.nodes) - 1.0)
    }

    /// Equations 1, 2, 4 and 6; each message a packet of its own.
    pub fn traffic(&self, bytes: &MessageBytes, model: Model) -> Traffic {
        Traffic {
            packets: self.remote() * 2.0 + self.copies() * message_lengths::kinds(model),
            bytes: self.remote() * bytes.remote() + self.copies() * bytes.hot_write(model),
        }
    }

    /// The same with `degree` requests, or replies, in a packet (section 8.5): they share its
    /// header. Messages about hot writes travel alone.
    pub fn coalesced(&self, bytes: &MessageBytes, model: Model, degree: f64) -> Traffic {
        let packets = self.traffic(bytes, model).packets;
        Traffic {
            packets: packets - self.remote() * 2.0 * (1.0 - 1.0 / degree),
            ..self.traffic(&bytes.coalesced(degree), model)
        }
    }

    /// Millions of requests a second of the whole cluster (equations 3, 5 and 7). Infinite if
    /// nothing is sent.
    pub fn throughput_mrps(&self, link: &Link, traffic: Traffic) -> f64 {
        let by_bytes = link.bytes_per_second / traffic.bytes;
        let by_packets = link.packets_per_second / traffic.packets;
        f64::from(self.nodes) * by_bytes.min(by_packets) / 1e6
    }

    /// What the bytes are spent on (Fig. 11). A credit is a header alone: one for 15 updates (SC),
    /// one for 30 messages of each kind (Lin).
    pub fn shares(&self, bytes: &MessageBytes, model: Model) -> TrafficShares {
        let copies = self.copies();
        let (one, messages_per_credit) = match model {
            Model::Sc => (0.0, 15.0),
            Model::Lin => (copies, 30.0),
        };
        TrafficShares {
            misses: self.remote() * bytes.remote(),
            forwarded: 0.0,
            updates: copies * bytes.update,
            invalidations: one * bytes.invalidation,
            acknowledgements: one * bytes.acknowledgement,
            credits: copies * message_lengths::kinds(model) * bytes.header / messages_per_credit,
        }
    }
}

impl Link {
    /// As the paper's equations have it: bytes alone, 21.5 Gb/s.
    pub const PAPER: Self = Self {
        bytes_per_second: 21.5e9 / 8.0,
        packets_per_second: f64::INFINITY,
    };

    /// As its section 8.4 explains them: 54 Gb/s, and as many packets as 21.5 Gb/s are at the mean
    /// length of a request and its reply.
    pub fn switched() -> Self {
        let mean = MessageBytes::paper(40).remote() / 2.0;
        Self {
            bytes_per_second: 54e9 / 8.0,
            packets_per_second: Self::PAPER.bytes_per_second / mean,
        }
    }
}

impl Link {
    /// As many messages as travel when `degree` of them share a packet.
    pub(crate) fn coalesced(&self, degree: f64) -> Self {
        Self {
            packets_per_second: self.packets_per_second * degree,
            ..*self
        }
    }
}

impl TrafficShares<Count> {
    /// The same in bytes.
    pub fn bytes(&self) -> TrafficShares {
        TrafficShares {
            misses: self.misses.bytes,
            forwarded: self.forwarded.bytes,
            updates: self.updates.bytes,
            invalidations: self.invalidations.bytes,
            acknowledgements: self.acknowledgements.bytes,
            credits: self.credits.bytes,
        }
    }
}

impl TrafficShares {
    /// All of it.
    pub fn total(&self) -> f64 {
        let hot = self.updates + self.invalidations + self.acknowledgements;
        self.misses + self.forwarded + hot + self.credits
    }
}

/// The write ratio below which caching on all of `nodes` carries more than no cache at all, for
/// messages of these lengths (CC-56): B_RR / (N B_X), whatever the hit ratio and the link.
pub fn break_even(nodes: u16, bytes: &MessageBytes, model: Model) -> f64 {
    bytes.remote() / (f64::from(nodes) * bytes.hot_write(model))
}

/// The most copies that a key of this write ratio deserves among `nodes` (CC-76): with r of them
/// it is below the break-even of r nodes. 1 is the home alone.
pub fn copies_worth(write_ratio: f64, nodes: u16, bytes: &MessageBytes, model: Model) -> u16 {
    let pays = |copies: &u16| write_ratio < break_even(*copies, bytes, model);
    (2..=nodes).rev().find(pays).unwrap_or(1)
}

/// Keys of the paper's store.
pub const STORED_KEYS: u64 = 250_000_000;

/// Share of the keys that the paper's caches hold.
pub const CACHED_SHARE: f64 = 0.001;

/// The exact share of the requests that hit a cache of the most popular `share` of the keys
/// (CC-45).
pub fn exact_hit_ratio(exponent: f64, share: f64) -> f64 {
    let cached = (STORED_KEYS as f64 * share).round() as u64;
    match cached {
        0 => 0.0,
        cached => top_share(cached, STORED_KEYS, exponent),
    }
}

/// The hit ratio that the paper says it expects (section 7.1), where it says one.
pub fn stated_hit_ratio(exponent: f64) -> Option<f64> {
    let stated = [(0.90, 0.46), (0.99, 0.65), (1.01, 0.69)];
    let same = |(known, _): &&(f64, f64)| (known - exponent).abs() < 1e-9;
    stated.iter().find(same).map(|(_, ratio)| *ratio)
}
