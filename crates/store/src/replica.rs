//! Items that nodes share: exported whole, installed under a version of the cluster, and kept from
//! eviction meanwhile.
//!
//! Which version an item has to have is decided between the nodes (`consistency`); the store only
//! carries it out. A copy that was evicted here alone would make this node answer "nothing" where
//! the others answer the value, so keys that are shared are *kept*: their items move on whenever a
//! segment is given up.

use curtail_table::Locked;
use curtail_types::{Cas, Expiry, Exptime, Get, Key, KeyHash, Now, Set, SetOutcome};

use crate::{
    COPY_BYTES_MAX, Store, Writer,
    counters::Count,
    item::{Extension, Meta},
    large_values::{Chain, Plan},
    slices::Slices,
    store::{ITEM_BYTES_LIMIT, Items},
    sync::{AtomicU32, Ordering},
    write::{ChangeContext, Fresh, Need, Taker, Terms},
};

/// All there is to an item but its key and its value.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Image {
    /// Its version.
    pub cas: Cas,
    /// The client's 32 bits.
    pub flags: u32,
    /// When it ends, in Unix seconds; 0 for never.
    pub expiry: u32,
    /// Whether it is stale.
    pub stale: bool,
    /// Whether the right to recache it was given to somebody.
    pub won: bool,
}

/// Hashes of keys that are kept, counted; several may share a count, and then all of them are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    counts: Box<[AtomicU32]>,
}

/// Counts: few of ten thousand shared keys meet another, and no more than one in six of the others
/// is kept for their sake when memory is short.
const COUNTS: usize = 1 << 16;

/// Attempts to store a promised item, each after the last lacked something.
const PUT_ATTEMPTS_MAX: usize = 8;

/// Slots that the index grows by at least when it has to.
const SLOTS_MORE: usize = 1024;

/// The plainest look at an item: it changes nothing, and gives nobody a right.
pub(crate) const LOOK: Get = Get {
    touch: None,
    vivify: None,
    recache: None,
    quiet_access: true,
    new_cas: None,
    keep_token: true,
};

