//! One decision of the coordinator: which keys it promotes and demotes, within the bounds.

use core::cmp::Ordering;

use alloc::vec::Vec;

use curtail_types::{HotSetChange, KeyLoad, KeyName, Load, LoadReport};

use super::{HotSet, Known, State};

/// What one decision looks at.
pub(super) struct Decision<'a> {
    set: &'a HotSet,
    merged: &'a LoadReport,
    nodes: usize,
    /// Hot keys that may go, the coldest last.
    victims: Vec<(&'a KeyName, &'a Known)>,
    /// Keys that are hot or will be.
    taken: usize,
    /// Keys that may still be sent on their way.
    allowance: usize,
}

impl<'a> Decision<'a> {
    pub(super) fn new(set: &'a HotSet, merged: &'a LoadReport, nodes: usize) -> Self {
        let stay = set.config.stay_epochs.max(1);
        let may_go =
            |known: &Known| known.state == State::Hot && set.epoch.0 - known.since.0 >= stay;
        let known = set.known.iter();
        let mut victims: Vec<_> = known.filter(|(_, known)| may_go(known)).collect();
        victims.sort_by(hotter_first);
        let taken = set.known.values();
        Self {
            set,
            merged,
            nodes,
            victims,
            taken: taken.filter(|known| known.state != State::Demoting).count(),
            allowance: set.config.in_flight_max.saturating_sub(set.in_flight()),
        }
    }

    pub(super) fn make(mut self, change: &mut HotSetChange) {
        self.send_away(change);
        let config = &self.set.config;
        for key in &self.merged.keys {
            if self.allowance == 0 || key.load < config.load_min {
                break;
            }
            if self.set.known.contains_key(&key.key)
                || change.demote.contains(&key.key)
                || !config.is_worth_a_place(key, self.nodes)
            {
                continue;
            }
            if !self.find_room(key, change) {
                break;
            }
            change.promote.push(key.key);
            self.taken += 1;
            self.allowance -= 1;
        }
    }

    /// Demotes who is a burden, who is not asked for any more, and who is too many.
    fn send_away(&mut self, change: &mut HotSetChange) {
        let (config, nodes, scale) = (&self.set.config, self.nodes, &self.merged.scale);
        let mut excess = self.taken.saturating_sub(config.keys_max);
        let mut kept = Vec::with_capacity(self.victims.len());
        while let Some((key, known)) = self.victims.pop() {
            let is_burden = config.is_a_burden(known, nodes, scale);
            let is_idle = config.is_clearly_above(config.load_min, known.load, scale);
            if self.allowance > 0 && (is_burden || is_idle || excess > 0) {
                excess = excess.saturating_sub(1);
                self.demote(key, change);
            } else {
                kept.push((key, known));
            }
        }
        kept.reverse();
        self.victims = kept;
    }

    /// Whether there is a place for `key`, if need be that of the coldest.
    fn find_room(&mut self, key: &KeyLoad, change: &mut HotSetChange) -> bool {
        let config = &self.set.config;
        if self.taken < config.keys_max {
            return true;
        }
        let Some(&(victim, known)) = self.victims.last() else {
            return false;
        };
        let is_above = config.is_clearly_above(key.load, known.load, &self.merged.scale);
        if self.allowance < 2 || !is_above {
            return false;
        }
        self.victims.pop();
        self.demote(victim, change);
        true
    }

    fn demote(&mut self, key: &KeyName, change: &mut HotSetChange) {
        change.demote.push(*key);
        self.taken -= 1;
        self.allowance -= 1;
    }
}

fn hotter_first(one: &(&KeyName, &Known), other: &(&KeyName, &Known)) -> Ordering {
    let rank = |known: &Known, key: &KeyName| (core::cmp::Reverse::<Load>(known.load), *key);
    rank(one.1, one.0).cmp(&rank(other.1, other.0))
}
