//! The route hash of a key: nodes name keys by it, and the store of a node finds items by it.
//!
//! On a node the table's hash of a key is a keyed hash of its route hash, with the store's secret.
//! So no client can choose keys that share a bucket, and an item can be found by its route hash
//! alone. Nodes treat keys with the same route hash as one key.

use curtail_types::{HashSeed, KeyHash, Now, RouteHash};
use twox_hash::XxHash3_64;

use crate::{Store, StoreConfig, large_values::Value, store::Presence};

/// The hash that places a key on nodes: xxh3-64, the same everywhere.
#[inline]
pub fn route_of(key: &[u8]) -> RouteHash {
    RouteHash(XxHash3_64::oneshot(key))
}

/// How keys are hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHasher {
    seed: HashSeed,
    by_route: bool,
}

impl KeyHasher {
    pub(crate) fn new(config: &StoreConfig) -> Self {
        Self {
            seed: config.hash_seed,
            by_route: config.hash_by_route,
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        match self.by_route {
            true => self.hash_by_route(key),
            false => self.seed.hash(key),
        }
    }

    /// Out of line: a server alone has no use for it.
    #[inline(never)]
    fn hash_by_route(&self, key: &[u8]) -> KeyHash {
        self.hash_of_route(route_of(key))
    }

    #[inline]
    pub(crate) fn hash_of_route(&self, route: RouteHash) -> KeyHash {
        self.seed.hash(&route.0.to_le_bytes())
    }
}

impl Store {
    /// The hash of a key of which the route hash is known, where keys are
    /// [hashed by that](StoreConfig::hash_by_route).
    #[inline]
    pub fn hash_of_route(&self, route: RouteHash) -> KeyHash {
        self.hasher().hash_of_route(route)
    }

    /// The key of the item with this hash, in `key`; false if there is none.
    pub fn key_of(&self, now: Now, hash: KeyHash, key: &mut Vec<u8>) -> bool {
        key.resize(256, 0);
        let mut locked = self.index.lock(hash);
        let found = locked.find(|reference| self.is_item_of(reference.get(), hash, now));
        let length = found.map(|position| {
            let item = self.item(locked.reference(position).get());
            item.copy_key(item.meta(), key)
        });
        key.truncate(length.unwrap_or(0));
        length.is_some()
    }

    /// The length of the value of the item with this hash, if there is one. Not a read: the item's
    /// use is not counted.
    pub fn value_bytes(&self, now: Now, hash: KeyHash) -> Option<usize> {
        let mut locked = self.index.lock(hash);
        let found = locked.find(|reference| self.is_item_of(reference.get(), hash, now));
        let reference = locked.reference(found?).get();
        let item = self.item(reference);
        Some(Value::of(reference, item, item.meta()).bytes)
    }

    fn is_item_of(&self, reference: u64, hash: KeyHash, now: Now) -> bool {
        let item = self.item(reference);
        let extension = item.extension(item.meta());
        self.index.resolver().key_hash(reference) == hash
            && self.presence(reference, extension, now) == Presence::Here
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::{Key, Set, WriterId};

    use super::*;

    #[test]
    fn an_item_is_found_by_the_route_hash_of_its_key() {
        let config = StoreConfig {
            memory_bytes_max: 16 << 20,
            hash_by_route: true,
            hash_seed: HashSeed([1, 2]),
            ..StoreConfig::default()
        };
        let (store, now) = (Store::new(config).unwrap(), Now::default());
        let mut writer = store.writer(WriterId(0));
        let mut found = Vec::new();
        for number in 0..5000 {
            let name = format!("key{number}");
            let key = Key::new(name.as_bytes()).unwrap();
            let hash = store.hash(key.bytes());
            assert_eq!(hash, store.hash_of_route(route_of(key.bytes())));
            assert!(!store.key_of(now, hash, &mut found));
            store.set(&mut writer, now, key, hash, &Set::default(), b"value");
            assert!(store.key_of(now, hash, &mut found));
            assert_eq!(found, name.as_bytes());
            assert_eq!(store.value_bytes(now, hash), Some(5));
        }
        let none = store.hash(b"none");
        assert_eq!(store.value_bytes(now, none), None);
    }
}
