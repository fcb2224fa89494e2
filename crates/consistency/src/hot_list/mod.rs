//! The list of hot keys: which keys every member shall have a copy of (CL-10, CL-13; ccKVS,
//! Gavrielatos, Katsarakis et al., EuroSys 2018, section 4).
//!
//! ```text
//!   every node --HotReport--> coordinator (the lowest member) --HotList--> every node
//!     once an epoch             merges, weighs                  numbered     its primaries heat
//!                                                                            and cool their keys
//! ```
//!
//! All nodes report, so it does not matter which of them clients talk to. A key is worth a copy on
//! every node if its reads, of which all but one in N would be forwarded otherwise, save more time
//! than its writes cost, each of which tells N - 1 nodes. What a request, a forwarded request and a
//! message take, the nodes measure themselves.
//!
//! - A key comes as soon as one epoch shows that it is worth it by a fifth.
//! - A key goes after two epochs that show that it is not, each looked at alone: what it was asked
//!   for before does not keep it. It stays away for some epochs then.
//! - When the list is full, a key takes the place of another only if it is worth a quarter more.
//!
//! A list says the whole set, so a lost one does no harm, and another coordinator goes on from the
//! last. Of two lists the one with the later number holds.

mod bytes;
mod keys_to_heat;

use alloc::{collections::BTreeMap, vec::Vec};

use curtail_types::{KeyLoad, KeyName, Load, LoadReport, LoadScale, UnlikeReports, ViewNumber};

use crate::replica::Model;

pub use keys_to_heat::KeysToHeat;

/// What decides about the list.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct HotListConfig {
    /// Keys on the list at most; up to [`HotList::KEYS_MAX`]. 0: no key is hot.
    pub keys_max: usize,
    /// Requests for a key in a second, of all nodes together, from which on it may be hot. One that
    /// is stays until there are less than half as many.
    pub requests_min: u64,
    /// How copies agree, which decides how many messages a write takes.
    pub model: Model,
}

/// What a node has measured, each of it the time that processors take.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct HotCosts {
    /// A request that is answered where it arrives, in nanoseconds.
    pub local_ns: u32,
    /// A request that another node answers, at both nodes together.
    pub forwarded_ns: u32,
    /// A message between replicas, at both nodes together.
    pub message_ns: u32,
    /// A byte of a value in a message, at both nodes together, in picoseconds.
    pub byte_ps: u32,
}

/// What a node reports at the end of an epoch.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HotReport {
    /// The keys that its clients asked for most.
    pub load: LoadReport,
    /// How long the values of these keys are, in their order; 0 for what is not known.
    pub value_bytes: Vec<u32>,
    /// What it has measured; `None` before it has.
    pub costs: Option<HotCosts>,
}

/// Which of two lists is newer: the coordinator of a later view is right.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HotListNumber {
    /// The view of the coordinator.
    pub view: ViewNumber,
    /// Counts its lists and those that it took over.
    pub count: u32,
}

/// All hot keys.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct HotList {
    /// Which list this is.
    pub number: HotListNumber,
    /// The keys, in the order of their bytes.
    pub keys: Vec<KeyName>,
}

/// The node that decides about the list.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct HotCoordinator {
    config: HotListConfig,
    epoch: u64,
    list: HotList,
    known: BTreeMap<KeyName, Known>,
}

/// A key that is hot, or was of late.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Known {
    Hot {
        /// Its averaged load in the epoch before, and of that its writes.
        load: Load,
        writes: Load,
        /// Epochs in a row in which it was not worth it.
        idle: u32,
        /// What it saves beyond what it costs.
        gain: u128,
    },
    /// It does not come back before this epoch.
    Resting { until: u64 },
}

impl HotList {
    /// Keys that a list can have.
    pub const KEYS_MAX: usize = 512;
}

impl HotListConfig {
    /// So many keys at most; hot from 1,000 requests in a second on.
    pub const fn new(keys_max: usize, model: Model) -> Self {
        Self {
            keys_max,
            requests_min: 1000,
            model,
        }
    }

    /// Messages to each other node that a write of a hot key takes: to invalidate, to acknowledge
    /// and to validate; or to update and to acknowledge.
    const fn messages_per_write(&self) -> u128 {
        match self.model {
            Model::Lin => 3,
            Model::Sc => 2,
        }
    }

    fn load_min(&self, scale: &LoadScale) -> Load {
        let each = u128::from(scale.sampled_every.max(1)) * 1_000_000_000;
        let segment = u128::from(self.requests_min) * u128::from(scale.segment_ns);
        let load = segment * u128::from(Load::ONE.0) / each;
        Load(u64::try_from(load).unwrap_or(u64::MAX))
    }
}

