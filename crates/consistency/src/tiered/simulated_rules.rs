//! A switch in virtual time: which keys go to a cache (SW-15..21, SW-43, SW-82, SW-86).
//!
//! The switches of real networks implement [`curtail_types::RuleTable`]. This one is for the
//! simulator: a change is *handed over* at once and *takes effect* later, which
//! [`SimulatedRules::poll`] tells; the switch may forget all its rules; all rules of a cache go
//! with one withdrawal, by their cookie. The rate at which changes are handed over is limited above
//! it ([`RuleQueue`](super::RuleQueue)).
//!
//! A rule names the 40 highest bits of a key's hash (SW-10). A key that has them in common with a
//! cached one costs a detour, no more.

use alloc::{
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::fmt;

use curtail_types::{CacheId, Instant, RouteHash};

/// Whose rule it is, and of which reconciliation.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SimulatedCookie {
    /// The cache.
    pub cache: CacheId,
    /// Rises with every incarnation of the cache.
    pub incarnation: u32,
}

/// A rule: requests to read this key go to that cache.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SimulatedRule {
    /// Of the key's hash, the bits that the switch sees.
    pub key: RouteHash,
    /// Where to.
    pub cookie: SimulatedCookie,
}

/// The table is full: the controller's count is wrong, or another program uses the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RuleTableFull;

/// What became of changes that were handed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RuleNews {
    /// The next packet sees it.
    Took(RouteHash),
    /// The switch has forgotten its rules: reconcile.
    Forgotten,
}

impl SimulatedRule {
    /// A rule for a key.
    pub const fn new(key: RouteHash, cookie: SimulatedCookie) -> Self {
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
pub struct RuleDifference {
    /// Keys without a rule, or with one of an earlier incarnation.
    pub missing: Vec<RouteHash>,
    /// Rules of the cache without a key.
    pub surplus: Vec<RouteHash>,
}

impl RuleDifference {
    /// Compares the rules of a cache with its keys: what a controller does that has just started,
    /// or whose switch has forgotten its table (SW-43).
    pub fn of(
        table: &SimulatedRules,
        cookie: SimulatedCookie,
        keys: impl IntoIterator<Item = RouteHash>,
    ) -> Self {
        let mut wanted: BTreeMap<RouteHash, bool> = BTreeMap::new();
        for key in keys {
            wanted.insert(SimulatedRule::bits(key), false);
        }
        let mut surplus = Vec::new();
        for rule in table.dump() {
            if rule.cookie.cache != cookie.cache {
                continue;
            }
            match wanted.get_mut(&rule.key) {
                Some(is_there) => *is_there = rule.cookie == cookie,
                None => surplus.push(rule.key),
            }
        }
        let missing = wanted.into_iter().filter(|(_, is_there)| !is_there);
        Self {
            missing: missing.map(|(key, _)| key).collect(),
            surplus,
        }
    }
}

/// A table in virtual time, whose changes take effect after a fixed lag (SW-86).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct SimulatedRules {
    capacity: usize,
    lag_ns: u64,
    /// What was handed over.
    rules: BTreeMap<RouteHash, SimulatedRule>,
    /// What packets see.
    active: BTreeMap<RouteHash, SimulatedRule>,
    /// Changes on their way, in the order in which they take effect.
    changes: VecDeque<(Instant, RouteHash, Option<SimulatedRule>)>,
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
        let rule = self.active.get(&SimulatedRule::bits(key))?;
        Some(rule.cookie.cache)
    }

    /// The switch restarts with an empty table.
    pub fn forget(&mut self) {
        self.rules.clear();
        self.active.clear();
        self.changes.clear();
        self.has_forgotten = true;
    }

    fn hand_over(&mut self, key: RouteHash, rule: Option<SimulatedRule>, now: Instant) {
        let at = Instant {
            ns: now.ns.saturating_add(self.lag_ns),
        };
        match rule {
            Some(rule) => self.rules.insert(key, rule),
            None => self.rules.remove(&key),
        };
        self.changes.push_back((at, key, rule));
    }

