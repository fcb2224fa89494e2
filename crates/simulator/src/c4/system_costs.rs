//! What is in C-4's whole system and not in its queueing model: items of several sizes, caches, the
//! lines that cores take from each other, and what the network's stack costs.
//!
//! [`crate::C4Model`] is the frame: the balancer, the queues, the machines. A [`FullSystem`] says
//! how long its workers take. There are two kinds. [`FullSystem::paper`] is set so that a few
//! points of the paper's cycle-accurate simulation are met, and all others are then what the model
//! says about them; [`FullSystem::measured`] is what our own store and server cost.
//!
//! ```text
//! at a worker:  | read or write | + cold item | + journeys of the item's lines | network stack |
//!               |<------- the item's version is odd during a write ----------->|
//! ```
//!
//! Not included: associativity and sizes of private caches, the memory's bandwidth, the on-chip
//! network, software of other systems (RLU and MV-RLU, with which the paper compares).

use clap::ValueEnum;
use curtail_dispatch::SharedWriters;

use crate::costs::FullCosts;

/// Times of a whole system, in nanoseconds of a worker.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FullSystem {
    /// Mean time in the store for reading an item that is in a cache.
    pub read_ns: u64,
    /// The same for writing it.
    pub write_ns: u64,
    /// What is added for an item that is in no cache.
    pub cold_ns: u64,
    /// The most popular items, which are in a cache.
    pub warm_items: u64,
    /// A popular item's lines come to a worker that reads it and has no copy.
    pub line_read_ns: u64,
    /// They come to a worker that writes it: for each other worker that is at the item then.
    pub line_write_ns: u64,
    /// Looking for another write in the queue, for every write, if there is compaction.
    pub scan_ns: u64,
    /// Putting a write aside.
    pub put_aside_ns: u64,
    /// The write that stands for a window, beyond an ordinary one.
    pub apply_ns: u64,
    /// Around the store: network stack, decoding, answering.
    pub fixed_ns: u64,
    /// The part of it that is for requests which come from a balancer.
    pub balancer_ns: u64,
    /// From the balancer to a worker, and back.
    pub channel_ns: u64,
    /// Outstanding writes of a partition that the table of exclusive writers counts; with one more,
    /// everything waits.
    pub writes_max: u32,
}

/// Whose costs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, ValueEnum)]
pub enum Calibration {
    /// The costs of the paper's cycle-accurate simulation.
    Paper,
    /// The costs of a file, measured on curtail's store.
    Measured,
}

/// The paper's three sizes of items (section 6).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, ValueEnum)]
pub enum Items {
    /// Keys and values of 8 bytes.
    Tiny,
    /// Keys of 16 bytes, values of 128.
    Medium,
    /// Keys of 16 bytes, values of 512.
    Large,
}

impl Calibration {
    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Measured => "measured",
        }
    }
}

impl Items {
    /// The length of a value.
    pub fn value_bytes(self) -> u64 {
        match self {
            Self::Tiny => 8,
            Self::Medium => 128,
            Self::Large => 512,
        }
    }

    fn key_bytes(self) -> u64 {
        match self {
            Self::Tiny => 8,
            Self::Medium | Self::Large => 16,
        }
    }
}

impl FullSystem {
    /// The paper's, 64 cores of 2 GHz with 64 MB of shared cache. Stated there: the stack's 100 ns,
    /// 100 ns for putting a write aside, 30 ns to a worker. Set here so that the model meets these:
    ///
    /// ```text
    /// cold_ns        Fig. 9's Ideal, 95 MRPS
    /// write_ns       Fig. 9's d-CREW with 50 % writes, 91 MRPS
    /// read_ns        Fig. 11b's hot thread without load, 378 ns with the stack; smaller items:
    ///                Table 2's throughput with compaction, which reads limit
    /// line_*_ns      Fig. 11a's baseline, 76 MRPS; smaller items have fewer lines
    /// scan_ns        the 4 MRPS that scanning costs (section 7.1.1)
    /// ```
    pub fn paper(items: Items) -> Self {
        let (read_ns, write_ns, line_read_ns, line_write_ns) = match items {
            Items::Tiny => (60, 80, 8, 3),
            Items::Medium => (190, 230, 8, 3),
            Items::Large => (278, 350, 20, 7),
        };
        let item_bytes = items.key_bytes() + items.value_bytes() + OVERHEAD_BYTES;
        Self {
            read_ns,
            write_ns,
            cold_ns: 300,
            warm_items: CACHE_BYTES / item_bytes,
            line_read_ns,
            line_write_ns,
            scan_ns: 62,
            put_aside_ns: 100,
            apply_ns: 0,
            fixed_ns: 100,
            balancer_ns: 0,
            channel_ns: 30,
            writes_max: 63,
        }
    }

    /// Ours, in turns of `batch` requests. The store's times are those of cold memory, so that no
    /// item is warm; every request comes from the balancer over a ring.
    pub fn measured(costs: &FullCosts, items: Items, batch: u32) -> Self {
        let bytes = items.value_bytes();
        let around = costs.around_ns(batch, items.key_bytes() + bytes);
        Self {
            read_ns: whole(costs.get.ns(bytes)),
            write_ns: whole(costs.set.ns(bytes)),
            cold_ns: 0,
            warm_items: u64::MAX,
            line_read_ns: whole(costs.contended.read_ns(1.0)),
            line_write_ns: whole(costs.contended.write_ns(1.0)),
            scan_ns: whole(costs.put_aside.ns),
            put_aside_ns: whole(costs.put_aside.ns),
            apply_ns: whole(costs.apply.ns),
            fixed_ns: whole(around + costs.hand_off.ns),
            balancer_ns: whole(costs.hand_off.ns),
            channel_ns: whole(costs.hand_off.ns),
            writes_max: u32::from(SharedWriters::<1>::WRITES_MAX),
        }
    }

    /// The mean service time S that limits on latency are multiples of: a read of an item that is
    /// in no cache, undisturbed.
    pub fn service_ns(&self) -> u64 {
        let all_warm = self.warm_items >= crate::KEYS;
        let cold = if all_warm { 0 } else { self.cold_ns };
        self.read_ns + cold + self.fixed_ns
    }
}

/// At least one nanosecond, so that time passes.
fn whole(ns: f64) -> u64 {
    (ns.round() as u64).max(1)
}

/// The shared cache of the paper's processor.
const CACHE_BYTES: u64 = 64 << 20;
/// A MICA item's header and its part of the index.
const OVERHEAD_BYTES: u64 = 32;
