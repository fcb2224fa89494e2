//! `curtail cluster up`: one process that starts the nodes, prints their logs, and carries out the
//! requests of other commands. It restarts nothing: it shows what happens to a cluster that loses a
//! node.

use std::{
    io::Write,
    net::TcpStream,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Command, ExitCode},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use curtail_membership::{ClusterFile, RosterStore};
use curtail_runtime::{ControlEvent, Controls};

use super::{
    child::{NodeProcess, say},
    control_socket::{self, Request},
    tiered,
    trial_folder::{self, Folder, Plan},
};

/// What cluster to start.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Number of nodes
    #[arg(long, value_name = "NUM", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    nodes: u8,
    /// Client port of node 0; node i listens on this port + i
    #[arg(long, value_name = "PORT", default_value_t = trial_folder::PORT)]
    port: u16,
    /// Consistency of hot keys: lin (linearizable) or sc (sequentially consistent for each key)
    #[arg(long, value_name = "MODEL", default_value = "lin")]
    model: String,
    /// Number of nodes that hold each key
    #[arg(long, value_name = "NUM", default_value_t = 1)]
    replicas: usize,
    /// Memory limit of each node, in MiB
    #[arg(long, value_name = "NUM", default_value = "64")]
    memory: String,
    /// Worker threads of each node (default: the usable processors divided among the nodes)
    #[arg(long, value_name = "NUM")]
    threads: Option<usize>,
    /// Lease in milliseconds; a node that sends no heartbeats for half of it is removed
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    lease_ms: u64,
    /// Folder for the cluster's files (default: a folder named after user and port in the folder
    /// for temporary files)
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    tiered: tiered::TieredOptions,
    /// After --: further flags for every `curtail serve`
    #[arg(last = true, value_name = "FLAGS")]
    serve: Vec<String>,
}

/// Runs a trial cluster until it is interrupted.
pub(super) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    // Before the first thread: threads inherit the blocked signals.
    let controls = Controls::new()?;
    if options.tiered.tiered {
        return tiered::run(
            &options.tiered,
            options.dir.as_deref(),
            options.port,
            controls,
        );
    }
    let folder = Folder::find(options.dir.as_deref(), options.port);
    if UnixStream::connect(folder.control()).is_ok() {
        let path = folder.path().display();
        bail!("a trial cluster runs in {path} already; choose another --port or --dir");
    }
    folder.make()?;
    let answer = Trial::start(options, folder.clone()).and_then(|mut trial| {
        let (sender, events) = mpsc::channel();
        listen(&folder, sender.clone())?;
        wait_for_signal(controls, sender)?;
        trial.attend(&events);
        trial.end();
        Ok(ExitCode::SUCCESS)
    });
    folder.remove();
    answer
}

/// What reaches the process that runs the cluster.
pub(super) enum Event {
    Interrupted,
    Asked(Request, UnixStream),
}

