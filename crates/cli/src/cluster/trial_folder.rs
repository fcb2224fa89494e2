//! The folder of a trial cluster: cluster file, secret, view, and the socket of the process that
//! runs it.

use std::{
    fmt::Write,
    fs, io,
    net::TcpListener,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use curtail_membership::Secret;

/// Where nodes answer clients unless told otherwise: this and the ports after it.
pub(super) const PORT: u16 = 11300;

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Whether it was chosen here, and may be removed with what is in it.
    own: bool,
}

/// What a trial cluster is to be.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) port: u16,
    pub(super) model: String,
    pub(super) replicas: usize,
    pub(super) lease_ms: u64,
}

impl Folder {
    /// The folder `dir`, or the one that goes with `port`.
    pub(super) fn find(dir: Option<&Path>, port: u16) -> Self {
        match dir {
            Some(dir) => Self {
                path: dir.to_owned(),
                own: false,
            },
            None => Self {
                path: std::env::temp_dir().join(format!(
                    "curtail-cluster-{}-{port}",
                    rustix::process::getuid().as_raw()
                )),
                own: true,
            },
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn cluster_file(&self) -> PathBuf {
        self.path.join("cluster.toml")
    }

    pub(super) fn tier_file(&self) -> PathBuf {
        self.path.join("tier.toml")
    }

    /// Where a back end of a trial tier keeps its items.
    pub(super) fn data(&self, back_end: usize) -> PathBuf {
        self.path.join(format!("back-end{back_end}"))
    }

    /// Where the Open vSwitch of a trial tier keeps its files.
    pub(super) fn open_vswitch(&self) -> PathBuf {
        self.path.join("ovs")
    }

    pub(super) fn control(&self) -> PathBuf {
        self.path.join("control")
    }

    /// Makes the folder, without anything that an earlier cluster left in it.
    pub(super) fn make(&self) -> anyhow::Result<()> {
        let mut builder = fs::DirBuilder::new();
        match builder.mode(0o700).create(&self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.check()?,
            Err(error) => return Err(error).with_context(|| self.path.display().to_string()),
        }
        self.clear();
        Secret::create(&self.path.join("secret"))?;
        Ok(())
    }

    /// Somebody else's folder would be somebody else's cluster.
    fn check(&self) -> anyhow::Result<()> {
        let metadata = fs::symlink_metadata(&self.path)?;
        let me = rustix::process::getuid().as_raw();
        if !metadata.is_dir() || metadata.uid() != me || metadata.permissions().mode() & 0o022 != 0
        {
            bail!(
                "{}: not a folder that only you can write to; choose another with --dir",
                self.path.display()
            );
        }
        Ok(())
    }

    /// Removes what a trial cluster keeps, and the folder if it was chosen here.
    pub(super) fn clear(&self) {
        for name in FILES {
            let _ = fs::remove_file(self.path.join(name));
        }
        for back_end in 0..curtail_tier::TierFile::BACK_ENDS_MAX {
            let _ = fs::remove_dir_all(self.data(back_end));
        }
        let _ = fs::remove_dir_all(self.open_vswitch());
    }

    /// Leaves nothing behind.
    pub(super) fn remove(&self) {
        self.clear();
        if self.own {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Writes the cluster's file, with the nodes numbered `nodes`.
    pub(super) fn write(&self, plan: &Plan, nodes: &[u8]) -> anyhow::Result<()> {
        let path = self.cluster_file();
        let new = self.path.join("cluster.toml.new");
        fs::write(&new, plan.text(nodes)?)
            .and_then(|()| fs::rename(&new, &path))
            .with_context(|| path.display().to_string())
    }
}

/// Everything that a trial cluster writes.
const FILES: [&str; 7] = [
    "tier.toml",
    "cluster.toml",
    "cluster.toml.new",
    "secret",
    "view.json",
    "view.json.lock",
    "control",
];

impl Plan {
    /// The port of a node, if there is one.
    pub(super) fn port_of(&self, node: u8) -> anyhow::Result<u16> {
        let port = self.port.checked_add(u16::from(node));
        port.with_context(|| format!("node {node}: port {} + {node} is above 65535", self.port))
    }

    /// Sees that nobody else has the port of `node`.
    pub(super) fn check_port(&self, node: u8) -> anyhow::Result<()> {
        let port = self.port_of(node)?;
        TcpListener::bind(("127.0.0.1", port))
            .with_context(|| format!("port {port} for node {node}; choose others with --port"))?;
        Ok(())
    }

    fn text(&self, nodes: &[u8]) -> anyhow::Result<String> {
        let Self {
            port,
            model,
            replicas,
            lease_ms,
        } = self;
        let mut text = format!(
            "# Written by `curtail cluster up`.\nname = \"trial-{port}\"\nmodel = \"{model}\"\n\
             replicas = {replicas}\nlease_ms = {lease_ms}\nsecret_file = \"secret\"\n\n\
             [store]\nkind = \"file\"\npath = \"view.json\"\n"
        );
        for &node in nodes {
            let port = self.port_of(node)?;
            write!(
                text,
                "\n[[node]]\nid = {node}\nname = \"node{node}\"\n\
                 clients = \"127.0.0.1:{port}\"\nlinks = \"127.0.0.1:0\"\n"
            )?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use curtail_membership::ClusterFile;

    use super::*;

    #[test]
    fn a_folder_holds_a_cluster_and_is_left_empty() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("trial");
        let folder = Folder::find(Some(&path), 0);
        let plan = Plan {
            port: 4000,
            model: "sc".into(),
            replicas: 2,
            lease_ms: 500,
        };
        folder.make().unwrap();
        folder.write(&plan, &[0, 1, 2]).unwrap();
        let cluster = ClusterFile::load(&folder.cluster_file()).unwrap();
        assert_eq!(cluster.find("node2").unwrap().clients, "127.0.0.1:4002");
        assert_eq!(cluster.replicas, 2);
        folder.make().unwrap();
        assert!(
            ClusterFile::load(&folder.cluster_file()).is_err(),
            "made anew"
        );
        folder.remove();
        fs::remove_dir(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(folder.make().is_err());
    }
}
