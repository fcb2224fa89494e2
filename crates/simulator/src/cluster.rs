//! Whole clusters in virtual time: does the production machine keep its promises?
//!
//! Every node has the machines of [`consistency::replica`](curtail_consistency::replica) that a
//! server has, and a bounded store of numbers; a store of views and leases stand for the
//! membership. The network loses, doubles and delays, nodes stop and come back empty, leave and
//! join, clocks disagree, keys become hot and cold, stores are full. A run has two phases.
//! *Safety*: faults at will, and afterwards every answer must be explained: by one order in real
//! time (Lin), or by the order of the writes that the store claims (SC); what was lost must have
//! been counted. *Liveness*: everything is healed, and every request must end, every slice be where
//! it belongs, every copy the same.
//!
//! A run is decided by its settings and its seed, so the line that [`ClusterRun`] prints as repeats
//! it.

mod clients;
mod clock;
mod command;
mod faults;
mod histories;
mod host;
mod keys;
mod mutant;
mod network;
mod node;
mod packet;
mod run_state;
mod store;
#[cfg(test)]
mod tests;
mod world;

use std::fmt;

use curtail_consistency::replica::Model;

pub use command::ClusterArgs;
pub(crate) use command::simulate;
pub use faults::{Fault, Faults};
pub use mutant::Mutant;

/// A run of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterRun {
    /// Decides everything that happens.
    pub seed: u64,
    /// Nodes, 1 to 16.
    pub nodes: u8,
    /// Nodes that hold a slice.
    pub replicas: usize,
    /// How the copies of a hot key agree.
    pub model: Model,
    /// What may go wrong.
    pub faults: Faults,
    /// Operations that clients begin.
    pub operations: u64,
    /// Keys.
    pub keys: usize,
    /// Slices that these are divided into.
    pub slices: u16,
    /// Clients.
    pub sessions: usize,
    /// What a full store does; by the seed if `None`.
    pub memory_full: Option<MemoryFull>,
    /// A planted error.
    pub mutant: Option<Mutant>,
    /// A key of which every step is shown on standard error.
    pub trace: Option<usize>,
}

/// What a store does that is full.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum MemoryFull {
    /// It evicts.
    Evict,
    /// It refuses writes (`-M`).
    Refuse,
    /// It is never full.
    Ample,
}

impl MemoryFull {
    const ALL: [Self; 3] = [Self::Evict, Self::Refuse, Self::Ample];
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterOutcome {
    /// What is wrong, if anything is.
    pub failure: Option<String>,
    /// Operations that were answered.
    pub answered: u64,
    /// Operations that were refused without effect.
    pub refused: u64,
    /// Of these, for want of room.
    pub no_room: u64,
    /// Operations whose end nobody knows.
    pub unknown: u64,
    /// Packets between nodes.
    pub packets: u64,
    /// Things that happened.
    pub events: u64,
    /// Views that came into force at some node.
    pub views: u64,
    /// Crashes, and nodes that were removed.
    pub crashes: u64,
    /// Nodes that left in an orderly way.
    pub departures: u64,
    /// Keys that were to become hot.
    pub promotions: u64,
    /// Items that were evicted.
    pub evictions: u64,
    /// Flushes of a slice.
    pub flushes: u64,
    /// Times that a slice began empty because all its nodes in sync had died.
    pub lost: u64,
    /// Requests that waited while a node was in trouble.
    pub waits: u64,
    /// The longest that a request waited once nobody was in trouble any more.
    pub longest_wait_ns: u64,
    /// Virtual time, in nanoseconds.
    pub elapsed_ns: u64,
    /// Keys whose history was too hard to judge.
    pub unjudged: u64,
}

impl ClusterRun {
    /// Three nodes, one holder, every fault.
    pub fn new(seed: u64, model: Model) -> Self {
        Self {
            seed,
            nodes: 3,
            replicas: 1,
            model,
            faults: Faults::ALL,
            operations: 2_000,
            keys: 8,
            slices: 6,
            sessions: 8,
            memory_full: None,
            mutant: None,
            trace: None,
        }
    }

    /// Runs it, and judges it.
    pub fn run(&self) -> ClusterOutcome {
        let keys = keys::Keys::new(self);
        world::World::new(self, &keys).run()
    }
}

/// The command that repeats it.
impl fmt::Display for ClusterRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = self.model;
        write!(
            f,
            "curtail simulate cluster --seed {} --nodes {} --replicas {} --model {model} \
             --faults {} --operations {} --keys {} --slices {} --sessions {}",
            self.seed,
            self.nodes,
            self.replicas,
            self.faults,
            self.operations,
            self.keys,
            self.slices,
            self.sessions
        )?;
        if let Some(full) = self.memory_full {
            write!(f, " --memory-full {}", crate::command::name_of(&full))?;
        }
        if let Some(mutant) = self.mutant {
            write!(f, " --mutant {mutant}")?;
        }
        Ok(())
    }
}

/// Machines of a node.
const STAGES: u16 = 2;
