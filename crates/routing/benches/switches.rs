//! How fast switches take rules, and how long a rule takes to be in force (SW-86): `cargo bench
//! -p curtail-routing --bench switches`, as root, prints the tables of
//! `docs/research/routing.md`. Some minutes; everything runs in network namespaces of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what cannot be set up ends the bench"
)]

#[path = "../../runtime/tests/nic/namespace.rs"]
mod namespace;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::thread;
use std::time::{Duration, Instant};

use curtail_codec::tiered::TierAddress;
use curtail_types::Rule;

use support::{BACK_ENDS, CACHES, CLIENT, IPV6, Kind, MAC, Testbed, get, key, rule};

/// Rules of the bulk changes.
const RULES: u64 = 10_000;
/// Changes that are made one at a time.
const SINGLE: u64 = 500;
/// Trials of the lag.
const TRIALS: u64 = 40;
/// Uncached keys that are requested before a trial of the busy lag.
const BUSY_KEYS: u64 = 30_000;

fn main() {
    println!("\n| switch | add | delete | in a replacement of 1 % | one add | one delete |");
    println!("|---|---|---|---|---|---|");
    for (name, kind) in kinds() {
        in_a_thread(move || rates(name, kind));
    }
    println!("\n| switch | rules | cached flows | add p50 | p90 | max | delete p50 | p90 | max |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, kind) in kinds() {
        in_a_thread(move || lags(name, kind));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("\nLoad averages at the end: {load}");
}

fn kinds() -> [(&'static str, Kind); 5] {
    [
        ("user space", Kind::User),
        ("XDP, `ipv6`", Kind::Xdp(IPV6)),
        ("XDP, `mac`", Kind::Xdp(MAC)),
        ("Open vSwitch, `ipv6`", Kind::OpenVswitch(IPV6)),
        ("Open vSwitch, `mac`", Kind::OpenVswitch(MAC)),
    ]
}

/// Namespaces are a thread's.
fn in_a_thread(does: impl FnOnce() + Send + 'static) {
    let ended = thread::spawn(does).join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn numbered(numbers: std::ops::Range<u64>) -> Vec<Rule> {
    numbers.map(|n| rule(key(BACK_ENDS[0], n), 0, 1)).collect()
}

/// Changes of rules a second.
fn rates(name: &str, kind: Kind) {
    let Some(mut bed) = Testbed::new(kind, 2 * RULES as usize) else {
        return;
    };
    let rules = numbered(0..RULES);
    let keys: Vec<_> = rules.iter().map(|rule| rule.key).collect();
    let add = per_second(RULES, || bed.switch().install(&rules).unwrap());
    let shifted = numbered(RULES / 100..RULES + RULES / 100);
    let replace = per_second(2 * RULES / 100, || {
        let done = bed.switch().replace_all(&shifted).unwrap();
        assert_eq!(done.installed as u64, RULES / 100);
    });
    bed.switch().replace_all(&rules).unwrap();
    let single = numbered(2 * RULES..2 * RULES + SINGLE);
    let one_add = per_second(SINGLE, || {
        for rule in &single {
            bed.switch().install(&[*rule]).unwrap();
        }
    });
    let one_delete = per_second(SINGLE, || {
        for rule in &single {
            bed.switch().delete(&[rule.key]).unwrap();
        }
    });
    let delete = per_second(RULES, || bed.switch().delete(&keys).unwrap());
    let rates = [add, delete, replace, one_add, one_delete].map(|rate| format!("{rate:.0}"));
    println!("| {name} | {} |", rates.join(" | "));
}

fn per_second(count: u64, does: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    does();
    count as f64 / begun.elapsed().as_secs_f64()
}

/// From the call to the first packet that goes the new way.
fn lags(name: &str, kind: Kind) {
    let Some(mut bed) = Testbed::new(kind, 2 * RULES as usize) else {
        return;
    };
    for busy in [0, BUSY_KEYS] {
        let rules = numbered(0..RULES.min(busy));
        bed.switch().install(&rules).unwrap();
        let (mut adds, mut deletes) = (Vec::new(), Vec::new());
        for trial in 0..TRIALS {
            fill(&mut bed, trial, busy);
            let hot = rule(key(BACK_ENDS[1], (1 << 50) + trial), 0, 1);
            bed.expect(&get(hot.key), BACK_ENDS[1]);
            let begun = Instant::now();
            bed.switch().install(&[hot]).unwrap();
            until(&mut bed, &hot, CACHES[0]);
            adds.push(begun.elapsed());
            let begun = Instant::now();
            bed.switch().delete(&[hot.key]).unwrap();
            until(&mut bed, &hot, BACK_ENDS[1]);
            deletes.push(begun.elapsed());
        }
        let daemons = bed.daemons.as_ref();
        let flows = daemons.map_or("-".to_string(), |d| d.cached_flows().unwrap().to_string());
        let (adds, deletes) = (quantiles(adds), quantiles(deletes));
        println!(
            "| {name} | {} | {flows} | {adds} | {deletes} |",
            rules.len()
        );
    }
}

/// Requests keys that are requested once, so that the switch has many decisions cached.
fn fill(bed: &mut Testbed, trial: u64, count: u64) {
    let count = if trial == 0 { count } else { count / 20 };
    for number in 0..count {
        // Of the back end that has rules, from which they have to be told apart.
        let key = key(BACK_ENDS[0], (trial + 1) << 32 | number);
        let client = &bed.machines[CLIENT];
        client.send(TierAddress::get(key), &get(key));
        if number % 32 == 31 {
            thread::sleep(Duration::from_micros(500));
            while bed.receive().is_some() {}
        }
    }
}

fn until(bed: &mut Testbed, hot: &Rule, expected: usize) {
    let asked = get(hot.key);
    loop {
        let received = bed.send(CLIENT, &asked, Duration::from_millis(20));
        if received.is_some_and(|(at, _)| at == expected) {
            return;
        }
    }
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let of = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    format!("{:.2} | {:.2} | {:.2}", of(0.5), of(0.9), of(1.0))
}
