//! The store: one per process, shared by all workers.

use std::path::Path;

use curtail_types::{
    Arithmetic, ArithmeticOutcome, Delete, DeleteOutcome, Exptime, Get, Key, KeyHash, Now, Set,
    SetOutcome, WriterId,
};

use crate::{ItemView, MemoryReport, Reservation, StoreConfig, StoreCounters, StoreError};

/// All items of the process. Every operation is safe under any assignment of requests to writers.
#[derive(Debug)]
pub struct Store {
    config: StoreConfig,
}

/// What one worker brings to every call: its clock, its open segments and its counters.
#[derive(Debug)]
pub struct Writer {
    id: WriterId,
}

impl Writer {
    /// The id that the versions it gives carry.
    pub fn id(&self) -> WriterId {
        self.id
    }
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// [`StoreError::Config`] when the limits contradict each other, [`StoreError::Memory`] when
    /// the system gives no address space.
    pub fn new(_config: StoreConfig) -> Result<Self, StoreError> {
        todo!()
    }

    /// What the store was made with; the memory limit is the one of now.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The writer for one worker; ids must differ between the writers that live at one time.
    pub fn writer(&self, _id: WriterId) -> Writer {
        todo!()
    }

    /// The hash of `key`, computed once per request and passed to every other call.
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.config.hash_seed.hash(key)
    }

    /// First stage of a batch: asks the memory for both buckets of `hash`.
    pub fn prefetch(&self, _hash: KeyHash) {
        todo!()
    }

    /// Second stage of a batch: asks the memory for the items that may be the one of `hash`.
    pub fn prefetch_item(&self, _hash: KeyHash) {
        todo!()
    }

    /// Reads the item of `key`. `view` may run more than once and must start over each time; the
    /// result of its last run counts.
    pub fn get<T>(
        &self,
        _writer: &mut Writer,
        _now: Now,
        _key: Key<'_>,
        _hash: KeyHash,
        _get: &Get,
        _view: impl FnMut(&ItemView<'_>) -> T,
    ) -> Option<T> {
        todo!()
    }

    /// Writes `value` under `key`.
    pub fn set(
        &self,
        _writer: &mut Writer,
        _now: Now,
        _key: Key<'_>,
        _hash: KeyHash,
        _set: &Set,
        _value: &[u8],
    ) -> SetOutcome {
        todo!()
    }

    /// Room for a value of `value_bytes`, to be received into and then given to
    /// [`Store::commit`].
    ///
    /// # Errors
    /// What the write would end with: too large, out of memory, or (only when that can already be
    /// told) not stored.
    pub fn reserve(
        &self,
        _writer: &mut Writer,
        _now: Now,
        _key: Key<'_>,
        _hash: KeyHash,
        _set: &Set,
        _value_bytes: usize,
    ) -> Result<Reservation, SetOutcome> {
        todo!()
    }

    /// Publishes a value that was received completely. The versions and the mode are judged now.
    pub fn commit(&self, _writer: &mut Writer, _now: Now, _reservation: Reservation) -> SetOutcome {
        todo!()
    }

    /// Removes the item of `key`, or changes it as `delete` asks.
    pub fn delete(
        &self,
        _writer: &mut Writer,
        _now: Now,
        _key: Key<'_>,
        _hash: KeyHash,
        _delete: &Delete,
    ) -> DeleteOutcome {
        todo!()
    }

    /// Counts up or down.
    pub fn arithmetic(
        &self,
        _writer: &mut Writer,
        _now: Now,
        _key: Key<'_>,
        _hash: KeyHash,
        _arithmetic: &Arithmetic,
    ) -> ArithmeticOutcome {
        todo!()
    }

    /// Forgets every item written before `at`: now for 0 or less, else when that time has come.
    pub fn flush_all(&self, _now: Now, _at: Exptime) {
        todo!()
    }

    /// Bounded background work, called once per turn by every worker: keeps a reserve of free
    /// segments, takes back expired ones, grows the index. Handles at most `items_max` items and
    /// returns how many it handled.
    pub fn maintain(&self, _writer: &mut Writer, _now: Now, _items_max: usize) -> usize {
        todo!()
    }

    /// Changes the one limit, at most to eight times the limit at the start; a lower one is
    /// reached step by step by [`Store::maintain`]. Returns the limit now in force.
    pub fn set_memory_bytes_max(&self, _bytes: usize) -> usize {
        todo!()
    }

    /// Reports memory taken (positive) or given back (negative) outside the store that the limit
    /// is to cover: connection buffers.
    pub fn account(&self, _bytes: isize) {
        todo!()
    }

    /// Item-level facts, summed over all writers.
    pub fn counters(&self) -> StoreCounters {
        todo!()
    }

    /// Starts the counters of [`Store::counters`] over, but for those that say what is there now.
    pub fn reset_counters(&self) {
        todo!()
    }

    /// Where the memory went.
    pub fn memory(&self) -> MemoryReport {
        todo!()
    }

    /// Writes everything to `path`, through a temporary file beside it. No writer may be at work
    /// meanwhile; the store stays usable whatever the result.
    ///
    /// # Errors
    /// [`StoreError::File`] when the disk is full or the file cannot be written.
    pub fn save(&self, _path: &Path, _now: Now) -> Result<(), StoreError> {
        todo!()
    }

    /// A store with what [`Store::save`] wrote; hash seed and version floor come from the file,
    /// the rest from `config`.
    ///
    /// # Errors
    /// [`StoreError::File`], [`StoreError::Corrupt`] or [`StoreError::Mismatch`]; the caller then
    /// starts cold with [`Store::new`].
    pub fn restore(_path: &Path, _config: StoreConfig, _now: Now) -> Result<Self, StoreError> {
        todo!()
    }
}
