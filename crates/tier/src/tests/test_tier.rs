//! A whole tier on a switch of any kind, its nodes as threads of this process: on loopback with the
//! switch in user space, else each in a network namespace.

use std::{
    fs::File,
    io::Write as _,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use curtail_client::tier::{FrameWay, TierSession, TierSocket, TierTarget};
use curtail_consistency::tiered::{BackEndId, CacheId, RuleBudget, TierMutant};
use curtail_routing::{ControllerEndpoint, OpenVswitch, OpenVswitchOptions, PortType};
use curtail_runtime::FrameSocket;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{
    eventually,
    gate::{Gate, GatedSwitch},
    patient_client::PatientClient,
    rough_network::{RoughLink, RoughWire, Roughness},
};
use crate::{
    BackEndNode, BackEndOptions, CacheNode, CacheOptions, NodeError, NodeStatus, NodeThread,
    StoreOptions, StorePlace, SwitchNode, SwitchOptions, TierBaseline, TierFile, TierFileNetwork,
    TrialEncoding, TrialNamespaces, UpdateMode, ask_status,
    switch_start::{encoding, numbered},
};

/// What forwards.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SwitchKind {
    UserSpace,
    Xdp,
    OpenVswitch,
    /// The same with encoding `mac`.
    XdpByMac,
    OpenVswitchByMac,
}

/// The nodes of a tier. Fields end in this order: nodes before what they run on.
pub(crate) struct TestTier {
    pub(crate) kind: SwitchKind,
    pub(crate) file: TierFile,
    /// As the switch in user space sees it: a link may be rough.
    switch_file: TierFile,
    pub(crate) gate: Arc<Gate>,
    switch: Option<NodeThread>,
    caches: Vec<Option<NodeThread>>,
    back_ends: Vec<Option<NodeThread>>,
    options: TestOptions,
    pub(crate) daemons: Option<OpenVswitch>,
    _links: Vec<RoughLink>,
    _wires: Vec<RoughWire>,
    namespaces: Option<TrialNamespaces>,
    /// Directories of back ends on disk, and of Open vSwitch.
    disks: Vec<tempfile::TempDir>,
}

#[derive(Clone, Debug)]
pub(crate) struct TestOptions {
    pub(crate) back_ends: usize,
    pub(crate) limit_per_s: u64,
    pub(crate) is_on_disk: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) lease_ms: u64,
    pub(crate) period_ms: u64,
    /// Hottest keys that a back end reports.
    pub(crate) reported: usize,
    pub(crate) update: UpdateMode,
    pub(crate) capacity: usize,
    pub(crate) caches: usize,
    pub(crate) group_keys: u8,
    pub(crate) rules: RuleBudget,
    /// Rules of keys that the switch takes.
    pub(crate) rules_max: usize,
    pub(crate) roughness: Option<Roughness>,
    pub(crate) mutant: Option<TierMutant>,
    pub(crate) baseline: Option<TierBaseline>,
}

impl Default for TestOptions {
    fn default() -> Self {
        Self {
            back_ends: 2,
            limit_per_s: 0,
            is_on_disk: false,
            memory_bytes: 8 << 20,
            lease_ms: 500,
            period_ms: 100,
            reported: 5,
            update: UpdateMode::Both,
            capacity: 16,
            caches: 1,
            group_keys: 4,
            rules: RuleBudget {
                per_s: 1000,
                burst: 10,
                queue_max: 1000,
                delay_max_ns: 50_000_000,
            },
            rules_max: 1000,
            roughness: None,
            mutant: None,
            baseline: None,
        }
    }
}

impl SwitchKind {
    pub(crate) const fn is_open_vswitch(self) -> bool {
        matches!(self, Self::OpenVswitch | Self::OpenVswitchByMac)
    }

    const fn encoding(self) -> TrialEncoding {
        match self {
            Self::XdpByMac | Self::OpenVswitchByMac => TrialEncoding::Mac,
            _ => TrialEncoding::Ipv6,
        }
    }

