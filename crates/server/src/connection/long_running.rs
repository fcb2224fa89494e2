//! Commands that last many turns: a dump, or watching.
//!
//! Requests behind it on the same connection wait until it is done; watching ends with the
//! connection, and what a watcher sends is not looked at.

use std::sync::Arc;

use crate::memcached::{metadump::Dump, watch::Watcher};

/// What keeps a connection busy.
#[derive(Debug)]
pub(crate) enum LongRunning {
    /// It is sent a list of all items.
    Dump(Dump),
    /// It is sent a line for every event.
    Watch(Arc<Watcher>),
}

impl LongRunning {
    /// Whether there is something to do, when the connection is `readable` or not.
    pub(crate) fn wants_turn(&self, readable: bool) -> bool {
        match self {
            Self::Dump(_) => true,
            Self::Watch(watcher) => readable || watcher.is_waiting(),
        }
    }
}
