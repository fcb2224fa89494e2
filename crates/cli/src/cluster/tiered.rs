//! `curtail cluster up --tiered`: starts a trial cache tier of processes: back ends with a limited
//! rate, cache nodes, and the switch. With the switch in user space all processes are on loopback
//! and need no privileges; with XDP or Open vSwitch each is in a network namespace.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::Path,
    process::{Command, ExitCode},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use curtail_runtime::Controls;
use curtail_tier::{TierBaseline, TierFile, TierFileNetwork, TrialEncoding, TrialNamespaces};

use super::{
    child::{NodeProcess, say},
    control_socket::{self, Request},
    trial_folder::Folder,
    up::{Event, listen, wait_for_signal},
};
use crate::tier::UpdateName;

/// The flags of a trial tier.
#[derive(Args, Debug)]
pub(super) struct TieredOptions {
    /// Start a cache tier instead: back ends, cache nodes in front of them, and a switch in user
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
    /// Number of cache nodes of a tier; back end n belongs to cache node n modulo this number
    #[arg(long, value_name = "NUM", default_value_t = 1, requires = "tiered")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=16))]
    caches: u8,
    /// Reads that each cache node of a tier answers in a second; those beyond are refused. 0: no
    /// limit
    #[arg(long, value_name = "NUM", default_value_t = 0, requires = "tiered")]
    cache_limit: u64,
    /// Maximum number of hot keys of each cache node that are copied to all cache nodes; the switch
    /// divides their reads. 0: each key is at one cache node
    #[arg(long, value_name = "NUM", default_value_t = 16, requires = "tiered")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(TierFile::GROUP_KEYS_MAX)))]
    group_keys: u8,
    /// Maximum number of keys that each cache node of a tier holds; 0: there is no cache node
    #[arg(long, value_name = "NUM", default_value_t = 1000, requires = "tiered")]
    cached_keys: usize,
    /// Maximum number of rules that a tier's cache node changes in a second; 0: no limit
    #[arg(long, value_name = "NUM", default_value_t = 2000, requires = "tiered")]
    rule_changes: u64,
    /// Maximum time for which a tier's cache node lets evictions wait while rules of new keys are
    /// installed, in milliseconds. Meanwhile it may hold more keys than --cached-keys; the surplus
    /// is the rule buffer. 0: a key is evicted before another is added
    #[arg(long, value_name = "MS", default_value_t = 1000, requires = "tiered")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=60_000))]
    rule_delay_ms: u64,
    /// What the back ends of a tier report to the cache node: once a period the hottest keys
    /// (periodic), immediately each key whose load rises suddenly (instant), both, or every key
    /// that is read (traditional)
    #[arg(long, value_name = "MODE", default_value = "both", requires = "tiered")]
    cache_update: UpdateName,
    /// Interval at which the back ends of a tier report their hottest keys, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, requires = "tiered")]
    report_ms: u64,
    /// Keep the items of a tier's back ends on disk, in the folder of --dir; the end of the tier
    /// removes them
    #[arg(long, requires = "tiered")]
    on_disk: bool,
    /// Do not route reads of a tier by the switch's rules, for comparison: the client sends each
    /// read to the cache node; after a miss the client sends it to the back end (look-aside), or
    /// the cache node does (look-through)
    #[arg(long, value_name = "NAME", requires = "tiered")]
    baseline: Option<BaselineName>,
    /// Forward in the kernel (XDP) between network namespaces, one for each node of a tier; needs
    /// root, iproute2 and ethtool
    #[arg(long, requires = "tiered", conflicts_with = "ovs")]
    xdp: bool,
    /// Forward with an Open vSwitch in user space, started for the tier and controlled over
    /// OpenFlow 1.3, between network namespaces as with --xdp; needs openvswitch-switch as well
    #[arg(long, requires = "tiered")]
    ovs: bool,
    /// What contains the hash of a request's key, with --xdp or --ovs: the IPv6 destination
    /// address (ipv6), or the MAC destination address as in the paper (mac; nodes and clients
    /// then send raw Ethernet frames)
    #[arg(long, value_name = "NAME", default_value = "ipv6", requires = "tiered")]
    encoding: EncodingName,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum EncodingName {
    Ipv6,
    Mac,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BaselineName {
    LookAside,
    LookThrough,
}

impl TieredOptions {
    fn baseline(&self) -> Option<TierBaseline> {
        self.baseline.map(|name| match name {
            BaselineName::LookAside => TierBaseline::LookAside,
            BaselineName::LookThrough => TierBaseline::LookThrough,
        })
    }

    const fn cache_nodes(&self) -> u8 {
        match self.cached_keys {
            0 => 0,
            _ => self.caches,
        }
    }

    /// Whether nodes have network namespaces of their own.
    const fn has_namespaces(&self) -> bool {
        self.xdp || self.ovs
    }

    const fn encoding(&self) -> TrialEncoding {
        match self.encoding {
            EncodingName::Ipv6 => TrialEncoding::Ipv6,
            EncodingName::Mac => TrialEncoding::Mac,
        }
    }

    /// Checks what the flags need, before the command starts a process.
    fn check(&self) -> anyhow::Result<()> {
        let flag = if self.ovs { "--ovs" } else { "--xdp" };
        ensure!(
            !self.has_namespaces() || curtail_runtime::is_root(),
            "{flag} needs root; without {flag} the switch forwards in user space"
        );
        ensure!(
            self.encoding == EncodingName::Ipv6 || self.has_namespaces(),
            "--encoding mac: it needs --xdp or --ovs; the switch in user space forwards no frames"
        );
        ensure!(
            self.baseline.is_none() || self.cached_keys > 0,
            "--baseline needs a cache node: --cached-keys must not be 0"
        );
        ensure!(
            !self.ovs || curtail_tier::is_open_vswitch_installed(),
            "--ovs: Open vSwitch is not installed (Debian: openvswitch-switch)"
        );
        Ok(())
    }
}

/// Runs a trial tier until it is interrupted.
pub(super) fn run(
    options: &TieredOptions,
    dir: Option<&Path>,
    port: u16,
    controls: Controls,
) -> anyhow::Result<ExitCode> {
    options.check()?;
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
    let namespaces = match options.has_namespaces() {
        false => None,
        true => {
            let (prefix, hosts) = (prefix(port), hosts(&file));
            Some(TrialNamespaces::make(options.encoding(), &prefix, &hosts)?)
        }
    };
    let mut trial = TieredTrial {
        namespaces,
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
    let first_cache = FIRST_CACHE;
    let last = port.checked_add(first_cache + u16::from(options.cache_nodes()) + back_ends - 1);
    let last =
        last.with_context(|| format!("--port {port}: too high for {back_ends} back ends"))?;
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    if options.has_namespaces() {
        return plan_namespaces(options, port);
    }
    for port in port..=last {
        UdpSocket::bind(at(port))
            .with_context(|| format!("UDP port {port}; choose others with --port"))?;
    }
    let caches = u16::from(options.cache_nodes());
    let first_back_end = first_cache + caches;
    Ok(TierFile {
        secret: secret()?,
        epoch: 1,
        lease_ms: 500,
        period_ms: options.report_ms,
        group_keys: options.group_keys,
        baseline: options.baseline(),
        network: TierFileNetwork::Forwarder(at(port)),
        control: at(port + 1),
        caches: (port + first_cache..port + first_back_end)
            .map(at)
            .collect(),
        back_ends: (port + first_back_end..=last).map(at).collect(),
    })
}

/// The plan of a tier whose nodes have network namespaces of their own.
fn plan_namespaces(options: &TieredOptions, port: u16) -> anyhow::Result<TierFile> {
    let encoding = options.encoding();
    let at = |node: &str| TrialNamespaces::socket_of(encoding, node, port);
    let back_ends = 0..options.back_ends;
    let back_ends = back_ends.map(|id| at(&format!("back-end{id}")));
    let caches = (0..options.cache_nodes()).map(|id| at(&format!("cache{id}")));
    Ok(TierFile {
        secret: secret()?,
        epoch: 1,
        lease_ms: 500,
        period_ms: options.report_ms,
        group_keys: options.group_keys,
        baseline: options.baseline(),
        network: TrialNamespaces::network(encoding, port),
        control: at(TrialNamespaces::CONTROL)?,
        caches: caches.collect::<std::io::Result<_>>()?,
        back_ends: back_ends.collect::<std::io::Result<_>>()?,
    })
}

/// Prints the status of a trial tier, as its clients see it.
pub(super) fn status(path: &Path, is_json: bool) -> anyhow::Result<()> {
    let port = match TierFile::load(path)?.network {
        TierFileNetwork::Forwarder(_) => return crate::tier::show_status(path, is_json),
        TierFileNetwork::Ipv6 { port, .. } | TierFileNetwork::Mac { port, .. } => port,
    };
    let mut command = Command::new("ip");
    let clients = TrialNamespaces::name(&prefix(port), TrialNamespaces::CLIENTS);
    command.args(["netns", "exec", &clients]);
    command.arg(std::env::current_exe()?);
    command.args(["tier", "status", "--file"]).arg(path);
    command.args(is_json.then_some("--json"));
    ensure!(
        command.status()?.success(),
        "`curtail tier status` failed in {clients}"
    );
    Ok(())
}

/// What is behind the ports of a switch in the kernel.
fn hosts(file: &TierFile) -> Vec<String> {
    let back_ends = (0..file.back_ends.len()).map(|id| format!("back-end{id}"));
    let caches = (0..file.caches.len()).map(|id| format!("cache{id}"));
    let others = [TrialNamespaces::CONTROL, TrialNamespaces::CLIENTS].map(str::to_owned);
    back_ends.chain(caches).chain(others).collect()
}

/// A tier that runs.
struct TieredTrial<'a> {
    namespaces: Option<TrialNamespaces>,
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
            "starting {back_ends} back ends, {} and the switch",
            cache_nodes(&self.file)
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
        let mut command = self.inside(name)?;
        command.arg("tier");
        let number = |kind: &str, count: usize| {
            let number: usize = name.strip_prefix(kind)?.parse().ok()?;
            (number < count).then_some(number)
        };
        let options = self.options;
        if name == "switch" {
            command.arg("switch");
            if let Some(namespaces) = &self.namespaces {
                let flag = if options.ovs {
                    command.arg("--ovs-dir").arg(self.folder.open_vswitch());
                    "--ovs-port"
                } else {
                    "--xdp-port"
                };
                for port in namespaces.ports() {
                    command.args([flag, &port.to_string()]);
                }
                let control = namespaces.name_of(TrialNamespaces::CONTROL);
                let path = Path::new(NAMESPACES).join(control);
                command.arg("--control-namespace").arg(path);
            }
        } else if let Some(id) = number("back-end", self.file.back_ends.len()) {
            command.args(["back-end", "--id", &id.to_string()]);
            command.args(["--limit", &options.limit.to_string()]);
            let update = options.cache_update.to_possible_value();
            let update = update.context("--cache-update")?;
            command.args(["--cache-update", update.get_name()]);
            if options.on_disk {
                command.arg("--data").arg(self.folder.data(id));
            }
        } else if let Some(id) = number("cache", self.file.caches.len()) {
            command.args(["cache", "--id", &id.to_string()]);
            command.args(["--keys", &options.cached_keys.to_string()]);
            command.args(["--limit", &options.cache_limit.to_string()]);
            command.args(["--rule-changes", &options.rule_changes.to_string()]);
            command.args(["--rule-delay-ms", &options.rule_delay_ms.to_string()]);
        } else {
            bail!("there is no {name}; a tier has switch, cache0 and back-end0, back-end1, ...");
        }
        command.arg("--file").arg(self.folder.tier_file());
        let parent = std::process::id().to_string();
        command.args(["--end-with-parent", &parent]);
        Ok(command)
    }

    /// This program, in the network namespace of a node if it has one.
    fn inside(&self, node: &str) -> anyhow::Result<Command> {
        let program = std::env::current_exe()?;
        let Some(namespaces) = &self.namespaces else {
            return Ok(Command::new(program));
        };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespaces.name_of(node)]);
        command.arg(program);
        Ok(command)
    }

    /// The nodes that do not answer and the back ends without a lease, by `tier status`.
    fn missing(&self) -> anyhow::Result<Vec<String>> {
        let mut command = self.inside(TrialNamespaces::CLIENTS)?;
        command.args(["tier", "status", "--json", "--file"]);
        let output = command.arg(self.folder.tier_file()).output()?;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        Ok(missing_in(&status))
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
        let missing = self.missing()?;
        if !missing.is_empty() {
            let waited = self.began.elapsed();
            ensure!(
                waited < START_PATIENCE,
                "not ready after {waited:.0?}: {}",
                missing.join(", ")
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
        let (inside, at) = match (&self.namespaces, self.file.network) {
            (Some(all), _) => {
                let clients = all.name_of(TrialNamespaces::CLIENTS);
                let inside = format!("ip netns exec {clients} ");
                (inside, format!("in the network namespace {clients}"))
            }
            (None, TierFileNetwork::Forwarder(at)) => (String::new(), format!("at UDP {at}")),
            (None, _) => (String::new(), String::new()),
        };
        // Nobody may be looking.
        let _ = writeln!(
            std::io::stdout().lock(),
            "the tier is up: {} back ends {limit}, {} for at most {} keys each, clients {at}.\n\
             Look at it with `{inside}curtail tier status --file {path}`. Stop with Ctrl-C.",
            self.file.back_ends.len(),
            cache_nodes(&self.file),
            self.options.cached_keys,
        );
        Ok(())
    }

    fn carry_out(&mut self, request: Request) -> anyhow::Result<String> {
        match request {
            Request::Signal { node, signal } => self.find(&node)?.act(signal),
            Request::Add { node: Some(node) } => {
                self.start(&node)?;
                Ok(node)
            }
            _ => bail!("this is a tier, not a cluster: use kill, pause, resume or `add NODE`"),
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

/// The nodes that a status shows as silent, and the back ends that have granted no lease to a cache
/// node although there is one.
fn missing_in(status: &serde_json::Value) -> Vec<String> {
    let all = |kind: &str| status[kind].as_array().cloned().unwrap_or_default();
    let needs_lease = !all("caches").is_empty();
    let mut missing = Vec::new();
    if !status["switch"].is_object() {
        missing.push("switch".to_owned());
    }
    for (kind, name) in [("caches", "cache"), ("back_ends", "back-end")] {
        for (number, node) in all(kind).iter().enumerate() {
            if !node.is_object() {
                missing.push(format!("{name}{number}"));
            } else if kind == "back_ends" && needs_lease && node["has_lease"] != 1 {
                missing.push(format!("{name}{number} (has no lease)"));
            }
        }
    }
    missing
}

fn cache_nodes(file: &TierFile) -> String {
    match file.caches.len() {
        1 => "1 cache node".to_string(),
        count => format!("{count} cache nodes"),
    }
}

/// What the names of a trial tier's network namespaces begin with.
fn prefix(port: u16) -> String {
    format!("curtail-{port}")
}

/// A secret that nobody can guess.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// Where iproute2 keeps network namespaces.
const NAMESPACES: &str = "/run/netns";
/// Forwarder and control have the ports before; back ends have those after the cache nodes.
const FIRST_CACHE: u16 = 2;
const GLANCE: Duration = Duration::from_millis(100);
const START_PATIENCE: Duration = Duration::from_secs(60);
const END_PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: an operator is told which nodes of a tier are not ready. Method: a status in which
    /// some are silent and one back end has no lease, with and without a cache node.
    #[test]
    fn the_nodes_that_are_not_ready_are_named() {
        let (up, leased) = (json!({"has_lease": 0}), json!({"has_lease": 1}));
        let all = json!({"switch": up, "caches": [up], "back_ends": [leased, leased]});
        assert_eq!(missing_in(&all), Vec::<String>::new());
        let few = json!({"switch": null, "caches": [up, null], "back_ends": [null, up, leased]});
        let named = ["switch", "cache1", "back-end0", "back-end1 (has no lease)"];
        assert_eq!(missing_in(&few), named);
        let without_cache = json!({"switch": up, "caches": [], "back_ends": [up, null]});
        assert_eq!(missing_in(&without_cache), ["back-end1"]);
    }
}
