//! A client of curtail's native protocol (`docs/reference/protocol.md`): writes that are
//! acknowledged before they are executed, over datagrams, exactly once.
//!
//! ```text
//!   Session   one for a process: threads hand requests to a thread that sends and receives
//!     Link    one for a thread: the same session driven by its caller
//!       Machine   what is sent and when, as a pure state machine
//! ```
//!
//! Beside it, [`memcached`] is a blocking connection of memcached's text protocol, for tools.
//!
//! # What an answer means
//!
//! A *marked* write ([`Command::marked`], and [`Session::set`]) ends when it is **accepted**: it
//! has its place in the order of its queue, every later read sees it, and it is executed once. That
//! survives the server's process only as far as the server's mode says, and never a power failure.
//! **Durable** means stable storage; [`Write::durable`] waits for it where a server offers it.
//!
//! **Executed** means that the write has taken effect; [`Write::executed`] waits for it. A node of
//! a cluster acknowledges a write before that only if no other node holds its key, and says with
//! the acknowledgement ([`Accepted::promise`], [`Accepted::copies`]) whether it is **replicated**
//! as well: at every node in sync, which are several. [`Write::replicated`] demands that.
//!
//! Requests that are not marked end when they were executed, with an answer. A failed write may
//! have been executed only if its error is [`ClientError::Indeterminate`].
//!
//! # Order
//!
//! Two requests that are under way at the same time may take either order, also of one key and from
//! one thread. A write that was accepted comes before everything that is sent after that.
//!
//! ```no_run
//! use curtail_client::Session;
//!
//! # fn main() -> Result<(), curtail_client::ClientError> {
//! let session = Session::connect("127.0.0.1:11400")?;
//! session.set(b"key", b"value")?.accepted()?;
//! assert_eq!(session.get(b"key")?.result()?.value, b"value");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod command;
mod config;
mod datagram_batch;
mod error;
pub mod machine;
pub mod memcached;
mod outcome;
mod pending_request;
mod polled_session;
mod request_cells;
mod session;
mod stream;
pub mod tier;

pub use curtail_codec::native::{ErrorCode, Flags, NackReason, Opcode, Place, Promise, Status};

pub use self::{
    command::Command,
    config::{Config, WhenFull},
    error::{ClientError, Reason},
    machine::Counts,
    outcome::{Accepted, Answer, Event, Outcome},
    pending_request::{Call, Write},
    polled_session::Link,
    session::Session,
};
