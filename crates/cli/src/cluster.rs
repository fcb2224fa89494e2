//! `curtail cluster`: a trial cluster of processes on this machine, and what an operator asks of
//! any cluster.
//!
//! ```text
//!   up ──starts──> serve --cluster FILE --node 0, 1, ...
//!    └── control (socket in its folder) <── status, kill, pause, resume, add
//!   view.json (or etcd)                 <── status, remove, rebalance
//! ```

mod child;
mod control_socket;
mod node_stats;
mod report;
mod tiered;
mod trial_folder;
mod up;
mod wait_for_view;

use std::{
    fmt,
    io::Write,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::{Args, Subcommand};
use curtail_membership::ClusterFile;

use control_socket::{NodeSignal, Request};
use trial_folder::Folder;

/// What to do with a cluster.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a trial cluster on loopback, and keep it until Ctrl-C
    Up(up::Options),
    /// Show a cluster's counters, its moving slices, and its members with their numbers of slices;
    /// or a trial tier's nodes with their load
    Status {
        #[command(flatten)]
        target: Target,
        /// Print the status as JSON
        #[arg(long)]
        json: bool,
    },
    /// Kill a node of a trial cluster (SIGKILL)
    Kill(TrialNode),
    /// Pause a node of a trial cluster (SIGSTOP)
    Pause(TrialNode),
    /// Resume a paused node of a trial cluster (SIGCONT)
    Resume(TrialNode),
    /// Add a node to a trial cluster, or restart one that was killed or removed
    Add {
        /// Number or name of the node to restart; without it, a new node is added
        node: Option<String>,
        #[command(flatten)]
        trial: Trial,
        #[command(flatten)]
        wait: Wait,
    },
    /// Remove a node from a cluster; its keys move to the other nodes first. For a node that is
    /// leaving already, the command waits; for one that is not a member, it exits with 0
    Remove {
        /// The node: its number or its name
        node: String,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        wait: Wait,
    },
    /// Wait until every key has its replicas, spread evenly over the nodes that are not leaving. A
    /// cluster moves keys by itself; this command starts nothing
    Rebalance {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        wait: Wait,
    },
}

#[derive(Args, Debug)]
struct TrialNode {
    /// The node: its number or its name
    node: String,
    #[command(flatten)]
    trial: Trial,
}

#[derive(Args, Debug)]
struct Wait {
    /// Maximum time to wait until the command is done, in seconds. After that the command exits
    /// with 1 and says how to wait again; the nodes continue
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
}

/// Which trial cluster is meant.
#[derive(Args, Debug)]
struct Trial {
    /// Folder of the trial cluster, if it was started with --dir
    #[arg(long, value_name = "DIR", conflicts_with = "port")]
    dir: Option<PathBuf>,
    /// Client port of node 0 of the trial cluster: the --port with which it was started
    #[arg(long, value_name = "PORT", default_value_t = trial_folder::PORT)]
    port: u16,
}

/// Which cluster is meant.
#[derive(Args, Debug)]
struct Target {
    #[command(flatten)]
    trial: Trial,
    /// Cluster file of the cluster, if it is not a trial cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "port"])]
    file: Option<PathBuf>,
}

impl fmt::Display for Target {
    /// The flags that name it, each after a space.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, &self.trial.dir) {
            (Some(file), _) => write!(f, " --file {}", file.display()),
            (None, Some(dir)) => write!(f, " --dir {}", dir.display()),
            (None, None) if self.trial.port != trial_folder::PORT => {
                write!(f, " --port {}", self.trial.port)
            }
            (None, None) => Ok(()),
        }
    }
}

impl Trial {
    fn folder(&self) -> Folder {
        Folder::find(self.dir.as_deref(), self.port)
    }

    fn load(&self) -> anyhow::Result<ClusterFile> {
        let folder = self.folder();
        control_socket::ask(&folder, &Request::Processes)?;
        Ok(ClusterFile::load(&folder.cluster_file())?)
    }
}

impl Target {
    fn load(&self) -> anyhow::Result<ClusterFile> {
        match &self.file {
            Some(path) => Ok(ClusterFile::load(path)?),
            None => self.trial.load(),
        }
    }
}

