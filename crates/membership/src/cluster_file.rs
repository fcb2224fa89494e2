//! The cluster file: the configuration that all nodes of a cluster share.
//!
//! ```toml
//! name = "trial"
//! model = "lin"            # or "sc": what a hot key promises
//! replicas = 1             # how many nodes hold a key that is not hot
//! lease_ms = 1000          # how long a node may serve after it read the view
//! secret_file = "secret"   # known to all nodes; relative to this file
//!
//! [store]
//! kind = "file"            # or "etcd", with endpoints = ["http://..."]
//! path = "view.json"
//!
//! [[node]]
//! id = 0
//! name = "node0"
//! clients = "127.0.0.1:11300"
//! links = "127.0.0.1:12300"
//! ```

use std::{
    fs, io,
    net::{SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use curtail_consistency::{
    members::{MemberConfig, SlicePlan},
    replica::Model,
    slice_view::SLICES,
};
use curtail_types::{NodeId, NodeSet};
use serde::Deserialize;

use crate::{
    ClusterError, EtcdStore, FileStore, RosterStore, Secret, Settings, secret, stored_view,
};

/// One node's place in a cluster.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Which of the cluster's nodes this is.
    pub me: NodeId,
    /// The cluster.
    pub cluster: Arc<ClusterFile>,
}

/// A cluster's configuration, read from its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// What people call it; nodes of another name are refused.
    pub name: String,
    /// How the copies of a hot key agree.
    #[serde(default, deserialize_with = "stored_view::read_model")]
    pub model: Model,
    /// How many nodes hold a key that is not hot.
    #[serde(default = "one")]
    pub replicas: usize,
    /// How long a node may serve after it read the view.
    #[serde(default = "second", rename = "lease_ms")]
    #[serde(deserialize_with = "milliseconds")]
    pub lease: Duration,
    /// Between two heartbeats.
    heartbeat_ms: Option<u64>,
    /// After how long a silence a node is held for dead.
    suspicion_ms: Option<u64>,
    /// Where the view is kept.
    #[serde(default)]
    pub store: ViewStoreConfig,
    /// The nodes that are known beforehand.
    #[serde(rename = "node")]
    pub nodes: Vec<NodeEntry>,
    /// What links between nodes are secured with, if they are.
    pub tls: Option<TlsFiles>,
    secret_file: PathBuf,
    #[serde(skip, default = "Secret::unread")]
    secret: Secret,
}

/// Where a cluster keeps its view.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum ViewStoreConfig {
    /// In a file.
    File {
        /// Which.
        #[serde(default = "view_file")]
        path: PathBuf,
    },
    /// In etcd.
    Etcd {
        /// Where it listens for clients: `http://host:port`.
        endpoints: Vec<String>,
        /// The key that holds the view, if it is not the one of the cluster's name.
        key: Option<String>,
    },
}

/// Files for TLS between nodes, all as PEM.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificates of who signs nodes' certificates.
    pub ca: PathBuf,
    /// This node's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key, which only its owner may read.
    pub key: PathBuf,
    /// While not all nodes have TLS yet: links without are taken, too.
    pub rollout: Option<Rollout>,
}

/// How far a cluster has come in taking TLS up, or in giving it up, node by node.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Rollout {
    /// Links are taken with TLS and without, and made without.
    Accept,
    /// Links are taken with TLS and without, and made with TLS.
    Dial,
}

/// A node as the file names it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Its number, from 0 to 63.
    #[serde(deserialize_with = "node_id")]
    pub id: NodeId,
    /// Its name; `node` and its number if the file gives none.
    #[serde(default)]
    pub name: String,
    /// Host and port for clients; port 0 is one that the system chooses.
    pub clients: String,
    /// Host and port for other nodes; port 0 is one that the system chooses.
    pub links: String,
}

