//! Rounds of kill -9: a process with concurrent writers dies at a random moment, and what it
//! acknowledged is there.
//!
//! The process is this test itself, started again. The kernel keeps what a killed process wrote, so
//! this shows that acknowledgements come after the write and that every file survives the moment;
//! what a lost page cache does, the simulated disk of the unit tests shows.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failure here is a test's failure")]

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use curtail_storage::{
    Durability, ItemImage, ReadAnswer, ReadRequest, ReportLevel, Storage, StorageConfig,
    StorageEvents, WriteKind,
};
use curtail_types::KeyHash;
use curtail_workload::Random;

const WRITERS: u64 = 4;
const WINDOW: Duration = Duration::from_millis(50);

struct Quiet(Option<Mutex<mpsc::Sender<ReadAnswer>>>);

impl StorageEvents for Quiet {
    fn answer(&self, answer: ReadAnswer, _goes_on: bool) {
        if let Some(sender) = &self.0 {
            let _ = sender.lock().unwrap().send(answer);
        }
    }

    fn progress(&self) {}

    fn report(&self, _level: ReportLevel, what: &str) {
        panic!("{what}");
    }
}

fn config(dir: &Path, durability: Durability) -> StorageConfig {
    StorageConfig {
        dir: dir.into(),
        durability,
        // Small, so that flushes and compactions are under way at most moments.
        memory_bytes: 4 << 20,
        readers: 1,
        reserve_bytes: 0,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis() as u64
}

/// The process that is killed: every writer counts up, in its own two keys one after the other,
/// and says when a count was acknowledged.
#[test]
#[ignore = "the process that the others start"]
fn writers() {
    let Ok(dir) = std::env::var("CURTAIL_KILL_DIR") else {
        return;
    };
    let durability = durability_named(&std::env::var("CURTAIL_KILL_MODE").unwrap());
    let storage = Storage::open(config(Path::new(&dir), durability), Arc::new(Quiet(None)));
    let storage = storage.unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let storage = &storage;
            scope.spawn(move || count_up(storage, writer, durability));
        }
    });
}

fn count_up(storage: &Storage, writer: u64, durability: Durability) {
    let mut random = Random::of_stream(now_ms(), writer);
    for count in now_ms() * 1000.. {
        let begun_ms = now_ms();
        for part in ["first", "second"] {
            let key = format!("{part}-{writer}");
            let hash = KeyHash(writer * 2 + u64::from(part == "second"));
            let place = loop {
                let mut locked = storage.lock(hash);
                if storage.admit(WriteKind::Store).is_ok() {
                    let mut value = count.to_le_bytes().to_vec();
                    value.resize(8 + random.below(2000) as usize, writer as u8);
                    break locked.put(key.as_bytes(), hash, &ItemImage::default(), &value);
                }
                drop(locked);
                std::thread::sleep(Duration::from_millis(1));
            };
            while durability == Durability::Sync && storage.durable() < place {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        let line = format!("acknowledged {writer} {count} {begun_ms} {}\n", now_ms());
        // One call: lines of several writers do not mix.
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

fn durability_named(name: &str) -> Durability {
    match name {
        "sync" => Durability::Sync,
        _ => Durability::Bounded(WINDOW),
    }
}

/// An acknowledgement: the count, and when its write began and ended.
#[derive(Clone, Copy)]
struct Acknowledged {
    count: u64,
    begun_ms: u64,
    ended_ms: u64,
}

/// One round: what was acknowledged, by writer.
fn kill_once(dir: &Path, mode: &str, random: &mut Random) -> Vec<Vec<Acknowledged>> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["writers", "--exact", "--ignored", "--nocapture"])
        .env("CURTAIL_KILL_DIR", dir)
        .env("CURTAIL_KILL_MODE", mode)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (begun, first) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let lines = lines.map_while(Result::ok);
        let lines = lines.inspect(|line| {
            if line.starts_with("acknowledged") {
                let _ = begun.send(());
            }
        });
        lines.collect::<Vec<_>>()
    });
    first.recv_timeout(Duration::from_secs(60)).unwrap();
    std::thread::sleep(Duration::from_millis(random.below(200)));
    child.kill().unwrap();
    child.wait().unwrap();
    let mut all = vec![Vec::new(); WRITERS as usize];
    for line in reader.join().unwrap() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["acknowledged", writer, numbers @ ..] = &words[..] else {
            // The test's own words, or a line that the kill cut off.
            assert!(!line.contains("panicked"), "{line}");
            continue;
        };
        let numbers: Vec<u64> = numbers.iter().filter_map(|it| it.parse().ok()).collect();
        let [count, begun_ms, ended_ms] = numbers[..] else {
            continue;
        };
        all[writer.parse::<usize>().unwrap()].push(Acknowledged {
            count,
            begun_ms,
            ended_ms,
        });
    }
    all
}

