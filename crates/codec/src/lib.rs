//! Decodes requests and encodes outcomes: the protocols, and nothing else.
//!
//! A codec holds no socket, no buffer and no item. The server hands it what has arrived and gets
//! one request back that borrows from those bytes; the server hands it an outcome and room, and
//! gets the reply's bytes written there. So the same code serves the server, the load generator's
//! checks, the fuzzers and the tests, and none of them needs a connection.
//!
//! Invariants: bytes of a peer never panic (indexing that can fail does not compile here); nothing
//! allocates; what is decoded does not depend on how the bytes were cut on their way.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod memcached;
pub mod native;
pub mod node;
pub mod openflow;
pub mod tiered;