impl NodeConfig {
    /// The node called `node` (its number or its name) of the cluster that `path` describes.
    ///
    /// # Errors
    /// When the file, its secret, or the name does not fit; the message says what would.
    pub fn load(path: &Path, node: &str) -> Result<Self, ClusterError> {
        let cluster = ClusterFile::load(path)?;
        let Some(entry) = cluster.find(node) else {
            let known: Vec<&str> = cluster.nodes.iter().map(|entry| &*entry.name).collect();
            return Err(ClusterError::Invalid {
                path: path.to_owned(),
                reason: format!("no node \"{node}\"; it names {}", known.join(", ")),
            });
        };
        Ok(Self {
            me: entry.id,
            cluster: Arc::new(cluster),
        })
    }

    /// This node's part of the file.
    pub fn entry(&self) -> Option<&NodeEntry> {
        self.cluster.entry(self.me)
    }

    /// What the membership machine of this node is made with.
    pub fn members(&self) -> MemberConfig {
        let cluster = &self.cluster;
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        MemberConfig {
            heartbeat_ns: ns(cluster.heartbeat_ms()),
            suspicion_ns: ns(cluster.suspicion_ms()),
            plan: SlicePlan {
                slices: SLICES,
                replicas: cluster.replicas,
            },
            founders: cluster.nodes.iter().map(|entry| entry.id).collect(),
            ..MemberConfig::with_lease(self.me, ns(cluster.lease_ms()))
        }
    }
}

impl ClusterFile {
    /// Reads the file at `path` and the secret that it names.
    ///
    /// # Errors
    /// When either cannot be read or does not fit; the message says what would.
    pub fn load(path: &Path) -> Result<Self, ClusterError> {
        let text = fs::read_to_string(path).map_err(ClusterError::file(path))?;
        let invalid = |reason| ClusterError::Invalid {
            path: path.to_owned(),
            reason,
        };
        let read = toml::from_str(&text).map_err(|error| invalid(error.to_string()));
        let mut file: Self = read?;
        for node in file.nodes.iter_mut().filter(|node| node.name.is_empty()) {
            node.name = format!("node{}", node.id.0);
        }
        file.check().map_err(invalid)?;
        file.find_files(path.parent().unwrap_or(Path::new("")));
        file.secret = Secret::read(&file.secret_file)?;
        if let Some(tls) = &file.tls {
            secret::refuse_readable(&tls.key)?;
        }
        Ok(file)
    }

    /// Files that it names are relative to its folder.
    fn find_files(&mut self, folder: &Path) {
        let find = |path: &mut PathBuf| *path = folder.join(&*path);
        find(&mut self.secret_file);
        if let ViewStoreConfig::File { path } = &mut self.store {
            find(path);
        }
        if let Some(TlsFiles {
            ca,
            certificate,
            key,
            ..
        }) = &mut self.tls
        {
            [ca, certificate, key].into_iter().for_each(find);
        }
    }

    /// What nodes prove to each other that they know.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// What all nodes must agree on.
    pub fn settings(&self) -> Settings {
        Settings {
            model: self.model,
            replicas: self.replicas,
            lease_ms: self.lease_ms(),
        }
    }

    /// The file's entry of node `id`.
    pub fn entry(&self, id: NodeId) -> Option<&NodeEntry> {
        self.nodes.iter().find(|entry| entry.id == id)
    }

    /// The node with this number or name.
    pub fn find(&self, node: &str) -> Option<&NodeEntry> {
        let number = node.parse::<u8>().ok().map(NodeId);
        self.nodes
            .iter()
            .find(|entry| number == Some(entry.id) || entry.name == node)
    }

    /// Opens the view store.
    pub fn open_store(&self) -> RosterStore {
        let patience = self.lease / STORE_WAITS_PER_LEASE;
        match &self.store {
            ViewStoreConfig::File { path } => RosterStore::new(FileStore::new(path, patience)),
            ViewStoreConfig::Etcd { endpoints, key } => {
                let named = || format!("/curtail/{}/view", self.name);
                let key = key.clone().unwrap_or_else(named);
                RosterStore::new(EtcdStore::new(endpoints, &key, patience))
            }
        }
    }
}

