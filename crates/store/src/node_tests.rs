//! The store of a node: every promise kept, nothing evicted that the machine does not know of,
//! cleared slices empty and scans complete. Errors are planted to see that the tests catch them.

use std::collections::{BTreeMap, BTreeSet};

use curtail_types::{
    Arithmetic, Cas, Delete, Exptime, Get, HashSeed, Key, KeyHash, Now, Operation, Outcome, Set,
    SetMode, SetOutcome, WriterId,
};
use curtail_workload::Random;

use crate::{
    Change, Image, ScanCursor, Store, StoreConfig, Writer, route_of,
    slices::{Bug, Slices},
    sync::Arc,
};

const SLICES: u16 = 64;
const STAGES: u16 = 2;
const MIB: usize = 1 << 20;

struct Node {
    store: Arc<Store>,
    writer: Writer,
    now: Now,
    version: u64,
}

fn at(seconds: u64) -> Now {
    Now {
        unix_ns: (1_800_000_000 + seconds) * 1_000_000_000,
        ..Now::default()
    }
}

fn name(number: u64) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

impl Node {
    fn new(memory: usize, evict: bool) -> Self {
        Self::with_bug(memory, evict, Bug::None)
    }

    fn with_bug(memory: usize, evict: bool, bug: Bug) -> Self {
        let store = Store::new(StoreConfig {
            memory_bytes_max: memory,
            evict,
            hash_seed: HashSeed([3, 4]),
            hash_by_route: true,
            writers_max: 4,
            ..StoreConfig::default()
        })
        .unwrap();
        assert!(
            store
                .slices
                .set(Slices::with_bug(SLICES, STAGES, bug))
                .is_ok()
        );
        Self {
            writer: store.writer(WriterId(0)),
            store: Arc::new(store),
            now: at(0),
            version: 1 << 40,
        }
    }

    fn slice(&self, number: u64) -> u16 {
        self.store.slices.get().unwrap().of(route_of(&name(number)))
    }

    fn hash(&self, number: u64) -> KeyHash {
        self.store.hash(&name(number))
    }

    fn next_version(&mut self) -> Cas {
        self.version += 1 << 16;
        Cas(self.version)
    }

    fn run(&mut self, number: u64, operation: &Operation, value: &[u8]) -> (Outcome, Change) {
        let (name, version) = (name(number), self.next_version());
        let key = Key::new(&name).unwrap();
        let hash = self.store.hash(&name);
        let room = self.store.request_bytes(
            &mut self.writer,
            self.now,
            key,
            hash,
            operation,
            value.len(),
        );
        let ran = self.store.run(
            &mut self.writer,
            self.now,
            key,
            hash,
            operation,
            value,
            version,
            room,
            |_| (),
        );
        if let Change::Stored(bytes) = ran.1 {
            assert!(bytes <= room, "{operation:?}: {bytes} of {room}");
            assert_eq!(self.item(number), Some((version, bytes)), "{operation:?}");
        }
        ran
    }

    fn set(&mut self, number: u64, value: &[u8]) -> Change {
        self.run(number, &Operation::Set(Set::default()), value).1
    }

    fn item(&mut self, number: u64) -> Option<(Cas, u32)> {
        let name = name(number);
        let hash = self.store.hash(&name);
        let key = Key::new(&name).unwrap();
        self.store
            .item_bytes_of(&mut self.writer, self.now, key, hash)
    }

    fn read(&mut self, number: u64) -> bool {
        let name = name(number);
        let hash = self.store.hash(&name);
        let key = Key::new(&name).unwrap();
        let get = Get::default();
        let seen = self
            .store
            .get(&mut self.writer, self.now, key, hash, &get, |_| ());
        seen.is_some()
    }

    fn value(&mut self, number: u64) -> Option<(Image, Vec<u8>)> {
        let name = name(number);
        let hash = self.store.hash(&name);
        let key = Key::new(&name).unwrap();
        let mut value = Vec::new();
        let image = self
            .store
            .take_image(&mut self.writer, self.now, key, hash, &mut value);
        image.map(|image| (image, value))
    }

    fn put(&mut self, number: u64, image: &Image, value: &[u8], room: u32) -> bool {
        let name = name(number);
        let hash = self.store.hash(&name);
        let key = Key::new(&name).unwrap();
        self.store.put_promised(
            &mut self.writer,
            self.now,
            key,
            hash,
            (image, value),
            ACCOUNT,
            room,
        )
    }

