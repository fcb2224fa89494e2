//! `curtail cluster up --tiered`: a trial cache tier of processes on loopback: back ends whose rate
//! is limited, a cache node, and the switch in user space. It needs no privilege.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    process::{Command, ExitCode},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use curtail_runtime::Controls;
use curtail_tier::{TierFile, ask_status};

use super::{
    child::{NodeProcess, say},
    control_socket::{self, Request},
    trial_folder::Folder,
    up::{Event, listen, wait_for_signal},
};

/// What tier to start.
#[derive(Args, Debug)]
pub(super) struct TieredOptions {
    /// Start a cache tier instead: back ends, a cache node in front of them, and a switch in user
    /// space that sends requests by their keys
    #[arg(long, conflicts_with_all = ["nodes", "model", "replicas", "memory", "threads"])]
    #[arg(conflicts_with_all = ["lease_ms", "serve"])]
    pub(super) tiered: bool,
    /// Number of back ends of a tier
    #[arg(long, value_name = "NUM", default_value_t = 16, requires = "tiered")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    back_ends: u8,
    /// Requests that each back end of a tier serves in a second; those beyond are refused. 0: no
    /// limit
    #[arg(long, value_name = "NUM", default_value_t = 500, requires = "tiered")]
    limit: u64,
    /// Maximum number of keys of a tier's cache node; 0: there is no cache node
    #[arg(long, value_name = "NUM", default_value_t = 1000, requires = "tiered")]
    cached_keys: usize,
    /// Maximum number of rules that a tier's cache node changes in a second; 0: no limit
    #[arg(long, value_name = "NUM", default_value_t = 2000, requires = "tiered")]
    rule_changes: u64,
    /// Interval at which the back ends of a tier report their hottest keys, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, requires = "tiered")]
    report_ms: u64,
    /// Keep the items of a tier's back ends on disk, in the folder, until the tier ends
    #[arg(long, requires = "tiered")]
    on_disk: bool,
}

/// Runs a trial tier until it is interrupted.
pub(super) fn run(
    options: &TieredOptions,
    dir: Option<&Path>,
    port: u16,
    controls: Controls,
) -> anyhow::Result<ExitCode> {
    let folder = Folder::find(dir, port);
    if std::os::unix::net::UnixStream::connect(folder.control()).is_ok() {
        let path = folder.path().display();
        bail!("a trial cluster runs in {path} already; choose another --port or --dir");
    }
    folder.make()?;
    let answer = run_in(options, &folder, port, controls);
    folder.remove();
    answer
}

fn run_in(
    options: &TieredOptions,
    folder: &Folder,
    port: u16,
    controls: Controls,
) -> anyhow::Result<ExitCode> {
    let file = plan(options, port)?;
    file.save(&folder.tier_file())?;
    let mut trial = TieredTrial {
        folder,
        options,
        file,
        nodes: Vec::new(),
        greeted: false,
        began: Instant::now(),
    };
    let (sender, events) = mpsc::channel();
    listen(folder, sender.clone())?;
    wait_for_signal(controls, sender)?;
    let started = trial.start_all();
    let answer = started.and_then(|()| trial.attend(&events));
    trial.end();
    answer
}

fn plan(options: &TieredOptions, port: u16) -> anyhow::Result<TierFile> {
    let back_ends = u16::from(options.back_ends);
    let last = port.checked_add(FIRST_BACK_END + back_ends - 1);
    let last =
        last.with_context(|| format!("--port {port}: too high for {back_ends} back ends"))?;
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for port in port..=last {
        UdpSocket::bind(at(port))
            .with_context(|| format!("UDP port {port}; choose others with --port"))?;
    }
    let caches = match options.cached_keys {
        0 => Vec::new(),
        _ => vec![at(port + 2)],
    };
    Ok(TierFile {
        secret: secret()?,
        epoch: 1,
        lease_ms: 500,
        period_ms: options.report_ms,
        forwarder: at(port),
        control: at(port + 1),
        caches,
        back_ends: (port + FIRST_BACK_END..=last).map(at).collect(),
    })
}

/// A tier that runs.
struct TieredTrial<'a> {
    folder: &'a Folder,
    options: &'a TieredOptions,
    file: TierFile,
    nodes: Vec<NodeProcess>,
    greeted: bool,
    began: Instant,
}

