//! The switch's controller: it owns the table of rules, and takes the changes of cache nodes
//! (SW-18).
//!
//! It deletes all rules of a cache node that is silent, whose link is down, or that begins again
//! (SW-40): requests then go to back ends. A switch that comes back, or that another controller
//! had before, may have any rules. It tells which by their cookies (SW-43): the *life* of every
//! cache's rules rises, which tells the cache to name them all again; what it names is kept, and
//! when it has named all, the rest is deleted.
//!
//! Rules may be spread (CC-81): they lead to all cache nodes that say that they share and that are
//! not silent. The cache nodes are told who shares, and mark rules only while several do.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use curtail_types::{
    CacheId, CacheSet, Instant, KeyAddress, Rule, RuleCookie, RuleError, RuleTable,
};

use super::{
    mutant::RuleMutant,
    rule_sender::{RuleChange, RuleLife, RulesMessage, RulesStatus, RulesTaken},
};

/// The controller.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct RuleController {
    caches_max: usize,
    mutant: Option<RuleMutant>,
    /// Rules that were in the switch when it was found, and that no cache has named since.
    found: BTreeMap<KeyAddress, RuleCookie>,
    caches: BTreeMap<CacheId, RulesOfCache>,
    lives: u64,
    /// Cache nodes that share.
    sharing: CacheSet,
    /// Those that the switch knows of; none after it has lost its rules.
    spread: CacheSet,
    counts: RuleCounts,
}

/// What is known of a cache node.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct RulesOfCache {
    generation: u32,
    /// The last message that was taken, and what became of it.
    number: u64,
    status: RulesStatus,
    life: RuleLife,
    heard: Instant,
    /// It has been silent, and has no rules.
    is_silent: bool,
}

/// What a controller did.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct RuleCounts {
    /// Rules that were installed.
    pub installed: u64,
    /// Rules that were withdrawn.
    pub deleted: u64,
    /// Cache nodes that fell silent, or whose link went down.
    pub silences: u64,
    /// Cache nodes that began again.
    pub restarts: u64,
    /// Changes that the switch did not take.
    pub failed: u64,
    /// Times that the switch was found.
    pub switch_restarts: u64,
    /// Rules that were found and wanted.
    pub kept: u64,
    /// Rules that were found and not wanted.
    pub stale: u64,
}

impl RuleController {
    /// One for so many cache nodes; `lives` is above every life that another one named.
    pub fn new(caches_max: usize, lives: u64) -> Self {
        Self {
            caches_max,
            lives,
            ..Self::default()
        }
    }

    /// The same with an error planted, if one is given and this build can plant it.
    #[must_use]
    pub fn with_mutant(mut self, mutant: impl Into<Option<RuleMutant>>) -> Self {
        self.mutant = mutant.into();
        self
    }

    /// What it did.
    pub const fn counts(&self) -> &RuleCounts {
        &self.counts
    }

    /// Cache nodes that it knows, and those of them that are silent.
    pub fn caches(&self) -> (usize, usize) {
        let silent = self.caches.values().filter(|known| known.is_silent);
        (self.caches.len(), silent.count())
    }

    /// Rules that were found and that no cache node has named.
    pub fn unnamed(&self) -> usize {
        self.found.len()
    }

    /// The life of a cache node's rules.
    pub fn life(&self, id: CacheId) -> RuleLife {
        let known = self.caches.get(&id);
        known.map_or(RuleLife(0), |known| known.life)
    }

    /// The cache nodes to which rules that are spread lead; none while the switch is not told.
    pub fn spread_to(&self) -> CacheSet {
        match self.spread == self.sharing {
            true => self.spread,
            false => CacheSet::EMPTY,
        }
    }

    fn has(&self, mutant: RuleMutant) -> bool {
        cfg!(any(test, feature = "mutants")) && self.mutant == Some(mutant)
    }

    fn next_life(&mut self) -> RuleLife {
        self.lives += u64::from(self.lives == 0 || !self.has(RuleMutant::LifeKept));
        RuleLife(self.lives)
    }

