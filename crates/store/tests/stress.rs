//! Several threads at once: no value that was never written, no other key's, none torn, and none
//! older than one already read.
#![allow(clippy::expect_used, clippy::unwrap_used)] // in a test a panic is the report

mod asking;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU16, Ordering},
};

use curtail_store::{Store, StoreConfig, ValueLease, Writer};
use curtail_types::{
    Arithmetic, ArithmeticOutcome, Cas, Delete, Exptime, Get, HashSeed, Set, SetOutcome, WriterId,
};
use curtail_workload::Random;

use crate::asking::{at, named, value_of};

const THREADS: u16 = 4;

/// A value that tells whose it is: key number, stamp, then bytes that follow from both.
fn fill(value: &mut Vec<u8>, key: u64, stamp: u64, length: usize) {
    value.clear();
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&stamp.to_le_bytes());
    let mut state = key.wrapping_mul(31) ^ stamp;
    while value.len() < length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        value.extend_from_slice(&state.to_le_bytes());
    }
    value.truncate(length.max(16));
}

/// Checks a value and returns its stamp.
fn check(value: &[u8], key: u64, scratch: &mut Vec<u8>) -> u64 {
    assert!(value.len() >= 16, "a value of {} bytes", value.len());
    let number = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight"));
    assert_eq!(number(0), key, "a value of another key");
    let stamp = number(8);
    fill(scratch, key, stamp, value.len());
    assert!(
        value == scratch,
        "a torn value of key {key}, {} bytes",
        value.len()
    );
    stamp
}

struct Worker {
    store: Arc<Store>,
    writer: Writer,
    random: Random,
    value: Vec<u8>,
    scratch: Vec<u8>,
    leases: Vec<(u64, ValueLease)>,
}

impl Worker {
    fn new(store: &Arc<Store>, id: u16) -> Self {
        Self {
            store: Arc::clone(store),
            writer: store.writer(WriterId(id)),
            random: Random::new(id.into()),
            value: Vec::new(),
            scratch: Vec::new(),
            leases: Vec::new(),
        }
    }

    fn length(&mut self, large: u64) -> usize {
        match self.random.below(large) {
            0 => 1025 + self.random.below(200_000) as usize,
            n => 16 + n as usize * 3 % 300,
        }
    }

    /// Writes; whether there was room.
    fn set(&mut self, key: u64, stamp: u64, length: usize) -> bool {
        fill(&mut self.value, key, stamp, length);
        let name = key_name(key);
        let (handle, hash) = named(&self.store, &name);
        let set = Set {
            exptime: Exptime((stamp % 3 * 1000) as i64),
            flags: flags_of(stamp),
            ..Set::default()
        };
        let outcome = self
            .store
            .set(&mut self.writer, at(0), handle, hash, &set, &self.value);
        assert!(
            matches!(outcome, SetOutcome::Stored(_) | SetOutcome::OutOfMemory),
            "{outcome:?}"
        );
        matches!(outcome, SetOutcome::Stored(_))
    }

    /// The stamp and version of what is there.
    fn get(&mut self, key: u64) -> Option<(u64, Cas)> {
        let name = key_name(key);
        let (handle, hash) = named(&self.store, &name);
        let wants_lease = self.random.below(2) == 0;
        let value = &mut self.value;
        let get = Get::default();
        let (status, lease) =
            self.store
                .get(&mut self.writer, at(0), handle, hash, &get, |view| {
                    let lease = wants_lease.then(|| view.lease_value()).flatten();
                    value.clear();
                    if lease.is_none() {
                        value.resize(view.value_bytes().min(1 << 20), 0);
                        let copied = view.copy_value(0, value);
                        value.truncate(copied);
                    }
                    (view.status(), lease)
                })?;
        if let Some(lease) = &lease {
            read_lease(lease, &mut self.value);
        }
        assert_eq!(self.value.len(), status.value_bytes as usize);
        let stamp = check(&self.value, key, &mut self.scratch);
        assert_eq!(status.flags, flags_of(stamp), "flags of another write");
        if let Some(lease) = lease {
            self.keep(key, lease);
        }
        Some((stamp, status.cas))
    }

    /// Reads the short way; whether there was something for it.
    fn get_plain(&mut self, key: u64) -> bool {
        let name = key_name(key);
        let (handle, hash) = named(&self.store, &name);
        let hint = self.store.prefetch_item(hash);
        self.value.resize(2048, 0);
        let read = self
            .store
            .get_plain(at(0), handle, hash, hint, &mut self.value, |_, _| Some(0));
        let Some((bytes, value_bytes)) = read else {
            return false;
        };
        assert_eq!(bytes, value_bytes);
        self.value.truncate(bytes);
        let stamp = check(&self.value, key, &mut self.scratch);
        assert_eq!((flags_of(stamp), stamp % 3), (0, 0), "it has more to tell");
        true
    }

