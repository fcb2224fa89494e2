//! A concurrent map of plain keys to plain values, both inside the table.
//!
//! The same algorithm as the [`Index`](crate::Index), with the bucket layout ([`Shape`]), the
//! locks ([`Locks`]) and the hash chosen by type parameters. A lookup copies the value out and
//! writes nothing at all, so readers scale with cores even on one hot key.

use curtail_memory::Pages;

use crate::{
    counters::Counters,
    cuckoo::{Bug, Cuckoo, HeldPair, Tuning},
    error::{Full, InsertError, TableError},
    hash::{KeyHasher, SeededHash},
    layout::Place,
    locks::{Held, Locks, Stripes, VersionedSpin},
    plain::Plain,
    search::Search,
    slots::{Beside4, Shape, Slots},
};

/// Keys that `get_many` has under way at once: enough to keep every miss buffer of a core busy.
const BATCH: usize = 32;

/// Slots per stripe unless told: docs/research/table.md compares.
const STRIPE_SLOTS: usize = 128;

/// How to make a [`CuckooMap`].
#[derive(Clone, Copy, Debug)]
pub struct MapConfig {
    /// Slots at first; rounded up to whole buckets.
    pub slots: usize,
    /// Slots it may grow to; no growth if not above `slots`. Only address space is taken for them.
    pub slots_max: usize,
    /// The share of occupied slots above which the table grows, if it may: 0.1 to 0.96.
    pub fill_target: f64,
    /// Whether to ask for 2 MiB pages.
    pub huge_pages: bool,
    /// Slots that share a stripe of locks, until there are 65,536 stripes; rounded to a power of
    /// two of buckets. 0 chooses.
    pub stripe_slots: usize,
    /// How to look for a cuckoo path.
    pub search: Search,
    /// Whether the search prefetches what it will look at.
    pub prefetch: bool,
}

impl Default for MapConfig {
    fn default() -> Self {
        Self {
            slots: 1 << 16,
            slots_max: 0,
            fill_target: 0.92,
            huge_pages: true,
            stripe_slots: 0,
            search: Search::Breadth,
            prefetch: true,
        }
    }
}

/// A concurrent cuckoo hash map. Shared by reference; every operation takes `&self`.
///
/// ```
/// use curtail_table::{CuckooMap, MapConfig};
///
/// let map: CuckooMap<u64, u64> = CuckooMap::new(MapConfig::default())?;
/// map.insert(7, 70).expect("room for one");
/// assert_eq!(map.get(&7), Some(70));
/// assert_eq!(map.update(&7, |value| value + 1), Some(70));
/// assert_eq!(map.remove(&7), Some(71));
/// # Ok::<(), curtail_table::TableError>(())
/// ```
pub struct CuckooMap<K, V, S = Beside4, C = VersionedSpin, H = SeededHash>
where
    K: Plain,
    V: Plain,
    S: Shape,
    C: Locks,
    H: KeyHasher<K>,
{
    table: Cuckoo<Slots<K, V, S, H>, C>,
}

impl<K: Plain, V: Plain, S: Shape, C: Locks> CuckooMap<K, V, S, C, SeededHash> {
    /// An empty map with a random secret.
    ///
    /// # Errors
    /// If the configuration is out of range or the address space is refused.
    pub fn new(config: MapConfig) -> Result<Self, TableError> {
        Self::with_hasher(config, SeededHash::random())
    }
}

