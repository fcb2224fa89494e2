//! A trial cluster of one worker a node, as a system of the comparison runs it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use curtail_client::memcached::Connection;

use super::plan::System;
use crate::trial_cluster::Trial;

/// The cluster, until it is dropped.
pub(super) struct Nodes {
    system: System,
    trial: Trial,
    /// The nodes' processes.
    ids: Vec<u32>,
}

/// Numbers of `stats curtail`, summed over the nodes.
pub(super) type Numbers = HashMap<String, f64>;

/// A cluster that is not whole by then never will be.
const START_MAX: Duration = Duration::from_secs(30);

/// A node that does not answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

impl Nodes {
    /// Starts `count` nodes and waits until they are one cluster.
    pub(super) fn start(
        binary: &Path,
        folder: PathBuf,
        count: usize,
        system: System,
        hot_keys: usize,
    ) -> Result<Self> {
        let model = match system {
            System::Sc => "sc",
            _ => "lin",
        };
        let hot_keys = if system.shares() { hot_keys } else { 0 }.to_string();
        let mut flags = vec!["--model", model, "--threads", "1", "--memory", "64"];
        // Long, so that a machine whose cores are all busy does not fence its nodes.
        flags.extend(["--lease-ms", "5000"]);
        flags.extend(["--", "--hot-keys", &hot_keys]);
        if system == System::Erew {
            flags.extend(["--policy", "erew"]);
        }
        let trial = Trial::start(binary, folder, (count as u16, 0), &flags)?;
        let ids = trial.ports.iter().map(|port| process(*port));
        let ids: Result<Vec<u32>> = ids.collect();
        let ids = ids.map_err(|error| trial.failure(&format!("{error:#}")))?;
        let cluster = Self { system, trial, ids };
        cluster.await_whole()?;
        Ok(cluster)
    }

    fn await_whole(&self) -> Result<()> {
        let start = Instant::now();
        let count = self.count() as f64;
        while start.elapsed() < START_MAX {
            let runs = |id: &&u32| Path::new(&format!("/proc/{id}")).exists();
            if let Some(id) = self.ids.iter().find(|id| !runs(id)) {
                let why = format!("process {id} of {count} nodes ended");
                return Err(self.trial.failure(&why));
            }
            let is_whole = |numbers: &Numbers| {
                let all = |name: &str, wanted: f64| numbers.get(name) == Some(&wanted);
                all("cluster_nodes_live", count * count)
                    && all("cluster_nodes_placed", count * count)
                    && all("cluster_serves", count)
                    && all("cluster_moves", 0.0)
            };
            if self.numbers().is_ok_and(|numbers| is_whole(&numbers)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let why = format!("{count} nodes were no cluster within {START_MAX:?}");
        Err(self.trial.failure(&why))
    }

    /// How many nodes it has.
    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }

    /// How it is run.
    pub(super) fn system(&self) -> System {
        self.system
    }

    /// `HOST:PORT+HOST:PORT..` as the load generator takes it.
    pub(super) fn target(&self) -> String {
        let ports = self.trial.ports.iter();
        let all: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        all.join("+")
    }

    /// `PID+PID..`.
    pub(super) fn processes(&self) -> String {
        let all: Vec<String> = self.ids.iter().map(u32::to_string).collect();
        all.join("+")
    }

    /// The processes' ids.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.ids.clone()
    }

    /// What all nodes say, summed.
    pub(super) fn numbers(&self) -> Result<Numbers> {
        let mut sum = Numbers::new();
        for &port in &self.trial.ports {
            ask(port, &mut sum).with_context(|| format!("asking the node at port {port}"))?;
        }
        Ok(sum)
    }
}

/// The process of the node at this port.
fn process(port: u16) -> Result<u32> {
    let mut rows = Connection::to(("127.0.0.1", port), PATIENCE)?
        .stats("")?
        .into_iter();
    let id = rows.find(|(name, _)| name == "pid");
    let (_, id) = id.with_context(|| format!("the node at port {port} has no pid"))?;
    Ok(id.parse()?)
}

fn ask(port: u16, sum: &mut Numbers) -> Result<()> {
    let mut connection = Connection::to(("127.0.0.1", port), PATIENCE)?;
    for (name, value) in connection.stats("curtail")? {
        if let Ok(number) = value.parse::<f64>() {
            *sum.entry(name).or_default() += number;
        }
    }
    Ok(())
}
