//! The index: against a model, while it grows, under several threads, filled to the brim, and with
//! a planted bug.

#![cfg(not(loom))]

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread,
};

use curtail_memory::Pages;
use curtail_types::HashSeed;
use scopeguard::{defer, guard};

use super::*;
use crate::{Counters, Global, GlobalMutex, GlobalSpin, NoLock, SpinWord, sync::AtomicU64};

/// Items of the tests: reference r has the hash and the value in the words of r.
struct Items(Vec<[AtomicU64; 3]>);

impl Items {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Default::default()).collect())
    }

    fn value(&self, reference: Reference) -> [u64; 2] {
        let [_, first, second] = &self.0[reference.get() as usize];
        [first, second].map(|word| word.load(Ordering::Relaxed))
    }

    fn set_value(&self, reference: Reference, value: [u64; 2]) {
        let words = &self.0[reference.get() as usize][1..];
        for (word, bits) in words.iter().zip(value) {
            word.store(bits, Ordering::Relaxed);
        }
    }
}

impl Resolver for Items {
    fn hash_of(&self, reference: Reference) -> KeyHash {
        KeyHash(self.0[reference.get() as usize][0].load(Ordering::Relaxed))
    }

    fn prefetch(&self, _reference: Reference) {}
}

fn config(slots_initial: usize, slots_max: usize, fill_target: f64) -> IndexConfig {
    IndexConfig {
        slots_initial,
        slots_max,
        fill_target,
        pages: Pages::Small,
        ..IndexConfig::default()
    }
}

fn index(slots_initial: usize, slots_max: usize, items: usize, fill_target: f64) -> Index<Items> {
    let config = config(slots_initial, slots_max, fill_target);
    Index::new(config, Items::new(items)).unwrap()
}

/// An index of a fixed size, and the items that fill 95 % of it.
fn fixed(slots: usize) -> (Index<Items>, u64) {
    let items = slots * 95 / 100;
    (index(slots, slots, items + 1, 0.96), items as u64)
}

fn mix(number: u64) -> KeyHash {
    KeyHash(curtail_workload::mix(
        number.wrapping_add(0x9e37_79b9_7f4a_7c15),
    ))
}

fn reference(number: u64) -> Reference {
    Reference::new(number).unwrap()
}

/// Inserts a reference that is not there; whether it was not.
fn insert<C: Locks>(index: &Index<Items, C>, hash: KeyHash, at: Reference) -> Result<bool, Full> {
    index.resolver().0[at.get() as usize][0].store(hash.0, Ordering::Relaxed);
    let mut locked = index.lock_with_room(hash)?;
    let is_new = locked.find(|found| found == at).is_none();
    if is_new {
        locked.insert(at).unwrap();
    }
    Ok(is_new)
}

fn holds(index: &Index<Items>, hash: KeyHash, wanted: Reference) -> bool {
    index
        .read(hash, |found| (found == wanted).then_some(()))
        .is_some()
}

/// How many displacements there were.
fn moves(counters: &Counters) -> u64 {
    let paths = counters.paths.iter().zip(0..);
    paths.map(|(count, moves)| count * moves).sum()
}

const ITEMS: u64 = if cfg!(miri) { 150 } else { 20_000 };

/// Goal: a table grows from one bucket with everything in it, near its target. Method: insert,
/// look everything up now and then, and compare the size with the items.
#[test]
fn grows_in_place_and_stays_near_its_target() {
    let index = index(8, 2 * ITEMS as usize, ITEMS as usize + 1, 0.92);
    for number in 1..=ITEMS {
        insert(&index, mix(number), reference(number)).unwrap();
        if number.is_power_of_two() || number == ITEMS {
            for earlier in 1..=number {
                assert!(
                    holds(&index, mix(earlier), reference(earlier)),
                    "{earlier} of {number}"
                );
            }
        }
    }
    assert_eq!(index.len(), ITEMS as usize);
    let fill = index.len() as f64 / index.slots() as f64;
    assert!(fill > 0.85, "{fill}");
    assert!(fill < 0.99, "{fill}");
    assert!(!holds(&index, mix(ITEMS + 1), reference(1)));
    let mut seen = vec![0; ITEMS as usize + 1];
    index.for_each(|found| seen[found.get() as usize] += 1);
    assert!(seen[1..].iter().all(|&count| count == 1));
    index.clear();
    assert!(index.is_empty());
}