impl<K: Plain, V: Plain, S: Shape, C: Locks, H: KeyHasher<K>> CuckooMap<K, V, S, C, H> {
    /// An empty map with a hasher of the caller's.
    ///
    /// # Errors
    /// If the configuration is out of range or the address space is refused.
    pub fn with_hasher(config: MapConfig, hasher: H) -> Result<Self, TableError> {
        if !(0.1..=0.96).contains(&config.fill_target) {
            return Err(TableError::Config("fill_target is 0.1 to 0.96"));
        }
        let buckets = config.slots.div_ceil(S::SLOTS).max(1);
        let buckets_max = config.slots_max.div_ceil(S::SLOTS).max(buckets);
        if u32::try_from(buckets_max).is_err() {
            return Err(TableError::TooManySlots);
        }
        let stripe_slots = match config.stripe_slots {
            0 => STRIPE_SLOTS,
            chosen => chosen,
        };
        let stripe_buckets = stripe_slots.div_ceil(S::SLOTS).next_power_of_two();
        let stripes = Stripes::new(stripe_buckets, buckets_max).map_err(TableError::Memory)?;
        let pages = match config.huge_pages {
            true => Pages::Huge,
            false => Pages::Small,
        };
        let slots = Slots::new(buckets_max, pages, hasher).map_err(TableError::Memory)?;
        let tuning = Tuning {
            search: config.search,
            prefetch: config.prefetch,
            fill_per_1024: (config.fill_target * 1024.0) as u64,
            #[cfg(test)]
            bug: None,
        };
        Ok(Self {
            table: Cuckoo::new(slots, stripes, buckets, tuning),
        })
    }

    #[cfg(all(test, loom))]
    pub(crate) fn set_bug(&mut self, bug: Option<Bug>) {
        self.table.tuning.bug = bug;
    }

    #[inline(always)]
    fn hash(&self, key: &K) -> u64 {
        self.table.layout.hasher.hash(key)
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &K) -> Option<V> {
        self.get_hashed(key, self.hash(key))
    }

    #[inline(always)]
    fn get_hashed(&self, key: &K, hash: u64) -> Option<V> {
        let layout = &self.table.layout;
        // Two closures of the same text: one called from one place only is inlined there.
        let read = self.table.try_read(hash, |pair| {
            layout
                .find(pair, key, hash)
                .map(|place| layout.value(place))
        });
        read.unwrap_or_else(|| {
            self.table.read_again(hash, |pair| {
                layout
                    .find(pair, key, hash)
                    .map(|place| layout.value(place))
            })
        })
    }

    /// Whether the key is there.
    #[inline]
    pub fn contains(&self, key: &K) -> bool {
        let hash = self.hash(key);
        let is_there = |pair| self.table.layout.find(pair, key, hash).is_some();
        let read = self.table.try_read(hash, is_there);
        read.unwrap_or_else(|| self.table.read_again(hash, is_there))
    }

