//! What the layout of a bucket decides: associativity, the place of values and their size, fill.
//!
//! `cargo bench -p curtail-table --bench shapes -- [--slots N] [--rounds N] [--lookups N]
//! [--threads N] [--values 1]`
//!
//! One table of figures per question. "ns" is the time of one lookup of one thread; "misses" is
//! that time in units of the measured latency of memory, so a number below 1 means that the
//! processor overlapped lookups; "lines" is how many cache lines a hit reads.

mod measure;

use curtail_table::{
    Apart4, Apart8, Apart8Tagged, Apart16, Beside4, Beside8Tagged, CuckooMap, MapConfig, Plain,
    Shape,
};
use measure::{Dice, Report, key, memory_latency_ns, number, option, rate, timed};

const COLUMNS: [&str; 11] = [
    "fill 0-50 %",
    "50-75 %",
    "75-95 %",
    "hit at 50 %",
    "hit at 95 %",
    "miss at 95 %",
    "batch hit at 95 %",
    "ns",
    "misses",
    "lines",
    "B/item",
];

/// A value that can be made from a number, and checked.
trait Value: Plain + Send + Sync {
    fn from_number(number: u64) -> Self;
}

impl<const N: usize> Value for [u64; N] {
    fn from_number(number: u64) -> Self {
        [number; N]
    }
}

#[derive(Clone, Copy)]
struct Plan {
    slots: usize,
    lookups: u64,
    threads: usize,
    huge_pages: bool,
    latency_ns: f64,
}

/// Cache lines that a hit reads: every line of keys of both candidates, in parallel; the tags and
/// the value's line where they are apart. A tag hit reads one line of pairs or keys.
fn lines<V: Plain, S: Shape>() -> f64 {
    let value_lines = (V::WORDS as f64 / 8.0).ceil();
    let pair_words = 1 + V::WORDS;
    match (S::TAGS, S::VALUES_APART) {
        (true, false) => 2.0 + (pair_words as f64 / 8.0).ceil(),
        (true, true) => 3.0 + value_lines,
        (false, true) if S::SLOTS * pair_words <= 8 => 2.0,
        (false, true) => 2.0 * (S::SLOTS as f64 / 8.0).ceil() + value_lines,
        // Keys lie one pair apart.
        (false, false) if pair_words >= 8 => 2.0 * S::SLOTS as f64 + value_lines - 1.0,
        (false, false) => 2.0 * (S::SLOTS * pair_words) as f64 / 8.0,
    }
}

fn run<V: Value, S: Shape + Sync>(name: &str, plan: Plan, report: &mut Report) {
    if option("--only").is_some_and(|only| !only.split(',').any(|it| it == name)) {
        return;
    }
    let config = MapConfig {
        slots: plan.slots,
        huge_pages: plan.huge_pages,
        ..MapConfig::default()
    };
    let map: CuckooMap<u64, V, S> =
        CuckooMap::new(config).unwrap_or_else(|error| panic!("{error}"));
    let at = |percent: u64| plan.slots as u64 * percent / 100;
    let fill = |from: u64, to: u64| {
        let time = timed(plan.threads, |thread| {
            for index in (from..to).skip(thread).step_by(plan.threads) {
                assert!(map.insert(key(index), V::from_number(index)).is_ok());
            }
        });
        rate(to - from, time)
    };
    let look_up = |items: u64, offset: u64| {
        let each = plan.lookups / plan.threads as u64;
        let time = timed(plan.threads, |thread| {
            let mut dice = Dice(thread as u64 + 5);
            let mut found = 0;
            for _ in 0..each {
                let index = dice.below(items);
                let value = map.get(&key(index + offset));
                found += u64::from(value.is_some_and(|it| it.word(0) == index));
            }
            assert_eq!(found, if offset == 0 { each } else { 0 });
        });
        rate(each * plan.threads as u64, time)
    };
    report.add(name, COLUMNS[0], fill(0, at(50)));
    report.add(name, COLUMNS[3], look_up(at(50), 0));
    report.add(name, COLUMNS[1], fill(at(50), at(75)));
    report.add(name, COLUMNS[2], fill(at(75), at(95)));
    let hit = look_up(at(95), 0);
    report.add(name, COLUMNS[4], hit);
    report.add(name, COLUMNS[5], look_up(at(95), at(95)));
    report.add(name, COLUMNS[6], batches(&map, plan, at(95)));
    let ns = 1000.0 * plan.threads as f64 / hit;
    report.add(name, "ns", ns);
    report.add(name, "misses", ns / plan.latency_ns);
    report.add(name, "lines", lines::<V, S>());
    report.add(name, "B/item", map.memory_bytes() as f64 / at(95) as f64);
}

