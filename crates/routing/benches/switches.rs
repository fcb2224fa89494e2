//! How fast switches take rules, how long a rule takes to be in force, and how many packets they
//! forward (SW-86): `cargo bench -p curtail-routing --bench switches`, as root, prints the tables
//! of `docs/research/routing.md`. Some minutes; everything runs in network namespaces of its own.

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

use support::{BACK_ENDS, CACHES, CLIENT, IPV6, Kind, MAC, Testbed, get, key, put, rule};

/// Rules of the bulk changes.
const RULES: u64 = 10_000;
/// Changes that are made one at a time.
const SINGLE: u64 = 500;
/// Trials of the lag.
const TRIALS: u64 = 40;
/// Uncached keys that are requested before a trial of the busy lag.
const BUSY_KEYS: u64 = 30_000;
/// How long packets are sent.
const SEND: Duration = Duration::from_secs(2);

fn main() {
    println!("\n| switch | add | delete | replace 1 % | one add | one delete |");
    println!("|---|---|---|---|---|---|");
    for (name, kind) in kinds() {
        in_a_thread(move || rates(name, kind));
    }
    println!("\n| switch | datapath | add p50 | p90 | max | delete p50 | p90 | max |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, kind) in kinds() {
        in_a_thread(move || lags(name, kind));
    }
    println!("\n| switch | cached keys | uncached, all different | for back ends |");
    println!("|---|---|---|---|");
    for (name, kind) in kinds() {
        in_a_thread(move || packets(name, kind));
    }
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
    let Some(mut bed) = Testbed::new(kind, 100) else {
        return;
    };
    for (load, busy) in [("idle", 0), ("busy", BUSY_KEYS)] {
        let (mut adds, mut deletes) = (Vec::new(), Vec::new());
        for trial in 0..TRIALS {
            fill(&mut bed, trial, busy);
            let hot = rule(key(BACK_ENDS[1], trial), 0, 1);
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
        println!(
            "| {name} | {load} | {} | {} |",
            quantiles(adds),
            quantiles(deletes)
        );
    }
}

/// Requests keys that are requested once, so that the switch has many decisions cached.
fn fill(bed: &mut Testbed, trial: u64, count: u64) {
    let count = if trial == 0 { count } else { count / 20 };
    for number in 0..count {
        let key = key(BACK_ENDS[2], (trial << 32) + number);
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

/// Packets a second that reach a machine, with one sender.
fn packets(name: &str, kind: Kind) {
    let Some(mut bed) = Testbed::new(kind, 20_000) else {
        return;
    };
    bed.switch().install(&numbered(0..RULES)).unwrap();
    let cached = forwarded(&mut bed, |n| {
        let key = key(BACK_ENDS[0], n % RULES);
        (TierAddress::get(key), get(key))
    });
    let uncached = forwarded(&mut bed, |n| {
        let key = key(BACK_ENDS[1], n);
        (TierAddress::get(key), get(key))
    });
    let past = forwarded(&mut bed, |n| {
        let key = key(BACK_ENDS[2], n);
        (TierAddress::back_end(key), put(key))
    });
    let all = [cached, uncached, past].map(|rate| format!("{:.0}", rate / 1e3));
    println!("| {name} | {} |", all.join(" | "));
}

/// Sends as fast as one thread can while another takes what arrives.
fn forwarded(
    bed: &mut Testbed,
    datagram: impl Fn(u64) -> (TierAddress, Vec<u8>) + Send + Sync,
) -> f64 {
    // Made before, so that the sender does nothing but send.
    let all: Vec<_> = (0..200_000).map(&datagram).collect();
    while bed.receive().is_some() {}
    let (client, others) = bed.machines.split_first().unwrap();
    let begun = Instant::now();
    let received = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut round = 0;
            while begun.elapsed() < SEND {
                for (address, bytes) in all.iter().skip(round * 50 % all.len()).take(50) {
                    client.send(*address, bytes);
                }
                round += 1;
            }
        });
        let mut received = 0_u64;
        while begun.elapsed() < SEND {
            let some: u64 = others
                .iter()
                .map(|one| u64::from(one.receive().is_some()))
                .sum();
            received += some;
            if some == 0 {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
        received
    });
    received as f64 / SEND.as_secs_f64()
}
