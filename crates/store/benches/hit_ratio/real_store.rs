//! The real store as a policy: a read, and after a miss a write, for each request.
//!
//! Objects of equal size become items of 64 to 1,024 bytes, such that the cache is a few megabytes
//! large and has some hundred segments; caches too small for that are left out. Objects with sizes
//! are stored at their size. The memory limit is then chosen so that what it leaves to items, after
//! index, ghosts and headers, is the capacity: items are rounded up and kept with their headers in
//! that room, and the segments that the store keeps free come out of it too.

use curtail_store::{MemoryReport, Store, StoreConfig, Writer};
use curtail_types::{Get, Instant, Key, KeyHash, Now, Set, WriterId};

use crate::policy::Policy;
use crate::trace::{ObjectId, Trace};

/// A cache that is the store.
pub(crate) struct Stored<'t> {
    sizes: &'t [u32],
    scale: Scale,
    store: Store,
    writer: Writer,
    value: Vec<u8>,
    requests: u64,
}

/// How sizes of objects become bytes of items.
#[derive(Clone, Copy)]
enum Scale {
    /// Every item takes so many bytes.
    Equal(u64),
    /// An item takes the bytes of its object.
    Real,
}

impl<'t> Stored<'t> {
    /// A store of the given capacity, or none if its items would have to be too large.
    pub(crate) fn new(trace: &'t Trace, capacity: u64) -> Option<Self> {
        let scale = match trace.has_sizes() {
            true => Scale::Real,
            false => Scale::Equal((CACHE_BYTES / capacity.max(1)).next_multiple_of(8).max(64)),
        };
        let bytes = match scale {
            Scale::Equal(ITEM_BYTES_MAX..) => return None,
            Scale::Equal(item_bytes) => capacity * item_bytes,
            Scale::Real => capacity,
        };
        let mut limit = bytes + bytes / 8 + (1 << 20);
        for _ in 0..4 {
            let mut trial = Self::with_limit(trace, scale, limit)?;
            trial.fill();
            let left = left_to_items(&trial.store.memory());
            limit = (limit + bytes).saturating_sub(left);
        }
        Self::with_limit(trace, scale, limit)
    }

    /// How many segments the items have.
    pub(crate) fn segments(&self) -> u64 {
        let memory = self.store.memory();
        left_to_items(&memory) / memory.segment_bytes
    }

    fn with_limit(trace: &'t Trace, scale: Scale, limit: u64) -> Option<Self> {
        let config = StoreConfig {
            memory_bytes_max: limit as usize,
            ..StoreConfig::default()
        };
        let store = Store::new(config).ok()?;
        let writer = store.writer(WriterId(0));
        let largest = trace.sizes.iter().copied().max().unwrap_or(0) as usize;
        Some(Self {
            sizes: &trace.sizes,
            scale,
            store,
            writer,
            value: vec![b'v'; largest.max(ITEM_BYTES_MAX as usize)],
            requests: 0,
        })
    }

    /// Writes every object once, so that index and ghosts have the size that they will have.
    fn fill(&mut self) {
        for object in 0..self.sizes.len() as ObjectId {
            self.write(object);
        }
    }

    /// Puts an object in.
    pub(crate) fn write(&mut self, object: ObjectId) {
        let (bytes, hash) = self.key(object);
        let Ok(key) = Key::new(&bytes) else { return };
        let size = match self.scale {
            Scale::Equal(item_bytes) => item_bytes,
            Scale::Real => u64::from(self.sizes[object as usize]),
        };
        let value = &self.value[..size.saturating_sub(ITEM_HEADER_BYTES) as usize];
        let set = Set::default();
        self.store
            .set(&mut self.writer, NOW, key, hash, &set, value);
    }

    /// Asks for an object; whether it was there.
    pub(crate) fn find(&mut self, object: ObjectId) -> bool {
        self.requests += 1;
        if self.requests.is_multiple_of(TURN) {
            self.store.maintain(&mut self.writer, NOW, ITEMS_A_TURN_MAX);
        }
        let (bytes, hash) = self.key(object);
        let Ok(key) = Key::new(&bytes) else {
            return false;
        };
        let get = Get::default();
        let found = self
            .store
            .get(&mut self.writer, NOW, key, hash, &get, |_| ());
        found.is_some()
    }

    fn key(&self, object: ObjectId) -> ([u8; 8], KeyHash) {
        let bytes = u64::from(object).to_le_bytes();
        (bytes, self.store.hash(&bytes))
    }
}

impl Policy for Stored<'_> {
    fn request(&mut self, object: ObjectId) -> bool {
        let found = self.find(object);
        if !found {
            self.write(object);
        }
        found
    }

    fn copied(&self) -> u64 {
        let sizes: u64 = self.sizes.iter().map(|&size| u64::from(size)).sum();
        self.store.counters().moved * sizes / self.sizes.len() as u64
    }
}

/// What the limit leaves to the segments of items.
fn left_to_items(memory: &MemoryReport) -> u64 {
    let others = memory.index + memory.ghost + memory.accounted + memory.fixed;
    memory.limit.saturating_sub(others)
}

/// A cache should be at least this large, or there are too few segments to speak of.
const CACHE_BYTES: u64 = 8 << 20;

/// Items of equal size stay below this, where the store does not cut them into pieces.
const ITEM_BYTES_MAX: u64 = 1025;

/// The two words before the key, and the key.
const ITEM_HEADER_BYTES: u64 = 24;

/// A worker that handles 32 requests in a turn.
const TURN: u64 = 32;
const ITEMS_A_TURN_MAX: usize = 64;

/// Nothing expires, so that the clock may stand still.
const NOW: Now = Now {
    instant: Instant { ns: 1 },
    unix_ns: 1_700_000_000_000_000_000,
};
