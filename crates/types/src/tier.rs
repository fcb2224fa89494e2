//! What a cache tier and its network agree on: addresses of keys, rules of the switch, and the
//! table that holds them (SwitchKV: Li, dissertation, 2016, sections 2.2.1 and 2.2.3).
//!
//! A *rule* has the switch send `get`s of one key to a cache node instead of to the key's back end.
//! Rules may lag behind the cache in either direction; that costs time, never an answer (SW-20).
//! The trait stands here, at the bottom, because pure code decides which rules there are to be and
//! crates with sockets carry them to a switch. A cache node admits a key before it has the rule
//! installed (SW-18, SW-21).

use alloc::{string::String, vec::Vec};
use core::fmt;

use crate::cluster::RouteHash;

/// A back end, or the part of one that a core owns. The last two numbers name none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BackEndId(pub u16);

/// A cache node.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CacheId(pub u8);

/// What the network sees of a key: the highest 40 bits of its route hash (SW-10). Equal tags are no
/// proof of equal keys; the server that answers compares the key (SW-11).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyTag(u64);

/// Where a request for a key goes: the key's back end, and the key.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyAddress {
    /// The back end that stores the key.
    pub back_end: BackEndId,
    /// Which key.
    pub tag: KeyTag,
}

/// Whose a rule is; the switch keeps it with the rule (SW-43).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RuleCookie {
    /// The cache node that the rule leads to.
    pub cache: CacheId,
    /// The cache's session when it was installed.
    pub generation: u32,
    /// Whether the rule leads to all cache nodes that share, by the sender's port, and not only to
    /// this one (CC-81).
    pub is_spread: bool,
}

/// A set of cache nodes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CacheSet([u64; 4]);

/// Which cache node a spread rule leads to: the lowest bits of the sender's UDP port number a
/// *slot*, and the caches have the slots by turns (CC-81). Every kind of switch divides alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SpreadSlots;

/// `get`s of `key` go to the cache node of `cookie`, or to all that share.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rule {
    /// Of which key.
    pub key: KeyAddress,
    /// To whom, and since when.
    pub cookie: RuleCookie,
}

/// A rule as the switch has it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CountedRule {
    /// The rule.
    pub rule: Rule,
    /// Packets that it has matched.
    pub packets: u64,
}

/// Something that happened to a switch.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum SwitchEvent {
    /// It may have lost rules or have others: the caller calls [`RuleTable::replace_all`].
    Restarted,
    /// The link to this cache node went down (SW-40): its rules are to be deleted.
    CacheDown(CacheId),
    /// It came up.
    CacheUp(CacheId),
}

/// What [`RuleTable::replace_all`] changed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Reconciled {
    /// Rules that were missing, or had another cookie.
    pub installed: usize,
    /// Rules that nobody wanted.
    pub deleted: usize,
    /// Rules that were right.
    pub kept: usize,
}

/// Why a table did not do what it was asked.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RuleError {
    /// The rules do not fit; those that do not were not installed. Delete some, or configure more.
    Full {
        /// Rules that the table takes.
        capacity: usize,
    },
    /// The switch has no port for this cache node; the caller's fault.
    NoPort(CacheId),
    /// The switch is not there or does not answer. [`RuleTable::poll`] tells when it is back.
    Disconnected,
    /// The switch or the system refused; for the operator.
    Refused(String),
}

/// The rules of one switch. A call returns when the switch has what it was given; packets may go
/// the old way a little longer (SW-86). Nothing here limits the rate: that is the caller's.
pub trait RuleTable {
    /// How many rules it takes.
    fn capacity(&self) -> usize;

    /// Installs `rules`; a rule of the same key is replaced.
    fn install(&mut self, rules: &[Rule]) -> Result<(), RuleError>;

    /// Deletes the rules of `keys`; there need not be any.
    fn delete(&mut self, keys: &[KeyAddress]) -> Result<(), RuleError>;

    /// Deletes all rules of a cache node, by their cookie.
    fn delete_cache(&mut self, cache: CacheId) -> Result<(), RuleError>;

    /// Rules that are spread lead to these cache nodes from now on. Without any, no spread rule can
    /// be installed.
    fn spread(&mut self, caches: &[CacheId]) -> Result<(), RuleError>;

    /// Every rule that the switch has, in no order.
    fn dump(&mut self) -> Result<Vec<CountedRule>, RuleError>;

    /// What has happened since the last call; the caller calls it until there is nothing.
    fn poll(&mut self) -> Result<Option<SwitchEvent>, RuleError>;

