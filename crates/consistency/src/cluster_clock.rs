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
    /// from its estimate.
    pub fn note_view(&mut self, now: Instant, view: ViewNumber, is_lowest: bool) {
        if is_lowest == self.leads {
            return;
        }
        self.leads = is_lowest;
        self.taken = now;
        self.error_ns = 0;
        if is_lowest {
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
            epoch: said.epoch,
        };
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
mod tests {
    use alloc::vec::Vec;

    use curtail_workload::Random;

    use super::*;

    const MS: u64 = 1_000_000;
    const NODES: usize = 4;

    /// What a test has nodes do wrong.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fault {
        Nothing,
        /// An error is not counted to grow.
        NoDrift,
        /// What was said counts from when it arrived.
        NoWay,
        /// The error of who said it is not added.
        NoSum,
    }

    struct Node {
        clock: ClusterClock,
        /// True nanoseconds to this node's, and what its wall clock is ahead by.
        parts_per_million: i64,
        ahead_ns: i64,
    }

    struct World {
        random: Random,
        /// Nanoseconds that have truly passed.
        now: u64,
        nodes: Vec<Node>,
        fault: Fault,
    }

    impl World {
        fn new(seed: u64, fault: Fault) -> Self {
            let mut world = Self {
                random: Random::new(seed),
                now: 0,
                nodes: Vec::new(),
                fault,
            };
            for _ in 0..NODES {
                let parts_per_million = world.below(19_801).cast_signed() - 9_900;
                let ahead_ns = (world.below(7200) * 1000 * MS).cast_signed();
                let clock = ClusterClock::new(Now::default());
                world.nodes.push(Node {
                    clock,
                    parts_per_million,
                    ahead_ns,
                });
                let now = world.now_of(world.nodes.len() - 1);
                world.nodes.last_mut().unwrap().clock = ClusterClock::new(now);
            }
            world
        }

        fn below(&mut self, bound: u64) -> u64 {
            self.random.below(bound)
        }

        fn now_of(&self, node: usize) -> Now {
            let node = &self.nodes[node];
            let passed = self.now.cast_signed();
            let ns = passed + passed / 1_000_000 * node.parts_per_million + 5_000_000;
            Now {
                instant: Instant {
                    ns: ns.cast_unsigned(),
                },
                unix_ns: (1_800_000_000_000_000_000 + ns + node.ahead_ns).cast_unsigned(),
            }
        }

        /// One calls another; what is said may take long either way.
        fn call(&mut self, from: usize, to: usize) {
            let (there, back) = (self.below(20 * MS), self.below(20 * MS));
            let sent = self.now_of(from).instant;
            self.now += there;
            let mut said = self.nodes[to].clock.reading(self.now_of(to).instant);
            self.now += back;
            let now = self.now_of(from).instant;
            let clock = &mut self.nodes[from].clock;
            let sent = if self.fault == Fault::NoWay {
                now
            } else {
                sent
            };
            if self.fault == Fault::NoSum {
                said.error_ns = 0;
            }
            clock.take_in(now, sent, said);
        }

        /// Whether two nodes that know the same leader differ by more than both say.
        fn is_wrong(&self) -> bool {
            let readings: Vec<Reading> = (0..NODES)
                .map(|node| {
                    let now = self.now_of(node).instant;
                    let mut reading = self.nodes[node].clock.reading(now);
                    if self.fault == Fault::NoDrift {
                        reading.error_ns = self.nodes[node].clock.error_ns;
                    }
                    reading
                })
                .collect();
            let apart = |one: &Reading, other: &Reading| {
                one.epoch == other.epoch
                    && one.epoch > ViewNumber(0)
                    && one.unix_ns.abs_diff(other.unix_ns) > one.error_ns + other.error_ns
            };
            let differs = |one| readings.iter().any(|other| apart(one, other));
            readings.iter().any(differs)
        }
    }

    /// Runs a cluster whose leader changes; whether anything was ever wrong.
    fn goes_wrong(seed: u64, fault: Fault) -> bool {
        let mut world = World::new(seed, fault);
        let mut wrong = false;
        for step in 0..400 {
            if step % 100 == 0 {
                let lowest = world.below(NODES as u64) as usize;
                let view = ViewNumber(step / 100 + 1);
                for node in 0..NODES {
                    let now = world.now_of(node).instant;
                    let clock = &mut world.nodes[node].clock;
                    clock.note_view(now, view, node == lowest);
                }
            }
            world.now += world.below(300 * MS);
            let (from, to) = (world.below(NODES as u64), world.below(NODES as u64));
            if from != to {
                world.call(from as usize, to as usize);
            }
            wrong |= world.is_wrong();
        }
        wrong
    }

    /// Goal: two nodes never differ by more than they say, and all come to know. Method: many
    /// worlds of clocks that run 1 % fast or slow, an hour or two apart, with words that take up to
    /// 20 ms either way; each of three faults is seen.
    #[test]
    fn nodes_differ_by_no_more_than_they_say() {
        for seed in 1..200 {
            assert!(!goes_wrong(seed, Fault::Nothing), "seed {seed}");
        }
        for fault in [Fault::NoDrift, Fault::NoWay, Fault::NoSum] {
            let caught = (1..200).any(|seed| goes_wrong(seed, fault));
            assert!(caught, "{fault:?}");
        }
    }

    #[test]
    fn who_comes_to_lead_goes_on_from_what_it_knows() {
        let at = |ms: u64, unix_s: u64| Now {
            instant: Instant { ns: ms * MS },
            unix_ns: unix_s * 1000 * MS,
        };
        let mut one = ClusterClock::new(at(0, 1_000_000));
        let mut other = ClusterClock::new(at(0, 2_000_000));
        assert!(!one.is_set());
        one.note_view(Instant { ns: 0 }, ViewNumber(3), true);
        let said = one.reading(Instant { ns: 10 * MS });
        let sent = Instant { ns: 9 * MS };
        assert!(other.take_in(Instant { ns: 11 * MS }, sent, said));
        let shown = other.reading(Instant { ns: 11 * MS });
        assert_eq!(shown.unix_ns, 1_000_000 * 1000 * MS + 11 * MS);
        assert_eq!(
            (shown.epoch, shown.error_ns),
            (ViewNumber(3), MS + 2 * MS / DRIFT + 1)
        );
        // The first one is gone. A second later the clock goes on, and then it follows the wall.
        other.note_view(Instant { ns: 1000 * MS }, ViewNumber(7), true);
        let shown = other.reading(Instant { ns: 1011 * MS });
        assert_eq!(shown.unix_ns, 1_000_001 * 1000 * MS + 11 * MS);
        assert_eq!((shown.epoch, shown.error_ns), (ViewNumber(7), 0));
        other.keep(at(2000, 2_000_002));
        let shown = other.reading(Instant { ns: 2000 * MS });
        assert_eq!(shown.unix_ns, 1_000_002 * 1000 * MS + MS);
        // What the first one said late is no news any more.
        assert!(!other.take_in(Instant { ns: 2001 * MS }, sent, said));
    }
}
