//! Stores whose limit is far above the machine's memory start, work, and use no memory for what
//! they could grow to.
#![allow(clippy::expect_used, clippy::unwrap_used)] // in a test a panic is the report

mod asking;

use curtail_runtime::resident_bytes;
use curtail_store::{MEMORY_BYTES_LIMIT, Store, StoreConfig, StoreError};
use curtail_types::{Get, HashSeed, Set, SetOutcome, WriterId};

use crate::asking::{at, named, value_of};

fn config(memory_bytes_max: usize, huge_pages: bool) -> StoreConfig {
    StoreConfig {
        memory_bytes_max,
        hash_seed: HashSeed([5, 6]),
        huge_pages,
        ..StoreConfig::default()
    }
}

/// Stores so many items, reads them, and returns the bytes of items and index that each took.
fn fill(store: &Store, items: u32) -> usize {
    let mut writer = store.writer(WriterId(0));
    let now = at(0);
    let keys = || (0..items).map(|number| format!("key-{number}"));
    for name in keys() {
        let (key, hash) = named(store, &name);
        let (set, value) = (Set::default(), name.as_bytes());
        let outcome = store.set(&mut writer, now, key, hash, &set, value);
        assert!(matches!(outcome, SetOutcome::Stored(_)), "{outcome:?}");
    }
    for name in keys() {
        let (key, hash) = named(store, &name);
        let is_it = store.get(&mut writer, now, key, hash, &Get::default(), |view| {
            value_of(view) == name.as_bytes()
        });
        assert_eq!(is_it, Some(true), "{name}");
    }
    assert_eq!(store.counters().evictions, 0);
    let memory = store.memory();
    (memory.live + memory.index) as usize / items as usize
}

/// Goal: any limit up to the greatest works, by what pages it be, and takes the memory of its
/// contents; an item takes as many bytes as in a small store. Method: the resident memory, and
/// bytes per item, after some items were stored and read and all pages ahead were supplied.
#[test]
#[cfg_attr(miri, ignore = "reserves tebibytes of address space")]
fn limits_beyond_the_machine_take_the_memory_of_their_contents() {
    if std::fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|it| it.trim() == "2") {
        return; // the server's own test looks at what is said then
    }
    let items = 50_000;
    let small = fill(&Store::new(config(1 << 30, false)).expect("a store"), items);
    for gib in [95, 96, 256, 768, 1024, 4096, 8192] {
        for huge_pages in [false, true] {
            let limit = (gib << 30).min(MEMORY_BYTES_LIMIT);
            let before = resident_bytes();
            let store = Store::new(config(limit, huge_pages)).expect("a store");
            let made = resident_bytes().saturating_sub(before);
            assert!(
                made < 32 << 20,
                "{gib} GiB: {made} bytes taken by an empty store"
            );
            let each = fill(&store, items);
            assert_eq!(each, small, "{gib} GiB: bytes per item");
            while store.supply_pages() {}
            let filled = resident_bytes().saturating_sub(before);
            assert!(filled < 96 << 20, "{gib} GiB: {filled} bytes taken");
            let raised = *store.memory_bounds().end();
            assert_eq!(raised, (8 * limit).min(MEMORY_BYTES_LIMIT));
            assert!(!store.set_memory_bytes_max(raised + 1));
            assert_eq!(store.memory().limit, limit as u64, "refused, so unchanged");
            assert!(store.set_memory_bytes_max(raised));
            fill(&store, 1000);
        }
    }
}

/// Goal: what cannot be referred to is refused. Method: one byte too many.
#[test]
fn a_limit_above_the_greatest_is_refused() {
    let refused = Store::new(config(MEMORY_BYTES_LIMIT + 1, false));
    let Err(StoreError::Config(words)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        words.contains(&(MEMORY_BYTES_LIMIT >> 20).to_string()),
        "{words}"
    );
}
