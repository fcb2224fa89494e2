//! The server: threads, connections, and the way of a request through them.
//!
//! Start reading at [`pipeline`]: it is the turn of a worker on one screen. The other files are its
//! stages (`collect`, `delegate`, `execute`, `reply`), what they work with (`batch`, `replies`,
//! `connection`, `parcel`, `kit`), the thread roles (`worker`, `large`, `control` with `lift`,
//! `acceptor`, `server`), the administration commands (`admin`, `stats`), what an operator reads
//! (`log`, `slow`, `watch`, `metrics`), and what makes a server a node of a cluster (`cluster`).
//!
//! Absent on purpose: decisions of a protocol (they are in `codec`), decisions about items (they
//! are in `store`), and anything shared between workers on the path of a request but the store and,
//! for a write, the word that says who writes its partition.
#![forbid(unsafe_code)]

mod acceptor;
mod admin;
mod admin_port;
mod ahead;
mod away;
mod batch;
mod buffers;
mod cluster;
mod collect;
mod compaction;
mod config;
mod connection;
mod control;
mod counts;
mod crawler;
mod delegate;
mod dump;
mod errand;
mod execute;
mod fault;
mod form;
mod health;
mod hot_keys;
mod kit;
mod large;
mod latency;
mod lift;
pub mod log;
mod logins;
mod mailbox;
mod metrics;
mod native;
mod notice;
mod pages;
mod parcel;
mod pipeline;
mod policy;
mod prefixes;
mod rebalance;
mod regime;
mod registry;
mod replies;
mod reply;
mod server;
mod shared;
mod slots;
mod slow;
mod spelling;
mod spin;
mod stages;
mod stats;
mod sync;
mod turns;
mod udp;
mod unsent;
mod watch;
mod worker;

pub use curtail_store::MEMORY_BYTES_LIMIT;

pub use config::{Config, Echoed, Listen, Niceness, UnixSocket};
#[doc(hidden)]
pub use fault::Fault;
pub use logins::{LoginsError, count_logins};
pub use native::{NativeChoice, NativeConfig, NativeMode, NativePlacement};
pub use policy::{PolicyName, Sizes, UnknownPolicy};
pub use server::{NativeAtStart, Restored, Server, StartError, Stopped};