/// Goal: a table of a fixed size fills to 98 % before it refuses, loses nothing then, and has room
/// again after a removal. Method: insert until it refuses.
#[test]
fn a_fixed_table_fills_up_and_refuses() {
    let slots = if cfg!(miri) { 128 } else { 8192 };
    let index = index(slots, slots, slots + 2, 0.96);
    let mut count = 0;
    while insert(&index, mix(count + 1), reference(count + 1)).is_ok() {
        count += 1;
    }
    assert!(count as usize * 100 >= slots * 95, "{count} of {slots}");
    assert_eq!(index.len(), count as usize);
    assert_eq!(index.slots(), slots);
    assert!((1..=count).all(|number| holds(&index, mix(number), reference(number))));
    assert_eq!(index.remove_if(mix(1), reference(1)), Some(0));
    assert_eq!(index.remove_if(mix(1), reference(1)), None);
    assert!(!holds(&index, mix(1), reference(1)));
    assert!(index.counters().paths[1] > 0);
    assert!(index.counters().refused > 0);
}

/// Only many keys at the highest target make the nearest searches fail.
#[test]
#[cfg_attr(miri, ignore = "fills tables of millions of slots")]
fn an_index_refuses_no_key_while_it_may_grow() {
    refuses_no_key_at(400_000, &[0.905, 0.92, 0.95]);
    assert!(refuses_no_key_at(4_000_000, &[0.96]) > 0);
}

#[test]
#[ignore = "fills tables of millions of slots"]
fn a_large_index_refuses_no_key_while_it_may_grow() {
    refuses_no_key_at(4_000_000, &[0.905, 0.92, 0.95]);
}

fn refuses_no_key_at(items: usize, fill_targets: &[f64]) -> u64 {
    let far = fill_targets
        .iter()
        .map(|&target| refuses_no_key(items, config(1 << 10, 2 * items, target)));
    far.sum()
}

/// Goal: the same at every fill target and with both searches, from one bucket on. Method: fewer
/// keys.
#[test]
#[cfg_attr(miri, ignore = "fills tables of many thousand slots")]
fn no_configuration_refuses_a_key_while_it_may_grow() {
    for search in [Search::Breadth, Search::Depth] {
        for fill_target in [0.1, 0.5, 0.92, 0.96] {
            for slots in [1, 1 << 12] {
                let config = IndexConfig {
                    search,
                    ..config(slots, 200_000, fill_target)
                };
                refuses_no_key(100_000, config);
            }
        }
    }
}

/// Goal: an index that may grow refuses no key, at the store's fill and at those above. Method: so
/// many random keys; how many searches had to look far is the answer.
fn refuses_no_key(items: usize, config: IndexConfig) -> u64 {
    let fill = move || {
        let index = Index::new(config, Items::new(items + 1)).unwrap();
        let refused = (1..=items as u64)
            .filter(|&number| insert(&index, mix(number), reference(number)).is_err())
            .count();
        let counters = index.counters();
        assert_eq!(refused, 0, "{config:?}: {counters:?}");
        assert!((1..=items as u64).all(|number| holds(&index, mix(number), reference(number))));
        let fill = index.len() as f64 / index.slots() as f64;
        assert!(fill > config.fill_target - 0.06, "{fill}: {config:?}");
        counters.searches_far
    };
    // Half the stack of a server's worker: the far search's queue is on it.
    let thread = thread::Builder::new().stack_size(256 << 10);
    thread.spawn(fill).unwrap().join().unwrap()
}

