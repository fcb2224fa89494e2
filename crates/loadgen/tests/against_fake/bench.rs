//! The whole command against small servers: what it writes must be what it measured.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

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

/// The command line that goes on with `words`.
fn args(words: &str) -> BenchArgs {
    let all = format!("bench --json {words}");
    Command::try_parse_from(all.split(' ')).unwrap().args
}

/// The same for short runs of a small load.
fn short(words: &str) -> BenchArgs {
    args(&format!(
        "--duration 0.3 --warm-up 0.05 --connections 4 --workload \
         uniform:keys=200,key=10,value=50,get=0.5 {words}"
    ))
}

fn bench(words: &str) -> ExitCode {
    bench::run(&short(words), &Stop::new()).unwrap()
}

fn bench_error(words: &str) -> String {
    let error = bench::run(&short(words), &Stop::new()).unwrap_err();
    error.to_string()
}

/// What a run wrote to its folder.
fn document(folder: &Path) -> serde_json::Value {
    let json = fs::read_to_string(folder.join("bench.json")).unwrap();
    serde_json::from_str(&json).unwrap()
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
    let words = format!(
        "--target one={} --target two={} --rate 2k,4k --preload --slo p50<1s --report {}",
        fake::start(Lie::None),
        fake::start(Lie::None),
        folder.display()
    );
    assert_eq!(bench(&words), ExitCode::SUCCESS);
    let document = document(&folder);
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
    let args = args(&format!(
        "--duration 0.4 --warm-up 0.05 --target {target} --slo p50<40ms --search 100..800 \
         --connections 1 --late-us 100000 --keys 200 --report {}",
        folder.display()
    ));
    assert_eq!(bench::run(&args, &Stop::new()).unwrap(), ExitCode::SUCCESS);
    let document = document(&folder);
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
    let open = "--warm-up 0.05 --duration 0.3 --rate 1k,2k";
    let closed = "--warm-up 0 --duration 9";
    for load in [open, closed] {
        let folder = folder("ended");
        let args = args(&format!(
            "--target {} --keys 200 --connections 4 {load} --report {}",
            fake::start(Lie::Ending),
            folder.display()
        ));
        let ended = bench::run(&args, &Stop::new()).unwrap();
        assert_eq!(ended, ExitCode::FAILURE);
        let document = document(&folder);
        let partial = document["partial"].as_str().unwrap();
        assert!(partial.contains("s into the run"), "{partial}");
        let steps = document["steps"].as_array().unwrap();
        let answered = |step: &serde_json::Value| step["all"]["count"].as_u64().unwrap();
        assert!(steps.iter().map(answered).sum::<u64>() > 300, "{document}");
        let last = steps.last().unwrap();
        assert!(last["lost"]["reason"].as_str().is_some(), "{document}");
        let page = fs::read_to_string(folder.join("index.html")).unwrap();
        assert!(page.contains("The measurement is incomplete"));
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// Goal: a run that is ended early says so in what it wrote and in its exit code. Method: the wish
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
    let args = args(&format!(
        "--duration 20 --warm-up 0 --rate 500,600 --target {target} --keys 200 --report {}",
        folder.display()
    ));
    assert_eq!(bench::run(&args, &stop).unwrap(), ExitCode::from(130));
    let document = document(&folder);
    assert!(document["partial"].as_str().is_some());
    assert_eq!(document["steps"].as_array().unwrap().len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

/// Goal: a run that was ended in its warm-up is no run of 0 requests/s. Method: the wish is there
/// before the warm-up is over.
#[test]
fn a_run_that_measured_nothing_is_left_out() {
    let stop = Stop::new();
    let asked = stop.clone();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        asked.ask();
    });
    let target = fake::start(Lie::None);
    let args = args(&format!(
        "--duration 1 --warm-up 20 --rate 500,600 --target {target} --keys 200"
    ));
    let error = bench::run(&args, &stop).unwrap_err().to_string();
    assert!(error.contains("before anything was run"), "{error}");
}

/// Goal: a preload that waits ends when it is asked to, and nobody is told that all keys were
/// stored. Method: preloads that would take days, and longer than a time has digits for.
#[test]
fn a_preload_that_is_ended_early_is_no_success() {
    let target = fake::start(Lie::None);
    for rate in ["0.0001", "0.0000000000000000001"] {
        let stop = Stop::new();
        let asked = stop.clone();
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            asked.ask();
        });
        let args = args(&format!(
            "--preload-only --preload-rate {rate} --target {target} --keys 1000"
        ));
        assert_eq!(bench::run(&args, &stop).unwrap(), ExitCode::from(130));
    }
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
    let file = file.display();
    for protocol in ["text", "meta"] {
        let words = format!("--target {target} --protocol {protocol}");
        let as_user =
            |user: &str| format!("{words} --preload --password-file {file} --user {user}");
        assert_eq!(bench(&as_user("ada")), ExitCode::SUCCESS);
        assert!(bench_error(&as_user("eve")).contains("refused the login of \"eve\""));
        let open = fake::start(Lie::None);
        let open = format!("--target {open} --user ada --password-file {file}");
        assert_eq!(bench(&open), ExitCode::SUCCESS, "no login is asked for");
        let none = bench_error(&words);
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
    let error = bench_error(&format!(
        "--target {target} --slo p50<100ns --search 1k..2k"
    ));
    assert!(error.contains("cannot judge p50<0.1us"), "{error}");
    assert!(error.contains("--spin"), "{error}");
    assert!(started.elapsed().as_secs() < 30);
}

/// Goal: where not even the lowest rate is kept, the command says so and fails.
#[test]
fn a_search_that_finds_nothing_fails() {
    let target = fake::start(Lie::Slow);
    let words = format!("--target {target} --slo p50<1ms --search 200..400");
    assert_eq!(bench(&words), ExitCode::FAILURE);
}

#[test]
fn wrong_values_fail_the_command() {
    for (lie, ends) in [
        (Lie::None, ExitCode::SUCCESS),
        (Lie::Torn, ExitCode::FAILURE),
    ] {
        let words = format!("--target {} --verify", fake::start(lie));
        assert_eq!(bench(&words), ends);
    }
}
