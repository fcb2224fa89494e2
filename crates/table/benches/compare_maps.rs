//! The index beside other concurrent maps: fill, lookups at 95 % load, memory.
//!
//! `cargo bench -p curtail-table --bench compare_maps --
//!  [--slots N] [--rounds N] [--lookups N] [--only NAME]`
//!
//! 8 B keys and values, which the index has in an array beside it, the same hash function for all,
//! tables made for the number of items in advance, thread t on core t. Each round fills a fresh
//! table of every kind and looks up in it.

mod measure;

use std::{hint::black_box, sync::Mutex};

use curtail_table::IndexConfig;
use measure::{
    BATCH, Dice, Indexed, Report, SeededHash, key, number, option, rate, resident_bytes, timed,
};

const COLUMNS: [&str; 15] = [
    "fill 1",
    "fill 2",
    "0-75 %",
    "75-95 %",
    "fill batched",
    "hit 1",
    "hit 2",
    "miss 1",
    "miss 2",
    "batch hit 1",
    "batch hit 2",
    "batch miss 2",
    "mixed 50/50",
    "mixed 10/90",
    "B/item",
];

/// What every table is asked to do.
trait Peer: Sync {
    fn new(items: usize, slots: usize, hash: SeededHash) -> Self;
    fn insert(&self, key: u64, value: u64);
    fn get(&self, key: u64) -> Option<u64>;
    /// Inserts a batch, if the table has a way to; `false` if not.
    fn insert_batch(&self, _pairs: &[(u64, u64)]) -> bool {
        false
    }
    /// Sums the values of a batch, so that nothing is optimised away.
    fn get_batch(&self, keys: &[u64; BATCH]) -> u64 {
        keys.iter()
            .filter_map(|&key| self.get(key))
            .fold(0, u64::wrapping_add)
    }
}

impl Peer for Indexed {
    fn new(items: usize, slots: usize, hash: SeededHash) -> Self {
        let config = IndexConfig {
            slots_initial: slots,
            slots_max: slots,
            ..IndexConfig::default()
        };
        Self::new(items, config, hash)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        assert!(Indexed::insert(self, key, value));
    }
    #[inline]
    fn insert_batch(&self, pairs: &[(u64, u64)]) -> bool {
        assert!(Indexed::insert_batch(self, pairs));
        true
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        Indexed::get(self, key)
    }
    #[inline]
    fn get_batch(&self, keys: &[u64; BATCH]) -> u64 {
        Indexed::get_batch(self, keys)
    }
}

type Shard = hashbrown::HashTable<(u64, u64)>;

/// 256 hashbrown tables, each behind a mutex.
struct Sharded {
    shards: Vec<Mutex<Shard>>,
    hash: SeededHash,
}

impl Sharded {
    #[inline]
    fn shard(&self, hash: u64) -> std::sync::MutexGuard<'_, Shard> {
        // Bits that neither hashbrown's index (low) nor its tag (top seven) uses.
        let shard = &self.shards[(hash >> 40 & 255) as usize];
        shard.lock().unwrap_or_else(|_| panic!("a thread died"))
    }
}

impl Peer for Sharded {
    fn new(items: usize, _slots: usize, hash: SeededHash) -> Self {
        let each = items / 256 + items / 2048;
        Self {
            shards: (0..256)
                .map(|_| Mutex::new(Shard::with_capacity(each)))
                .collect(),
            hash,
        }
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        let hash = self.hash.of(key).0;
        let mut shard = self.shard(hash);
        let entry = shard.entry(hash, |it| it.0 == key, |it| self.hash.of(it.0).0);
        entry.or_insert((key, value));
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        let hash = self.hash.of(key).0;
        self.shard(hash).find(hash, |it| it.0 == key).map(|it| it.1)
    }
}

impl Peer for papaya::HashMap<u64, u64, SeededHash> {
    fn new(items: usize, _slots: usize, hash: SeededHash) -> Self {
        Self::with_capacity_and_hasher(items, hash)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.pin().insert(key, value);
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.pin().get(&key).copied()
    }
}

