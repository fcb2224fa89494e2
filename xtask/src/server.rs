//! The server under test: built, started on a free port, waited for, stopped.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use curtail_client::memcached;

use crate::process::{Log, Running};
use crate::workspace::{Workspace, cargo_command};

/// A server that is stopped when it goes out of scope.
pub(crate) struct Server {
    pub(crate) port: u16,
    running: Running,
}

/// Builds `curtail` and says where it is.
pub(crate) fn build(workspace: &Workspace, log: &Log) -> Result<PathBuf> {
    build_packages(workspace, log, &["--package", "curtail-cli"])
}

/// The same, with `curtail-lab` beside it.
pub(crate) fn build_with_lab(workspace: &Workspace, log: &Log) -> Result<PathBuf> {
    let both = ["--package", "curtail-cli", "--package", "curtail-lab"];
    build_packages(workspace, log, &both)
}

/// The same, with the placements that only a comparison needs.
pub(crate) fn build_with_baselines(workspace: &Workspace, log: &Log) -> Result<PathBuf> {
    let feature = [
        "--package",
        "curtail-cli",
        "--features",
        "curtail-cli/baselines",
    ];
    build_packages(
        workspace,
        log,
        &[&feature[..], &["--package", "curtail-lab"]].concat(),
    )
}

fn build_packages(workspace: &Workspace, log: &Log, packages: &[&str]) -> Result<PathBuf> {
    let mut command = cargo_command();
    command.args(["build", "--release"]).args(packages);
    log.run(command.current_dir(&workspace.root))?;
    Ok(workspace.target.join("release/curtail"))
}

/// How a server is spelled: ours is a command of `curtail`, others are a program of their own.
pub(crate) fn words(binary: &Path) -> Vec<String> {
    let mut words = vec![binary.display().to_string()];
    if binary.file_name().is_some_and(|name| name == "curtail") {
        words.push("serve".to_string());
    }
    words
}

impl Server {
    /// Starts `words` with `-p PORT` and waits until it accepts a connection.
    pub(crate) fn start(words: &[String], more: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let Some((program, rest)) = words.split_first() else {
            bail!("no server is named")
        };
        let mut command = Command::new(program);
        command
            .args(rest)
            .args(["-p", &port.to_string(), "-l", "127.0.0.1"])
            .args(more);
        if program.ends_with("memcached") {
            command.args(["-u", "root"]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Server {
            port,
            running: Running::start(&mut command)?,
        };
        server.wait_until_it_accepts()?;
        Ok(server)
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        let id = self.process().to_string();
        Command::new("kill").args(["-TERM", &id]).status()?;
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if self.running.has_ended()? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server did not stop when it was asked to")
    }

    /// The id of its process.
    pub(crate) fn process(&self) -> u32 {
        self.running.id()
    }

    fn wait_until_it_accepts(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            if self.running.has_ended()? {
                bail!("the server ended at once; start it by hand to see why");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!(
            "the server accepted no connection within {} s",
            START_LIMIT.as_secs()
        )
    }
}

/// Sends, and reads until the other side closes.
pub(crate) fn talk(port: u16, request: &str) -> Result<String> {
    let mut stream = memcached::connect(("127.0.0.1", port), Duration::from_secs(5))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Ports that nobody has, below those that the kernel gives to connecting sockets: a cluster's
/// links would take one of those before the last node listens, or while a node is down.
pub(crate) fn free_ports() -> impl Iterator<Item = u16> {
    let first = PORTS.start + (std::process::id() % 64) as u16 * 128;
    let ports = (first..PORTS.end).chain(PORTS.start..first);
    ports.filter(|&port| is_free(port))
}

/// The first of as many UDP ports in a row that were free a moment ago.
pub(crate) fn free_udp_ports(count: u16) -> Result<u16> {
    let is_free = |port: u16| UdpSocket::bind(("127.0.0.1", port)).is_ok();
    let mut starts = PORTS.step_by(usize::from(count));
    match starts.find(|&base| (base..base + count).all(is_free)) {
        Some(base) => Ok(base),
        None => bail!("no {count} UDP ports in a row are free"),
    }
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Ports to listen on.
const PORTS: Range<u16> = 20_000..32_000;

const START_LIMIT: Duration = Duration::from_secs(20);