    /// Holds a lease for a while: its value must stay readable whatever happens to the item.
    fn keep(&mut self, key: u64, lease: ValueLease) {
        if self.leases.len() >= 3 {
            let oldest = self.random.below(3) as usize;
            let (key, lease) = self.leases.swap_remove(oldest);
            read_lease(&lease, &mut self.value);
            check(&self.value, key, &mut self.scratch);
        }
        self.leases.push((key, lease));
    }

    fn delete(&mut self, key: u64) {
        let name = key_name(key);
        let (handle, hash) = named(&self.store, &name);
        let delete = Delete::default();
        self.store
            .delete(&mut self.writer, at(0), handle, hash, &delete);
    }

    fn maintain(&mut self) {
        self.store.maintain(&mut self.writer, at(0), 64);
    }
}

/// Half of all items have none.
fn flags_of(stamp: u64) -> u32 {
    if stamp & 8 == 0 { 0 } else { stamp as u32 }
}

fn read_lease(lease: &ValueLease, value: &mut Vec<u8>) {
    value.clear();
    while value.len() < lease.value_bytes() {
        let part = lease.part(value.len());
        assert!(!part.is_empty(), "a lease without bytes");
        value.extend_from_slice(part);
    }
}

fn key_name(key: u64) -> Vec<u8> {
    let width = if key >= LONG_KEYS { 200 } else { key % 23 };
    format!("key-{key:0width$}", width = width as usize).into_bytes()
}

/// Keys from this one on have long names.
const LONG_KEYS: u64 = 1 << 40;

fn store(memory_mib: usize, evict: bool) -> Arc<Store> {
    let store = Store::new(StoreConfig {
        memory_bytes_max: memory_mib << 20,
        evict,
        writers_max: usize::from(THREADS),
        hash_seed: HashSeed([5, 6]),
        ..StoreConfig::default()
    });
    Arc::new(store.expect("a store"))
}

fn run(threads: u16, work: impl Fn(u16) + Sync) {
    std::thread::scope(|scope| {
        for id in 0..threads {
            let work = &work;
            scope.spawn(move || work(id));
        }
    });
}

/// Goal: under eviction, compaction and large values every value read is one that was written under
/// its key, whole. Method: all threads write, read, lease and delete the same keys in a memory that
/// holds a part of them; values verify themselves.
fn mixed(memory_mib: usize, evict: bool, keys: u64, large: u64, steps: u64) -> Arc<Store> {
    let store = store(memory_mib, evict);
    run(THREADS, |id| {
        let mut worker = Worker::new(&store, id);
        let (mut found, mut plain) = (0_u64, 0_u64);
        for step in 0..steps {
            let key = worker.random.below(keys).min(worker.random.below(keys));
            match worker.random.below(10) {
                0..=3 => {
                    let length = worker.length(large);
                    worker.set(key, step << 2 | u64::from(id), length);
                }
                4 | 5 => plain += u64::from(worker.get_plain(key)),
                6..=8 => found += u64::from(worker.get(key).is_some()),
                _ => worker.delete(key),
            }
            if step % 16 == 0 {
                worker.maintain();
            }
        }
        assert!(found > steps / 40, "{found}");
        assert!(plain > steps / 400, "{plain}");
    });
    store
}

#[test]
fn small_values_under_eviction() {
    let store = mixed(2, true, 40_000, 1 << 40, 40_000);
    assert!(store.counters().evictions > 1000, "{:?}", store.counters());
}

#[test]
fn large_values_under_eviction_and_leases() {
    let store = mixed(8, true, 2_000, 20, 8_000);
    assert!(store.counters().evictions > 100, "{:?}", store.counters());
    assert_eq!(store.memory().leased, 0);
}

#[test]
fn compaction_without_eviction() {
    let store = mixed(2, false, 3_000, 1 << 40, 40_000);
    let counters = store.counters();
    assert_eq!(counters.evictions, 0);
    assert!(counters.moved > 0, "{counters:?}");
}

/// Goal: a key's versions and stamps never go back for any reader, and nothing written is lost
/// while memory suffices. Method: one writer per key raises its stamp; all others watch.
#[test]
fn readers_never_go_back_in_time() {
    let store = store(32, true);
    let done = AtomicBool::new(false);
    run(THREADS, |id| {
        let mut worker = Worker::new(&store, id);
        if id == 0 {
            scopeguard::defer! { done.store(true, Ordering::Relaxed) }
            for stamp in 1..15_000_u64 {
                let key = stamp % 10;
                let length = 16 + (stamp * 7 % 60) as usize;
                worker.set(key, stamp, length);
                let (seen, _) = worker.get(key).expect("it was just written");
                assert_eq!(seen, stamp);
                if stamp % 32 == 0 {
                    worker.maintain();
                }
            }
            return;
        }
        let mut last = [(0, Cas(0)); 10];
        while !done.load(Ordering::Relaxed) {
            let key = worker.random.below(10);
            if let Some(seen) = worker.get(key) {
                let before = &mut last[key as usize];
                assert!(before.0 <= seen.0, "stamp {} after {}", seen.0, before.0);
                assert!(
                    before.1 <= seen.1,
                    "version {:?} after {:?}",
                    seen.1,
                    before.1
                );
                *before = seen;
            }
        }
    });
    assert_eq!(store.counters().evictions, 0);
}

