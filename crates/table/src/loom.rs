//! Every interleaving of a few small histories, under the memory model (CK-57).
//!
//! Run as `RUSTFLAGS="--cfg loom" cargo test -p curtail-table --release loom`. Tables have one to
//! four buckets, each with a stripe of its own; each history has a reader and a writer (or two),
//! and the number of preemptions is bounded where the whole space would be too large.

mod items;

use loom::{sync::Arc, thread};

use crate::{CuckooMap, KeyHasher, MapConfig, Search, VersionedSpin, cuckoo::Bug, slots::Apart4};

/// The hash is the key: the test chooses the buckets.
struct Chosen;

impl KeyHasher<u64> for Chosen {
    fn hash(&self, key: &u64) -> u64 {
        *key
    }
}

type Map = CuckooMap<u64, [u64; 2], Apart4, VersionedSpin, Chosen>;

/// A key whose buckets, in a table of a power of two of buckets, are `first` and `second`.
fn key(number: u64, first: u64, second: u64) -> u64 {
    number << 8 | second << 32 | first
}

fn map(buckets: usize, buckets_max: usize, bug: Option<Bug>) -> Map {
    let config = MapConfig {
        slots: buckets * 4,
        slots_max: buckets_max * 4,
        fill_target: 0.96,
        huge_pages: false,
        stripe_slots: 4,
        search: Search::Breadth,
        prefetch: false,
    };
    let mut map = Map::with_hasher(config, Chosen).unwrap();
    map.set_bug(bug);
    map
}

fn explore(preemptions: usize, history: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(history);
}

/// Whether exploring `history` ends in a failed assertion.
fn is_caught(history: impl Fn() + Sync + Send + 'static + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(|| explore(2, history)).is_err()
}

/// Runs both on threads of their own: loom does not explore what its first thread does beside
/// another as thoroughly (one interleaving where this finds 655).
fn beside<A: 'static, B: 'static>(
    map: &Arc<Map>,
    first: impl FnOnce(&Map) -> A + 'static,
    second: impl FnOnce(&Map) -> B + 'static,
) -> (A, B) {
    let (here, there) = (map.clone(), map.clone());
    let first = thread::spawn(move || first(&here));
    let second = thread::spawn(move || second(&there));
    (first.join().unwrap(), second.join().unwrap())
}

/// A value is read whole: both words from one write.
fn update_beside_read() {
    let map = Arc::new(map(1, 1, None));
    map.insert(key(1, 0, 0), [1, 1]).unwrap();
    let (old, value) = beside(
        &map,
        |map| map.update(&key(1, 0, 0), |_| [2, 2]),
        |map| map.get(&key(1, 0, 0)),
    );
    assert!(value == Some([1, 1]) || value == Some([2, 2]), "{value:?}");
    assert_eq!(old, Some([1, 1]));
    assert_eq!(map.get(&key(1, 0, 0)), Some([2, 2]));
}

#[test]
fn loom_update_beside_read() {
    explore(3, update_beside_read);
}

/// Two writers and a reader of one key: updates are not lost.
#[test]
fn loom_two_writers() {
    explore(2, || {
        let map = Arc::new(map(2, 2, None));
        map.insert(key(1, 0, 1), [0, 0]).unwrap();
        let add = |map: &Map| map.update(&key(1, 0, 1), |[a, b]| [a + 1, b + 1]);
        beside(&map, add, add);
        assert_eq!(map.get(&key(1, 0, 1)), Some([2, 2]));
    });
}

/// Two inserters of one key, whose buckets are different: one wins.
#[test]
fn loom_two_inserters_of_one_key() {
    explore(2, || {
        let map = Arc::new(map(2, 2, None));
        let add = |map: &Map| map.insert(key(1, 0, 1), [1, 1]).is_ok();
        let (here, there) = beside(&map, add, add);
        assert!(here != there);
        assert_eq!(map.len(), 1);
    });
}

