//! What all threads of a soak found so far.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use curtail_types::named_enum;
use serde::Serialize;

named_enum! {
    /// A way for a server to be wrong.
    #[derive(Ord, PartialOrd, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum Fault {
        /// A value that must be there is not.
        Lost = "lost value",
        /// A value that was never written as a whole.
        Torn = "torn value",
        /// A value that was overwritten, deleted or evicted before came back.
        Stale = "stale value",
        /// Another key's value.
        Foreign = "foreign value",
        /// A value well past its expiry.
        Expired = "expired value",
        /// A counter that does not count every increment once.
        Miscounted = "miscounted",
        /// A reply that does not fit the request.
        WrongReply = "wrong reply",
        /// A history that no order of its operations explains.
        NotLinearizable = "not linearizable",
        /// A broken connection, or bytes that are no reply.
        Broken = "broken connection",
        /// More resident memory than allowed.
        Memory = "memory",
    }
}

/// Sums over all threads.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Totals {
    pub(crate) operations: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Writes that the server refused for want of memory.
    pub(crate) refused: u64,
    /// Bytes of values that were checked.
    pub(crate) bytes_checked: u64,
    pub(crate) reconnects: u64,
    /// Histories judged, operations in them, and searches given up.
    pub(crate) histories: u64,
    pub(crate) history_operations: u64,
    pub(crate) too_hard: u64,
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// The first faults in words.
    pub(crate) texts: Vec<String>,
}

/// Shared by all threads.
#[derive(Debug)]
pub(crate) struct Tally {
    totals: Mutex<Totals>,
    deadline: Instant,
}

/// Faults told in words; more are only counted.
const TEXTS_MAX: usize = 20;

/// A soak that found this many faults has said enough.
const FAULTS_MAX: u64 = 100;

impl Tally {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self {
            totals: Mutex::default(),
            deadline,
        }
    }

    /// Whether to stop: time is up, or more faults would tell nothing new.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline || self.lock().faults_total() >= FAULTS_MAX
    }

    /// Adds to the sums.
    pub(crate) fn add(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.lock());
    }

    pub(crate) fn fault(&self, fault: Fault, text: impl FnOnce() -> String) {
        let mut totals = self.lock();
        *totals.faults.entry(fault).or_default() += 1;
        if totals.texts.len() < TEXTS_MAX {
            totals.texts.push(format!("{fault}: {}", text()));
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    pub(crate) fn faults_total(&self) -> u64 {
        self.faults.values().sum()
    }
}
