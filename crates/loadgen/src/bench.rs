//! `curtail bench`: one run against one server, or `compare`.

use std::{process::ExitCode, time::Duration};

use clap::{Args, Subcommand};

use crate::{
    compare::{self, CompareArgs},
    drive::{Plan, measure},
    error::LoadError,
    preload,
    protocol::Protocol,
    workload::{Popularity, Sizes, Workload},
};

/// Drives load at a server and reports rates and latencies.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// Something other than one run.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// One run.
    #[command(flatten)]
    pub load: LoadArgs,
}

/// The other things that `bench` does.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Starts servers, alternates between them and prints medians and paired ratios.
    Compare(CompareArgs),
}

/// One run against one server.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// Server to drive, HOST:PORT.
    #[arg(long, default_value = "127.0.0.1:11211")]
    pub target: String,
    /// Protocol to speak.
    #[arg(long, value_enum, default_value = "meta")]
    pub protocol: Protocol,
    /// Connections in all.
    #[arg(long, default_value_t = 50)]
    pub connections: usize,
    /// Driver threads.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Requests under way on a connection at most.
    #[arg(long, default_value_t = 1)]
    pub pipeline: usize,
    /// Offered load in requests a second, Poisson arrivals (open loop). Without it every
    /// connection is kept busy (closed loop).
    #[arg(long)]
    pub rate: Option<f64>,
    /// Seconds measured.
    #[arg(long, default_value_t = 5.0)]
    pub duration: f64,
    /// Seconds before measuring starts.
    #[arg(long, default_value_t = 1.0)]
    pub warm_up: f64,
    /// Number of keys.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Length of keys in bytes.
    #[arg(long, default_value_t = 16)]
    pub key_bytes: usize,
    /// Lengths of values: 64, 64..1400, or shares of the keys: 64..1400@0.995,500000@0.005.
    #[arg(long, default_value = "64")]
    pub value_bytes: Sizes,
    /// Share of reads.
    #[arg(long, default_value_t = 0.95)]
    pub get_ratio: f64,
    /// Zipf exponent of the keys' popularity; 0 is uniform.
    #[arg(long, default_value_t = 0.99)]
    pub zipf: f64,
    /// Stores every key once before the run.
    #[arg(long)]
    pub preload: bool,
    /// Stores every key once and does nothing else.
    #[arg(long)]
    pub preload_only: bool,
    /// Makes this many requests a thread in advance and counts replies by bytes: the driver that
    /// is not the limit (closed loop only).
    #[arg(long, value_name = "REQUESTS", num_args = 0..=1, default_missing_value = "1000000")]
    pub pregenerated: Option<usize>,
    /// Cores to pin the threads to, in turn.
    #[arg(long, value_delimiter = ',')]
    pub pin: Vec<usize>,
    /// Polls without sleeping; for latencies on a core of its own.
    #[arg(long)]
    pub spin: bool,
    /// Length of a window in milliseconds.
    #[arg(long, default_value_t = 20.0)]
    pub window_ms: f64,
    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Process of the server, to measure its processor time.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Prints one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Runs what the arguments ask for and prints the outcome. Fails on errors and wrong sizes, not on
/// misses.
pub fn run(args: &BenchArgs) -> Result<ExitCode, LoadError> {
    match &args.command {
        Some(BenchCommand::Compare(args)) => compare::run(args),
        None => run_one(&args.load),
    }
}

fn run_one(args: &LoadArgs) -> Result<ExitCode, LoadError> {
    let plan = args.plan()?;
    plan.workload.check()?;
    if args.preload || args.preload_only {
        let preloaded = preload::preload(&plan.target, &plan.workload, plan.threads)?;
        if preloaded.refused > 0 {
            eprintln!("{} of {} keys were refused", preloaded.refused, args.keys);
        }
    }
    if args.preload_only {
        return Ok(ExitCode::SUCCESS);
    }
    let report = measure(&plan)?;
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(if report.faults() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl LoadArgs {
    /// The plan that the arguments describe.
    pub fn plan(&self) -> Result<Plan, LoadError> {
        Ok(Plan {
            target: self.target.clone(),
            workload: Workload {
                protocol: self.protocol,
                keys: self.keys,
                key_bytes: self.key_bytes,
                sizes: self.value_bytes.clone(),
                get_ratio: self.get_ratio,
                popularity: if self.zipf == 0.0 {
                    Popularity::Uniform
                } else {
                    Popularity::Zipf(self.zipf)
                },
            },
            connections: self.connections,
            threads: self.threads,
            pipeline: self.pipeline,
            rate: self.rate,
            warm_up: seconds(self.warm_up, "warm-up")?,
            duration: seconds(self.duration, "duration")?,
            window: seconds(self.window_ms / 1000.0, "window")?,
            pregenerated: self.pregenerated,
            cores: self.pin.clone(),
            spin: self.spin,
            seed: self.seed,
            server_pid: self.server_pid,
        })
    }
}

fn seconds(number: f64, what: &str) -> Result<Duration, LoadError> {
    Duration::try_from_secs_f64(number)
        .map_err(|_| LoadError::Arguments(format!("{what} of {number} s")))
}
