//! A cluster and its clients.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use curtail_consistency::members::RecordChange;
use curtail_membership::{ClusterFile, NodeConfig};
use curtail_server::{Config, Fault, NativeConfig, NativeMode, Server};
use curtail_testing::{Client, PATIENCE, config, eventually, native_address, native_config, start};
use curtail_types::{NodeId, NodeSet, RouteHash};
use tempfile::TempDir;
use twox_hash::XxHash3_64;

use crate::keep_failure_logs::keep_panics;

/// What differs from cluster to cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) nodes: usize,
    pub(crate) workers: usize,
    pub(crate) replicas: usize,
    pub(crate) model: &'static str,
    pub(crate) lease_ms: u64,
    /// How long a value nodes take.
    pub(crate) item_bytes_max: usize,
    pub(crate) memory_bytes: usize,
    /// Full nodes evict.
    pub(crate) evict: bool,
    pub(crate) fault: Fault,
    /// Nodes talk to each other over TLS.
    pub(crate) secured: bool,
    /// What clients speak.
    pub(crate) protocol: Protocol,
    /// How long a worker takes for an accepted write beside the work, in nanoseconds.
    pub(crate) service_ns: u64,
    /// Where node 0 pins the XDP program, which accepts for it on `lo`, if it has that.
    pub(crate) pins: Option<&'static str>,
    /// The view is in an etcd, not in a file.
    pub(crate) view_in_etcd: bool,
}

/// What clients speak.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Protocol {
    /// memcached's protocols, over TCP.
    Streams,
    /// memcached's datagrams.
    Datagrams,
    /// Native datagrams.
    Native,
}

/// Nodes in this process; they end before their folder goes.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Option<Server>>,
    /// What nodes that are started from now on do.
    pub(crate) shape: Shape,
    folder: TempDir,
}

impl Shape {
    pub(crate) const DEFAULT: Self = Self {
        nodes: 3,
        workers: 2,
        replicas: 1,
        model: "lin",
        lease_ms: 3000,
        item_bytes_max: 1 << 20,
        memory_bytes: 32 << 20,
        evict: true,
        fault: Fault::Nothing,
        secured: false,
        protocol: Protocol::Streams,
        service_ns: 0,
        pins: None,
        view_in_etcd: false,
    };

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Where a node pins its program, if it has one.
    pub(crate) fn pins_of(&self, id: usize) -> Option<&'static str> {
        self.pins.filter(|_| id == 0)
    }

    /// The file of a cluster, with a path, the entries of its view store, and the address of each
    /// node.
    pub(crate) fn text(
        &self,
        name: &str,
        secret: &str,
        store: &str,
        host: impl Fn(usize) -> String,
    ) -> String {
        let (model, replicas, lease_ms) = (self.model, self.replicas, self.lease_ms);
        let mut text = format!(
            "name = \"{name}\"\nmodel = \"{model}\"\nreplicas = {replicas}\n\
             lease_ms = {lease_ms}\nsecret_file = \"{secret}\"\n\
             [store]\n{store}\n"
        );
        for id in 0..self.nodes {
            let host = host(id);
            text += &format!("[[node]]\nid = {id}\nclients = \"{host}:0\"\nlinks = \"{host}:0\"\n");
        }
        text
    }
}

impl Cluster {
    /// Starts a cluster of another shape than the default.
    pub(crate) fn with(change: impl FnOnce(&mut Shape)) -> Self {
        let mut shape = Shape::DEFAULT;
        change(&mut shape);
        Self::start(shape)
    }

    /// Starts three nodes and ends the last, with a client of the first; all keys are with two.
    pub(crate) fn two_of_three(change: impl FnOnce(&mut Shape)) -> (Self, Client) {
        let mut cluster = Self::with(change);
        cluster.nodes[2] = None;
        let mut client = cluster.client(0);
        await_placement(&mut client, 2);
        (cluster, client)
    }