pub(super) fn wait_for_signal(mut controls: Controls, events: Sender<Event>) -> anyhow::Result<()> {
    let wait = move || {
        while controls.wait(None) != Some(ControlEvent::Stop) {}
        let _ = events.send(Event::Interrupted);
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

pub(super) fn listen(folder: &Folder, events: Sender<Event>) -> anyhow::Result<()> {
    let path = folder.control();
    let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let accept = move || {
        for stream in listener.incoming().flatten() {
            if let Ok(request) = control_socket::receive(&stream)
                && events.send(Event::Asked(request, stream)).is_err()
            {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("control".into())
        .spawn(accept)?;
    Ok(())
}

/// A cluster that runs.
struct Trial {
    folder: Folder,
    plan: Plan,
    memory: String,
    threads: usize,
    serve: Vec<String>,
    nodes: Vec<NodeProcess>,
    store: RosterStore,
    greeted: bool,
}

impl Trial {
    fn start(options: &Options, folder: Folder) -> anyhow::Result<Self> {
        let plan = Plan {
            port: options.port,
            model: options.model.clone(),
            replicas: options.replicas,
            lease_ms: options.lease_ms,
        };
        let ids: Vec<u8> = (0..options.nodes).collect();
        for &id in &ids {
            plan.check_port(id)?;
        }
        folder.write(&plan, &ids)?;
        let cluster = ClusterFile::load(&folder.cluster_file())?;
        let share = curtail_runtime::cpus_usable() / ids.len();
        let mut trial = Self {
            store: cluster.open_store(),
            folder,
            plan,
            memory: options.memory.clone(),
            threads: options.threads.unwrap_or(share.max(1)),
            serve: options.serve.clone(),
            nodes: Vec::new(),
            greeted: false,
        };
        for id in ids {
            trial.start_node(id)?;
        }
        Ok(trial)
    }

    fn start_node(&mut self, id: u8) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("serve")
            .arg("--cluster")
            .arg(self.folder.cluster_file())
            .args(["--node", &id.to_string()])
            .args(["--end-with-parent", &std::process::id().to_string()])
            .args(["-m", &self.memory, "-t", &self.threads.to_string()])
            .args(&self.serve);
        let node = NodeProcess::start(id, &format!("node{id}"), command)?;
        self.nodes.retain(|node| node.id() != id);
        self.nodes.push(node);
        self.nodes.sort_by_key(NodeProcess::id);
        Ok(())
    }

    fn attend(&mut self, events: &Receiver<Event>) {
        loop {
            match events.recv_timeout(GLANCE) {
                Ok(Event::Asked(request, stream)) => {
                    let answer = self.carry_out(request);
                    control_socket::reply(&stream, answer);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Interrupted) | Err(RecvTimeoutError::Disconnected) => return,
            }
            for node in &mut self.nodes {
                if let Some(end) = node.look() {
                    say(node.name(), &end);
                }
            }
            if self.nodes.iter().all(|node| !node.runs()) {
                println!("no node is left");
                return;
            }
            self.greet();
        }
    }

    /// Says once that everybody is there.
    fn greet(&mut self) {
        if self.greeted {
            return;
        }
        let Ok(Some(stored)) = self.store.read_roster() else {
            return;
        };
        let running = self.nodes.iter().filter(|node| node.runs()).count();
        let connects = |node: &NodeProcess| {
            let port = self.plan.port_of(node.id());
            port.is_ok_and(|port| TcpStream::connect(("127.0.0.1", port)).is_ok())
        };
        let mut nodes = self.nodes.iter().filter(|node| node.runs());
        if stored.roster.record.serving().len() < running || !nodes.all(connects) {
            return;
        }
        self.greeted = true;
        let ports = match self.nodes.last().map(|node| self.plan.port_of(node.id())) {
            Some(Ok(last)) if last > self.plan.port => format!("{} to {last}", self.plan.port),
            _ => self.plan.port.to_string(),
        };
        let _ = writeln!(
            std::io::stdout().lock(),
            "{running} nodes are up: memcached's protocol on 127.0.0.1, ports {ports}. \
             Files in {}. Stop with Ctrl-C.",
            self.folder.path().display()
        );
    }

    fn carry_out(&mut self, request: Request) -> anyhow::Result<String> {
        match request {
            Request::Processes => {
                let reports: Vec<_> = self.nodes.iter().map(NodeProcess::report).collect();
                Ok(serde_json::to_string(&reports)?)
            }
            Request::Signal { node, signal } => self.find(&node)?.act(signal),
            Request::Stop { node } => {
                self.find(&node)?.stop();
                Ok(format!("{node} is told to stop"))
            }
            Request::Add { node } => self.add(node.as_deref()),
        }
    }

    fn find(&mut self, name: &str) -> anyhow::Result<&mut NodeProcess> {
        let id = number(name)?;
        let found = self.nodes.iter_mut().find(|node| node.id() == id);
        found.with_context(|| format!("there is no node {id}"))
    }

    fn add(&mut self, node: Option<&str>) -> anyhow::Result<String> {
        let used = |id: &u8| self.nodes.iter().any(|node| node.id() == *id);
        let id = match node {
            Some(name) => number(name)?,
            None => (0..64)
                .find(|id| !used(id))
                .context("a cluster has at most 64 nodes")?,
        };
        ensure!(id < 64, "node {id}: the highest number is 63");
        let runs = self.nodes.iter().any(|node| node.id() == id && node.runs());
        ensure!(!runs, "node {id} runs already");
        self.plan.check_port(id)?;
        let mut ids: Vec<u8> = self.nodes.iter().map(NodeProcess::id).collect();
        ids.push(id);
        ids.sort_unstable();
        ids.dedup();
        self.folder.write(&self.plan, &ids)?;
        self.start_node(id)?;
        Ok(format!("node{id}"))
    }

    /// Ends every node: asked first, killed when it takes too long.
    fn end(&mut self) {
        for node in &mut self.nodes {
            node.stop_at_once();
        }
        let deadline = Instant::now() + END_PATIENCE;
        for node in &mut self.nodes {
            node.finish(deadline);
        }
    }
}

fn number(name: &str) -> anyhow::Result<u8> {
    let digits = name.strip_prefix("node").unwrap_or(name);
    let number = digits.parse().ok();
    number.with_context(|| format!("\"{name}\" is not a node's number or name"))
}

/// How often the processes are looked at.
const GLANCE: Duration = Duration::from_millis(100);

const END_PATIENCE: Duration = Duration::from_secs(5);