    /// Whether tests on this kind are skipped here; then it is said on standard error, which the
    /// test harness does not capture. As root they fail where it cannot be had.
    pub(crate) fn is_skipped(self) -> bool {
        let why = match std::env::var_os("CURTAIL_WITHOUT_XDP") {
            _ if self == Self::UserSpace => return false,
            Some(_) => "CURTAIL_WITHOUT_XDP is set",
            None if !curtail_runtime::is_root() => "not root",
            None => return false,
        };
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let line = format!("SKIPPED: {name}: no namespaces and no XDP here: {why}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        true
    }
}

impl TestTier {
    pub(crate) fn start(kind: SwitchKind, options: TestOptions) -> Self {
        let (file, namespaces, wires) = match kind {
            SwitchKind::UserSpace => (file_on_loopback(&options), None, Vec::new()),
            _ => file_in_namespaces(kind.encoding(), &options),
        };
        let (mut file, mut switch_file, mut links) = (file.clone(), file, Vec::new());
        if kind == SwitchKind::UserSpace
            && let Some(roughness) = options.roughness
        {
            roughen(&mut file, &mut switch_file, &mut links, roughness);
        }
        let count = options.back_ends;
        let mut tier = Self {
            kind,
            switch_file,
            gate: Arc::default(),
            switch: None,
            caches: (0..options.caches).map(|_| None).collect(),
            back_ends: (0..count).map(|_| None).collect(),
            daemons: None,
            disks: (0..=count).map(|_| tempfile::tempdir().unwrap()).collect(),
            namespaces,
            file,
            options,
            _links: links,
            _wires: wires,
        };
        tier.start_switch();
        if kind.is_open_vswitch() {
            tier.daemons = Some(tier.open_vswitch());
        }
        (0..count).for_each(|id| tier.start_back_end(id));
        (0..tier.caches.len()).for_each(|id| tier.start_cache_of(id));
        // Back ends refuse requests for a lease after their start; a client waits for less.
        for id in 0..tier.caches.len() {
            let all = (id..count).step_by(tier.caches.len()).count();
            eventually("the cache has its leases", || {
                tier.status_of_cache(id).get("leases") == all as u64
            });
        }
        let mut client = tier.client(99);
        for number in 0..8 * count {
            let key = format!("probe {number}");
            eventually("back ends answer", || client.get(key.as_bytes()).is_ok());
        }
        tier
    }

    fn open_vswitch(&self) -> OpenVswitch {
        assert!(
            OpenVswitch::is_installed(),
            "Open vSwitch is missing: `cargo xtask test packages` installs openvswitch-switch"
        );
        let encoding = encoding(&self.file).unwrap();
        let options = OpenVswitchOptions {
            directory: self.open_vswitch_directory(),
            ports: numbered(self.namespaces.as_ref().unwrap().ports(), encoding),
            port_type: PortType::System,
            encoding,
            datapath: 1,
            calls_controller: true,
            flows_max: None,
            // The threads that start it end early.
            ends_with_thread: false,
        };
        let started = self.at(TrialNamespaces::SWITCH, || OpenVswitch::start(options));
        started.unwrap()
    }

    fn open_vswitch_directory(&self) -> std::path::PathBuf {
        let directory = self.disks.last().unwrap();
        directory.path().join("ovs")
    }

    /// Runs this in the network namespace of a node, if nodes have any.
    pub(crate) fn at<T: Send>(&self, node: &str, does: impl FnOnce() -> T + Send) -> T {
        match &self.namespaces {
            None => does(),
            Some(all) => inside(&all.name_of(node), does),
        }
    }

