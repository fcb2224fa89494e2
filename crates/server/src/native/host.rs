//! The interface through which the native path uses its server.

use curtail_runtime::Clock;
use curtail_types::Now;

/// The server, as the native path sees it.
pub(crate) trait Host: Sync {
    /// The time, as items see it.
    fn now(&self) -> Now;

    /// The clock of this machine.
    fn clock(&self) -> Clock;

    /// Whether the server stops.
    fn is_stopping(&self) -> bool;

    /// Whether threads may look again before they sleep.
    fn polls(&self) -> bool;

    /// The workers that have connections.
    fn workers(&self) -> usize;

    /// Wakes a worker if it sleeps; whether it did.
    fn wake_worker(&self, worker: usize) -> bool;
}