/// Goal: an index of the greatest size works, and one slot more is refused. Method: all of its
/// buckets in use at once, which takes address space but only the memory of those that are touched.
#[test]
#[cfg_attr(miri, ignore = "reserves 256 GiB of address space")]
fn an_index_may_have_as_many_buckets_as_half_a_hash_tells_apart() {
    let most = Index::<Items>::SLOTS_MAX;
    let items = 3000;
    let index = index(most, most, items as usize + 1, 0.9);
    assert_eq!(index.slots(), most);
    for number in 1..=items {
        insert(&index, mix(number), reference(number)).unwrap();
    }
    assert!((1..=items).all(|number| holds(&index, mix(number), reference(number))));
    assert!((1..=items).all(|number| index.remove_if(mix(number), reference(number)) == Some(0)));
    assert_eq!(index.len(), 0);
    let more = IndexConfig {
        slots_initial: 8,
        slots_max: most + 1,
        ..IndexConfig::default()
    };
    let refused = Index::new(more, Items::new(1));
    assert!(matches!(refused, Err(TableError::TooManySlots)));
}

fn place_of(index: &Index<Items>, hash: KeyHash, wanted: Reference) -> Option<Hint> {
    index.read_hinted(hash, Hint::default(), |found, place| {
        (found == wanted).then_some(place)
    })
}

fn mark_of(index: &Index<Items>, hash: KeyHash, wanted: Reference) -> Option<u8> {
    let place = place_of(index, hash, wanted)?;
    let mut seen = None;
    index.raise_mark(place, wanted, |mark| *seen.insert(mark));
    seen
}

/// Goal: marks count, saturate, survive displacement and follow a replacement. Method: one item
/// among many.
#[test]
fn marks_count_and_travel() {
    let index = index(64, 2 * ITEMS as usize, ITEMS as usize + 3, 0.92);
    let (hash, first) = (mix(1), reference(1));
    insert(&index, hash, first).unwrap();
    for before in 0..20 {
        assert_eq!(mark_of(&index, hash, first), Some(before.min(MARK_MAX)));
        let place = place_of(&index, hash, first).unwrap();
        index.raise_mark(place, first, |mark| mark + 1);
    }
    for number in 2..=ITEMS {
        insert(&index, mix(number), reference(number)).unwrap();
    }
    assert_eq!(mark_of(&index, hash, first), Some(MARK_MAX));
    assert_eq!(index.remove_if(hash, first), Some(MARK_MAX));
    assert_eq!(index.remove_if(hash, first), None);
    assert_eq!(mark_of(&index, hash, first), None);
    assert_eq!(index.len(), ITEMS as usize - 1);
}

/// Goal: the index does what a map does, with every lock and both searches, while it grows and when
/// it is nearly full. Method: random operations beside a `HashMap`.
#[test]
fn agrees_with_a_model() {
    fn check<C: Locks>() {
        for search in [Search::Breadth, Search::Depth] {
            let keys = if cfg!(miri) { 40 } else { 3000 };
            let growing = config(8, 2 * keys as usize + 64, 0.92);
            agrees_with_a_model_of::<C>(keys, IndexConfig { search, ..growing });
            // Two thirds of the keys are there.
            let (keys, slots) = if cfg!(miri) { (66, 48) } else { (900, 640) };
            let full = config(slots, slots, 0.96);
            agrees_with_a_model_of::<C>(keys, IndexConfig { search, ..full });
        }
    }
    check::<VersionedSpin>();
    check::<GlobalSpin>();
    check::<GlobalMutex>();
    check::<Global<SpinWord, true>>();
    check::<NoLock>();
}