/// Opens what the kill left, and compares it with what was acknowledged.
fn check(dir: &Path, mode: &str, acknowledged: &[Vec<Acknowledged>]) {
    let (sender, answers) = mpsc::channel();
    let events = Arc::new(Quiet(Some(Mutex::new(sender))));
    let storage = Storage::open(config(dir, durability_named(mode)), events).unwrap();
    let mut lost: Vec<Acknowledged> = Vec::new();
    for (writer, all) in acknowledged.iter().enumerate() {
        let mut counts = [0; 2];
        for (count, part) in counts.iter_mut().zip(["first", "second"]) {
            let key = format!("{part}-{writer}").into_bytes().into();
            let request = ReadRequest {
                key,
                receiver: 0,
                number: 0,
            };
            assert!(storage.submit(request));
            let answer = answers.recv_timeout(Duration::from_secs(60)).unwrap();
            if let Some(item) = answer.found.unwrap() {
                *count = u64::from_le_bytes(item.value()[..8].try_into().unwrap());
            }
        }
        let [first, second] = counts;
        assert!(
            first >= second,
            "{mode}: a write is there, and one before it is not"
        );
        lost.extend(all.iter().filter(|it| it.count > second).copied());
    }
    if mode == "sync" {
        assert!(lost.is_empty(), "sync lost {} writes", lost.len());
    }
    // All that are lost were admitted within one window. A write is admitted after it begins and
    // before it ends, so this distance is no longer than that of the admissions.
    let first = lost.iter().map(|it| it.ended_ms).min().unwrap_or(0);
    let last = lost.iter().map(|it| it.begun_ms).max().unwrap_or(0);
    let span = last.saturating_sub(first);
    let window = WINDOW.as_millis() as u64;
    assert!(
        span <= window + 1,
        "{} writes of {span} ms are lost",
        lost.len()
    );
}

fn rounds(mode: &str) {
    let told = std::env::var("CURTAIL_KILL_ROUNDS").ok();
    let rounds = told.and_then(|told| told.parse().ok()).unwrap_or(8);
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(now_ms());
    let mut acknowledged = 0;
    for _ in 0..rounds {
        let all = kill_once(folder.path(), mode, &mut random);
        acknowledged += all.iter().filter(|of_one| !of_one.is_empty()).count();
        check(folder.path(), mode, &all);
    }
    assert!(
        acknowledged > 0,
        "no writer had anything acknowledged: the rounds show nothing"
    );
    println!("{mode}: {rounds} rounds, {acknowledged} times a writer had acknowledgements");
}

/// Goal: nothing that `sync` acknowledged is lost. Method: `CURTAIL_KILL_ROUNDS=1000` for more.
#[test]
fn sync_loses_nothing() {
    rounds("sync");
}

/// Goal: all that `bounded` loses was acknowledged within one window. Method: the same.
#[test]
fn bounded_loses_no_more_than_a_window() {
    rounds("bounded");
}
