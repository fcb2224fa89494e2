//! What a store is made with, and what can go wrong when it is made, saved or restored.

use curtail_types::{Cas, HashSeed};

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
            writers_max: 1,
            cas_floor: Cas(0),
            huge_pages: false,
        }
    }
}

/// Why a store could not be made, saved or restored.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The memory limit or the item limit makes no sense together; the operator's to change.
    Config(&'static str),
    /// The system gave no address space or memory; the operator's limits are too tight.
    Memory(std::io::Error),
    /// A value is still being received into the store; finish or drop its reservation first.
    Busy,
    /// The file could not be written or read: disk full, no permission, not there.
    File(std::io::Error),
    /// The file is not a saved store, is damaged, or is of another version; start cold.
    Corrupt(&'static str),
    /// The file was saved under a configuration that does not fit this one; start cold.
    Mismatch(&'static str),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(what) => write!(f, "memory limits: {what}"),
            Self::Memory(error) => write!(f, "no address space for so much memory: {error}"),
            Self::Busy => write!(f, "a value is still being received"),
            Self::File(error) => write!(f, "saved store: {error}"),
            Self::Corrupt(what) => write!(f, "saved store is not usable: {what}"),
            Self::Mismatch(what) => {
                write!(f, "saved store does not fit this configuration: {what}")
            }
        }
    }
}

impl std::error::Error for StoreError {}