impl NodeEntry {
    /// The address for clients.
    ///
    /// # Errors
    /// When the name is not known.
    pub fn clients_address(&self) -> io::Result<SocketAddr> {
        resolve(&self.clients)
    }

    /// The address for other nodes.
    ///
    /// # Errors
    /// When the name is not known.
    pub fn links_address(&self) -> io::Result<SocketAddr> {
        resolve(&self.links)
    }
}

fn resolve(text: &str) -> io::Result<SocketAddr> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("{text}: no such address"));
    text.to_socket_addrs()?.next().ok_or_else(unknown)
}

/// The store is given this part of a lease to answer.
const STORE_WAITS_PER_LEASE: u32 = 4;

impl Default for ViewStoreConfig {
    fn default() -> Self {
        Self::File { path: view_file() }
    }
}

fn view_file() -> PathBuf {
    "view.json".into()
}

const fn one() -> usize {
    1
}

const fn second() -> Duration {
    Duration::from_secs(1)
}

fn milliseconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

fn node_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<NodeId, D::Error> {
    let number = u8::deserialize(deserializer)?;
    stored_view::known_id(number).map_err(serde::de::Error::custom)
}

/// What a lease may be, in milliseconds: shorter ones end while a busy machine reads the store,
/// longer ones keep the others waiting for a dead node.
const LEASE_MS: std::ops::RangeInclusive<u64> = 50..=60_000;

const NAME_BYTES_MAX: usize = 64;

impl ClusterFile {
    fn check(&self) -> Result<(), String> {
        check_name("the cluster's name", &self.name)?;
        let (lease_ms, least, most) = (self.lease_ms(), LEASE_MS.start(), LEASE_MS.end());
        if !LEASE_MS.contains(&lease_ms) {
            return Err(format!("lease_ms {lease_ms}: from {least} to {most}"));
        }
        let heartbeat = self.heartbeat_ms();
        if heartbeat == 0 || self.suspicion_ms() < 3 * heartbeat {
            return Err(format!(
                "suspicion_ms {} must be at least three times heartbeat_ms {heartbeat}",
                self.suspicion_ms()
            ));
        }
        if !(1..=NodeSet::NODES_MAX).contains(&self.replicas) {
            let most = NodeSet::NODES_MAX;
            return Err(format!("replicas {}: from 1 to {most}", self.replicas));
        }
        self.check_store()?;
        self.check_nodes()
    }

    fn check_store(&self) -> Result<(), String> {
        let ViewStoreConfig::Etcd { endpoints, .. } = &self.store else {
            return Ok(());
        };
        if endpoints.is_empty() {
            return Err("store: etcd needs endpoints".to_owned());
        }
        match endpoints.iter().find(|url| !url.starts_with("http://")) {
            Some(url) => Err(format!(
                "store: endpoint {url} must begin with http://; for an etcd that wants TLS run a \
                 TLS proxy beside the node"
            )),
            None => Ok(()),
        }
    }