impl Peer for scc::HashMap<u64, u64, SeededHash> {
    fn new(items: usize, _slots: usize, hash: SeededHash) -> Self {
        Self::with_capacity_and_hasher(items, hash)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        let _ = self.insert_sync(key, value);
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.read_sync(&key, |_, value| *value)
    }
}

impl Peer for dashmap::DashMap<u64, u64, SeededHash> {
    fn new(items: usize, _slots: usize, hash: SeededHash) -> Self {
        Self::with_capacity_and_hasher(items, hash)
    }
    #[inline]
    fn insert(&self, key: u64, value: u64) {
        dashmap::DashMap::insert(self, key, value);
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        dashmap::DashMap::get(self, &key).map(|it| *it.value())
    }
}

/// The sizes of a run.
#[derive(Clone, Copy)]
struct Plan {
    slots: usize,
    items: u64,
    lookups: u64,
}

fn run<P: Peer>(name: &str, plan: Plan, report: &mut Report) {
    if option("--only").is_some_and(|only| !only.split(',').any(|it| it == name)) {
        return;
    }
    let before = resident_bytes();
    let mut peer = None;
    for threads in [1, 2] {
        drop(peer.take());
        let fresh = P::new(plan.items as usize, plan.slots, SeededHash::FIXED);
        fill(name, &fresh, plan, threads, report);
        if threads == 1 {
            // Of the first table: what it leaves behind when dropped is no part of the second.
            let bytes = resident_bytes().saturating_sub(before) as f64;
            report.add(name, "B/item", bytes / plan.items as f64);
        }
        peer = Some(fresh);
    }
    let Some(peer) = peer else { return };
    fill_batched::<P>(name, plan, report);
    for threads in [1, 2] {
        let column = |what: &str| format!("{what} {threads}");
        report.add(name, &column("hit"), lookups(&peer, plan, threads, 0));
        report.add(
            name,
            &column("miss"),
            lookups(&peer, plan, threads, plan.items),
        );
        report.add(name, &column("batch hit"), batches(&peer, plan, threads, 0));
        if threads == 2 {
            report.add(
                name,
                &column("batch miss"),
                batches(&peer, plan, threads, plan.items),
            );
        }
    }
}

fn fill<P: Peer>(name: &str, peer: &P, plan: Plan, threads: usize, report: &mut Report) {
    let step = |from: u64, to: u64| {
        timed(threads, |thread| {
            for index in (from..to).skip(thread).step_by(threads) {
                peer.insert(key(index), index);
            }
        })
    };
    let middle = plan.items * 75 / 95;
    let low = step(0, middle);
    let high = step(middle, plan.items);
    report.add(
        name,
        &format!("fill {threads}"),
        rate(plan.items, low + high),
    );
    if threads == 2 {
        report.add(name, "0-75 %", rate(middle, low));
        report.add(name, "75-95 %", rate(plan.items - middle, high));
    }
}

/// The whole fill by 2 threads in batches, where there is such a thing.
fn fill_batched<P: Peer>(name: &str, plan: Plan, report: &mut Report) {
    let peer = P::new(plan.items as usize, plan.slots, SeededHash::FIXED);
    if !peer.insert_batch(&[]) {
        return;
    }
    let time = timed(2, |thread| {
        let batches = plan.items / BATCH as u64;
        for batch in (0..batches).skip(thread).step_by(2) {
            let pairs: [(u64, u64); BATCH] = std::array::from_fn(|i| {
                let index = batch * BATCH as u64 + i as u64;
                (key(index), index)
            });
            peer.insert_batch(&pairs);
        }
    });
    report.add(
        name,
        "fill batched",
        rate(plan.items / BATCH as u64 * BATCH as u64, time),
    );
}

