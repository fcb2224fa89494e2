//! A cluster of server processes on loopback, until it is dropped.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use curtail_client::memcached::Connection;

use super::plan::System;
use crate::process::Running;
use crate::server::free_ports;

/// The processes and their folder.
pub(super) struct Nodes {
    system: System,
    ports: Vec<u16>,
    processes: Vec<Running>,
    folder: PathBuf,
}

/// Numbers of `stats curtail`, summed over the nodes.
pub(super) type Numbers = HashMap<String, f64>;

/// A cluster that is not whole by then never will be.
const START_MAX: Duration = Duration::from_secs(30);

/// A node that does not answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Long, so that a machine whose cores are all busy does not fence its nodes.
const LEASE_MS: u64 = 3000;

impl Nodes {
    /// Starts `count` nodes and waits until they are one cluster.
    pub(super) fn start(
        binary: &Path,
        count: usize,
        system: System,
        hot_keys: usize,
    ) -> Result<Self> {
        let name = system.name();
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("curtail-bench-{id}-{name}-{count}"));
        let mut cluster = Self {
            system,
            ports: Vec::new(),
            processes: Vec::new(),
            folder,
        };
        fs::create_dir_all(&cluster.folder)?;
        cluster.describe(count)?;
        for node in 0..count {
            let file = fs::File::create(cluster.folder.join(format!("{node}.log")))?;
            let mut command = Command::new(binary);
            command
                .args(["serve", "-t", "1", "-m", "64", "--cluster"])
                .arg(cluster.folder.join("cluster.toml"))
                .args(["--node", &node.to_string()])
                .args(["--end-with-parent", &id.to_string()]);
            let hot_keys = if system.shares() { hot_keys } else { 0 };
            command.args(["--hot-keys", &hot_keys.to_string()]);
            if system == System::Erew {
                command.args(["--policy", "erew"]);
            }
            command.stdin(Stdio::null());
            command.stdout(file.try_clone()?).stderr(file);
            cluster.processes.push(Running::start(&mut command)?);
        }
        cluster.await_whole()?;
        Ok(cluster)
    }

    /// Writes the cluster's file and its secret.
    fn describe(&mut self, count: usize) -> Result<()> {
        let model = match self.system {
            System::Sc => "sc",
            _ => "lin",
        };
        let mut text = format!(
            "name = \"bench\"\nmodel = \"{model}\"\nlease_ms = {LEASE_MS}\nheartbeat_ms = 300\n\
             suspicion_ms = 2500\nsecret_file = \"secret\"\n"
        );
        let mut free = free_ports();
        for id in 0..count {
            let (Some(clients), Some(links)) = (free.next(), free.next()) else {
                bail!("no port is free");
            };
            self.ports.push(clients);
            write!(
                text,
                "[[node]]\nid = {id}\nclients = \"127.0.0.1:{clients}\"\n\
                 links = \"127.0.0.1:{links}\"\n"
            )?;
        }
        fs::write(self.folder.join("cluster.toml"), text)?;
        let mut random = [0_u8; 32];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut random)?;
        let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(self.folder.join("secret"))?;
        file.write_all(secret.as_bytes())?;
        Ok(())
    }

    fn await_whole(&mut self) -> Result<()> {
        let start = Instant::now();
        let count = self.count() as f64;
        while start.elapsed() < START_MAX {
            for (node, process) in self.processes.iter_mut().enumerate() {
                if process.has_ended()? {
                    let log = fs::read_to_string(self.folder.join(format!("{node}.log")))?;
                    bail!("node {node} of {} ended: {log}", self.system.name());
                }
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
        bail!("{count} nodes were no cluster within {START_MAX:?}")
    }

    /// How many nodes it has.
    pub(super) fn count(&self) -> usize {
        self.processes.len()
    }

    /// How it is run.
    pub(super) fn system(&self) -> System {
        self.system
    }

    /// `HOST:PORT+HOST:PORT..` as the load generator takes it.
    pub(super) fn target(&self) -> String {
        let ports = self.ports.iter();
        let all: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        all.join("+")
    }

    /// `PID+PID..`.
    pub(super) fn processes(&self) -> String {
        let all = self
            .processes
            .iter()
            .map(|process| process.id().to_string());
        all.collect::<Vec<_>>().join("+")
    }

    /// The processes' ids.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(Running::id).collect()
    }

    /// What all nodes say, summed.
    pub(super) fn numbers(&self) -> Result<Numbers> {
        let mut sum = Numbers::new();
        for &port in &self.ports {
            ask(port, &mut sum).with_context(|| format!("asking the node at port {port}"))?;
        }
        Ok(sum)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.processes.clear();
        // What stays behind is a few files in a temporary folder.
        let _ = fs::remove_dir_all(&self.folder);
    }
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
