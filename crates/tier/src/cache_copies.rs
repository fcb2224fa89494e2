//! The copies of a cache node: items by the hash of their key, and where their hits are counted.

use std::collections::HashMap;

use curtail_codec::tiered::{TieredDatagram, TieredFlags, TieredHead};
use curtail_consistency::tiered::{Admitted, BackEndId, CacheSession};
use curtail_types::{Cas, Key, RouteHash};

/// An item of which the cache has a copy.
#[derive(Clone, Debug)]
pub(crate) struct CachedCopy {
    pub(crate) from: BackEndId,
    pub(crate) key: Box<[u8]>,
    pub(crate) item: CopiedItem,
    pub(crate) session: CacheSession,
    pub(crate) hits: CopyHits,
}

/// Where the hits of a copy are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CopyHits {
    /// It was admitted here.
    Own(Admitted),
    /// It is of another cache node's key (CC-81).
    Guest,
}

/// An item as a message has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopiedItem {
    pub(crate) version: Cas,
    pub(crate) flags: u32,
    /// In Unix seconds; 0 is never.
    pub(crate) expiry: u32,
    pub(crate) value: Vec<u8>,
}

/// The copies.
#[derive(Debug, Default)]
pub(crate) struct CachedCopies {
    by_key: HashMap<RouteHash, CachedCopy>,
    bytes: usize,
}

impl CopiedItem {
    /// The item of a message; `None` if the key is gone.
    pub(crate) fn of(datagram: &TieredDatagram<'_>) -> Option<Self> {
        let head = &datagram.head;
        if head.flags.has(TieredFlags::GONE) {
            return None;
        }
        let expires = head.flags.has(TieredFlags::EXPIRES);
        Some(Self {
            version: head.version,
            flags: head.item_flags,
            expiry: if expires { head.exptime } else { 0 },
            value: datagram.value.to_vec(),
        })
    }

    /// Writes it into the head of a reply.
    pub(crate) const fn describe(&self, head: &mut TieredHead) {
        head.version = self.version;
        head.item_flags = self.flags;
        if self.expiry != 0 {
            head.flags = head.flags.with(TieredFlags::EXPIRES);
            head.exptime = self.expiry;
        }
    }
}

impl CachedCopies {
    /// The copy of exactly this key (SW-11).
    pub(crate) fn find(&self, route: RouteHash, key: Key<'_>) -> Option<&CachedCopy> {
        let copy = self.by_key.get(&route)?;
        (*copy.key == *key.bytes()).then_some(copy)
    }

    pub(crate) fn get(&self, route: RouteHash) -> Option<&CachedCopy> {
        self.by_key.get(&route)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The keys that this cache node has for itself.
    pub(crate) fn own_keys(&self) -> impl Iterator<Item = RouteHash> {
        let own = self.by_key.iter();
        let own = own.filter(|(_, copy)| copy.hits != CopyHits::Guest);
        own.map(|(key, _)| *key)
    }

    pub(crate) fn insert(&mut self, route: RouteHash, copy: CachedCopy) {
        self.bytes += size(&copy);
        if let Some(last) = self.by_key.insert(route, copy) {
            self.bytes -= size(&last);
        }
    }

    pub(crate) fn remove(&mut self, route: RouteHash) -> Option<CachedCopy> {
        let copy = self.by_key.remove(&route)?;
        self.bytes -= size(&copy);
        Some(copy)
    }
}

fn size(copy: &CachedCopy) -> usize {
    copy.key.len() + copy.item.value.len() + size_of::<CachedCopy>()
}
