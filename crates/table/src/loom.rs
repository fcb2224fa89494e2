//! Every interleaving of a few small histories, under the memory model (CK-57).
//!
//! Run as `RUSTFLAGS="--cfg loom" cargo test -p curtail-table --release loom`. Tables have one to
//! four buckets, each with a stripe of its own; each history has a reader and a writer (or two),
//! and the number of preemptions is bounded where the whole space would be too large.

mod items;

use loom::{sync::Arc, thread};

use curtail_memory::Pages;
use curtail_types::KeyHash;

use crate::{Full, Index, IndexConfig, Reference, Resolver, buckets::SLOTS, cuckoo_table::Bug};

/// A reference says which item it is and what its buckets are, so that nothing else is shared.
struct Chosen;

impl Resolver for Chosen {
    fn hash_of(&self, reference: Reference) -> KeyHash {
        let [first, second, low, high, _, _, _, _] = reference.get().to_le_bytes();
        let number = u64::from(u16::from_le_bytes([low, high]));
        KeyHash(number << 8 | u64::from(second) << 32 | u64::from(first))
    }

    fn prefetch(&self, _reference: Reference) {}
}

type Table = Index<Chosen>;

/// An item whose buckets, in a table of a power of two of buckets, are `first` and `second`.
fn item(number: u64, first: u64, second: u64) -> Reference {
    Reference::new(number << 16 | second << 8 | first).unwrap()
}

fn table(buckets: usize, buckets_max: usize, bug: Option<Bug>) -> Table {
    let config = IndexConfig {
        slots_initial: buckets * SLOTS,
        slots_max: buckets_max * SLOTS,
        fill_target: 0.96,
        pages: Pages::Small,
        stripe_slots: SLOTS,
        prefetch: false,
        ..IndexConfig::default()
    };
    let mut index = Index::new(config, Chosen).unwrap();
    index.tuning.bug = bug;
    index
}

/// Inserts an item that is not there; whether it was not.
fn insert(index: &Table, at: Reference) -> Result<bool, Full> {
    let mut locked = index.lock_with_room(Chosen.hash_of(at))?;
    let is_new = locked.find(|found| found == at).is_none();
    if is_new {
        locked.insert(at).unwrap();
    }
    Ok(is_new)
}

/// Fills a bucket but for `free` slots with items that have no other.
fn fill(index: &Table, bucket: u64, free: u64) {
    for number in 1..=SLOTS as u64 - free {
        assert_eq!(insert(index, item(number, bucket, bucket)), Ok(true));
    }
}

fn holds(index: &Table, wanted: Reference) -> bool {
    let probe = |found| (found == wanted).then_some(());
    index.read(Chosen.hash_of(wanted), probe).is_some()
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
fn beside<T: Send + Sync + 'static, A: 'static, B: 'static>(
    shared: &Arc<T>,
    first: impl FnOnce(&T) -> A + 'static,
    second: impl FnOnce(&T) -> B + 'static,
) -> (A, B) {
    let (here, there) = (shared.clone(), shared.clone());
    let first = thread::spawn(move || first(&here));
    let second = thread::spawn(move || second(&there));
    (first.join().unwrap(), second.join().unwrap())
}

/// Two inserters of one item, whose buckets are different: one wins.
#[test]
fn loom_two_inserters_of_one_key() {
    explore(2, || {
        let index = Arc::new(table(2, 2, None));
        let add = |index: &Table| insert(index, item(1, 0, 1)).unwrap();
        let (here, there) = beside(&index, add, add);
        assert!(here != there);
        assert_eq!(index.len(), 1);
    });
}

