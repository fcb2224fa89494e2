//! Scans, ends of items, and keys found by their route hashes.

use super::*;

/// Goal: a scan shows every item that is there throughout, though the index grows and displaces
/// others meanwhile, and never one that was there neither before nor after. Method: scans in small
/// steps between writes, deletes, clears and expiries.
#[test]
fn a_scan_misses_nothing() {
    let mut node = Node::new(16 * MIB, true);
    let mut random = Random::new(5);
    let residents = 4000;
    for number in 0..residents {
        node.set(number, &[1; 20]);
    }
    let mut other = 0;
    for round in 0..8 {
        let mut seen = BTreeMap::new();
        let mut cursor = ScanCursor::default();
        while !cursor.is_end() {
            let store = Arc::clone(&node.store);
            cursor = store.scan_slices(node.now, cursor, 3, &mut |slice, route, bytes| {
                seen.insert(route.0, (slice, bytes));
            });
            for _ in 0..20 {
                // The index grows a little in each round.
                other = (other + 1) % (500 * (round + 1));
                node.set(1_000_000 + other, &[2; 30]);
                let one = 1_000_000 + random.below(500 * (round + 1));
                node.run(one, &Operation::Delete(Delete::default()), &[]);
            }
            if random.below(4) == 0 {
                node.set(random.below(residents), &[3; 40]);
            }
        }
        for number in 0..residents {
            let route = route_of(&name(number)).0;
            let (slice, _) = seen.get(&route).copied().unwrap_or((u16::MAX, 0));
            assert_eq!(slice, node.slice(number), "{round}: {number}");
        }
    }
    let mut left = 0;
    node.now = at(1000);
    let set = Operation::Set(Set {
        exptime: Exptime(10),
        ..Set::default()
    });
    node.run(1, &set, &[1; 500]);
    node.clear(0, None);
    let cleared = (0..residents).filter(|&one| node.slice(one) == 0).count() as u64;
    assert!(cleared > 10);
    node.now = at(1010);
    let cursor = node.store.scan_slices(
        node.now,
        ScanCursor::default(),
        usize::MAX,
        &mut |slice, route, bytes| {
            assert_ne!(slice, 0);
            assert_ne!(route, route_of(&name(1)));
            left += u64::from(bytes < 100);
        },
    );
    assert!(cursor.is_end());
    let there = node.store.counters().items_now;
    assert!(
        left >= residents - cleared - 1 && left <= there,
        "{left} {there}"
    );
}

/// Goal: an item that ends is gone at a holder by the clock, with no word of anybody, and its
/// memory comes back; a change of its key that comes later is stored. Method: as a follower sees
/// it.
#[test]
fn an_end_needs_no_message() {
    let mut node = Node::new(4 * MIB, true);
    let total = 3000;
    node.store.promise(ACCOUNT, 0, 2 * MIB as u64);
    for number in 0..total {
        let image = Image {
            cas: node.next_version(),
            expiry: node.now.unix_seconds() + 30 + number as u32 % 10,
            ..Image::default()
        };
        assert!(node.put(number, &image, &[1; 300], 400));
    }
    assert!(node.item(5).is_some());
    node.now = at(40);
    assert!((0..total).all(|one| node.item(one).is_none()));
    let image = Image {
        cas: node.next_version(),
        expiry: node.now.unix_seconds() + 30,
        ..Image::default()
    };
    assert!(node.put(5, &image, &[2; 300], 400));
    node.store.promise(ACCOUNT, 0, 0);
    for second in 41..60 {
        node.now = at(second);
        node.maintain(200);
    }
    assert_eq!(node.value(5), Some((image, vec![2; 300])));
    let counters = node.store.counters();
    assert_eq!((counters.items_now, counters.evictions), (1, 0));
    let memory = node.store.memory();
    assert!(
        memory.segments < (node.store.segments().segment_bytes() * 8) as u64,
        "{memory:?}"
    );
}

/// Goal: an item is found by its route hash alone. Method: keys of all lengths, long values too.
#[test]
fn a_key_is_found_by_its_route_hash() {
    let mut node = Node::new(8 * MIB, true);
    let mut found = Vec::new();
    for length in [1, 7, 8, 9, 32, 33, 249, 250] {
        let bytes = vec![b'k'; length];
        let (key, hash) = (Key::new(&bytes).unwrap(), node.store.hash(&bytes));
        assert_eq!(node.store.hash_of_route(route_of(&bytes)), hash);
        assert!(!node.store.key_of(node.now, hash, &mut found));
        for value in [vec![1; 10], vec![2; 100_000]] {
            let set = Set::default();
            node.store
                .set(&mut node.writer, node.now, key, hash, &set, &value);
            assert!(node.store.key_of(node.now, hash, &mut found));
            assert_eq!(found, bytes);
        }
        node.store
            .delete(&mut node.writer, node.now, key, hash, &Delete::default());
        assert!(!node.store.key_of(node.now, hash, &mut found));
    }
}
