//! The handle through which other threads reach the control thread.

use std::{
    sync::{Condvar, PoisonError},
    time::Duration,
};

use crate::sync::{AtomicU64, Mutex, lock};

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// How others reach the control thread.
#[derive(Debug, Default)]
pub(crate) struct ControlHandle {
    /// Counts epochs; workers leave what they measured when it moves.
    pub(crate) epoch: AtomicU64,
    pub(crate) watch: Mutex<Watch>,
    wakes: Condvar,
}

impl ControlHandle {
    /// Has the control thread look what there is to do.
    pub(crate) fn wake(&self) {
        lock(&self.watch).is_woken = true;
        self.wakes.notify_all();
    }

    /// A large worker has got a connection: from now on it is looked after.
    pub(crate) fn watch(&self) {
        let mut watch = lock(&self.watch);
        if !watch.looks {
            (watch.looks, watch.is_woken) = (true, true);
            self.wakes.notify_all();
        }
    }

    /// Sleeps until the epoch has this much left, or to the next look.
    pub(crate) fn sleep(&self, left: Duration) {
        let watch = lock(&self.watch);
        let at_most = if watch.looks { left.min(LOOK) } else { left };
        let waited = self
            .wakes
            .wait_timeout_while(watch, at_most, |watch| !watch.is_woken);
        let (mut watch, _) = waited.unwrap_or_else(PoisonError::into_inner);
        // What comes from here on is seen by the look that follows, or wakes.
        *watch = Watch::default();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Watch {
    is_woken: bool,
    /// Whether it looks after large workers now.
    pub(crate) looks: bool,
}
