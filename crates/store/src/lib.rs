//! Items: what each command does to them, how long they live, and which are evicted when memory is
//! full.
//!
//! A [`Store`] is shared by all workers; each worker owns one [`Writer`] and passes it to every
//! call. Time is an argument, sampled by the caller once per batch.
#![forbid(unsafe_code)]

mod budget;
mod config;
mod counters;
mod delete_and_count;
mod eviction;
mod eviction_events;
mod execute_for_node;
mod fast_read;
mod ghost;
mod item;
mod item_view;
mod key_listing;
mod large_values;
mod open_segments;
mod promised_room;
mod read;
mod reclaim;
mod replica;
mod reservation;
mod route_hash;
mod slice_clear;
mod slice_eviction;
mod slice_scan;
mod slices;
mod snapshot;
mod store;
mod sync;
mod ttl_buckets;
mod write;

pub use config::{StoreConfig, StoreError};
pub use counters::{MemoryReport, StoreCounters};
pub use curtail_table::Counters as IndexCounters;
pub use eviction_events::Evicted;
pub use execute_for_node::ItemChange;
pub use item_view::{ItemView, ValueLease};
pub use replica::Image;
pub use reservation::Reservation;
pub use route_hash::route_of;
pub use slice_scan::ScanCursor;
pub use store::{MEMORY_BYTES_LIMIT, Store, Writer};

pub use curtail_table::Hint;

/// Values up to this length are copied out and may be overwritten in place; longer ones are
/// immutable once stored and can be leased while they are sent.
pub const COPY_BYTES_MAX: usize = 1024;
