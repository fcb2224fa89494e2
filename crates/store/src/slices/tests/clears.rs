//! Cleared slices are empty at once, and their memory comes back.

use super::*;

/// Random writes, clears and moves of items beside a model; whether they always agreed.
fn clears_agree(bug: SliceBug, seed: u64) -> bool {
    let mut node = Node::with_bug(4 * MIB, true, bug);
    let mut random = Random::new(seed);
    let mut model: BTreeMap<u64, (Cas, usize)> = BTreeMap::new();
    let keys = 3000;
    for _ in 0..20_000 {
        let number = random.below(keys);
        match random.below(200) {
            0..=3 => {
                let slice = node.slice(number);
                let before = match random.below(2) {
                    0 => None,
                    _ => Some(Cas(node.version - random.below(2000 << 16))),
                };
                node.clear(slice, before);
                let is_gone = |cas: Cas| before.is_none_or(|before| cas < before);
                model.retain(|&one, item| node.slice(one) != slice || !is_gone(item.0));
            }
            4 => {
                // What catches up has old versions.
                node.store.promise(ACCOUNT, 0, 10_000);
                let image = Image {
                    cas: Cas(1 + random.below(node.version)),
                    ..Image::default()
                };
                assert!(node.put(number, &image, &[3; 50], 200));
                model.insert(number, (image.cas, 50));
            }
            5..=9 => node.maintain(1),
            10..=99 => {
                let length = 1 + random.below(if number.is_multiple_of(100) {
                    30_000
                } else {
                    400
                }) as usize;
                match node.set(number, &vec![1; length]) {
                    ItemChange::Stored(_) => {
                        let cas = Cas(node.version);
                        model.insert(number, (cas, length));
                    }
                    ItemChange::NoRoom => {
                        // Nothing may be evicted: it is gathered.
                        node.maintain(20);
                    }
                    other => panic!("{other:?}"),
                }
            }
            _ => {
                let there = node.value(number);
                let there = there.map(|(image, value)| (image.cas, value.len()));
                if there != model.get(&number).copied() {
                    return false;
                }
            }
        }
    }
    for number in 0..keys {
        if node.item(number).is_some() != model.contains_key(&number) {
            return false;
        }
    }
    for _ in 0..100_000 {
        if !node.store.room.may_be_cleared() {
            break;
        }
        node.maintain(1);
    }
    assert!(!node.store.room.may_be_cleared());
    let counters = node.store.counters();
    let all_there = (0..keys).all(|one| node.item(one).is_some() == model.contains_key(&one));
    all_there && counters.items_now == model.len() as u64
}

/// Goal: a cleared slice is empty at once, what is written later is there whatever its version, and
/// the counts come right. Method: random histories beside a model.
#[test]
fn cleared_slices_agree_with_a_model() {
    for seed in 0..6 {
        assert!(clears_agree(SliceBug::None, seed), "{seed}");
    }
}

/// Goal: the test above can fail.
#[test]
fn wrong_clears_are_caught() {
    for bug in [
        SliceBug::ClearsLastIncarnation,
        SliceBug::SweepEndsAll,
        SliceBug::WritesFormerIncarnation,
    ] {
        let caught = (0..6).any(|seed| !clears_agree(bug, seed));
        assert!(caught, "{bug:?}");
    }
}

