//! How many slots should share a stripe of locks (CK-12): repeated reads, rates and memory.
//!
//! An index grows from 2^16 slots to hold all items, inserted by two threads. Then one thread reads
//! random items for a second while another replaces random references as fast as it can, which is
//! the most that one writer can disturb a reader.
//!
//! ```sh
//! cargo bench -p curtail-table --bench stripes -- [ITEMS] [MILLISECONDS]
//! ```

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use curtail_table::{Index, IndexConfig, Reference, Resolver};
use curtail_types::KeyHash;

/// The hash of the item with this reference: nothing lies anywhere.
struct Hashes;

impl Resolver for Hashes {
    fn hash_of(&self, reference: Reference) -> KeyHash {
        mix(reference.get() & NUMBER)
    }

    fn prefetch(&self, _reference: Reference) {}
}

/// A reference is the number of an item, and one bit that a replacement turns.
const NUMBER: u64 = (1 << 32) - 1;
const TURNED: u64 = 1 << 32;

fn mix(number: u64) -> KeyHash {
    KeyHash(curtail_workload::mix(
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    ))
}

fn main() {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<u64>().ok());
    let items = numbers.next().unwrap_or(1_000_000);
    let time = Duration::from_millis(numbers.next().unwrap_or(1000));
    println!("{items} items, {time:?} of reads beside a writer, two threads");
    println!(
        "slots a stripe | stripes KiB | B/item | inserts M/s | reads M/s | writes M/s | repeated"
    );
    for stripe_slots in [16_384, 4096, 1024, 512, 256, 128, 64, 32, 16, 8] {
        measure(stripe_slots, items, time);
    }
}

fn measure(stripe_slots: usize, items: u64, time: Duration) {
    let config = IndexConfig {
        slots_initial: 1 << 16,
        slots_max: 4 * items as usize,
        fill_target: 0.905,
        stripe_slots,
        ..IndexConfig::default()
    };
    let Ok(index) = Index::new(config, Hashes) else {
        return println!("no memory");
    };
    let start = Instant::now();
    thread::scope(|scope| {
        for odd in 0..2 {
            let index = &index;
            scope.spawn(move || {
                (1..=items)
                    .filter(|it| it % 2 == odd)
                    .for_each(|it| insert(index, it))
            });
        }
    });
    let inserts = items as f64 / start.elapsed().as_secs_f64() / 1e6;
    let before = index.counters().read_retries;
    let (reads, writes) = beside(&index, items, time);
    let repeats = index.counters().read_retries - before;
    let rate = |count: u64| count as f64 / time.as_secs_f64() / 1e6;
    let bytes = index.memory_bytes() - index.slots() * 8;
    println!(
        "{stripe_slots:14} | {:11} | {:6.2} | {inserts:11.2} | {:9.2} | {:10.2} | {:.4} %",
        bytes >> 10,
        index.memory_bytes() as f64 / items as f64,
        rate(reads),
        rate(writes),
        repeats as f64 / reads as f64 * 100.0,
    );
}

fn insert(index: &Index<Hashes>, number: u64) {
    let (Ok(mut locked), Some(reference)) =
        (index.lock_with_room(mix(number)), Reference::new(number))
    else {
        panic!("an index that may grow refused {number}");
    };
    assert!(locked.insert(reference).is_ok());
}

/// Reads and writes in `time`, by a thread each.
fn beside(index: &Index<Hashes>, items: u64, time: Duration) -> (u64, u64) {
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    let reads = thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !stop.load(Relaxed) {
                turn += 1;
                replace(index, 1 + mix(turn).0 % items);
            }
            writes.store(turn, Relaxed);
        });
        let (start, mut turn) = (Instant::now(), 0_u64);
        while turn % 1024 != 0 || start.elapsed() < time {
            turn += 1;
            let number = 1 + mix(!turn).0 % items;
            let found = index.read(mix(number), |it| {
                (it.get() & NUMBER == number).then_some(())
            });
            assert!(found.is_some(), "{number} is missed");
        }
        stop.store(true, Relaxed);
        turn
    });
    (reads, writes.load(Relaxed))
}

/// Puts the other one of an item's two references in place.
fn replace(index: &Index<Hashes>, number: u64) {
    let mut locked = index.lock(mix(number));
    let Some(position) = locked.find(|it| it.get() & NUMBER == number) else {
        panic!("{number} is missed");
    };
    if let Some(turned) = Reference::new(locked.reference(position).get() ^ TURNED) {
        locked.replace(position, turned);
    }
}