/// A path of two moves, 1 to 2 and then 0 to 1, while a reader looks for the key that goes to
/// bucket 2, where it looks first: the key is never absent.
fn displacement_beside_read(bug: Option<Bug>) {
    let map = Arc::new(map(4, 4, bug));
    let fill = |key: u64| map.insert(key, [key, key]).unwrap();
    let moving = key(9, 2, 1);
    (1..4).for_each(|number| fill(key(number, 2, 2)));
    // Of its two buckets the emptier one is taken: bucket 1.
    fill(moving);
    (1..4).for_each(|number| fill(key(number, 1, 1)));
    fill(key(8, 0, 1));
    (1..4).for_each(|number| fill(key(number, 0, 0)));
    let (inserted, value) = beside(
        &map,
        |map| map.insert(key(4, 0, 0), [4, 4]),
        move |map| map.get(&moving),
    );
    assert_eq!(inserted, Ok(()));
    assert_eq!(value, Some([moving, moving]));
    assert_eq!(map.get(&moving), Some([moving, moving]));
    assert_eq!(map.get(&key(4, 0, 0)), Some([4, 4]));
    assert_eq!(map.counters().paths[2], 1);
}

#[test]
fn loom_displacement_beside_read() {
    explore(2, || displacement_beside_read(None));
}

#[test]
fn loom_catches_a_silent_displacement() {
    assert!(is_caught(|| displacement_beside_read(Some(
        Bug::SilentDisplacement
    ))));
}

/// The table splits bucket 0 into 0 and 1 while a reader looks for a key that moves.
fn split_beside_read(bug: Option<Bug>) {
    let map = Arc::new(map(1, 2, bug));
    map.insert(key(1, 1, 1), [1, 1]).unwrap();
    map.insert(key(2, 0, 0), [2, 2]).unwrap();
    let (added, value) = beside(&map, |map| map.grow(1), |map| map.get(&key(1, 1, 1)));
    assert_eq!(added, 1);
    assert_eq!(value, Some([1, 1]));
    assert_eq!(map.get(&key(1, 1, 1)), Some([1, 1]));
    assert_eq!(map.get(&key(2, 0, 0)), Some([2, 2]));
}

#[test]
fn loom_split_beside_read() {
    explore(3, || split_beside_read(None));
}

#[test]
fn loom_catches_a_split_that_is_not_noticed() {
    for bug in [Bug::SilentSplit, Bug::HalfLockedSplit, Bug::UncheckedRead] {
        assert!(is_caught(move || split_beside_read(Some(bug))), "{bug:?}");
    }
}

/// A split and an insert of a key that the split sends elsewhere.
fn split_beside_insert(bug: Option<Bug>) {
    let map = Arc::new(map(2, 3, bug));
    beside(
        &map,
        |map| map.grow(1),
        |map| map.insert(key(1, 2, 2), [1, 1]).unwrap(),
    );
    assert_eq!(map.get(&key(1, 2, 2)), Some([1, 1]));
    assert_eq!(map.capacity(), 12);
}

#[test]
fn loom_split_beside_insert() {
    explore(2, || split_beside_insert(None));
}

#[test]
fn loom_catches_an_insert_that_does_not_notice_a_split() {
    assert!(is_caught(|| split_beside_insert(Some(Bug::UncheckedHold))));
}

/// An insert into two full buckets has room after a split, whoever splits, and no key is lost.
#[test]
fn loom_insert_without_room_beside_split() {
    explore(2, || {
        let map = Arc::new(map(2, 3, None));
        (1..5).for_each(|number| map.insert(key(number, 2, 2), [1, 1]).unwrap());
        (1..5).for_each(|number| map.insert(key(number, 1, 1), [1, 1]).unwrap());
        let (_, inserted) = beside(
            &map,
            |map| map.grow(1),
            |map| map.insert(key(5, 0, 1), [5, 5]),
        );
        assert_eq!(inserted, Ok(()));
        for number in 1..5 {
            assert_eq!(map.get(&key(number, 2, 2)), Some([1, 1]));
        }
        assert_eq!(map.get(&key(5, 0, 1)), Some([5, 5]));
        assert_eq!(map.len(), 9);
    });
}

/// Removing a key makes a reader of it miss or see the old value, nothing else; and whoever saw
/// the removal (by joining) misses.
#[test]
fn loom_remove_beside_read() {
    explore(3, || {
        let map = Arc::new(map(2, 2, None));
        map.insert(key(1, 0, 1), [1, 1]).unwrap();
        let (old, value) = beside(
            &map,
            |map| map.remove(&key(1, 0, 1)),
            |map| map.get(&key(1, 0, 1)),
        );
        assert!(value.is_none() || value == Some([1, 1]), "{value:?}");
        assert_eq!(old, Some([1, 1]));
        assert_eq!(map.get(&key(1, 0, 1)), None);
    });
}