    /// Starts all nodes and waits until each serves.
    pub(crate) fn start(shape: Shape) -> Self {
        Self::start_from(0, shape)
    }

    /// The same without the nodes below `first`, which may come later.
    pub(crate) fn start_from(first: usize, shape: Shape) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("curtail-")
            .tempdir()
            .unwrap();
        write_secret(folder.path());
        keep_panics();
        let mut cluster = Self {
            nodes: Vec::new(),
            shape,
            folder,
        };
        cluster.write_file();
        let node = |id| (id >= first).then(|| cluster.node(id));
        cluster.nodes = (0..shape.nodes).map(node).collect();
        for id in first..shape.nodes {
            cluster.await_service(id);
        }
        cluster
    }

    fn write_file(&self) {
        let here = |_| "127.0.0.1".to_owned();
        let store = store_in_file("view.json");
        let mut text = self.shape.text(&self.name(), "secret", &store, here);
        if self.shape.secured {
            text += &certify(self.folder.path());
        }
        fs::write(self.folder.path().join("cluster.toml"), text).unwrap();
    }

    /// A server that is node `id`.
    pub(crate) fn node(&self, id: usize) -> Server {
        start(self.config(id))
    }

    /// What node `id` is started with.
    pub(crate) fn config(&self, id: usize) -> Config {
        let file = self.folder.path().join("cluster.toml");
        Config {
            workers: self.shape.workers,
            memory_bytes_max: self.shape.memory_bytes,
            evict: self.shape.evict,
            // Clients that send everything before they read are not closed for that.
            buffer_bytes_max: 64 << 20,
            item_bytes_max: self.shape.item_bytes_max,
            huge_pages: false,
            faults: self.shape.fault.into(),
            udp_port: (self.shape.protocol == Protocol::Datagrams).then_some(0),
            native: match self.shape.protocol {
                Protocol::Native => Some(native_of(self.shape.pins_of(id), self.shape.service_ns)),
                _ => None,
            },
            node: Some(NodeConfig::load(&file, &id.to_string()).unwrap()),
            ..config()
        }
    }

    fn name(&self) -> String {
        let name = self.folder.path().file_name().unwrap();
        name.to_string_lossy().into_owned()
    }

    pub(crate) fn view_file(&self) -> PathBuf {
        self.folder.path().join("view.json")
    }

    /// Puts another cluster's view in the place of this one's, and returns this one's.
    pub(crate) fn replace_view(&self) -> String {
        let own = fs::read_to_string(self.view_file()).unwrap();
        let other = own.replace(&self.name(), "another");
        assert_ne!(own, other);
        fs::write(self.view_file(), other).unwrap();
        own
    }

    /// Has a node taken out of the view, as the others do when it is silent.
    pub(crate) fn take_out(&self, id: usize) {
        let file = ClusterFile::load(&self.folder.path().join("cluster.toml")).unwrap();
        let mut store = file.open_store();
        let (other, gone) = (NodeId((id + 1) as u8 % 3), NodeSet::only(NodeId(id as u8)));
        loop {
            let stored = store.read_roster().unwrap().unwrap();
            let own = stored.roster.node(other).unwrap().clone();
            let next = stored
                .roster
                .after(&RecordChange::Remove(gone), other, &own);
            let next = next.expect("it is a member");
            if store
                .replace_roster(stored.revision, &next)
                .unwrap()
                .is_some()
            {
                return;
            }
        }
    }

    /// Where clients reach each node that lives.
    pub(crate) fn addresses(&self) -> Vec<Option<SocketAddr>> {
        let address = |node: &Option<Server>| {
            let node = node.as_ref()?;
            match self.shape.protocol {
                Protocol::Streams => node.addresses().first().copied(),
                Protocol::Datagrams => node.udp_addresses().first().copied(),
                Protocol::Native => Some(native_address(node)),
            }
        };
        self.nodes.iter().map(address).collect()
    }

    pub(crate) fn client(&self, id: usize) -> Client {
        Client::connect(self.nodes[id].as_ref().unwrap())
    }

    /// One of each of three nodes.
    pub(crate) fn clients(&self) -> Vec<Client> {
        (0..3).map(|id| self.client(id)).collect()
    }

    /// Starts node `id`, which has ended or is to be replaced.
    pub(crate) fn revive(&mut self, id: usize) {
        let again = self.node(id);
        self.nodes[id] = Some(again);
    }

    /// Waits until node `id` answers for keys of every node.
    pub(crate) fn await_service(&self, id: usize) {
        let mut client = self.client(id);
        for number in 0..64 {
            let probe = format!("mg probe{number}\r\n");
            eventually(&format!("node {id} serves"), || client.ask(&probe) == "EN");
        }
    }

    /// Has a key become hot, or cease to be, and waits a little.
    pub(crate) fn change_hot(&self, key: &str, hot: bool) {
        for node in self.nodes.iter().flatten() {
            node.change_hot(key.as_bytes(), hot);
        }
    }
}

