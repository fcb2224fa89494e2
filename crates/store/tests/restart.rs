//! Saving and restoring: what survives and what is refused.
#![allow(clippy::expect_used, clippy::unwrap_used)] // in a test a panic is the report

mod asking;

use std::{fs, path::Path};

use curtail_store::{Store, StoreConfig, StoreError};
use curtail_types::{Cas, Delete, Exptime, Get, HashSeed, Now, Set, SetMode, SetOutcome, WriterId};
use tempfile::{NamedTempFile, TempPath};

use crate::asking::{at, named, value_of};

fn config() -> StoreConfig {
    StoreConfig {
        memory_bytes_max: 16 << 20,
        hash_seed: HashSeed([11, 12]),
        ..StoreConfig::default()
    }
}

/// A path of a test's own.
fn scratch() -> TempPath {
    NamedTempFile::new().expect("a file").into_temp_path()
}

fn get(store: &Store, now: Now, key: &str) -> Option<(Vec<u8>, u32, Cas, Option<u32>)> {
    let mut writer = store.writer(WriterId(60_000));
    let (key, hash) = named(store, key);
    store.get(&mut writer, now, key, hash, &Get::default(), |view| {
        let status = view.status();
        (value_of(view), status.flags, status.cas, status.ttl_seconds)
    })
}

fn set(store: &Store, now: Now, key: &str, value: &[u8], exptime: i64, flags: u32) -> Cas {
    let mut writer = store.writer(WriterId(1));
    let (key, hash) = named(store, key);
    let set = Set {
        exptime: Exptime(exptime),
        flags,
        ..Set::default()
    };
    match store.set(&mut writer, now, key, hash, &set, value) {
        SetOutcome::Stored(cas) => cas,
        outcome => panic!("{outcome:?}"),
    }
}

fn value(n: usize) -> Vec<u8> {
    let length = if n.is_multiple_of(50) {
        n * 90
    } else {
        n % 200
    };
    (0..length).map(|i| (i * 31 + n) as u8).collect()
}

/// A store with items of all kinds, some of them removed, changed, expired or flushed.
fn filled() -> (Store, Vec<Cas>) {
    let store = Store::new(config()).expect("a store");
    set(&store, at(0), "flushed", b"x", 0, 0);
    store.flush_all(at(0), Exptime(0));
    let versions = (0..3000)
        .map(|n| {
            set(
                &store,
                at(0),
                &format!("key-{n}"),
                &value(n),
                (n % 3 * 100) as i64,
                n as u32,
            )
        })
        .collect();
    let mut writer = store.writer(WriterId(2));
    for n in (0..3000).step_by(7) {
        let key = format!("key-{n}");
        let (key, hash) = named(&store, &key);
        store.delete(&mut writer, at(0), key, hash, &Delete::default());
    }
    (store, versions)
}

fn assert_same(store: &Store, versions: &[Cas]) {
    for (n, &cas) in versions.iter().enumerate() {
        let found = get(store, at(150), &format!("key-{n}"));
        let gone = n % 7 == 0 || n % 3 == 1;
        let ttl = (n % 3 == 2).then_some(50);
        assert_eq!(
            found,
            (!gone).then(|| (value(n), n as u32, cas, ttl)),
            "{n}"
        );
    }
    assert_eq!(get(store, at(150), "flushed"), None);
}

/// Goal: everything survives a restart, and nothing that was gone comes back. Method: save, restore
/// under another seed and a larger limit, compare item by item; then work on, and save again.
#[test]
fn contents_survive_a_restart() {
    let scratch = scratch();
    let (store, versions) = filled();
    store.save(&scratch, at(100)).expect("saved");
    assert_same(&store, &versions);
    drop(store);
    let other = StoreConfig {
        memory_bytes_max: 20 << 20,
        hash_seed: HashSeed([1, 1]),
        ..StoreConfig::default()
    };
    let restored = Store::restore(&scratch, other, at(100)).expect("restored");
    assert_same(&restored, &versions);
    let newest = set(&restored, at(100), "new", b"after", 0, 0);
    assert!(versions.iter().all(|&old| old < newest));
    let mut writer = restored.writer(WriterId(4));
    for n in 0..30_000_u64 {
        set(&restored, at(150), &format!("more-{n}"), &[1; 500], 0, 0);
        if n % 50 == 0 {
            restored.maintain(&mut writer, at(150), 64);
        }
    }
    assert!(restored.counters().evictions > 0);
    restored.save(&scratch, at(200)).expect("saved again");
    let again = Store::restore(&scratch, config(), at(200));
    let again = again.or_else(|error| match error {
        // It was filled to a limit above this one.
        StoreError::Mismatch(_) => Store::restore(
            &scratch,
            StoreConfig {
                memory_bytes_max: 20 << 20,
                ..config()
            },
            at(200),
        ),
        error => Err(error),
    });
    let again = again.expect("restored again");
    assert_eq!(again.counters().items_now, restored.counters().items_now);
    assert_eq!(
        again.counters().item_bytes_now,
        restored.counters().item_bytes_now
    );
}

