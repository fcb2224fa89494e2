//! A state of the rules of a cache node: what it wants, what is on its way, what the switch has.

use std::collections::{BTreeMap, BTreeSet};

use curtail_consistency::tiered::{
    CacheId, RuleChange, RuleController, RuleLife, RuleQueue, RuleSender, RulesMessage, RulesTaken,
};
use curtail_types::{
    CacheSet, CountedRule, Instant, KeyAddress, RouteHash, Rule, RuleCookie, RuleError, RuleTable,
    SwitchEvent,
};

use super::RuleFaults;
use crate::search::ModelState;
use crate::step_notes::StepNotes;

/// A state.
#[derive(Clone, Debug, Hash)]
pub(crate) struct RuleWorld {
    pub(super) cache: RuleCache,
    pub(super) controller: RuleController,
    pub(super) table: ModelTable,
    /// The switch has something to tell the controller.
    pub(super) has_restarted: bool,
    /// Controllers before this one.
    pub(super) incarnation: u64,
    /// What is on its way to the controller, and from it, sorted.
    pub(super) messages: Vec<SentRules>,
    pub(super) answers: Vec<RulesTaken>,
    pub(super) left: RuleFaults,
    pub(super) notes: StepNotes,
}

/// The cache node.
#[derive(Clone, Debug, Hash)]
pub(super) struct RuleCache {
    pub(super) generation: u32,
    pub(super) wanted: BTreeSet<u64>,
    /// Of these, the keys whose rules are to be spread.
    pub(super) spread: BTreeSet<u64>,
    /// The keys whose last change that was sent spreads the rule.
    pub(super) marked: BTreeSet<u64>,
    pub(super) queue: RuleQueue,
    pub(super) sender: RuleSender,
    /// Its clock, which moves when a message is due.
    pub(super) now: u64,
    /// The life in which its last message named all; 0 if it did not.
    pub(super) named_all: RuleLife,
}

/// A message of the cache node.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct SentRules {
    pub(super) generation: u32,
    pub(super) number: u64,
    pub(super) life: RuleLife,
    pub(super) is_all: bool,
    pub(super) shares: bool,
    pub(super) changes: Vec<RuleChange>,
}

/// A switch whose table never fails: its rules, and who shares.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct ModelTable(
    pub(super) BTreeMap<KeyAddress, RuleCookie>,
    pub(super) CacheSet,
);

impl RuleTable for ModelTable {
    fn capacity(&self) -> usize {
        usize::MAX
    }

    fn install(&mut self, rules: &[Rule]) -> Result<(), RuleError> {
        if self.1.is_empty() && rules.iter().any(|rule| rule.cookie.is_spread) {
            return Err(RuleError::Refused(String::new()));
        }
        let rules = rules.iter().map(|rule| (rule.key, rule.cookie));
        self.0.extend(rules);
        Ok(())
    }

    fn delete(&mut self, keys: &[KeyAddress]) -> Result<(), RuleError> {
        self.0.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    fn delete_cache(&mut self, cache: CacheId) -> Result<(), RuleError> {
        self.0.retain(|_, cookie| cookie.cache != cache);
        Ok(())
    }

    fn spread(&mut self, caches: &[CacheId]) -> Result<(), RuleError> {
        self.1 = caches.iter().copied().collect();
        Ok(())
    }

    fn dump(&mut self) -> Result<Vec<CountedRule>, RuleError> {
        let rules = self.0.iter().map(|(&key, &cookie)| CountedRule {
            rule: Rule { key, cookie },
            packets: 0,
        });
        Ok(rules.collect())
    }

    fn poll(&mut self) -> Result<Option<SwitchEvent>, RuleError> {
        Ok(None)
    }
}

impl ModelState for RuleWorld {
    fn notes(&mut self) -> &mut StepNotes {
        &mut self.notes
    }
}

impl RuleWorld {
    /// What the cache has to send: a message for which there are changes, or one that is due again.
    pub(super) fn send(&mut self) {
        let cache = &mut self.cache;
        let now = Instant { ns: cache.now };
        while cache.sender.has_room()
            && let Some((key, is_install)) = cache.queue.take(now)
        {
            let is_spread = is_install && cache.spread.contains(&key.0);
            match is_spread {
                true => cache.marked.insert(key.0),
                false => cache.marked.remove(&key.0),
            };
            cache.sender.add(RuleChange {
                key: address(key.0),
                is_install,
                is_spread,
            });
        }
        let is_all = cache.queue.is_idle();
        if let Some(message) = cache.sender.send(is_all, now) {
            let sent = SentRules {
                generation: message.generation,
                number: message.number,
                life: message.life,
                is_all: message.is_all,
                shares: message.shares,
                changes: message.changes.to_vec(),
            };
            cache.named_all = if sent.is_all { sent.life } else { RuleLife(0) };
            let at = self.messages.partition_point(|other| *other <= sent);
            self.messages.insert(at, sent);
        }
    }

    pub(super) fn deliver(&mut self, message: &SentRules) {
        let before = self.table.clone();
        let taken = self.controller.take(
            &mut self.table,
            CACHE,
            &RulesMessage {
                generation: message.generation,
                number: message.number,
                life: message.life,
                is_all: message.is_all,
                shares: message.shares,
                changes: &message.changes,
            },
            Instant { ns: 0 },
        );
        self.check_kept(&before, message);
        if self.controller.counts().failed > 0 {
            self.notes.fail("a rule is spread and nobody shares");
        }
        if let Some(taken) = taken {
            let at = self.answers.partition_point(|other| *other <= taken);
            self.answers.insert(at, taken);
        }
    }

    /// The rule of a key leads to one cache node, or to several, from now on.
    pub(super) fn mark(&mut self, key: u64) {
        let cache = &mut self.cache;
        if !cache.spread.remove(&key) {
            cache.spread.insert(key);
        }
        let is_marked = cache.marked.contains(&key);
        if cache.wanted.contains(&key) && is_marked != cache.spread.contains(&key) {
            // The queue has room for every key.
            let _ = cache.queue.install(RouteHash(key), Instant { ns: 0 });
        }
    }

    /// A rule of this incarnation goes only if this message withdraws it, or names all others.
    fn check_kept(&mut self, before: &ModelTable, message: &SentRules) {
        if message.is_all {
            return;
        }
        let is_gone = |key: &KeyAddress| !self.table.0.contains_key(key);
        let is_withdrawn = |key: &KeyAddress| {
            let mut changes = message.changes.iter();
            changes.any(|change| change.key == *key && !change.is_install)
        };
        let mut lost = before.0.iter().filter(|(key, cookie)| {
            cookie.generation == message.generation && is_gone(key) && !is_withdrawn(key)
        });
        if lost.next().is_some() {
            self.notes
                .fail("a rule is deleted that the cache node has not given up");
        }
    }
}

/// The only cache node.
pub(super) const CACHE: CacheId = CacheId(0);

pub(super) fn address(key: u64) -> KeyAddress {
    KeyAddress {
        tag: curtail_types::KeyTag::from_bits(key),
        ..KeyAddress::default()
    }
}