    /// Makes the switch have exactly `rules`, by changing only what differs (SW-43). Deletes first,
    /// so that a full table has room.
    fn replace_all(&mut self, rules: &[Rule]) -> Result<Reconciled, RuleError> {
        let mut wanted = rules.to_vec();
        wanted.sort_unstable();
        wanted.dedup_by_key(|rule| rule.key);
        let mut there: Vec<Rule> = self.dump()?.iter().map(|counted| counted.rule).collect();
        there.sort_unstable();
        let by_key = |rule: &Rule, all: &[Rule]| {
            let at = all.binary_search_by_key(&rule.key, |one| one.key);
            at.ok().and_then(|at| all.get(at)).copied()
        };
        let idle = there.iter().filter(|rule| by_key(rule, &wanted).is_none());
        let idle: Vec<KeyAddress> = idle.map(|rule| rule.key).collect();
        let missing = wanted.iter().copied();
        let missing = missing.filter(|rule| by_key(rule, &there) != Some(*rule));
        let missing: Vec<Rule> = missing.collect();
        self.delete(&idle)?;
        self.install(&missing)?;
        Ok(Reconciled {
            installed: missing.len(),
            deleted: idle.len(),
            kept: wanted.len() - missing.len(),
        })
    }
}

impl BackEndId {
    /// No back end has this number or a higher one.
    pub const END: u16 = 0xfffe;
}

impl CacheSet {
    /// No cache node.
    pub const EMPTY: Self = Self([0; 4]);

    /// Adds one; whether it is new.
    pub fn insert(&mut self, cache: CacheId) -> bool {
        let is_new = !self.contains(cache);
        self.0[usize::from(cache.0 >> 6)] |= Self::bit(cache);
        is_new
    }

    /// Removes one; whether it was there.
    pub fn remove(&mut self, cache: CacheId) -> bool {
        let was_there = self.contains(cache);
        self.0[usize::from(cache.0 >> 6)] &= !Self::bit(cache);
        was_there
    }

    /// Whether it is there.
    pub const fn contains(&self, cache: CacheId) -> bool {
        self.0[(cache.0 >> 6) as usize] & Self::bit(cache) != 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = CacheId> {
        let all = *self;
        (0..=u8::MAX)
            .map(CacheId)
            .filter(move |id| all.contains(*id))
    }

    const fn bit(cache: CacheId) -> u64 {
        1 << (cache.0 & 63)
    }
}

impl FromIterator<CacheId> for CacheSet {
    fn from_iter<T: IntoIterator<Item = CacheId>>(caches: T) -> Self {
        let mut all = Self::EMPTY;
        caches.into_iter().for_each(|cache| _ = all.insert(cache));
        all
    }
}

impl SpreadSlots {
    /// How many there are: so many that three or five cache nodes have nearly equal shares, and so
    /// few that a switch has an entry for each.
    pub const COUNT: u16 = 64;

    /// The slot of a sender.
    pub const fn of(port: u16) -> u16 {
        port % Self::COUNT
    }

    /// Who has this slot.
    pub fn owner<T>(slot: u16, caches: &[T]) -> Option<&T> {
        caches.get(usize::from(slot).checked_rem(caches.len())?)
    }
}

impl KeyTag {
    /// How many bits of the hash there are.
    pub const BITS: u32 = 40;

    /// The tag of a key with this route hash.
    pub const fn of(route: RouteHash) -> Self {
        Self(route.0 >> (u64::BITS - Self::BITS))
    }

    /// The tag with these bits; higher ones do not count.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// Its bits, the highest of the hash as bit 39.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { capacity } => write!(f, "the switch has room for {capacity} rules"),
            Self::NoPort(cache) => write!(f, "the switch has no port for cache node {}", cache.0),
            Self::Disconnected => write!(f, "the switch does not answer"),
            Self::Refused(reason) => write!(f, "the switch refuses: {reason}"),
        }
    }
}

impl core::error::Error for RuleError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_cache_nodes_has_what_was_put_in() {
        let ids = [0, 63, 64, 200, 255].map(CacheId);
        let mut set: CacheSet = ids.into_iter().collect();
        assert!(set.iter().eq(ids));
        assert!(!set.insert(CacheId(64)) && set.remove(CacheId(64)) && !set.remove(CacheId(64)));
        assert_eq!((set.len(), set.contains(CacheId(64))), (4, false));
        assert!(CacheSet::EMPTY.is_empty() && !set.is_empty());
    }

    /// Shares differ by one slot at most, and without cache nodes nobody has any.
    #[test]
    fn slots_are_divided_evenly() {
        for count in 1..=9 {
            let caches: alloc::vec::Vec<usize> = (0..count).collect();
            let mut shares = alloc::vec![0; count];
            for port in 1000..1000 + SpreadSlots::COUNT {
                shares[*SpreadSlots::owner(SpreadSlots::of(port), &caches).unwrap()] += 1;
            }
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(most - least <= 1, "{shares:?}");
        }
        assert_eq!(SpreadSlots::owner::<u8>(7, &[]), None);
    }

    /// The tag is the hash's highest bits, and no other bit of a number comes into it.
    #[test]
    fn a_tag_has_forty_bits() {
        let route = RouteHash(0xfedc_ba98_7654_3210);
        assert_eq!(KeyTag::of(route).to_bits(), 0xfe_dcba_9876);
        assert_eq!(KeyTag::from_bits(u64::MAX).to_bits(), (1 << 40) - 1);
    }
}