fn agrees_with_a_model_of<C: Locks>(keys: u64, config: IndexConfig) {
    let index: Index<Items, C> =
        Index::with_locks(config, Items::new(2 * keys as usize + 2)).unwrap();
    let mut model: HashMap<u64, Reference> = HashMap::new();
    for turn in 0..keys * if cfg!(miri) { 4 } else { 20 } {
        let random = mix(turn ^ 0x5eed_0000).0;
        let key = random % keys;
        // A key's hash is shared with a few others, so that equal tags and buckets occur.
        let hash = mix(key / 3);
        let current = model.get(&key).copied();
        let own = |found: Reference| found.get() % (keys + 1) == key + 1;
        assert_eq!(
            index.read(hash, |found| own(found).then_some(found)),
            current
        );
        match (random >> 60, current) {
            (0..6, None) => match insert(&index, hash, reference(key + 1)) {
                Ok(is_new) => assert!(is_new && model.insert(key, reference(key + 1)).is_none()),
                Err(Full) => assert!(index.slots() >= config.slots_initial.max(config.slots_max)),
            },
            (6..9, Some(old)) => {
                model.remove(&key);
                assert!(index.remove_if(hash, old).is_some());
            }
            (9..12, Some(old)) => {
                let mut locked = index.lock(hash);
                let position = locked.find(own).unwrap();
                assert_eq!(locked.reference(position), old);
                let other = reference((old.get() + keys + 1) % (2 * keys + 2));
                index.resolver().0[other.get() as usize][0].store(hash.0, Ordering::Relaxed);
                locked.replace(position, other);
                model.insert(key, other);
            }
            _ => {}
        }
    }
    assert_eq!(index.len(), model.len());
    let mut left: Vec<Reference> = model.into_values().collect();
    index.for_each(|found| left.retain(|&it| it != found));
    assert_eq!(left, []);
    index.clear();
    assert!(index.is_empty());
}

