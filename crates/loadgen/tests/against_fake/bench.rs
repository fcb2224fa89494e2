//! The whole command against small servers: what it writes must be what it measured.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::Parser;
use curtail_loadgen::{
    LoadError, Stop,
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
    bench::run(&args(words), &Stop::new()).unwrap()
}

fn bench_error(words: &[&str]) -> LoadError {
    bench::run(&args(words), &Stop::new()).unwrap_err()
}

fn args(words: &[&str]) -> BenchArgs {
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
    Command::try_parse_from(all).unwrap().args
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
        (Some(2), Some(2e3))
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

/// Goal: a server that ends in the middle of a run leaves the numbers of what it answered, with
/// when and why it ended, and the command fails. Method: a server that closes all connections after
/// 900 requests, in the second of two runs; an open and a closed loop.
#[test]
fn a_server_that_ends_leaves_what_was_measured() {
    let open = ["--warm-up", "0.05", "--rate", "1k,2k"];
    let closed = ["--warm-up", "0", "--duration", "9"];
    for load in [open, closed] {
        let folder = folder("ended");
        let target = fake::start(Lie::Ending);
        let words = ["bench", "--target", &target, "--keys", "200", "--json"];
        let report = ["--report", folder.to_str().unwrap()];
        let some = ["--connections", "4"];
        let all = words.iter().chain(&load).chain(&report).chain(&some);
        let args = match load == open {
            true => Command::try_parse_from(all.chain(&["--duration", "0.3"])),
            false => Command::try_parse_from(all),
        };
        let ended = bench::run(&args.unwrap().args, &Stop::new()).unwrap();
        assert_eq!(ended, ExitCode::FAILURE);
        let json = fs::read_to_string(folder.join("bench.json")).unwrap();
        let document: serde_json::Value = serde_json::from_str(&json).unwrap();
        let partial = document["partial"].as_str().unwrap();
        assert!(partial.contains("s into the run"), "{partial}");
        let steps = document["steps"].as_array().unwrap();
        let answered = |step: &serde_json::Value| step["all"]["count"].as_u64().unwrap();
        assert!(steps.iter().map(answered).sum::<u64>() > 300, "{json}");
        let last = steps.last().unwrap();
        assert!(last["lost"]["reason"].as_str().is_some(), "{json}");
        let page = fs::read_to_string(folder.join("index.html")).unwrap();
        assert!(page.contains("A part of what was asked for"));
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// Goal: whoever ends a run early sees so in what it wrote, and so does a script. Method: the wish
/// is there before the first run is over.
#[test]
fn a_run_that_is_ended_early_is_marked() {
    let folder = folder("interrupted");
    let target = fake::start(Lie::None);
    let stop = Stop::new();
    let asked = stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        asked.ask();
    });
    let line = [
        "bench",
        "--duration",
        "20",
        "--warm-up",
        "0",
        "--rate",
        "500,600",
    ];
    let rest = ["--target", &target, "--json", "--keys", "200"];
    let report = ["--report", folder.to_str().unwrap()];
    let all = line.iter().chain(&rest).chain(&report);
    let args = Command::try_parse_from(all).unwrap().args;
    assert_eq!(bench::run(&args, &stop).unwrap(), ExitCode::from(130));
    let json = fs::read_to_string(folder.join("bench.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(document["partial"].as_str().is_some());
    assert_eq!(document["steps"].as_array().unwrap().len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

/// Goal: a server that wants a login is preloaded and driven with one, and without one the command
/// says what is missing.
#[test]
fn a_login_from_a_file_opens_a_locked_server() {
    let folder = folder("login");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("password");
    fs::write(&file, "lovelace\n").unwrap();
    let target = fake::start(Lie::Locked);
    let file = ["--password-file", file.to_str().unwrap()];
    for protocol in ["text", "meta"] {
        let words = ["--target", &target, "--preload", "--protocol", protocol];
        let as_user = |user| -> Vec<&str> {
            let all = words.iter().chain(&file);
            all.chain(&["--user", user]).copied().collect()
        };
        assert_eq!(bench(&as_user("ada")), ExitCode::SUCCESS);
        let error = |words: &[&str]| bench_error(words).to_string();
        assert!(error(&as_user("eve")).contains("does not let \"eve\" in"));
        let open = fake::start(Lie::None);
        let open = ["--target", &open, "--user", "ada", file[0], file[1]];
        assert_eq!(bench(&open), ExitCode::SUCCESS, "no login is asked for");
        let none = error(&["--target", &target, "--protocol", protocol]);
        assert!(none.contains("--password-file"), "{none}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// Goal: a driver that is later than a bound by itself says so at once, and what helps. Method: a
/// bound that no driver that sleeps can judge.
#[test]
fn a_search_that_the_driver_cannot_judge_is_refused() {
    let target = fake::start(Lie::None);
    let started = std::time::Instant::now();
    let words = [
        "--target",
        &target,
        "--slo",
        "p50<100ns",
        "--search",
        "1k..2k",
    ];
    let error = bench_error(&words).to_string();
    assert!(error.contains("cannot judge p50<0.1us"), "{error}");
    assert!(error.contains("--spin"), "{error}");
    assert!(started.elapsed().as_secs() < 30);
}

/// Goal: where not even the lowest rate is kept, the command says so and fails.
#[test]
fn a_search_that_finds_nothing_fails() {
    let target = fake::start(Lie::Slow);
    let words = [
        "--target", &target, "--slo", "p50<1ms", "--search", "200..400",
    ];
    assert_eq!(bench(&words), ExitCode::FAILURE);
}

#[test]
fn wrong_values_fail_the_command() {
    let honest = fake::start(Lie::None);
    assert_eq!(bench(&["--target", &honest, "--verify"]), ExitCode::SUCCESS);
    let torn = fake::start(Lie::Torn);
    assert_eq!(bench(&["--target", &torn, "--verify"]), ExitCode::FAILURE);
}
