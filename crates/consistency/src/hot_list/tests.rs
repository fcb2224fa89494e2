//! Clusters whose clients ask some of the nodes, trackers that count, and a coordinator.

use alloc::{collections::BTreeSet, format, vec::Vec};

use curtail_hotkeys::{Access, Parameters, Tracker};
use curtail_types::{Instant, Key, KeyHash, NodeId, NodeSet, RouteHash};
use curtail_workload::{Popularity, Random, Ranks};

use super::*;
use crate::slice_view::{RowChange, RowStep, SliceId, SliceView};

const KEYS: u64 = 5000;
const NODES: u8 = 4;
/// Requests, sampled, of the whole cluster in an epoch.
const REQUESTS: u64 = 20_000;
const SECOND_NS: u64 = 1_000_000_000;

fn name(key: u64) -> KeyName {
    KeyName::of(Key::new(format!("key{key}").as_bytes()).unwrap())
}

struct Cluster {
    random: Random,
    ranks: Ranks,
    trackers: Vec<Tracker>,
    coordinator: HotCoordinator,
    epoch: u64,
    costs: Option<HotCosts>,
    value_bytes: u32,
}

impl Cluster {
    fn new(seed: u64, config: HotListConfig) -> Self {
        let parameters = Parameters {
            counted: 2000,
            listed: 300,
            ..Parameters::sampled()
        };
        let tracker = || Tracker::new(parameters.check().unwrap(), Instant::default());
        Self {
            random: Random::new(seed),
            ranks: Ranks::new(KEYS, Popularity::Zipf { exponent: 1.0 }),
            trackers: (0..NODES).map(|_| tracker()).collect(),
            coordinator: HotCoordinator::new(config),
            epoch: 0,
            costs: None,
            value_bytes: 40,
        }
    }