/// Goal: a damaged file is refused with a reason, never taken in part. Method: every truncation at
/// some lengths, and a flipped bit at many places.
#[test]
fn damaged_files_are_refused() {
    let scratch = scratch();
    let store = Store::new(config()).expect("a store");
    for n in 0..100 {
        set(&store, at(0), &format!("key-{n}"), &value(n), 0, 0);
    }
    store.save(&scratch, at(0)).expect("saved");
    let good = fs::read(&scratch).expect("readable");
    let refused = |bytes: &[u8]| {
        fs::write(&scratch, bytes).expect("writable");
        let result = Store::restore(&scratch, config(), at(0));
        matches!(
            result,
            Err(StoreError::Corrupt(_) | StoreError::Mismatch(_))
        )
    };
    for length in (0..good.len()).step_by(good.len() / 15) {
        assert!(refused(&good[..length]), "cut to {length}");
    }
    for position in (0..good.len()).step_by(good.len() / 37) {
        let mut bad = good.clone();
        bad[position] ^= 1 << (position % 8);
        assert!(refused(&bad), "bit flipped in byte {position}");
    }
    assert!(refused(
        b"something else altogether, quite long enough for a header or two"
    ));
    assert!(!refused(&good));
}

#[test]
fn another_version_is_named() {
    let scratch = scratch();
    let store = Store::new(config()).expect("a store");
    store.save(&scratch, at(0)).expect("saved");
    let mut bytes = fs::read(&scratch).expect("readable");
    bytes[8] += 1;
    fs::write(&scratch, bytes).expect("writable");
    let error = Store::restore(&scratch, config(), at(0)).expect_err("refused");
    assert!(error.to_string().contains("version"), "{error}");
}

/// Goal: when the file cannot be written, the store goes on as before, and an older save stays.
#[test]
fn a_failed_save_changes_nothing() {
    let (store, versions) = filled();
    let nowhere = Path::new("/nonexistent-folder/saved");
    assert!(matches!(
        store.save(nowhere, at(0)),
        Err(StoreError::Save(..))
    ));
    // A folder in the place of the file is not replaced.
    assert!(matches!(
        store.save(&std::env::temp_dir(), at(0)),
        Err(StoreError::Save(..))
    ));
    assert_same(&store, &versions);
}

#[test]
fn a_value_being_received_prevents_a_save() {
    let scratch = scratch();
    let store = Store::new(config()).expect("a store");
    let mut writer = store.writer(WriterId(0));
    let (key, hash) = named(&store, b"big");
    let reservation = store
        .reserve(&mut writer, at(0), key, hash, &Set::default(), 100_000)
        .expect("room");
    assert!(matches!(store.save(&scratch, at(0)), Err(StoreError::Busy)));
    drop(reservation);
    store.save(&scratch, at(0)).expect("saved");
}

#[test]
fn a_planned_flush_survives() {
    let scratch = scratch();
    let store = Store::new(config()).expect("a store");
    set(&store, at(0), "a", b"b", 0, 0);
    store.flush_all(at(0), Exptime(50));
    store.save(&scratch, at(1)).expect("saved");
    let restored = Store::restore(&scratch, config(), at(2)).expect("restored");
    assert!(get(&restored, at(49), "a").is_some());
    assert!(get(&restored, at(50), "a").is_none());
}

/// Goal: a value that is longer than what may be written now stays whole. Method: restore under a
/// lower limit of values; append nothing and something, and take the image.
#[test]
fn a_value_longer_than_the_limit_of_now_stays_whole() {
    let store = Store::new(config()).expect("a store");
    let value: Vec<u8> = (0..900_000).map(|i| i as u8).collect();
    set(&store, at(0), "key", &value, 0, 7);
    let path = scratch();
    store.save(&path, at(0)).expect("a file");
    let lower = StoreConfig {
        item_bytes_max: 100_000,
        ..config()
    };
    let store = Store::restore(&path, lower, at(0)).expect("a store");
    let mut writer = store.writer(WriterId(2));
    let (key, hash) = named(&store, "key");
    for mode in [SetMode::Append, SetMode::Prepend] {
        for more in [&[][..], &[1], &[1; 2000]] {
            let set = Set {
                mode,
                ..Set::default()
            };
            let outcome = store.set(&mut writer, at(0), key, hash, &set, more);
            assert_eq!(outcome, SetOutcome::TooLarge);
        }
    }
    let mut taken = Vec::new();
    let image = store.take_image(&mut writer, at(0), key, hash, &mut taken);
    assert_eq!(image.expect("an item").flags, 7);
    assert!(taken == value);
}
