//! The whole command against small servers: what it writes must be what it measured.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Parser;
use curtail_loadgen::{
    Stop,
    bench::{self, BenchArgs},
};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

use crate::fake::{self, Lie};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: BenchArgs,
}

fn bench(words: &[&str]) -> ExitCode {
    let short = [
        "bench",
        "--duration",
        "0.3",
        "--warm-up",
        "0.05",
        "--connections",
        "4",
    ];
    let load = [
        "--workload",
        "uniform:keys=200,key=10,value=50,get=0.5",
        "--json",
    ];
    let all = short.iter().chain(&load).chain(words);
    let args = Command::try_parse_from(all).unwrap().args;
    bench::run(&args, &Stop::new()).unwrap()
}

/// A folder of this test's own, empty.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("curtail-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// Goal: a sweep over two targets fills the folder: a page that loads nothing, JSON with every run,
/// an interval log that HdrHistogram's format reads back with as many latencies.
#[test]
fn a_sweep_writes_its_report() {
    let folder = folder("sweep");
    let targets = [
        format!("one={}", fake::start(Lie::None)),
        format!("two={}", fake::start(Lie::None)),
    ];
    let words = [
        "--target",
        &targets[0],
        "--target",
        &targets[1],
        "--rate",
        "2k,4k",
        "--preload",
        "--slo",
        "p50<1s",
        "--report",
        folder.to_str().unwrap(),
    ];
    assert_eq!(bench(&words), ExitCode::SUCCESS);
    let json = fs::read_to_string(folder.join("bench.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let steps = document["steps"].as_array().unwrap();
    let order: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["target"].as_str())
        .collect();
    assert_eq!(order, ["one", "two", "two", "one"], "targets take turns");
    assert_eq!(
        (
            document["format"].as_u64(),
            steps[0]["rate_offered"].as_f64()
        ),
        (Some(1), Some(2e3))
    );
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(page.matches("<svg viewBox=\"0 0 560").count() >= 6);
    for loads in [
        "http://", "https://", "src=", "<script", "<link", "@import", "url(",
    ] {
        assert!(!page.contains(loads), "{loads}");
    }
    let log = fs::read(folder.join("one.hlog")).unwrap();
    let mut deserializer = hdrhistogram::serialization::Deserializer::new();
    let mut counts = Vec::new();
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            let encoded = base64(interval.encoded_histogram());
            let histogram: hdrhistogram::Histogram<u64> =
                deserializer.deserialize(&mut encoded.as_slice()).unwrap();
            if interval.tag().is_none() {
                counts.push(histogram.len());
            }
        }
    }
    let expected: Vec<u64> = steps
        .iter()
        .filter(|step| step["target"] == "one")
        .filter_map(|step| step["all"]["count"].as_u64())
        .collect();
    assert_eq!(counts, expected);
    fs::remove_dir_all(&folder).unwrap();
}

/// Base64 as the log has it (RFC 4648), decoded here so that the test does not trust the writer's
/// library with both directions.
fn base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| -> u32 {
        match byte {
            b'A'..=b'Z' => u32::from(byte - b'A'),
            b'a'..=b'z' => u32::from(byte - b'a') + 26,
            b'0'..=b'9' => u32::from(byte - b'0') + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("{byte}"),
        }
    };
    let text = text.trim_end_matches('=').as_bytes();
    text.chunks(4)
        .flat_map(|chunk| {
            let bits = chunk.iter().fold(0, |bits, &byte| bits << 6 | value(byte));
            let bits = bits << (6 * (4 - chunk.len()));
            let bytes = bits.to_be_bytes();
            bytes[1..chunk.len()].to_vec()
        })
        .collect()
}

/// Goal: the search ends on a server with a limit of its own. Method: one connection to a server
/// that takes 5 ms a request, so that it answers 200 a second at most.
#[test]
fn a_search_finds_a_slow_servers_limit() {
    let folder = folder("search");
    let target = fake::start(Lie::Slow);
    let words = [
        "--target",
        &target,
        "--slo",
        "p50<40ms",
        "--search",
        "100..800",
        "--connections",
        "1",
        "--late-us",
        "100000",
        "--report",
        folder.to_str().unwrap(),
    ];
    let args = ["bench", "--duration", "0.4", "--warm-up", "0.05", "--json"];
    let all = args.iter().chain(&words).chain(&["--keys", "200"]);
    let args = Command::try_parse_from(all).unwrap().args;
    assert_eq!(bench::run(&args, &Stop::new()).unwrap(), ExitCode::SUCCESS);
    let json = fs::read_to_string(folder.join("bench.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let found = &document["searches"][target.as_str()];
    assert!(
        found["missed"].as_f64().is_some_and(|rate| rate <= 330.0),
        "{found}"
    );
    assert!(
        found["path"].as_array().is_some_and(|path| path.len() >= 4),
        "{found}"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn wrong_values_fail_the_command() {
    let honest = fake::start(Lie::None);
    assert_eq!(bench(&["--target", &honest, "--verify"]), ExitCode::SUCCESS);
    let torn = fake::start(Lie::Torn);
    assert_eq!(bench(&["--target", &torn, "--verify"]), ExitCode::FAILURE);
}
