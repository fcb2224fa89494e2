//! An etcd of one member with a folder of its own, killed with the test; Debian has it in the
//! package `etcd-server`.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use curtail_testing::{PATIENCE, http};

/// The store of a cluster's view.
pub(crate) struct Etcd {
    child: Option<Child>,
    folder: PathBuf,
    host: String,
    /// For its clients, and for other members, which there are none of.
    ports: [u16; 2],
}

impl Etcd {
    /// Whether there is one to start.
    pub(crate) fn is_here() -> bool {
        let known = Command::new("etcd").arg("--version").output();
        known.is_ok_and(|output| output.status.success())
    }

    /// Starts one at `host`, with what is in `folder`.
    pub(crate) fn start(host: &str, folder: &Path) -> Self {
        let mut etcd = Self {
            child: None,
            folder: folder.to_path_buf(),
            host: host.to_owned(),
            ports: [(); 2].map(|()| free_port(host)),
        };
        etcd.revive();
        let started = Instant::now();
        while !etcd.is_healthy() {
            assert!(started.elapsed() < PATIENCE, "etcd does not answer");
            thread::sleep(Duration::from_millis(50));
        }
        etcd
    }

    /// The entries of the view store in a cluster's file.
    pub(crate) fn store(&self) -> String {
        let url = self.url(0);
        format!("kind = \"etcd\"\nendpoints = [\"{url}\"]")
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts it again with what it has written.
    pub(crate) fn revive(&mut self) {
        let urls = [0, 1].map(|port| self.url(port));
        let [client, peer] = &urls;
        let mut command = Command::new("etcd");
        command
            .args(["--name", "one", "--unsafe-no-fsync"])
            .arg("--data-dir")
            .arg(&self.folder)
            .args(["--log-level", "error", "--listen-client-urls", client])
            .args(["--advertise-client-urls", client])
            .args(["--listen-peer-urls", peer])
            .args(["--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
    }

    fn url(&self, port: usize) -> String {
        format!("http://{}:{}", self.host, self.ports[port])
    }

    fn is_healthy(&self) -> bool {
        let address = format!("{}:{}", self.host, self.ports[0]);
        let listens = std::net::TcpStream::connect(&address).is_ok();
        listens && http(address.parse().unwrap(), "GET /health").contains("\"true\"")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port below those that the kernel gives to connecting sockets: it must still be free when a
/// dead etcd is started again.
fn free_port(host: &str) -> u16 {
    let first = 17_000 + std::process::id() as u16 % 64 * 60;
    let is_free = |port: &u16| TcpListener::bind((host, *port)).is_ok();
    // Two calls, one after the other, must not get the same.
    static GIVEN: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    let given = GIVEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    (first + given..).find(is_free).unwrap()
}
