//! The index: against a model, while it grows, under several threads, and with planted bugs.

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

use super::*;

/// Items of the tests: reference r has the hash in word r.
struct Hashes(Vec<AtomicU64>);

impl Hashes {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Resolver for Hashes {
    fn hash_of(&self, reference: Reference) -> KeyHash {
        KeyHash(self.0[reference.get() as usize].load(Ordering::Relaxed))
    }

    fn prefetch(&self, _reference: Reference) {}
}

fn index(slots_initial: usize, slots_max: usize, items: usize, fill_target: f64) -> Index<Hashes> {
    let config = IndexConfig {
        slots_initial,
        slots_max,
        slots_reserved: 0,
        fill_target,
        pages: Pages::Small,
        stripe_slots: 0,
    };
    Index::new(config, Hashes::new(items)).unwrap()
}

fn mix(number: u64) -> KeyHash {
    KeyHash(curtail_workload::mix(
        number.wrapping_add(0x9e37_79b9_7f4a_7c15),
    ))
}

fn reference(number: u64) -> Reference {
    Reference::new(number).unwrap()
}

fn insert(index: &Index<Hashes>, hash: KeyHash, at: Reference) -> Result<(), Full> {
    index.resolver().0[at.get() as usize].store(hash.0, Ordering::Relaxed);
    let mut locked = index.lock_with_room(hash)?;
    assert!(locked.find(|found| found == at).is_none());
    locked.insert(at).unwrap();
    Ok(())
}

fn holds(index: &Index<Hashes>, hash: KeyHash, wanted: Reference) -> bool {
    index
        .read(hash, |found| (found == wanted).then_some(()))
        .is_some()
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
    refuses_no_key(400_000, &[0.905, 0.92, 0.95]);
    assert!(refuses_no_key(4_000_000, &[0.96]) > 0);
}

#[test]
#[ignore = "fills tables of millions of slots"]
fn a_large_index_refuses_no_key_while_it_may_grow() {
    refuses_no_key(4_000_000, &[0.905, 0.92, 0.95]);
}

/// Goal: an index that may grow refuses no key, at the store's fill and at those above. Method: so
/// many random keys; how many searches had to look far is the answer.
fn refuses_no_key(items: usize, fill_targets: &[f64]) -> u64 {
    let fill = move |fill_target: f64| {
        let index = index(1 << 10, 2 * items, items + 1, fill_target);
        let refused = (1..=items as u64)
            .filter(|&number| insert(&index, mix(number), reference(number)).is_err())
            .count();
        let counters = index.counters();
        assert_eq!(refused, 0, "{fill_target}: {counters:?}");
        let fill = index.len() as f64 / index.slots() as f64;
        assert!(fill > fill_target - 0.06, "{fill} at {fill_target}");
        counters.searches_far
    };
    let far = fill_targets.iter().map(|&fill_target| {
        // Half the stack of a server's worker: the far search's queue is on it.
        let thread = thread::Builder::new().stack_size(256 << 10);
        let filler = thread.spawn(move || fill(fill_target)).unwrap();
        filler.join().unwrap()
    });
    far.sum()
}

/// Goal: an index of the greatest size works, and one slot more is refused. Method: all of its
/// buckets in use at once, which takes address space but only the memory of those that are touched.
#[test]
#[cfg_attr(miri, ignore = "reserves 256 GiB of address space")]
fn an_index_may_have_as_many_buckets_as_half_a_hash_tells_apart() {
    let most = Index::<Hashes>::SLOTS_MAX;
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
    let refused = Index::new(more, Hashes::new(1));
    assert!(matches!(refused, Err(TableError::TooManySlots)));
}

fn place_of(index: &Index<Hashes>, hash: KeyHash, wanted: Reference) -> Option<Hint> {
    index.read_hinted(hash, Hint::default(), |found, place| {
        (found == wanted).then_some(place)
    })
}

fn mark_of(index: &Index<Hashes>, hash: KeyHash, wanted: Reference) -> Option<u8> {
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

/// Goal: the index does what a map does. Method: random operations beside a `HashMap`.
#[test]
fn agrees_with_a_model() {
    let keys = if cfg!(miri) { 40 } else { 3000 };
    let index = index(8, 2 * keys as usize + 64, 2 * keys as usize + 2, 0.92);
    let mut model: HashMap<u64, Reference> = HashMap::new();
    for turn in 0..keys * 20 {
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
        match random >> 60 {
            0..6 if current.is_none() => {
                insert(&index, hash, reference(key + 1)).unwrap();
                model.insert(key, reference(key + 1));
            }
            6..9 if current.is_some() => {
                let old = model.remove(&key).unwrap();
                assert!(index.remove_if(hash, old).is_some());
            }
            9..12 if current.is_some() => {
                let mut locked = index.lock(hash);
                let position = locked.find(own).unwrap();
                assert_eq!(Some(locked.reference(position)), current);
            }
            _ => {}
        }
    }
    assert_eq!(index.len(), model.len());
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
        for number in residents + 1..=items {
            insert(&index, mix(number), reference(number)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    assert_eq!(index.len(), items as usize);
}

/// Goal: many writers lose nothing and put nothing in twice, whatever the number of threads
/// (CK-59). Method: 1, 2, 4 and 16 threads fill a table of fixed size to 95 %, then all is there.
#[test]
fn many_threads_fill_a_table() {
    let slots = if cfg!(miri) { 256 } else { 1 << 15 };
    for threads in [1, 2, 4, 16_u64] {
        if cfg!(miri) && threads == 16 {
            continue;
        }
        let items = slots as u64 * 95 / 100;
        let index = index(slots, slots, items as usize + 1, 0.96);
        thread::scope(|scope| {
            for thread in 0..threads {
                let index = &index;
                scope.spawn(move || {
                    for number in (1..=items).filter(|number| number % threads == thread) {
                        insert(index, mix(number), reference(number)).unwrap();
                    }
                });
            }
        });
        assert_eq!(index.len(), items as usize);
        assert!((1..=items).all(|number| holds(&index, mix(number), reference(number))));
    }
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
