//! Load, latency and lies: drives a key-value server over the network, measures it, and checks
//! that what it answers is true.
//!
//! The driver speaks memcached's text and meta protocols and RESP, so that the same load reaches
//! us and our peers. It is plain threads, one epoll set each, and it is honest in two ways: in open
//! loop a latency counts from the instant the request was *meant* to be sent (no coordinated
//! omission), and beside whole-run quantiles it reports those of short windows, because a machine
//! that stops threads for milliseconds spoils every run but few windows.
//!
//! ```text
//!   args ──> workload ──> drive::{generated, pregenerated} ──> measure ──> report
//!                              │ one thread, one epoll set, many connections
//!   compare: starts the servers, alternates bench runs between them, prints ratios
//!   soak:    values that prove themselves; lost, torn, stale and foreign ones are found
//! ```
#![forbid(unsafe_code)]

pub mod bench;
pub mod compare;
mod cpu;
mod drive;
mod error;
mod exchange;
mod measure;
mod preload;
mod protocol;
mod random;
mod report;
pub mod soak;
mod terminal;
mod workload;

pub use drive::{Plan, measure};
pub use error::LoadError;
pub use measure::{Counts, Quantiles, WindowQuantiles};
pub use protocol::Protocol;
pub use report::Report;
pub use workload::{Popularity, Sizes, Workload};
