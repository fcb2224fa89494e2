//! Measures how long the view store takes to answer, and whether that is too long.
//!
//! A dead node is missed for a lease only if a change of the view is everywhere within what is left
//! of it once the node is suspected: a sixth of a lease to write it, and another to read it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// How fast the view store is, as one node sees it.
#[derive(Clone, Debug)]
pub struct StorePace(Arc<Times>);

#[derive(Debug)]
struct Times {
    good: Duration,
    reading: Slowest,
    change: Slowest,
    slow: AtomicU64,
}

#[derive(Debug, Default)]
struct Slowest {
    us: AtomicU64,
    /// The last answer was slow, and that was reported.
    is_told: AtomicBool,
}

/// What the store was asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreAsked {
    /// To be read.
    Reading,
    /// To take a change.
    Change,
}

/// A store is slow if it takes more than this part of a lease to answer.
const GOOD_PER_LEASE: u32 = 6;

impl StorePace {
    pub(crate) fn new(lease: Duration) -> Self {
        Self(Arc::new(Times {
            good: lease / GOOD_PER_LEASE,
            reading: Slowest::default(),
            change: Slowest::default(),
            slow: AtomicU64::new(0),
        }))
    }

    /// How long the slowest answer took, in microseconds.
    pub fn slowest_us(&self, asked: StoreAsked) -> u64 {
        self.of(asked).us.load(Relaxed)
    }

    /// How many answers took longer than a sixth of a lease.
    pub fn slow(&self) -> u64 {
        self.0.slow.load(Relaxed)
    }

    /// An answer took so long; whether that is worth telling: the first slow one in a row is.
    pub(crate) fn note(&self, asked: StoreAsked, took: Duration) -> bool {
        let slowest = self.of(asked);
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        slowest.us.fetch_max(us, Relaxed);
        let is_slow = took > self.0.good;
        self.0.slow.fetch_add(is_slow.into(), Relaxed);
        let was_told = slowest.is_told.swap(is_slow, Relaxed);
        is_slow && !was_told
    }

    fn of(&self, asked: StoreAsked) -> &Slowest {
        match asked {
            StoreAsked::Reading => &self.0.reading,
            StoreAsked::Change => &self.0.change,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_slow_answer_in_a_row_is_told_and_all_are_counted() {
        let pace = StorePace::new(Duration::from_millis(600));
        let (good, slow) = (Duration::from_millis(100), Duration::from_millis(101));
        let told = [good, slow, slow, good, slow].map(|took| pace.note(StoreAsked::Reading, took));
        assert_eq!(told, [false, true, false, false, true]);
        assert!(pace.note(StoreAsked::Change, 2 * slow));
        assert_eq!(pace.slow(), 4);
        assert_eq!(pace.slowest_us(StoreAsked::Reading), 101_000);
        assert_eq!(pace.slowest_us(StoreAsked::Change), 202_000);
    }
}
