//! A concurrent cuckoo hash table whose readers never write and never wait.
//!
//! [`Index`] leads from a hash to a reference to an item that lies elsewhere: the algorithm of
//! X. Li et al., "Algorithmic improvements for fast concurrent cuckoo hashing" (EuroSys 2014), with
//! growth in place of our own. How writers exclude each other is a type parameter.
//!
//! `cuckoo_table.rs` is the file to read first: what an insert does and why growing needs no pause.
//! Then `locks.rs`, which argues why an unlocked read is never wrong. `unsafe` is confined to the
//! search's stack queue (`search.rs`); reserving memory and prefetching are `curtail_memory`'s.

mod buckets;
mod counters;
mod cuckoo_table;
mod error;
mod growth;
mod item_index;
mod lock_kinds;
mod locks;
#[cfg(all(test, loom))]
mod loom;
mod search;
mod sync;
mod walk;

pub use buckets::{MARK_MAX, Reference, Resolver};
pub use counters::Counters;
pub use error::{Full, NoRoom, TableError};
pub use item_index::{Hint, Index, IndexConfig, Locked, Position};
pub use lock_kinds::{
    Exclusive, Global, GlobalMutex, GlobalSpin, NoLock, OsMutex, SpinGuard, SpinWord,
};
pub use locks::{Locks, Stripes, VersionedSpin};
pub use search::Search;
pub use walk::Walk;