impl Kept {
    pub(crate) fn new() -> Self {
        Self {
            counts: (0..COUNTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(crate) fn contains(&self, hash: KeyHash) -> bool {
        self.count(hash)
            .is_some_and(|count| count.load(Ordering::Relaxed) > 0)
    }

    fn count(&self, hash: KeyHash) -> Option<&AtomicU32> {
        self.counts.get(hash.0 as usize % COUNTS)
    }
}

impl Store {
    /// Keeps the item of a key with this hash from eviction until [`Store::let_go`]. Items that end
    /// or are flushed go all the same. A key is kept as often as it is let go.
    pub fn keep(&self, hash: KeyHash) {
        let kept = self.kept.get_or_init(Kept::new);
        if let Some(count) = kept.count(hash) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends what [`Store::keep`] began.
    pub fn let_go(&self, hash: KeyHash) {
        if let Some(count) = self.kept.get().and_then(|kept| kept.count(hash)) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_kept(&self, hash: KeyHash) -> bool {
        self.kept.get().is_some_and(|kept| kept.contains(hash))
    }

    /// The version of the item of `key`, looked for under its lock: what is found after
    /// [`Store::keep`] stays until [`Store::let_go`], unless it is deleted.
    pub fn find_kept(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
    ) -> Option<Cas> {
        self.tick(now);
        let locked = self.index.lock(hash);
        let mut context = ChangeContext {
            writer,
            now,
            key,
            hash,
            locked,
            taker: Taker::Writer,
        };
        let found = self.find_present(&mut context)?;
        Some(self.item(found.reference).cas())
    }

    /// The version of the item of `key`; `None` when there is none.
    pub fn version_of(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
    ) -> Option<Cas> {
        self.get(writer, now, key, hash, &LOOK, |view| view.status().cas)
    }

    /// The item of `key` as it is, its value in `value`, whose former content is lost; `None` when
    /// there is none. Counts as no access.
    pub fn take_image(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        value: &mut Vec<u8>,
    ) -> Option<Image> {
        self.get(writer, now, key, hash, &LOOK, |view| {
            let status = view.status();
            // Garbage until the read is validated.
            value.resize(view.value_bytes().min(ITEM_BYTES_LIMIT), 0);
            view.copy_value(0, value);
            let ends_in = |seconds: u32| now.unix_seconds().saturating_add(seconds);
            Image {
                cas: status.cas,
                flags: status.flags,
                expiry: status.ttl_seconds.map_or(0, ends_in),
                stale: status.stale,
                won: status.contended || status.won,
            }
        })
    }

    /// The version of the item of `key`, and its [bytes](Self::item_bytes).
    pub fn item_bytes_of(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
    ) -> Option<(Cas, u32)> {
        self.get(writer, now, key, hash, &LOOK, |view| {
            let bytes = Self::item_bytes(key.bytes().len(), view.value_bytes());
            (view.status().cas, bytes)
        })
    }

    /// Puts an item in the place of whatever is there, under its version, also if that is a later
    /// one. It uses up `room` bytes of what `account` was [promised](Self::promise); false, and
    /// nothing is changed, if that is less. The same version again changes nothing.
    #[allow(clippy::too_many_arguments)] // the change's parts, passed through once
    pub fn put_promised(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        (image, value): (&Image, &[u8]),
        account: u16,
        room: u32,
    ) -> bool {
        let has = |slices: &Slices| slices.promises.has(account, room);
        self.slices.get().is_some_and(has)
            && self.put(writer, now, (key, hash), image, value)
            && self.take_promised(account, room)
    }

    /// Stores an item in room that is kept for it; false only if neither memory nor index may grow
    /// any more, whatever the limit.
    fn put(
        &self,
        writer: &mut Writer,
        now: Now,
        (key, hash): (Key<'_>, KeyHash),
        image: &Image,
        value: &[u8],
    ) -> bool {
        self.tick(now);
        let terms = Terms {
            extension: Extension {
                expiry: Expiry::from_bits(image.expiry),
                flags: image.flags,
            },
            stale: image.stale,
            won: image.won,
        };
        let mut large = None;
        let mut needs_slot = false;
        for _ in 0..PUT_ATTEMPTS_MAX {
            let Some(locked) = self.lock_to_put(hash, needs_slot) else {
                return false;
            };
            let mut context = ChangeContext {
                writer,
                now,
                key,
                hash,
                locked,
                taker: Taker::Promised,
            };
            let found = self.find_present(&mut context);
            if found.is_some_and(|found| self.item(found.reference).cas() == image.cas) {
                return true;
            }
            let put = if value.len() <= COPY_BYTES_MAX {
                let fresh = Fresh {
                    cas: image.cas,
                    extension: terms.extension,
                    stale: terms.stale,
                    won: terms.won,
                    keep_access: None,
                };
                let stored = self.store_small(&mut context, found, fresh, value);
                stored.map(|_| context.writer.count(Count::ItemsTotal))
            } else if let Some((chain, meta)) = &large {
                self.publish_chain(&mut context, (chain, *meta), found, (image.cas, terms))
            } else {
                Err(Need::Room)
            };
            drop(context);
            match put {
                Ok(()) => {
                    if let Some((chain, _)) = large {
                        chain.published();
                    }
                    return true;
                }
                Err(Need::Slot) => needs_slot = true,
                Err(Need::Again) => {}
                // The value is written outside the lock.
                Err(Need::Room) => {
                    let chain = self.promised_chain(now, (key, hash), terms, value);
                    if chain.is_none() || large.is_some() {
                        return false;
                    }
                    large = chain;
                }
            }
        }
        false
    }

    /// Locks a key, with a free slot if one is needed, for which the index may grow beyond its
    /// share.
    fn lock_to_put(&self, hash: KeyHash, needs_slot: bool) -> Option<Locked<'_, Items>> {
        if !needs_slot {
            return Some(self.index.lock(hash));
        }
        let locked = self.index.lock_with_room(hash);
        locked.ok().or_else(|| {
            let slots = self.index.slots();
            self.index.set_slots_max(slots + slots / 64 + SLOTS_MORE);
            self.index.lock_with_room(hash).ok()
        })
    }

    /// A large value in room that is kept for it, complete but for its version.
    fn promised_chain(
        &self,
        now: Now,
        (key, hash): (Key<'_>, KeyHash),
        terms: Terms,
        value: &[u8],
    ) -> Option<(Chain, Meta)> {
        if value.len() <= COPY_BYTES_MAX {
            return None;
        }
        let plan = Plan::new(key, value.len(), self.segments())?;
        let expiry = terms.extension.expiry;
        let queue = self.queue_for(None, hash, value.len());
        let slot = self.room.promised_slot(queue, expiry, now);
        let chain = self.allocate_chain(slot, &plan, expiry, Taker::Promised);
        let mut chain = chain.ok()?;
        let mut written = 0;
        while written < value.len() {
            match chain.write(written, value.get(written..).unwrap_or_default()) {
                0 => return None,
                more => written += more,
            }
        }
        let meta = chain.complete(key, hash);
        Some((chain, meta))
    }

    /// Puts an item in the place of whatever is there, under its version.
    pub fn put_image(
        &self,
        writer: &mut Writer,
        now: Now,
        key: Key<'_>,
        hash: KeyHash,
        image: &Image,
        value: &[u8],
    ) -> SetOutcome {
        let set = Set {
            flags: image.flags,
            exptime: Exptime(i64::from(image.expiry)),
            new_cas: Some(image.cas),
            ..Set::default()
        };
        let outcome = self.set(writer, now, key, hash, &set, value);
        if (image.stale || image.won) && matches!(outcome, SetOutcome::Stored(_)) {
            let mut locked = self.index.lock(hash);
            if let Some(found) = self.find(&mut locked, key)
                && self.item(found.reference).cas() == image.cas
            {
                let meta = found.meta.with_stale(image.stale).with_won(image.won);
                self.item(found.reference).set_meta(meta);
                locked.changed(found.position);
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use curtail_types::{Delete, HashSeed, WriterId};

    use super::*;
    use crate::StoreConfig;

    const NOW: Now = Now {
        unix_ns: 1_800_000_000_000_000_000,
        instant: curtail_types::Instant { ns: 0 },
    };

    fn store(memory: usize) -> (Store, Writer) {
        let config = StoreConfig {
            memory_bytes_max: memory,
            huge_pages: false,
            hash_seed: HashSeed([1, 2]),
            ..StoreConfig::default()
        };
        let store = Store::new(config).unwrap();
        let writer = store.writer(WriterId(0));
        (store, writer)
    }

    /// Goal: an item that went to another store and back is the same to every reader. Method: small
    /// and large values, with and without flags, end and marks.
    #[test]
    fn an_image_is_the_whole_item() {
        let (from, mut writer) = store(16 << 20);
        let (to, mut other) = store(16 << 20);
        let key = Key::new(b"key").unwrap();
        let hash = from.hash(key.bytes());
        let (mut value, mut again) = (Vec::new(), Vec::new());
        for bytes in [0, 1, 1000, 200_000] {
            for (flags, exptime, stale, won) in [
                (0, 0, false, false),
                (7, 100, false, false),
                (7, 100, false, true),
                (9, 0, true, true),
            ] {
                let set = Set {
                    flags,
                    exptime: Exptime(exptime),
                    ..Set::default()
                };
                from.set(&mut writer, NOW, key, hash, &set, &vec![3; bytes]);
                if stale {
                    let mark = Delete {
                        invalidate: true,
                        ..Delete::default()
                    };
                    from.delete(&mut writer, NOW, key, hash, &mark);
                }
                if won {
                    let win = Get {
                        recache: Some(Exptime(1000)),
                        ..Get::default()
                    };
                    from.get(&mut writer, NOW, key, hash, &win, |_| ());
                }
                let image = from.take_image(&mut writer, NOW, key, hash, &mut value);
                let image = image.unwrap();
                assert_eq!((image.flags, image.stale), (flags, stale));
                assert_eq!(image.won, won);
                to.put_image(&mut other, NOW, key, hash, &image, &value);
                let there = to.take_image(&mut other, NOW, key, hash, &mut again);
                assert_eq!(there, Some(image));
                assert_eq!((value.len(), &again), (bytes, &value));
                assert_eq!(to.version_of(&mut other, NOW, key, hash), Some(image.cas));
            }
        }
    }

    /// Goal: a kept item outlives any amount of writes, another does not. Method: a small store is
    /// filled several times over.
    #[test]
    fn a_kept_item_is_not_evicted() {
        let (store, mut writer) = store(4 << 20);
        let keys = ["kept", "other"].map(|name| Key::new(name.as_bytes()).unwrap());
        let hashes = keys.map(|key| store.hash(key.bytes()));
        store.keep(hashes[0]);
        for (key, hash) in keys.into_iter().zip(hashes) {
            store.set(&mut writer, NOW, key, hash, &Set::default(), b"value");
        }
        for number in 0..40_000 {
            let name = format!("{number}");
            let key = Key::new(name.as_bytes()).unwrap();
            let hash = store.hash(key.bytes());
            store.set(&mut writer, NOW, key, hash, &Set::default(), &[1; 300]);
        }
        let there = [0, 1].map(|n| store.version_of(&mut writer, NOW, keys[n], hashes[n]));
        assert!(there[0].is_some());
        assert!(there[1].is_none());
        store.let_go(hashes[0]);
        assert!(!store.is_kept(hashes[0]));
    }
}
