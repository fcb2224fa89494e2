//! The clients: each has one request outstanding, at any node (Lin) or at its own (SC).

use curtail_types::{Cas, NodeId};
use curtail_workload::Random;

use super::{
    packet::{Command, Demand, Done, Effect},
    record::Asked,
};

/// A client's session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// Its number in the record, for each key; another one after whatever ends what it may expect
    /// of the key.
    clients: Vec<u32>,
    /// The node that it is bound to.
    pub(super) pinned: Option<NodeId>,
    /// What it waits for, and where.
    pub(super) asked: Option<(Asked, NodeId)>,
    /// Of each key, the item that it saw last.
    seen: Vec<Option<(Cas, u64)>>,
    /// Of each key, the newest version that it saw.
    newest: Vec<Cas>,
}

impl Session {
    pub(super) fn new(client: u32, keys: usize) -> Self {
        Self {
            clients: vec![client; keys],
            pinned: None,
            asked: None,
            seen: vec![None; keys],
            newest: vec![Cas(0); keys],
        }
    }

    /// Who asks about this key.
    pub(super) fn client(&self, key: usize) -> u32 {
        self.clients[key]
    }

    /// It ends, and its client begins another.
    pub(super) fn renew(&mut self, client: u32) {
        self.clients.fill(client);
        self.newest.fill(Cas(0));
        self.pinned = None;
    }

    /// It forgets what it saw of a key, and expects nothing of what it asks about it just now, for
    /// that may be answered with what there was or with what there is.
    pub(super) fn part_from(&mut self, key: usize, [now, later]: [u32; 2]) {
        self.clients[key] = later;
        self.newest[key] = Cas(0);
        if let Some((asked, _)) = &mut self.asked
            && asked.demand.key == key
        {
            asked.client = now;
        }
    }

    /// Whether it saw a later write of the key than this one, or may yet.
    pub(super) fn may_have_seen_after(&self, key: usize, version: Cas) -> bool {
        let asks = self.asked.is_some_and(|(asked, _)| asked.demand.key == key);
        asks || self.newest[key] > version
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
        let newest = &mut self.newest[demand.key];
        *newest = effect.version.max(*newest);
        let value = match (effect.outcome, demand.command) {
            (Done::Value(value) | Done::Counted { to: value, .. }, _) => value,
            (Done::Written, Command::Set(value) | Command::Add(value)) => value,
            (Done::Written, Command::Swap { new, .. }) => new,
            _ => return,
        };
        self.seen[demand.key] = Some((effect.version, value));
    }
}

/// Increments of one value that do not reach the next.
const VALUE_BITS: u32 = 20;
