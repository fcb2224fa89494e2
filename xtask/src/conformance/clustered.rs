//! pymemcache with a cluster: unchanged, whichever nodes it is pointed at.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::clients;
use crate::process::{Log, Running};
use crate::server::free_port;
use crate::tally::{Outcome, Tally};
use crate::workspace::Workspace;

/// A trial cluster, until it is dropped.
struct Trial {
    ports: Vec<u16>,
    _running: Running,
}

const NODES: u16 = 3;

/// A node lets clients in when it is in service: all do by then, or never will.
const START_MAX: Duration = Duration::from_secs(20);

/// pymemcache's own tests at one node, then ours with its clients at one, at all and at any.
pub(super) fn pymemcache(workspace: &Workspace, log: &Log, server: &[String]) -> Result<Outcome> {
    let trial = Trial::start(workspace, server)?;
    let port = trial.ports.last().copied().context("a cluster of nobody")?;
    let mut outcome = clients::pymemcache_at(workspace, log, port)?;
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

impl Trial {
    fn start(workspace: &Workspace, server: &[String]) -> Result<Self> {
        let base = free_ports()?;
        let folder = workspace.scratch("trial-cluster")?;
        let program = server.first().context("no server is named")?;
        let mut command = Command::new(program);
        let (nodes, port) = (NODES.to_string(), base.to_string());
        command.args(["cluster", "up", "--nodes", &nodes, "--port", &port, "--dir"]);
        command.arg(folder);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut running = Running::start(&mut command)?;
        let ports: Vec<u16> = (base..base + NODES).collect();
        let start = Instant::now();
        while !ports
            .iter()
            .all(|&port| TcpStream::connect(("127.0.0.1", port)).is_ok())
        {
            if running.has_ended()? || start.elapsed() > START_MAX {
                bail!("a trial cluster on ports {base} and the next two did not come up");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self {
            ports,
            _running: running,
        })
    }
}

/// The first of as many ports in a row that were free a moment ago.
fn free_ports() -> Result<u16> {
    for _ in 0..100 {
        let base = free_port()?;
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if base < u16::MAX - NODES && (base..base + NODES).all(free) {
            return Ok(base);
        }
    }
    bail!("no {NODES} ports in a row are free")
}
