//! The server: threads, connections, and the way of a request through them.
//!
//! Start reading at [`pipeline`]: it is the turn of a worker on one screen. The folders are rooms:
//!
//! - `worker`: the thread and its event loop; what it carries from turn to turn; its mailbox
//! - `connection`: sockets, buffers, output queues, logins; who accepts and moves connections
//! - `request`: the stages of a turn: receive, delegate, execute, compact, reply
//! - `size_aware`: large requests on threads of their own, and what decides which are large
//! - `memcached`: administration commands, `watch`, dumps, UDP, `stats`
//! - `native`: the native datagram and stream protocol and its ordered queues
//! - `node`: what makes a server a node of a cluster
//! - `metrics`, `log`: what an operator reads
//!
//! Absent on purpose: decisions of a protocol (they are in `codec`), decisions about items (they
//! are in `store`), and anything shared between workers on the path of a request but the store and,
//! for a write, the word that says who writes its partition.
#![forbid(unsafe_code)]

mod completion;
mod config;
mod connection;
pub mod log;
mod memcached;
mod metrics;
mod native;
mod node;
mod pipeline;
mod request;
mod route;
mod size_aware;
mod start;
mod sync;
mod test_faults;
mod worker;

pub use curtail_store::MEMORY_BYTES_LIMIT;

pub use config::{Config, Echoed, Listen, Niceness, UnixSocket};
pub use connection::auth::{LoginsError, count_logins};
pub use native::{NativeChoice, NativeConfig, NativeMode, NativePlacement};
pub use size_aware::policy_name::{PolicyName, Sizes, UnknownPolicy};
pub use start::{NativeAtStart, Restored, Server, StartError, Stopped};
#[doc(hidden)]
pub use test_faults::Fault;