fn lookups<P: Peer>(peer: &P, plan: Plan, threads: usize, offset: u64) -> f64 {
    let each = plan.lookups / threads as u64;
    let time = timed(threads, |thread| {
        let mut dice = Dice(thread as u64 + 7);
        let mut found = 0_u64;
        for _ in 0..each {
            let index = dice.below(plan.items);
            let value = peer.get(key(index + offset));
            found += u64::from(value == Some(index));
        }
        assert_eq!(
            found,
            if offset == 0 { each } else { 0 },
            "every hit right, no false one"
        );
    });
    rate(each * threads as u64, time)
}

fn batches<P: Peer>(peer: &P, plan: Plan, threads: usize, offset: u64) -> f64 {
    let each = 2 * plan.lookups / threads as u64 / BATCH as u64;
    let time = timed(threads, |thread| {
        let mut dice = Dice(thread as u64 + 9);
        let mut sum = 0_u64;
        let mut expected = 0_u64;
        for _ in 0..each {
            let keys = std::array::from_fn(|_| {
                let index = dice.below(plan.items);
                expected = expected.wrapping_add(index);
                key(index + offset)
            });
            sum = sum.wrapping_add(peer.get_batch(&keys));
        }
        assert_eq!(black_box(sum), if offset == 0 { expected } else { 0 });
    });
    rate(each * BATCH as u64 * threads as u64, time)
}

/// Inserts and lookups of what is there, while the table goes from 75 to 85 % (half inserts) and
/// to 95 % (a tenth inserts); two threads.
fn mixed<P: Peer>(name: &str, plan: Plan, report: &mut Report) {
    if option("--only").is_some_and(|only| !only.split(',').any(|it| it == name)) {
        return;
    }
    let peer = P::new(plan.items as usize, plan.slots, SeededHash::FIXED);
    let at = |percent: u64| plan.slots as u64 * percent / 100;
    timed(2, |thread| {
        for index in (0..at(75)).skip(thread).step_by(2) {
            peer.insert(key(index), index);
        }
    });
    for (column, from, to, lookups) in [
        ("mixed 50/50", at(75), at(85), 1),
        ("mixed 10/90", at(85), at(95), 9),
    ] {
        let time = timed(2, |thread| {
            let mut dice = Dice(thread as u64 + 3);
            for index in (from..to).skip(thread).step_by(2) {
                peer.insert(key(index), index);
                for _ in 0..lookups {
                    let there = dice.below(at(75));
                    assert_eq!(peer.get(key(there)), Some(there));
                }
            }
        });
        report.add(name, column, rate((to - from) * (1 + lookups), time));
    }
}

fn main() {
    let slots = number("--slots", 1 << 25) as usize;
    let plan = Plan {
        slots,
        items: slots as u64 * 95 / 100,
        lookups: number("--lookups", 10_000_000),
    };
    let mut report = Report::new(&COLUMNS);
    for round in 0..number("--rounds", 3) {
        eprintln!("round {round}");
        run::<Indexed>("curtail", plan, &mut report);
        run::<Sharded>("256 x Mutex<hashbrown>", plan, &mut report);
        run::<papaya::HashMap<u64, u64, SeededHash>>("papaya", plan, &mut report);
        run::<scc::HashMap<u64, u64, SeededHash>>("scc", plan, &mut report);
        run::<dashmap::DashMap<u64, u64, SeededHash>>("dashmap", plan, &mut report);
        if option("--mixed").is_some() {
            mixed::<Indexed>("curtail", plan, &mut report);
            mixed::<Sharded>("256 x Mutex<hashbrown>", plan, &mut report);
            mixed::<papaya::HashMap<u64, u64, SeededHash>>("papaya", plan, &mut report);
            mixed::<scc::HashMap<u64, u64, SeededHash>>("scc", plan, &mut report);
            mixed::<dashmap::DashMap<u64, u64, SeededHash>>("dashmap", plan, &mut report);
        }
    }
    report.print(&format!(
        "M operations/s; {slots} slots, {} items",
        plan.items
    ));
    report.print_ratios("curtail");
}
