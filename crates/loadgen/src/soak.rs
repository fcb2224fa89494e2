//! `curtail soak`: mixed load whose every value proves itself, for hours if need be.
//!
//! ```text
//!   owners     each thread owns keys and knows what must be there, to the byte; it also reads and
//!              writes keys that all share, and counts in shared counters
//!   registers  a few keys hammered by several clients, their histories judged for linearizability
//!   watch      the server's resident memory against a limit, and the progress line
//! ```
//!
//! The verdict is the exit code: success only if not one value was lost, torn, stale or foreign.

mod model;
mod owned_key_operations;
mod owner;
mod register;
mod shared;
mod tally;
mod value_reading_connection;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use serde::Serialize;

pub use self::model::Mode;
use self::tally::{Fault, Tally, Totals};
use crate::{cpu, error::LoadError, report::json, terminal::Progress};

/// Run mixed load that finds lost, torn, stale and foreign values.
#[derive(Clone, Debug, Args)]
pub struct SoakArgs {
    /// Server to check, HOST:PORT, which must speak memcached's text and meta protocols. All of its
    /// contents are removed.
    #[arg(long, default_value = "127.0.0.1:11211")]
    pub target: String,
    /// Seconds to run.
    #[arg(long, default_value_t = 600.0)]
    pub duration: f64,
    /// Number of threads; each has a connection and keys that only it writes.
    #[arg(long, default_value_t = 4)]
    pub threads: usize,
    /// Number of keys of each thread, which only that thread writes.
    #[arg(long, default_value_t = 10_000)]
    pub keys: usize,
    /// Number of keys that all threads write.
    #[arg(long, default_value_t = 64)]
    pub shared_keys: usize,
    /// Longest value in bytes, at most -I (for memcached: -I minus the length of the key).
    #[arg(long, default_value_t = 1_000_000)]
    pub value_bytes_max: u32,
    /// Of the writes to a thread's own keys, the share with values longer than 1 KiB.
    #[arg(long, default_value_t = 0.01)]
    pub large_share: f64,
    /// Whether a missing value is a fault (strict) or not (cache).
    #[arg(long, value_enum, default_value = "strict")]
    pub mode: Mode,
    /// Also record histories of this many keys at a time and check that they are linearizable. Only
    /// for servers that do not evict: an eviction looks like a lost write.
    #[arg(long, value_name = "KEYS", num_args = 0..=1, default_missing_value = "4")]
    pub linearizability: Option<u64>,
    /// Process id of the server, to watch its resident memory.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Maximum resident memory of the server, in MiB.
    #[arg(long, requires = "server_pid")]
    pub rss_max: Option<u64>,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object instead of a summary.
    #[arg(long)]
    pub json: bool,
}

/// How a soak ended.
#[derive(Clone, Debug, Serialize)]
struct Ending {
    seconds: f64,
    #[serde(flatten)]
    totals: Totals,
    resident: Option<Resident>,
}

/// Resident memory of the server, in MiB.
#[derive(Clone, Copy, Debug, Serialize)]
struct Resident {
    first: f64,
    half_way: f64,
    max: f64,
    last: f64,
}

