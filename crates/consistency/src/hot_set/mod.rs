//! The hot set: which keys the coordinator chooses at the end of every epoch.
//!
//! Every node sees the same mix of requests, so one node's report is enough to find the hottest
//! keys (ccKVS, Gavrielatos, Katsarakis et al., EuroSys 2018, section 4); two or three are merged
//! for the case that clients do not spread evenly (requirement CC-80). The paper's hot set is
//! static; how it changes here is requirement CC-73:
//!
//! - As many keys as fit are hot, those asked for most. Loads are samples, so that a key takes the
//!   place of another only if it is hotter by a fifth *and* by more than chance explains.
//! - A key whose writes would cost more messages than its reads save stays with its home (CC-56,
//!   CC-76): caching pays below the write ratio w* = `B_RR` / (N `B_X`), whatever the load.
//! - Who came stays for two epochs at least. At most 64 keys are on their way at a time.
//!
//! The coordinator only proposes. What holds is what the home of a key has come to with it, and
//! every node hears of that, since every node has the hot keys. So each node can be told the same
//! of them, and another coordinator begins where the former ended; a proposal that is lost with the
//! former, or on the way, is made again while its reason lasts.
//!
//! ```text
//!            promote             became_hot           demote             became_cold
//!   (none) ----------> promoting ----------> hot ----------> demoting ----------> (none)
//!      ^------ overdue ----'                  ^---- overdue -----'
//! ```

use alloc::{collections::BTreeMap, vec::Vec};

use curtail_types::{HotSetChange, HotSetEpoch, KeyName, Load, LoadReport, UnlikeReports};

mod config;
mod decision;

pub use config::{HotSetConfig, MessageBytes};

use decision::Decision;

/// The hot set as its coordinator sees it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HotSet {
    config: HotSetConfig,
    epoch: HotSetEpoch,
    known: BTreeMap<KeyName, Known>,
}

/// A key that is hot, or on its way.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Known {
    state: State,
    /// The epoch at whose end it came into this state.
    since: HotSetEpoch,
    load: Load,
    writes: Load,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum State {
    Promoting,
    Hot,
    Demoting,
}

impl HotSet {
    /// Reports that are merged.
    pub const REPORTS_MAX: usize = 3;

    /// A set of which nothing is known yet. Who takes over from another coordinator tells it every
    /// key that is hot, with [`HotSet::became_hot`], or has done so all along.
    pub const fn new(config: HotSetConfig) -> Self {
        Self {
            config,
            epoch: HotSetEpoch(0),
            known: BTreeMap::new(),
        }
    }

    /// The key is hot on this node, whoever proposed it. It stays for a while from now on.
    pub fn became_hot(&mut self, key: KeyName) {
        let since = self.epoch;
        let unknown = Known {
            state: State::Hot,
            since,
            load: Load(0),
            writes: Load(0),
        };
        let known = self.known.entry(key).or_insert(unknown);
        if known.state == State::Promoting {
            (known.state, known.since) = (State::Hot, since);
        }
    }

    /// The key is not hot, or its promotion was given up.
    pub fn became_cold(&mut self, key: &KeyName) {
        self.known.remove(key);
    }

    /// Keys that are hot as far as is known here, those on their way out included.
    pub fn hot(&self) -> impl Iterator<Item = &KeyName> {
        let known = self.known.iter();
        known.filter_map(|(key, known)| (known.state != State::Promoting).then_some(key))
    }

    /// Keys on their way in or out.
    pub fn in_flight(&self) -> usize {
        let known = self.known.values();
        known.filter(|known| known.state != State::Hot).count()
    }

    /// What to change at the end of `epoch`, with `nodes` that replicate and the reports of 1 to
    /// [`HotSet::REPORTS_MAX`] of them; more are not looked at. Without a report, or at the end of
    /// an epoch that has ended before, nothing. Allocates: once in an epoch.
    ///
    /// # Errors
    /// When two nodes do not measure alike; nothing is changed then.
    pub fn end_epoch(
        &mut self,
        epoch: HotSetEpoch,
        reports: &[LoadReport],
        nodes: usize,
    ) -> Result<HotSetChange, UnlikeReports> {
        let reports = reports.iter().take(Self::REPORTS_MAX);
        let merged = LoadReport::merged(reports, usize::MAX)?;
        let mut change = HotSetChange {
            epoch,
            ..HotSetChange::default()
        };
        if epoch <= self.epoch {
            return Ok(change);
        }
        self.begin_epoch(epoch);
        if let Some(merged) = merged {
            self.weigh(&merged);
            Decision::new(self, &merged, nodes).make(&mut change);
            self.propose(&change, &merged);
        }
        Ok(change)
    }

    /// Proposals of which nothing was heard are forgotten, and may be made again. Who was no
    /// coordinator for a while knows little of its keys: all of them stay for now.
    fn begin_epoch(&mut self, epoch: HotSetEpoch) {
        let patience = self.config.overdue_epochs;
        let was_away = epoch.0 - self.epoch.0 > patience.max(1);
        self.epoch = epoch;
        let is_overdue = |known: &Known| epoch.0 - known.since.0 >= patience;
        self.known
            .retain(|_, known| known.state != State::Promoting || !is_overdue(known));
        for known in self.known.values_mut() {
            if known.state == State::Demoting && is_overdue(known) {
                // It came long ago, so that it need not stay.
                known.state = State::Hot;
            }
            if was_away {
                known.since = epoch;
            }
        }
    }

    /// Gives every known key its latest load. One that is not reported had no request: its average
    /// falls as equation 2.1 of Li 2016 says.
    fn weigh(&mut self, merged: &LoadReport) {
        let mut reported: Vec<_> = merged.keys.iter().collect();
        reported.sort_unstable_by_key(|reported| reported.key);
        let rest = Load::ONE.0.saturating_sub(u64::from(merged.scale.alpha));
        let fall = |load: Load| Load(((u128::from(load.0) * u128::from(rest)) >> 16) as u64);
        for (key, known) in &mut self.known {
            let found = reported.binary_search_by(|reported| reported.key.cmp(key));
            match found.ok().and_then(|at| reported.get(at)) {
                Some(reported) => (known.load, known.writes) = (reported.load, reported.writes),
                None => (known.load, known.writes) = (fall(known.load), fall(known.writes)),
            }
        }
    }

    fn propose(&mut self, change: &HotSetChange, merged: &LoadReport) {
        let since = self.epoch;
        for key in &change.demote {
            if let Some(known) = self.known.get_mut(key) {
                (known.state, known.since) = (State::Demoting, since);
            }
        }
        let mut reported = merged.keys.iter();
        for key in &change.promote {
            // Both are in the order of loads.
            let Some(reported) = reported.find(|reported| reported.key == *key) else {
                return;
            };
            let promoting = Known {
                state: State::Promoting,
                since,
                load: reported.load,
                writes: reported.writes,
            };
            self.known.insert(*key, promoting);
        }
    }
}

#[cfg(test)]
mod tests;