    fn evict(&mut self, stage: u16, bytes: u64, may: impl Fn(u16) -> bool) -> (u64, Vec<u64>) {
        let mut keys = Vec::new();
        let freed = self.store.evict_slices(
            &mut self.writer,
            self.now,
            stage,
            bytes,
            &mut |slice| may(slice),
            &mut |_, route| keys.push(route.0),
        );
        (freed, keys)
    }

    /// Segments that hold memory, and how many may.
    fn resident(&self) -> (usize, usize) {
        self.store.follow_budget();
        let (resident, _, allowed) = self.store.segments().resident();
        (resident, allowed)
    }

    fn clear(&mut self, slice: u16, before: Option<Cas>) {
        let store = Arc::clone(&self.store);
        store.clear_slice(&mut self.writer, self.now, slice, before);
    }

    fn maintain(&mut self, turns: usize) {
        for _ in 0..turns {
            self.store.maintain(&mut self.writer, self.now, 64);
        }
    }
}

const ACCOUNT: u16 = 64 + 3;

/// A length that is small, at a limit, or large.
fn length(random: &mut Random, store: &Store) -> usize {
    let segment = store.segments().segment_bytes();
    let near = |at: usize, random: &mut Random| at + random.below(41) as usize - 20;
    match random.below(12) {
        0..=4 => random.below(200) as usize,
        5..=6 => random.below(1100) as usize,
        7 => near(crate::COPY_BYTES_MAX, random),
        8 => near(segment / 16, random),
        9 => near(segment, random),
        10 => near(segment * (1 + random.below(3) as usize), random),
        _ => random.below(3 * segment as u64) as usize,
    }
}

// ---- promised room ----

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

/// Fills a store with local writes up to what is promised, then sends what was promised. Whether
/// each item was stored and the limit held throughout.
fn promise_is_kept(bug: Bug, seed: u64, sent: Sent) -> bool {
    let mut node = Node::with_bug(4 * MIB, false, bug);
    let mut random = Random::new(seed);
    let promised = match sent {
        Sent::AllLengths => (1 + random.below(3)) << 19,
        Sent::Short => 1 << 17,
        Sent::Ends => 1 << 15,
    };
    let more = node.store.promise(ACCOUNT, 0, promised);
    assert_eq!(more, promised, "the store is empty");
    let mut number = 0;
    let mut refused = 0;
    while refused < 5 {
        number += 1;
        let length = random.below(1000) as usize;
        refused += u64::from(node.set(number, &vec![1; length]) == Change::NoRoom);
    }
    let mut left = promised;
    let mut puts = 0;
    loop {
        let length = match sent {
            Sent::AllLengths => length(&mut random, &node.store),
            Sent::Short => random.below(30) as usize,
            Sent::Ends => 500,
        };
        let key = if random.below(4) == 0 {
            random.below(number)
        } else {
            1_000_000 + random.below(1 << 30)
        };
        let room = Store::item_bytes(name(key).len(), length);
        if u64::from(room) > left {
            break;
        }
        let end = match random.below(11) {
            0 => 0,
            bucket => 8 << (2 * bucket),
        };
        let image = Image {
            cas: node.next_version(),
            flags: random.below(2) as u32,
            expiry: if end == 0 {
                0
            } else {
                node.now.unix_seconds() + end
            },
            ..Image::default()
        };
        let value = vec![puts as u8; length];
        if !node.put(key, &image, &value, room) {
            return false;
        }
        left -= u64::from(room);
        puts += 1;
        // Whoever else writes gets nothing of it.
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
            promise_is_kept(Bug::None, seed, SENT[seed as usize % 3]),
            "{seed}"
        );
    }
}

/// Goal: the test above can fail.
#[test]
fn broken_promises_are_caught() {
    for bug in [
        Bug::KeepsNothing,
        Bug::KeepsNoOpenSegments,
        Bug::SharesSegments,
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
                    Cas(1 + number),
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
    while node.set(number, &[1; 300]) != Change::NoRoom {
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

// ---- runs ----

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
                let vivify = (random.below(4) == 0).then_some(exptime);
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
            Change::Unchanged => assert_eq!(after, before, "{turn}: {operation:?} {outcome:?}"),
            Change::Removed => assert!(before.is_some() && after.is_none(), "{turn}"),
            Change::Stored(_) => {}
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
        while node.set(number, &[1; 900]) != Change::NoRoom {
            number += 1;
        }
        assert!(number > 3000);
        let before = node.value(7).unwrap();
        assert_eq!(node.set(7, &[2; 60_000]), Change::NoRoom);
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
            assert!(matches!(node.set(7, &[2; 60_000]), Change::Stored(_)));
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
                version,
                room,
                |_| (),
            )
            .1
    };
    node.set(1, &[1; 5000]);
    let before = node.value(1);
    assert_eq!(run(&mut node), Change::Outgrown);
    assert_eq!(node.value(1), before);
    node.set(1, &[1; 300]);
    assert!(matches!(run(&mut node), Change::Stored(_)));
    assert_eq!(node.value(1).unwrap().1.len(), 400);
}

