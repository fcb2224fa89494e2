//! Which keys of a cache node all cache nodes have (CC-81): the home's choice, and the copies that
//! the others keep for it.
//!
//! ```text
//!   home   --names, once a period-->  others     they fetch what they have not
//!   home   <--those held, hits-----   others
//!     |
//!     +--rule, spread when every cache node that shares holds the key--> switch
//! ```
//!
//! Nothing here affects an answer: that a copy may be shown is the lease's matter, and a read that
//! comes to a cache node without a copy goes on to the back end. The home is the cache node to
//! which the key's back end reports. It counts the hits of the others as its own, so that a key
//! whose reads are spread remains as hot as it is.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use curtail_types::{CacheId, CacheSet, Instant, Load, RouteHash};

/// The keys of this cache node that all are to have.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct GroupKeys {
    keys_max: usize,
    own: CacheId,
    keys: BTreeMap<RouteHash, SharedKey>,
    /// The keys whose rule is spread, as far as changes were sent.
    marked: BTreeSet<RouteHash>,
    /// Writes of this period that copies here were told of.
    writes: BTreeMap<RouteHash, u64>,
    /// Of the last list.
    number: u64,
    /// The last list that each of the others answered.
    answered: BTreeMap<CacheId, u64>,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct SharedKey {
    load: Load,
    /// The others that have said that they hold it.
    holders: CacheSet,
}

impl GroupKeys {
    /// Lists without an answer after which a cache node is taken to hold nothing.
    const UNANSWERED_MAX: u64 = 3;
    /// A key enters with this share of the cache node's load, as its reciprocal, ...
    const ENTERS: u64 = 32;
    /// ... and leaves below this one.
    const LEAVES: u64 = 64;
    /// Requests of a period without which no key is worth it.
    const REQUESTS_MIN: u64 = 16;
    /// Reads for each write: a write has every copy but one dropped and sent again.
    const READS_PER_WRITE: u64 = 16;

    /// Those of cache node `own`; 0 keys: none.
    pub fn new(own: CacheId, keys_max: usize) -> Self {
        Self {
            keys_max,
            own,
            ..Self::default()
        }
    }

    /// How many there are, and of how many the rule is spread.
    pub fn counts(&self) -> (usize, usize) {
        (self.keys.len(), self.marked.len())
    }

    /// The keys with their loads, the hottest first.
    pub fn keys(&self) -> Vec<(RouteHash, Load)> {
        let keys = self.keys.iter();
        let mut keys: Vec<_> = keys.map(|(key, shared)| (*key, shared.load)).collect();
        keys.sort_unstable_by_key(|(key, load)| (core::cmp::Reverse(*load), *key));
        keys
    }

    /// A copy here was told of a write.
    pub fn note_write(&mut self, key: RouteHash) {
        if self.keys_max > 0 {
            *self.writes.entry(key).or_default() += 1;
        }
    }

    /// At the end of a period, with the loads of all copies: chooses anew, and returns the number
    /// of the list that the others are to have.
    pub fn choose(&mut self, loads: impl Iterator<Item = (RouteHash, Load)>) -> u64 {
        let loads: Vec<_> = loads.collect();
        let all: u64 = loads.iter().map(|(_, load)| load.0).sum();
        let before = core::mem::take(&mut self.keys);
        let writes = core::mem::take(&mut self.writes);
        let is_worth_it = |key: &RouteHash, load: Load| {
            let share = match before.contains_key(key) {
                true => Self::LEAVES,
                false => Self::ENTERS,
            };
            let writes = writes.get(key).copied().unwrap_or(0);
            load.requests() >= Self::REQUESTS_MIN.max(writes.saturating_mul(Self::READS_PER_WRITE))
                && load.0.saturating_mul(share) >= all
        };
        let mut chosen: Vec<_> = loads
            .into_iter()
            .filter(|(key, load)| is_worth_it(key, *load))
            .collect();
        chosen.sort_unstable_by_key(|(key, load)| (core::cmp::Reverse(*load), *key));
        chosen.truncate(self.keys_max);
        self.number += 1;
        let silent = self.answered.iter();
        let silent = silent.filter(|(_, last)| *last + Self::UNANSWERED_MAX < self.number);
        let silent: Vec<CacheId> = silent.map(|(id, _)| *id).collect();
        for (key, load) in chosen {
            let mut holders = before.get(&key).map(|one| one.holders).unwrap_or_default();
            silent.iter().for_each(|id| _ = holders.remove(*id));
            self.keys.insert(key, SharedKey { load, holders });
        }
        self.number
    }

    /// Another cache node says which keys of the list with this number it holds; whether that is
    /// the last list.
    pub fn take_answer(&mut self, from: CacheId, number: u64, held: &[RouteHash]) -> bool {
        if number != self.number {
            return false;
        }
        self.answered.insert(from, number);
        for (key, shared) in &mut self.keys {
            match held.contains(key) {
                true => shared.holders.insert(from),
                false => shared.holders.remove(from),
            };
        }
        true
    }