fn batches<V: Value, S: Shape + Sync>(map: &CuckooMap<u64, V, S>, plan: Plan, items: u64) -> f64 {
    let each = plan.lookups / plan.threads as u64 / 32;
    let time = timed(plan.threads, |thread| {
        let mut dice = Dice(thread as u64 + 6);
        let mut values = [None; 32];
        for _ in 0..each {
            let keys: [u64; 32] = std::array::from_fn(|_| key(dice.below(items)));
            map.get_many(&keys, &mut values);
            assert!(values.iter().all(Option::is_some));
        }
    });
    rate(each * 32 * plan.threads as u64, time)
}

fn shapes(plan: Plan, rounds: u64) {
    let mut report = Report::new(&COLUMNS);
    for round in 0..rounds {
        eprintln!("shapes, round {round}");
        run::<[u64; 1], Beside4>("beside 4", plan, &mut report);
        run::<[u64; 1], Apart4>("apart 4", plan, &mut report);
        run::<[u64; 1], Apart8>("apart 8 (paper)", plan, &mut report);
        run::<[u64; 1], Apart16>("apart 16", plan, &mut report);
        run::<[u64; 1], Beside8Tagged>("beside 8, tags", plan, &mut report);
        run::<[u64; 1], Apart8Tagged>("apart 8, tags", plan, &mut report);
        let small = Plan {
            huge_pages: false,
            ..plan
        };
        run::<[u64; 1], Beside4>("beside 4, 4 KiB pages", small, &mut report);
        run::<[u64; 1], Apart8>("apart 8, 4 KiB pages", small, &mut report);
    }
    report.print(&format!(
        "8 B keys and values, {} slots, {} threads",
        plan.slots, plan.threads
    ));
}

fn values(plan: Plan, rounds: u64) {
    let mut report = Report::new(&COLUMNS);
    for round in 0..rounds {
        eprintln!("value sizes, round {round}");
        run::<[u64; 1], Beside4>("beside 4, 8 B", plan, &mut report);
        run::<[u64; 8], Beside4>("beside 4, 64 B", plan, &mut report);
        run::<[u64; 32], Beside4>("beside 4, 256 B", plan, &mut report);
        run::<[u64; 128], Beside4>("beside 4, 1024 B", plan, &mut report);
        run::<[u64; 1], Apart8>("apart 8, 8 B", plan, &mut report);
        run::<[u64; 8], Apart8>("apart 8, 64 B", plan, &mut report);
        run::<[u64; 32], Apart8>("apart 8, 256 B", plan, &mut report);
        run::<[u64; 128], Apart8>("apart 8, 1024 B", plan, &mut report);
    }
    report.print(&format!(
        "Value sizes, {} slots, {} threads",
        plan.slots, plan.threads
    ));
}

fn main() {
    let latency_ns = memory_latency_ns(256 << 20);
    println!("latency of memory: {latency_ns:.0} ns");
    let plan = Plan {
        slots: number("--slots", 1 << 23) as usize,
        lookups: number("--lookups", 4_000_000),
        threads: number("--threads", 2) as usize,
        huge_pages: true,
        latency_ns,
    };
    let rounds = number("--rounds", 3);
    if option("--values").is_none() {
        shapes(plan, rounds);
    } else {
        values(
            Plan {
                slots: plan.slots.min(1 << 21),
                ..plan
            },
            rounds,
        );
    }
}