/// Goal: concurrent counting loses nothing. Method: all threads add to the same few numbers while
/// they are compacted and the index grows.
#[test]
fn concurrent_counting_is_exact() {
    const EACH: u64 = 8_000;
    let store = store(4, true);
    run(THREADS, |id| {
        let mut worker = Worker::new(&store, id);
        let count = Arithmetic {
            delta: 1,
            vivify: Some(Exptime::NEVER),
            initial: 1,
            ..Arithmetic::default()
        };
        for step in 0..EACH {
            let name = format!("counter-{}", step % 4).into_bytes();
            let (handle, hash) = named(&store, &name);
            let outcome = store.arithmetic(&mut worker.writer, at(0), handle, hash, &count);
            assert!(matches!(outcome, ArithmeticOutcome::Counted { .. }));
            worker.set(1_000 + step % 2000, step, 40);
            if step % 16 == 0 {
                worker.maintain();
            }
        }
    });
    let mut worker = Worker::new(&store, THREADS);
    for number in 0..4 {
        let name = format!("counter-{number}").into_bytes();
        let (handle, hash) = named(&store, &name);
        let get = Get::default();
        let text = store.get(&mut worker.writer, at(0), handle, hash, &get, value_of);
        let text = String::from_utf8(text.expect("an item")).expect("digits");
        assert_eq!(text, (EACH / 4 * u64::from(THREADS)).to_string());
    }
}

/// Goal: the short way of a read shows no half of a write. Method: two threads write long values of
/// one length over and over in place, the others read them the short way.
#[test]
fn plain_reads_are_never_torn() {
    const STAMPS: u64 = 48; // without flags and expiry
    let store = store(32, true);
    let writing = AtomicU16::new(THREADS / 2);
    run(THREADS, |id| {
        let mut worker = Worker::new(&store, id);
        if id % 2 == 0 {
            scopeguard::defer! { writing.fetch_sub(1, Ordering::Release); }
            for step in 0..60_000 {
                worker.set(step % 2, step * STAMPS, 1000);
            }
            return;
        }
        // A reader that has read in vain so often may have had no writer beside it.
        let (mut step, mut found, mut are_done) = (0, 0, false);
        while step < 60_000 || found == 0 && !are_done {
            are_done = writing.load(Ordering::Acquire) == 0;
            found += u64::from(worker.get_plain(step % 2));
            step += 1;
        }
        assert!(found > 0);
    });
}

/// Goal: compaction never takes an item for removed that is being written over. Method: each
/// thread writes long keys of its own over and over, whose flags come and go while the words that
/// they take stay the same, and makes holes beside them; all compact, nothing is evicted, and what
/// a thread wrote last is there.
#[test]
fn compaction_loses_nothing_that_is_written_over() {
    const KEYS: u64 = 64;
    let store = store(1, false);
    run(THREADS, |id| {
        let mut worker = Worker::new(&store, id);
        let mine = LONG_KEYS + u64::from(id) * 10_000;
        let mut last = [0; KEYS as usize];
        for step in 1..60_000_u64 {
            let place = worker.random.below(KEYS);
            // Neither expiry nor flags, or flags, which take a word.
            let stamp = step * 48 + if worker.random.below(2) == 0 { 0 } else { 9 };
            let length = 96 - if flags_of(stamp) == 0 { 0 } else { 8 };
            let is_stored = worker.set(mine + place, stamp, length);
            last[place as usize] = if is_stored { stamp } else { 0 };
            if step % 4 == 0 {
                let hole = mine + 1000 + worker.random.below(400);
                worker.delete(hole);
                worker.set(hole, step * 48, 200);
                worker.maintain();
            }
            let place = worker.random.below(KEYS);
            let (there, written) = (worker.get(mine + place), last[place as usize]);
            assert_eq!(there.map_or(0, |(stamp, _)| stamp), written, "{place}");
        }
    });
    let counters = store.counters();
    assert!(counters.moved > 1000, "{counters:?}");
    assert_eq!(counters.evictions, 0);
}

/// Goal: without eviction nobody is refused while most of the memory is dead. The story: who needed
/// room while another thread gathered the last sparse segment was told that there was none. Method:
/// all threads write keys of their own over and over, of which a quarter of the memory is live.
#[test]
fn nothing_is_refused_while_most_is_dead() {
    let store = store(16, false);
    run(THREADS, |id| {
        let mut worker = Worker::new(&store, id);
        for step in 0..20_000_u64 {
            let key = u64::from(id) << 16 | worker.random.below(60);
            let length = 16 + worker.random.below(30_000) as usize;
            assert!(worker.set(key, step, length), "{step}");
        }
    });
    assert_eq!(store.counters().evictions, 0);
}
