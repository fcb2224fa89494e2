//! The time until which this node may serve, as its workers read it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use curtail_types::Instant;

/// The instant at which the right to serve ends, shared with the workers. A worker looks at it
/// after it has read an item and before it sends what it read; the others wait long enough for what
/// comes in between (ccKVS requirement CC-62).
#[derive(Clone, Debug, Default)]
pub struct ServingLease(Arc<AtomicU64>);

impl ServingLease {
    /// Whether the node may serve at `now`.
    #[inline]
    pub fn holds(&self, now: Instant) -> bool {
        // Acquire pairs with the Release of `extend`: a thread that may serve sees what was
        // adopted.
        now.ns < self.0.load(Ordering::Acquire)
    }

    /// When it ends; 0 if there is none.
    pub fn until(&self) -> Instant {
        Instant {
            ns: self.0.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn extend(&self, until: Instant) {
        // Pairs with the Acquire of `holds`.
        self.0.store(until.ns, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
