//! `cargo xtask bench restart`: how soon a server with ten million items on disk answers its first
//! request: after an orderly stop, and after kill -9 amid writes.
//!
//! ```text
//!   every key is stored, then rounds:
//!     SIGTERM ──> start, ask until a key is answered ──> writes ──> kill -9 ──> start, ask ..
//! ```
//!
//! With `--cold yes` the page cache forgets the directory's files before every start, as after a
//! reboot; the time then contains reading from the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use curtail_client::memcached::Connection;
use curtail_report::Table;

use super::bounded_processes::{MemoryGroup, Scratch, all_cores, forget};
use super::take_all;
use crate::check_result::Outcome;
use crate::process::Running;
use crate::server::free_port;
use crate::workspace::Workspace;

/// What was asked for.
struct Asked {
    keys: u64,
    value_bytes: u64,
    rounds: usize,
    /// How long keys are written before a kill.
    writing: Duration,
    is_cold: bool,
    /// More flags of the server.
    server: Vec<String>,
    binary: Option<PathBuf>,
    folder: PathBuf,
}

/// One start.
struct Start {
    after: &'static str,
    answered: Duration,
    /// Bytes of the write log that it found.
    log_bytes: u64,
}

/// The bound.
const GOAL: Duration = Duration::from_secs(1);

/// A server that has not answered by then never will.
const START_MAX: Duration = Duration::from_secs(120);

/// Runs what is asked for. Fails if a start took longer than a second.
pub(super) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Outcome> {
    let asked = Asked::parse(arguments, workspace.scratch("restart")?)?;
    let binary = asked.binary.clone();
    let binary = binary.map_or_else(|| super::build(workspace), Ok)?;
    let scratch = Scratch::new(&asked.folder)?;
    let trial = Trial {
        asked: &asked,
        binary: &binary,
        folder: scratch.path(),
        port: free_port()?,
    };
    let (mut server, _) = trial.start(EMPTY, 0)?;
    trial.drive(&["--preload-only"])?.wait()?;
    let mut starts = Vec::new();
    for round in 0..asked.rounds as u64 {
        stop(server, "-TERM")?;
        let (orderly, start) = trial.start("an orderly stop", round)?;
        println!("{}", start.line());
        starts.push(start);
        let writes = asked.writing.as_secs_f64().to_string();
        let mut load = trial.drive(&["--get-ratio", "0", "--zipf", "0", "--duration", &writes])?;
        std::thread::sleep(asked.writing);
        stop(orderly, "-KILL")?;
        load.wait()?;
        let (killed, start) = trial.start("kill -9 amid writes", round)?;
        println!("{}", start.line());
        starts.push(start);
        server = killed;
    }
    drop(server);
    let text = table(&asked, &starts).markdown();
    print!("{text}");
    fs::write(workspace.scratch("bench")?.join("restart.md"), text)?;
    let slow = starts.iter().filter(|start| start.answered >= GOAL).count();
    ensure!(slow == 0, "{slow} starts took longer than a second");
    Ok(Outcome::passed())
}

