//! What an operation does for the machine of a node.

use super::*;

/// Goal: each operation says what it did to its item, and takes no more than it said it would.
/// Method: random operations on few keys; the check is in [`Node::run`].
#[test]
fn runs_say_what_they_change() {
    let mut node = Node::new(8 * MIB, true);
    let mut random = Random::new(1);
    let mut changes = BTreeSet::new();
    for turn in 0..30_000 {
        let number = random.below(20);
        let before = node.item(number);
        let exptime = Exptime([0, 100, 100_000, -1][random.below(4) as usize]);
        let compare = before.map(|(cas, _)| Cas(cas.0 - random.below(2)));
        let compare = compare.filter(|_| random.below(3) == 0);
        let value = match random.below(3) {
            0 => format!("{}", random.below(1 << 40)).into_bytes(),
            1 => vec![1; random.below(40) as usize],
            _ => vec![2; random.below(3000) as usize],
        };
        let touch = (random.below(2) == 0).then_some(exptime);
        let (operation, value): (_, &[u8]) = match random.below(4) {
            0 => {
                let vivify = (random.below(4) == 0).then_some(Exptime(random.below(300) as i64));
                let recache = (random.below(4) == 0).then_some(Exptime(200));
                let get = Get {
                    touch,
                    vivify,
                    recache,
                    ..Get::default()
                };
                (Operation::Get(get), &[])
            }
            1 => {
                let mode = SetMode::from_number(random.below(5) as u8).unwrap();
                let set = Set {
                    mode,
                    exptime,
                    compare,
                    flags: random.below(2) as u32,
                    ..Set::default()
                };
                (Operation::Set(set), &value)
            }
            2 => {
                let delete = Delete {
                    compare,
                    invalidate: random.below(2) == 0,
                    drop_value: random.below(4) == 0,
                    touch,
                    ..Delete::default()
                };
                (Operation::Delete(delete), &[])
            }
            _ => {
                let arithmetic = Arithmetic {
                    vivify: (random.below(2) == 0).then_some(exptime),
                    ..Arithmetic::default()
                };
                (Operation::Arithmetic(arithmetic), &[])
            }
        };
        let (outcome, change) = node.run(number, &operation, value);
        let after = node.item(number);
        changes.insert(format!("{change:?}").split('(').next().unwrap().to_owned());
        match change {
            ItemChange::Unchanged => assert_eq!(after, before, "{turn}: {operation:?} {outcome:?}"),
            ItemChange::Removed => assert!(before.is_some() && after.is_none(), "{turn}"),
            ItemChange::Stored(_) => {}
            other => panic!("{turn}: {other:?}"),
        }
    }
    assert_eq!(changes.len(), 3, "{changes:?}");
}

/// Goal: a run without room changes nothing, not even what a server alone would remove, and finds
/// room once the machine has evicted. Method: a full store of either kind.
#[test]
fn a_run_without_room_changes_nothing() {
    for evict in [false, true] {
        let mut node = Node::new(4 * MIB, evict);
        let mut number = 0;
        while node.set(number, &[1; 900]) != ItemChange::NoRoom {
            number += 1;
        }
        assert!(number > 3000);
        let before = node.value(7).unwrap();
        assert_eq!(node.set(7, &[2; 60_000]), ItemChange::NoRoom);
        assert_eq!(node.value(7), Some(before));
        assert_eq!(
            (0..number).filter(|&one| node.item(one).is_none()).count(),
            0
        );
        let stage = node.slice(7) % STAGES;
        let mut gone = 0;
        for _ in 0..200 {
            gone += node.evict(stage, 1 << 20, |_| true).1.len();
            node.maintain(1);
        }
        assert_eq!(gone > 0, evict);
        if evict {
            assert_eq!(node.store.counters().evictions, gone as u64);
            assert!(matches!(node.set(7, &[2; 60_000]), ItemChange::Stored(_)));
        }
    }
}

/// Goal: an append whose item has grown while it waited does not take more than it said.
#[test]
fn an_outgrown_append_does_not_run() {
    let mut node = Node::new(8 * MIB, true);
    node.set(1, &[1; 100]);
    let name = name(1);
    let (key, hash) = (Key::new(&name).unwrap(), node.hash(1));
    let append = Operation::Set(Set {
        mode: SetMode::Append,
        ..Set::default()
    });
    let room = node
        .store
        .request_bytes(&mut node.writer, node.now, key, hash, &append, 100);
    let run = |node: &mut Node| {
        let version = node.next_version();
        let store = Arc::clone(&node.store);
        let (writer, value) = (&mut node.writer, [2; 100]);
        store
            .run(
                writer,
                node.now,
                key,
                hash,
                &append,
                &value,
                Some(version),
                room,
                |_| (),
            )
            .1
    };
    node.set(1, &[1; 5000]);
    let before = node.value(1);
    assert_eq!(run(&mut node), ItemChange::Outgrown);
    assert_eq!(node.value(1), before);
    node.set(1, &[1; 300]);
    assert!(matches!(run(&mut node), ItemChange::Stored(_)));
    assert_eq!(node.value(1).unwrap().1.len(), 400);
}

/// Goal: a value from a node with a higher limit of values is taken out whole, and what changes it
/// says how much room that takes. Method: such a value, touched and marked; the check is in
/// [`Node::run`].
#[test]
fn a_value_longer_than_this_node_writes_is_kept_whole() {
    let mut node = Node::new(16 * MIB, true);
    let length = node.store.config().item_bytes_max * 3 / 2;
    let value: Vec<u8> = (0..length).map(|i| i as u8).collect();
    let room = Store::item_bytes(name(1).len(), length);
    assert!(node.store.promise(ACCOUNT, 0, u64::from(room)) >= u64::from(room));
    let image = Image {
        cas: Cas(5),
        ..Image::default()
    };
    assert!(node.put(1, &image, &value, room));
    assert!(node.value(1).unwrap() == (image, value.clone()));
    let touch = Get {
        touch: Some(Exptime(100)),
        ..Get::default()
    };
    let mark = Delete {
        invalidate: true,
        ..Delete::default()
    };
    for operation in [Operation::Get(touch), Operation::Delete(mark)] {
        let (_, change) = node.run(1, &operation, &[]);
        assert_eq!(change, ItemChange::Stored(room));
    }
    assert!(node.value(1).unwrap().1 == value);
}
