//! How long a client waits for `accepted`: the XDP program, against one that only turns
//! packets round, a thread that spins on a socket, and one that sleeps in it.
//!
//! ```text
//!   namespace of the server                 namespace of the client
//!   one 10.77.0.1  <---- veth ---->  two 10.77.0.2
//!   processor 0: executor, or thread        processor 1: client, and the program (in its softirq)
//! ```
//!
//! Closed loop: one request outstanding. Open loop: Poisson arrivals, nothing or 10 us of execution
//! for each write, latency counted from the moment at which the request should have been sent. The
//! ways are measured in turn, several rounds, and the median of the rounds is printed. Needs root;
//! makes its own namespaces, which end with it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what cannot be set up ends the bench"
)]

#[path = "nic/client.rs"]
mod client;
#[path = "../tests/nic/namespace.rs"]
mod namespace;
#[path = "nic/servers.rs"]
mod servers;

use std::time::Duration;

use client::{Client, Load, Samples};
use namespace::{Namespace, run};
use servers::{Program, Server, Way, frame_of};

/// Requests of a round in the closed loop.
const REQUESTS: usize = 20_000;
/// How long each execution takes where one is pretended.
const WORK_NS: u64 = 10_000;

/// What was asked for.
struct Asked {
    /// `program`, `closed` or `open`; all of them if none was named.
    part: Option<String>,
    /// Rounds of the closed loop.
    rounds: usize,
    /// Ways of the closed loop whose names hold one of these; all if there are none.
    ways: Vec<String>,
}

fn main() {
    let asked = Asked::parse(std::env::args().skip(1));
    let Some(namespace) = Namespace::enter() else {
        return;
    };
    let client = Client::start();
    connect(&client);
    if asked.has("program") {
        program_times();
    }
    if asked.has("closed") {
        closed_loop(&namespace, &client, &asked);
    }
    if asked.has("open") {
        open_loop(&namespace, &client);
    }
}

impl Asked {
    /// `--only PART`, `--rounds N`, `--ways NAME,NAME`; cargo adds `--bench`.
    fn parse(mut words: impl Iterator<Item = String>) -> Self {
        let mut asked = Self {
            part: None,
            rounds: 7,
            ways: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().expect("a value");
            match word.as_str() {
                "--only" => asked.part = Some(value()),
                "--rounds" => asked.rounds = value().parse().unwrap(),
                "--ways" => asked.ways = value().split(',').map(str::to_owned).collect(),
                "--bench" => {}
                _ => panic!("{word} is no argument"),
            }
        }
        asked
    }

    fn has(&self, part: &str) -> bool {
        self.part.as_deref().is_none_or(|only| only == part)
    }

    fn wants(&self, way: Way) -> bool {
        let name = way.name();
        self.ways.is_empty() || self.ways.iter().any(|part| name.contains(part.as_str()))
    }
}

/// One link between the two namespaces.
fn connect(client: &Client) {
    let pair = ["link", "add", "one", "type", "veth", "peer", "name", "two"];
    run("ip", &pair);
    run(
        "ip",
        &[
            "link",
            "set",
            "two",
            "netns",
            &client.thread_id().to_string(),
        ],
    );
    run("ip", &["addr", "add", "10.77.0.1/24", "dev", "one"]);
    run("ip", &["link", "set", "one", "up"]);
    client.set_up();
    std::thread::sleep(Duration::from_millis(200));
}

fn program_times() {
    println!("\nthe program alone (BPF_PROG_RUN), ns: median and 99th percentile");
    println!(
        "{:>16} {:>10} {:>10} {:>10} {:>10}",
        "value, bytes", "floor", "", "queue", ""
    );
    for value_bytes in [16, 52, 400, 1300] {
        let mut nic = servers::load();
        servers::open(&nic);
        let mut floor = Program::load("curtail_floor");
        let mut samples = [Vec::new(), Vec::new()];
        for number in 1..20_000 {
            let frame = frame_of(number, value_bytes);
            samples[0].push(floor.run(&frame));
            let ran = nic.run(&frame, 1).unwrap();
            assert_eq!(ran.fate, curtail_runtime::PacketFate::Answered, "{number}");
            samples[1].push(ran.ns);
            servers::skip(&nic);
        }
        let [floor, queue] = samples.map(Samples::new);
        println!(
            "{value_bytes:>16} {:>10} {:>10} {:>10} {:>10}",
            floor.at(50.0),
            floor.at(99.0),
            queue.at(50.0),
            queue.at(99.0)
        );
    }
}