/// Goal: clears, and the sweeps after them, hold beside other threads that write, move and sweep.
/// Method: each thread writes and clears slices of its own, beside a model of its own.
#[test]
fn clears_hold_beside_other_threads() {
    let node = Node::new(8 * MIB, true);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let store = Arc::clone(&node.store);
            scope.spawn(move || {
                let mut node = Node {
                    writer: store.writer(WriterId(1 + thread)),
                    store,
                    now: at(0),
                    version: 1 << 40 | u64::from(thread),
                };
                let own: Vec<u64> = (0..3000)
                    .filter(|&one| node.slice(one) % 3 == thread)
                    .collect();
                let mut random = Random::new(u64::from(thread));
                let mut model: BTreeMap<u64, Cas> = BTreeMap::new();
                for turn in 0..8000 {
                    let number = random.one_of(&own);
                    match random.below(40) {
                        0 => {
                            let slice = node.slice(number);
                            let before = (random.below(2) == 0)
                                .then(|| Cas(node.version - random.below(500 << 16)));
                            node.clear(slice, before);
                            let is_gone = |cas: Cas| before.is_none_or(|before| cas < before);
                            model.retain(|&one, cas| node.slice(one) != slice || !is_gone(*cas));
                        }
                        1..=8 => node.maintain(1),
                        9..=24 => {
                            let length = random.below(300) as usize;
                            let set = node.set(number, &vec![1; length]);
                            assert!(matches!(set, ItemChange::Stored(_)));
                            model.insert(number, Cas(node.version));
                        }
                        _ => {
                            let there = node.item(number).map(|(cas, _)| cas);
                            assert_eq!(there, model.get(&number).copied(), "{turn}");
                        }
                    }
                }
                for number in own {
                    let there = node.item(number).map(|(cas, _)| cas);
                    assert_eq!(there, model.get(&number).copied());
                }
            });
        }
    });
}

/// Goal: a slice may be cleared as often as one likes, and all slices in a row take little work.
#[test]
fn clears_may_follow_each_other() {
    let mut node = Node::new(4 * MIB, true);
    for round in 0..40 {
        for number in 0..500 {
            node.set(number, &[round; 20]);
        }
        for slice in 0..SLICES {
            node.clear(slice, None);
        }
        assert!((0..500).all(|one| node.item(one).is_none()), "{round}");
    }
    node.maintain(10_000);
    assert_eq!(node.store.counters().items_now, 0);
    assert_eq!(node.store.counters().item_bytes_now, 0);
}

/// Goal: clears that are under way when the store is saved hold for the one that is restored; and a
/// node and a server alone do not take each other's files.
#[test]
fn clears_hold_across_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved");
    let mut node = Node::new(4 * MIB, true);
    let mut left = BTreeSet::new();
    for number in 0..2000 {
        node.set(number, &[1; 100]);
    }
    for slice in (0..SLICES).step_by(3) {
        node.clear(slice, None);
    }
    for number in 0..2000 {
        if !node.slice(number).is_multiple_of(3)
            || number % 2 == 0 && node.set(number, &[2; 100]) != ItemChange::NoRoom
        {
            left.insert(number);
        }
    }
    node.store.save(&path, node.now).unwrap();
    let config = node.store.config().clone();
    let restored = Store::restore(&path, config.clone(), node.now).unwrap();
    restored.set_slices(SLICES, STAGES);
    node.writer = restored.writer(WriterId(5));
    node.store = Arc::new(restored);
    for number in 0..2000 {
        assert_eq!(
            node.item(number).is_some(),
            left.contains(&number),
            "{number}"
        );
    }
    assert_eq!(node.store.counters().items_now, left.len() as u64);
    let alone = StoreConfig {
        hash_by_route: false,
        ..config
    };
    assert!(Store::restore(&path, alone, node.now).is_err());
}

/// Goal: what was restored is cleared like what was written since. The story: a node that was
/// restarted warm kept items of slices that its cluster had it clear, as nothing had been written.
/// Method: save, restore, clear every other slice.
#[test]
fn what_was_restored_is_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved");
    let mut node = Node::new(4 * MIB, true);
    for number in 0..500 {
        node.set(number, &[1; 100]);
    }
    node.store.save(&path, node.now).unwrap();
    let restored = Store::restore(&path, node.store.config().clone(), node.now).unwrap();
    restored.set_slices(SLICES, STAGES);
    node.writer = restored.writer(WriterId(5));
    node.store = Arc::new(restored);
    for slice in (0..SLICES).step_by(2) {
        node.clear(slice, None);
    }
    for number in 0..500 {
        let is_left = !node.slice(number).is_multiple_of(2);
        assert_eq!(node.item(number).is_some(), is_left, "{number}");
    }
}