    /// Takes the message of a cache node; none if it is of no cache node of this tier, or of one
    /// that has begun again since.
    pub fn take(
        &mut self,
        table: &mut dyn RuleTable,
        id: CacheId,
        message: &RulesMessage<'_>,
        now: Instant,
    ) -> Option<RulesTaken> {
        let generation = message.generation;
        if usize::from(id.0) >= self.caches_max {
            return None;
        }
        let begins = match self.caches.get(&id) {
            Some(known) if generation < known.generation => return None,
            Some(known) => known.is_silent || generation > known.generation,
            None => true,
        };
        if begins {
            self.begin_again(table, id, (generation, now));
        }
        if message.shares {
            self.sharing.insert(id);
        }
        self.tell_sharing(table);
        let mut known = *self.caches.get(&id)?;
        if message.number > known.number || self.has(RuleMutant::OldMessages) {
            let cookie = RuleCookie {
                cache: id,
                generation,
                is_spread: false,
            };
            let is_known = message.life == known.life;
            known.status = self.apply(table, cookie, message.changes, is_known);
            // A switch that does not answer has taken nothing: the cache sends it again.
            if known.status != RulesStatus::Busy {
                known.number = message.number;
            }
            let has_named_all =
                (message.is_all && is_known) || self.has(RuleMutant::UnnamedDeletedEarly);
            if has_named_all && known.status == RulesStatus::Done {
                self.delete_unnamed(table, id);
            }
        }
        self.caches.insert(id, known);
        Some(RulesTaken {
            generation,
            number: message.number,
            life: known.life,
            status: known.status,
            sharing: self.spread_to(),
        })
    }

    /// Tells the switch who shares, if that has changed. When nobody does any more, the rules of
    /// whoever did are gone, and nothing is to be told.
    fn tell_sharing(&mut self, table: &mut dyn RuleTable) {
        if self.spread == self.sharing || self.sharing.is_empty() {
            return;
        }
        let caches: Vec<CacheId> = self.sharing.iter().collect();
        if table.spread(&caches).is_ok() {
            self.spread = self.sharing;
        }
    }

    /// Something was heard of a cache node; when its changes are done, so that a switch that is
    /// slow makes no cache node silent.
    pub fn note_heard(&mut self, id: CacheId, now: Instant) {
        if let Some(known) = self.caches.get_mut(&id) {
            known.heard = now;
        }
    }

    /// The cache node has no rules from now on, and is told so.
    fn begin_again(
        &mut self,
        table: &mut dyn RuleTable,
        id: CacheId,
        (generation, now): (u32, Instant),
    ) {
        self.counts.restarts += 1;
        self.delete_rules_of(table, id);
        let cache = RulesOfCache {
            generation,
            life: self.next_life(),
            heard: now,
            ..RulesOfCache::default()
        };
        self.caches.insert(id, cache);
    }

    /// Rules that stay cost detours.
    fn delete_rules_of(&mut self, table: &mut dyn RuleTable, id: CacheId) {
        let deleted = table.delete_cache(id);
        self.counts.failed += u64::from(deleted.is_err());
        self.found.retain(|_, cookie| cookie.cache != id);
        if !self.has(RuleMutant::GoneShare) {
            self.sharing.remove(id);
        }
        self.tell_sharing(table);
    }

    fn apply(
        &mut self,
        table: &mut dyn RuleTable,
        cookie: RuleCookie,
        changes: &[RuleChange],
        is_named: bool,
    ) -> RulesStatus {
        // In order: of two changes of one rule the later counts. There are no two in a message,
        // because the cache's queue has one change of a key at a time; deletes go first, for room.
        let (mut installs, mut deletes) = (BTreeMap::new(), BTreeSet::new());
        for change in changes {
            let is_spread = change.is_spread;
            match change.is_install {
                true => {
                    deletes.remove(&change.key);
                    installs.insert(
                        change.key,
                        RuleCookie {
                            is_spread,
                            ..cookie
                        },
                    );
                }
                false => {
                    installs.remove(&change.key);
                    deletes.insert(change.key);
                }
            }
        }
        let ignores_mark = self.has(RuleMutant::MarkIgnored);
        let is_there = |key: &KeyAddress, wanted: &RuleCookie| {
            self.found.get(key).is_some_and(|found| match ignores_mark {
                true => (found.cache, found.generation) == (wanted.cache, wanted.generation),
                false => found == wanted,
            })
        };
        let (kept, installs): (BTreeMap<_, _>, BTreeMap<_, _>) = installs
            .into_iter()
            .partition(|(key, wanted)| is_there(key, wanted));
        let mut done = change(table, &installs, &deletes);
        if matches!(done, Err(RuleError::Full { .. })) && !self.found.is_empty() {
            self.delete_unnamed(table, cookie.cache);
            done = change(table, &installs, &deletes);
        }
        match done {
            Ok(()) => {
                self.counts.installed += installs.len() as u64;
                self.counts.deleted += deletes.len() as u64;
                self.counts.kept += kept.len() as u64;
                self.name(changes);
                if !is_named && !self.has(RuleMutant::LifeIgnored) {
                    // They are there, and the cache will name them if it still wants them.
                    let all = installs.iter().chain(&kept);
                    self.found.extend(all.map(|(key, cookie)| (*key, *cookie)));
                }
                RulesStatus::Done
            }
            Err(RuleError::Disconnected) => RulesStatus::Busy,
            Err(_) => {
                self.counts.failed += 1;
                self.name(changes);
                RulesStatus::Refused
            }
        }
    }