impl HotCosts {
    /// What is taken for granted while no node has measured.
    pub const ASSUMED: Self = Self {
        local_ns: 1000,
        forwarded_ns: 5000,
        message_ns: 1200,
        byte_ps: 200,
    };

    /// The mean of what nodes have measured.
    fn mean(all: impl Iterator<Item = Self>) -> Self {
        let all: Vec<Self> = all.collect();
        let mean = |part: fn(&Self) -> u32| {
            let sum: u64 = all.iter().map(|costs| u64::from(part(costs))).sum();
            (sum / all.len().max(1) as u64) as u32
        };
        match all.is_empty() {
            true => Self::ASSUMED,
            false => Self {
                local_ns: mean(|costs| costs.local_ns),
                forwarded_ns: mean(|costs| costs.forwarded_ns),
                message_ns: mean(|costs| costs.message_ns),
                byte_ps: mean(|costs| costs.byte_ps),
            },
        }
    }
}

/// What a key's copies save and cost in an epoch, in the same unit.
#[derive(Clone, Copy, Debug)]
struct Worth {
    saves: u128,
    costs: u128,
}

impl Worth {
    /// With `nodes` that each have as many of the requests.
    fn of(
        (reads, writes, bytes): (Load, Load, u32),
        (nodes, messages): (u128, u128),
        costs: &HotCosts,
    ) -> Self {
        let ps = |ns: u32| u128::from(ns) * 1000;
        let value = u128::from(bytes) * u128::from(costs.byte_ps);
        let others = nodes.saturating_sub(1);
        let forwarded = ps(costs.forwarded_ns) + value;
        let saved = forwarded.saturating_sub(ps(costs.local_ns));
        let told = messages * ps(costs.message_ns) + value;
        Self {
            saves: u128::from(reads.0) * others * saved,
            costs: u128::from(writes.0) * nodes * others * told,
        }
    }

    const fn is_good(&self) -> bool {
        self.saves > 0 && self.saves >= self.costs
    }

    const fn is_clearly_good(&self) -> bool {
        self.saves > 0 && self.saves * 5 >= self.costs * 6
    }

    const fn gain(&self) -> u128 {
        self.saves.saturating_sub(self.costs)
    }
}

impl HotCoordinator {
    /// A coordinator that begins with no hot key.
    pub fn new(mut config: HotListConfig) -> Self {
        config.keys_max = config.keys_max.min(HotList::KEYS_MAX);
        Self {
            config,
            epoch: 0,
            list: HotList::default(),
            known: BTreeMap::new(),
        }
    }

    /// Goes on from the newest list, if another node has decided since.
    pub fn take_over(&mut self, list: &HotList) {
        if list.number <= self.list.number {
            return;
        }
        self.list = list.clone();
        let hot = Known::Hot {
            load: Load(0),
            writes: Load(0),
            idle: 0,
            gain: 0,
        };
        self.known = list.keys.iter().map(|key| (*key, hot)).collect();
    }

    /// The list that it has made last, or taken over.
    pub fn list(&self) -> &HotList {
        &self.list
    }

    /// The list after an epoch, with `nodes` members of view `view` and the reports of those that
    /// have come: at least one of this node. Always a list, which may be what it was: it is sent
    /// again, since one may be lost. Allocates: once in an epoch.
    ///
    /// # Errors
    /// When two nodes do not measure alike; nothing is changed then.
    pub fn end_epoch(
        &mut self,
        view: ViewNumber,
        nodes: usize,
        reports: &[HotReport],
    ) -> Result<&HotList, UnlikeReports> {
        let loads = reports.iter().map(|report| &report.load);
        let Some(merged) = LoadReport::merged(loads, usize::MAX)? else {
            return Ok(&self.list);
        };
        self.epoch += 1;
        let costs = HotCosts::mean(reports.iter().filter_map(|report| report.costs));
        let epoch = Epoch {
            sizes: sizes(reports),
            load_min: self.config.load_min(&merged.scale),
            nodes: (nodes as u128, self.config.messages_per_write()),
            costs,
            merged: &merged,
        };
        self.weigh_known(&epoch);
        self.admit(&epoch);
        let is_hot = |known: &Known| matches!(known, Known::Hot { .. });
        let hot = self.known.iter().filter(|(_, known)| is_hot(known));
        let keys: Vec<KeyName> = hot.map(|(key, _)| *key).collect();
        if keys != self.list.keys || view > self.list.number.view {
            let number = HotListNumber {
                view: view.max(self.list.number.view),
                count: self.list.number.count.wrapping_add(1),
            };
            self.list = HotList { number, keys };
        }
        Ok(&self.list)
    }

