//! Which keys may be gone: those whose slices began empty, because nobody of an in-sync set lived.
//!
//! The views tell. What may be gone is judged as if somebody might have deleted it.

use std::{ops::RangeInclusive, sync::Arc};

use curtail_history::{Action, Entry, Numbered};
use curtail_membership::Roster;
use curtail_types::{Instant, NodeId, NodeSet};

use crate::support::route;

/// The views of an episode, in their order.
#[derive(Debug, Default)]
pub(crate) struct Views(Vec<Arc<Roster>>);

impl Views {
    /// Notes the newest; says whether it is another.
    pub(crate) fn note(&mut self, roster: Option<Arc<Roster>>) -> bool {
        let Some(roster) = roster else {
            return false;
        };
        let is_new = self
            .0
            .last()
            .is_none_or(|last| last.record.number != roster.record.number);
        if is_new {
            self.0.push(roster);
        }
        is_new
    }

    /// Those of `keys` that may be gone, each as often as that may have happened.
    pub(crate) fn losses(&self, keys: impl Iterator<Item = u64>) -> Vec<u64> {
        keys.flat_map(|key| vec![key; self.losses_of(&format!("k{key}"))])
            .collect()
    }

    /// Whether a key may be gone.
    pub(crate) fn may_lose(&self, key: &str) -> bool {
        self.losses_of(key) > 0
    }

    /// How often its slice began empty.
    fn losses_of(&self, key: &str) -> usize {
        let route = route(key);
        let born = |roster: &Arc<Roster>| {
            let slices = roster.slices()?;
            Some(slices.row(slices.slice_of(route))?.born)
        };
        let births: Vec<_> = self.0.iter().filter_map(born).collect();
        births.windows(2).filter(|pair| pair[0] != pair[1]).count()
    }

    /// How many nodes were removed that are not among `expected`.
    pub(crate) fn removed_wrongly(&self, expected: Vec<NodeId>) -> usize {
        let expected: NodeSet = expected.into_iter().collect();
        let removals = self.removals();
        removals.map(|gone| gone.difference(expected).len()).sum()
    }

    /// Whether node `id` was removed.
    pub(crate) fn removes(&self, id: usize) -> bool {
        self.removals().any(|gone| gone.contains(NodeId(id as u8)))
    }

    fn removals(&self) -> impl Iterator<Item = NodeSet> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        pairs.map(|(before, now)| removed(before, now))
    }
}

/// Who had a part in one view, and not as the same in the next.
fn removed(before: &Roster, now: &Roster) -> NodeSet {
    let life = |roster: &Roster, id| roster.node(id).map(|node| node.incarnation);
    let had = before.slices().map(|slices| slices.members);
    had.unwrap_or_default()
        .into_iter()
        .filter(|id| life(before, *id) != life(now, *id))
        .collect()
}

/// Entries with a deletion that may have happened for each loss of a key.
pub(crate) fn with_losses(
    entries: Vec<Entry>,
    may_be_lost: &[u64],
    began: Instant,
) -> impl Iterator<Item = Entry> {
    let deletion = move |(index, key): (usize, &u64)| Entry {
        client: LOSSES.start() + index as u32,
        key: *key,
        invoked: began,
        action: Action::Delete,
        returned: None,
    };
    let losses: Vec<Entry> = may_be_lost.iter().enumerate().map(deletion).collect();
    entries.into_iter().chain(losses)
}

/// Sessions without what they saw of keys that may be gone, from when they may be.
pub(crate) fn without_losses(
    seen: Vec<Numbered>,
    may_be_lost: &[u64],
    began: Instant,
) -> Vec<Numbered> {
    let keep = |mut one: Numbered| {
        let entry = &mut one.entry;
        let is_after = entry.returned.is_none_or(|(at, _)| at >= began);
        if !may_be_lost.contains(&entry.key) || !is_after {
            return Some(one);
        }
        entry.returned = None;
        matches!(entry.action, Action::Write(_)).then_some(one)
    };
    seen.into_iter().filter_map(keep).collect()
}

/// Numbers that no client has.
const LOSSES: RangeInclusive<u32> = 4_000_000_000..=u32::MAX;