    fn see(&mut self, node: usize, key: u64, access: Access) {
        let hash = KeyHash(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.trackers[node].see(hash, name(key).key().unwrap(), access);
    }

    /// Requests of clients that ask these nodes, of which so many in a hundred write.
    fn ask(&mut self, nodes: NodeSet, requests: u64, writes: u64) {
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        for _ in 0..requests {
            let node = nodes[self.random.below(nodes.len() as u64) as usize];
            let key = self.ranks.rank(&mut self.random);
            let access = match self.random.below(100) < writes {
                true => Access::Write,
                false => Access::Read,
            };
            self.see(usize::from(node.0), key, access);
        }
    }

    fn end_epoch(&mut self) -> BTreeSet<KeyName> {
        self.epoch += 1;
        let now = Instant {
            ns: self.epoch * SECOND_NS,
        };
        let (costs, value_bytes) = (self.costs, self.value_bytes);
        let report = |tracker: &mut Tracker| {
            tracker.end_segment(now);
            let load = tracker.report();
            let value_bytes = load.keys.iter().map(|_| value_bytes).collect();
            HotReport {
                load,
                value_bytes,
                costs,
            }
        };
        let reports: Vec<_> = self.trackers.iter_mut().map(report).collect();
        let nodes = usize::from(NODES);
        let list = self.coordinator.end_epoch(ViewNumber(3), nodes, &reports);
        list.unwrap().keys.iter().copied().collect()
    }
}

/// About 16 sampled requests for the last of the hot keys.
fn config() -> HotListConfig {
    HotListConfig {
        requests_min: 4000,
        ..HotListConfig::new(200, Model::Lin)
    }
}

/// Goal: it does not matter which nodes clients ask. Method: the same load at every subset of four
/// nodes finds the same keys within three epochs, except keys whose load is about the limit.
#[test]
fn load_at_any_nodes_finds_the_same_keys() {
    let mut found = Vec::new();
    for bits in 1..1 << NODES {
        let mut cluster = Cluster::new(bits, config());
        let mut hot = BTreeSet::new();
        for _ in 0..3 {
            cluster.ask(NodeSet::from_bits(bits), REQUESTS, 1);
            hot = cluster.end_epoch();
        }
        found.push(hot);
    }
    // Rank r has 1/r of the first; the limit is 62 sampled requests in an epoch.
    let share = |rank: u64| {
        let sum: f64 = (1..=KEYS).map(|rank| 1.0 / rank as f64).sum();
        REQUESTS as f64 / sum / (rank + 1) as f64
    };
    let surely = |factor: f64| (0..KEYS).filter(move |&rank| share(rank) > 62.5 * factor);
    let (at_least, at_most) = (surely(1.5).count(), surely(0.5).count());
    assert!(at_least > 20, "{at_least}");
    for hot in &found {
        assert!(surely(1.5).all(|key| hot.contains(&name(key))));
        assert!(hot.len() <= at_most, "{} of {at_most}", hot.len());
        assert!(
            hot.iter()
                .all(|key| surely(0.5).any(|one| name(one) == *key))
        );
    }
}

/// Goal: keys that only writes ask for go within two epochs of the evidence, and keys that nobody
/// asks for too. Method: keys are read, then only written, or left alone.
#[test]
fn what_is_only_written_goes_within_two_epochs() {
    for writes in [100, 0] {
        let mut cluster = Cluster::new(9, config());
        let all = NodeSet::from_bits(0b1111);
        for _ in 0..10 {
            cluster.ask(all, REQUESTS, 0);
            cluster.end_epoch();
        }
        assert!(cluster.coordinator.list().keys.len() > 20);
        for epoch in 1..=2 {
            cluster.ask(all, REQUESTS * writes / 100, writes);
            let hot = cluster.end_epoch();
            assert_eq!(hot.is_empty(), epoch == 2, "{writes} %: {}", hot.len());
        }
        // And they do not come back while that lasts.
        for _ in 0..10 {
            cluster.ask(all, REQUESTS * writes / 100, writes);
            assert!(cluster.end_epoch().is_empty());
        }
    }
}

/// Goal: the break-even is where the measured costs say. Method: shares of writes below and above
/// it, with different costs and sizes.
#[test]
fn costs_decide_up_to_which_share_of_writes_a_key_is_hot() {
    // Four nodes, Lin: a read saves 3 (forwarded - local) of 4, a write costs 9 messages.
    let costs = |forwarded_ns, message_ns| HotCosts {
        local_ns: 1000,
        forwarded_ns,
        message_ns,
        byte_ps: 1000,
    };
    for (costs, value_bytes, break_even) in [
        (costs(10_000, 1000), 0, 43),
        (costs(5000, 1000), 0, 25),
        (costs(5000, 4000), 0, 8),
        (costs(1000, 1000), 0, 0),
        // A message, and a forwarded read, take a microsecond for each thousand bytes more.
        (costs(5000, 1000), 9000, 21),
    ] {
        let is_hot = |writes: u64| {
            let mut cluster = Cluster::new(writes, config());
            (cluster.costs, cluster.value_bytes) = (Some(costs), value_bytes);
            for _ in 0..4 {
                for request in 0..4000 {
                    let is_write = request % 100 < writes;
                    let access = if is_write {
                        Access::Write
                    } else {
                        Access::Read
                    };
                    cluster.see(request as usize % 4, 7, access);
                }
                cluster.end_epoch();
            }
            cluster.coordinator.list().keys.contains(&name(7))
        };
        // It comes if it is worth it by a fifth.
        let below = break_even * 8 / 10;
        assert!(below == 0 || is_hot(below), "{below} of {break_even}");
        assert!(!is_hot(break_even + 2), "{break_even}");
    }
}

/// Goal: a load about the limits does not make keys come and go. Method: keys at about the least
/// load and at about the break-even, for a hundred epochs.
#[test]
fn keys_about_the_limits_seldom_change() {
    let mut cluster = Cluster::new(4, config());
    let (mut last, mut changes) = (BTreeSet::new(), 0);
    for _ in 0..100 {
        cluster.ask(NodeSet::from_bits(0b1111), REQUESTS, 20);
        let hot = cluster.end_epoch();
        changes += hot.symmetric_difference(&last).count();
        last = hot;
    }
    // About forty are about the limits; each comes and goes at most once in seven epochs.
    assert!(changes < 400, "{changes}");
}

/// Goal: a full list has the best keys, and others take their places when they are clearly better.
#[test]
fn a_full_list_has_the_keys_that_are_worth_most() {
    let mut cluster = Cluster::new(5, config());
    cluster.coordinator.config.keys_max = 10;
    let ask = |cluster: &mut Cluster, key: u64, requests: u64| {
        for request in 0..requests {
            cluster.see(request as usize % 4, key, Access::Read);
        }
    };
    for key in 0..20 {
        ask(&mut cluster, key, 1000 - 40 * key);
    }
    let hot = cluster.end_epoch();
    assert_eq!(hot, (0..10).map(name).collect());
    for _ in 0..3 {
        for key in 0..10 {
            ask(&mut cluster, key, 1000 - 40 * key);
        }
        ask(&mut cluster, 30, 700);
        ask(&mut cluster, 31, 2000);
        cluster.end_epoch();
    }
    let hot = &cluster.coordinator.list().keys;
    assert!(hot.contains(&name(31)) && !hot.contains(&name(9)));
    assert!(!hot.contains(&name(30)) && hot.contains(&name(8)));
    assert_eq!(hot.len(), 10);
}

/// Goal: another coordinator goes on where the last one ended. Method: it takes its list over, and
/// an older one it does not.
#[test]
fn another_coordinator_goes_on_from_the_list() {
    let mut cluster = Cluster::new(6, config());
    let all = NodeSet::from_bits(0b1111);
    for _ in 0..3 {
        cluster.ask(all, REQUESTS, 0);
        cluster.end_epoch();
    }
    let before = cluster.coordinator.list().clone();
    cluster.coordinator = HotCoordinator::new(config());
    cluster.coordinator.take_over(&before);
    cluster.ask(all, REQUESTS, 0);
    cluster.end_epoch();
    let after = cluster.coordinator.list().clone();
    assert!(after.number >= before.number);
    let kept = before.keys.iter().filter(|key| after.keys.contains(key));
    assert!(kept.count() * 10 >= before.keys.len() * 9);
    cluster.coordinator.take_over(&before);
    assert_eq!(*cluster.coordinator.list(), after, "not an older one");
    let unlike = [LoadScale::ALPHA_ONE, 1].map(|alpha| {
        let mut load = cluster.trackers[0].report();
        load.scale.alpha = alpha;
        HotReport {
            load,
            value_bytes: Vec::new(),
            costs: None,
        }
    });
    assert!(
        cluster
            .coordinator
            .end_epoch(ViewNumber(3), 4, &unlike)
            .is_err()
    );
    assert_eq!(*cluster.coordinator.list(), after);
}

/// Goal: a node's machines are told of the keys whose primary it is, in each view, and to cool what
/// left the list.
#[test]
fn primaries_are_told_of_their_keys() {
    let nodes = NodeSet::from_bits(0b11);
    let view = SliceView::first(ViewNumber(1), nodes, 8, 1);
    let list = |count: u32, keys: &[u64]| {
        let number = HotListNumber {
            view: ViewNumber(1),
            count,
        };
        let mut keys: Vec<_> = keys.iter().map(|&key| name(key)).collect();
        keys.sort_unstable();
        HotList { number, keys }
    };
    let route = |key: &KeyName| {
        let digits = core::str::from_utf8(&key.bytes()[3..]).unwrap();
        RouteHash(digits.parse::<u64>().unwrap() << 61)
    };
    let hash = |key: u64| RouteHash(key << 61);
    let mut followers = [KeysToHeat::default(), KeysToHeat::default()];
    for follower in &mut followers {
        assert!(follower.take(&list(2, &[0, 1, 2]), route));
        assert!(!follower.take(&list(1, &[]), route), "older");
    }
    // Slices alternate between the nodes.
    let [one, other] = &mut followers;
    assert_eq!(
        one.heats(&view, NodeId(0)),
        [(hash(0), true), (hash(2), true)]
    );
    assert_eq!(other.heats(&view, NodeId(1)), [(hash(1), true)]);
    assert!(one.take(&list(3, &[1, 2]), route));
    assert_eq!(
        one.heats(&view, NodeId(0)),
        [(hash(0), false), (hash(2), true)]
    );
    // It is told again, though not for ever.
    for _ in 0..COOLS {
        one.heats(&view, NodeId(0));
    }
    assert_eq!(one.heats(&view, NodeId(0)), [(hash(2), true)]);
    let step = |view: &SliceView, slice, step| {
        let change = RowChange {
            slice: SliceId(slice),
            view: view.number,
            step,
        };
        view.next(&[change], NodeSet::NONE, NodeSet::NONE).unwrap()
    };
    let mut moved = view;
    for one in [RowStep::Hold, RowStep::Enter, RowStep::HandOver] {
        moved = step(&moved, 1, one(NodeId(0)));
    }
    assert_eq!(
        one.heats(&moved, NodeId(0)),
        [(hash(1), true), (hash(2), true)]
    );
    assert_eq!(other.heats(&moved, NodeId(1)), []);
}

const COOLS: u32 = 60;