/// Goal: an item that is there is never missed, while others are displaced around it and the table
/// splits (CK-61). Method: readers of residents beside a writer that fills the table and grows it.
#[test]
fn residents_are_never_missed() {
    let (residents, items) = if cfg!(miri) {
        (20, 120)
    } else {
        (2000, 25_000)
    };
    let index = Arc::new(index(64, 2 * items as usize, items as usize + 1, 0.95));
    for number in 1..=residents {
        insert(&index, mix(number), reference(number)).unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for seed in 0..2_u64 {
            let (index, done, reads) = (index.clone(), done.clone(), reads.clone());
            scope.spawn(move || {
                let mut turn = seed;
                while !done.load(Ordering::Relaxed) {
                    turn += 2;
                    let number = 1 + mix(turn).0 % residents;
                    assert!(
                        holds(&index, mix(number), reference(number)),
                        "missed {number}"
                    );
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        defer! { done.store(true, Ordering::Relaxed) }
        for number in residents + 1..=items {
            insert(&index, mix(number), reference(number)).unwrap();
        }
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert_eq!(index.len(), items as usize);
}

/// Goal: many writers lose nothing and put nothing in twice, whatever the number of threads
/// (CK-59). Method: 1 to 16 threads fill a table of fixed size to 95 %, then all is there.
#[test]
fn many_threads_fill_a_table() {
    let counts: &[u64] = if cfg!(miri) { &[2] } else { &[1, 2, 4, 8, 16] };
    for &threads in counts {
        let (index, items) = fixed(if cfg!(miri) { 256 } else { 1 << 15 });
        thread::scope(|scope| {
            for thread in 0..threads {
                let index = &index;
                scope.spawn(move || {
                    for number in (1..=items).filter(|number| number % threads == thread) {
                        let insert = || insert(index, mix(number), reference(number));
                        assert_eq!(insert(), Ok(true));
                        assert_eq!(insert(), Ok(false));
                    }
                });
            }
        });
        assert_eq!(index.len(), items as usize);
        assert!((1..=items).all(|number| holds(&index, mix(number), reference(number))));
    }
}

/// Goal: the rate of invalid paths stays below the paper's bound (3.3), `1 - (1 - L/N)^(L(T-1))`
/// (CK-30, CK-31), and an item costs less than a displacement. Method: two threads fill a table;
/// the bound for its N, L = 5, times 20 for what a preempted searcher adds.
#[test]
fn invalid_paths_are_rare() {
    let (index, items) = fixed(if cfg!(miri) { 256 } else { 1 << 16 });
    thread::scope(|scope| {
        for thread in 1..=2 {
            let index = &index;
            scope.spawn(move || {
                for number in (thread..=items).step_by(2) {
                    insert(index, mix(number), reference(number)).unwrap();
                }
            });
        }
    });
    let counters = index.counters();
    let paths: u64 = counters.paths.iter().sum();
    let moves = moves(&counters);
    assert!(moves < items, "{moves} displacements for {items} items");
    let bound = 1.0 - (1.0 - 5.0 / index.slots() as f64).powi(5);
    let rate = counters.paths_invalid as f64 / paths as f64;
    assert!(rate <= bound * 20.0 || cfg!(miri), "{rate} above {bound}");
    assert_eq!(counters.locked_all, 0);
}

/// What readers saw wrong while a writer displaced, split and wrote values: items missed, values
/// torn. Unless `changed`, the writer does not say that it wrote.
fn errors_seen_by_readers(changed: bool, turns: u64) -> u64 {
    let (residents, slots) = if cfg!(miri) { (10, 32) } else { (300, 1024) };
    let items = 1001 + 2 * slots;
    let slots_max = slots + slots / 4;
    let index = index(slots, slots_max, items, 0.96);
    let set = |number: u64, first: u64| {
        let mut locked = index.lock(mix(number));
        let position = locked.find(|found| found == reference(number)).unwrap();
        index
            .resolver()
            .set_value(reference(number), [first, !first]);
        if changed {
            locked.changed(position);
        }
    };
    for number in 1..=residents {
        insert(&index, mix(number), reference(number)).unwrap();
        set(number, number);
    }
    let done = AtomicBool::new(false);
    let reader = |seed: u64| {
        let (mut errors, mut turn) = (0, seed);
        while !done.load(Ordering::Relaxed) {
            turn += 2;
            let number = 1 + mix(turn).0 % residents;
            let value = index.read(mix(number), |found| {
                (found == reference(number)).then(|| index.resolver().value(found))
            });
            let right = value.is_some_and(|[a, b]| a % 1000 == number && b == !a);
            errors += u64::from(!right);
        }
        errors
    };
    thread::scope(|scope| {
        let readers = [0, 1].map(|seed| scope.spawn(move || reader(seed)));
        let end = guard((), |()| done.store(true, Ordering::Relaxed));
        // Items above the residents come and go, displacing them; the residents' values change.
        let fresh = |turn: u64| 1001 + mix(turn).0 % (2 * slots as u64);
        for turn in 0..turns {
            if insert(&index, mix(fresh(turn)), reference(fresh(turn))).is_err() {
                assert!(index.slots() >= slots_max);
                let old = fresh(turn / 2);
                index.remove_if(mix(old), reference(old));
            }
            let number = 1 + turn % residents;
            set(number, number + 1000 * turn);
            // Splits are spread over the whole run.
            if turn % (turns / 256).max(1) == 0 {
                index.grow(1);
            }
        }
        drop(end);
        readers.map(|reader| reader.join().unwrap()).iter().sum()
    })
}

/// Goal: no resident is ever missed or torn while others are displaced, written and split around
/// it (CK-60, CK-61). Method: verification values under a busy writer.
#[test]
fn readers_see_no_wrong_value() {
    let turns = if cfg!(miri) { 60 } else { 10_000 };
    assert_eq!(errors_seen_by_readers(true, turns), 0);
}

/// Goal: the test above can fail. Method: writes that do not change their version. (A silent
/// displacement or split shows itself once in a billion reads; loom finds those, see `loom.rs`.)
#[test]
#[ignore = "needs two free cores to lose its race; run by the long test"]
fn a_planted_bug_is_caught() {
    let caught = (0..100).any(|_| errors_seen_by_readers(false, 60_000) > 0);
    assert!(caught, "torn values were not noticed");
}

/// Goal: no update under a lock is lost, whichever thread inserts the item. Method: threads add to
/// shared counters, and insert and remove others, while the table grows; the sum must be exact.
#[test]
fn no_update_is_lost() {
    let (threads, turns, counters) = if cfg!(miri) {
        (2, 30, 8)
    } else {
        (4, 20_000, 500)
    };
    // Miri looks at every word of a region at each access.
    let slots_max = if cfg!(miri) { 256 } else { 1 << 14 };
    let index = index(64, slots_max, 12_001, 0.92);
    let add_one = |number: u64| {
        let mut locked = index.lock(mix(number));
        let Some(position) = locked.find(|found| found == reference(number)) else {
            return false;
        };
        let [count, _] = index.resolver().value(reference(number));
        index
            .resolver()
            .set_value(reference(number), [count + 1, 0]);
        locked.changed(position);
        true
    };
    thread::scope(|scope| {
        for thread in 0..threads {
            let (index, add_one) = (&index, &add_one);
            scope.spawn(move || {
                for turn in 0..turns {
                    let noise = 10_000 + mix(turn << 20 | thread).0 % 2000;
                    insert(index, mix(noise), reference(noise)).unwrap();
                    index.remove_if(mix(noise ^ 1), reference(noise ^ 1));
                    let number = 1 + mix(turn * threads + thread).0 % counters;
                    while !add_one(number) {
                        insert(index, mix(number), reference(number)).unwrap();
                    }
                }
            });
        }
    });
    let mut sum = 0;
    index.for_each(|found| {
        if found.get() <= counters {
            sum += index.resolver().value(found)[0];
        }
    });
    assert_eq!(sum, threads * turns);
}

/// Goal: a walk sees every item that is there throughout, though items move meanwhile (CK-58).
/// Method: walk while a writer displaces and grows.
#[test]
fn a_walk_misses_nothing() {
    let (residents, walks) = if cfg!(miri) { (30, 3) } else { (900, 60) };
    let slots = residents as usize * 10 / 9;
    let index = index(slots, 2 * slots, 20_000, 0.92);
    for number in 1..=residents {
        insert(&index, mix(number), reference(number)).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !done.load(Ordering::Relaxed) {
                turn += 1;
                let number = 10_000 + mix(turn).0 % (residents / 10);
                let (hash, at) = (mix(number), reference(number));
                if !insert(&index, hash, at).unwrap() {
                    index.remove_if(hash, at);
                }
            }
        });
        defer! { done.store(true, Ordering::Relaxed) }
        for _ in 0..walks {
            let mut seen = vec![false; residents as usize];
            index.for_each(|found| {
                if let Some(it) = seen.get_mut(found.get() as usize - 1) {
                    *it = true;
                }
            });
            assert_eq!(seen.iter().position(|&it| !it), None);
        }
    });
}

/// Goal: a walk begins again if more items move past it than it can keep, also if they all move
/// during one step and if it has visited every bucket by then. Method: while the last bucket is
/// visited, the walk is told of so many moves, whose items it never visits otherwise.
#[test]
fn a_walk_told_of_too_many_moves_begins_again() {
    for (moves, visits_each) in [(16, 1), (17, 2), (40, 2)] {
        let index = index(8 * SLOTS, 8 * SLOTS, 100, 0.96);
        for number in 1..=40 {
            insert(&index, mix(number), reference(number)).unwrap();
        }
        let (mut visits, mut is_told) = (vec![0; 41], false);
        index.for_each(|found| {
            visits[found.get() as usize] += 1;
            let seen = visits.iter().sum::<u32>();
            if seen == 40 && !std::mem::replace(&mut is_told, true) {
                // From a bucket that is not visited yet.
                let from = Place::new(u32::MAX as usize, 0);
                let to = Place::new(0, 0);
                (0..moves).for_each(|_| index.walks.note_move(from, to, KeyHash(0)));
            }
        });
        assert!(is_told);
        assert!(visits[1..].iter().all(|&count| count >= visits_each));
        if visits_each == 1 {
            assert!(visits[1..].contains(&1), "{moves} moves were kept");
        }
    }
}

/// Goal: walks that rest meanwhile miss nothing either, several at a time, also when so much moves
/// that one begins again. Method: two walks in steps between the writes of others, and residents
/// that go from one reference to another.
#[test]
fn walks_that_rest_miss_nothing() {
    let residents = if cfg!(miri) { 30 } else { 900 };
    let slots = residents as usize * 10 / 9;
    let index = index(slots, 2 * slots, 20_000, 0.92);
    for number in 1..=residents {
        insert(&index, mix(number), reference(number)).unwrap();
    }
    let mut turn = 0;
    for round in 0..if cfg!(miri) { 2 } else { 40 } {
        let mut seen = [
            vec![false; residents as usize],
            vec![false; residents as usize],
        ];
        let mut walks = [index.walk(), index.walk()];
        let mut goes_on = [true; 2];
        while goes_on != [false; 2] {
            for which in 0..2 {
                let buckets = 1 + (round + which) % 5;
                goes_on[which] = goes_on[which]
                    && index.walk_on(&mut walks[which], buckets, |found| {
                        if let Some(it) = seen[which].get_mut(found.get() as usize - 1) {
                            *it = true;
                        }
                    });
            }
            for _ in 0..20 {
                turn += 1;
                let number = 10_000 + mix(turn).0 % (residents / 10);
                let (hash, at) = (mix(number), reference(number));
                if !insert(&index, hash, at).unwrap() {
                    index.remove_if(hash, at);
                }
            }
        }
        for seen in &seen {
            assert_eq!(seen.iter().position(|&it| !it), None, "round {round}");
        }
    }
}

/// Goal: a chain of displacements that is longer than any path may be is refused, not followed.
/// Method: hashes crafted so that each bucket of a chain has one item that may leave.
#[test]
fn a_path_that_is_too_long_is_refused() {
    let index = index(32 * SLOTS, 32 * SLOTS, 1000, 0.96);
    let mut number = 0;
    let mut insert_in = |first: u64, second: u64| {
        number += 1;
        let hash = number << 40 | second << 32 | number << 8 | first;
        insert(&index, KeyHash(hash), reference(number))
    };
    for bucket in 0..24 {
        insert_in(bucket, bucket + 1).unwrap();
    }
    for bucket in (0..24).flat_map(|bucket| [bucket; SLOTS - 1]) {
        insert_in(bucket, bucket).unwrap();
    }
    assert_eq!(insert_in(0, 0), Err(Full));
    // From near the end of the chain there is a path.
    assert_eq!(insert_in(20, 20), Ok(true));
}

/// Goal: keys that meet in one pair of buckets are refused after bounded work, harm no other key
/// and do not make the table grow without end (CK-39, CK-59). Method: crafted hashes.
#[test]
fn colliding_keys_are_refused_and_harm_nobody() {
    let (slots, crafted, others) = if cfg!(miri) {
        (256, 20, 60)
    } else {
        (4096, 100, 1000)
    };
    let index = index(slots, 4 * slots, 2000, 0.92);
    // The low bits of both halves are those of 5 and 6 in tables of up to 2^20 buckets.
    let hash = |number: u64| KeyHash(number << 20 | number << 54 | 6 << 32 | 5);
    let accepted = (1..=crafted)
        .filter(|&number| insert(&index, hash(number), reference(number)).is_ok())
        .count();
    assert_eq!(accepted, 2 * SLOTS);
    assert!(index.slots() <= slots + 4 * 64 * SLOTS, "{}", index.slots());
    for number in 1000..1000 + others {
        insert(&index, mix(number), reference(number)).unwrap();
    }
    assert!((1000..1000 + others).all(|number| holds(&index, mix(number), reference(number))));
}

/// Goal: under a secret seed crafted keys are keys like any others. Method: keys whose own bits
/// collide, hashed as the server hashes, fill a table to 95 % with few displacements.
#[test]
fn crafted_keys_do_not_slow_a_seeded_table() {
    let seeds = if cfg!(miri) { 1 } else { 8 };
    for seed in 0..seeds {
        let seed = HashSeed([mix(2 * seed).0, mix(2 * seed + 1).0]);
        let (index, items) = fixed(if cfg!(miri) { 128 } else { 1 << 14 });
        for number in 1..=items {
            let hash = seed.hash(&(number << 20 | 5).to_le_bytes());
            insert(&index, hash, reference(number)).unwrap();
        }
        let moves = moves(&index.counters());
        assert!(moves < items, "{moves} displacements for {items} items");
    }
}

/// Goal: a writer that is overtaken again and again still gets its room (CK-15). Method: ask for
/// the locked-all way directly, in a table with both buckets full.
fn room_with_every_lock_held(search: Search, items: usize) {
    let config = IndexConfig {
        search,
        ..config(64, 64, 0.96)
    };
    let index = Index::new(config, Items::new(2000)).unwrap();
    let mut number = 0;
    while index.len() < items {
        number += 1;
        let _ = insert(&index, mix(number), reference(number));
    }
    for hash in (2000..4000).map(mix) {
        if index.free_slot(index.pair(hash.0)).is_some() {
            continue;
        }
        let Some(locked) = index.make_room_alone(hash.0) else {
            continue;
        };
        assert!(index.free_slot(locked.pair).is_some());
        drop(locked);
    }
    assert!(index.counters().locked_all > 0);
    let mut seen = Vec::new();
    index.for_each(|found| seen.push(found));
    assert_eq!(seen.len(), items);
    let is_there = |found: &Reference| holds(&index, mix(found.get()), *found);
    assert!(seen.iter().all(is_there));
}

#[test]
fn room_can_be_made_with_every_lock_held() {
    room_with_every_lock_held(Search::Breadth, 58);
}

/// The story: a random walk may come to a slot twice; then another item is in it than the one that
/// the walk saw there, and was moved to a bucket that is not its own.
#[test]
fn room_can_be_made_by_a_walk_with_every_lock_held() {
    room_with_every_lock_held(Search::Depth, 62);
}

/// Goal: memory per item is within CK-63: slots and 6 %. Method: count the bytes of a table.
#[test]
#[cfg_attr(miri, ignore = "reserves a table too large for Miri")]
fn memory_is_within_six_percent_of_the_slots() {
    let index = index(1 << 20, 1 << 20, 1, 0.96);
    let slots = 8 << 20;
    assert!(
        index.memory_bytes() * 100 <= slots * 106,
        "{} of {slots}",
        index.memory_bytes()
    );
}

/// Goal: a hint saves a search and never changes the answer, even if it is stale or another key's.
/// Method: hints taken early are used after the table has grown and items have moved or gone.
#[test]
fn a_hint_never_changes_the_answer() {
    let index = index(64, 2 * ITEMS as usize, ITEMS as usize + 1, 0.92);
    let hints: Vec<Hint> = (1..=ITEMS)
        .map(|number| {
            insert(&index, mix(number), reference(number)).unwrap();
            index.prefetch_candidates(mix(number))
        })
        .collect();
    for number in 1..=ITEMS {
        let (hash, wanted) = (mix(number), reference(number));
        let [own, other] = [number - 1, number % ITEMS].map(|at| hints[at as usize]);
        let read = |hint| {
            index.read_hinted(hash, hint, |found, place| {
                (found == wanted).then_some(place)
            })
        };
        for hint in [own, other, Hint::default()] {
            let place = read(hint).unwrap();
            index.raise_mark(place, wanted, |mark| mark + 1);
        }
        assert_eq!(mark_of(&index, hash, wanted), Some(3));
        assert_eq!(index.remove_if(hash, wanted), Some(3));
        assert_eq!(read(own), None);
        assert_eq!(read(other), None);
    }
}
