//! A switch whose rules can be held back: a controller that lags, or stands still.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use curtail_routing::{Destination, PortNumber, Switch, SwitchCounts};
use curtail_types::{CacheId, CountedRule, KeyAddress, Rule, RuleError, RuleTable, SwitchEvent};

/// What changes of rules wait for.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    lag_ms: AtomicU64,
    waiting: AtomicU64,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Relaxed);
    }

    pub(crate) fn open(&self) {
        self.is_closed.store(false, Relaxed);
    }

    /// Every change takes so long from now on.
    pub(crate) fn lag(&self, ms: u64) {
        self.lag_ms.store(ms, Relaxed);
    }

    /// Whether a change stands before the closed gate.
    pub(crate) fn holds(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    fn pass(&self) {
        thread::sleep(Duration::from_millis(self.lag_ms.load(Relaxed)));
        self.waiting.fetch_add(1, Relaxed);
        while self.is_closed.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        self.waiting.fetch_sub(1, Relaxed);
    }
}

/// A switch behind a gate.
pub(crate) struct GatedSwitch {
    pub(crate) table: Box<dyn Switch + Send>,
    pub(crate) gate: Arc<Gate>,
}

impl RuleTable for GatedSwitch {
    fn capacity(&self) -> usize {
        self.table.capacity()
    }

    fn install(&mut self, rules: &[Rule]) -> Result<(), RuleError> {
        if !rules.is_empty() {
            self.gate.pass();
        }
        self.table.install(rules)
    }

    fn delete(&mut self, keys: &[KeyAddress]) -> Result<(), RuleError> {
        if !keys.is_empty() {
            self.gate.pass();
        }
        self.table.delete(keys)
    }

    fn delete_cache(&mut self, cache: CacheId) -> Result<(), RuleError> {
        self.table.delete_cache(cache)
    }

    fn spread(&mut self, caches: &[CacheId]) -> Result<(), RuleError> {
        self.table.spread(caches)
    }

    fn dump(&mut self) -> Result<Vec<CountedRule>, RuleError> {
        self.table.dump()
    }

    fn poll(&mut self) -> Result<Option<SwitchEvent>, RuleError> {
        self.table.poll()
    }
}

impl Switch for GatedSwitch {
    fn connect(
        &mut self,
        destination: Destination,
        port: Option<PortNumber>,
    ) -> Result<(), RuleError> {
        self.table.connect(destination, port)
    }

    fn counts(&mut self) -> Result<SwitchCounts, RuleError> {
        self.table.counts()
    }
}