fn closed_loop(namespace: &Namespace, client: &Client, asked: &Asked) {
    let mut ways = Vec::new();
    for native in [true, false] {
        ways.extend([Way::Floor { native }, Way::Receipt { native }]);
        let others = (0..servers::other_objects().len()).map(Some);
        for other in std::iter::once(None).chain(others) {
            ways.extend([false, true].map(|rests| Way::Nic {
                native,
                rests,
                other,
            }));
        }
    }
    ways.extend([Way::Spinning, Way::Blocking]);
    ways.retain(|way| asked.wants(*way));
    let mut rounds: Vec<Vec<Samples>> = ways.iter().map(|_| Vec::new()).collect();
    let mut programs: Vec<Vec<u64>> = ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..asked.rounds {
        for (place, way) in ways.iter().enumerate() {
            let server = Server::start(*way, namespace, client, 0);
            rounds[place].push(client.drive(Load::closed(REQUESTS)));
            programs[place].push(servers::time_counted(*way, || {
                client.drive(Load::closed(REQUESTS / 2));
            }));
            server.stop();
        }
    }
    println!(
        "\nclosed loop, no execution: `accepted`, us, {} rounds; the program's own time in it",
        asked.rounds
    );
    println!(
        "{:32} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}",
        "", "p50", "p90", "p99", "refused", "floor x", "program"
    );
    for (place, way) in ways.iter().enumerate() {
        let floor = ways.iter().position(|other| other.is_floor_of(*way));
        let over = floor.map_or(f64::NAN, |floor| ratio(&rounds[place], &rounds[floor]));
        let own = middle(programs[place].iter().map(|ns| *ns as f64).collect());
        let after = format!("{over:>9.3} {own:>6.0} ns");
        line(&way.name(), &rounds[place], &after);
    }
}

/// The median over the rounds of one way's p50 over another's.
fn ratio(ours: &[Samples], others: &[Samples]) -> f64 {
    let p50 = |samples: &Samples| samples.at(50.0) as f64;
    let pairs = ours.iter().zip(others);
    middle(pairs.map(|(our, other)| p50(our) / p50(other)).collect())
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn open_loop(namespace: &Namespace, client: &Client) {
    let nic = |native| Way::Nic {
        native,
        rests: false,
        other: None,
    };
    let ways = [
        (nic(true), 0),
        (nic(true), WORK_NS),
        (nic(false), 0),
        (nic(false), WORK_NS),
        (Way::Deferred, WORK_NS),
        (Way::Spinning, WORK_NS),
    ];
    for rate in [30_000, 50_000, 70_000, 90_000] {
        println!("\nopen loop, {rate} requests/s: `accepted`, us");
        println!(
            "{:32} {:>8} {:>8} {:>8} {:>8}",
            "", "p50", "p90", "p99", "refused"
        );
        for (way, work_ns) in ways {
            let mut rounds = Vec::new();
            for seed in 0..3 {
                let server = Server::start(way, namespace, client, work_ns);
                rounds.push(client.drive(Load::open(rate / 5, rate as u64, seed)));
                server.stop();
            }
            let work = if work_ns > 0 { ", 10 us" } else { "" };
            line(&format!("{}{work}", way.name()), &rounds, "");
        }
        let server = Server::start(nic(true), namespace, client, WORK_NS);
        let counting = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
        client.drive(Load::open(rate / 5, rate as u64, 9));
        let (ns, runs) = servers::time_of_program(b"curtail_nic");
        println!(
            "{:32} {:>8.2} us on average of {runs} runs",
            "  the program itself",
            ns / 1000.0
        );
        drop(counting);
        server.stop();
    }
}

/// The medians over the rounds.
fn line(name: &str, rounds: &[Samples], after: &str) {
    let median = |of: &dyn Fn(&Samples) -> u64| {
        let mut all: Vec<u64> = rounds.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let us = |percent: f64| median(&|samples| samples.at(percent)) as f64 / 1000.0;
    let refused: u64 = rounds.iter().map(|samples| samples.refused).sum();
    let all: usize = rounds.iter().map(Samples::count).sum();
    println!(
        "{name:32} {:>8.2} {:>8.2} {:>8.2} {:>7.2}% {after}",
        us(50.0),
        us(90.0),
        us(99.0),
        refused as f64 * 100.0 / (all as f64 + refused as f64)
    );
}
