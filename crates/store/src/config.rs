//! The configuration of a store, and the errors of creating, saving and restoring one.

use std::path::PathBuf;

use curtail_types::{Cas, HashSeed};
use thiserror::Error;

/// What a store is made with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreConfig {
    /// The one limit, in bytes: index, items, ghost table, and what is reported through
    /// [`Store::account`](crate::Store::account); memcached's `-m`.
    pub memory_bytes_max: usize,
    /// The longest value, in bytes; memcached's `-I`. At most 128 MiB.
    pub item_bytes_max: usize,
    /// Whether a full store evicts; false refuses writes instead: memcached's `-M`.
    pub evict: bool,
    /// The secret of the key hash; random per process, or restored.
    pub hash_seed: HashSeed,
    /// A key's hash is made of its route hash, so that an item is found by that alone
    /// ([`Store::key_of`](crate::Store::key_of)); for nodes of a cluster.
    pub hash_by_route: bool,
    /// How many writers there will be at most.
    pub writers_max: usize,
    /// Every version given out is above this; 0 at a cold start.
    pub cas_floor: Cas,
    /// Whether to ask for huge pages for the index and the items.
    pub huge_pages: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            memory_bytes_max: 64 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            hash_seed: HashSeed([0, 0]),
            hash_by_route: false,
            writers_max: 1,
            cas_floor: Cas(0),
            huge_pages: false,
        }
    }
}

/// Why a store could not be made, saved or restored.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The memory limit or the item limit makes no sense together; the operator's to change.
    #[error("memory limits: {0}")]
    Config(&'static str),
    /// The system gave no address space or memory; the operator's limits are too tight.
    #[error("no address space for so much memory: {0}")]
    Memory(std::io::Error),
    /// A value is still being received into the store; finish or drop its reservation first.
    #[error("a value is still being received")]
    Busy,
    /// The saved file could not be written: disk full, no permission.
    #[error("cannot write {path}: {1}", path = .0.display())]
    Save(PathBuf, std::io::Error),
    /// The saved file could not be read: no permission, a directory.
    #[error("cannot read the saved file: {0}")]
    File(std::io::Error),
    /// The saved file was read but could not be removed, and must not be restored twice.
    #[error("cannot remove the saved file, which must not be restored twice: {0}")]
    Remove(std::io::Error),
    /// The file is not a saved store, is damaged, or is of another version; start cold.
    #[error("the saved file is not usable: {0}")]
    Corrupt(&'static str),
    /// The file was saved under a configuration that does not fit this one; start cold.
    #[error("this server cannot restore the saved file: {0}")]
    Mismatch(&'static str),
}
