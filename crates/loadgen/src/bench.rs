//! `curtail bench`: runs, sweeps and searches against one or several servers, or `compare`.
//!
//! ```text
//!   arguments ──> run_steps ──> drive::measure, target after target
//!                     │ search: rates that the last answers ask for
//!                     v
//!                  document ──> summary (terminal), JSON, HDR files, HTML
//!   timeline: one run, with the server's plan second by second beside it
//! ```

mod arguments;
mod document;
mod files;
mod html;
mod rate_range;
mod run_steps;
mod search;
mod slo;
mod summary;
mod timeline;

use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::{Args, Subcommand};

use self::document::Document;
pub use self::{
    arguments::{LoadArgs, SeriesArgs, Target},
    rate_range::{Range, Sweep},
    slo::Slo,
};
use crate::{
    compare::{self, CompareArgs},
    error::LoadError,
    stop::Stop,
};

/// What a shell calls a process that was interrupted.
const INTERRUPTED: u8 = 130;

/// Generate load on running servers and report rates and latencies.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// Something other than runs against servers that are up.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// Runs against servers that are up.
    #[command(flatten)]
    pub load: LoadArgs,
    /// How many, and what is reported.
    #[command(flatten)]
    pub series: SeriesArgs,
}

/// The other things that `bench` does.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Start servers, measure them in turn in each round, and print medians, and ratios between
    /// servers within rounds.
    Compare(CompareArgs),
    /// Make one run against one target, and show the server's plan and latencies for each second.
    #[command(
        mut_arg("target", |arg| arg.help("Server to measure, HOST:PORT")),
        mut_arg("rate", |arg| arg.help(
            "Offered load in requests a second (open loop). Without it every connection sends its \
             next request after a reply (closed loop)"
        )),
        mut_arg("report", |arg| arg.help(
            "Folder into which timeline.csv and timeline.html are written"
        ))
    )]
    Timeline(Box<LoadArgs>),
}

impl BenchArgs {
    /// Whether the runs end in good order when they are asked to stop.
    pub fn can_stop(&self) -> bool {
        !matches!(self.command, Some(BenchCommand::Compare(_)))
    }
}

/// Runs what the arguments ask for and prints the outcome. Fails on errors, wrong lengths and wrong
/// values, not on misses, and where a search finds no rate. When `stop` is asked for or a server
/// ends, the outcome is what was measured until then, and a failure.
pub fn run(args: &BenchArgs, stop: &Stop) -> Result<ExitCode, LoadError> {
    match &args.command {
        Some(BenchCommand::Compare(args)) => compare::run(args),
        Some(BenchCommand::Timeline(args)) => timeline::run(args, stop),
        None => run_load(&args.load, &args.series, stop),
    }
}

fn run_load(args: &LoadArgs, series: &SeriesArgs, stop: &Stop) -> Result<ExitCode, LoadError> {
    let setting = args.setting(series, stop)?;
    if args.preload || series.preload_only {
        run_steps::preload(&setting, series.preload_only)?;
    }
    if series.preload_only {
        return Ok(match stop.is_asked() {
            true => ExitCode::from(INTERRUPTED),
            false => ExitCode::SUCCESS,
        });
    }
    let document = run_steps::run(&setting)?;
    report(args.report.as_deref(), series.json, &document)?;
    for fault in setting.faults() {
        eprintln!("{fault}");
    }
    if let Some(why) = &document.partial {
        eprintln!("the measurement is incomplete: {why}");
    }
    Ok(match (stop.is_asked(), document.faults()) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, 0) if document.is_answered() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Writes and prints the outcome in the forms that were asked for.
fn report(folder: Option<&Path>, json: bool, document: &Document) -> Result<(), LoadError> {
    if let Some(folder) = folder {
        files::write(folder, document)?;
    }
    let mut text = match json {
        true => document.json()? + "\n",
        false => summary::text(document),
    };
    if let (false, Some(folder)) = (json, folder) {
        text += &format!("report: {}\n", folder.join(files::PAGE).display());
    }
    // The reader may close the pipe early.
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(LoadError::machine("printing the outcome")(error))
        }
        _ => Ok(()),
    }
}