/// The entries of a view store that is this file.
pub(crate) fn store_in_file(path: &str) -> String {
    format!("kind = \"file\"\npath = \"{path}\"")
}

/// What a node offers native clients: the XDP program accepts for it if it has `pins`.
pub(crate) fn native_of(pins: Option<&str>, service_ns: u64) -> NativeConfig {
    let mut native = native_config(NativeMode::IoAck).native.unwrap();
    native.service_ns = service_ns;
    if let Some(pins) = pins {
        native.mode = Some(NativeMode::Xdp);
        native.interface = Some("lo".to_owned());
        native.pin = pins.into();
    }
    native
}

/// Sets a key, again and again until a node can do it.
pub(crate) fn store(client: &mut Client, key: &str, value: &str) {
    let request = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
    until(client, &request, |answer| answer == "STORED");
}

/// Asks again and again until the answer is as wanted; what is no error and not wanted is wrong.
pub(crate) fn until(client: &mut Client, request: &str, wanted: impl Fn(&str) -> bool) -> String {
    let started = Instant::now();
    loop {
        let answer = client.ask(request);
        if wanted(&answer) {
            return answer;
        }
        assert!(
            answer.starts_with("SERVER_ERROR"),
            "{request:?}: {answer:?}"
        );
        assert!(started.elapsed() < PATIENCE, "{request:?}: {answer:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The first answer that is not an error of the server.
#[track_caller]
pub(crate) fn answered(client: &mut Client, request: &str) -> String {
    until(client, request, |answer| {
        !answer.starts_with("SERVER_ERROR")
    })
}

/// Waits until keys are placed on so many nodes, and all are in their place.
#[track_caller]
pub(crate) fn await_placement(client: &mut Client, nodes: u64) {
    eventually("keys are placed", || {
        let mut stat = |name| client.stat("curtail", name);
        stat("cluster_nodes_placed") == nodes && stat("cluster_moves") == 0
    });
}

/// A number of the environment.
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Where a key belongs.
pub(crate) fn route(key: &str) -> RouteHash {
    RouteHash(XxHash3_64::oneshot(key.as_bytes()))
}

/// Writes a certificate for all nodes, and says so in the cluster's file.
fn certify(folder: &std::path::Path) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    fs::write(folder.join("node.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("node.key"), key.serialize_pem()).unwrap();
    restrict(&folder.join("node.key"));
    "[tls]\nca = \"node.pem\"\ncertificate = \"node.pem\"\nkey = \"node.key\"\n".to_owned()
}

/// Writes what nodes prove themselves with into a file.
pub(crate) fn write_secret(folder: &std::path::Path) {
    let secret = folder.join("secret");
    fs::write(&secret, "a secret of sixteen bytes and more").unwrap();
    restrict(&secret);
}

fn restrict(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
