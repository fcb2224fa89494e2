//! The paper's factor analysis: what each idea adds to a table that begins as MemC3's.
//!
//! `cargo bench -p curtail-table --bench factor_analysis -- [--slots N] [--threads N] [--rounds N]`
//!
//! The chain of section 3.6.1 (CK-43, CK-44): one lock for the whole insert and a depth-first
//! search; lock only to validate and execute; search breadth-first; prefetch in the search; lock
//! stripes. Each variant fills an empty index to 95 %, with 100, 50 and 10 %
//! inserts; the rate is shown for the whole fill and for intervals of load.

mod measure;

use std::time::Duration;

use curtail_table::{
    Global, GlobalMutex, GlobalSpin, IndexConfig, Locks, NoLock, Search, SpinWord, VersionedSpin,
};
use measure::{Dice, Indexed, Report, SeededHash, key, number, option, rate, timed, timed_here};

/// Ends of the intervals of load, in percent.
const LOADS: [u64; 5] = [0, 50, 75, 90, 95];
const COLUMNS: [&str; 5] = ["whole fill", "0-50 %", "50-75 %", "75-90 %", "90-95 %"];

/// One way to make the table.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    search: Search,
    prefetch: bool,
}

fn make<C: Locks>(variant: Variant) -> Indexed<C> {
    let slots = number("--slots", 1 << 22) as usize;
    let config = IndexConfig {
        slots_initial: slots,
        slots_max: slots,
        search: variant.search,
        prefetch: variant.prefetch,
        ..IndexConfig::default()
    };
    Indexed::new(slots, config, SeededHash::FIXED)
}

/// Inserts this thread's share of `from..to`; after each insert, so many lookups of what is there.
fn work<C: Locks>(map: &Indexed<C>, range: (u64, u64), lane: (usize, usize), lookups: u64) {
    let mut dice = Dice(lane.0 as u64 + 11);
    for index in (range.0..range.1).skip(lane.0).step_by(lane.1) {
        assert!(map.insert(key(index), index), "below 95 % there is room");
        for _ in 0..lookups {
            let there = if range.0 > 0 {
                dice.below(range.0)
            } else {
                let own = (index - lane.0 as u64) / lane.1 as u64 + 1;
                lane.0 as u64 + dice.below(own) * lane.1 as u64
            };
            assert_eq!(map.get(key(there)), Some(there));
        }
    }
}

fn measure_with(
    variant: Variant,
    slots: usize,
    lookups: u64,
    report: &mut Report,
    mut run: impl FnMut((u64, u64)) -> Duration,
) {
    let at = |percent: u64| slots as u64 * percent / 100;
    let mut whole = Duration::ZERO;
    for (loads, column) in LOADS.windows(2).zip(&COLUMNS[1..]) {
        let (from, to) = (at(loads[0]), at(loads[1]));
        let time = run((from, to));
        whole += time;
        report.add(
            variant.name,
            column,
            rate((to - from) * (1 + lookups), time),
        );
    }
    report.add(
        variant.name,
        COLUMNS[0],
        rate(at(95) * (1 + lookups), whole),
    );
}

fn shared<C: Locks + Sync>(variant: Variant, threads: usize, lookups: u64, report: &mut Report) {
    let map = make::<C>(variant);
    measure_with(variant, map.index().slots(), lookups, report, |range| {
        timed(threads, |thread| {
            work(&map, range, (thread, threads), lookups)
        })
    });
    let counters = map.index().counters();
    if option("--counters").is_some() {
        println!("{}: {counters:?}", variant.name);
    }
}

fn main() {
    let threads = number("--threads", 2) as usize;
    for (share, lookups) in [("100 %", 0), ("50 %", 1), ("10 %", 9)] {
        if option("--inserts").is_some_and(|only| !share.starts_with(&only)) {
            continue;
        }
        let mut report = Report::new(&COLUMNS);
        for round in 0..number("--rounds", 3) {
            eprintln!("{share} inserts, round {round}");
            let with = |name, search, prefetch| Variant {
                name,
                search,
                prefetch,
            };
            let depth = |name| with(name, Search::Depth, false);
            shared::<Global<SpinWord, true>>(depth("cuckoo"), threads, lookups, &mut report);
            shared::<GlobalSpin>(depth("+ lock later"), threads, lookups, &mut report);
            let breadth = with("+ breadth first", Search::Breadth, false);
            shared::<GlobalSpin>(breadth, threads, lookups, &mut report);
            let prefetch = with("+ prefetch", Search::Breadth, true);
            shared::<GlobalSpin>(prefetch, threads, lookups, &mut report);
            let fine = with("+ fine-grained", Search::Breadth, true);
            shared::<VersionedSpin>(fine, threads, lookups, &mut report);
            let mutex = with("(prefetch, one OS mutex)", Search::Breadth, true);
            shared::<GlobalMutex>(mutex, threads, lookups, &mut report);
            if threads == 1 {
                for variant in [
                    depth("(no lock, depth first)"),
                    with("(no lock, breadth first)", Search::Breadth, false),
                    with("(no lock, + prefetch)", Search::Breadth, true),
                ] {
                    let map = make::<NoLock>(variant);
                    measure_with(
                        variant,
                        map.index().slots(),
                        lookups,
                        &mut report,
                        |range| timed_here(|| work(&map, range, (0, 1), lookups)),
                    );
                }
            }
        }
        report.print(&format!(
            "M operations/s, {threads} threads, {share} inserts"
        ));
        report.print_ratios("+ fine-grained");
    }
}
