//! The rules of the network: which keys go to a cache (SW-15..21, SW-43, SW-82..86).
//!
//! One interface for every switch: an XDP program's map, Open vSwitch or hardware over OpenFlow, a
//! forwarder in user space, and the simulated table here, which is the only one that there is yet.
//! What they have in common shapes it: a change is *handed over* at once and *takes effect* later,
//! or is refused later, which [`RuleTable::poll`] tells; a switch may forget all its rules; all
//! rules of a cache go with one masked withdrawal, by their cookie. The rate at which changes are
//! handed over is limited above it ([`RuleQueue`](super::RuleQueue)).
//!
//! A rule names the 40 highest bits of a key's hash (SW-10). A key that has them in common with a
//! cached one costs a detour, no more.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::fmt;

use curtail_types::{Instant, RouteHash};

use super::CacheId;

/// Whose rule it is, and of which reconciliation.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RuleCookie {
    /// The cache.
    pub cache: CacheId,
    /// Rises with every incarnation of the cache.
    pub incarnation: u32,
}

/// A rule: requests to read this key go to that cache.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rule {
    /// Of the key's hash, the bits that the switch sees.
    pub key: RouteHash,
    /// Where to.
    pub cookie: RuleCookie,
}

/// Why a change of the rules was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RuleTableError {
    /// The table is full: the controller's count is wrong, or somebody else uses the table.
    Full,
    /// The switch does not answer.
    Unreachable,
}

/// What became of changes that were handed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RuleNews {
    /// The next packet sees it.
    Took(RouteHash),
    /// It was refused.
    Refused(RouteHash, RuleTableError),
    /// The switch has forgotten its rules: reconcile.
    Forgotten,
}

/// The rules of a switch.
pub trait RuleTable {
    /// Rules that it can have.
    fn capacity(&self) -> usize;

    /// Rules that it has been given.
    fn len(&self) -> usize;

    /// Whether it has been given none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands over a rule, in place of one for the same bits.
    ///
    /// # Errors
    /// It is known already that the switch does not take it.
    fn install(&mut self, rule: Rule, now: Instant) -> Result<(), RuleTableError>;

    /// Hands over that a rule goes. One that is not there is no error.
    ///
    /// # Errors
    /// It is known already that the switch does not take it.
    fn withdraw(&mut self, key: RouteHash, now: Instant) -> Result<(), RuleTableError>;

    /// All rules of a cache go, those of one incarnation or all (SW-18, SW-43).
    ///
    /// # Errors
    /// It is known already that the switch does not take it.
    fn withdraw_all(
        &mut self,
        cache: CacheId,
        incarnation: Option<u32>,
        now: Instant,
    ) -> Result<(), RuleTableError>;

    /// Reads the rules back, in any order.
    ///
    /// # Errors
    /// The switch does not answer.
    fn dump(&mut self, visit: &mut dyn FnMut(Rule)) -> Result<(), RuleTableError>;

    /// Tells what became of changes until now.
    fn poll(&mut self, now: Instant, news: &mut dyn FnMut(RuleNews));
}

impl Rule {
    /// A rule for a key.
    pub const fn new(key: RouteHash, cookie: RuleCookie) -> Self {
        Self {
            key: Self::bits(key),
            cookie,
        }
    }

    /// The bits of a hash that a switch sees: the 40 highest.
    pub const fn bits(key: RouteHash) -> RouteHash {
        RouteHash(key.0 >> Self::UNSEEN << Self::UNSEEN)
    }

    const UNSEEN: u32 = 24;
}

/// What differs between a table and the keys that a cache has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reconciled {
    /// Keys without a rule, or with one of an earlier incarnation.
    pub missing: Vec<RouteHash>,
    /// Rules of the cache without a key.
    pub surplus: Vec<RouteHash>,
}

impl Reconciled {
    /// Compares the rules of a cache with its keys: what a controller does that has just started,
    /// or whose switch has forgotten its table (SW-43).
    ///
    /// # Errors
    /// The switch does not answer.
    pub fn of(
        table: &mut impl RuleTable,
        cookie: RuleCookie,
        keys: impl IntoIterator<Item = RouteHash>,
    ) -> Result<Self, RuleTableError> {
        let mut wanted: BTreeMap<RouteHash, bool> = BTreeMap::new();
        for key in keys {
            wanted.insert(Rule::bits(key), false);
        }
        let mut surplus = Vec::new();
        table.dump(&mut |rule| {
            if rule.cookie.cache != cookie.cache {
                return;
            }
            match wanted.get_mut(&rule.key) {
                Some(is_there) => *is_there = rule.cookie == cookie,
                None => surplus.push(rule.key),
            }
        })?;
        let missing = wanted.into_iter().filter(|(_, is_there)| !is_there);
        Ok(Self {
            missing: missing.map(|(key, _)| key).collect(),
            surplus,
        })
    }
}

/// A table in virtual time, whose changes take effect after a fixed lag (SW-86).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SimulatedRules {
    capacity: usize,
    lag_ns: u64,
    /// What was handed over.
    rules: BTreeMap<RouteHash, Rule>,
    /// What packets see.
    active: BTreeMap<RouteHash, Rule>,
    /// Changes on their way, in the order in which they take effect.
    changes: VecDeque<(Instant, RouteHash, Option<Rule>)>,
    has_forgotten: bool,
}

impl SimulatedRules {
    /// An empty table.
    pub const fn new(capacity: usize, lag_ns: u64) -> Self {
        Self {
            capacity,
            lag_ns,
            rules: BTreeMap::new(),
            active: BTreeMap::new(),
            changes: VecDeque::new(),
            has_forgotten: false,
        }
    }

