//! What other nodes were promised is stored, and within the limit.

use super::*;

/// Which items are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sent {
    /// Of all lengths.
    AllLengths,
    /// Very short ones, which take much of the index.
    Short,
    /// A few, each of which ends at another time.
    Ends,
}

const SENT: [Sent; 3] = [Sent::AllLengths, Sent::Short, Sent::Ends];

impl Sent {
    fn promised(self, random: &mut Random) -> u64 {
        match self {
            Self::AllLengths => (1 + random.below(3)) << 19,
            Self::Short => 1 << 17,
            Self::Ends => 1 << 15,
        }
    }

    fn length(self, random: &mut Random, store: &Store) -> usize {
        match self {
            Self::AllLengths => length(random, store),
            Self::Short => random.below(30) as usize,
            Self::Ends => 500,
        }
    }

    /// When an item ends, in Unix seconds: in any of the TTL buckets, or never.
    fn expiry(random: &mut Random, now: Now) -> u32 {
        match random.below(11) {
            0 => 0,
            bucket => now.unix_seconds() + (8 << (2 * bucket)),
        }
    }
}

/// Fills a store with local writes up to what is promised, then sends what was promised. Whether
/// each item was stored and the limit held throughout.
fn promise_is_kept(bug: SliceBug, seed: u64, sent: Sent) -> bool {
    let mut node = Node::with_bug(4 * MIB, false, bug);
    let mut random = Random::new(seed);
    let promised = sent.promised(&mut random);
    let more = node.store.promise(ACCOUNT, 0, promised);
    assert_eq!(more, promised, "the store is empty");
    let mut number = 0;
    let mut refused = 0;
    while refused < 5 {
        number += 1;
        let length = random.below(1000) as usize;
        refused += u64::from(node.set(number, &vec![1; length]) == ItemChange::NoRoom);
    }
    let mut left = promised;
    let mut puts = 0;
    loop {
        let length = sent.length(&mut random, &node.store);
        let key = if random.below(4) == 0 {
            random.below(number)
        } else {
            1_000_000 + random.below(1 << 30)
        };
        let room = Store::item_bytes(name(key).len(), length);
        if u64::from(room) > left {
            break;
        }
        let image = Image {
            cas: node.next_version(),
            flags: random.below(2) as u32,
            expiry: Sent::expiry(&mut random, node.now),
            ..Image::default()
        };
        let value = vec![puts as u8; length];
        if !node.put(key, &image, &value, room) {
            return false;
        }
        left -= u64::from(room);
        puts += 1;
        // Other writers get nothing of it.
        let others = match sent {
            Sent::Ends => 25,
            _ => u64::from(puts % 16 == 0),
        };
        for _ in 0..others {
            number += 1;
            let set = Set {
                exptime: Exptime(i64::from(image.expiry)),
                ..Set::default()
            };
            node.run(number, &Operation::Set(set), &[2; 700]);
        }
        assert_eq!(node.store.promised_bytes(), left);
        if puts % 8 == 0 {
            assert_eq!(node.value(key), Some((image, value)), "{key}");
        }
        let (resident, allowed) = node.resident();
        if resident > allowed {
            return false;
        }
    }
    let image = Image {
        cas: node.next_version(),
        ..Image::default()
    };
    assert!(!node.put(5, &image, &[0; 100], left as u32 + 1));
    true
}

/// Goal: what was promised is stored, whatever others write meanwhile, and within the limit.
/// Method: full stores that refuse, promises of up to three eighths of the
/// memory, items of all lengths and ends.
#[test]
fn a_promise_is_kept() {
    for seed in 0..8 {
        assert!(
            promise_is_kept(SliceBug::None, seed, SENT[seed as usize % 3]),
            "{seed}"
        );
    }
}

/// Goal: the test above can fail.
#[test]
fn broken_promises_are_caught() {
    for bug in [
        SliceBug::KeepsNothing,
        SliceBug::KeepsNoOpenSegments,
        SliceBug::SharesSegments,
    ] {
        let caught = (0..8).any(|seed| !promise_is_kept(bug, seed, SENT[seed as usize % 3]));
        assert!(caught, "{bug:?}");
    }
}

