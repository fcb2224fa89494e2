//! Nodes that are processes: killed, paused, cut off from the others or from the view, while
//! clients in the test continue.
//!
//! A node is this program again, told by its environment to be one ([`node_process`]); its standard
//! input says which keys shall be hot, and ends it. Each reads the view through a link of its own
//! in the file system, so that one of them can lose it.

use std::{
    env, fs,
    io::{BufRead, Write},
    net::SocketAddr,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use curtail_consistency::{slice_placement, slice_view::SliceView};
use curtail_membership::{ClusterFile, NodeConfig, Roster};
use curtail_server::{
    Config, Fault, Listen, NativeConfig, Server,
    log::{self, LogOptions},
};
use curtail_testing::{PATIENCE, config, native_address};
use curtail_types::NodeId;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tempfile::TempDir;

use crate::{
    etcd::Etcd,
    keep_failure_logs::{Log, keep_panics},
    network::Network,
    support::{Protocol, Shape, native_of, store_in_file, write_secret},
    wrong_clocks::WrongClocks,
};

/// Nodes of a cluster, each a process.
pub(crate) struct Processes {
    pub(crate) shape: Shape,
    /// Where each node is, if they are not all on one loopback.
    pub(crate) network: Option<Network>,
    /// The view's store, if it is not a file.
    pub(crate) etcd: Option<Etcd>,
    /// What makes the clocks of nodes wrong, if anything does.
    pub(crate) clocks: Option<WrongClocks>,
    /// What nodes say.
    pub(crate) log: Log,
    folder: TempDir,
    nodes: Vec<Option<Node>>,
}

struct Node {
    child: Child,
    input: ChildStdin,
    is_stopped: bool,
    /// The life that the view knew when it was started, which was another's.
    before: u64,
    address: Option<SocketAddr>,
}

/// Tells a process which node to be.
const NODE: &str = "CURTAIL_TEST_NODE";

/// The file in which a node says where it receives datagrams.
const DATAGRAMS: &str = "datagrams";

impl Processes {
    /// Starts all nodes and waits until every key has its place.
    pub(crate) fn start(shape: Shape, network: Option<Network>) -> Self {
        let folder = tempfile::tempdir_in(base()).unwrap();
        fs::create_dir_all(folder.path().join("view")).unwrap();
        write_secret(folder.path());
        keep_panics();
        let clocks = WrongClocks::prepare(folder.path(), shape.nodes);
        let etcd = shape.view_in_etcd.then(|| {
            let host = network.as_ref().map_or("127.0.0.1", |_| Network::HUB);
            Etcd::start(host, &folder.path().join("etcd"))
        });
        let mut cluster = Self {
            shape,
            network,
            etcd,
            clocks,
            log: Log::begin(),
            folder,
            nodes: Vec::new(),
        };
        let own = cluster.folder.path().join("cluster.toml");
        fs::write(own, cluster.text("secret")).unwrap();
        for id in 0..shape.nodes {
            let folder = cluster.folder_of(id);
            fs::create_dir_all(&folder).unwrap();
            symlink("../view", folder.join("view")).unwrap();
            let text = cluster.text("../secret");
            fs::write(folder.join("cluster.toml"), text).unwrap();
        }
        cluster.nodes = (0..shape.nodes).map(|_| None).collect();
        (0..shape.nodes).for_each(|id| cluster.revive(id));
        cluster.settle();
        cluster
    }

    fn folder_of(&self, id: usize) -> PathBuf {
        self.folder.path().join(format!("node{id}"))
    }

    fn text(&self, secret: &str) -> String {
        let in_file = || store_in_file("view/view.json");
        let store = self.etcd.as_ref().map_or_else(in_file, Etcd::store);
        let host = |id| self.host(id);
        self.shape.text("processes", secret, &store, host)
    }

    fn host(&self, id: usize) -> String {
        match self.network {
            Some(_) => Network::host(id),
            None => "127.0.0.1".into(),
        }
    }

    /// Starts a node that does not run.
    pub(crate) fn revive(&mut self, id: usize) {
        let mut command = match &self.network {
            Some(network) => network.command_at(id),
            None => Command::new(env::current_exe().unwrap()),
        };
        let roster = self.roster();
        let before = roster.and_then(|roster| Some(roster.node(NodeId(id as u8))?.incarnation.0));
        let before = before.unwrap_or(0);
        let fault = format!("{:?}", self.shape.fault);
        let folder = self.folder_of(id);
        let (host, workers) = (self.host(id), self.shape.workers);
        let (memory, evict) = (self.shape.memory_bytes, self.shape.evict);
        let protocol = format!("{:?}", self.shape.protocol);
        let (pins, service) = (self.shape.pins_of(id).unwrap_or("-"), self.shape.service_ns);
        let _ = fs::remove_file(folder.join(DATAGRAMS));
        let what = format!(
            "{id} {host} {workers} {memory} {evict} {fault} {protocol} {pins} {service} {}",
            folder.display()
        );
        command.args(["processes::node_process", "--exact", "--ignored"]);
        command.args(["--nocapture", "--test-threads", "1"]);
        if let Some(clocks) = &self.clocks {
            command.envs(clocks.environment(id));
        }
        let mut child = command
            .env(NODE, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if let Some(said) = child.stderr.take() {
            self.log.follow(format!("node {id}"), said);
        }
        let input = child.stdin.take().unwrap();
        self.nodes[id] = Some(Node {
            child,
            input,
            is_stopped: false,
            before,
            address: None,
        });
    }

    /// Tells a node to leave the cluster.
    pub(crate) fn leave(&mut self, id: usize) {
        if let Some(node) = &mut self.nodes[id] {
            writeln!(node.input, "leave now").unwrap();
        }
    }

    /// Ends a node as a crash would.
    pub(crate) fn kill(&mut self, id: usize) {
        if let Some(mut node) = self.nodes[id].take() {
            node.child.kill().unwrap();
            node.child.wait().unwrap();
        }
    }

    /// Stops a node in its tracks, or lets it go on.
    pub(crate) fn stop(&mut self, id: usize, stops: bool) {
        if let Some(node) = &mut self.nodes[id] {
            let signal = if stops { Signal::STOP } else { Signal::CONT };
            kill_process(Pid::from_child(&node.child), signal).unwrap();
            node.is_stopped = stops;
        }
    }

    /// Takes the view from a node, or gives it back: a link that leads to itself cannot be read.
    pub(crate) fn hide_view(&self, id: usize, hides: bool) {
        let (link, new) = ("view", "view.new");
        let folder = self.folder_of(id);
        let to = if hides { link } else { "../view" };
        symlink(to, folder.join(new)).unwrap();
        fs::rename(folder.join(new), folder.join(link)).unwrap();
    }

    /// Has a key become hot, or cease to be.
    pub(crate) fn change_hot(&mut self, key: &str, hot: bool) {
        let word = if hot { "hot" } else { "cold" };
        let nodes = self.nodes.iter_mut().flatten();
        for node in nodes.filter(|node| !node.is_stopped) {
            // A process that has ended hears nothing.
            let _ = writeln!(node.input, "{word} {key}");
        }
    }

    /// What the nodes agree on now, if there is a store that answers.
    pub(crate) fn roster(&self) -> Option<Roster> {
        let cluster = ClusterFile::load(&self.folder.path().join("cluster.toml")).unwrap();
        let read = cluster.open_store().read_roster();
        let stored = match self.etcd {
            Some(_) => read.ok().flatten(),
            None => read.unwrap(),
        };
        stored.map(|stored| stored.roster)
    }

    /// Whether a node is in the view.
    pub(crate) fn is_member(&self, id: usize) -> bool {
        let members = |roster: Roster| roster.slices().map(|slices| slices.members);
        let members = self.roster().and_then(members);
        members.is_some_and(|members| members.contains(NodeId(id as u8)))
    }

    /// Where clients of the shape's protocol reach each node that runs.
    pub(crate) fn addresses(&mut self) -> Vec<Option<SocketAddr>> {
        let streams = self.stream_addresses();
        if self.shape.protocol == Protocol::Streams {
            return streams;
        }
        let told = |(id, stream): (usize, &Option<SocketAddr>)| {
            (*stream)?;
            let text = fs::read_to_string(self.folder_of(id).join(DATAGRAMS)).ok()?;
            text.parse().ok()
        };
        streams.iter().enumerate().map(told).collect()
    }

    /// Where memcached's clients do so over TCP: a node may be no member at the moment.
    pub(crate) fn stream_addresses(&mut self) -> Vec<Option<SocketAddr>> {
        let roster = self.roster();
        let address = |(id, node): (usize, &mut Option<Node>)| {
            let node = node.as_mut()?;
            let member = roster.as_ref().and_then(|now| now.node(NodeId(id as u8)));
            let found = member.filter(|member| member.incarnation.0 != node.before);
            let found = found.map(|member| member.addresses.clients);
            node.address = found.or(node.address);
            node.address
        };
        self.nodes.iter_mut().enumerate().map(address).collect()
    }

    /// Whether every node serves and every slice is in its place.
    pub(crate) fn is_settled(&self) -> bool {
        let all = |roster: Roster| {
            let is_settled = |slices: &Arc<SliceView>| {
                let members = slices.members.len() == self.shape.nodes;
                members && slice_placement::is_settled(slices, &roster.goal())
            };
            roster.slices().is_some_and(is_settled)
        };
        self.roster().is_some_and(all)
    }

    /// Waits for that.
    #[track_caller]
    pub(crate) fn settle(&self) {
        let started = Instant::now();
        while !self.is_settled() {
            let roster = self.roster().map(|roster| roster.to_json());
            assert!(started.elapsed() < 3 * PATIENCE, "never: {roster:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Where the view and all other files are: in memory where there is such a place, unless
/// `CURTAIL_VIEWS_IN` names a folder, on a disk that is kept busy for example.
fn base() -> PathBuf {
    let memory = || Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
    let told = env::var_os("CURTAIL_VIEWS_IN").map(PathBuf::from);
    told.or_else(memory).unwrap_or_else(env::temp_dir)
}

impl Drop for Processes {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("what nodes said:\n{}", self.log.text());
        }
        (0..self.nodes.len()).for_each(|id| self.kill(id));
    }
}

/// No test: what a process does that is to be a node.
#[test]
#[ignore = "a node of the other tests, as a process of its own"]
fn node_process() {
    let Ok(text) = env::var(NODE) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let words: Vec<&str> = text.splitn(10, ' ').collect();
    let &[
        id,
        host,
        workers,
        memory,
        evict,
        fault,
        protocol,
        pins,
        service,
        folder,
    ] = &*words
    else {
        panic!("{NODE}={text}");
    };
    let file = PathBuf::from(folder).join("cluster.toml");
    let config = Config {
        listen: vec![Listen {
            address: format!("{host}:0").parse().unwrap(),
            optional: false,
        }],
        workers: workers.parse().unwrap(),
        memory_bytes_max: match protocol {
            // Queues and sessions take at most half of it.
            "Native" => memory.parse::<usize>().unwrap().max(40 << 20),
            _ => memory.parse().unwrap(),
        },
        evict: evict.parse().unwrap(),
        // Clients that send everything before they read are not closed for that.
        buffer_bytes_max: 64 << 20,
        huge_pages: false,
        verbosity: 1,
        udp_port: (protocol == "Datagrams").then_some(0),
        native: (protocol == "Native").then(|| native_in(pins, service)),
        // Which keys are hot this test says, and nobody else.
        hot_keys_max: 0,
        faults: match fault {
            "ServesPastLease" => Fault::ServesPastLease,
            _ => Fault::Nothing,
        }
        .into(),
        node: Some(NodeConfig::load(&file, id).unwrap()),
        ..config()
    };
    // What a node logs is shown when a test fails.
    let _log = log::install(LogOptions {
        verbosity: config.verbosity,
        ..LogOptions::default()
    });
    let server = Server::start(config, |_| ()).unwrap();
    let datagrams = match protocol {
        "Native" => Some(native_address(&server)),
        _ => server.udp_addresses().first().copied(),
    };
    if let Some(address) = datagrams {
        // In one step: who reads it finds all of it or nothing.
        let (new, told) = (format!("{folder}/new"), format!("{folder}/{DATAGRAMS}"));
        fs::write(&new, address.to_string()).unwrap();
        fs::rename(&new, told).unwrap();
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("hot", key)) => server.change_hot(key.as_bytes(), true),
            Some(("cold", key)) => server.change_hot(key.as_bytes(), false),
            Some(("leave", _)) => drop(server.leave()),
            _ => {}
        }
    }
}

fn native_in(pins: &str, service_ns: &str) -> NativeConfig {
    NativeConfig {
        // A client whose request has no answer opens another session.
        sessions: 4096,
        ..native_of(
            Some(pins).filter(|pins| *pins != "-"),
            service_ns.parse().unwrap(),
        )
    }
}
