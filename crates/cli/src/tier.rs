//! `curtail tier`: the nodes of a cache tier, one a process, and what is asked of a tier
//! (`docs/guide/tier.md`).

mod load;
mod load_series;
mod status;

use std::{
    fs::File,
    io::{self, Write as _},
    net::Ipv4Addr,
    os::fd::AsFd as _,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::{Args, Subcommand, ValueEnum};
use curtail_client::tier::{FrameWay, TierSession, TierSocket, TierTarget};
use curtail_runtime::{ControlEvent, Controls, FrameSocket};
use curtail_storage::Durability;
use curtail_tier::{
    BackEndNode, BackEndOptions, CacheNode, CacheOptions, ControllerEndpoint, RuleBudget,
    StoreOptions, StorePlace, SwitchNode, SwitchOptions, TierFile, TierNode, TierPort, UpdateMode,
};
use curtail_types::{BackEndId, CacheId};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cluster_flags::end_with;

pub(crate) use status::{show_status, watch_status};

/// What to do with a cache tier.
#[derive(Args, Debug)]
pub(crate) struct TierOptions {
    #[command(subcommand)]
    command: TierCommand,
}

#[derive(Debug, Subcommand)]
enum TierCommand {
    /// Run a back end: it stores its share of the keys
    BackEnd(BackEndFlags),
    /// Run a cache node: it holds the hottest keys in memory
    Cache(CacheFlags),
    /// Run the switch: a forwarder in user space, XDP or Open vSwitch, and the controller of its
    /// rules
    Switch(SwitchFlags),
    /// Show the nodes of a tier with their load, the cache's hits, and the rules
    Status {
        #[command(flatten)]
        at: TierPlace,
        /// Print the counters of all nodes as JSON
        #[arg(long)]
        json: bool,
    },
    /// Find the highest rate that a tier serves, or send requests at --rate, and show which nodes
    /// answered
    Load {
        #[command(flatten)]
        at: TierPlace,
        #[command(flatten)]
        options: load::LoadOptions,
    },
    /// Read an item, and say which kind of node answered
    Get {
        /// The key
        key: String,
        #[command(flatten)]
        at: TierPlace,
    },
    /// Store an item
    Put {
        /// The key
        key: String,
        /// The value
        value: String,
        #[command(flatten)]
        at: TierPlace,
    },
    /// Remove every item of every back end. This takes about one lease: each back end first waits
    /// until the leases of its cache nodes have ended
    Flush {
        #[command(flatten)]
        at: TierPlace,
    },
    /// Remove an item
    Delete {
        /// The key
        key: String,
        #[command(flatten)]
        at: TierPlace,
    },
}

#[derive(Args, Debug)]
struct TierPlace {
    /// File that describes the tier
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

#[derive(Args, Debug)]
struct Parent {
    /// End when the process that started this one, which has this number, ends
    #[arg(long, value_name = "PID", hide = true)]
    end_with_parent: Option<i32>,
}

#[derive(Args, Debug)]
struct BackEndFlags {
    #[command(flatten)]
    at: TierPlace,
    /// Number of the back end in the file
    #[arg(long, value_name = "NUM")]
    id: u16,
    /// Directory for the items; without it, items are kept in memory only, and writes are refused
    /// when --memory is full
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What an answered write promises with --data: sync (it is on stable storage) or bounded (a
    /// crash of the machine or the process can lose the newest writes, all from one period of 100
    /// ms)
    #[arg(long, value_name = "MODE", default_value = "sync", requires = "data")]
    durability: TierDurability,
    /// Memory for items, in MiB
    #[arg(long, value_name = "NUM", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    memory: u32,
    /// Requests served in a second; those beyond are refused. 0: no limit
    #[arg(long, value_name = "NUM", default_value_t = 0)]
    limit: u64,
    /// Number of hottest keys that the back end reports to its cache node in each period
    #[arg(long, value_name = "NUM", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    reported: u16,
    /// What the back end reports to the cache node: once a period its hottest keys (periodic),
    /// immediately each key whose load rises suddenly (instant), both, or every key that is read
    /// (traditional)
    #[arg(long, value_name = "MODE", default_value = "both")]
    cache_update: UpdateName,
    #[command(flatten)]
    parent: Parent,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TierDurability {
    Sync,
    Bounded,
}

/// How the keys in the cache follow the load.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum UpdateName {
    Both,
    Periodic,
    Instant,
    Traditional,
}

impl UpdateName {
    const fn mode(self) -> UpdateMode {
        match self {
            Self::Both => UpdateMode::Both,
            Self::Periodic => UpdateMode::Periodic,
            Self::Instant => UpdateMode::Instant,
            Self::Traditional => UpdateMode::Traditional,
        }
    }
}

#[derive(Args, Debug)]
struct CacheFlags {
    #[command(flatten)]
    at: TierPlace,
    /// Number of the cache node in the file
    #[arg(long, value_name = "NUM", default_value_t = 0)]
    id: u8,
    /// Maximum number of keys of which the cache node holds copies
    #[arg(long, value_name = "NUM", default_value_t = 10_000)]
    keys: usize,
    /// Maximum number of rules that the cache node changes in a second; 0: no limit
    #[arg(long, value_name = "NUM", default_value_t = 2000)]
    rule_changes: u64,
    /// Maximum time for which an eviction waits while rules of new keys are installed, in
    /// milliseconds. Meanwhile the cache node may hold more keys than --keys; the surplus, the
    /// rule buffer, is at most this time multiplied by --rule-changes. 0: a key is evicted before
    /// another is added
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=60_000))]
    rule_delay_ms: u64,
    /// Reads answered in a second; those beyond are refused. 0: no limit
    #[arg(long, value_name = "NUM", default_value_t = 0)]
    limit: u64,
    #[command(flatten)]
    parent: Parent,
}