    /// The switch's process; with Open vSwitch, its controller.
    pub(crate) fn start_switch(&mut self) {
        let options = SwitchOptions {
            capacity: self.options.rules_max,
        };
        let gate = Arc::clone(&self.gate);
        let starts = || {
            let ports = self.namespaces.as_ref().map(TrialNamespaces::ports);
            let ports = ports.unwrap_or_default();
            let control = self.namespaces.as_ref();
            let control = control.map(|all| all.name_of(TrialNamespaces::CONTROL));
            let enter = || control.as_ref().map_or(Ok(()), |name| enter(name));
            let node = started(|| match self.kind {
                SwitchKind::UserSpace => SwitchNode::start(&self.switch_file, &options),
                SwitchKind::Xdp | SwitchKind::XdpByMac => {
                    SwitchNode::start_xdp(&self.file, &options, ports, &enter)
                }
                SwitchKind::OpenVswitch | SwitchKind::OpenVswitchByMac => {
                    let directory = self.open_vswitch_directory();
                    std::fs::create_dir_all(&directory).unwrap();
                    let socket = OpenVswitch::controller_socket(&directory);
                    let at = ControllerEndpoint::ListenUnix(socket);
                    let switch = (ports, at);
                    SwitchNode::start_openflow(&self.file, &options, switch, &enter)
                }
            });
            let node = node.behind(|table| Box::new(GatedSwitch { table, gate }));
            NodeThread::start("switch", node).unwrap()
        };
        self.switch = Some(self.at(TrialNamespaces::SWITCH, starts));
    }

    pub(crate) fn stop_switch(&mut self) {
        self.gate.open();
        self.switch = None;
    }

    /// The switch loses its rules. Open vSwitch does so while its controller lives.
    pub(crate) fn forget_rules(&mut self) {
        match self.daemons.take() {
            None => {
                self.stop_switch();
                self.start_switch();
            }
            Some(mut daemons) => {
                let restarted = self.at(TrialNamespaces::SWITCH, || daemons.restart());
                restarted.unwrap();
                self.daemons = Some(daemons);
            }
        }
    }

    pub(crate) fn start_cache(&mut self) {
        self.start_cache_of(0);
    }

    pub(crate) fn start_cache_of(&mut self, id: usize) {
        let options = CacheOptions {
            id: CacheId(id as u8),
            capacity: self.options.capacity,
            rules: self.options.rules,
            limit_per_s: 0,
        };
        let starts = || started(|| CacheNode::start(&self.file, &options));
        let mut node = self.at(&format!("cache{id}"), starts);
        if let Some(mutant) = self.options.mutant {
            node = node.with_mutant(mutant);
        }
        self.caches[id] = Some(NodeThread::start("cache", node).unwrap());
    }

    pub(crate) fn stop_cache(&mut self) {
        self.stop_cache_of(0);
    }

    pub(crate) fn stop_cache_of(&mut self, id: usize) {
        self.caches[id] = None;
    }

    pub(crate) fn start_back_end(&mut self, id: usize) {
        let place = match self.options.is_on_disk {
            true => StorePlace::Disk {
                directory: self.disks[id].path().join("data"),
                durability: curtail_storage::Durability::Sync,
            },
            false => StorePlace::Memory,
        };
        let options = BackEndOptions {
            id: BackEndId(id as u16),
            store: StoreOptions {
                place,
                memory_bytes: self.options.memory_bytes,
            },
            limit_per_s: self.options.limit_per_s,
            reported: self.options.reported,
            update: self.options.update,
        };
        let name = format!("back-end{id}");
        let starts = || started(|| BackEndNode::start(&self.file, &options));
        let mut node = self.at(&name, starts);
        if let Some(mutant) = self.options.mutant {
            node = node.with_mutant(mutant);
        }
        self.back_ends[id] = Some(NodeThread::start(&name, node).unwrap());
    }

    pub(crate) fn stop_back_end(&mut self, id: usize) {
        self.back_ends[id] = None;
    }

    /// Takes the link of a node down.
    pub(crate) fn cut(&self, node: &str) {
        let all = self.namespaces.as_ref().unwrap();
        all.inside(node, &["ip", "link", "set", "eth0", "down"])
            .unwrap();
    }

    pub(crate) fn target(&self) -> TierTarget {
        self.file.target()
    }

    pub(crate) fn client(&self, number: u32) -> TierSession {
        let opens = || TierSocket::open(&self.target(), frames_from).unwrap();
        let socket = self.at(TrialNamespaces::CLIENTS, opens);
        TierSession::with_socket(socket, self.target(), 256 + number)
    }

    /// A client that sends everything once.
    pub(crate) fn patient(&self, number: u32) -> PatientClient {
        let opens = || PatientClient::open(self.target(), 256 + number);
        let client = self.at(TrialNamespaces::CLIENTS, opens);
        client.on_switch_that_loses(self.kind.is_open_vswitch())
    }

