//! The clients: each has one request outstanding, at any node (Lin) or at its own (SC).

use curtail_history::Outcome;
use curtail_types::{Cas, NodeId};
use curtail_workload::Random;

use super::{
    histories::Asked,
    packet::{Command, Demand, Effect, VALUE_BITS},
};

/// A client's session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// Its number in the record; another one after what ends what it may expect.
    pub(super) client: u32,
    /// The node that it is bound to.
    pub(super) pinned: Option<NodeId>,
    /// What it waits for, and where.
    pub(super) asked: Option<(Asked, NodeId)>,
    /// Of each key, the item that it saw last.
    seen: Vec<Option<(Cas, u64)>>,
}

impl Session {
    pub(super) fn new(client: u32, keys: usize) -> Self {
        Self {
            client,
            pinned: None,
            asked: None,
            seen: vec![None; keys],
        }
    }

    /// It ends, and its client begins another.
    pub(super) fn renew(&mut self, client: u32) {
        self.client = client;
        self.pinned = None;
    }

    /// Something to ask; values are never used twice.
    pub(super) fn demand(&self, number: u64, random: &mut Random) -> Demand {
        // Half of the requests go to the first key.
        let keys = self.seen.len() as u64;
        let key = (random.below(keys) * random.below(2)) as usize;
        let value = number << VALUE_BITS;
        let command = match (random.below(100), self.seen[key]) {
            (0..40, _) => Command::Get,
            (40..65, _) => Command::Set(value),
            (65..75, _) => Command::Increment(1 + random.below(99)),
            (75..80, _) => Command::Delete,
            (80..88, _) => Command::Add(value),
            (_, Some((version, expected))) => Command::Swap {
                version,
                expected,
                new: value,
            },
            (_, None) => Command::Get,
        };
        Demand {
            number,
            key,
            command,
        }
    }

    /// Remembers what it saw.
    pub(super) fn saw(&mut self, demand: &Demand, effect: &Effect) {
        let value = match effect.outcome {
            Outcome::Value(value) => Some(value),
            Outcome::Done => effect.action.leaves(),
            _ => None,
        };
        if let (Some(value), Some(stamp)) = (value, effect.stamp) {
            self.seen[demand.key] = Some((stamp.version, value));
        }
    }
}
