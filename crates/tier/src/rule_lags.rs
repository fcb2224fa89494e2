//! How long rules take to be in force after the switch has confirmed them (SW-86): Open vSwitch
//! confirms a change before its traffic follows.
//!
//! What is measured ends with the first request that a rule brings, so it includes the time until
//! somebody asks for the key. Only hot keys have rules.

use std::collections::HashMap;

use curtail_types::{Instant, RouteHash};

/// Rules on their way, and how long the last ones took.
#[derive(Debug, Default)]
pub(crate) struct RuleLags {
    /// Under way to the switch.
    sent: Vec<RouteHash>,
    /// Confirmed, and when.
    confirmed: HashMap<RouteHash, Instant>,
    /// The last ones in microseconds, as a ring.
    last_us: Vec<u64>,
    pub(crate) count: u64,
}

impl RuleLags {
    /// An install goes to the switch.
    pub(crate) fn send(&mut self, key: RouteHash) {
        self.sent.push(key);
    }

    /// The switch has done what was sent.
    pub(crate) fn confirm(&mut self, now: Instant) {
        for key in self.sent.drain(..) {
            if self.confirmed.len() < WAITING_MAX {
                self.confirmed.insert(key, now);
            }
        }
    }

    /// The switch has lost all rules.
    pub(crate) fn forget_all(&mut self) {
        self.sent.clear();
        self.confirmed.clear();
    }

    /// The rule is wanted no more.
    pub(crate) fn forget(&mut self, key: RouteHash) {
        self.confirmed.remove(&key);
        self.sent.retain(|sent| *sent != key);
    }

    /// A request has come by the key's rule.
    pub(crate) fn arrive(&mut self, key: RouteHash, now: impl FnOnce() -> Instant) {
        if self.sent.is_empty() && self.confirmed.is_empty() {
            return;
        }
        let lag_us = if let Some(since) = self.confirmed.remove(&key) {
            now().ns.saturating_sub(since.ns) / 1000
        } else if let Some(at) = self.sent.iter().position(|sent| *sent == key) {
            // In force before the confirmation came.
            self.sent.swap_remove(at);
            0
        } else {
            return;
        };
        let at = usize::try_from(self.count).unwrap_or(usize::MAX) % LAST_MAX;
        match self.last_us.get_mut(at) {
            Some(last) => *last = lag_us,
            None => self.last_us.push(lag_us),
        }
        self.count += 1;
    }

    /// Of the last rules in microseconds: half took no longer, nine of ten, and all.
    pub(crate) fn quantiles_us(&self) -> [u64; 3] {
        let mut sorted = self.last_us.clone();
        sorted.sort_unstable();
        [50, 90, 100].map(|percent| {
            let at = sorted.len().saturating_sub(1) * percent / 100;
            sorted.get(at).copied().unwrap_or(0)
        })
    }
}

/// Rules of keys that nobody has asked for since.
const WAITING_MAX: usize = 1 << 16;
const LAST_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lags_run_from_the_confirmation_to_the_first_request() {
        let at = |us: u64| Instant { ns: us * 1000 };
        let mut lags = RuleLags::default();
        for key in 1..=5 {
            lags.send(RouteHash(key));
        }
        lags.arrive(RouteHash(5), || at(3));
        lags.forget(RouteHash(4));
        lags.confirm(at(10));
        lags.arrive(RouteHash(1), || at(30));
        lags.arrive(RouteHash(1), || at(90));
        lags.arrive(RouteHash(4), || at(90));
        lags.arrive(RouteHash(2), || at(110));
        assert_eq!((lags.count, lags.quantiles_us()), (3, [20, 20, 100]));
        lags.forget_all();
        lags.arrive(RouteHash(3), || at(200));
        assert_eq!(lags.count, 3);
        for _ in 0..LAST_MAX {
            lags.send(RouteHash(6));
            lags.confirm(at(0));
            lags.arrive(RouteHash(6), || at(7));
        }
        assert_eq!(lags.quantiles_us(), [7; 3]);
    }
}
