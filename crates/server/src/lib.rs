//! The server: threads, connections, and the path of a request through them.
//!
//! Start reading at [`pipeline`]: it is the turn of a worker on one screen. A module uses only
//! modules before it in this list (`xtask/tidy/server_modules.toml` has the exact rules):
//!
//! - `config`, `log`: flags, log lines
//! - `request`, `metrics`: the requests of a turn and their replies; counters
//! - `memcached`: `watch`, event lines and listings; `size_aware`: which thread serves which size
//! - `native`: the native datagram and stream protocol and its ordered queues
//! - `connection`: sockets with their buffers and output
//! - `node`: makes a server a node of a cluster
//! - `disk`, `gateway`: the disk tier; requests that are in progress in a cache tier
//! - `worker`: the data of one thread, and its mailbox
//! - `turn`, `route`: the stages of a turn; `admin`: commands about the server
//! - `pipeline`, `event_loop`: a turn, and the loop that runs turns
//! - `exporter`, `start`: the HTTP interface; the threads and their start
//!
//! Absent on purpose: decisions of a protocol (they are in `codec`) and decisions about items (they
//! are in `store`). On the path of a request workers share only the store and, for a write, the
//! word that names the writer of its partition.
#![forbid(unsafe_code)]

mod admin;
mod busy_poll;
mod completion;
mod config;
mod connection;
mod disk;
mod event_loop;
mod exporter;
mod gateway;
mod key_encoding;
mod limits;
pub mod log;
mod memcached;
mod metrics;
mod native;
mod node;
mod owned_reply_form;
mod pipeline;
mod places;
mod request;
mod route;
mod size_aware;
mod start;
mod store_context;
mod sync;
mod test_faults;
mod turn;
mod worker;

pub use curtail_store::MEMORY_BYTES_LIMIT;

pub use config::auth::{LoginsError, count_logins};
pub use config::native::{NativeChoice, NativeConfig, NativeMode, NativePlacement};
pub use config::policy_name::{PolicyName, Sizes, UnknownPolicy};
pub use config::start_error::StartError;
pub use config::{Config, Echoed, Listen, Niceness, UnixSocket};
pub use curtail_storage::{Durability, StorageConfig};
pub use native::check_native;
pub use start::{NativeAtStart, Restored, Server, Stopped, check_gateway, check_tier};
#[doc(hidden)]
pub use test_faults::{Fault, TestFaults};
