//! A trial cluster (`curtail cluster up`) for suites and benches.

use std::fs::{DirBuilder, OpenOptions};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, bail, ensure};

use crate::process::{Log, Running};
use crate::server::{free_ports, is_free};

/// The cluster, until it is dropped.
pub(crate) struct Trial {
    binary: PathBuf,
    folder: PathBuf,
    /// Where each node answers clients.
    pub(crate) ports: Vec<u16>,
    running: Running,
    /// What it and its nodes wrote.
    log: Log,
}

/// A node lets clients in when it is in service: all do by then, or never will.
const START_MAX: Duration = Duration::from_secs(20);

/// Lines of the log that an error shows.
const LOG_LINES: usize = 30;

impl Trial {
    /// Starts a cluster of `nodes` and waits until all are in service; `spare` more ports are free.
    pub(crate) fn start(
        binary: &Path,
        folder: PathBuf,
        (nodes, spare): (u16, u16),
        flags: &[&str],
    ) -> Result<Self> {
        let base = ports_in_a_row(nodes + spare)?;
        let mut command = Command::new(binary);
        let (count, port) = (nodes.to_string(), base.to_string());
        command.args(["cluster", "up", "--nodes", &count, "--port", &port, "--dir"]);
        command.arg(&folder).args(flags);
        // Nobody else may write to it.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)?;
        let path = folder.join("up.log");
        let log = Log::file(path.clone())?;
        let file = OpenOptions::new().append(true).open(path)?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        let mut trial = Self {
            binary: binary.to_owned(),
            folder,
            ports: (base..base + nodes).collect(),
            running: Running::start(&mut command)?,
            log,
        };
        let start = Instant::now();
        let connects = |&port: &u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
        while !trial.ports.iter().all(connects) {
            if trial.running.has_ended()? || start.elapsed() > START_MAX {
                let why = format!("{nodes} nodes from port {base} on did not come up");
                return Err(trial.failure(&why));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(trial)
    }

    /// An error that shows the end of what the cluster wrote.
    pub(crate) fn failure(&self, why: &str) -> Error {
        anyhow!("{why}; their log ends:\n{}", self.log.tail(LOG_LINES))
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

/// The first of as many ports in a row that were free a moment ago.
fn ports_in_a_row(count: u16) -> Result<u16> {
    match free_ports().find(|&base| (base..base + count).all(is_free)) {
        Some(base) => Ok(base),
        None => bail!("no {count} ports in a row are free"),
    }
}
