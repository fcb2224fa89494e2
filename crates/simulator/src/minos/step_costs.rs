//! The cost of each step of a request on a core, in nanoseconds.
//!
//! Two sets. [`Prices::paper`] reproduces the throughput that Minos's authors measured on their
//! machine; every number in it follows from a number in the paper, as said beside it.
//! [`Prices::of`] takes a file of costs, that of our own store unless another is given.

use crate::{
    costs::{FullCosts, SizeCosts},
    queueing::{link::LinkSpeed, times::Steps},
};

/// The costs of a node's steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// What the set is called in reports.
    pub name: &'static str,
    /// A request of one frame in and one out, without the store.
    pub request_ns: f64,
    /// Every further frame, in or out.
    pub frame_ns: f64,
    /// Reading an item.
    pub get: SizeCosts,
    /// Writing an item.
    pub set: SizeCosts,
    /// Between queues.
    pub steps: Steps,
    /// Counting a request's size, if the plan is learned.
    pub profile_ns: f64,
    /// Both directions of the network.
    pub link: LinkSpeed,
    /// What lies between client and queue, there and back, beside the link: card, bus, switch.
    pub wire_ns: u64,
}

/// What a request costs when cores are divided between small and large ones.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum PlanCost {
    /// Network packets, as in Minos (section 3.3).
    Packets,
    /// The time it takes a core.
    Time,
}

impl Prices {
    /// Minos's machine: 8 cores of 2.4 GHz, DPDK, 40 Gb/s.
    ///
    /// Derived: half writes saturate HKH at 7.0 million requests a second, 10 % above Minos's 6.3
    /// (section 6.2), so the mean is 8 / 7.0 = 1.14 us. There 7 small cores carry 6.3 M, so a small
    /// request with profiling is 1.11 us; at 5 % writes and p_L = 0.0625 they carry 6.9 M (section
    /// 6.3), so a write is 0.24 us above a read. What is left of the mean for large requests and
    /// profiling gives 0.5 us for a frame and 0.08 us. SHO's 5.6 M, 10 % below the others and
    /// bound by its hand-off core (section 6.1), give 175 ns for a hand-off. A mean read takes 5 us
    /// end to end (section 5.4), of which a core has 1.1. What lookup, taking and stealing cost is
    /// not in the paper: these are estimates of a few cache misses, and nothing hangs on them. What
    /// is delegated is given and taken.
    pub fn paper() -> Self {
        let flat = |ns| SizeCosts {
            points: vec![(8.0, ns)],
        };
        Self {
            name: "paper",
            request_ns: 910.0,
            frame_ns: 500.0,
            get: flat(0.0),
            set: flat(240.0),
            steps: Steps {
                lookup_ns: 200.0,
                give_ns: 175.0,
                take_ns: 100.0,
                move_ns: 5.0,
                steal_ns: 150.0,
                delegate_ns: 275.0,
            },
            profile_ns: 80.0,
            link: LinkSpeed {
                gigabits: 40.0,
                payload_bytes: 1_472,
            },
            wire_ns: 3_880,
        }
    }

    /// A file of costs, in turns of as many requests as it was measured with, and a link of
    /// 100 Gb/s. Finding an item is taken to cost what reading the shortest one does, a hand-off to
    /// be paid by both sides alike, stealing to cost as much as a hand-off, and counting a size 3
    /// ns.
    pub fn of(costs: &FullCosts, name: &'static str) -> Self {
        let half = costs.hand_off.ns / 2.0;
        Self {
            name,
            request_ns: costs.around_ns(costs.request.batch, 0),
            frame_ns: costs.network.frame_ns,
            get: costs.get.clone(),
            set: costs.set.clone(),
            steps: Steps {
                lookup_ns: costs.get.ns(0),
                give_ns: half,
                take_ns: half,
                move_ns: 5.0,
                steal_ns: costs.hand_off.ns,
                delegate_ns: costs.delegated_write.ns,
            },
            profile_ns: 3.0,
            link: LinkSpeed {
                gigabits: 100.0,
                payload_bytes: costs.network.mtu_bytes,
            },
            wire_ns: 0,
        }
    }

    /// Serving a request whole: received, found, copied, answered.
    #[inline]
    pub fn serve_ns(&self, write: bool, value_bytes: u32) -> f64 {
        let store = if write { &self.set } else { &self.get };
        let further = f64::from(self.packets(value_bytes) - 1);
        self.request_ns + further * self.frame_ns + store.ns(u64::from(value_bytes))
    }

    /// Network packets of a request: of what comes in for a write, of what goes out for a read.
    #[inline]
    pub fn packets(&self, value_bytes: u32) -> u32 {
        self.link.frames(value_bytes + MESSAGE_BYTES)
    }

    /// What a request counts for in a plan.
    #[inline]
    pub fn plan_cost(&self, cost: PlanCost, write: bool, value_bytes: u32) -> u32 {
        match cost {
            PlanCost::Packets => self.packets(value_bytes),
            PlanCost::Time => self.serve_ns(write, value_bytes) as u32,
        }
    }

    /// Bytes of a message without a value: key and header.
    pub(crate) const fn message_bytes() -> u32 {
        MESSAGE_BYTES
    }
}

/// 8 bytes of key, 16 of header: operation, size, request id, time stamp.
const MESSAGE_BYTES: u32 = 24;
