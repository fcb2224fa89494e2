//! One wall clock for all nodes of a cluster, so that an item expires at the same time on each.
//!
//! An item's end is an absolute time, set once by the node that orders the write. The nodes' own
//! clocks may show any time; only their rates are reliable (SwitchKV requirement SW-32). So the
//! clock of the lowest live node *leads*, and every other node estimates it, as in Cristian's
//! algorithm (Distributed Computing 3, 1989), from the calls by which it measures round trips:
//!
//! ```text
//!   X  --- call, at s ------>  Y      Y's estimate is t, with an error of at most e
//!   X  <-- t, e ------------- Y      at r, by X's clock: now it is t .. t + (r - s), +- e
//! ```
//!
//! X takes the middle of that range. Its error is at most half of the round trip plus e, and grows
//! by 2 % of the time that passes, because the rates of two clocks may differ by as much. X keeps
//! the estimate with the smallest error bound. X may call any node: errors add up along a chain of
//! calls, so nodes that reach only each other get larger bounds, but never wrong ones.
//!
//! When another node becomes the leader, it continues from its own estimate by *its* clock. Each
//! time carries the number of the view in which its leader began to lead, so newer times can be
//! told from older ones. An item's end therefore does not jump when nodes join or leave, whatever
//! their own clocks show. The leader moves its time towards its own wall clock by a thousandth of
//! the time that passes, so the cluster follows when that clock is set.
//!
//! A node that has just joined has no estimate. If it is the lowest, it leads only when it has one.
//! Of the members that joined first, the lowest may use its own clock instead: members before them
//! are gone, and later ones ask it. So no two nodes wait for each other.

use curtail_types::{Instant, Now, ViewNumber};

/// The cluster's wall clock, as one node knows it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ClusterClock {
    /// Wall time minus monotonic time.
    offset_ns: i64,
    /// The maximum error of the offset, and when it was determined.
    error_ns: u64,
    taken: Instant,
    leads: bool,
    /// The newest view that this node follows, if it is the lowest live node there.
    lowest_in: Option<ViewNumber>,
    /// The view in which the leader began to lead; 0 until this node knows of a leader.
    epoch: ViewNumber,
}

/// A node's estimate of the cluster's clock, as it tells other nodes.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Reading {
    /// The view in which the leader began to lead; 0 if the node knows nothing.
    pub epoch: ViewNumber,
    /// The cluster's wall time.
    pub unix_ns: u64,
    /// The maximum error of that time.
    pub error_ns: u64,
}

/// The rates of two clocks differ by at most one part in so many: just under 1 % each (SW-32).
const DRIFT: u64 = 50;

/// The leader moves towards its own wall clock by one part in so many.
const SLEW: u64 = 1000;

impl ClusterClock {
    /// A node that knows of no leader and uses its own clock, which shows `now`.
    pub fn new(now: Now) -> Self {
        Self {
            offset_ns: now.unix_ns.cast_signed() - now.instant.ns.cast_signed(),
            error_ns: 0,
            taken: now.instant,
            leads: false,
            lowest_in: None,
            epoch: ViewNumber(0),
        }
    }

    /// Whether this is the cluster's time, not only this node's own clock.
    pub fn is_set(&self) -> bool {
        self.epoch > ViewNumber(0)
    }

    /// What to add to the monotonic clock to get the wall time.
    pub fn offset_ns(&self) -> i64 {
        self.offset_ns
    }

    /// The maximum error at `now`.
    pub fn error_ns(&self, now: Instant) -> u64 {
        let passed = now.ns.saturating_sub(self.taken.ns);
        let drift = if self.leads { 0 } else { passed / DRIFT };
        self.error_ns.saturating_add(drift)
    }

    /// The estimate to send to other nodes.
    pub fn reading(&self, now: Instant) -> Reading {
        Reading {
            epoch: self.epoch,
            unix_ns: now.ns.saturating_add_signed(self.offset_ns),
            error_ns: self.error_ns(now),
        }
    }

    /// Notes whether this node is the lowest live one in the view `view`. A new leader continues
    /// from its estimate; without one, it leads when it has one. A node that is the lowest of those
    /// that joined first, in the view `founded`, may use its own clock.
    pub fn note_view(
        &mut self,
        now: Instant,
        view: ViewNumber,
        is_lowest: bool,
        founded: Option<ViewNumber>,
    ) {
        self.lowest_in = is_lowest.then_some(view);
        if let Some(founded) = founded.filter(|_| !self.is_set()) {
            // The lowest node, if it is another one, leads from a later view.
            self.epoch = founded;
            self.taken = now;
        }
        if is_lowest != self.leads && self.is_set() {
            self.leads = is_lowest;
            self.taken = now;
            self.error_ns = 0;
            self.lead();
        }
    }

    fn lead(&mut self) {
        if let Some(view) = self.lowest_in {
            (self.leads, self.error_ns) = (true, 0);
            self.epoch = self.epoch.max(view);
        }
    }

    /// Uses the reading of a node that was called at `sent` and whose answer arrived at `now`, if
    /// it is better than the present estimate; returns whether it was.
    pub fn take_in(&mut self, now: Instant, sent: Instant, said: Reading) -> bool {
        let way_ns = now.ns.saturating_sub(sent.ns);
        let error_ns = said
            .error_ns
            .saturating_add(way_ns / 2 + way_ns / DRIFT + 1);
        let is_newer = said.epoch > self.epoch;
        let is_better = said.epoch == self.epoch && !self.leads && error_ns < self.error_ns(now);
        if said.epoch == ViewNumber(0) || !(is_newer || is_better) {
            return false;
        }
        let unix_ns = said.unix_ns.saturating_add(way_ns / 2);
        *self = Self {
            offset_ns: unix_ns.cast_signed() - now.ns.cast_signed(),
            error_ns,
            taken: now,
            leads: false,
            lowest_in: self.lowest_in,
            epoch: said.epoch,
        };
        if self.lowest_in >= Some(said.epoch) {
            self.lead();
        }
        true
    }

    /// Moves a leader's time slowly towards its own wall clock. Call it several times in a lease.
    pub fn keep(&mut self, now: Now) {
        if !self.leads {
            return;
        }
        let passed = now.instant.ns.saturating_sub(self.taken.ns);
        let most = (passed / SLEW).cast_signed();
        let own = Self::new(now).offset_ns;
        self.offset_ns += (own - self.offset_ns).clamp(-most, most);
        self.taken = now.instant;
    }
}

#[cfg(test)]
mod tests;
