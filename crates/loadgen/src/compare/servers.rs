//! Servers that the comparison starts and ends itself.
//!
//! Each runs pinned to the servers' core and, where allowed, at high priority: a thread takes both
//! on itself and then starts the process, which inherits them. Each is ended by its own process id
//! when its handle is dropped.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use curtail_client::memcached::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::{CompareArgs, Peer};
use crate::{cpu, error::LoadError, text_protocol::Protocol};

/// Which server.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Ours,
    Memcached,
    Redis,
}

/// How to start a server.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// What it is called in tables.
    pub(crate) label: String,
    pub(crate) kind: Kind,
    pub(crate) binary: PathBuf,
    pub(crate) threads: usize,
    /// Whether it may use all cores, and not the servers' alone.
    pub(crate) spreads: bool,
    pub(crate) arguments: Vec<String>,
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) label: String,
    pub(crate) kind: Kind,
    pub(crate) spreads: bool,
    pub(crate) target: String,
    child: Child,
}

/// Enough for 10 million small items or 1 million of 512 bytes in every server, in MiB.
pub(crate) const MEMORY_MIB: u64 = 4096;

/// A server that has not answered by then never will.
const START_MAX: Duration = Duration::from_secs(10);

/// Between two tries to connect to a server that starts.
const TRY_EVERY: Duration = Duration::from_micros(100);

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "curtail",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// The protocol for a load: redis speaks its own, the others text or, with pipelines, meta
    /// (memcached's text `get` flushes every reply by itself).
    pub(crate) const fn protocol(self, pipeline: usize) -> Protocol {
        match self {
            Self::Redis => Protocol::Resp,
            _ if pipeline > 1 => Protocol::Meta,
            _ => Protocol::Text,
        }
    }
}

/// Finds a peer's binary, and installs Debian's package if there is none; `None` for no peer.
pub(crate) fn peer(peer: Peer) -> Result<Option<Setting>, LoadError> {
    let (kind, binary, package) = match peer {
        Peer::None => return Ok(None),
        Peer::Memcached => (Kind::Memcached, "memcached", "memcached"),
        Peer::Redis => (Kind::Redis, "redis-server", "redis-server"),
    };
    if find(binary).is_none() {
        eprintln!("{binary} is missing: installing {package}");
        // In runlevel 1 Debian's packages do not start their services.
        let _ = Command::new("apt-get")
            .args(["install", "-y", "-qq", package])
            .env("RUNLEVEL", "1")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status();
    }
    let binary = find(binary).ok_or_else(|| {
        LoadError::Server(format!(
            "{binary} is not installed (apt-get install {package})"
        ))
    })?;
    Ok(Some(Setting {
        label: kind.name().to_owned(),
        kind,
        binary,
        threads: 1,
        spreads: false,
        arguments: Vec::new(),
    }))
}

fn find(binary: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(binary));
    candidates.find(|candidate| candidate.is_file())
}

/// All servers at once, ready to answer.
pub(crate) fn start_all(
    settings: &[Setting],
    args: &CompareArgs,
) -> Result<Vec<Server>, LoadError> {
    settings
        .iter()
        .map(|setting| Server::start(setting, MEMORY_MIB, args.server_core))
        .collect()
}

impl Server {
    /// Starts a server on a free port and waits for its first answer.
    pub(crate) fn start(
        setting: &Setting,
        memory_mib: u64,
        core: usize,
    ) -> Result<Self, LoadError> {
        Self::start_timed(setting, memory_mib, core).map(|(server, _)| server)
    }

    /// The same, and how long it took from the start of the process to the first answer.
    pub(crate) fn start_timed(
        setting: &Setting,
        memory_mib: u64,
        core: usize,
    ) -> Result<(Self, Duration), LoadError> {
        let port = free_port()?;
        let mut command = Command::new(&setting.binary);
        command.args(arguments(setting, port, memory_mib));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let doing = format!("starting {}", setting.binary.display());
        let spreads = setting.spreads;
        let spawn = move || -> Result<_, LoadError> {
            if !spreads {
                cpu::pin(core)?;
            }
            cpu::prioritize();
            let start = Instant::now();
            let child = command.spawn().map_err(LoadError::machine(doing))?;
            Ok((child, start))
        };
        let thread = std::thread::spawn(spawn);
        let panicked = |_| LoadError::Server("the starting thread panicked".into());
        let (child, start) = thread.join().map_err(panicked)??;
        let mut server = Self {
            label: setting.label.clone(),
            kind: setting.kind,
            spreads,
            target: format!("127.0.0.1:{port}"),
            child,
        };
        server.await_answer(start)?;
        Ok((server, start.elapsed()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn await_answer(&mut self, start: Instant) -> Result<(), LoadError> {
        let name = self.kind.name();
        while start.elapsed() < START_MAX {
            if answers(self.kind, &self.target) {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(LoadError::Server(format!("{name} ended at once: {status}")));
            }
            std::thread::sleep(TRY_EVERY);
        }
        Err(LoadError::Server(format!("{name} does not answer")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
        let deadline = Instant::now() + Duration::from_secs(3);
        while asked && Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // It did not go when asked: nothing more can be done if this fails too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answers(kind: Kind, target: &str) -> bool {
    let question: &[u8] = match kind {
        Kind::Redis => b"PING\r\n",
        _ => b"version\r\n",
    };
    Connection::to(target, Duration::from_secs(1))
        .and_then(|mut connection| connection.ask(question))
        .is_ok()
}

fn free_port() -> Result<u16, LoadError> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    Ok(listener
        .map_err(LoadError::machine("finding a free port"))?
        .port())
}

fn arguments(setting: &Setting, port: u16, memory_mib: u64) -> Vec<String> {
    let threads = setting.threads;
    let like_memcached = format!("-l 127.0.0.1 -p {port} -t {threads} -m {memory_mib} -c 4096");
    let fixed = match setting.kind {
        Kind::Ours => format!("serve {like_memcached}"),
        Kind::Memcached if rustix::process::geteuid().is_root() => {
            format!("-u nobody {like_memcached}")
        }
        Kind::Memcached => like_memcached,
        Kind::Redis => format!("--bind 127.0.0.1 --port {port} --appendonly no --save"),
    };
    let mut words: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
    if setting.kind == Kind::Redis {
        words.push(String::new()); // it saves never
    }
    words.extend(setting.arguments.iter().cloned());
    words
}
