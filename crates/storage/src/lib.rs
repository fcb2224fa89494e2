//! Items on disk: a log that decides what an acknowledgement means, and an LSM tree that holds
//! what no longer fits into memory.
//!
//! ```text
//!   worker ----- write ------> queue --> committer --> log (append, fsync) --> tree's memtable
//!     |  |                      pending writes, by key      |                        |
//!     |  +-- latest(key)? <-----+                           +-- deleted when <-- upkeep: flush,
//!     |                                                         flushed           compact
//!     +----- read ----------> reader pool --> tree --> answer to the worker
//! ```
//!
//! A worker neither reads nor writes a file. Its writes enter a bounded queue, whose order is the
//! order of the log; the committer appends all that is queued as one group, with one fsync for many
//! writers. A write stays pending, and is found by its key, until the tree has it.
//!
//! Invariants: writes of one key reach the log in the order in which they changed memory, because
//! both happen under the lock of the key's stripe. A log file is deleted only after the tree has
//! flushed everything in it. What a crash leaves of the log is a prefix of what was written, and
//! the prefix contains everything that was synced.
#![forbid(unsafe_code)]

mod directory;
mod engine;
mod error;
mod export_import;
mod inspect;
mod item_record;
mod item_tree;
mod log_disk;
mod pending_keys;
mod planted_fault;
mod replay;
mod space_log;
mod storage;
mod write_log;
mod write_queue;

#[cfg(test)]
mod tests;

pub use engine::{Durability, StorageConfig, StorageGauges, WriteKind, WriteRefused};
pub use error::StorageError;
pub use export_import::{TransferError, export, import};
pub use inspect::{StorageInfo, VerifyReport, info, verify};
pub use item_record::ItemImage;
pub use pending_keys::{KeyLock, Latest, LoadedItem, ReadTicket};
pub use storage::{ReadAnswer, ReadFailed, ReadRequest, ReportLevel, Storage, StorageEvents};

/// The version of everything in a data directory.
pub const FORMAT_VERSION: u32 = 1;

/// The longest key, in bytes: memcached's.
pub const KEY_BYTES_MAX: usize = 250;
