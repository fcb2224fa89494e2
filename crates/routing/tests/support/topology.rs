//! Network namespaces: the switch's, and one for each machine, joined by veths.

use std::fs::File;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use curtail_codec::tiered::TierAddress;
use curtail_routing::{Destination, Encoding, SwitchPort};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::machine::{Machine, own_address};
use super::{MACHINES, destination, switch_port};
use crate::namespace::{Namespace, run, unshare};

/// The namespaces; they end with this value, and with the thread that made them.
pub(crate) struct Topology {
    namespace: Namespace,
    directory: tempfile::TempDir,
    switch: File,
    machines: Vec<File>,
    ports: Vec<SwitchPort>,
}

impl Topology {
    /// The thread that makes it is in the switch's namespace from then on.
    pub(crate) fn make(encoding: Encoding) -> Option<Self> {
        let namespace = Namespace::enter()?;
        let machines = (0..MACHINES).map(|_| {
            let made = || {
                unshare(libc::CLONE_NEWNET);
                own_network()
            };
            thread::spawn(made).join().unwrap()
        });
        let machines: Vec<File> = machines.collect();
        let ports = (0..MACHINES).map(|at| {
            let mac = matches!(encoding, Encoding::Ipv6 { .. }).then(|| own_mac(at));
            switch_port(at, mac)
        });
        let topology = Self {
            namespace,
            directory: tempfile::tempdir().unwrap(),
            switch: own_network(),
            machines,
            ports: ports.collect(),
        };
        disable_neighbours();
        for at in 0..MACHINES {
            topology.join(at, encoding);
        }
        Some(topology)
    }

    fn join(&self, at: usize, encoding: Encoding) {
        let here = &self.ports[at].interface;
        let process = std::process::id();
        let there = format!("/proc/{process}/fd/{}", self.machines[at].as_raw_fd());
        let words = [
            "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", &there,
        ];
        run("ip", &words);
        // Sums of offloaded packets are not there when they leave the kernel's own path.
        without_offloads(here);
        run("ip", &["link", "set", here, "up"]);
        self.at_machine(at, || {
            if matches!(encoding, Encoding::Mac { .. }) {
                disable_neighbours();
            }
            let [a, b, c, d, e, f] = own_mac(at);
            let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
            run("ip", &["link", "set", "eth0", "address", &mac, "up"]);
            without_offloads("eth0");
            run("ip", &["link", "set", "lo", "up"]);
            if let Encoding::Ipv6 { cluster } = encoding {
                address_ipv6(at, cluster);
            }
        });
    }

    /// Where the pins of BPF programs may go.
    pub(crate) fn pins(&self) -> &Path {
        &self.namespace.pins
    }

    /// For files.
    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.path().to_path_buf()
    }

    pub(crate) fn ports(&self) -> Vec<SwitchPort> {
        self.ports.clone()
    }

    /// The sockets of all machines.
    pub(crate) fn machines(&self, encoding: Encoding) -> Vec<Machine> {
        let all = 0..MACHINES;
        all.map(|at| self.at_machine(at, || Machine::here(at, encoding)))
            .collect()
    }

    /// Runs this in a machine's namespace.
    pub(crate) fn at_machine<T: Send>(&self, at: usize, does: impl FnOnce() -> T + Send) -> T {
        inside(&self.machines[at], does)
    }

    /// Runs this in the switch's namespace, whatever thread asks.
    pub(crate) fn at_switch<T: Send>(&self, does: impl FnOnce() -> T + Send) -> T {
        inside(&self.switch, does)
    }

    /// Takes a machine's link down, or up again.
    pub(crate) fn set_link(&self, at: usize, state: &'static str) {
        self.at_machine(at, || run("ip", &["link", "set", "eth0", state]));
    }
}

/// Addresses and routes of a machine: what it receives, and how it sends to anybody.
fn address_ipv6(at: usize, cluster: u32) {
    let ip = |address: TierAddress| Ipv6Addr::from(address.to_ipv6(cluster)).to_string();
    let own = ip(own_address(at));
    run(
        "ip",
        &[
            "-6",
            "addr",
            "add",
            &format!("{own}/128"),
            "dev",
            "eth0",
            "nodad",
        ],
    );
    let cluster = Ipv6Addr::from(own_address(0).to_ipv6(cluster)).to_string();
    let network: Vec<&str> = cluster.split(':').take(3).collect();
    let network = format!("{}::/48", network.join(":"));
    // One socket receives what is for any key of the back end (AnyIP, SW-87); a cache node's, what
    // the switch sends it of anybody's keys.
    let local = |network: &str, table: &str| {
        let to = [
            "-6", "route", "add", "local", network, "dev", "lo", "table", table,
        ];
        run("ip", &to);
    };
    match destination(at) {
        Destination::BackEnd(_) => local(&format!("{own}/64"), "local"),
        Destination::Host(_) => {
            local(&network, "77");
            let arriving = [
                "-6", "rule", "add", "iif", "eth0", "lookup", "77", "pref", "1",
            ];
            run("ip", &arriving);
        }
    }
    // The switch gives every frame its destination; any MAC address will do.
    let gateway = [
        "lladdr",
        "02:00:00:00:00:ff",
        "dev",
        "eth0",
        "nud",
        "permanent",
    ];
    run(
        "ip",
        &[&["-6", "neigh", "add", "fe80::1"], &gateway[..]].concat(),
    );
    let route = [
        "-6", "route", "add", &network, "via", "fe80::1", "dev", "eth0", "onlink", "src", &own,
    ];
    run("ip", &route);
}

/// The MAC address of a machine: with encoding `mac` the one that its host's address gives.
fn own_mac(at: usize) -> [u8; 6] {
    own_address(at).to_mac()
}

/// Packets leave with their sums computed.
fn without_offloads(interface: &str) {
    let mut call = Command::new("ethtool");
    // With gro turned on while it is up, a veth takes what a program in a driver redirects there.
    let features = ["-K", interface, "tx", "off", "gro", "on"];
    call.args(features).stdout(Stdio::null());
    let status = call.status();
    let is_done = status.is_ok_and(|status| status.success());
    assert!(is_done, "ethtool: `cargo xtask test packages` installs it");
}

/// No IPv6 on interfaces that are only the switch's.
fn disable_neighbours() {
    let path = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    std::fs::write(path, "1").unwrap();
    std::fs::write(path.replace("default", "all"), "1").unwrap();
}

fn own_network() -> File {
    File::open("/proc/thread-self/ns/net").unwrap()
}

fn inside<T: Send>(place: &File, does: impl FnOnce() -> T + Send) -> T {
    let moved = move || {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(place.as_fd(), kind).unwrap();
        does()
    };
    let done = thread::scope(|scope| scope.spawn(moved).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