    /// Whether the rule of a key is to lead to all that share, which are these: each has a copy.
    pub fn spreads(&self, key: RouteHash, sharing: &CacheSet) -> bool {
        let holds = |shared: &SharedKey| {
            let mut others = sharing.iter().filter(|id| *id != self.own);
            others.all(|id| shared.holders.contains(id))
        };
        sharing.len() > 1 && sharing.contains(self.own) && self.keys.get(&key).is_some_and(holds)
    }

    /// A change of a key's rule was sent; whether it is spread now but was not, or the reverse.
    pub fn mark(&mut self, key: RouteHash, is_spread: bool) -> bool {
        match is_spread {
            true => self.marked.insert(key),
            false => self.marked.remove(&key),
        }
    }

    /// The switch has lost all rules.
    pub fn forget_marks(&mut self) {
        self.marked.clear();
    }

    /// The keys whose rule is spread and is not to be, or the reverse.
    pub fn unlike(&self, sharing: &CacheSet) -> Vec<RouteHash> {
        let others = self.marked.iter();
        let others = others.filter(|key| !self.keys.contains_key(key));
        let keys = self.keys.keys().chain(others).copied();
        let is_unlike = |key: &RouteHash| self.marked.contains(key) != self.spreads(*key, sharing);
        keys.filter(is_unlike).collect()
    }
}

/// The copies that a cache node keeps of other cache nodes' keys, beside its own.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct GuestKeys {
    /// When the list of each home came last.
    homes: BTreeMap<CacheId, Instant>,
    guests: BTreeMap<RouteHash, Guest>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Guest {
    home: CacheId,
    name: Box<[u8]>,
    is_held: bool,
    /// Since the home was told last.
    hits: u64,
}

impl GuestKeys {
    /// How many there are, and how many of them have a copy.
    pub fn counts(&self) -> (usize, usize) {
        let held = self.guests.values().filter(|guest| guest.is_held);
        (self.guests.len(), held.count())
    }

    /// All of them.
    pub fn keys(&self) -> impl Iterator<Item = RouteHash> {
        self.guests.keys().copied()
    }

    /// Those that have no copy.
    pub fn missing(&self) -> impl Iterator<Item = RouteHash> {
        let missing = self.guests.iter().filter(|(_, guest)| !guest.is_held);
        missing.map(|(key, _)| *key)
    }

    /// Whether this is the key of another cache node that wants copies here.
    pub fn has(&self, key: RouteHash) -> bool {
        self.guests.contains_key(&key)
    }

    /// The bytes of such a key.
    pub fn name(&self, key: RouteHash) -> Option<&[u8]> {
        self.guests.get(&key).map(|guest| &*guest.name)
    }

    /// A copy was read.
    pub fn hit(&mut self, key: RouteHash) {
        if let Some(guest) = self.guests.get_mut(&key) {
            guest.hits += 1;
        }
    }

    /// There is a copy from now on, or there is none.
    pub fn set_held(&mut self, key: RouteHash, is_held: bool) {
        if let Some(guest) = self.guests.get_mut(&key) {
            guest.is_held = is_held;
        }
    }

    /// A home's list came. Returns the keys that are to go, and those to fetch.
    pub fn take_list<'a>(
        &mut self,
        home: CacheId,
        names: impl Iterator<Item = (RouteHash, &'a [u8])>,
        now: Instant,
    ) -> (Vec<RouteHash>, Vec<RouteHash>) {
        self.homes.insert(home, now);
        let mut listed = BTreeSet::new();
        for (key, name) in names {
            listed.insert(key);
            let guest = Guest {
                home,
                name: name.into(),
                is_held: false,
                hits: 0,
            };
            self.guests.entry(key).or_insert(guest);
        }
        let own = self.guests.iter().filter(|(_, guest)| guest.home == home);
        let (wanted, gone): (Vec<_>, Vec<_>) = own.partition(|(key, _)| listed.contains(key));
        let missing = wanted.into_iter().filter(|(_, guest)| !guest.is_held);
        let missing = missing.map(|(key, _)| *key).collect();
        (gone.into_iter().map(|(key, _)| *key).collect(), missing)
    }

    /// The keys of a home of which there are copies, with their hits since the last time.
    pub fn take_hits(&mut self, home: CacheId) -> Vec<(RouteHash, u64)> {
        let own = self.guests.iter_mut();
        let own = own.filter(|(_, guest)| guest.home == home && guest.is_held);
        own.map(|(key, guest)| (*key, core::mem::take(&mut guest.hits)))
            .collect()
    }

    /// The keys of homes that have sent no list for so long; they are to go.
    pub fn outlived(&mut self, now: Instant, silence_ns: u64) -> Vec<RouteHash> {
        let is_late = |heard: &Instant| now.ns.saturating_sub(heard.ns) >= silence_ns;
        let homes = &self.homes;
        let late = self.guests.iter();
        let late = late.filter(|(_, guest)| homes.get(&guest.home).is_none_or(is_late));
        let late = late.map(|(key, _)| *key).collect();
        self.homes.retain(|_, heard| !is_late(heard));
        late
    }

