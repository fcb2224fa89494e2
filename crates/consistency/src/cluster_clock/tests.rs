//! Nodes whose clocks differ, and what they tell each other.

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
                let is_lowest = node == lowest;
                let founded = (step == 0 && is_lowest).then_some(view);
                clock.note_view(now, view, is_lowest, founded);
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
    one.note_view(Instant { ns: 0 }, ViewNumber(3), true, Some(ViewNumber(3)));
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
    other.note_view(Instant { ns: 1000 * MS }, ViewNumber(7), true, None);
    let shown = other.reading(Instant { ns: 1011 * MS });
    assert_eq!(shown.unix_ns, 1_000_001 * 1000 * MS + 11 * MS);
    assert_eq!((shown.epoch, shown.error_ns), (ViewNumber(7), 0));
    other.keep(at(2000, 2_000_002));
    let shown = other.reading(Instant { ns: 2000 * MS });
    assert_eq!(shown.unix_ns, 1_000_002 * 1000 * MS + MS);
    // What the first one said late is no news any more.
    assert!(!other.take_in(Instant { ns: 2001 * MS }, sent, said));
}

/// A node that joined as the lowest led at once, by its own clock, although it had not heard
/// the time: the others' clocks jumped to its clock.
#[test]
fn the_lowest_node_leads_when_it_knows_the_time() {
    let at = |ms: u64| Instant { ns: ms * MS };
    let new = |ahead_s: u64| {
        let unix_ns = (1_000_000 + ahead_s) * 1000 * MS;
        let instant = at(0);
        ClusterClock::new(Now { instant, unix_ns })
    };
    let (mut first, mut joining) = (new(0), new(1000));
    first.note_view(at(0), ViewNumber(3), true, Some(ViewNumber(3)));
    joining.note_view(at(5), ViewNumber(4), true, None);
    assert!(!joining.is_set());
    first.note_view(at(5), ViewNumber(4), false, Some(ViewNumber(3)));
    assert!(!first.take_in(at(6), at(5), joining.reading(at(5))));
    assert!(joining.take_in(at(10), at(10), first.reading(at(10))));
    let shown = joining.reading(at(10));
    assert_eq!((shown.epoch, shown.error_ns), (ViewNumber(4), 0));
    assert_eq!(shown.unix_ns, first.reading(at(10)).unix_ns);
    assert!(first.take_in(at(20), at(20), joining.reading(at(20))));
    // It is removed and joins again: the other one has led meanwhile.
    first.note_view(at(30), ViewNumber(5), true, Some(ViewNumber(3)));
    joining.note_view(at(40), ViewNumber(6), true, None);
    assert!(joining.take_in(at(41), at(41), first.reading(at(41))));
    let shown = joining.reading(at(41));
    assert_eq!((shown.epoch, shown.error_ns), (ViewNumber(6), 0));
}

/// A cluster was formed, but its lowest node followed no view before a lower one joined.
#[test]
fn no_two_nodes_wait_for_the_time() {
    let at = Instant { ns: 0 };
    let mut first = ClusterClock::new(Now::default());
    let mut joining = first.clone();
    joining.note_view(at, ViewNumber(4), true, None);
    first.note_view(at, ViewNumber(4), false, Some(ViewNumber(3)));
    assert!(first.is_set());
    assert!(joining.take_in(at, at, first.reading(at)));
    assert!(first.take_in(at, at, joining.reading(at)));
    let epochs = [first, joining].map(|clock| clock.reading(at).epoch);
    assert_eq!(epochs, [ViewNumber(4); 2]);
}