impl Asked {
    fn parse(arguments: &[String], folder: PathBuf) -> Result<Self> {
        let mut asked = Self {
            keys: 10_000_000,
            value_bytes: 32,
            rounds: 5,
            writing: Duration::from_secs(3),
            is_cold: false,
            server: Vec::new(),
            binary: None,
            folder,
        };
        take_all("restart", arguments, |word, value| {
            match word {
                "--keys" => asked.keys = value.parse()?,
                "--value-bytes" => asked.value_bytes = value.parse()?,
                "--rounds" => asked.rounds = value.parse()?,
                "--writing" => asked.writing = Duration::from_secs_f64(value.parse()?),
                "--cold" => asked.is_cold = value == "yes",
                "--server" => asked.server = value.split(' ').map(str::to_owned).collect(),
                "--ours" => asked.binary = Some(value.into()),
                "--folder" => asked.folder = value.into(),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if asked.rounds == 0 || asked.keys == 0 {
            bail!("at least one round, and one key");
        }
        Ok(asked)
    }
}

/// One directory, and the programs for it.
struct Trial<'a> {
    asked: &'a Asked,
    binary: &'a Path,
    folder: &'a Path,
    port: u16,
}

impl Trial<'_> {
    /// Starts a server, and asks it for a key until it answers.
    fn start(&self, after: &'static str, round: u64) -> Result<(Running, Start)> {
        let data = self.folder.join("curtail");
        if self.asked.is_cold && data.exists() {
            forget(&data)?;
        }
        let log_bytes = bytes_of(&data.join("log"));
        let mut words = vec![self.binary.display().to_string()];
        let flags = ["serve", "-m", "1024", "--tier", "disk", "--data"];
        words.extend(flags.map(str::to_owned));
        words.push(data.display().to_string());
        words.extend(["-l", "127.0.0.1", "-p", &self.port.to_string()].map(str::to_owned));
        words.extend(self.asked.server.iter().cloned());
        let begun = Instant::now();
        let mut server = MemoryGroup::unlimited().start(&all_cores()?, &words)?;
        let key = format!(
            "k{:015}",
            round * self.asked.keys / self.asked.rounds as u64
        );
        while !self.answers(&key) {
            let has_ended = server.has_ended()?;
            ensure!(!has_ended, "the server ended: {}", words.join(" "));
            ensure!(begun.elapsed() < START_MAX, "the server does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
        let answered = begun.elapsed();
        let mut connection = self.connection()?;
        let stored = connection.ask(format!("get {key}\r\n"))?;
        let is_there = stored.starts_with(&format!("VALUE {key} "));
        ensure!(after == EMPTY || is_there, "{key} is lost: {stored}");
        let start = Start {
            after,
            answered,
            log_bytes,
        };
        Ok((server, start))
    }

    fn connection(&self) -> std::io::Result<Connection> {
        Connection::to(("127.0.0.1", self.port), START_MAX)
    }

    /// Whether a read is answered.
    fn answers(&self, key: &str) -> bool {
        let asked = self
            .connection()
            .and_then(|mut connection| connection.ask(format!("get {key}\r\n")));
        asked.is_ok_and(|line| line.starts_with("VALUE") || line == "END")
    }

    /// Starts the load generator.
    fn drive(&self, more: &[&str]) -> Result<Child> {
        let mut command = Command::new(self.binary);
        command
            .args(["bench", "--target", &format!("127.0.0.1:{}", self.port)])
            .args(["--keys", &self.asked.keys.to_string()])
            .args(["--value-bytes", &self.asked.value_bytes.to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().context("the load generator")
    }
}

const EMPTY: &str = "an empty directory";

/// Sends a signal, and waits for the end.
fn stop(mut server: Running, signal: &str) -> Result<()> {
    let id = server.id().to_string();
    Command::new("kill").args([signal, &id]).status()?;
    let begun = Instant::now();
    while !server.has_ended()? {
        ensure!(begun.elapsed() < START_MAX, "the server does not stop");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Bytes of the files of a folder.
fn bytes_of(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let metadata = files.filter_map(|file| file.metadata().ok());
    metadata.map(|metadata| metadata.len()).sum()
}

impl Start {
    fn line(&self) -> String {
        format!(
            "after {}: the first answer after {:.0} ms, write log of {} MiB",
            self.after,
            self.answered.as_secs_f64() * 1e3,
            self.log_bytes >> 20
        )
    }
}

fn table(asked: &Asked, starts: &[Start]) -> Table {
    let mut table = Table::default();
    for after in ["an orderly stop", "kill -9 amid writes"] {
        let of = || starts.iter().filter(|start| start.after == after);
        let ms = || of().map(|start| start.answered.as_secs_f64() * 1e3);
        let middle = super::middle(ms().collect()).unwrap_or(0.0);
        let log_bytes = of().map(|start| start.log_bytes);
        table.named(&[
            ("after", after.to_owned()),
            ("items", asked.keys.to_string()),
            (
                "page cache",
                if asked.is_cold { "cold" } else { "warm" }.to_owned(),
            ),
            ("starts", of().count().to_string()),
            ("first answer, ms", format!("{middle:.0}")),
            ("longest, ms", format!("{:.0}", ms().fold(0.0, f64::max))),
            (
                "write log, MiB, at most",
                (log_bytes.max().unwrap_or(0) >> 20).to_string(),
            ),
        ]);
    }
    table
}