    /// Rules that it can have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether it has been given none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Rules that it has been given.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Hands over a rule, in place of one for the same bits.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn install(&mut self, rule: SimulatedRule, now: Instant) -> Result<(), RuleTableFull> {
        let is_new = !self.rules.contains_key(&rule.key);
        if is_new && self.rules.len() >= self.capacity {
            return Err(RuleTableFull);
        }
        self.hand_over(rule.key, Some(rule), now);
        Ok(())
    }

    /// Hands over that a rule goes. One that is not there is no change.
    pub fn withdraw(&mut self, key: RouteHash, now: Instant) {
        if self.rules.contains_key(&SimulatedRule::bits(key)) {
            self.hand_over(SimulatedRule::bits(key), None, now);
        }
    }

    /// All rules of a cache go, those of one incarnation or all (SW-18, SW-43).
    pub fn withdraw_all(&mut self, cache: CacheId, incarnation: Option<u32>, now: Instant) {
        let is_of = |rule: &&SimulatedRule| {
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
    }

    /// All rules, in any order.
    pub fn dump(&self) -> impl Iterator<Item = &SimulatedRule> {
        self.rules.values()
    }

    /// Tells what became of changes until now.
    pub fn poll(&mut self, now: Instant, news: &mut dyn FnMut(RuleNews)) {
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

impl fmt::Display for RuleTableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the switch has no room for a rule: lower the cache's capacity")
    }
}

impl core::error::Error for RuleTableFull {}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: SimulatedCookie = SimulatedCookie {
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
        table
            .install(SimulatedRule::new(key(1), COOKIE), at(0))
            .unwrap();
        let mut took = Vec::new();
        table.poll(at(9), &mut |news| took.push(news));
        assert_eq!((took.len(), table.route(key(1))), (0, None));
        table.poll(at(10), &mut |news| took.push(news));
        assert_eq!(took, [RuleNews::Took(SimulatedRule::bits(key(1)))]);
        // The switch does not see the lowest bits.
        assert_eq!(table.route(RouteHash(1 << 24)), Some(CacheId(1)));
        table
            .install(SimulatedRule::new(key(2), COOKIE), at(11))
            .unwrap();
        let full = table.install(SimulatedRule::new(key(3), COOKIE), at(11));
        assert_eq!(full, Err(RuleTableFull));
        table.withdraw(key(1), at(12));
        table.poll(at(30), &mut |_| ());
        assert_eq!((table.route(key(1)), table.len()), (None, 1));
    }

    /// Goal: a controller that starts anew changes only what differs. Method: a table with rules of
    /// an earlier incarnation, of another cache, and without a key.
    #[test]
    fn a_table_is_reconciled_with_the_keys_of_a_cache() {
        let earlier = SimulatedCookie {
            incarnation: 6,
            ..COOKIE
        };
        let other = SimulatedCookie {
            cache: CacheId(2),
            ..COOKIE
        };
        let mut table = SimulatedRules::new(10, 0);
        for (number, cookie) in [(1, COOKIE), (2, earlier), (3, COOKIE), (4, other)] {
            table
                .install(SimulatedRule::new(key(number), cookie), at(0))
                .unwrap();
        }
        let found = RuleDifference::of(&table, COOKIE, [key(1), key(2), key(5)]);
        assert_eq!(found.missing, [key(2), key(5)].map(SimulatedRule::bits));
        assert_eq!(found.surplus, [SimulatedRule::bits(key(3))]);
        table.withdraw_all(CacheId(1), Some(6), at(1));
        assert_eq!(table.len(), 3);
        table.withdraw_all(CacheId(1), None, at(1));
        assert_eq!(table.len(), 1);
        table.forget();
        let mut news = Vec::new();
        table.poll(at(2), &mut |one| news.push(one));
        assert_eq!((news, table.len()), (alloc::vec![RuleNews::Forgotten], 0));
    }
}
