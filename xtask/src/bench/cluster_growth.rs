//! `cargo xtask bench growth`: a node is added to a cluster of two while all keys are written, of
//! which a third move to it (the case of valkey issue 4545), and leaves again.
//!
//! ```text
//!   round:  quiet, two nodes | node 2 is added, its keys move | quiet, three nodes | node 2 leaves
//! ```
//!
//! All runs offer the same rate to the first two nodes, one after the other, and are told by their
//! windows of 20 ms: the medians over windows of the median and of the 99th percentile, its upper
//! quartile, and the longest request. So a machine that is slow today is slow in all. How long keys
//! moved during a run is looked at: medians would not see a short disturbance.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use curtail_client::memcached::Connection;
use curtail_report::Table;
use serde_json::Value;

use crate::check_result::Outcome;
use crate::trial_cluster::Trial;
use crate::workspace::Workspace;

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

/// A run during which keys move.
struct Moving {
    told: Told,
    /// Keys that the first node sent.
    sent: u64,
    /// How long keys moved while it was measured.
    moved: Duration,
    lasts: Duration,
    /// When all of them were in their place.
    settled: Duration,
}

/// Before measuring starts; the node is added then.
const WARM_UP: Duration = Duration::from_millis(300);

/// A quiet run.
const QUIET: Duration = Duration::from_secs(3);

/// A run during which keys move, the first time: the load is to last until all are in their place.
/// Then the load lasts as long as that took the last time, so that windows without moves are few.
const MOVING: Duration = Duration::from_secs(20);

/// Between two looks whether keys move: each costs the node a turn that requests wait for.
const GLANCE: Duration = Duration::from_millis(250);

/// Runs what is asked for.
pub(super) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let asked = Asked::parse(arguments)?;
    let binary = asked.binary.clone();
    let binary = binary.map_or_else(|| super::build(workspace), Ok)?;
    let folder = workspace.scratch("growth")?;
    let flags = ["--threads", "1", "--memory", "256"];
    let trial = Trial::start(&binary, folder, (2, 1), &flags)?;
    preload(&binary, &trial, &asked)?;
    let mut table = Table::default();
    let (mut grows, mut shrinks) = (MOVING, MOVING);
    for round in 0..asked.rounds {
        let two = finish(begin(&binary, &trial, &asked, QUIET)?)?;
        let grown = moving(&binary, &trial, (&asked, grows), &["add", "2"])?;
        let three = finish(begin(&binary, &trial, &asked, QUIET)?)?;
        let shrunk = moving(&binary, &trial, (&asked, shrinks), &["remove", "2"])?;
        (grows, shrinks) = (next(&grown), next(&shrunk));
        table.named(&row(round, "quiet, two nodes", &two, None));
        table.named(&row(
            round,
            "a node is added",
            &grown.told,
            Some((&grown, &two)),
        ));
        table.named(&row(round, "quiet, three nodes", &three, None));
        table.named(&row(
            round,
            "it leaves",
            &shrunk.told,
            Some((&shrunk, &three)),
        ));
    }
    let text = table.markdown();
    print!("{text}");
    fs::write(workspace.scratch("bench")?.join("growth.md"), text)?;
    Ok(Outcome::passed())
}

impl Asked {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut asked = Self {
            rate: 30_000,
            rounds: 3,
            keys: 1_000_000,
            binary: None,
        };
        super::take_all("growth", arguments, |word, value| {
            match word {
                "--rate" => asked.rate = value.parse()?,
                "--rounds" => asked.rounds = value.parse()?,
                "--keys" => asked.keys = value.parse()?,
                "--binary" => asked.binary = Some(value.into()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
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

fn begin(binary: &Path, trial: &Trial, asked: &Asked, lasts: Duration) -> Result<Child> {
    let mut command = driver(binary, trial, asked);
    command.args(["--rate", &asked.rate.to_string()]);
    command.args(["--duration", &lasts.as_secs_f64().to_string()]);
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

/// How long the load of the next such run lasts.
fn next(moving: &Moving) -> Duration {
    let seconds = moving.settled.as_secs_f64().ceil().max(2.0);
    Duration::from_secs_f64(seconds)
}

/// A run of so long during which `words` change the cluster.
fn moving(
    binary: &Path,
    trial: &Trial,
    (asked, lasts): (&Asked, Duration),
    words: &[&str],
) -> Result<Moving> {
    let mut look = Look::at(trial)?;
    let before = look.numbers()?;
    let run = begin(binary, trial, asked, lasts)?;
    thread::sleep(WARM_UP);
    let start = Instant::now();
    let watch: JoinHandle<Result<Duration>> = thread::spawn(move || {
        let mut moved = Duration::ZERO;
        while start.elapsed() < lasts {
            let since = Instant::now();
            thread::sleep(GLANCE);
            if look.numbers()?.moves {
                moved += since.elapsed();
            }
        }
        Ok(moved)
    });
    trial.ask(words)?;
    let settled = start.elapsed();
    let told = finish(run)?;
    let moved = watch.join().map_err(|_| anyhow::anyhow!("no watch"))??;
    let after = Look::at(trial)?.numbers()?;
    Ok(Moving {
        told,
        sent: after.sent - before.sent,
        moved,
        lasts,
        settled,
    })
}

/// A node that does not answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to the first node, for its numbers.
struct Look(Connection);

/// What a node says of moves.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    moves: bool,
    sent: u64,
}

impl Look {
    fn at(trial: &Trial) -> Result<Self> {
        let port = trial.ports.first().context("a cluster without nodes")?;
        Ok(Self(Connection::to(("127.0.0.1", *port), PATIENCE)?))
    }

    fn numbers(&mut self) -> Result<Numbers> {
        let mut numbers = Numbers::default();
        for (name, value) in self.0.stats("curtail")? {
            let number = || value.parse().unwrap_or(0);
            match name.as_str() {
                "cluster_moves" => numbers.moves = number() > 0,
                "cluster_keys_sent" => numbers.sent = number(),
                _ => {}
            }
        }
        Ok(numbers)
    }
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

/// What a run says, and what moved in it beside a quiet one.
fn row(
    round: usize,
    what: &str,
    told: &Told,
    moving: Option<(&Moving, &Told)>,
) -> [(&'static str, String); 12] {
    let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.0}"));
    let moved = |text: fn(&Moving, &Told) -> String| {
        moving.map_or_else(String::new, |(run, quiet)| text(run, quiet))
    };
    let ratio = moved(|run, quiet| {
        let ratio = run.told.p99.zip(quiet.p99);
        ratio.map_or("-".to_owned(), |(p99, quiet)| format!("{:.2}", p99 / quiet))
    });
    let keys = moved(|run, _| run.sent.to_string());
    let moving =
        moved(|run, _| format!("{:.1} of {}", run.moved.as_secs_f64(), run.lasts.as_secs()));
    [
        ("round", round.to_string()),
        ("run", what.to_owned()),
        ("writes/s", format!("{:.0}", told.rate)),
        ("errors", told.failed.to_string()),
        ("p50, us", us(told.p50)),
        ("p99, us", us(told.p99)),
        ("upper quartile", us(told.p99_upper)),
        ("longest, us", us(told.longest)),
        ("p99, times quiet", ratio),
        ("keys that node 0 sent", keys),
        ("moving, s", moving),
        (
            "settled in, s",
            moved(|run, _| format!("{:.1}", run.settled.as_secs_f64())),
        ),
    ]
}