impl Wait {
    fn duration(&self) -> Duration {
        Duration::from_secs(self.wait)
    }
}

/// Carries the command out.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.command {
        Command::Up(options) => return up::run(options),
        Command::Status { target, json } => status(target, *json)?,
        Command::Kill(one) => tell(one, NodeSignal::Kill)?,
        Command::Pause(one) => tell(one, NodeSignal::Pause)?,
        Command::Resume(one) => tell(one, NodeSignal::Resume)?,
        Command::Add { node, trial, wait } => add(node.as_deref(), trial, wait)?,
        Command::Remove { node, target, wait } => remove(node, target, wait)?,
        Command::Rebalance { target, wait } => {
            wait_for_view::wait(&target.load()?, wait.duration())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn status(target: &Target, json: bool) -> anyhow::Result<()> {
    let tier = target.trial.folder().tier_file();
    if target.file.is_none() && tier.exists() {
        return tiered::status(&tier, json);
    }
    let processes = match &target.file {
        Some(_) => Vec::new(),
        None => control_socket::processes(&target.trial.folder())?,
    };
    let cluster = target.load()?;
    let stored = cluster.open_store().read_roster()?;
    let report = report::Report::new(&cluster, stored.map(|stored| stored.roster), processes);
    let text = match json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_string(),
    };
    // The reader may have closed the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn tell(one: &TrialNode, signal: NodeSignal) -> anyhow::Result<()> {
    let node = one.node.clone();
    let request = Request::Signal { node, signal };
    println!("{}", control_socket::ask(&one.trial.folder(), &request)?);
    Ok(())
}

fn add(node: Option<&str>, trial: &Trial, wait: &Wait) -> anyhow::Result<()> {
    let folder = trial.folder();
    if folder.tier_file().exists() {
        let node = node.map(str::to_owned);
        println!(
            "{} starts",
            control_socket::ask(&folder, &Request::Add { node })?
        );
        return Ok(());
    }
    let before = trial.load()?.open_store().read_roster()?;
    let request = Request::Add {
        node: node.map(str::to_owned),
    };
    let name = control_socket::ask(&folder, &request)?;
    let cluster = ClusterFile::load(&folder.cluster_file())?;
    let entry = cluster
        .find(&name)
        .context("the new node is not in the file")?;
    println!("{name} starts, for clients at {}", entry.clients);
    // A node that was killed may still be a member, as its life before.
    let roster = before.map(|stored| stored.roster);
    let life = roster.and_then(|roster| Some(roster.node(entry.id)?.incarnation));
    wait_for_view::wait_for(&cluster, (entry.id, life), wait.duration())
}

fn remove(node: &str, target: &Target, wait: &Wait) -> anyhow::Result<()> {
    let cluster = target.load()?;
    let entry = cluster
        .find(node)
        .with_context(|| format!("the cluster file names no node {node}"))?;
    let mut store = cluster.open_store();
    let name = &entry.name;
    let begins = curtail_membership::drain(&mut store, entry.id)?;
    let stored = store.read_roster()?;
    let is_member = stored.is_some_and(|stored| stored.roster.node(entry.id).is_some());
    match (begins, is_member) {
        (true, _) => {}
        (false, true) => println!("{name} is leaving already"),
        (false, false) => println!("{name} is not a member: it has left, or was removed"),
    }
    if begins || is_member {
        let again = format!("curtail cluster remove {name}{target}");
        wait_for_view::wait_until_gone(&cluster, entry.id, (wait.duration(), &again))?;
        println!("{name} has left");
    }
    if target.file.is_none() {
        let (node, folder) = (entry.name.clone(), target.trial.folder());
        control_socket::ask(&folder, &Request::Stop { node })?;
        // Until its process has ended, it cannot be added again.
        let runs = |one: &control_socket::Process| one.id == entry.id.0 && one.pid.is_some();
        let deadline = Instant::now() + wait.duration();
        while Instant::now() < deadline && control_socket::processes(&folder)?.iter().any(runs) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}