    /// These are as a cache wants them.
    fn name(&mut self, changes: &[RuleChange]) {
        for change in changes {
            self.found.remove(&change.key);
        }
    }

    /// Deletes what was found of a cache's rules and the cache does not want.
    fn delete_unnamed(&mut self, table: &mut dyn RuleTable, id: CacheId) {
        if self.has(RuleMutant::UnnamedKept) {
            return;
        }
        let unnamed = self.found.iter().filter(|(_, cookie)| cookie.cache == id);
        let unnamed: Vec<KeyAddress> = unnamed.map(|(key, _)| *key).collect();
        self.delete_stale(table, &unnamed);
    }

    fn delete_stale(&mut self, table: &mut dyn RuleTable, keys: &[KeyAddress]) {
        if keys.is_empty() {
            return;
        }
        match table.delete(keys) {
            Ok(()) => self.counts.stale += keys.len() as u64,
            // With its next connection the switch is looked at again.
            Err(_) => self.counts.failed += 1,
        }
        for key in keys {
            self.found.remove(key);
        }
    }

    /// Deletes the rules of cache nodes from which nothing is heard, and sees to it that the switch
    /// knows who shares.
    pub fn watch_silence(&mut self, table: &mut dyn RuleTable, now: Instant) {
        let is_late = |known: &RulesOfCache| now.ns.saturating_sub(known.heard.ns) >= SILENCE_NS;
        let caches = self.caches.iter();
        let late = caches.filter(|(_, known)| !known.is_silent && is_late(known));
        let late: Vec<CacheId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.silence(table, id);
        }
        self.tell_sharing(table);
    }

    /// A cache node is silent, or its link is down.
    pub fn silence(&mut self, table: &mut dyn RuleTable, id: CacheId) {
        self.counts.silences += 1;
        self.delete_rules_of(table, id);
        if let Some(known) = self.caches.get_mut(&id) {
            known.is_silent = true;
        }
    }

    /// The switch has been found, or has come back: nothing is known of its rules but what it says.
    pub fn reconcile(&mut self, table: &mut dyn RuleTable, now: Instant) {
        self.counts.switch_restarts += 1;
        if !self.has(RuleMutant::SharingKept) {
            self.spread = CacheSet::EMPTY;
        }
        self.tell_sharing(table);
        let Ok(rules) = table.dump() else {
            // The connection is lost; the next one brings this event again.
            self.counts.failed += 1;
            return;
        };
        let rules = rules.iter().map(|counted| counted.rule);
        self.found = rules.map(|rule| (rule.key, rule.cookie)).collect();
        let known = self.caches.keys().copied();
        let mut lives: Vec<CacheId> = known.collect();
        for cookie in self.found.values() {
            if usize::from(cookie.cache.0) >= self.caches_max {
                continue;
            }
            // A cache node that says nothing from now on is silent.
            let cache = RulesOfCache {
                generation: cookie.generation,
                heard: now,
                ..RulesOfCache::default()
            };
            let known = self.caches.entry(cookie.cache).or_insert(cache);
            known.generation = known.generation.max(cookie.generation);
            lives.push(cookie.cache);
        }
        for id in lives {
            let life = self.next_life();
            if let Some(known) = self.caches.get_mut(&id) {
                known.life = life;
            }
        }
        // Of a cache node that is no more, is silent, or was started again since.
        let caches = &self.caches;
        let is_old = |cookie: &RuleCookie| {
            let known = caches.get(&cookie.cache);
            known.is_none_or(|known| known.is_silent || known.generation != cookie.generation)
        };
        let old = self.found.iter().filter(|(_, cookie)| is_old(cookie));
        let old: Vec<KeyAddress> = old.map(|(key, _)| *key).collect();
        self.delete_stale(table, &old);
    }
}

fn change(
    table: &mut dyn RuleTable,
    installs: &BTreeMap<KeyAddress, RuleCookie>,
    deletes: &BTreeSet<KeyAddress>,
) -> Result<(), RuleError> {
    let rules = installs.iter().map(|(&key, &cookie)| Rule { key, cookie });
    let rules: Vec<Rule> = rules.collect();
    let deletes: Vec<KeyAddress> = deletes.iter().copied().collect();
    table.delete(&deletes)?;
    table.install(&rules)
}

/// After how long without a message the rules of a cache node are deleted.
const SILENCE_NS: u64 = 500_000_000;
