//! `cargo xtask bench nic --only clusters|overload`: the released server in each of its modes, over
//! links between two network namespaces, in the same run.
//!
//! ```text
//!   namespace of the servers          one link a server          namespace of the driver
//!   raw 10.77.1.1, deferred 10.77.2.1, io-ack ..  <-- veth -->   curtail bench --protocol native
//!   processor 0 (--cores two: and 1)                              processor 1
//! ```
//!
//! All servers are up at once, the idle ones asleep, and are measured in turn, several rounds;
//! tables hold medians over the rounds and ratios taken within a round. Loads are shares of what
//! RawRPC reaches in a closed loop just before. The rows go to a CSV of the form that `curtail
//! simulate FIGURE --real` draws beside the simulated ones. Needs root, iproute2 and util-linux.

mod link;
mod load;
mod overload;
mod table;
mod twitter_clusters;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use self::link::Cores;
use super::{list, take_all};
use crate::check_result::Outcome;
use crate::process::Log;
use crate::server;
use crate::workspace::Workspace;

/// What was asked for.
struct Asked {
    part: Part,
    /// Twitter's clusters, by number; empty for all.
    clusters: Vec<u16>,
    cores: Cores,
    rounds: usize,
    /// Measured in each run.
    seconds: f64,
    /// Processor time of each execution, in microseconds.
    work_us: f64,
    /// Shares of RawRPC's capacity; empty for the part's own.
    loads: Vec<f64>,
    /// Further arguments of the servers.
    server: Vec<String>,
    /// Made first if none is named.
    binary: Option<PathBuf>,
    folder: PathBuf,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Clusters,
    Overload,
}

/// Runs what is asked for.
pub(super) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let asked = Asked::parse(arguments, workspace.scratch("bench")?)?;
    let build = || server::build_with_baselines(workspace, &Log::terminal());
    let binary = asked.binary.clone().map_or_else(build, Ok)?;
    match asked.part {
        Part::Clusters => twitter_clusters::run(&asked, &binary)?,
        Part::Overload => overload::run(&asked, &binary)?,
    }
    Ok(Outcome::passed())
}

impl Asked {
    fn parse(arguments: &[String], folder: PathBuf) -> Result<Self> {
        let mut part = None;
        let mut asked = Self {
            part: Part::Clusters,
            clusters: Vec::new(),
            cores: Cores::One,
            rounds: 3,
            seconds: 0.6,
            work_us: 10.0,
            loads: Vec::new(),
            server: Vec::new(),
            binary: None,
            folder,
        };
        take_all("nic", arguments, |word, value| {
            match word {
                "--only" => part = Some(value.parse()?),
                "--cluster" => asked.clusters = list(value)?,
                "--cores" => asked.cores = value.parse()?,
                "--rounds" => asked.rounds = value.parse()?,
                "--seconds" => asked.seconds = value.parse()?,
                "--work-us" => asked.work_us = value.parse()?,
                "--load" => asked.loads = list(value)?,
                "--server" => asked.server = value.split(' ').map(str::to_owned).collect(),
                "--ours" => asked.binary = Some(value.into()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        asked.part = part.context("`bench nic` or `bench nic --only clusters|overload ..`")?;
        if asked.rounds == 0 {
            bail!("at least one round");
        }
        Ok(asked)
    }
}

impl std::str::FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "clusters" => Ok(Self::Clusters),
            "overload" => Ok(Self::Overload),
            _ => bail!("{name} is not clusters or overload"),
        }
    }
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
        let asked = parse("--only clusters --cluster 12,31 --rounds 5 --cores two").unwrap();
        assert_eq!((asked.clusters, asked.rounds), (vec![12, 31], 5));
        assert!(asked.cores == Cores::Two);
        for line in ["--only nothing", "--rounds 3", "--only overload --rounds 0"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
