//! The keys for which a machine keeps state, and the requests that wait for them.
//!
//! Both are sorted vectors whose memory is reserved at the start: a step allocates nothing, and
//! machines that know the same are equal, which the checker needs.

use alloc::vec::Vec;

use curtail_types::{Cas, HotEpoch, Instant, RouteHash};

use super::entry::Entry;
use super::{Access, Ticket};

/// Keys by their hash; at most as many as at construction.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Entries {
    sorted: Vec<Entry>,
    max: usize,
}

impl Entries {
    pub(super) fn new(max: usize) -> Self {
        let sorted = Vec::with_capacity(max);
        Self { sorted, max }
    }

    pub(super) fn is_full(&self) -> bool {
        self.sorted.len() >= self.max
    }

    pub(super) fn get(&self, key: RouteHash) -> Option<Entry> {
        self.find(key)
            .ok()
            .and_then(|at| self.sorted.get(at))
            .copied()
    }

    /// The entry in place `at`, in the order of keys.
    pub(super) fn at(&self, at: usize) -> Option<Entry> {
        self.sorted.get(at).copied()
    }

    /// What is known about `key` from now on. The caller has looked that there is room.
    pub(super) fn set(&mut self, key: RouteHash, entry: Option<Entry>) {
        match (self.find(key), entry) {
            (Ok(at), Some(entry)) => {
                if let Some(place) = self.sorted.get_mut(at) {
                    *place = entry;
                }
            }
            (Ok(at), None) => {
                self.sorted.remove(at);
            }
            (Err(at), Some(entry)) => self.sorted.insert(at, entry),
            (Err(_), None) => {}
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.sorted.iter()
    }

    pub(super) fn clear(&mut self) {
        self.sorted.clear();
    }

    fn find(&self, key: RouteHash) -> Result<usize, usize> {
        self.sorted.binary_search_by_key(&key, |entry| entry.key)
    }
}

/// The promotions that this node has been told are over, the last one of each key: what is said
/// about them yet is late (ccKVS requirement CC-70).
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Dropped {
    sorted: Vec<(RouteHash, HotEpoch)>,
    max: usize,
}

impl Dropped {
    pub(super) fn new(max: usize) -> Self {
        let sorted = Vec::with_capacity(max);
        Self { sorted, max }
    }

    /// Whether this promotion of `key`, or a later one, is over.
    pub(super) fn covers(&self, key: RouteHash, epoch: HotEpoch) -> bool {
        self.find(key)
            .ok()
            .and_then(|at| self.sorted.get(at))
            .is_some_and(|(_, last)| epoch <= *last)
    }

    /// The promotion `epoch` of `key` is over. If there is no room, what was promoted longest ago
    /// is forgotten: messages do not live that long.
    pub(super) fn add(&mut self, key: RouteHash, epoch: HotEpoch) {
        if let Ok(at) = self.find(key) {
            if let Some((_, last)) = self.sorted.get_mut(at) {
                *last = epoch.max(*last);
            }
            return;
        }
        if self.sorted.len() >= self.max {
            let ages = self.sorted.iter().enumerate();
            let Some((oldest, _)) = ages.min_by_key(|(_, (_, epoch))| *epoch) else {
                return;
            };
            self.sorted.remove(oldest);
        }
        if let Err(at) = self.find(key) {
            self.sorted.insert(at, (key, epoch));
        }
    }

    /// Messages of the views before are refused anyway.
    pub(super) fn clear(&mut self) {
        self.sorted.clear();
    }

    fn find(&self, key: RouteHash) -> Result<usize, usize> {
        self.sorted.binary_search_by_key(&key, |(key, _)| *key)
    }
}

/// The last keys that this node forgot and has no item of, with the version that removed each: an
/// invalidation of an earlier write is late. It was sent by a holder that did not know yet that the
/// write was complete, over another link than the removal, or came twice.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Removed {
    ring: Vec<(RouteHash, Cas)>,
    next: usize,
}

impl Removed {
    pub(super) fn new() -> Self {
        let ring = Vec::with_capacity(REMOVED_MAX);
        Self { ring, next: 0 }
    }

    /// The version that removed `key`; 0 if it is not known.
    pub(super) fn version(&self, key: RouteHash) -> Cas {
        let found = self.ring.iter().find(|one| one.0 == key);
        found.map_or(Cas(0), |one| one.1)
    }

    /// If there is no room, what was removed longest ago is forgotten.
    pub(super) fn add(&mut self, key: RouteHash, ts: Cas) {
        if let Some(known) = self.ring.iter_mut().find(|one| one.0 == key) {
            known.1 = ts.max(known.1);
        } else if self.ring.len() < REMOVED_MAX {
            self.ring.push((key, ts));
        } else if let Some(oldest) = self.ring.get_mut(self.next) {
            *oldest = (key, ts);
            self.next = (self.next + 1) % REMOVED_MAX;
        }
    }

    /// Messages of the views before are refused anyway.
    pub(super) fn clear(&mut self) {
        self.ring.clear();
        self.next = 0;
    }
}

/// Few enough to look through; each slice of a node has its own.
const REMOVED_MAX: usize = 128;

/// A request that waits for its key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Waiter {
    pub(super) key: RouteHash,
    pub(super) ticket: Ticket,
    pub(super) access: Access,
    pub(super) after: Cas,
    pub(super) until: Instant,
}

/// Requests by their key, those of one key in the order of their arrival.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Waiting {
    sorted: Vec<Waiter>,
    max: usize,
}

impl Waiting {
    /// Room for `max` requests, and for `again` that have run and come back.
    pub(super) fn new(max: usize, again: usize) -> Self {
        let sorted = Vec::with_capacity(max + again);
        Self { sorted, max }
    }

    pub(super) fn is_full(&self) -> bool {
        self.sorted.len() >= self.max
    }

    pub(super) fn push(&mut self, waiter: Waiter) {
        let behind = self.sorted.partition_point(|other| other.key <= waiter.key);
        self.sorted.insert(behind, waiter);
    }

    /// Before all others of its key: it has run once.
    pub(super) fn push_first(&mut self, waiter: Waiter) {
        let before = self.sorted.partition_point(|other| other.key < waiter.key);
        self.sorted.insert(before, waiter);
    }

    pub(super) fn first(&self, key: RouteHash) -> Option<Waiter> {
        let at = self.sorted.partition_point(|other| other.key < key);
        self.sorted
            .get(at)
            .filter(|waiter| waiter.key == key)
            .copied()
    }

    pub(super) fn pop(&mut self, key: RouteHash) {
        let at = self.sorted.partition_point(|other| other.key < key);
        if self.sorted.get(at).is_some_and(|waiter| waiter.key == key) {
            self.sorted.remove(at);
        }
    }

    /// Takes out one that may wait no longer.
    pub(super) fn pop_late(&mut self, now: Instant) -> Option<Waiter> {
        let late = self.sorted.iter().position(|waiter| waiter.until <= now)?;
        Some(self.sorted.remove(late))
    }

    pub(super) fn pop_any(&mut self) -> Option<Waiter> {
        self.sorted.pop()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.sorted.iter()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sorted.iter().map(|waiter| waiter.until).min()
    }
}
