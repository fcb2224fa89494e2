//! A concurrent cuckoo hash table whose readers never write and never wait.
//!
//! One algorithm (X. Li et al., "Algorithmic improvements for fast concurrent cuckoo hashing",
//! EuroSys 2014, with growth in place of our own), two faces:
//!
//! * [`Index`]: from a hash to a reference to an item that lies elsewhere. The store uses it.
//!
//! `cuckoo.rs` is the file to read first: what an insert does and why growing needs no pause. Then
//! `locks.rs`, which argues why an unlocked read is never wrong. `unsafe` is confined to reserving
//! memory (`region.rs`), prefetching (`prefetch.rs`) and the search's stack queue (`search.rs`).

mod counters;
mod cuckoo;
mod error;
mod growth;
mod index;
mod layout;
mod locks;
mod prefetch;
mod region;
mod search;
mod sync;
mod walk;

pub use counters::Counters;
pub use error::{Full, NoRoom, TableError};
pub use index::{Index, IndexConfig, Locked, MARK_MAX, Position, Reference, Resolver};
pub use locks::{Locks, Stamp, Stripes, VersionedSpin};
pub use search::Search;