    fn status_of(&self, at: SocketAddr) -> NodeStatus {
        let asks = || ask_status(at, &self.file.secret());
        // Of a machine that is busy.
        let mut tries = (0..20).filter_map(|_| self.at(TrialNamespaces::CLIENTS, asks).ok());
        tries
            .next()
            .unwrap_or_else(|| panic!("{at} does not answer"))
    }

    pub(crate) fn cache_status(&self) -> NodeStatus {
        self.status_of(self.file.caches[0])
    }

    pub(crate) fn status_of_cache(&self, id: usize) -> NodeStatus {
        self.status_of(self.file.caches[id])
    }

    /// A counter of all cache nodes that run.
    pub(crate) fn caches_count(&self, name: &str) -> u64 {
        let caches = self.caches.iter().enumerate();
        let running = caches.filter(|(_, node)| node.is_some());
        running
            .map(|(id, _)| self.status_of_cache(id).get(name))
            .sum()
    }

    pub(crate) fn back_end_status(&self, id: usize) -> NodeStatus {
        self.status_of(self.file.back_ends[id])
    }

    /// A counter of all back ends.
    pub(crate) fn back_ends_count(&self, name: &str) -> u64 {
        let all = 0..self.back_ends.len();
        all.map(|id| self.back_end_status(id).get(name)).sum()
    }

    pub(crate) fn switch_status(&self) -> NodeStatus {
        self.status_of(self.file.control)
    }

    /// What every node has counted when a test failed: rare failures are explained by it.
    fn print_counters(&self) {
        let caches = self.file.caches.iter();
        let all = caches.chain(&self.file.back_ends);
        for at in [self.file.control].iter().chain(all) {
            let asks = || ask_status(*at, &self.file.secret());
            match self.at(TrialNamespaces::CLIENTS, asks) {
                Ok(status) => {
                    let counted = status.counters.iter().filter(|(_, number)| *number > 0);
                    let counted: Vec<_> =
                        counted.map(|(name, of)| format!("{name} {of}")).collect();
                    eprintln!("{at}: {}", counted.join(", "));
                }
                Err(error) => eprintln!("{at}: {error}"),
            }
        }
    }
}

impl Drop for TestTier {
    fn drop(&mut self) {
        self.gate.open();
        if std::thread::panicking() {
            self.print_counters();
        }
    }
}

fn file_on_loopback(options: &TestOptions) -> TierFile {
    let ports: Vec<SocketAddr> = free_ports()
        .take(options.back_ends + options.caches + 2)
        .collect();
    TierFile {
        secret: SECRET.to_string(),
        epoch: 1,
        lease_ms: options.lease_ms,
        period_ms: options.period_ms,
        group_keys: options.group_keys,
        baseline: options.baseline,
        network: TierFileNetwork::Forwarder(ports[0]),
        control: ports[1],
        caches: ports[2..2 + options.caches].to_vec(),
        back_ends: ports[2 + options.caches..].to_vec(),
    }
}

/// UDP ports that nothing uses. They are below those that Linux gives to sockets which name none:
/// a client of another test would take such a port while a node restarts.
pub(super) fn free_ports() -> impl Iterator<Item = SocketAddr> {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::iter::repeat_with(|| {
        let next = NEXT.fetch_add(1, Relaxed);
        let port = FIRST + (std::process::id() * 97 + next) % COUNT;
        SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16))
    })
    .take(COUNT as usize)
    .filter(|address| UdpSocket::bind(address).is_ok())
}

/// How a client of this process sends frames.
pub(crate) fn frames_from(own: Ipv4Addr) -> std::io::Result<FrameWay> {
    let socket = FrameSocket::sender_at(own)?;
    Ok(FrameWay::new(socket.mac(), move |frame| socket.send(frame)))
}