// ---- eviction ----

/// How many of the popular keys of the slices that this node decides about live through a stream of
/// writes of many times the memory, which two stages make room for; `None` if a key went of which
/// nobody was told, or more than once.
fn popular_survive(bug: Bug) -> Option<f64> {
    const POPULAR: u64 = 400;
    let mut node = Node::with_bug(2 * MIB, true, bug);
    let mut random = Random::new(7);
    let decides = |slice: u16| slice / 2 % 2 == 0;
    let mut there = BTreeMap::new();
    let mut number = 0;
    let mut lost = 0;
    let all: Vec<u64> = (0..POPULAR).collect();
    let decided: Vec<u64> = all
        .iter()
        .copied()
        .filter(|&one| decides(node.slice(one)))
        .collect();
    // What other nodes decide about is half of everything, and is overwritten now and then.
    while number < 60_000 {
        number += 1;
        let popular = decided[random.below(decided.len() as u64) as usize];
        if !node.read(popular) {
            lost += u64::from(there.remove(&route_of(&name(popular)).0).is_some());
            write(&mut node, popular, decides, &mut there)?;
        }
        let one = POPULAR + number;
        if decides(node.slice(one)) {
            write(&mut node, one, decides, &mut there)?;
        } else if number % 8 == 0 {
            let followed = POPULAR + 1_000_000 + random.below(1500);
            if !decides(node.slice(followed)) {
                write(&mut node, followed, decides, &mut there)?;
            }
        }
    }
    let missing = there.values().filter(|&&one| node.item(one).is_none());
    if missing.count() > 0 || lost > 0 {
        return None;
    }
    let survive = decided.iter().filter(|&&one| node.item(one).is_some());
    Some(survive.count() as f64 / decided.len() as f64)
}

/// Writes a key, with evictions by the stages in turn until there is room; `None` if a key is shown
/// that was not there or may not be evicted.
fn write(
    node: &mut Node,
    number: u64,
    decides: fn(u16) -> bool,
    there: &mut BTreeMap<u64, u64>,
) -> Option<()> {
    for turn in 0..4000 {
        if matches!(node.set(number, &[1; 300]), Change::Stored(_)) {
            there.insert(route_of(&name(number)).0, number);
            return Some(());
        }
        node.maintain(1);
        let stage = turn % STAGES;
        if node.store.wants_eviction(stage) {
            let bytes = node.store.eviction_bytes();
            for route in node.evict(stage, bytes, decides).1 {
                let gone = there.remove(&route)?;
                decides(node.slice(gone)).then_some(())?;
            }
        }
    }
    panic!("no room for {number}: {:?}", node.store);
}

/// Goal: popular keys stay in a full store, whose two stages each see half of the slices and decide
/// about a quarter of the items; whatever goes is shown once, and nothing goes that another node
/// decides about (CL-7). Method: a stream of keys that are never read, beside popular ones.
#[test]
fn popular_keys_survive() {
    let survive = popular_survive(Bug::None);
    assert!(survive.is_some_and(|share| share > 0.98), "{survive:?}");
}

/// Goal: the test above can fail.
#[test]
fn wrong_evictions_are_caught() {
    assert_eq!(popular_survive(Bug::EvictsUnasked), None);
}

