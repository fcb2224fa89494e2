//! pymemcache against a cluster: unchanged, at any of its nodes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::clients;
use crate::check_result::{Outcome, Tally};
use crate::process::Log;
use crate::trial_cluster::Trial;
use crate::workspace::Workspace;

const NODES: u16 = 3;

/// pymemcache's own tests at one node, then ours with its clients at one, at all and at any.
pub(super) fn pymemcache(workspace: &Workspace, log: &Log, server: &[String]) -> Result<Outcome> {
    let program = server.first().context("no server is named")?;
    let folder = workspace.scratch("trial-cluster")?;
    let trial = Trial::start(Path::new(program), folder, (NODES, 0), &[])?;
    let port = trial.ports.last().copied().context("a cluster of nobody")?;
    let mut outcome = clients::pymemcache_at(workspace, log, port, &[])?;
    let script = workspace
        .root
        .join("xtask/conformance/pymemcache_cluster.py");
    let ports = trial.ports.iter().map(ToString::to_string);
    let mut command = Command::new(clients::python(workspace, log)?);
    command
        .args(["-B".as_ref(), script.as_os_str()])
        .args(ports);
    let finished = log.finish(&mut command)?;
    let count = |word: &str| {
        let said = finished
            .output
            .lines()
            .filter(|line| line.starts_with(word));
        said.count() as u64
    };
    let tally = Tally {
        passed: count("ok "),
        failed: count("FAILED "),
        skipped: 0,
    };
    outcome.tally += tally;
    if !finished.status.success() || tally.passed == 0 {
        outcome.failure = Some("pymemcache with several nodes fails".into());
    }
    Ok(outcome)
}