fn file_in_namespaces(
    encoding: TrialEncoding,
    options: &TestOptions,
) -> (TierFile, Option<TrialNamespaces>, Vec<RoughWire>) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let prefix = format!("curtail-test-{}-{number}", std::process::id());
    let caches = (0..options.caches).map(|id| format!("cache{id}"));
    let mut nodes: Vec<String> = caches.clone().collect();
    nodes.extend((0..options.back_ends).map(|id| format!("back-end{id}")));
    let rough: Vec<String> = match options.roughness {
        Some(_) => nodes.clone(),
        None => Vec::new(),
    };
    nodes.extend([TrialNamespaces::CONTROL, TrialNamespaces::CLIENTS].map(String::from));
    let made = TrialNamespaces::make_with(encoding, &prefix, &nodes, |all, node| {
        match rough.iter().any(|one| one == node) {
            true => RoughWire::lay(all, node),
            false => Ok(()),
        }
    });
    let made = made.unwrap_or_else(|error| {
        panic!("{error}; CURTAIL_WITHOUT_XDP=1 skips what needs namespaces")
    });
    let at = |node: &str| TrialNamespaces::socket_of(encoding, node, PORT).unwrap();
    let file = TierFile {
        secret: SECRET.to_string(),
        epoch: 1,
        lease_ms: options.lease_ms,
        period_ms: options.period_ms,
        group_keys: options.group_keys,
        baseline: options.baseline,
        network: TrialNamespaces::network(encoding, PORT),
        control: at(TrialNamespaces::CONTROL),
        caches: caches.map(|node| at(&node)).collect(),
        back_ends: (0..options.back_ends)
            .map(|id| at(&format!("back-end{id}")))
            .collect(),
    };
    let wires = rough.iter().zip(1..).map(|(node, seed)| {
        let starts = || RoughWire::start(encoding, options.roughness.unwrap(), seed);
        inside(&made.name_of(node), starts)
    });
    let wires = wires.collect();
    (file, Some(made), wires)
}

/// Puts links that are rough before the switch and before all nodes.
fn roughen(
    file: &mut TierFile,
    switch_file: &mut TierFile,
    links: &mut Vec<RoughLink>,
    roughness: Roughness,
) {
    let mut rough = |to: SocketAddr| {
        let seed = links.len() as u64 + 1;
        let link = RoughLink::start(to, roughness, seed);
        let address = link.address();
        links.push(link);
        address
    };
    if let TierFileNetwork::Forwarder(at) = file.network {
        file.network = TierFileNetwork::Forwarder(rough(at));
    }
    let caches = switch_file.caches.iter_mut();
    caches
        .chain(&mut switch_file.back_ends)
        .for_each(|at| *at = rough(*at));
}

/// This thread is in the network namespace from now on.
fn enter(name: &str) -> std::io::Result<()> {
    let file = File::open(format!("/run/netns/{name}"))?;
    let kind = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(file.as_fd(), kind)?)
}

fn inside<T: Send>(name: &str, does: impl FnOnce() -> T + Send) -> T {
    let moved = || {
        enter(name).unwrap();
        does()
    };
    let done = thread::scope(|scope| scope.spawn(moved).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

const SECRET: &str = "0123456789abcdeffedcba9876543210";
const PORT: u16 = 11_300;

/// Starts a node again. While another thread of the test starts a program, the new process has this
/// one's sockets and locked files until the program runs, so port and directory may be in use for a
/// moment.
fn started<T>(start: impl Fn() -> Result<T, NodeError>) -> T {
    let is_in_use = |error: &NodeError| {
        let told = format!("{error:?}");
        told.contains("Address already in use") || told.contains("InUse")
    };
    let mut ended = (0..600).filter_map(|tried| match start() {
        Err(error) if is_in_use(&error) => {
            if tried == 100 {
                eprintln!("{error} for 5 s; sockets: {}", sockets_here());
            }
            thread::sleep(Duration::from_millis(50));
            None
        }
        other => Some(other.unwrap()),
    });
    ended.next().expect("its port and directory are free")
}

/// What uses UDP ports in this thread's network namespace.
fn sockets_here() -> String {
    let told = std::process::Command::new("ss").arg("-aunp").output();
    told.map_or_else(
        |error| error.to_string(),
        |told| String::from_utf8_lossy(&told.stdout).into(),
    )
}