    /// Where the next packet that reads this key goes, if not to its back end.
    pub fn route(&self, key: RouteHash) -> Option<CacheId> {
        let rule = self.active.get(&Rule::bits(key))?;
        Some(rule.cookie.cache)
    }

    /// The switch restarts with an empty table.
    pub fn forget(&mut self) {
        self.rules.clear();
        self.active.clear();
        self.changes.clear();
        self.has_forgotten = true;
    }

    fn hand_over(&mut self, key: RouteHash, rule: Option<Rule>, now: Instant) {
        let at = Instant {
            ns: now.ns.saturating_add(self.lag_ns),
        };
        match rule {
            Some(rule) => self.rules.insert(key, rule),
            None => self.rules.remove(&key),
        };
        self.changes.push_back((at, key, rule));
    }
}

impl RuleTable for SimulatedRules {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    fn install(&mut self, rule: Rule, now: Instant) -> Result<(), RuleTableError> {
        let is_new = !self.rules.contains_key(&rule.key);
        if is_new && self.rules.len() >= self.capacity {
            return Err(RuleTableError::Full);
        }
        self.hand_over(rule.key, Some(rule), now);
        Ok(())
    }

    fn withdraw(&mut self, key: RouteHash, now: Instant) -> Result<(), RuleTableError> {
        if self.rules.contains_key(&Rule::bits(key)) {
            self.hand_over(Rule::bits(key), None, now);
        }
        Ok(())
    }

    fn withdraw_all(
        &mut self,
        cache: CacheId,
        incarnation: Option<u32>,
        now: Instant,
    ) -> Result<(), RuleTableError> {
        let is_of = |rule: &&Rule| {
            let own = rule.cookie;
            own.cache == cache && incarnation.is_none_or(|one| own.incarnation == one)
        };
        let keys: Vec<_> = self
            .rules
            .values()
            .filter(is_of)
            .map(|one| one.key)
            .collect();
        keys.into_iter()
            .for_each(|key| self.hand_over(key, None, now));
        Ok(())
    }

    fn dump(&mut self, visit: &mut dyn FnMut(Rule)) -> Result<(), RuleTableError> {
        self.rules.values().for_each(|rule| visit(*rule));
        Ok(())
    }

    fn poll(&mut self, now: Instant, news: &mut dyn FnMut(RuleNews)) {
        if core::mem::take(&mut self.has_forgotten) {
            news(RuleNews::Forgotten);
        }
        while let Some(&(at, key, rule)) = self.changes.front()
            && at <= now
        {
            self.changes.pop_front();
            match rule {
                Some(rule) => self.active.insert(key, rule),
                None => self.active.remove(&key),
            };
            news(RuleNews::Took(key));
        }
    }
}

impl fmt::Display for RuleTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the switch has no room for a rule: lower the cache's capacity",
            Self::Unreachable => "the switch does not answer",
        })
    }
}

impl core::error::Error for RuleTableError {}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: RuleCookie = RuleCookie {
        cache: CacheId(1),
        incarnation: 7,
    };

    fn key(number: u64) -> RouteHash {
        RouteHash(number << 24 | 5)
    }

    fn at(ns: u64) -> Instant {
        Instant { ns }
    }

    #[test]
    fn a_change_is_seen_by_packets_after_the_lag() {
        let mut table = SimulatedRules::new(2, 10);
        table.install(Rule::new(key(1), COOKIE), at(0)).unwrap();
        let mut took = Vec::new();
        table.poll(at(9), &mut |news| took.push(news));
        assert_eq!((took.len(), table.route(key(1))), (0, None));
        table.poll(at(10), &mut |news| took.push(news));
        assert_eq!(took, [RuleNews::Took(Rule::bits(key(1)))]);
        // The switch does not see the lowest bits.
        assert_eq!(table.route(RouteHash(1 << 24)), Some(CacheId(1)));
        table.install(Rule::new(key(2), COOKIE), at(11)).unwrap();
        let full = table.install(Rule::new(key(3), COOKIE), at(11));
        assert_eq!(full, Err(RuleTableError::Full));
        table.withdraw(key(1), at(12)).unwrap();
        table.poll(at(30), &mut |_| ());
        assert_eq!((table.route(key(1)), table.len()), (None, 1));
    }

    /// Goal: a controller that starts anew changes only what differs. Method: a table with rules of
    /// an earlier incarnation, of another cache, and without a key.
    #[test]
    fn a_table_is_reconciled_with_the_keys_of_a_cache() {
        let earlier = RuleCookie {
            incarnation: 6,
            ..COOKIE
        };
        let other = RuleCookie {
            cache: CacheId(2),
            ..COOKIE
        };
        let mut table = SimulatedRules::new(10, 0);
        for (number, cookie) in [(1, COOKIE), (2, earlier), (3, COOKIE), (4, other)] {
            table
                .install(Rule::new(key(number), cookie), at(0))
                .unwrap();
        }
        let found = Reconciled::of(&mut table, COOKIE, [key(1), key(2), key(5)]).unwrap();
        assert_eq!(found.missing, [key(2), key(5)].map(Rule::bits));
        assert_eq!(found.surplus, [Rule::bits(key(3))]);
        table.withdraw_all(CacheId(1), Some(6), at(1)).unwrap();
        assert_eq!(table.len(), 3);
        table.withdraw_all(CacheId(1), None, at(1)).unwrap();
        assert_eq!(table.len(), 1);
        table.forget();
        let mut news = Vec::new();
        table.poll(at(2), &mut |one| news.push(one));
        assert_eq!((news, table.len()), (alloc::vec![RuleNews::Forgotten], 0));
    }
}