impl TieredTrial<'_> {
    fn start_all(&mut self) -> anyhow::Result<()> {
        let back_ends = self.file.back_ends.len();
        println!(
            "starting {back_ends} back ends, {} cache node and the switch",
            self.file.caches.len()
        );
        self.start("switch")?;
        for id in 0..back_ends {
            self.start(&format!("back-end{id}"))?;
        }
        for id in 0..self.file.caches.len() {
            self.start(&format!("cache{id}"))?;
        }
        Ok(())
    }

    fn start(&mut self, name: &str) -> anyhow::Result<()> {
        let runs = |node: &NodeProcess| node.name() == name && node.runs();
        ensure!(!self.nodes.iter().any(runs), "{name} runs already");
        let command = self.command(name)?;
        let node = NodeProcess::start(0, name, command)?;
        self.nodes.retain(|node| node.name() != name);
        self.nodes.push(node);
        Ok(())
    }

    fn command(&self, name: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("tier");
        let number = |kind: &str, count: usize| {
            let number: usize = name.strip_prefix(kind)?.parse().ok()?;
            (number < count).then_some(number)
        };
        let options = self.options;
        if name == "switch" {
            command.arg("switch");
        } else if let Some(id) = number("back-end", self.file.back_ends.len()) {
            command.args(["back-end", "--id", &id.to_string()]);
            command.args(["--limit", &options.limit.to_string()]);
            if options.on_disk {
                command.arg("--data").arg(self.folder.data(id));
            }
        } else if let Some(id) = number("cache", self.file.caches.len()) {
            command.args(["cache", "--id", &id.to_string()]);
            command.args(["--keys", &options.cached_keys.to_string()]);
            command.args(["--rule-changes", &options.rule_changes.to_string()]);
        } else {
            bail!("there is no {name}; a tier has switch, cache0 and back-end0, back-end1, ...");
        }
        command.arg("--file").arg(self.folder.tier_file());
        let parent = std::process::id().to_string();
        command.args(["--end-with-parent", &parent]);
        Ok(command)
    }

    fn attend(&mut self, events: &Receiver<Event>) -> anyhow::Result<ExitCode> {
        loop {
            match events.recv_timeout(GLANCE) {
                Ok(Event::Asked(request, stream)) => {
                    let answer = self.carry_out(request);
                    control_socket::reply(&stream, answer);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Interrupted) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            for node in &mut self.nodes {
                if let Some(end) = node.look() {
                    say(node.name(), &end);
                    ensure!(self.greeted, "{} did not start", node.name());
                }
            }
            self.greet()?;
        }
    }

    /// Says once that every node answers and every back end has granted its lease.
    fn greet(&mut self) -> anyhow::Result<()> {
        if self.greeted {
            return Ok(());
        }
        let secret = self.file.secret();
        let answers = |at: &SocketAddr| ask_status(*at, &secret).ok();
        let is_up = |at: &SocketAddr| {
            let status = answers(at);
            let needs_lease = !self.file.caches.is_empty();
            status.is_some_and(|status| !needs_lease || status.get("has_lease") == 1)
        };
        let is_whole = answers(&self.file.control).is_some()
            && self.file.caches.iter().all(|at| answers(at).is_some())
            && self.file.back_ends.iter().all(is_up);
        if !is_whole {
            let waited = self.began.elapsed();
            ensure!(
                waited < START_PATIENCE,
                "not every node answers after {waited:.0?}"
            );
            return Ok(());
        }
        self.greeted = true;
        let limit = match self.options.limit {
            0 => "without a limit".to_string(),
            limit => format!("of {limit} requests a second each"),
        };
        let path = self.folder.tier_file();
        let path = path.display();
        // Nobody may be looking.
        let _ = writeln!(
            std::io::stdout().lock(),
            "the tier is up: {} back ends {limit}, {} keys in the cache, clients at UDP {}.\n\
             Look at it with `curtail tier status --file {path}`. Stop with Ctrl-C.",
            self.file.back_ends.len(),
            self.options.cached_keys,
            self.file.forwarder,
        );
        Ok(())
    }

    fn carry_out(&mut self, request: Request) -> anyhow::Result<String> {
        match request {
            Request::Kill { node } => {
                self.find(&node)?.kill()?;
                Ok(format!("{node} is dead"))
            }
            Request::Pause { node } => {
                self.find(&node)?.pause()?;
                Ok(format!("{node} is paused"))
            }
            Request::Resume { node } => {
                self.find(&node)?.resume()?;
                Ok(format!("{node} continues"))
            }
            Request::Add { node: Some(node) } => {
                self.start(&node)?;
                Ok(node)
            }
            _ => bail!("this is a tier, not a cluster: kill, pause and resume its nodes"),
        }
    }

    fn find(&mut self, name: &str) -> anyhow::Result<&mut NodeProcess> {
        let found = self.nodes.iter_mut().find(|node| node.name() == name);
        found.with_context(|| format!("there is no {name}; a tier has switch, cache0, back-end0"))
    }

    /// Ends every node: asked first, killed when it takes too long.
    fn end(&mut self) {
        self.nodes.iter_mut().for_each(NodeProcess::stop);
        let deadline = Instant::now() + END_PATIENCE;
        for node in &mut self.nodes {
            node.finish(deadline);
        }
    }
}

/// A secret that nobody can guess.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// Forwarder, control and cache node have the ports before.
const FIRST_BACK_END: u16 = 3;
const GLANCE: Duration = Duration::from_millis(100);
const START_PATIENCE: Duration = Duration::from_secs(20);
const END_PATIENCE: Duration = Duration::from_secs(5);
