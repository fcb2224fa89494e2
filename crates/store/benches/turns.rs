//! Processor time of a turn: batches of 64 operations and one `maintain`.
//!
//! ```text
//! cargo bench -p curtail-store --bench turns            10 million items, then as many again
//! cargo bench -p curtail-store --bench turns -- 2000000
//! ```
//!
//! First the store grows from empty, then it is full and every write evicts, at last with a skewed
//! mix of reads. The bar: no turn above 1 ms of CPU time. Time that other threads take does not
//! count; the page faults of fresh memory do, as far as a second thread that supplies huge pages
//! ahead, as in the server, has not been there before. A virtual machine's CPU clock also counts
//! what the host takes away, so the whole runs twice and each turn counts with its shorter time:
//! the turns do the same work in both runs, to the item. Both maxima are shown.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, Thread},
};

use curtail_runtime::ThreadCpuClock;
use curtail_store::{Store, StoreConfig, Writer};
use curtail_types::{Get, HashSeed, Key, Now, Set, WriterId};
use curtail_workload::Random;

/// Operations of one turn.
const BATCH: u64 = 64;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'));
    let items: u64 = arguments
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(10_000_000);
    println!("{items} items, turns of {BATCH} operations and one maintain, us of CPU time");
    let runs = [run(items), run(items)];
    println!(
        "{:8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>9}",
        "phase", "p50", "p99", "p99.9", "max", ">1ms", "raw max"
    );
    for (phase, name) in ["grow", "evict", "mixed"].into_iter().enumerate() {
        let (first, second) = (&runs[0][phase], &runs[1][phase]);
        let raw = first.iter().max().max(second.iter().max());
        let mut times: Vec<u64> = first.iter().zip(second).map(|(a, b)| *a.min(b)).collect();
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1e3;
        let long = times.iter().filter(|&&ns| ns > 1_000_000).count();
        println!(
            "{name:8} {:8.1} {:8.1} {:8.1} {:8.1} {long:6} {:9.1}",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            raw.copied().unwrap_or(0) as f64 / 1e3
        );
    }
}

/// The times of all turns of the three phases.
fn run(items: u64) -> [Vec<u64>; 3] {
    let memory_mib = (items as usize * 80) >> 20;
    let config = StoreConfig {
        memory_bytes_max: memory_mib << 20,
        hash_seed: HashSeed([0x1234, 0x5678]),
        huge_pages: true,
        ..StoreConfig::default()
    };
    let Ok(store) = Store::new(config) else {
        return [const { Vec::new() }; 3];
    };
    let stopping = AtomicBool::new(false);
    thread::scope(|scope| {
        let supplier = scope.spawn(|| {
            while !stopping.load(Ordering::Relaxed) {
                if !store.supply_pages() {
                    thread::park();
                }
            }
        });
        let times = phases(&store, items, supplier.thread());
        stopping.store(true, Ordering::Relaxed);
        supplier.thread().unpark();
        times
    })
}

/// The times of all turns of the three phases.
fn phases(store: &Store, items: u64, supplier: &Thread) -> [Vec<u64>; 3] {
    let mut writer = store.writer(WriterId(0));
    let mut random = Random::new(1);
    let grow = phase(items / BATCH, |turn| {
        turn_of_sets(store, &mut writer, turn * BATCH, supplier);
    });
    let evict = phase(items / BATCH, |turn| {
        turn_of_sets(store, &mut writer, items + turn * BATCH, supplier);
    });
    let mixed = phase(items / BATCH / 2, |_| {
        for _ in 0..BATCH {
            let state = random.next();
            // The square of a uniform number is skewed to the small ones.
            let uniform = u128::from(state >> 32);
            let n = ((uniform * uniform * 2 * u128::from(items)) >> 64) as u64;
            match state % 4 {
                0 => set(store, &mut writer, n),
                _ => get_or_set(store, &mut writer, n),
            }
        }
        store.maintain(&mut writer, now(), 64);
    });
    let counters = store.counters();
    println!(
        "evictions {}, moved {}, direct reclaims {}, refused {}",
        counters.evictions, counters.moved, counters.direct_reclaims, counters.no_memory
    );
    [grow, evict, mixed]
}

fn phase(turns: u64, mut turn: impl FnMut(u64)) -> Vec<u64> {
    let mut times = Vec::with_capacity(turns as usize);
    for number in 0..turns {
        let before = ThreadCpuClock.ns();
        turn(number);
        times.push(ThreadCpuClock.ns() - before);
    }
    times
}

fn turn_of_sets(store: &Store, writer: &mut Writer, first: u64, supplier: &Thread) {
    for n in first..first + BATCH {
        set(store, writer, n);
    }
    store.maintain(writer, now(), 64);
    if store.wants_pages() {
        supplier.unpark();
    }
}

fn set(store: &Store, writer: &mut Writer, n: u64) {
    let bytes = key(n);
    if let Ok(handle) = Key::new(&bytes) {
        let hash = store.hash(&bytes);
        store.set(writer, now(), handle, hash, &Set::default(), &[n as u8; 32]);
    }
}

fn get_or_set(store: &Store, writer: &mut Writer, n: u64) {
    let bytes = key(n);
    let Ok(handle) = Key::new(&bytes) else { return };
    let hash = store.hash(&bytes);
    let get = Get::default();
    let found = store.get(writer, now(), handle, hash, &get, |view| {
        let mut value = [0; 32];
        view.copy_value(0, &mut value)
    });
    if found.is_none() {
        set(store, writer, n);
    }
}

fn now() -> Now {
    Now {
        unix_ns: 1_800_000_000_000_000_000,
        ..Now::default()
    }
}

fn key(n: u64) -> [u8; 16] {
    let mut bytes = *b"key-000000000000";
    let mut rest = n;
    for digit in bytes[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}
