//! `cargo xtask bench growth`: a node is added to a cluster of two while all keys are written, of
//! which a third move to it (the case of valkey issue 4545).
//!
//! ```text
//!   round:  quiet run | run during which node 2 is added, and its keys move | node 2 leaves
//! ```
//!
//! Both runs offer the same rate to the first two nodes, one after the other, and are told by their
//! windows of 20 ms: the medians over windows of the median and of the 99th percentile, its upper
//! quartile, and the longest request. So a machine that is slow today is slow in both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process::Log;
use crate::tally::Outcome;
use crate::trial::Trial;
use crate::workspace::{Workspace, cargo};

/// What was asked for.
struct Asked {
    /// Writes a second: a third of them are to keys that move.
    rate: u64,
    rounds: usize,
    keys: u64,
    binary: Option<PathBuf>,
}

/// What windows of one run say, in microseconds; `None` where the driver itself was late.
#[derive(Clone, Copy, Debug)]
struct Told {
    p50: Option<f64>,
    p99: Option<f64>,
    /// Of the windows, a quarter have a higher p99.
    p99_upper: Option<f64>,
    longest: Option<f64>,
    rate: f64,
    failed: u64,
}

/// Before measuring starts; the node is added then.
const WARM_UP: Duration = Duration::from_millis(300);

/// A run is so long. The keys are so many that they move for most of it: medians over windows
/// would not see a short disturbance.
const SECONDS: &str = "3";

/// Whether these arguments of `bench` are for this module.
pub(super) fn is_asked(arguments: &[String]) -> bool {
    arguments.first().is_some_and(|name| name == "growth")
}

/// Runs what is asked for.
pub(super) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let asked = Asked::parse(arguments.get(1..).unwrap_or_default())?;
    let binary = match &asked.binary {
        Some(binary) => binary.clone(),
        None => {
            let mut build = Command::new(cargo());
            build.args(["build", "--release", "--package", "curtail-cli"]);
            Log::terminal().run(build.current_dir(&workspace.root))?;
            workspace.target.join("release/curtail")
        }
    };
    let folder = workspace.scratch("growth")?;
    let flags = ["--threads", "1", "--memory", "256"];
    let trial = Trial::start(&binary, folder, (2, 1), &flags)?;
    preload(&binary, &trial, &asked)?;
    let mut text = String::from(HEADING);
    for round in 0..asked.rounds {
        let quiet = finish(begin(&binary, &trial, &asked)?)?;
        let run = begin(&binary, &trial, &asked)?;
        std::thread::sleep(WARM_UP);
        let start = Instant::now();
        trial.ask(&["add", "2"])?;
        let took = start.elapsed();
        let grown = finish(run)?;
        trial.ask(&["remove", "2"])?;
        text += &row(round, "quiet", &quiet, None);
        text += &row(round, "a node is added", &grown, Some(took));
    }
    print!("{text}");
    fs::write(workspace.scratch("bench")?.join("growth.md"), text)?;
    Ok(Outcome::passed())
}

impl Asked {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut asked = Self {
            rate: 90_000,
            rounds: 5,
            keys: 1_000_000,
            binary: None,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} of what?"))?;
            match word.as_str() {
                "--rate" => asked.rate = value.parse()?,
                "--rounds" => asked.rounds = value.parse()?,
                "--keys" => asked.keys = value.parse()?,
                "--binary" => asked.binary = Some(value.into()),
                other => bail!("bench growth has no {other}: --rate, --rounds, --keys, --binary"),
            }
        }
        Ok(asked)
    }
}

fn driver(binary: &Path, trial: &Trial, asked: &Asked) -> Command {
    let ports = trial.ports.iter();
    let nodes: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    let mut command = Command::new(binary);
    command.args(["bench", "--target", &nodes.join("+"), "--zipf", "0"]);
    command.args(["--keys", &asked.keys.to_string(), "--get-ratio", "0"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn preload(binary: &Path, trial: &Trial, asked: &Asked) -> Result<()> {
    let mut command = driver(binary, trial, asked);
    let status = command
        .arg("--preload-only")
        .stdout(Stdio::null())
        .status()?;
    match status.success() {
        true => Ok(()),
        false => bail!("the keys could not be stored"),
    }
}

fn begin(binary: &Path, trial: &Trial, asked: &Asked) -> Result<Child> {
    let mut command = driver(binary, trial, asked);
    command.args(["--rate", &asked.rate.to_string(), "--duration", SECONDS]);
    command.args([
        "--warm-up",
        &WARM_UP.as_secs_f64().to_string(),
        "--connections",
        "8",
        "--pipeline",
        "32",
        // One that sleeps is late itself by as much as a quiet node takes.
        "--spin",
        "--json",
    ]);
    Ok(command.stdout(Stdio::piped()).spawn()?)
}

fn finish(run: Child) -> Result<Told> {
    let output = run.wait_with_output()?;
    let report: Value = serde_json::from_slice(&output.stdout).context("the driver's report")?;
    let step = &report["steps"][0];
    let number = |value: &Value| value.as_f64();
    let windows = &step["windows"];
    Ok(Told {
        p50: number(&windows["p50_us"]),
        p99: number(&windows["p99_us"]),
        p99_upper: number(&windows["p99_upper_quartile_us"]),
        longest: number(&step["all"]["max_us"]),
        rate: number(&step["rate"]).unwrap_or(0.0),
        failed: step["counts"]["errors"].as_u64().unwrap_or(0),
    })
}

fn row(round: usize, what: &str, told: &Told, took: Option<Duration>) -> String {
    let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.0}"));
    let took = took.map_or(String::new(), |took| format!("{:.1} s", took.as_secs_f64()));
    let Told { rate, failed, .. } = told;
    let (p50, p99, longest) = (us(told.p50), us(told.p99), us(told.longest));
    let upper = us(told.p99_upper);
    let times = format!("{p50} | {p99} | {upper} | {longest}");
    format!("| {round} | {what} | {rate:.0} | {times} | {failed} | {took} |\n")
}

const HEADING: &str = "\
| round | run | writes/s | p50, us | p99, us | upper quartile | longest, us | errors | settled in |
|---|---|---|---|---|---|---|---|---|
";
