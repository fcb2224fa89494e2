//! `curtail bench compare`: ours and its peers, alternately, in one run.
//!
//! Hosts drift by a third between one minute and the next, so that a rate by itself says little.
//! All servers are up at once on one core, the idle ones asleep; every round measures each of them
//! once, in rotating order, and ratios are taken within a round. Counted work (processor time per
//! request) is printed beside rates: it drifts far less.
//!
//! ```text
//!   core 0:  ours | memcached -t 1 | redis      core 1:  the driver
//!   round 1:  ours, memcached, redis   round 2:  memcached, redis, ours   ...
//! ```

mod memory;
mod quiet_host;
mod servers;
mod small_beside_large;
mod start_time;
mod table;
mod tail;
mod throughput;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use serde::Serialize;

use self::{
    servers::{Kind, Server, Setting},
    throughput::CellPlan,
};
use crate::{
    error::LoadError,
    measure::rank,
    report::{Report, json},
};

/// Start servers, measure them in turn in each round, and print medians, and ratios between servers
/// within rounds.
#[derive(Clone, Debug, Args)]
pub struct CompareArgs {
    /// The curtail program to measure; without it only the peers are measured.
    #[arg(long, value_name = "PATH")]
    pub ours: Option<PathBuf>,
    /// A further argument for `curtail serve`; may be repeated.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub ours_argument: Vec<String>,
    /// Other servers to measure; the command installs missing ones with apt-get if it may.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "memcached,redis"
    )]
    pub peers: Vec<Peer>,
    /// Parts to run [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Part>,
    /// Measurements of each server for each cell of the tables.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0)]
    pub duration: f64,
    /// Seconds of warm-up before each measurement.
    #[arg(long, default_value_t = 0.3)]
    pub warm_up: f64,
    /// Number of keys in the throughput and latency parts.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Number of items in the memory part.
    #[arg(long, default_value_t = 10_000_000)]
    pub memory_items: u64,
    /// Core on which the servers run.
    #[arg(long, default_value_t = 0)]
    pub server_core: usize,
    /// Core on which the driver, which sends the load, runs.
    #[arg(long, default_value_t = 1)]
    pub driver_core: usize,
    /// Part `beside`: run servers and drivers on all cores, instead of one core for the servers and
    /// one for the measuring driver.
    #[arg(long)]
    pub spread: bool,
    /// Part `beside`: small values of 1 KB and large ones of 10 MB, instead of 14 to 1400 B and 500
    /// KB.
    #[arg(long)]
    pub long: bool,
    /// Part `beside`: before each round wait, for at most 15 s, until the host's steal time is
    /// below this percentage; the table says in how many rounds it was below.
    #[arg(long, value_name = "PERCENT")]
    pub quiet: Option<f64>,
    /// Print one JSON object instead of Markdown tables.
    #[arg(long)]
    pub json: bool,
}

/// A server to compare with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Peer {
    /// memcached with one thread.
    Memcached,
    /// redis-server without persistence.
    Redis,
    /// No peer.
    None,
}

/// A part of the comparison.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Part {
    /// 50 connections, one request at a time each.
    Unpipelined,
    /// 50 connections, 16 requests at a time each.
    Pipelined,
    /// p99 in windows, at half of memcached's peak rate.
    Tail,
    /// Small requests beside large ones, with two workers.
    Beside,
    /// Every policy with two workers, and the default policy with eight, on all cores: loads with
    /// hot keys and with many writes.
    Policies,
    /// With and without compaction: loads on one counter, on one key, and with writes of hot keys.
    Compaction,
    /// Resident memory per item, and whether every item is found.
    Memory,
    /// Time from start to the first reply.
    Start,
}

/// Everything that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Comparison {
    pub(crate) cells: Vec<throughput::Cell>,
    pub(crate) policies: Vec<throughput::Cell>,
    pub(crate) compaction: Vec<throughput::Cell>,
    pub(crate) tail: Option<tail::Tail>,
    pub(crate) beside: Vec<small_beside_large::Beside>,
    pub(crate) memory: Vec<memory::Memory>,
    pub(crate) start: Vec<start_time::Start>,
    /// Whether servers and driver could be given high priority.
    pub(crate) prioritized: bool,
}

