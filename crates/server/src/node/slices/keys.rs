//! The keys for which a slice keeps state: their bytes, and how readers see them.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use curtail_codec::node::ItemRequest;
use curtail_dispatch::{SharedKeys, SharedState};
use curtail_store::Store;
use curtail_types::{KeyHash, RouteHash};

use crate::node::slices::{Held, SliceContext};

/// A key that a slice knows.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) key: Box<[u8]>,
    pub(super) hash: KeyHash,
    /// Whether readers see it in the shared keys, and eviction passes it by.
    pub(super) shared: bool,
    /// It is to become hot when nothing runs past the protocol any more.
    pub(super) preparing: bool,
}

/// The keys of a slice by their route hash. A client that makes keys with similar hashes slows down
/// its own requests; the machine bounds the number of keys.
pub(super) type Names = HashMap<RouteHash, Name, BuildHasherDefault<RouteHasher>>;

#[derive(Default)]
pub(super) struct RouteHasher(u64);

impl Hasher for RouteHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // The top bits are the same for all keys of a slice, and the table tells keys by them.
        self.0 = self.0.rotate_left(5) ^ hash.rotate_left(20);
    }
}

impl Held {
    /// Keeps the key of a request; false if another key has its route hash.
    pub(super) fn name(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        key: RouteHash,
        bytes: &[u8],
    ) -> bool {
        let request = ItemRequest::decode(bytes);
        request.is_some_and(|request| self.admit(slice_cx, key, request.key.bytes()))
    }

    /// Keeps the bytes of a key; false if another key has its route hash.
    pub(super) fn admit(
        &mut self,
        slice_cx: &mut SliceContext<'_, '_>,
        key: RouteHash,
        bytes: &[u8],
    ) -> bool {
        match self.names.get(&key) {
            Some(name) => *name.key == *bytes,
            None => {
                let name = Name {
                    key: bytes.into(),
                    hash: slice_cx.cx.store_cx.store.hash(bytes),
                    shared: false,
                    preparing: false,
                };
                self.names.insert(key, name);
                true
            }
        }
    }

    /// Whether the machine has something to remember about a key.
    pub(super) fn knows(&self, key: RouteHash) -> bool {
        self.machine.knows(key)
    }

    /// Forgets the bytes of a key that the machine does not know.
    pub(super) fn forget(&mut self, slice_cx: &mut SliceContext<'_, '_>, key: RouteHash) {
        if self.names.get(&key).is_some_and(|name| name.preparing) {
            return;
        }
        if let Some(mut name) = self.names.remove(&key) {
            name.unshare(slice_cx, key);
        }
    }
}

impl Name {
    /// Nobody reads the key past the protocol from now on.
    pub(super) fn unsettle(&mut self, keys: &SharedKeys, store: &Store, key: RouteHash) {
        match self.shared {
            true => keys.settle(key, SharedState::Unsettled),
            false => {
                keys.enter(key);
                store.keep(self.hash);
                self.shared = true;
            }
        }
    }

    /// Everybody may read the key past the protocol again.
    pub(super) fn unshare(&mut self, slice_cx: &SliceContext<'_, '_>, key: RouteHash) {
        if self.shared && !self.preparing {
            slice_cx.cx.store_cx.store.let_go(self.hash);
            slice_cx.cluster.keys.settle(key, SharedState::Ordinary);
            self.shared = false;
        }
    }
}