    fn check_nodes(&self) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Err("it names no [[node]]".to_owned());
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let id = node.id.0;
            check_name("a node's name", &node.name)?;
            for address in [&node.clients, &node.links] {
                let port = address
                    .rsplit_once(':')
                    .map(|(_, port)| port.parse::<u16>());
                if !matches!(port, Some(Ok(_))) {
                    return Err(format!("node {id}: \"{address}\" must be HOST:PORT"));
                }
            }
            for other in self.nodes.iter().take(index) {
                if other.id == node.id {
                    return Err(format!("node {id} is there twice"));
                }
                if node.name == other.name {
                    return Err(format!("two nodes are called {}", node.name));
                }
            }
        }
        Ok(())
    }

    fn heartbeat_ms(&self) -> u64 {
        self.heartbeat_ms.unwrap_or(self.lease_ms() / 10)
    }

    fn suspicion_ms(&self) -> u64 {
        self.suspicion_ms.unwrap_or(self.lease_ms() / 2)
    }

    fn lease_ms(&self) -> u64 {
        u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX)
    }
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let long = name.is_empty() || name.len() > NAME_BYTES_MAX;
    if long || !name.bytes().all(fits) {
        return Err(format!(
            "{what} \"{name}\": from 1 to {NAME_BYTES_MAX} of the characters a-z A-Z 0-9 - _ ."
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GOOD: &str = "name = \"trial\"\nsecret_file = \"secret\"\n\
        [[node]]\nid = 0\nclients = \"127.0.0.1:1\"\nlinks = \"127.0.0.1:0\"\n\
        [[node]]\nid = 7\nname = \"seven\"\nclients = \"localhost:2\"\nlinks = \"[::1]:3\"\n";

    /// A folder with a secret.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            Secret::create(&folder.file("secret")).unwrap();
            folder
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn load(&self, text: &str) -> Result<ClusterFile, ClusterError> {
            let path = self.file("cluster.toml");
            fs::write(&path, text).unwrap();
            ClusterFile::load(&path)
        }
    }

    #[test]
    fn a_short_file_says_enough() {
        let folder = Folder::new();
        let file = folder.load(GOOD).unwrap();
        assert_eq!((file.model, file.replicas), (Model::Lin, 1));
        assert_eq!(file.lease, Duration::from_secs(1));
        let path = folder.file("view.json");
        assert_eq!(file.store, ViewStoreConfig::File { path });
        assert_eq!(file.nodes[0].name, "node0");
        assert_eq!(file.find("seven").unwrap().id, NodeId(7));
        assert_eq!(file.find("7").unwrap().id, NodeId(7));
        assert_eq!(file.nodes[1].links_address().unwrap().port(), 3);
        let path = folder.file("cluster.toml");
        let config = NodeConfig::load(&path, "seven").unwrap();
        assert_eq!(config.members().founders.to_bits(), 0b1000_0001);
        let error = NodeConfig::load(&path, "eight").unwrap_err().to_string();
        assert!(
            error.ends_with("no node \"eight\"; it names node0, seven"),
            "{error}"
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_do() {
        let folder = Folder::new();
        for (from, to, says) in [
            ("\"trial\"", "\"a b\"", "the cluster's name \"a b\""),
            ("id = 7", "id = 64", "the highest number is 63"),
            ("id = 7", "id = 0", "node 0 is there twice"),
            ("\"seven\"", "\"node0\"", "two nodes are called node0"),
            ("\"localhost:2\"", "\"localhost\"", "must be HOST:PORT"),
            (
                "[[node]]\nid = 0",
                "lease_ms = 5\n[[node]]\nid = 0",
                "lease_ms 5",
            ),
            (
                "[[node]]\nid = 0",
                "model = \"x\"\n[[node]]\nid = 0",
                "sc or lin",
            ),
            (
                "[[node]]\nid = 0",
                "replicas = 0\n[[node]]\nid = 0",
                "replicas 0",
            ),
            ("[[node]]\nid = 0", "colour = 0\n[[node]]\nid = 0", "colour"),
            (
                "[[node]]\nid = 0",
                "suspicion_ms = 200\n[[node]]\nid = 0",
                "at least three times heartbeat_ms 100",
            ),
            (
                "[[node]]\nid = 0",
                "store = { kind = \"etcd\", endpoints = [\"https://a\"] }\n[[node]]\nid = 0",
                "http://",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let error = folder.load(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{to}: {error}");
        }
    }

    #[test]
    fn a_secret_is_kept_and_never_printed() {
        let folder = Folder::new();
        let path = folder.file("secret");
        assert!(Secret::create(&path).is_err(), "one is there");
        let file = folder.load(GOOD).unwrap();
        let bytes = file.secret().bytes();
        assert_eq!(bytes.len(), 64);
        let shown = format!("{file:?}");
        assert!(!shown.contains(std::str::from_utf8(bytes).unwrap()));
        assert!(shown.contains("Secret(..)"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = folder.load(GOOD).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short").unwrap();
        let error = folder.load(GOOD).unwrap_err().to_string();
        assert!(error.contains("from 32"), "{error}");
        assert!(!error.contains("short"));
    }
}