/// Runs the soak and prints its verdict. Fails when a single fault was found.
pub fn run(args: &SoakArgs) -> Result<ExitCode, LoadError> {
    args.check()?;
    let duration = Duration::try_from_secs_f64(args.duration)
        .map_err(|_| LoadError::Arguments(format!("duration of {} s", args.duration)))?;
    shared::prepare(args)?;
    let start = Instant::now();
    let tally = Tally::new(start + duration);
    let resident = std::thread::scope(|scope| -> Result<_, LoadError> {
        let tally = &tally;
        let owners: Vec<_> = (0..args.threads)
            .map(|thread| scope.spawn(move || owner::Owner::new(args, tally, thread as u64)?.run()))
            .collect();
        let registers =
            (args.register_keys() > 0).then(|| scope.spawn(move || register::run(args, tally)));
        let resident = watch(args, tally, start);
        let mut counted = Vec::new();
        for owner in owners {
            counted.extend(note_failure(tally, owner.join()));
        }
        if let Some(registers) = registers {
            note_failure(tally, registers.join());
        }
        if args.mode == Mode::Strict && counted.len() == args.threads {
            shared::check_counters(args, tally, &counted)?;
        }
        Ok(resident)
    })?;
    let ending = Ending {
        seconds: start.elapsed().as_secs_f64(),
        totals: tally.totals(),
        resident,
    };
    ending.print(args.json)?;
    Ok(if ending.totals.faults_total() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A thread that ended early is a fault of the server's: it closed a connection or sent something
/// that is no reply.
fn note_failure<T>(tally: &Tally, result: std::thread::Result<Result<T, LoadError>>) -> Option<T> {
    match result {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            tally.fault(Fault::Broken, || error.to_string());
            None
        }
        Err(_) => {
            tally.fault(Fault::Broken, || "a thread panicked".into());
            None
        }
    }
}

impl SoakArgs {
    /// Refuses what cannot be run.
    fn check(&self) -> Result<(), LoadError> {
        let refuse = |what: &str| Err(LoadError::Arguments(what.into()));
        if self.threads == 0 || self.keys == 0 || self.shared_keys == 0 {
            return refuse("at least one thread, one key and one shared key");
        }
        if self.threads > 1000 || self.value_bytes_max < 2048 {
            return refuse("at most 1000 threads, and values of at least 2048 bytes");
        }
        if self.register_keys() > 0 && self.mode == Mode::Cache {
            return refuse("linearizability cannot be judged where values may be evicted");
        }
        Ok(())
    }

    fn register_keys(&self) -> u64 {
        self.linearizability.unwrap_or(0)
    }
}

/// Until the end: looks at the server's memory and shows progress.
fn watch(args: &SoakArgs, tally: &Tally, start: Instant) -> Option<Resident> {
    const EVERY: Duration = Duration::from_millis(500);
    let progress = Progress::new("soak", 0);
    let mut samples = Vec::new();
    while !tally.is_over() {
        std::thread::sleep(EVERY);
        let bytes = args.server_pid.and_then(cpu::resident_bytes);
        let mib = bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        samples.extend(mib);
        let above = mib.filter(|mib| args.rss_max.is_some_and(|max| *mib > max as f64));
        if let Some(mib) = above {
            tally.fault(Fault::Memory, || format!("{mib:.0} MiB resident"));
        }
        let totals = tally.totals();
        progress.text(&format!(
            "soak {:.0} of {:.0} s, {} operations, {} faults{}",
            start.elapsed().as_secs_f64(),
            args.duration,
            totals.operations,
            totals.faults_total(),
            mib.map_or(String::new(), |mib| format!(", {mib:.0} MiB resident"))
        ));
    }
    progress.finish();
    Some(Resident {
        first: *samples.first()?,
        half_way: *samples.get(samples.len() / 2)?,
        max: samples.iter().copied().fold(0.0, f64::max),
        last: *samples.last()?,
    })
}

impl Ending {
    fn print(&self, as_json: bool) -> Result<(), LoadError> {
        if as_json {
            println!("{}", json(self)?);
            return Ok(());
        }
        let totals = &self.totals;
        println!(
            "{} operations in {:.0} s; {} hits, {} misses, {} refused; {:.1} GB of values checked; \
             {} reconnects",
            totals.operations,
            self.seconds,
            totals.hits,
            totals.misses,
            totals.refused,
            totals.bytes_checked as f64 / 1e9,
            totals.reconnects
        );
        if totals.histories > 0 {
            println!(
                "{} histories of {} operations judged, {} too hard",
                totals.histories, totals.history_operations, totals.too_hard
            );
        }
        if let Some(resident) = self.resident {
            println!(
                "resident MiB: {:.0} at first, {:.0} half way, {:.0} at the end, {:.0} at most",
                resident.first, resident.half_way, resident.last, resident.max
            );
        }
        totals.texts.iter().for_each(|text| println!("  {text}"));
        match totals.faults_total() {
            0 => println!("PASS: no lost, torn, stale or foreign value"),
            faults => println!("FAIL: {faults} faults {:?}", totals.faults),
        }
        Ok(())
    }
}
