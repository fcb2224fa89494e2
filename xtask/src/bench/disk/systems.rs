//! The three servers with the same memory: how each is started, and what it says of itself.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use curtail_client::memcached::Connection;

use super::Asked;
use crate::bench::bounded_processes::{MemoryGroup, MemoryUse};
use crate::process::Running;
use crate::server::free_port;

/// Which server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum System {
    Curtail,
    Extstore,
    Redis,
}

/// One that runs.
pub(super) struct Store {
    pub(super) port: u16,
    running: Running,
}

/// Every system.
pub(super) const SYSTEMS: [System; 3] = [System::Curtail, System::Extstore, System::Redis];

/// One that is not there by then never will be.
const START_MAX: Duration = Duration::from_secs(30);

/// One that does not answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Threads that read from the disk, in curtail, in extstore and in the bare engine.
pub(super) const DISK_THREADS: usize = 4;

impl System {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Curtail => "curtail, disk tier",
            Self::Extstore => "memcached, extstore",
            Self::Redis => "redis, allkeys-lru",
        }
    }

    pub(super) const fn protocol(self) -> &'static str {
        match self {
            Self::Redis => "resp",
            Self::Curtail | Self::Extstore => "text",
        }
    }

    /// Whether it keeps every item.
    pub(super) const fn holds_all(self) -> bool {
        !matches!(self, Self::Redis)
    }

    /// The command line, but for port and address. Each has what is left of the limit as page
    /// cache: curtail and memcached need it for their files, redis has none.
    fn words(self, asked: &Asked, binary: &Path, folder: &Path) -> Vec<String> {
        let limit = asked.memory_mib;
        let text = match self {
            Self::Curtail => return curtail(asked, binary, folder, limit / 2),
            Self::Extstore => {
                let path = folder.join("extstore");
                // Compaction begins when a quarter of the file is left. `slab_automove=2`: the
                // memory for keys of items on disk takes pages from that for values soon enough;
                // otherwise most keys are evicted while the data is stored.
                let gib = (asked.data_mib() * 2).div_ceil(1024);
                format!(
                    "memcached -u root -t 1 -c 1024 -m {} -o \
                     ext_path={}:{gib}G,ext_threads={DISK_THREADS},ext_wbuf_size=2,\
                     slab_automove=2",
                    limit * 6 / 8,
                    path.display()
                )
            }
            Self::Redis => format!(
                "redis-server --maxmemory {}mb --maxmemory-policy allkeys-lru --appendonly no \
                 --save '' --dir {}",
                limit * 7 / 8,
                folder.display()
            ),
        };
        let words = text.split_whitespace();
        words.map(|word| word.replace("''", "")).collect()
    }
}

/// `curtail serve` with so much memory for items.
pub(super) fn curtail(asked: &Asked, binary: &Path, folder: &Path, items_mib: u64) -> Vec<String> {
    let text = format!(
        "serve -t 1 -c 1024 -m {items_mib} --tier disk --disk-memory {} --disk-threads \
         {DISK_THREADS} --disk-reserve 0",
        asked.disk_memory_mib(),
    );
    let mut words = vec![binary.display().to_string()];
    words.extend(text.split_whitespace().map(str::to_owned));
    words.extend(["--data".to_owned(), data_of(folder).display().to_string()]);
    words
}

/// The data directory.
pub(super) fn data_of(folder: &Path) -> PathBuf {
    folder.join("curtail")
}

impl Store {
    /// Starts a system, and waits until it accepts.
    pub(super) fn start(
        system: System,
        (asked, binary, folder): (&Asked, &Path, &Path),
        group: &MemoryGroup,
    ) -> Result<Self> {
        let mut words = system.words(asked, binary, folder);
        let port = free_port()?;
        let (port_flag, host_flag) = match system {
            System::Redis => ("--port", "--bind"),
            _ => ("-p", "-l"),
        };
        words.extend([port_flag, &port.to_string(), host_flag, "127.0.0.1"].map(str::to_owned));
        Self::run(&words, port, group, &asked.server_cores)
    }

    /// Starts `words`, which listens on `port`.
    pub(super) fn run(
        words: &[String],
        port: u16,
        group: &MemoryGroup,
        cores: &str,
    ) -> Result<Self> {
        let mut running = group.start(cores, words)?;
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if running.has_ended()? || start.elapsed() > START_MAX {
                bail!("this did not start: {}", words.join(" "));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { port, running })
    }

    /// Its process: every program on the way to it replaces the one before.
    pub(super) fn process(&self) -> u32 {
        self.running.id()
    }

    /// A row of `stats KIND`, of the servers that speak memcached's protocol.
    pub(super) fn stat(&self, kind: &str, name: &str) -> Result<u64> {
        let mut connection = Connection::to(("127.0.0.1", self.port), PATIENCE)?;
        let rows = connection.stats(kind)?;
        let row = rows.into_iter().find(|(of, _)| of == name);
        match row.map(|(_, value)| value.parse()) {
            Some(Ok(value)) => Ok(value),
            _ => bail!("stats {kind} has no number {name}"),
        }
    }

    /// Asks it to stop, and waits until it has.
    pub(super) fn stop(mut self) -> Result<()> {
        let id = self.process().to_string();
        std::process::Command::new("kill")
            .args(["-TERM", &id])
            .status()?;
        let start = Instant::now();
        while !self.running.has_ended()? {
            if start.elapsed() > START_MAX {
                bail!("the server did not stop when it was asked to");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Kills it.
    pub(super) fn kill(self) {
        drop(self);
    }

    /// Waits until nothing is written or compacted in the background any more.
    pub(super) fn settle(&self, system: System) -> Result<()> {
        let busy = |store: &Self| -> Result<u64> {
            Ok(match system {
                System::Curtail => {
                    let waiting = store.stat("curtail", "disk:memtables_waiting")?;
                    waiting + store.stat("curtail", "disk:compactions")?
                }
                System::Extstore => store.stat("", "extstore_objects_written")?,
                System::Redis => 0,
            })
        };
        let start = Instant::now();
        let (mut before, mut since) = (busy(self)?, Instant::now());
        while since.elapsed() < STILL && start.elapsed() < SETTLE_MAX {
            std::thread::sleep(Duration::from_millis(500));
            let now = busy(self)?;
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

/// Nothing happens in the background if nothing did for so long.
const STILL: Duration = Duration::from_secs(3);

/// Whatever goes on after so long goes on always.
const SETTLE_MAX: Duration = Duration::from_secs(120);

/// Memory as a person reads it.
pub(super) fn memory_text(memory: MemoryUse) -> (String, String) {
    let mib = |bytes: u64| format!("{}", bytes >> 20);
    (mib(memory.anonymous), mib(memory.page_cache))
}
