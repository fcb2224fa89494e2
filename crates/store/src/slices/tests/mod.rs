//! The store of a node: every promise kept, nothing evicted that the machine does not know of,
//! cleared slices empty and scans complete. Errors are planted to see that the tests catch them.

mod clears;
mod evictions;
mod promised_room;
mod runs;
mod scans;

use std::collections::{BTreeMap, BTreeSet};

use curtail_types::{
    Arithmetic, Cas, Delete, Exptime, Get, HashSeed, Key, KeyHash, Now, Operation, Outcome,
    RouteHash, Set, SetMode, SetOutcome, WriterId,
};
use curtail_workload::Random;

use crate::{
    Image, ItemChange, ScanCursor, Store, StoreConfig, Writer, route_of,
    slices::{SliceBug, Slices},
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
        Self::with_bug(memory, evict, SliceBug::None)
    }

    fn with_bug(memory: usize, evict: bool, bug: SliceBug) -> Self {
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

    fn run(&mut self, number: u64, operation: &Operation, value: &[u8]) -> (Outcome, ItemChange) {
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
            Some(version),
            room,
            |_| (),
        );
        if let ItemChange::Stored(bytes) = ran.1 {
            assert!(bytes <= room, "{operation:?}: {bytes} of {room}");
            assert_eq!(self.item(number), Some((version, bytes)), "{operation:?}");
            if let Outcome::Found(status) = ran.0 {
                assert_eq!(status.cas, version, "{operation:?}");
            }
        }
        ran
    }

    fn set(&mut self, number: u64, value: &[u8]) -> ItemChange {
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

/// Goal: a slice has the keys that all nodes think it has. Method: the borders of the hashes.
#[test]
fn slices_are_equal_parts_of_the_hashes() {
    let slices = Slices::new(256, 2);
    assert_eq!(slices.of(RouteHash(0)), 0);
    assert_eq!(slices.of(RouteHash(u64::MAX)), 255);
    assert_eq!(slices.of(RouteHash(1 << 56)), 1);
    assert_eq!(slices.of(RouteHash((1 << 56) - 1)), 0);
}

/// Goal: free slices are counted once, however often they are said to be free.
#[test]
fn free_slices_are_counted() {
    let slices = Slices::new(4, 1);
    assert!(!slices.is_any_free() && !slices.is_free(1));
    slices.set_free(1, true);
    slices.set_free(1, true);
    assert!(slices.is_any_free() && slices.is_free(1) && !slices.is_free(2));
    slices.set_free(1, false);
    slices.set_free(1, false);
    slices.set_free(9, true);
    assert!(!slices.is_any_free());
}
