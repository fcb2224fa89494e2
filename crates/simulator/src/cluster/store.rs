//! The store of a node: a few items, in bounded room that is promised, taken and given back.

use std::collections::BTreeMap;

use curtail_consistency::replica::RunResult;
use curtail_history::Outcome;
use curtail_types::NodeId;

use super::packet::{Command, Demand, Effect, Item, Stamp};

/// Items by their keys, and room.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    items: Vec<Option<Item>>,
    used: u64,
    /// Room that the node needs for something else just now.
    pub(super) reserved: u64,
    /// Room that other nodes may count on, by stage and node.
    promised: BTreeMap<(u16, NodeId), u64>,
    /// Room in all; `None` if there is no end.
    pub(super) capacity: Option<u64>,
}

impl Store {
    pub(super) fn new(keys: usize, capacity: Option<u64>) -> Self {
        Self {
            items: vec![None; keys],
            capacity,
            ..Self::default()
        }
    }

    pub(super) fn item(&self, key: usize) -> Option<&Item> {
        self.items[key].as_ref()
    }

    pub(super) fn put(&mut self, key: usize, item: Option<Item>) {
        let bytes = |item: &Option<Item>| item.map_or(0, |item| u64::from(item.bytes));
        self.used = self.used + bytes(&item) - bytes(&self.items[key]);
        self.items[key] = item;
    }

    /// Whether more is stored than there is room for: a broken promise.
    pub(super) fn is_overfull(&self) -> bool {
        self.capacity.is_some_and(|capacity| self.used > capacity)
    }

    /// Room that nobody has and nobody was promised.
    fn free(&self) -> u64 {
        let promised: u64 = self.promised.values().sum();
        let taken = self.used + promised + self.reserved;
        self.capacity.unwrap_or(u64::MAX).saturating_sub(taken)
    }

    /// Whether an item of so many bytes may replace what is there.
    pub(super) fn fits(&self, key: usize, bytes: u32) -> bool {
        let before = self.items[key].map_or(0, |item| item.bytes);
        u64::from(bytes.saturating_sub(before)) <= self.free()
    }

    /// Keeps `held` for changes of a node, and up to `wanted` more; returns how many more.
    pub(super) fn promise(&mut self, to: (u16, NodeId), held: u64, wanted: u64) -> u64 {
        self.promised.insert(to, held);
        let more = wanted.min(self.free());
        self.promised.insert(to, held + more);
        more
    }

    /// Takes room out of what was promised; false if that is less.
    pub(super) fn spend(&mut self, of: (u16, NodeId), bytes: u64) -> bool {
        if self.capacity.is_none() {
            return true;
        }
        let promised = self.promised.entry(of).or_default();
        let is_enough = *promised >= bytes;
        if is_enough {
            *promised -= bytes;
        }
        is_enough
    }

    /// The nodes that room is promised to.
    pub(super) fn creditors(&self) -> impl Iterator<Item = NodeId> + '_ {
        let promised = self.promised.iter().filter(|(_, bytes)| **bytes > 0);
        promised.map(|((_, node), _)| *node)
    }

    /// Carries out a command; its write gets this stamp.
    pub(super) fn execute(&mut self, demand: &Demand, stamp: Stamp) -> (RunResult, Effect) {
        let key = demand.key;
        let before = self.items[key];
        let found = before.as_ref();
        let action = demand.command.on(found.map(|item| item.value));
        let refusal = match (demand.command, found) {
            (Command::Get, _) => return (RunResult::Unchanged, Effect::of_read(found)),
            (Command::Set(_), _) | (Command::Add(_), None) => None,
            (Command::Add(_), Some(_)) => Some(Outcome::Refused),
            (_, None) => Some(Outcome::Missing),
            (Command::Swap { version, .. }, Some(item)) => {
                (item.stamp.version != version).then_some(Outcome::Refused)
            }
            (Command::Delete | Command::Increment(_), Some(_)) => None,
        };
        if let Some(outcome) = refusal {
            return (
                RunResult::Unchanged,
                Effect::unchanged(action, outcome, found),
            );
        }
        let wrote = Effect::wrote(action, stamp, found);
        let Some(value) = action.leaves() else {
            self.put(key, None);
            return (RunResult::Removed, wrote);
        };
        let item = Item::new(stamp, value, demand.number);
        if !self.fits(key, item.bytes) {
            return (RunResult::NoRoom, wrote);
        }
        self.put(key, Some(item));
        (RunResult::Stored(item.bytes), wrote)
    }
}
