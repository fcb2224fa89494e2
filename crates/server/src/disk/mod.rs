//! The disk tier: memory is the cache of a data directory, which has every item.
//!
//! ```text
//!   worker: request --- in memory? --- yes: answered as without a disk
//!                           |
//!                           no --> read by a thread of the storage; meanwhile nothing more is
//!                                  executed for this connection --> item into memory --> again
//!   write: executed in memory and queued for the log, under one lock of the key
//!          sync: the reply waits until the log is on stable storage
//! ```
//!
//! A request that waits leaves a place in its connection's replies (`completion`), so nothing more
//! is read from that connection, and its input is kept as if it had not been decoded. When the item
//! is in memory, the place is filled with nothing, and the request runs as any other. The requests
//! of a connection therefore keep their order, whatever each of them is.

mod loads;
mod stats;
mod worker;

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{Ordering, fence},
};

use curtail_storage::{
    ReadAnswer, ReportLevel, Storage, StorageConfig, StorageError, StorageEvents,
};
use tracing::{error, info, warn};

use crate::{
    log::component,
    sync::{AtomicBool, Relaxed},
};

pub(crate) use crate::disk::{
    loads::{LoadEnded, LoadState},
    stats::statistics,
    worker::{DiskWorker, WriteAdmission},
};

/// The data directory of a server, and what waits for it.
pub(crate) struct DiskTier {
    pub(crate) storage: Storage,
    events: Arc<TierEvents>,
}

/// The server, as the tier knows it.
pub(crate) trait DiskHost: Send + Sync {
    /// Gives a worker the answer to a read; `goes_on`: another follows from the same thread.
    fn deliver(&self, answer: Box<ReadAnswer>, goes_on: bool);

    /// Has a worker begin a turn.
    fn wake(&self, worker: usize);
}

/// What the storage's threads tell.
struct TierEvents {
    host: OnceLock<Weak<dyn DiskHost>>,
    /// Which workers wait for writes to become durable, or for room.
    waiting: Box<[AtomicBool]>,
}

impl DiskTier {
    /// Opens the data for so many workers.
    pub(crate) fn open(config: StorageConfig, workers: usize) -> Result<Self, StorageError> {
        let events = Arc::new(TierEvents {
            host: OnceLock::new(),
            waiting: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        });
        let storage = Storage::open(config, Arc::clone(&events) as _)?;
        Ok(Self { storage, events })
    }

    /// Says where answers go.
    pub(crate) fn attach(&self, host: Weak<dyn DiskHost>) {
        // Once, at the start.
        let _ = self.events.host.set(host);
    }

    /// Notes whether a worker waits for progress. What it waits for is to be looked at after this.
    fn set_waiting(&self, worker: usize, waits: bool) {
        if let Some(waiting) = self.events.waiting.get(worker)
            && waiting.load(Relaxed) != waits
        {
            waiting.store(waits, Relaxed);
            // Pairs with the fence in `progress`: one of the two sees what the other has written.
            fence(Ordering::SeqCst);
        }
    }
}

impl TierEvents {
    fn host(&self) -> Option<Arc<dyn DiskHost>> {
        self.host.get()?.upgrade()
    }
}

impl StorageEvents for TierEvents {
    fn answer(&self, answer: ReadAnswer, goes_on: bool) {
        if let Some(host) = self.host() {
            host.deliver(Box::new(answer), goes_on);
        }
    }

    fn progress(&self) {
        // Pairs with the fence in `set_waiting`.
        fence(Ordering::SeqCst);
        let waiting = self.waiting.iter().enumerate();
        for (worker, _) in waiting.filter(|(_, waits)| waits.load(Relaxed)) {
            if let Some(host) = self.host() {
                host.wake(worker);
            }
        }
    }

    fn report(&self, level: ReportLevel, what: &str) {
        match level {
            ReportLevel::Error => error!(target: component::DISK, "{what}"),
            ReportLevel::Warn => warn!(target: component::DISK, "{what}"),
            ReportLevel::Info => info!(target: component::DISK, "{what}"),
        }
    }
}
