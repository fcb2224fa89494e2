//! Whole clusters in virtual time: do the production machines keep their promises?
//!
//! Every node is a membership machine, the machines of symmetric caching, and a store of numbers;
//! a server drives the same machines from its workers. The network loses, doubles and delays, nodes
//! stop and come back, clocks disagree, keys become hot and cold. A run has two phases. *Safety*:
//! faults at will, and afterwards every answer must be explained: by one order in real time (Lin),
//! or by the order of the writes that the store claims (SC). *Liveness*: everything is healed, and
//! every request must end, every node be live, every copy the same.
//!
//! A run is decided by its settings and its seed, so the line that [`ClusterRun`] prints as repeats
//! it.

mod clients;
mod clock;
mod command;
mod faults;
mod keys;
mod mutant;
mod network;
mod node;
mod packet;
mod record;
mod world;

use std::fmt;

use curtail_consistency::symmetric::Model;

pub use command::ClusterArgs;
pub(crate) use command::simulate;
pub use faults::{Fault, Faults};
pub use mutant::Mutant;

/// A run of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterRun {
    /// Decides everything that happens.
    pub seed: u64,
    /// Nodes, 1 to 64.
    pub nodes: u8,
    /// Nodes that hold a key which is not hot.
    pub replicas: usize,
    /// How the copies of a hot key agree.
    pub model: Model,
    /// What may go wrong.
    pub faults: Faults,
    /// Operations that clients begin.
    pub operations: u64,
    /// Keys.
    pub keys: usize,
    /// Clients.
    pub sessions: usize,
    /// A wrong driver, for tests.
    pub mutant: Option<Mutant>,
    /// A key of which every step is shown on standard error.
    pub trace: Option<usize>,
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
    /// Operations whose end nobody knows.
    pub unknown: u64,
    /// Packets between nodes.
    pub packets: u64,
    /// Views that came into force at some node.
    pub views: u64,
    /// Crashes, and nodes that were removed.
    pub crashes: u64,
    /// Keys that were made hot.
    pub promotions: u64,
    /// Times that what there was of a key may have been lost, with the last node that was bound to
    /// have it.
    pub lost: u64,
    /// Requests for hot keys that waited while a node was in trouble.
    pub waits: u64,
    /// The longest that a request for a hot key waited once nobody was in trouble any more.
    pub longest_wait_ns: u64,
    /// Virtual time, in nanoseconds.
    pub elapsed_ns: u64,
    /// Keys whose history was too hard to judge.
    pub unjudged: u64,
}

impl ClusterRun {
    /// Three nodes, one holder, every fault that the model is made for.
    pub fn new(seed: u64, model: Model) -> Self {
        let faults = match model {
            Model::Lin => Faults::ALL,
            // Order within a link is what the session order of SC relies on.
            Model::Sc => Faults::ALL.without(Fault::Reorder),
        };
        Self {
            seed,
            nodes: 3,
            replicas: 1,
            model,
            faults,
            operations: 2_000,
            keys: 6,
            sessions: 8,
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
             --faults {} --operations {} --keys {} --sessions {}",
            self.seed,
            self.nodes,
            self.replicas,
            self.faults,
            self.operations,
            self.keys,
            self.sessions
        )?;
        if let Some(mutant) = self.mutant {
            write!(f, " --mutant {}", mutant.name())?;
        }
        Ok(())
    }
}