    /// A key that was not worth it for two epochs leaves; one that has rested may come again.
    fn weigh_known(&mut self, epoch: &Epoch<'_>) {
        let now = self.epoch;
        let reported = epoch.merged.keys.iter().map(|key| (&key.key, key));
        let reported: BTreeMap<&KeyName, &KeyLoad> = reported.collect();
        self.known.retain(|key, known| {
            let nothing = KeyLoad::default();
            let found = *reported.get(key).unwrap_or(&&nothing);
            match known {
                Known::Resting { until } => *until > now,
                Known::Hot {
                    load,
                    writes,
                    idle,
                    gain,
                } => {
                    let latest = epoch.latest(found, (*load, *writes));
                    let worth = epoch.worth(key, latest);
                    (*load, *writes, *gain) = (found.load, found.writes, worth.gain());
                    let is_asked_for = latest.0.plus(latest.0) >= epoch.load_min;
                    *idle = match is_asked_for && worth.is_good() {
                        true => 0,
                        false => *idle + 1,
                    };
                    if *idle >= IDLE_MAX {
                        *known = Known::Resting {
                            until: now + REST_EPOCHS,
                        };
                    }
                    true
                }
            }
        });
    }

    /// Admits the keys that are worth it, the best first.
    fn admit(&mut self, epoch: &Epoch<'_>) {
        let candidate = |key: &KeyLoad| {
            let worth = epoch.worth(&key.key, (key.load, key.writes));
            let is_new = !self.known.contains_key(&key.key) && key.key.key().is_ok();
            let comes = is_new && key.load >= epoch.load_min && worth.is_clearly_good();
            comes.then_some((worth.gain(), *key))
        };
        let mut coming: Vec<_> = epoch.merged.keys.iter().filter_map(candidate).collect();
        coming.sort_unstable_by(|one, other| (other.0, one.1.key).cmp(&(one.0, other.1.key)));
        let mut hot: Vec<(u128, KeyName)> = Vec::new();
        for (key, known) in &self.known {
            if let Known::Hot { gain, .. } = known {
                hot.push((*gain, *key));
            }
        }
        // The one that is worth the least is the last.
        hot.sort_unstable_by(|one, other| other.cmp(one));
        let mut count = hot.len();
        for (gain, key) in coming {
            if count >= self.config.keys_max {
                let Some((least, gone)) = hot.pop().filter(|(least, _)| gain * 4 > least * 5)
                else {
                    break;
                };
                debug_assert!(least <= gain);
                self.known.remove(&gone);
                count -= 1;
            }
            let known = Known::Hot {
                load: key.load,
                writes: key.writes,
                idle: 0,
                gain,
            };
            self.known.insert(key.key, known);
            count += 1;
        }
    }
}

/// Epochs in a row that a key is not worth it before it goes.
const IDLE_MAX: u32 = 2;

/// Epochs that a key stays away for, once it went.
const REST_EPOCHS: u64 = 5;

/// What one decision looks at.
struct Epoch<'a> {
    merged: &'a LoadReport,
    sizes: BTreeMap<KeyName, u32>,
    load_min: Load,
    nodes: (u128, u128),
    costs: HotCosts,
}

impl Epoch<'_> {
    fn worth(&self, key: &KeyName, (load, writes): (Load, Load)) -> Worth {
        let bytes = self.sizes.get(key).copied().unwrap_or(0);
        Worth::of((load.minus(writes), writes, bytes), self.nodes, &self.costs)
    }

    /// The load and the writes of the newest segment alone, out of averages with a falling weight
    /// (equation 2.1 of Li 2016, turned around).
    fn latest(&self, key: &KeyLoad, before: (Load, Load)) -> (Load, Load) {
        let alpha = u128::from(self.merged.scale.alpha.clamp(1, LoadScale::ALPHA_ONE));
        let one = u128::from(LoadScale::ALPHA_ONE);
        let latest = |now: Load, before: Load| {
            let rest = u128::from(before.0) * (one - alpha);
            let load = (u128::from(now.0) * one).saturating_sub(rest) / alpha;
            Load(u64::try_from(load).unwrap_or(u64::MAX))
        };
        let (load, writes) = (latest(key.load, before.0), latest(key.writes, before.1));
        (load, writes.min(load))
    }
}

fn sizes(reports: &[HotReport]) -> BTreeMap<KeyName, u32> {
    let mut sizes = BTreeMap::new();
    for report in reports {
        for (key, bytes) in report.load.keys.iter().zip(&report.value_bytes) {
            let size: &mut u32 = sizes.entry(key.key).or_default();
            *size = (*size).max(*bytes);
        }
    }
    sizes
}

#[cfg(test)]
mod tests;