    /// The values of many keys, into the front of `values`, which is at least as long. The misses
    /// of 32 keys at a time overlap, which makes it several times faster than asking one by one.
    ///
    /// # Panics
    /// If `values` is shorter than `keys`.
    pub fn get_many(&self, keys: &[K], values: &mut [Option<V>]) {
        assert!(values.len() >= keys.len(), "a place for every answer");
        let layout = &self.table.layout;
        for (keys, values) in keys.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            let mut hashes = [0; BATCH];
            for (key, hash) in keys.iter().zip(&mut hashes) {
                *hash = self.hash(key);
                for bucket in self.table.pair(*hash) {
                    layout.prefetch_first(bucket);
                }
            }
            if S::TAGS || Slots::<K, V, S, H>::VALUES_ELSEWHERE {
                for (key, &hash) in keys.iter().zip(&hashes) {
                    for bucket in self.table.pair(hash) {
                        layout.prefetch_matches(bucket, key, hash);
                    }
                }
            }
            for ((key, value), &hash) in keys.iter().zip(values).zip(&hashes) {
                *value = self.get_hashed(key, hash);
            }
        }
    }

    /// Sets the value of a key that has the value `expected`.
    ///
    /// # Errors
    /// What the key had instead, `None` if it was not there.
    pub fn compare_and_set(&self, key: &K, expected: &V, value: V) -> Result<(), Option<V>> {
        let mut writer = Writer::new(self, key, self.hash(key));
        let place = writer.find().ok_or(None)?;
        let found = self.table.layout.value(place);
        if found != *expected {
            return Err(Some(found));
        }
        writer.set(place, &value);
        Ok(())
    }

    /// Adds a key that is not there.
    ///
    /// # Errors
    /// If it is there, or if the table is full.
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Result<(), InsertError> {
        self.insert_hashed(&key, &value, self.hash(&key))
    }

    #[inline(always)]
    fn insert_hashed(&self, key: &K, value: &V, hash: u64) -> Result<(), InsertError> {
        let mut writer = Writer::for_insert(self, key, hash);
        loop {
            if writer.find().is_some() {
                return Err(InsertError::Exists);
            }
            if writer.add(value) {
                return Ok(());
            }
            writer = writer.with_room().map_err(|Full| InsertError::Full)?;
        }
    }

    /// Adds many keys, in order, as [`insert`](Self::insert) does each; the results go into the
    /// front of `results`, which is at least as long. The misses of 32 keys at a time overlap.
    ///
    /// # Panics
    /// If `results` is shorter than `pairs`.
    pub fn insert_many(&self, pairs: &[(K, V)], results: &mut [Result<(), InsertError>]) {
        assert!(results.len() >= pairs.len(), "a place for every answer");
        for (pairs, results) in pairs.chunks(BATCH).zip(results.chunks_mut(BATCH)) {
            let mut hashes = [0; BATCH];
            for ((key, _), hash) in pairs.iter().zip(&mut hashes) {
                *hash = self.hash(key);
                self.prefetch_for_write(*hash);
            }
            for (((key, value), result), &hash) in pairs.iter().zip(results).zip(&hashes) {
                *result = self.insert_hashed(key, value, hash);
            }
        }
    }

    /// Asks for all lines that a write of the key begins with.
    #[inline(always)]
    fn prefetch_for_write(&self, hash: u64) {
        let stripes = self.table.locks.stripes();
        for bucket in self.table.pair(hash) {
            stripes.prefetch_to_lock(stripes.of_bucket(bucket));
            self.table.layout.prefetch_for_write(bucket);
        }
    }

    /// Sets a key's value, whether it is there or not; returns the value before.
    ///
    /// # Errors
    /// If it is not there and the table is full.
    #[inline]
    pub fn set(&self, key: K, value: V) -> Result<Option<V>, Full> {
        self.upsert(key, |_| value)
    }

    /// Sets a key's value to what `change` makes of the present one; returns the one before.
    /// `change` runs at most once, with the key locked: it must be short and not use the map.
    ///
    /// # Errors
    /// If it is not there and the table is full.
    #[inline]
    pub fn upsert(&self, key: K, change: impl FnOnce(Option<V>) -> V) -> Result<Option<V>, Full> {
        let mut writer = Writer::for_insert(self, &key, self.hash(&key));
        loop {
            if let Some(place) = writer.find() {
                let before = self.table.layout.value(place);
                writer.set(place, &change(Some(before)));
                return Ok(Some(before));
            }
            if writer.has_room() {
                let added = writer.add(&change(None));
                assert!(added, "the room is ours while the key is locked");
                return Ok(None);
            }
            writer = writer.with_room()?;
        }
    }

    /// Changes the value of a key that is there; returns the one before. `change` runs at most
    /// once, with the key locked: it must be short and not use the map.
    #[inline]
    pub fn update(&self, key: &K, change: impl FnOnce(V) -> V) -> Option<V> {
        let mut writer = Writer::new(self, key, self.hash(key));
        let place = writer.find()?;
        let before = self.table.layout.value(place);
        writer.set(place, &change(before));
        Some(before)
    }

    /// Removes a key; returns its value.
    #[inline]
    pub fn remove(&self, key: &K) -> Option<V> {
        let mut writer = Writer::new(self, key, self.hash(key));
        let place = writer.find()?;
        let value = self.table.layout.value(place);
        self.table.remove(&mut writer.held, place);
        Some(value)
    }

    /// Calls `visit` for every pair: each key that is there throughout at least once, one that
    /// moves meanwhile perhaps twice. No lock is held during the call; one walk runs at a time.
    pub fn for_each(&self, mut visit: impl FnMut(K, V)) {
        self.table.for_each(|(key, value)| visit(key, value));
    }

    /// All pairs, as [`for_each`](Self::for_each) visits them, copied when this is called.
    pub fn iter(&self) -> std::vec::IntoIter<(K, V)> {
        let mut pairs = Vec::with_capacity(self.len());
        self.table.for_each(|pair| pairs.push(pair));
        pairs.into_iter()
    }

    /// Removes all pairs, with every lock held meanwhile.
    pub fn clear(&self) {
        self.table.clear();
    }

    /// Adds up to this many buckets, if the map may grow; returns how many were added.
    pub fn grow(&self, buckets: usize) -> usize {
        self.table.grow(buckets)
    }

    /// Pairs; exact when nobody writes. Sums over the stripes.
    pub fn len(&self) -> usize {
        self.table.len() as usize
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots now.
    pub fn capacity(&self) -> usize {
        self.table.size().buckets() * S::SLOTS
    }

    /// Bytes in use for buckets, what is beside them, and locks.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }

    /// What the map has done so far.
    pub fn counters(&self) -> Counters {
        self.table.counters()
    }
}