#[derive(Args, Debug)]
struct SwitchFlags {
    #[command(flatten)]
    at: TierPlace,
    /// Maximum number of rules; each rule is for one key
    #[arg(long, value_name = "NUM", default_value_t = 131_072)]
    rules: usize,
    /// Forward in the kernel (XDP): an interface of this network namespace and the node behind it,
    /// as INTERFACE=back-end0, INTERFACE=cache0 or INTERFACE=host300; repeat the flag for each
    /// interface. Needs root
    #[arg(long, value_name = "PORT", group = "ports")]
    xdp_port: Vec<TierPort>,
    /// Start an Open vSwitch that forwards between interfaces of this network namespace, and
    /// control it over OpenFlow 1.3; repeat the flag as with
    /// --xdp-port. Needs root and the package openvswitch-switch
    #[arg(long, value_name = "PORT", group = "ports", requires = "ovs_dir")]
    ovs_port: Vec<TierPort>,
    /// Directory for the sockets and the database of --ovs-port, which are removed at the end
    #[arg(long, value_name = "DIR", requires = "ovs_port")]
    ovs_dir: Option<PathBuf>,
    /// Control an external switch over OpenFlow 1.3, at unix:PATH or tcp:IP:PORT; with a p in front
    /// (punix:PATH, ptcp:IP:PORT) the switch connects to this process
    #[arg(long, value_name = "SWITCH", requires = "openflow_port")]
    openflow: Option<Endpoint>,
    /// Number of a port of the switch of --openflow and the node behind it, as 7=back-end0; repeat
    /// the flag for each port
    #[arg(long, value_name = "PORT", group = "ports", requires = "openflow")]
    #[arg(value_parser = numbered_port)]
    openflow_port: Vec<TierPort>,
    /// File of the network namespace in which the switch's process receives changes of rules
    /// (default: the namespace of the process)
    #[arg(long, value_name = "FILE", requires = "ports")]
    control_namespace: Option<PathBuf>,
    #[command(flatten)]
    parent: Parent,
}

