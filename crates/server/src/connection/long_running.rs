//! What keeps a connection busy over many turns: a dump, or watching.
//!
//! Requests behind it on the same connection wait until it is done; watching ends with the
//! connection, and what a watcher sends is not looked at.

use std::sync::Arc;

use curtail_runtime::Received;

use crate::{
    connection::Connection,
    memcached::{metadump::Dump, watch::Watcher},
    worker::context::WorkerContext,
};

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

impl Connection {
    /// Goes on with the connection's long-running command; nothing is queued when this is called.
    /// False when the client has left.
    pub(crate) fn go_on(&mut self, cx: &mut WorkerContext) -> bool {
        let Some(long_running) = &mut self.long_running else {
            return true;
        };
        match long_running.as_mut() {
            LongRunning::Dump(dump) => {
                let (text, done) = dump.piece(cx);
                self.visible.touch(cx.store_cx.now.unix_seconds());
                self.output.push(&mut cx.pool, &text);
                if done {
                    self.long_running = None;
                }
                true
            }
            LongRunning::Watch(watcher) => {
                self.output.push(&mut cx.pool, &watcher.take());
                !self.readable || self.ignore()
            }
        }
    }

    /// Receives what nobody wants; false at the end.
    fn ignore(&mut self) -> bool {
        let mut bytes = [0; 512];
        match self.stream.receive(&mut bytes) {
            Received::Bytes(_) => true,
            Received::Nothing => {
                self.readable = false;
                true
            }
            Received::End => false,
        }
    }
}
