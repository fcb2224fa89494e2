//! How fast the engine reads keys that are not in memory, without a server: the yardstick for what
//! `curtail serve --tier disk` reads over sockets. `cargo xtask bench disk` runs both in turn.
//!
//! ```text
//! cargo bench -p curtail-storage --bench uncached_reads -- --data DIR --keys N
//! ```
//!
//! `--through tree` opens the tables with lsm-tree alone: each thread reads key after key.
//! `--through storage` opens the directory as the server does and has the same threads read what is
//! submitted, 32 reads at a time. Keys are those of the load generator, all equally popular. A read
//! counts if it finds its key: the last keys may be in the log, and not in the tables.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a bench stops where anything fails")]

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use curtail_storage::{
    Durability, ReadAnswer, ReadRequest, ReportLevel, Storage, StorageConfig, StorageEvents,
};
use curtail_workload::{KeyText, Random};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, SeqNo, SequenceNumberCounter,
    config::{CompressionPolicy, PinningPolicy},
};

/// What was asked for.
struct Asked {
    data: PathBuf,
    keys: u64,
    threads: usize,
    seconds: f64,
    warm_up: f64,
    /// What `--disk-memory` of the server says.
    memory_bytes: u64,
    through_storage: bool,
    seed: u64,
}

/// What the threads have done.
#[derive(Default)]
struct Tally {
    found: AtomicU64,
    missing: AtomicU64,
    stop: AtomicBool,
}

fn main() {
    let Some(asked) = Asked::parse() else {
        println!("uncached_reads: skipped: it reads a data directory: --data DIR --keys N");
        return;
    };
    let rate = match asked.through_storage {
        true => storage_rate(&asked),
        false => tree_rate(&asked),
    };
    println!("{rate:.0} keys/s");
}

impl Asked {
    fn parse() -> Option<Self> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let value = |name: &str| {
            let mut rest = words.iter().skip_while(|word| *word != name);
            rest.nth(1).cloned()
        };
        let number = |name: &str| value(name).map(|text| text.parse::<f64>().unwrap());
        Some(Self {
            data: value("--data")?.into(),
            keys: number("--keys")? as u64,
            threads: number("--threads").unwrap_or(4.0) as usize,
            seconds: number("--seconds").unwrap_or(5.0),
            warm_up: number("--warm-up").unwrap_or(1.0),
            memory_bytes: (number("--disk-memory").unwrap_or(128.0) * f64::from(1 << 20)) as u64,
            seed: number("--seed").unwrap_or(1.0) as u64,
            through_storage: value("--through").as_deref() == Some("storage"),
        })
    }

    /// Lets threads run, and says how many keys they found in a second.
    fn measure(&self, tally: &Tally) -> f64 {
        std::thread::sleep(Duration::from_secs_f64(self.warm_up));
        let (begun, before) = (Instant::now(), tally.found.load(Relaxed));
        std::thread::sleep(Duration::from_secs_f64(self.seconds));
        let found = tally.found.load(Relaxed) - before;
        let seconds = begun.elapsed().as_secs_f64();
        tally.stop.store(true, Relaxed);
        let missing = tally.missing.load(Relaxed);
        if missing > 0 {
            let all = missing + tally.found.load(Relaxed);
            eprintln!("{missing} of {all} keys were not found");
        }
        found as f64 / seconds
    }

    fn key_text(&self) -> KeyText {
        KeyText::new(KEY_BYTES, self.keys).unwrap()
    }
}

/// What the load generator writes by default.
const KEY_BYTES: usize = 16;

/// Of eight parts of the memory, four are for blocks that were read.
const CACHE_PARTS: u64 = 2;

/// Reads that are submitted at a time.
const OUTSTANDING: usize = 32;

/// Opens the tables as the storage does, but for what compaction drops.
fn open(data: &Path, cache_bytes: u64) -> AnyTree {
    let (numbers, visible) = (SequenceNumberCounter::default(), Default::default());
    let config = Config::new(data.join("tables"), numbers, visible)
        .use_cache(Arc::new(Cache::with_capacity_bytes(cache_bytes)))
        .data_block_compression_policy(CompressionPolicy::new([
            CompressionType::None,
            CompressionType::Lz4,
        ]))
        .index_block_partitioning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(false))
        .filter_block_pinning_policy(PinningPolicy::all(false));
    config.open().unwrap()
}

fn tree_rate(asked: &Asked) -> f64 {
    let tree = open(&asked.data, asked.memory_bytes / CACHE_PARTS);
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for thread in 0..asked.threads {
            let (tree, tally) = (&tree, &tally);
            scope.spawn(move || read_keys(tree, asked, thread as u64, tally));
        }
        asked.measure(&tally)
    })
}

fn read_keys(tree: &AnyTree, asked: &Asked, thread: u64, tally: &Tally) {
    let (text, mut random) = (asked.key_text(), Random::of_stream(asked.seed, thread));
    let mut key = Vec::new();
    while !tally.stop.load(Relaxed) {
        key.clear();
        key.push(b'i');
        text.put(random.below(asked.keys), &mut key);
        let found = tree.get(&key, SeqNo::MAX).unwrap().is_some();
        let count = if found { &tally.found } else { &tally.missing };
        count.fetch_add(1, Relaxed);
    }
}

/// Hands answers to the thread that submits.
struct Answers(Mutex<mpsc::Sender<ReadAnswer>>);

impl StorageEvents for Answers {
    fn answer(&self, answer: ReadAnswer, _goes_on: bool) {
        // The receiver is gone at the end.
        let _ = self.0.lock().unwrap().send(answer);
    }

    fn progress(&self) {}

    fn report(&self, _level: ReportLevel, what: &str) {
        eprintln!("{what}");
    }
}

fn storage_rate(asked: &Asked) -> f64 {
    let (sender, answers) = mpsc::channel();
    let config = StorageConfig {
        dir: asked.data.clone(),
        durability: Durability::Bounded(Duration::from_millis(100)),
        memory_bytes: asked.memory_bytes,
        readers: asked.threads,
        reserve_bytes: 0,
    };
    let storage = Storage::open(config, Arc::new(Answers(Mutex::new(sender)))).unwrap();
    let tally = Tally::default();
    std::thread::scope(|scope| {
        let (storage, tally) = (&storage, &tally);
        scope.spawn(move || submit_keys(storage, asked, &answers, tally));
        asked.measure(tally)
    })
}

fn submit_keys(
    storage: &Storage,
    asked: &Asked,
    answers: &mpsc::Receiver<ReadAnswer>,
    tally: &Tally,
) {
    let (text, mut random) = (asked.key_text(), Random::of_stream(asked.seed, 0));
    let mut number = 0;
    let mut submit = || {
        let mut key = Vec::new();
        text.put(random.below(asked.keys), &mut key);
        number += 1;
        let request = ReadRequest {
            key: key.into(),
            receiver: 0,
            number,
        };
        assert!(storage.submit(request));
    };
    (0..OUTSTANDING).for_each(|_| submit());
    while !tally.stop.load(Relaxed) {
        let answer = answers.recv().unwrap();
        let found = answer.found.unwrap().is_some();
        let count = if found { &tally.found } else { &tally.missing };
        count.fetch_add(1, Relaxed);
        submit();
    }
}
