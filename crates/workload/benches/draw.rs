//! What drawing costs: nanoseconds a draw for the parts and for whole requests.
//!
//! ```text
//! cargo bench -p curtail-workload --bench draw [-- FILTER]
//! valgrind --tool=callgrind <the bench's binary> --once 220000 'request zipf:0.99'
//! ```
//!
//! The best of five rounds counts, since other work on the machine only ever adds. With `--once N`
//! exactly one case runs, N draws and no clock, for counting instructions (perf stat does as well);
//! run it with two N and take the difference.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says so and stops"
)]

use std::{env, hint::black_box, time::Instant};

use curtail_workload::{
    Phases, Poisson, Popularity, Random, Ranks, Scramble, Sizes, Stream, Workload,
};

/// Something that can be drawn again and again.
type Draw = Box<dyn FnMut() -> u64>;

fn main() {
    let words: Vec<String> = env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    if let [once, count, name] = words.as_slice()
        && once == "--once"
    {
        let count: u64 = count.parse().expect("a number of draws");
        let (_, make) = cases()
            .into_iter()
            .find(|(case, _)| case == name)
            .expect("a case");
        return repeat(&mut make(), count);
    }
    for (name, make) in cases() {
        if words.iter().all(|word| name.contains(word.as_str())) {
            println!("{name:<48} {:>7.2} ns", measure(&mut make()));
        }
    }
}

/// Every case builds its tables only when it is run.
fn cases() -> Vec<(String, Box<dyn FnOnce() -> Draw>)> {
    let mut cases: Vec<(String, Box<dyn FnOnce() -> Draw>)> = Vec::new();
    let mut add = |name: String, make: Box<dyn FnOnce() -> Draw>| cases.push((name, make));
    add("word".into(), Box::new(|| draw(|random| random.next())));
    add(
        "exponential".into(),
        Box::new(|| draw(|random| random.exponential(1e3) as u64)),
    );
    for count in [1_600_000, 10_000_000_000] {
        add(
            format!("rank uniform, {count} keys"),
            Box::new(move || {
                let ranks = Ranks::new(count, Popularity::Uniform);
                draw(move |random| ranks.rank(random))
            }),
        );
        for exponent in [0.5, 0.99, 1.0, 1.25, 2.7] {
            add(
                format!("rank zipf {exponent}, {count} keys"),
                Box::new(move || {
                    let ranks = Ranks::new(count, Popularity::Zipf { exponent });
                    draw(move |random| ranks.rank(random))
                }),
            );
        }
        add(
            format!("scramble, {count} keys"),
            Box::new(move || {
                let scramble = Scramble::new(count, 1);
                draw(move |random| scramble.key(random.below(count)))
            }),
        );
    }
    for text in ["64", "1..13@0.4+14..1400@0.6", "lognormal:230:1.2"] {
        add(
            format!("size {text}"),
            Box::new(move || {
                let table = text.parse::<Sizes>().expect("sizes").table();
                draw(move |random| u64::from(table.bytes(random.next())))
            }),
        );
    }
    for text in REQUESTS {
        add(format!("request {text}"), Box::new(move || request(text)));
    }
    cases
}

fn draw(mut from: impl FnMut(&mut Random) -> u64 + 'static) -> Draw {
    let mut random = Random::new(1);
    Box::new(move || from(&mut random))
}

/// A whole request: its time, command, key, length and time to live.
fn request(text: &str) -> Draw {
    let workload: Workload = text.parse().expect("a workload");
    let mut generator = workload.generator(1, Stream::ONLY);
    let mut arrivals = Poisson::new(Phases::fixed(1e6), 2);
    Box::new(move || {
        let now = arrivals.next().unwrap_or(0);
        let request = generator.draw(now);
        request.key ^ u64::from(request.item.value_bytes) ^ now
    })
}

fn measure(draw: &mut Draw) -> f64 {
    let round = |draw: &mut Draw| {
        let start = Instant::now();
        repeat(draw, DRAWS);
        start.elapsed().as_nanos() as f64 / DRAWS as f64
    };
    (0..5).map(|_| round(draw)).fold(f64::MAX, f64::min)
}

fn repeat(draw: &mut Draw, count: u64) {
    for _ in 0..count {
        black_box(draw());
    }
}

const DRAWS: u64 = 1_000_000;
const REQUESTS: &[&str] = &[
    "uniform",
    "zipf:0.99",
    "zipf:1.25",
    "c4-uniform",
    "c4-large",
    "etc",
    "switchkv",
    "zipf:0.99,change=hot-in@200/10s",
    "zipf:0.99,change=random@200of10k/1s",
    "ycsb-d",
];