/// Goal: several nodes' promises hold beside each other and beside local writers. Method: threads
/// that send what they were promised while others fill the store.
#[test]
fn promises_hold_beside_other_threads() {
    let node = Node::new(8 * MIB, false);
    let store = &node.store;
    let accounts: Vec<_> = (0..2_u16)
        .map(|account| (account, store.promise(account, 0, MIB as u64)))
        .collect();
    std::thread::scope(|scope| {
        for &(account, promised) in &accounts {
            scope.spawn(move || {
                let mut writer = store.writer(WriterId(1 + account));
                let mut random = Random::new(u64::from(account));
                let mut left = promised;
                for number in 0.. {
                    let name = name(u64::from(account) << 32 | number);
                    let length = length(&mut random, store);
                    let room = Store::item_bytes(name.len(), length);
                    if u64::from(room) > left {
                        break;
                    }
                    let image = Image {
                        cas: Cas(1 + number),
                        ..Image::default()
                    };
                    let key = Key::new(&name).unwrap();
                    let put = store.put_promised(
                        &mut writer,
                        at(0),
                        key,
                        store.hash(&name),
                        (&image, &vec![0; length]),
                        account,
                        room,
                    );
                    assert!(put, "{number} of {account}");
                    left -= u64::from(room);
                }
            });
        }
        scope.spawn(|| {
            let mut writer = store.writer(WriterId(3));
            for number in 0..20_000 {
                let name = name(number);
                let key = Key::new(&name).unwrap();
                let operation = Operation::Set(Set::default());
                store.run(
                    &mut writer,
                    at(0),
                    key,
                    store.hash(&name),
                    &operation,
                    &[1; 900],
                    Some(Cas(1 + number)),
                    u32::MAX,
                    |_| (),
                );
            }
        });
    });
    let (resident, allowed) = node.resident();
    assert!(resident <= allowed, "{resident} of {allowed}");
}

/// Goal: a promise is what its owner holds and what it is given beyond, a lost answer costs nothing
/// for long, and room comes back. Method: requests as they may come.
#[test]
fn promises_follow_what_their_owner_holds() {
    let node = Node::new(8 * MIB, false);
    let free = node.store.segments().available();
    assert_eq!(node.store.promise(0, 0, 1000), 1000);
    // The answer was lost: it asks again and holds nothing.
    assert_eq!(node.store.promise(0, 0, 2000), 2000);
    assert_eq!(node.store.promised_bytes(), 2000);
    assert_eq!(node.store.promise(1, 0, 500), 500);
    assert_eq!(node.store.promise(0, 1500, 0), 0);
    assert_eq!(node.store.promised_bytes(), 2000);
    assert!(node.store.take_promised(0, 1500));
    assert!(!node.store.take_promised(0, 1));
    assert!(!node.store.take_promised(9, 1));
    // More than there is is cut, and what is held is held whatever there is.
    let most = node.store.promise(0, 0, u64::MAX / 4);
    assert!(most > 3 * MIB as u64 && most < 8 * MIB as u64, "{most}");
    assert_eq!(node.store.promise(1, 500, 1000), 0);
    assert_eq!(node.store.promise(1, 700, 1000), 0);
    assert_eq!(node.store.promised_bytes(), most + 700);
    for account in [0, 1] {
        assert_eq!(node.store.promise(account, 0, 0), 0);
    }
    assert_eq!(node.store.promised_bytes(), 0);
    assert_eq!(node.store.segments().available(), free);
}

