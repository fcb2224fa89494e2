//! The pages thread: has memory ready before a worker touches it.
//!
//! Huge pages make every request cheaper, and the first touch of one costs milliseconds. This
//! thread does the touching, at a low priority, whenever the store has grown into what was ready.
//! A worker asks for it by unparking and never waits: if this thread is late, memory comes in small
//! pages as it always would.

use std::{
    sync::OnceLock,
    thread::{self, Thread},
};

use crate::{shared::Shared, sync::Relaxed};

/// The thread, once it runs.
#[derive(Debug, Default)]
pub(crate) struct PagesThread(OnceLock<Thread>);

/// How far it steps back for the workers, when they share processors: about a tenth of their share.
const NICENESS: i32 = 10;

impl PagesThread {
    /// Asks it to look.
    #[cold]
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

/// Supplies pages until the server stops.
pub(crate) fn run(shared: &Shared) {
    let _ = shared.pages.0.set(thread::current());
    // Without it workers are disturbed a little more.
    let _ = curtail_runtime::lower_priority(NICENESS);
    while !shared.stopping.load(Relaxed) {
        if !shared.store.supply_pages() {
            thread::park();
        }
    }
}
