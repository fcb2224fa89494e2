//! A concurrent cuckoo hash table whose readers never write and never wait.
//!
//! One algorithm (X. Li et al., "Algorithmic improvements for fast concurrent cuckoo hashing",
//! EuroSys 2014, with growth in place of our own), two faces:
//!
//! * [`Index`]: from a hash to a reference to an item that lies elsewhere. The store uses it.
//! * [`CuckooMap`]: plain keys and values inside the table, with the bucket's layout, the locks and
//!   the hash as type parameters.
//!
//! `cuckoo.rs` is the file to read first: what an insert does and why growing needs no pause. Then
//! `locks.rs`, which argues why an unlocked read is never wrong. `unsafe` is confined to the
//! search's stack queue (`search.rs`); reserving memory and prefetching are `curtail_memory`'s.

mod baselines;
mod counters;
mod cuckoo;
mod error;
mod growth;
mod hash;
mod index;
mod layout;
mod locks;
#[cfg(all(test, loom))]
mod loom;
mod map;
mod plain;
mod search;
mod slots;
mod sync;
mod walk;

pub use baselines::{
    Exclusive, Global, GlobalMutex, GlobalSpin, NoLock, OsMutex, SpinGuard, SpinWord,
};
pub use counters::Counters;
pub use error::{Full, InsertError, NoRoom, TableError};
pub use hash::{KeyHasher, SeededHash, SeededHasher};
pub use index::{Hint, Index, IndexConfig, Locked, MARK_MAX, Position, Reference, Resolver};
pub use locks::{Locks, Stripes, VersionedSpin};
pub use map::{CuckooMap, MapConfig};
pub use plain::Plain;
pub use search::Search;
pub use slots::{Apart4, Apart8, Apart8Tagged, Apart16, Beside4, Beside8Tagged, Shape};