/// Goal: a change that comes twice is stored once, also if it takes the last of the room.
#[test]
fn the_same_version_again_costs_nothing() {
    let mut node = Node::new(8 * MIB, true);
    node.store.promise(ACCOUNT, 0, 10_000_000);
    for length in [10, 1024, 1025, 400_000] {
        let image = Image {
            cas: node.next_version(),
            flags: 5,
            ..Image::default()
        };
        let value = vec![7; length];
        assert!(node.put(1, &image, &value, 100));
        let stored = node.store.counters().items_total;
        assert!(node.put(1, &image, &value, 100));
        assert_eq!(node.store.counters().items_total, stored);
        assert_eq!(node.value(1), Some((image, value.clone())));
        // An earlier version takes the place of a later one.
        let earlier = Image {
            cas: Cas(7),
            stale: true,
            won: length > 100,
            ..image
        };
        assert!(node.put(1, &earlier, &value, 100));
        assert_eq!(node.value(1), Some((earlier, value)));
    }
}

/// Goal: a full node has room to promise again when its machines have evicted, and a node that only
/// follows when others have: what they evict lies scattered over its memory. Method: both.
#[test]
fn a_full_node_promises_again() {
    let mut node = Node::new(4 * MIB, true);
    let mut number = 0;
    while node.set(number, &[1; 300]) != ItemChange::NoRoom {
        number += 1;
    }
    assert_eq!(node.store.promise(ACCOUNT, 0, 100_000), 0);
    let mut granted = 0;
    for turn in 0..2000 {
        node.evict(turn % STAGES, 20_000, |_| true);
        granted += node.store.promise(ACCOUNT, granted, 100_000 - granted);
    }
    assert_eq!(granted, 100_000);

    let mut node = Node::new(3 * MIB, true);
    let mut random = Random::new(3);
    let mut sent = Vec::new();
    let mut number = 0;
    while node.store.promise(ACCOUNT, 0, 1000) >= 400 {
        let image = Image {
            cas: node.next_version(),
            ..Image::default()
        };
        assert!(node.put(number, &image, &[1; 300], 400));
        sent.push(number);
        number += 1;
    }
    let full = sent.len();
    assert!(full > 5000, "{full}");
    for _ in 0..2 * full {
        // The primary evicts a key somewhere, and writes another.
        let gone = sent.swap_remove(random.below(sent.len() as u64) as usize);
        node.run(gone, &Operation::Delete(Delete::default()), &[]);
        node.maintain(1);
        if node.store.promise(ACCOUNT, 0, 1000) >= 400 {
            let image = Image {
                cas: node.next_version(),
                ..Image::default()
            };
            assert!(node.put(number, &image, &[1; 300], 400));
            sent.push(number);
            number += 1;
        }
        if sent.len() < full / 2 {
            break;
        }
    }
    assert!(sent.len() > full * 7 / 10, "{} of {full}", sent.len());
    assert!(sent.iter().all(|&one| node.item(one).is_some()));
}

/// Goal: what was promised is stored also when the limit is lowered afterwards, and when the index
/// has come to its share; the limit is kept to again when others have made room. Method: both.
#[test]
fn a_promise_holds_when_memory_is_taken_away() {
    let mut node = Node::new(8 * MIB, true);
    let mut left = node.store.promise(ACCOUNT, 0, MIB as u64);
    let mut number = 0;
    while node.set(number, &[1; 400]) != ItemChange::NoRoom {
        number += 1;
    }
    assert!(node.store.set_memory_bytes_max(5 * MIB));
    node.store.index.set_slots_max(1);
    let mut puts = 0;
    for number in 1_000_000.. {
        let length = if number % 2 == 0 { 1 } else { 300 };
        let room = Store::item_bytes(name(number).len(), length);
        if u64::from(room) > left {
            break;
        }
        let image = Image {
            cas: node.next_version(),
            ..Image::default()
        };
        assert!(node.put(number, &image, &vec![1; length], room));
        left -= u64::from(room);
        puts += 1;
    }
    let (resident, allowed) = node.resident();
    assert!(resident > allowed && puts > 4000);
    node.store.promise(ACCOUNT, 0, 0);
    for turn in 0..20_000 {
        node.evict(turn % STAGES, 1 << 16, |_| true);
        node.maintain(1);
        let (resident, allowed) = node.resident();
        if resident <= allowed {
            return;
        }
    }
    panic!("beyond the limit for good: {:?}", node.resident());
}