/// A path of two moves, 1 to 2 and then 0 to 1, while a reader looks for the item that goes to
/// bucket 2, where it looks first: the item is never absent.
fn displacement_beside_read(bug: Option<Bug>) {
    let index = Arc::new(table(4, 4, bug));
    let moving = item(9, 2, 1);
    fill(&index, 2, 1);
    // Of its two buckets the emptier one is taken: bucket 1.
    insert(&index, moving).unwrap();
    fill(&index, 1, 1);
    insert(&index, item(8, 0, 1)).unwrap();
    fill(&index, 0, 1);
    let last = item(10, 0, 0);
    let (inserted, is_there) = beside(
        &index,
        move |index| insert(index, last),
        move |index| holds(index, moving),
    );
    assert_eq!(inserted, Ok(true));
    assert!(is_there);
    assert!(holds(&index, moving));
    assert!(holds(&index, last));
    assert_eq!(index.counters().paths[2], 1);
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

/// The table splits bucket 0 into 0 and 1 while a reader looks for an item that moves.
fn split_beside_read(bug: Option<Bug>) {
    let index = Arc::new(table(1, 2, bug));
    let (moving, staying) = (item(1, 1, 1), item(2, 0, 0));
    insert(&index, moving).unwrap();
    insert(&index, staying).unwrap();
    let grow = |index: &Table| index.grow(1);
    let (added, is_there) = beside(&index, grow, move |index| holds(index, moving));
    assert_eq!(added, 1);
    assert!(is_there);
    assert!(holds(&index, moving));
    assert!(holds(&index, staying));
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

/// A split and an insert of an item that the split sends elsewhere.
fn split_beside_insert(bug: Option<Bug>) {
    let index = Arc::new(table(2, 3, bug));
    let new = item(1, 2, 2);
    let grow = |index: &Table| index.grow(1);
    let (_, inserted) = beside(&index, grow, move |index| insert(index, new));
    assert_eq!(inserted, Ok(true));
    assert!(holds(&index, new));
    assert_eq!(index.slots(), 3 * SLOTS);
}

#[test]
fn loom_split_beside_insert() {
    explore(2, || split_beside_insert(None));
}

#[test]
fn loom_catches_an_insert_that_does_not_notice_a_split() {
    assert!(is_caught(|| split_beside_insert(Some(Bug::UncheckedHold))));
}

/// An insert into two full buckets has room after a split by any thread, and no item is lost.
#[test]
fn loom_insert_without_room_beside_split() {
    explore(2, || {
        let index = Arc::new(table(2, 3, None));
        let moving = (1..=SLOTS as u64).map(|number| item(number, 2, 2));
        moving
            .clone()
            .for_each(|it| assert_eq!(insert(&index, it), Ok(true)));
        fill(&index, 1, 0);
        let new = item(20, 0, 1);
        let grow = |index: &Table| index.grow(1);
        let (_, inserted) = beside(&index, grow, move |index| insert(index, new));
        assert_eq!(inserted, Ok(true));
        assert!(moving.clone().all(|it| holds(&index, it)));
        assert!(holds(&index, new));
        assert_eq!(index.len(), 2 * SLOTS + 1);
    });
}

/// A walk while an item moves to the bucket that it has visited: it is not missed.
fn walk_beside_displacement(bug: Option<Bug>) {
    let index = Arc::new(table(2, 2, bug));
    let moving = item(9, 1, 0);
    fill(&index, 0, 1);
    fill(&index, 1, 2);
    // Of its two buckets the emptier one is taken: bucket 1.
    insert(&index, moving).unwrap();
    insert(&index, item(10, 1, 1)).unwrap();
    let last = item(11, 1, 1);
    let (inserted, is_seen) = beside(
        &index,
        move |index| insert(index, last),
        move |index| {
            let mut is_seen = false;
            index.for_each(|seen| is_seen |= seen == moving);
            is_seen
        },
    );
    assert_eq!(inserted, Ok(true));
    assert!(is_seen);
}

#[test]
fn loom_walk_beside_displacement() {
    explore(2, || walk_beside_displacement(None));
}

#[test]
fn loom_catches_a_walk_that_is_late() {
    assert!(is_caught(|| walk_beside_displacement(Some(Bug::LateWalk))));
}

/// Items are written with a number that is read under the key's lock; the number is raised, and a
/// walk then removes those of the number before: nothing of it is left, whenever it was written.
fn numbers_raised_beside_write(is_read_early: bool) {
    use loom::sync::atomic::{AtomicU64, Ordering};

    let shared = Arc::new((table(2, 2, None), AtomicU64::new(1)));
    let write = move |(index, number): &(Table, AtomicU64)| {
        let early = number.load(Ordering::Acquire);
        let mut locked = index.lock(Chosen.hash_of(item(1, 1, 0)));
        let now = number.load(Ordering::Acquire);
        let written = if is_read_early { early } else { now };
        // Both have one hash: the number is in bits that are no part of it.
        locked.insert(numbered(written)).unwrap();
    };
    let raise = |(index, number): &(Table, AtomicU64)| {
        number.store(2, Ordering::Release);
        let mut old = Vec::new();
        index.for_each(|found| old.extend((found == numbered(1)).then_some(found)));
        for found in old {
            index.remove_if(Chosen.hash_of(found), found);
        }
    };
    beside(&shared, write, raise);
    shared.0.for_each(|found| assert_eq!(found, numbered(2)));
}

/// An item of one key, written with a number.
fn numbered(number: u64) -> Reference {
    Reference::new(item(1, 1, 0).get() | number << 36).unwrap()
}

#[test]
fn loom_a_walk_leaves_nothing_of_before() {
    explore(2, || numbers_raised_beside_write(false));
}

#[test]
fn loom_catches_a_number_that_is_read_early() {
    assert!(is_caught(|| numbers_raised_beside_write(true)));
}

/// A reader of an item that is removed sees it or misses it, and never again after it has missed;
/// and a reader that saw the removal (by joining) misses.
#[test]
fn loom_remove_beside_read() {
    explore(3, || {
        let index = Arc::new(table(2, 2, None));
        let removed = item(1, 0, 1);
        insert(&index, removed).unwrap();
        let (mark, seen) = beside(
            &index,
            move |index| index.remove_if(Chosen.hash_of(removed), removed),
            move |index| [(); 2].map(|()| holds(index, removed)),
        );
        assert!(seen != [false, true]);
        assert_eq!(mark, Some(0));
        assert!(!holds(&index, removed));
    });
}
