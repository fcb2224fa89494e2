//! A server whose memory is the cache of a data directory, over sockets.
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

mod commands;
mod order;
mod restarts;
mod support;
