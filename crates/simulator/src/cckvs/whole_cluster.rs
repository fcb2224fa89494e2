//! Whole clusters of ccKVS in virtual time: what the equations leave out.
//!
//! ```text
//!   clients ──> request threads ─ hot ──> copies: `Replica`s, the production machine
//!                  │    ^  ^        other copies  ^
//!                  │cold│  └──── INV, ACK, VAL ───┴──> port ──> switch ──> port ──> request thread
//!                  v    │
//!              store thread of the key's home, here or through the ports
//! ```
//!
//! A thread works in turns: it takes what waits, spends the time that items and packets cost, and
//! sends. A port passes a packet at a time, as fast as the packets' or the bytes' limit allows. So
//! the sums of [`super::HotCopies`] are not put in: queues, credits, batches, the placement of keys
//! and what a blocked write waits for are, and throughput is what comes out. The protocol's
//! messages are those that `curtail-consistency` emits. A hot key enters the machines, already hot,
//! when it is first written; until then all copies are valid and no machine would be asked.
//!
//! That protocol is not the paper's in three points, since it has to survive losses and failures:
//! under SC a write is sent to the key's primary, runs there, and its updates are acknowledged;
//! under Lin a write that meets another is sent to the primary and made again there; and the value
//! travels with the invalidation.
//!
//! Clients are a closed loop, as in the paper: each request thread has a number of sessions, and
//! their arrival costs nothing.

mod hardware_costs;
mod hot_keys;
mod port;
mod run;
mod thread;

use curtail_consistency::replica::Model;

pub use hardware_costs::Hardware;

use super::TrafficShares;

/// A cluster, its load, and how long to run it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WholeCluster {
    /// What its work costs.
    pub hardware: Hardware,
    /// Nodes, 2 to [`WholeCluster::NODES_MAX`].
    pub nodes: u16,
    /// Hot copies on every node, and how they agree.
    pub copies: Option<Model>,
    /// Each key is served by one store thread (EREW), not by any of its home's.
    pub is_exclusive: bool,
    /// The exponent of popularity; 0 is uniform.
    pub gamma: f64,
    /// Share of the requests whose key every node has, if there are copies.
    pub hit_ratio: f64,
    /// Share of the requests that write.
    pub write_ratio: f64,
    /// Length of values.
    pub value_bytes: u32,
    /// Requests to one thread, and replies, share packets.
    pub coalesces: bool,
    /// Requests under way of a request thread's clients.
    pub sessions: u32,
    /// Requests that are completed before measuring begins, for each session.
    pub warm_up: u32,
    /// Requests to complete after that.
    pub requests: u64,
    /// Of all randomness.
    pub seed: u64,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WholeOutcome {
    /// Millions of requests a second of the whole cluster.
    pub mrps: f64,
    /// The share of `mrps` whose key every node has.
    pub hits_mrps: f64,
    /// What was sent meanwhile, by purpose.
    pub sent: TrafficShares<Count>,
    /// Gigabits that a node's port passed each second in each direction, the mean of the nodes.
    pub link_gigabits: f64,
    /// Requests that a machine refused; none while nothing is lost.
    pub refused: u64,
    /// From when a session asks until it is answered, the mean.
    pub mean_us: f64,
    /// What 95 % of these do not exceed.
    pub p95_us: f64,
}

/// So many packets of so many bytes in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes, headers included.
    pub bytes: f64,
}

impl WholeCluster {
    /// Nodes that the machines' sets can name.
    pub const NODES_MAX: u16 = 64;

    /// Runs it.
    ///
    /// # Panics
    /// If there are fewer than 2 nodes or more than [`WholeCluster::NODES_MAX`].
    pub fn run(&self) -> WholeOutcome {
        assert!((2..=Self::NODES_MAX).contains(&self.nodes), "{self:?}");
        run::run(self)
    }

    /// Request threads of all nodes; there are as many store threads.
    fn threads(&self) -> u32 {
        u32::from(self.hardware.threads) * u32::from(self.nodes)
    }
}

#[cfg(test)]
mod tests;