/// One write under way: the key's stripes are held.
struct Writer<'a, K: Plain, V: Plain, S: Shape, C: Locks, H: KeyHasher<K>> {
    table: &'a Cuckoo<Slots<K, V, S, H>, C>,
    key: K,
    hash: u64,
    pair: [usize; 2],
    // Before `_whole`: unlocked first.
    held: Held<'a, C>,
    _whole: C::Whole<'a>,
}

impl<'a, K: Plain, V: Plain, S: Shape, C: Locks, H: KeyHasher<K>> Writer<'a, K, V, S, C, H> {
    #[inline(always)]
    fn new(map: &'a CuckooMap<K, V, S, C, H>, key: &K, hash: u64) -> Self {
        // A locked instruction keeps later loads waiting, so the misses must be under way before.
        map.prefetch_for_write(hash);
        let whole = map.table.locks.begin();
        let HeldPair { held, pair } = map.table.hold(hash);
        Self {
            table: &map.table,
            key: *key,
            hash,
            pair,
            held,
            _whole: whole,
        }
    }

    #[inline(always)]
    fn for_insert(map: &'a CuckooMap<K, V, S, C, H>, key: &K, hash: u64) -> Self {
        if map.table.is_over_target() {
            map.table.grow_a_little();
        }
        Self::new(map, key, hash)
    }

    /// The same with a free slot in the pair, for which the locks were released meanwhile.
    #[cold]
    fn with_room(self) -> Result<Self, Full> {
        let Self {
            table,
            key,
            hash,
            held,
            _whole,
            ..
        } = self;
        drop(held);
        let HeldPair { held, pair } = table.make_room(hash)?;
        Ok(Self {
            table,
            key,
            hash,
            pair,
            held,
            _whole,
        })
    }

    #[inline(always)]
    fn find(&self) -> Option<Place> {
        self.table.layout.find(self.pair, &self.key, self.hash)
    }

    fn has_room(&self) -> bool {
        self.table.free_slot(self.pair).is_some()
    }

    /// Adds the pair if there is room.
    #[inline(always)]
    fn add(&mut self, value: &V) -> bool {
        let Some(place) = self.table.free_slot(self.pair) else {
            return false;
        };
        self.table.layout.fill(place, &self.key, value, self.hash);
        self.table.inserted(&mut self.held, place.bucket());
        true
    }

    #[inline(always)]
    fn set(&mut self, place: Place, value: &V) {
        self.table.layout.set_value(place, value);
        if self.table.tuning.planted(Bug::UnversionedUpdate) {
            return;
        }
        self.held
            .changed(self.table.locks.stripes().of_bucket(place.bucket()));
    }
}

#[cfg(test)]
mod tests;