    /// The key is no guest any more; its copy was evicted before.
    pub fn remove(&mut self, key: RouteHash) {
        self.guests.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: CacheId = CacheId(0);
    const KEY: RouteHash = RouteHash(7);

    fn loads(hot: u64) -> impl Iterator<Item = (RouteHash, Load)> {
        let cold = (100..200).map(|key| (RouteHash(key), Load::of(10)));
        cold.chain([(KEY, Load::of(hot))])
    }

    fn sharing(ids: &[u8]) -> CacheSet {
        ids.iter().copied().map(CacheId).collect()
    }

    /// Goal: a rule is spread when, and as long as, every cache node that shares has a copy.
    /// Method: three cache nodes that answer, and then do not.
    #[test]
    fn a_rule_is_spread_while_all_that_share_have_copies() {
        let mut keys = GroupKeys::new(OWN, 4);
        let all = sharing(&[0, 1, 2]);
        let number = keys.choose(loads(500));
        assert_eq!(keys.counts(), (1, 0));
        assert!(keys.take_answer(CacheId(1), number, &[KEY]));
        assert!(!keys.spreads(KEY, &all), "one has not answered");
        assert!(keys.spreads(KEY, &sharing(&[0, 1])), "it does not share");
        assert!(!keys.spreads(KEY, &sharing(&[0])) && !keys.spreads(KEY, &sharing(&[1, 2])));
        assert!(keys.take_answer(CacheId(2), number, &[KEY]));
        assert_eq!(keys.unlike(&all), [KEY]);
        assert!(keys.mark(KEY, true));
        assert_eq!(keys.unlike(&all), []);
        assert!(
            !keys.take_answer(CacheId(2), number - 1, &[]),
            "of an old list"
        );
        let number = keys.choose(loads(500));
        assert!(keys.spreads(KEY, &all), "what was said before counts");
        keys.take_answer(CacheId(1), number, &[]);
        assert_eq!(keys.unlike(&all), [KEY], "it has lost its copy");
        keys.take_answer(CacheId(1), number, &[KEY]);
        for _ in 1..GroupKeys::UNANSWERED_MAX {
            let number = keys.choose(loads(500));
            keys.take_answer(CacheId(1), number, &[KEY]);
        }
        assert!(keys.spreads(KEY, &all));
        keys.choose(loads(500));
        assert!(!keys.spreads(KEY, &all), "one is silent");
        assert!(keys.spreads(KEY, &sharing(&[0, 1])));
    }

    /// Keys enter with a share of the load and leave with a smaller one; what is written is not
    /// worth it, and there are never more than configured.
    #[test]
    fn a_key_is_shared_for_its_reads() {
        let mut keys = GroupKeys::new(OWN, 4);
        keys.choose(loads(20));
        assert_eq!(keys.counts().0, 0);
        keys.choose(loads(40));
        assert_eq!(keys.keys(), [(KEY, Load::of(40))]);
        keys.choose(loads(20));
        assert_eq!(keys.counts().0, 1, "it is there");
        (0..2).for_each(|_| keys.note_write(KEY));
        keys.choose(loads(20));
        assert_eq!(keys.counts().0, 0, "it is written");
        keys.choose(loads(40));
        keys.choose(loads(12));
        assert_eq!(keys.counts().0, 0, "it is cold");
        let even = || (0..20).map(|key| (RouteHash(key), Load::of(100)));
        keys.choose(even());
        assert_eq!(keys.counts().0, 4);
        let mut none = GroupKeys::new(OWN, 0);
        none.note_write(KEY);
        none.choose(even());
        assert_eq!(none.counts().0, 0);
    }

    /// Goal: guests follow the lists of their homes, and end with them. Method: lists of two homes,
    /// one of which falls silent.
    #[test]
    fn guests_follow_the_lists() {
        let mut guests = GuestKeys::default();
        let at = |ns| Instant { ns };
        let names = |keys: &'static [u64]| {
            let keys = keys.iter().copied().map(RouteHash);
            keys.map(|key| (key, &b"name"[..]))
        };
        let (gone, missing) = guests.take_list(CacheId(1), names(&[1, 2]), at(0));
        assert_eq!(
            (gone, missing),
            (Vec::new(), [1, 2].map(RouteHash).to_vec())
        );
        guests.take_list(CacheId(2), names(&[5]), at(0));
        guests.set_held(RouteHash(1), true);
        guests.hit(RouteHash(1));
        assert_eq!(guests.counts(), (3, 1));
        assert_eq!(guests.take_hits(CacheId(1)), [(RouteHash(1), 1)]);
        assert_eq!(guests.take_hits(CacheId(1)), [(RouteHash(1), 0)]);
        let (gone, missing) = guests.take_list(CacheId(1), names(&[1]), at(10));
        assert_eq!((gone, missing), ([RouteHash(2)].to_vec(), Vec::new()));
        guests.remove(RouteHash(2));
        assert_eq!(guests.outlived(at(10), 10), [RouteHash(5)]);
        guests.remove(RouteHash(5));
        assert_eq!(guests.outlived(at(15), 10), []);
        assert_eq!(guests.name(RouteHash(1)), Some(&b"name"[..]));
        assert_eq!(guests.outlived(at(20), 10), [RouteHash(1)]);
    }
}
