//! Lets another thread end a run early.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A wish to stop that all copies share. A run that sees it ends in good order and reports what it
/// has measured.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked. It guards no data, so that no order with other memory is needed.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
