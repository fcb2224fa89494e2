//! `cargo xtask bench cluster`: clusters that share hot keys against clusters that do not (ccKVS,
//! EuroSys 2018, section 8), on this machine's loopback, in one block of runs.
//!
//! ```text
//!   for each number of nodes:
//!     clusters of 2 and 3 nodes (calibration) and of N (lin, sc, base, base-erew) start, preload
//!     rounds: every cluster in turn at every write ratio ──> curtail bench, stats curtail
//!     medians ──> what messages cost (CC-58) ──> measured and modelled ratios, break-even
//! ```
//!
//! The defaults are three sizes in three rounds, 10 to 12 minutes on an idle machine.
//!
//! The client has the same cores as the nodes, so requests a second say little about the nodes
//! alone. What is compared with the model is their processor time for a request; the requests a
//! second stand beside it. A write ratio above a key's break-even has the coordinator take the key
//! back; so every run begins by reading until the hot set is whole, and is short. `--decided lin`
//! is the other way round: each mix runs until the hot set is what the nodes make of it.

mod fitted_costs;
mod hot_keys_or_none;
mod nodes;
mod other_programs_cpu;
mod plan;
mod run;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use self::{
    nodes::Nodes,
    plan::System,
    run::{Driver, Run},
};
use super::{build, list, take_all};
use crate::check_result::Outcome;
use crate::workspace::Workspace;

/// What was asked for.
struct Asked {
    /// Sizes of the clusters.
    nodes: Vec<usize>,
    /// Measured in each run.
    seconds: f64,
    rounds: usize,
    keys: u64,
    hot_keys: usize,
    /// Shares of writes.
    writes: Vec<f64>,
    /// Connections for each node.
    connections: usize,
    /// Made first if none is named.
    binary: Option<PathBuf>,
    folder: PathBuf,
    /// Only what nodes decide themselves, with these models.
    decided: Vec<System>,
}

/// Runs what is asked for.
pub(super) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let asked = Asked::parse(arguments, workspace.scratch("bench")?)?;
    let binary = asked.binary.clone();
    let binary = binary.map_or_else(|| build(workspace), Ok)?;
    fs::create_dir_all(&asked.folder)?;
    let mut runs = Vec::new();
    let mut text = String::new();
    if !asked.decided.is_empty() {
        return decided(&asked, &binary);
    }
    for &nodes in &asked.nodes {
        let block = block(&asked, &binary, nodes)?;
        let part = table::block(nodes, &block);
        print!("{part}");
        text += &part;
        runs.extend(block);
    }
    fs::write(asked.folder.join("cluster.md"), text)?;
    fs::write(asked.folder.join("cluster.csv"), table::csv(&runs))?;
    println!("tables and rows: {}", asked.folder.display());
    Ok(Outcome::passed())
}

/// What nodes decide, for every size and model.
fn decided(asked: &Asked, binary: &Path) -> Result<Outcome> {
    let driver = Driver::new(asked, binary);
    let mut text = String::new();
    for &nodes in &asked.nodes {
        let without = driver.start(asked, nodes, System::Base)?;
        for &system in &asked.decided {
            let sharing = driver.start(asked, nodes, system)?;
            let pair = (&sharing, &without);
            let runs = hot_keys_or_none::runs(&driver, pair, &asked.writes, asked.rounds)?;
            let part = hot_keys_or_none::table(nodes, &runs);
            print!("{part}");
            text += &part;
            fs::write(asked.folder.join("cluster-decided.md"), &text)?;
        }
    }
    Ok(Outcome::passed())
}

/// All runs of clusters of one size, and of the small ones that calibrate the model.
fn block(asked: &Asked, binary: &Path, nodes: usize) -> Result<Vec<Run>> {
    let driver = Driver::new(asked, binary);
    let start = |count: usize, system: System| driver.start(asked, count, system);
    let mut clusters = Vec::new();
    let mut jobs = Vec::new();
    for &smaller in plan::smaller(nodes) {
        for system in [System::Lin, System::Sc, System::Base] {
            clusters.push(start(smaller, system)?);
        }
        jobs.extend(plan::calibration(smaller, &asked.writes));
    }
    for system in [System::Lin, System::Sc, System::Base, System::Erew] {
        clusters.push(start(nodes, system)?);
    }
    jobs.extend(plan::comparison(nodes, &asked.writes));
    let mut runs: Vec<Run> = Vec::new();
    for round in 0..asked.rounds {
        let mut due = jobs.clone();
        // What is offered when latencies are compared depends on the first round's capacity.
        for number in 0.. {
            if number == jobs.len() {
                due.extend(plan::paced(nodes, &runs));
            }
            let Some(job) = due.get(number) else {
                break;
            };
            let is_asked =
                |cluster: &&Nodes| cluster.count() == job.nodes && cluster.system() == job.system;
            let found = clusters.iter().find(is_asked);
            let cluster = found.context("a run of a cluster that was not started")?;
            runs.push(driver.run(cluster, job, round)?);
        }
    }
    Ok(runs)
}

impl Asked {
    fn parse(arguments: &[String], folder: PathBuf) -> Result<Self> {
        let mut asked = Self {
            nodes: vec![3, 4, 8],
            seconds: 0.8,
            rounds: 3,
            keys: 5_000,
            hot_keys: 64,
            writes: vec![0.0, 0.01, 0.03, 0.06, 0.1, 0.2],
            connections: 4,
            binary: None,
            folder,
            decided: Vec::new(),
        };
        take_all("cluster", arguments, |word, value| {
            match word {
                "--nodes" => asked.nodes = list(value)?,
                "--seconds" => asked.seconds = value.parse()?,
                "--rounds" => asked.rounds = value.parse()?,
                "--keys" => asked.keys = value.parse()?,
                "--hot-keys" => asked.hot_keys = value.parse()?,
                "--writes" => asked.writes = list(value)?,
                "--connections" => asked.connections = value.parse()?,
                "--out" => asked.folder = value.into(),
                "--ours" => asked.binary = Some(value.into()),
                "--decided" => asked.decided = models(value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if asked.rounds == 0 || asked.connections == 0 {
            bail!("at least one round, and one connection for each node");
        }
        if asked.nodes.iter().any(|nodes| !(3..=64).contains(nodes)) {
            bail!("clusters have 3 to 64 nodes; smaller ones calibrate the model");
        }
        if !asked.writes.contains(&0.0) || !asked.writes.is_sorted() {
            bail!("write ratios in ascending order, beginning with 0");
        }
        Ok(asked)
    }
}

/// `lin,sc`.
fn models(text: &str) -> Result<Vec<System>> {
    let named = |name: &str| match name {
        "lin" => Ok(System::Lin),
        "sc" => Ok(System::Sc),
        _ => bail!("{name} is no model: lin, sc"),
    };
    text.split(',').map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Asked> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Asked::parse(&words, PathBuf::new())
    }

    /// Goal: what is asked for is understood, and what is not is refused.
    #[test]
    fn arguments_are_understood() {
        let asked = parse("--nodes 3,8 --seconds 0.5 --writes 0,0.05").unwrap();
        assert_eq!((asked.nodes, asked.seconds), (vec![3, 8], 0.5));
        assert_eq!(asked.writes, [0.0, 0.05]);
        assert_eq!(asked.decided, []);
        let asked = parse("--decided lin,sc").unwrap();
        assert_eq!(asked.decided, [System::Lin, System::Sc]);
        for line in [
            "--nodes 2",
            "--nodes x",
            "--rounds 0",
            "--writes 0.01,0.05",
            "--writes 0,0.2,0.1",
            "--colour 1",
            "--decided base",
            "--seconds",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