/// Median and extremes of some values.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The 99th percentiles of the windows of all runs, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Pooled {
    pub(crate) windows: usize,
    pub(crate) p99_us: f64,
    pub(crate) p99_lower_quartile_us: f64,
    pub(crate) p99_upper_quartile_us: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        Self {
            median: rank(values, 0.5),
            min: rank(values, 0.0),
            max: rank(values, 1.0),
        }
    }

    /// What the runs have of this.
    fn over<T>(runs: &[T], value: impl Fn(&T) -> f64) -> Self {
        Self::of(&runs.iter().map(value).collect::<Vec<f64>>())
    }

    /// What some runs have of this over what others have, within rounds.
    fn ratio<T>(above: &[T], below: &[T], value: impl Fn(&T) -> f64) -> Self {
        let pairs: Vec<_> = above.iter().zip(below).collect();
        Self::over(&pairs, |(above, below)| value(above) / value(below))
    }
}

impl Pooled {
    fn of<'a>(runs: impl Iterator<Item = &'a Vec<f64>>) -> Self {
        let p99s: Vec<f64> = runs.flatten().copied().collect();
        Self {
            windows: p99s.len(),
            p99_us: rank(&p99s, 0.5),
            p99_lower_quartile_us: rank(&p99s, 0.25),
            p99_upper_quartile_us: rank(&p99s, 0.75),
        }
    }
}

/// A quantile of every window of a run. As it was measured, whatever the driver's lateness: all
/// servers had the same driver.
fn windows(report: &Report, quantile: f64) -> Vec<f64> {
    values(report.recorder().window_each(quantile))
}

fn values(windows: Vec<(f64, f64)>) -> Vec<f64> {
    windows.into_iter().map(|(_, us)| us).collect()
}

/// Measures every server once in every round, in an order that rotates; by server.
fn alternate<T>(
    rounds: usize,
    servers: &[Server],
    mut measure: impl FnMut(&Server, usize) -> Result<T, LoadError>,
) -> Result<Vec<Vec<T>>, LoadError> {
    let mut all: Vec<Vec<T>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for index in rotated(servers.len(), round) {
            all[index].push(measure(&servers[index], round)?);
        }
    }
    Ok(all)
}

fn rotated(count: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| (index + round) % count)
}

/// Runs the comparison and prints it. Fails when a server answered with errors.
pub fn run(args: &CompareArgs) -> Result<ExitCode, LoadError> {
    if args.rounds == 0 {
        return Err(LoadError::Arguments("at least one round".into()));
    }
    if args
        .quiet
        .is_some_and(|percent| percent.is_nan() || percent <= 0.0)
    {
        let why = "steal time is never below 0 %: --quiet takes more than 0";
        return Err(LoadError::Arguments(why.into()));
    }
    let settings = settings(args)?;
    let wants = |part| args.only.is_empty() || args.only.contains(&part);
    let mut comparison = Comparison {
        prioritized: crate::cpu::prioritize(),
        ..Comparison::default()
    };
    if wants(Part::Start) {
        comparison.start = start_time::compare(args, &settings)?;
    }
    if wants(Part::Unpipelined) || wants(Part::Pipelined) || wants(Part::Tail) {
        let servers = servers::start_all(&settings, args)?;
        let cells = throughput::CELLS.iter().filter(|cell| wants(cell.part()));
        comparison.cells = throughput::compare(args, &servers, cells)?;
        if wants(Part::Tail) {
            comparison.tail = Some(tail::compare(args, &servers)?);
        }
    }
    if wants(Part::Beside) {
        let mut settings = in_ways(BESIDE, &settings, args.spread);
        let takes_long = |setting: &&mut Setting| args.long && setting.kind != Kind::Redis;
        for setting in settings.iter_mut().filter(takes_long) {
            setting.arguments.extend(["-I".into(), "16m".into()]);
        }
        let servers = servers::start_all(&settings, args)?;
        comparison.beside = small_beside_large::compare(args, &servers)?;
    }
    let on_all_cores = |ways: &[Way], cells: &[CellPlan]| {
        let servers = servers::start_all(&in_ways(ways, &settings, true), args)?;
        throughput::compare(args, &servers, cells.iter())
    };
    if wants(Part::Policies) {
        comparison.policies = on_all_cores(POLICIES, &throughput::WRITING_CELLS)?;
    }
    if wants(Part::Compaction) {
        comparison.compaction = on_all_cores(COMPACTION, &throughput::MEETING_CELLS)?;
    }
    if wants(Part::Memory) {
        comparison.memory = memory::compare(args, &settings)?;
    }
    if args.json {
        println!("{}", json(&comparison)?);
    } else {
        print!("{}", table::markdown(&comparison));
    }
    let faults: u64 = {
        let cells = comparison.cells.iter().chain(&comparison.policies);
        let cells = cells.chain(&comparison.compaction);
        cells.map(throughput::Cell::faults).sum()
    };
    Ok(if faults == 0 {
        ExitCode::SUCCESS
    } else {
        eprintln!("{faults} replies were errors, misses or of a wrong length");
        ExitCode::FAILURE
    })
}