/// Goal: an item that was read after it was judged stays, one that is of another node's slice stays,
/// and the rest goes. Method: all items of a store are condemned, some are read, then evicted.
fn reads_after_judgement(bug: Bug) -> bool {
    let mut node = Node::with_bug(2 * MIB, true, bug);
    let mut number = 0;
    while node.set(number, &[1; 300]) != Change::NoRoom {
        number += 1;
    }
    let store = Arc::clone(&node.store);
    let waiting = |stage| store.slices.get().unwrap().condemned(stage);
    while waiting(0) < 100 {
        let judged = store.evict_slices(
            &mut node.writer,
            node.now,
            1,
            u64::MAX,
            &mut |_| true,
            &mut |_, _| (),
        );
        assert!(judged > 0 || waiting(0) > 0);
    }
    let is_of_first = |node: &Node, one: u64| node.slice(one) % STAGES == 0;
    let read: Vec<u64> = (0..number)
        .filter(|&one| is_of_first(&node, one) && one % 3 == 0)
        .collect();
    assert!(read.iter().all(|&one| node.read(one)));
    let (mut turns, mut gone) = (0, 0);
    while waiting(0) > 0 && turns < 1000 {
        turns += 1;
        gone += node.evict(0, 100, |slice| slice % 4 == 0).1.len();
    }
    assert!(gone > 0);
    let followed: Vec<u64> = (0..number)
        .filter(|&one| is_of_first(&node, one) && node.slice(one) % 4 != 0)
        .collect();
    assert!(followed.iter().all(|&one| node.item(one).is_some()));
    read.iter().all(|&one| node.item(one).is_some())
}

#[test]
fn what_was_read_since_it_was_judged_stays() {
    assert!(reads_after_judgement(Bug::None));
    assert!(!reads_after_judgement(Bug::ReadsIgnored));
}

/// Goal: what the policy gives up waits for each stage, so that a stage need not fall back on what
/// is popular. Method: one stage asks; items of the other wait, unless that is broken.
#[test]
fn other_stages_have_their_share() {
    for (bug, expected) in [(Bug::None, true), (Bug::OtherStagesStay, false)] {
        let mut node = Node::with_bug(2 * MIB, true, bug);
        let mut number = 0;
        while node.set(number, &[1; 300]) != Change::NoRoom {
            number += 1;
        }
        for _ in 0..20 {
            node.evict(0, 1 << 20, |_| true);
        }
        let slices = node.store.slices.get().unwrap();
        assert_eq!(slices.condemned(1) > 50, expected, "{bug:?}");
    }
}

/// Goal: free slices are evicted from without asking anybody, and no other.
#[test]
fn free_slices_make_room_by_themselves() {
    let mut node = Node::new(2 * MIB, true);
    for slice in (0..SLICES).step_by(2) {
        node.store.set_free(slice, true);
    }
    let set = Set::default();
    let store = Arc::clone(&node.store);
    let (mut bound, mut sets) = (BTreeSet::new(), 0);
    for number in 0..40_000 {
        let is_free = node.slice(number) % 2 == 0;
        if !is_free && bound.len() >= 1000 {
            continue;
        }
        let name = name(number);
        let key = Key::new(&name).unwrap();
        let hash = store.hash(&name);
        let outcome = store.set(&mut node.writer, node.now, key, hash, &set, &[1; 300]);
        assert!(matches!(outcome, SetOutcome::Stored(_)), "{number}");
        store.maintain(&mut node.writer, node.now, 64);
        sets += 1;
        if !is_free {
            bound.insert(number);
        }
    }
    assert!(sets > 15_000);
    assert!(bound.iter().all(|&one| node.item(one).is_some()));
    assert!(node.store.counters().evictions > 10_000);
}

// ---- clears ----

/// Random writes, clears and moves of items beside a model; whether they always agreed.
fn clears_agree(bug: Bug, seed: u64) -> bool {
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
                let length =
                    1 + random.below(if number % 100 == 0 { 30_000 } else { 400 }) as usize;
                match node.set(number, &vec![1; length]) {
                    Change::Stored(_) => {
                        let cas = Cas(node.version);
                        model.insert(number, (cas, length));
                    }
                    Change::NoRoom => {
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
        assert!(clears_agree(Bug::None, seed), "{seed}");
    }
}

/// Goal: the test above can fail.
#[test]
fn wrong_clears_are_caught() {
    for bug in [
        Bug::ClearsLastIncarnation,
        Bug::SweepEndsAll,
        Bug::WritesFormerIncarnation,
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
                            assert!(matches!(set, Change::Stored(_)));
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
        if node.slice(number) % 3 != 0
            || number % 2 == 0 && node.set(number, &[2; 100]) != Change::NoRoom
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

// ---- scans, ends, keys ----

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

/// Goal: an item that ends is gone at a holder by the clock, with no word of anybody, and its memory
/// comes back; a change of its key that comes later is stored. Method: as a follower sees it.
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
