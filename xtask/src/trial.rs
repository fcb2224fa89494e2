//! A trial cluster (`curtail cluster up`) for suites and benches.

use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::process::Running;

/// The cluster, until it is dropped.
pub(crate) struct Trial {
    binary: PathBuf,
    folder: PathBuf,
    /// Where each node answers clients.
    pub(crate) ports: Vec<u16>,
    _running: Running,
}

/// A node lets clients in when it is in service: all do by then, or never will.
const START_MAX: Duration = Duration::from_secs(20);

const PORTS: Range<u16> = 31_240..32_700;

impl Trial {
    /// Starts a cluster of `nodes` and waits until all are in service; `spare` more ports are free.
    pub(crate) fn start(
        binary: &Path,
        folder: PathBuf,
        (nodes, spare): (u16, u16),
        flags: &[&str],
    ) -> Result<Self> {
        let base = free_ports(nodes + spare)?;
        let mut command = Command::new(binary);
        let (count, port) = (nodes.to_string(), base.to_string());
        command.args(["cluster", "up", "--nodes", &count, "--port", &port, "--dir"]);
        command.arg(&folder).args(flags);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut running = Running::start(&mut command)?;
        let ports: Vec<u16> = (base..base + nodes).collect();
        let start = Instant::now();
        let connects = |&port: &u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
        while !ports.iter().all(connects) {
            if running.has_ended()? || start.elapsed() > START_MAX {
                bail!("a trial cluster of {nodes} nodes from port {base} on did not come up");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self {
            binary: binary.to_owned(),
            folder,
            ports,
            _running: running,
        })
    }

    /// `curtail cluster WORDS` for this cluster.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command
            .arg("cluster")
            .args(words)
            .arg("--dir")
            .arg(&self.folder);
        let output = command.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "curtail cluster {}: {said}",
            words.join(" ")
        );
        Ok(())
    }
}

/// The first of as many ports in a row that were free a moment ago, below those that the kernel
/// gives to whoever connects: a node that is down would find its own taken otherwise.
fn free_ports(count: u16) -> Result<u16> {
    let first = PORTS.start + (std::process::id() % 64) as u16 * 16;
    let bases = (first..PORTS.end).chain(PORTS.start..first);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut bases = bases.step_by(usize::from(count));
    match bases.find(|&base| (base..base + count).all(free)) {
        Some(base) => Ok(base),
        None => bail!("no {count} ports in a row are free"),
    }
}