/// Ours first, so that ratios are to the first server.
fn settings(args: &CompareArgs) -> Result<Vec<Setting>, LoadError> {
    let mut settings = Vec::new();
    if let Some(path) = &args.ours {
        settings.push(Setting {
            label: Kind::Ours.name().to_owned(),
            kind: Kind::Ours,
            binary: path.clone(),
            threads: 1,
            spreads: false,
            arguments: args.ours_argument.clone(),
        });
    }
    if args.ours.is_none() {
        eprintln!("without --ours only other servers are measured");
    }
    for peer in &args.peers {
        settings.extend(servers::peer(*peer)?);
    }
    if settings.is_empty() {
        return Err(LoadError::Arguments("no server to measure".into()));
    }
    Ok(settings)
}

/// A way to run a server.
struct Way {
    kind: Kind,
    workers: usize,
    /// Further arguments, and what they are called in tables.
    arguments: &'static str,
    name: &'static str,
}

const fn way(kind: Kind, workers: usize, arguments: &'static str, name: &'static str) -> Way {
    Way {
        kind,
        workers,
        arguments,
        name,
    }
}

/// Ours and memcached with two workers, memcached with one beside it.
const BESIDE: &[Way] = &[
    way(Kind::Ours, 2, "", ""),
    way(Kind::Memcached, 1, "", ""),
    way(Kind::Memcached, 2, "", ""),
    way(Kind::Redis, 1, "", ""),
];

/// Ours with each policy and two workers, the default with eight, memcached with two.
const POLICIES: &[Way] = &[
    way(Kind::Ours, 2, "", ""),
    way(Kind::Ours, 2, "--policy d-crew", " d-crew"),
    way(Kind::Ours, 2, "--policy crcw", " crcw"),
    way(Kind::Ours, 2, "--policy crew", " crew"),
    way(Kind::Ours, 2, "--policy erew", " erew"),
    way(Kind::Ours, 8, "", ""),
    way(Kind::Memcached, 2, "", ""),
];

/// Ours with two workers, as it is and under `crcw`, with and without compaction.
const COMPACTION: &[Way] = &[
    way(Kind::Ours, 2, "", ""),
    way(Kind::Ours, 2, "-o no_compaction", " -o no_compaction"),
    way(Kind::Ours, 2, "--policy crcw", " --policy crcw"),
    way(
        Kind::Ours,
        2,
        "--policy crcw -o no_compaction",
        " --policy crcw -o no_compaction",
    ),
];

/// Every server in every way that there is for it.
fn in_ways(ways: &[Way], settings: &[Setting], spreads: bool) -> Vec<Setting> {
    let run = |setting: &Setting, way: &Way| {
        let mut run = setting.clone();
        if way.workers > 1 {
            run.label += &format!(" -t {}", way.workers);
        }
        run.label += way.name;
        (run.threads, run.spreads) = (way.workers, spreads);
        let words = way.arguments.split_whitespace().map(str::to_owned);
        run.arguments.extend(words);
        run
    };
    let each = settings.iter().flat_map(|setting| {
        let own = ways.iter().filter(|way| way.kind == setting.kind);
        own.map(|way| run(setting, way))
    });
    each.collect()
}