/// Carries the command out.
pub(crate) fn run(options: &TierOptions) -> anyhow::Result<ExitCode> {
    match &options.command {
        TierCommand::BackEnd(flags) => run_back_end(flags),
        TierCommand::Cache(flags) => run_cache(flags),
        TierCommand::Switch(flags) => run_switch(flags),
        TierCommand::Status { at, json } => {
            show_status(&at.file, *json)?;
            Ok(ExitCode::SUCCESS)
        }
        TierCommand::Load { at, options } => {
            load::run(&at.load()?, options)?;
            Ok(ExitCode::SUCCESS)
        }
        TierCommand::Get { key, at } => get(key, at),
        TierCommand::Flush { at } => flush(at),
        TierCommand::Put { key, value, at } => {
            let version = at
                .session()?
                .put(key.as_bytes(), value.as_bytes(), 0, None)?;
            println!("stored, version {}", version.0);
            Ok(ExitCode::SUCCESS)
        }
        TierCommand::Delete { key, at } => {
            let was_there = at.session()?.delete(key.as_bytes())?;
            println!(
                "{}",
                if was_there {
                    "removed"
                } else {
                    "there was none"
                }
            );
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn flush(at: &TierPlace) -> anyhow::Result<ExitCode> {
    // Each back end waits for leases to end: those of a group wait once.
    const GROUP: usize = 64;
    let file = at.load()?;
    let back_ends: Vec<_> = (0..file.map().back_ends).map(BackEndId).collect();
    let mut failures = 0;
    for group in back_ends.chunks(GROUP) {
        thread::scope(|scope| {
            let begin = |&back_end| scope.spawn(move || flush_one(at, back_end));
            let flushes: Vec<_> = group.iter().map(begin).collect();
            for (back_end, flush) in group.iter().zip(flushes) {
                let flushed = flush.join().unwrap_or_else(|panic| resume_unwind(panic));
                if let Err(error) = flushed {
                    failures += 1;
                    eprintln!("back end {}: {error:#}", back_end.0);
                }
            }
        });
    }
    ensure!(
        failures == 0,
        "{failures} of {} back ends were not emptied",
        back_ends.len()
    );
    println!("{} back ends are empty", back_ends.len());
    Ok(ExitCode::SUCCESS)
}

fn flush_one(at: &TierPlace, back_end: BackEndId) -> anyhow::Result<()> {
    Ok(at.session()?.flush(back_end)?)
}

fn get(key: &str, at: &TierPlace) -> anyhow::Result<ExitCode> {
    let Some(found) = at.session()?.get(key.as_bytes())? else {
        eprintln!("there is no such item");
        return Ok(ExitCode::FAILURE);
    };
    let by = match found.is_from_cache {
        true => "a cache node",
        false => "its back end",
    };
    eprintln!("from {by}, version {}", found.version.0);
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(&found.value)
        .and_then(|()| out.write_all(b"\n"));
    // The reader may have closed the pipe.
    let _ = written;
    Ok(ExitCode::SUCCESS)
}

impl TierPlace {
    fn load(&self) -> anyhow::Result<TierFile> {
        Ok(TierFile::load(&self.file)?)
    }

    fn session(&self) -> anyhow::Result<TierSession> {
        let target = self.load()?.target();
        // Unlike that of every other process; sessions of one ask different back ends.
        let number = std::process::id().saturating_add(FIRST_CLIENT);
        let socket = socket_to(&target).context("cannot open a socket to the tier")?;
        Ok(TierSession::with_socket(socket, target, number))
    }
}

/// A client's socket; with encoding `mac` it sends frames.
fn socket_to(target: &TierTarget) -> io::Result<TierSocket> {
    TierSocket::open(target, frames_from)
}

fn frames_from(own: Ipv4Addr) -> io::Result<FrameWay> {
    let needs = |error| io::Error::other(format!("encoding mac needs CAP_NET_RAW: {error}"));
    let socket = FrameSocket::sender_at(own).map_err(needs)?;
    Ok(FrameWay::new(socket.mac(), move |frame| socket.send(frame)))
}

/// Below are cache nodes.
const FIRST_CLIENT: u32 = 256;

fn run_back_end(flags: &BackEndFlags) -> anyhow::Result<ExitCode> {
    let place = match &flags.data {
        None => StorePlace::Memory,
        Some(directory) => {
            let above = directory
                .parent()
                .filter(|path| !path.as_os_str().is_empty());
            if let Some(above) = above {
                std::fs::create_dir_all(above).with_context(|| above.display().to_string())?;
            }
            StorePlace::Disk {
                directory: directory.clone(),
                durability: match flags.durability {
                    TierDurability::Sync => Durability::Sync,
                    TierDurability::Bounded => Durability::Bounded(BOUNDED_WINDOW),
                },
            }
        }
    };
    let options = BackEndOptions {
        id: BackEndId(flags.id),
        store: StoreOptions {
            place,
            memory_bytes: (flags.memory as usize) << 20,
        },
        limit_per_s: flags.limit,
        reported: flags.reported.into(),
        update: flags.cache_update.mode(),
    };
    let file = flags.at.load()?;
    run_node(&flags.parent, || Ok(BackEndNode::start(&file, &options)?))
}

fn run_cache(flags: &CacheFlags) -> anyhow::Result<ExitCode> {
    let options = CacheOptions {
        id: CacheId(flags.id),
        capacity: flags.keys,
        rules: rule_budget(flags.rule_changes, flags.rule_delay_ms),
        limit_per_s: flags.limit,
    };
    let file = flags.at.load()?;
    run_node(&flags.parent, || Ok(CacheNode::start(&file, &options)?))
}

fn run_switch(flags: &SwitchFlags) -> anyhow::Result<ExitCode> {
    let options = SwitchOptions {
        capacity: flags.rules,
    };
    let file = flags.at.load()?;
    let enter = || match &flags.control_namespace {
        None => Ok(()),
        Some(path) => enter_network(path),
    };
    run_node(&flags.parent, || {
        Ok(match (&flags.openflow, &flags.ovs_dir) {
            (Some(Endpoint(at)), _) => {
                let ports = (&flags.openflow_port[..], at.clone());
                SwitchNode::start_openflow(&file, &options, ports, &enter)?
            }
            (None, Some(directory)) => {
                let ports = (&flags.ovs_port[..], directory.as_path());
                SwitchNode::start_open_vswitch(&file, &options, ports, &enter)?
            }
            _ if !flags.xdp_port.is_empty() => {
                SwitchNode::start_xdp(&file, &options, &flags.xdp_port, &enter)?
            }
            _ => SwitchNode::start(&file, &options)?,
        })
    })
}

/// Where a switch is that speaks OpenFlow, as Open vSwitch writes it.
#[derive(Clone, Debug)]
struct Endpoint(ControllerEndpoint);

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use ControllerEndpoint as At;
        let wrong = || format!("\"{text}\" is not [p]unix:PATH or [p]tcp:IP:PORT");
        let (kind, place) = text.split_once(':').ok_or_else(wrong)?;
        let address = || place.parse().map_err(|_| wrong());
        Ok(Self(match kind {
            _ if place.is_empty() => return Err(wrong()),
            "unix" => At::ConnectUnix(place.into()),
            "punix" => At::ListenUnix(place.into()),
            "tcp" => At::ConnectTcp(address()?),
            "ptcp" => At::ListenTcp(address()?),
            _ => return Err(wrong()),
        }))
    }
}

fn numbered_port(text: &str) -> Result<TierPort, String> {
    let port: TierPort = text.parse()?;
    let number = port.interface.parse::<u32>();
    let is_number = number.is_ok_and(|number| (1..OPENFLOW_PORTS_END).contains(&number));
    let wrong = || format!("\"{text}\": give the port's number, as 7=back-end0");
    is_number.then_some(port).ok_or_else(wrong)
}

/// OpenFlow's numbers from here on mean something else than ports.
const OPENFLOW_PORTS_END: u32 = 0xffff_ff00;

/// This thread is in another network namespace from now on.
fn enter_network(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(file.as_fd(), kind)?)
}

/// A tenth of a second's changes at once, and as many waiting as a period may bring.
fn rule_budget(per_s: u64, delay_ms: u64) -> RuleBudget {
    RuleBudget {
        per_s,
        burst: (per_s / 10).max(1),
        queue_max: 1 << 16,
        delay_max_ns: delay_ms * 1_000_000,
    }
}

/// Runs a node until this process is told to stop.
fn run_node<N: TierNode>(
    parent: &Parent,
    start: impl FnOnce() -> anyhow::Result<N>,
) -> anyhow::Result<ExitCode> {
    // Before the first thread: threads inherit the blocked signals.
    let mut controls = Controls::new()?;
    if let Some(parent) = parent.end_with_parent {
        end_with(parent).context("--end-with-parent")?;
    }
    let mut node = start()?;
    let stops = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&stops);
    let wait = move || {
        while controls.wait(None) != Some(ControlEvent::Stop) {}
        // Relaxed: the flag carries nothing with it.
        its.store(true, Relaxed);
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    curtail_tier::run(&mut node, &stops);
    Ok(ExitCode::SUCCESS)
}

const BOUNDED_WINDOW: Duration = Duration::from_millis(100);
