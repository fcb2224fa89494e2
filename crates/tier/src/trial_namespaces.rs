//! Network namespaces of a trial tier whose switch is XDP or Open vSwitch: one for each node, one
//! for the switch, one for clients, joined by veths (SW-83). They end with this value.
//!
//! Every node has ordinary sockets: what is for any of its keys is local to it (AnyIP, SW-87), and
//! the switch gives each frame the MAC address of its receiver.

use std::{
    io,
    net::{Ipv6Addr, SocketAddr},
    process::{Command, Stdio},
};

use curtail_codec::tiered::TierAddress;

use crate::switch_ports::{TierPort, own_address};

/// The namespaces.
#[derive(Debug)]
pub struct TrialNamespaces {
    prefix: String,
    made: Vec<String>,
    ports: Vec<TierPort>,
}

impl TrialNamespaces {
    /// The number of a trial tier, which is part of its addresses: its namespaces are its own.
    pub const CLUSTER: u32 = 1;
    /// The host whose namespace the controller receives in.
    pub const CONTROL: &str = "host256";
    /// The host whose namespace clients are in.
    pub const CLIENTS: &str = "host257";
    /// The switch's namespace.
    pub const SWITCH: &str = "switch";

    /// Makes the namespaces of these nodes, named `back-end0`, `cache0` or `host300`; what an
    /// earlier trial left under this prefix is removed.
    ///
    /// # Errors
    /// Not root, or iproute2 or ethtool are missing or fail; the text says what did.
    pub fn make(prefix: &str, nodes: &[String]) -> io::Result<Self> {
        Self::make_with(prefix, nodes, |_, _| Ok(()))
    }

    /// The same; `between` changes a node's link before it has its addresses.
    pub(crate) fn make_with(
        prefix: &str,
        nodes: &[String],
        between: impl Fn(&Self, &str) -> io::Result<()>,
    ) -> io::Result<Self> {
        if !curtail_runtime::is_root() {
            return Err(io::Error::other("network namespaces need root"));
        }
        let mut all = Self {
            prefix: prefix.to_string(),
            made: Vec::new(),
            ports: Vec::new(),
        };
        all.add(Self::SWITCH)?;
        for each in ["default", "all"] {
            all.without_ipv6(Self::SWITCH, each)?;
        }
        for (node, number) in nodes.iter().zip(1..) {
            all.add(node)?;
            all.join(number, node)?;
            between(&all, node)?;
            all.address(node)?;
        }
        Ok(all)
    }

    /// The name of a node's namespace, as iproute2 knows it.
    pub fn name(prefix: &str, node: &str) -> String {
        format!("{prefix}-{node}")
    }

    /// The same of these.
    pub fn name_of(&self, node: &str) -> String {
        Self::name(&self.prefix, node)
    }

    /// The ports of the switch, which are interfaces of its namespace.
    pub fn ports(&self) -> &[TierPort] {
        &self.ports
    }

    /// Where a node receives.
    ///
    /// # Errors
    /// It is no node's name.
    pub fn socket_of(node: &str, port: u16) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from((ip_of(node)?, port)))
    }

    fn add(&mut self, node: &str) -> io::Result<()> {
        let name = self.name_of(node);
        // Of a trial that was killed.
        let _ = quietly("ip", &["netns", "del", &name]);
        run("ip", &["netns", "add", &name])?;
        self.made.push(name);
        Ok(())
    }

    /// Runs a program in a node's namespace.
    pub(crate) fn inside(&self, node: &str, words: &[&str]) -> io::Result<()> {
        let name = self.name_of(node);
        run("ip", &[&["netns", "exec", &name], words].concat())
    }

    /// The switch's interfaces, and a wire's, have no address of their own.
    pub(crate) fn without_ipv6(&self, node: &str, interface: &str) -> io::Result<()> {
        let none = format!("net.ipv6.conf.{interface}.disable_ipv6=1");
        self.inside(node, &["sysctl", "-qw", &none])
    }

    /// Joins a node with the switch, by a veth that is `eth0` at the node.
    fn join(&mut self, number: u32, node: &str) -> io::Result<()> {
        let (here, there) = (format!("port{number}"), self.name_of(node));
        let words = [
            "ip", "link", "add", &here, "type", "veth", "peer", "name", "eth0", "netns", &there,
        ];
        self.inside(Self::SWITCH, &words)?;
        self.bring_up(Self::SWITCH, &here)?;
        self.ports
            .push(format!("{here}={node}").parse().map_err(io::Error::other)?);
        Ok(())
    }

    /// Sums of offloaded packets are not there when they leave the kernel's own path; a veth takes
    /// what a program redirects to it only with gro, turned on while it is up.
    pub(crate) fn bring_up(&self, node: &str, interface: &str) -> io::Result<()> {
        self.inside(node, &["ip", "link", "set", interface, "up"])?;
        let offloads = ["ethtool", "-K", interface, "tx", "off", "gro", "on"];
        self.inside(node, &offloads)
    }

    /// What a node receives, and how it sends to anybody.
    fn address(&self, node: &str) -> io::Result<()> {
        let [a, b, c, d, e, f] = address_of(node)?.to_mac();
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        self.inside(node, &["ip", "link", "set", "eth0", "address", &mac])?;
        self.bring_up(node, "eth0")?;
        self.inside(node, &["ip", "link", "set", "lo", "up"])?;
        let own = ip_of(node)?.to_string();
        let ip = |words: &[&str]| self.inside(node, &[&["ip", "-6"], words].concat());
        ip(&["addr", "add", &format!("{own}/128"), "dev", "eth0", "nodad"])?;
        let network = network();
        if node.starts_with("back-end") {
            let keys = format!("{own}/64");
            ip(&[
                "route", "add", "local", &keys, "dev", "lo", "table", "local",
            ])?;
        } else {
            // A cache node receives what the switch sends it of anybody's keys.
            ip(&[
                "route", "add", "local", &network, "dev", "lo", "table", "77",
            ])?;
            ip(&["rule", "add", "iif", "eth0", "lookup", "77", "pref", "1"])?;
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
        ip(&[&["neigh", "add", "fe80::1"], &gateway[..]].concat())?;
        let onlink = ["via", "fe80::1", "dev", "eth0", "onlink", "src", &own];
        ip(&[&["route", "add", &network], &onlink[..]].concat())
    }
}

impl Drop for TrialNamespaces {
    fn drop(&mut self) {
        for name in &self.made {
            let _ = quietly("ip", &["netns", "del", name]);
        }
    }
}

fn ip_of(node: &str) -> io::Result<Ipv6Addr> {
    let address = address_of(node)?.to_ipv6(TrialNamespaces::CLUSTER);
    Ok(Ipv6Addr::from(address))
}

/// All addresses of the tier.
fn network() -> String {
    let any = curtail_codec::tiered::HostId(0);
    let any = TierAddress::host(any).to_ipv6(TrialNamespaces::CLUSTER);
    let prefix = u128::from_be_bytes(any) >> 80 << 80;
    format!("{}/48", Ipv6Addr::from(prefix))
}

fn address_of(node: &str) -> io::Result<TierAddress> {
    let port: TierPort = format!("eth0={node}").parse().map_err(io::Error::other)?;
    Ok(own_address(port.destination))
}

fn run(program: &str, words: &[&str]) -> io::Result<()> {
    let command = || format!("{program} {}", words.join(" "));
    let failed = |why: &str| io::Error::other(format!("{}: {why}", command()));
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| failed(&format!("{error}; is it installed?")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn quietly(program: &str, words: &[&str]) -> io::Result<()> {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().map(|_| ())
}
