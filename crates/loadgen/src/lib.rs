//! Load, latency and lies: drives a key-value server over the network, measures it, and checks
//! that what it answers is true.
//!
//! The driver speaks memcached's text and meta protocols, RESP and curtail's own datagrams, so that
//! the same load reaches us and our peers. It is plain threads, one epoll set each, and it is
//! honest in three ways: in open loop a latency counts from the instant the request was *meant* to
//! be sent (no coordinated omission); it measures its own lateness and refuses to print a quantile
//! that it could not measure; and beside whole-run quantiles it reports those of short windows,
//! because a machine that stops threads for milliseconds spoils every run but few windows.
//!
//! ```text
//!   request_source ──> drive::{generated_when_due, pregenerated} ──> measure ──> report
//!                            │ one thread, one epoll set, many connections
//!   bench:   runs, sweeps and searches over one or several servers; JSON, HDR logs, HTML
//!   compare: starts the servers, alternates bench runs between them, prints ratios
//!   soak:    values that prove themselves; lost, torn, stale and foreign ones are found
//! ```
#![forbid(unsafe_code)]

pub mod bench;
mod blocking_connection;
pub mod compare;
mod cpu;
mod drive;
mod error;
mod measure;
mod preload;
mod recorded_trace;
mod report;
mod request_source;
mod self_checking_value;
pub mod soak;
mod stop;
mod terminal;
mod text_protocol;
mod verify;

pub use drive::{Lost, Pace, Plan, Session, Stall, measure};
pub use error::LoadError;
pub use measure::{Counts, Lateness, NativeReport, Quantiles, WindowQuantiles};
pub use recorded_trace::Recording;
pub use report::{ClassReport, Report, Warning};
pub use request_source::{Load, Marking, Source};
pub use stop::Stop;
pub use text_protocol::Protocol;
