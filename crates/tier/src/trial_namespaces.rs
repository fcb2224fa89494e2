//! Network namespaces of a trial tier whose switch is XDP or Open vSwitch: one for each node, one
//! for the switch, one for clients, joined by veths (SW-83). They end with this value.
//!
//! With encoding `ipv6` every node has ordinary sockets: what is for any of its keys is local to it
//! (AnyIP, SW-87), and the switch gives each frame the MAC address of its receiver. With encoding
//! `mac` nodes send and receive frames; only messages to a host itself, as of the switch's process
//! and of tools, are those of ordinary sockets, for which each host knows the others' MAC
//! addresses.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::{Command, Stdio},
};

use curtail_codec::tiered::{MacAddress, TierAddress, TierNetwork};

use crate::{
    switch_ports::{TierPort, own_address},
    tier_file::{MacNetwork, TierFileNetwork},
};

/// The namespaces.
#[derive(Debug)]
pub struct TrialNamespaces {
    prefix: String,
    made: Vec<String>,
    ports: Vec<TierPort>,
}

/// How addresses of keys stand in the packets of a trial tier.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TrialEncoding {
    /// In the IPv6 destination.
    Ipv6,
    /// In the MAC and the IPv4 destination.
    Mac,
}

impl TrialNamespaces {
    /// The number of a trial tier, which is part of its addresses: its namespaces are its own.
    pub const CLUSTER: u32 = 1;
    /// Its network, with encoding `mac`.
    pub const NETWORK: MacNetwork = MacNetwork([10, 77]);
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
    pub fn make(encoding: TrialEncoding, prefix: &str, nodes: &[String]) -> io::Result<Self> {
        Self::make_with(encoding, prefix, nodes, |_, _| Ok(()))
    }

    /// The same; `between` changes a node's link before it has its addresses.
    pub(crate) fn make_with(
        encoding: TrialEncoding,
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
            match encoding {
                TrialEncoding::Ipv6 => all.address_ipv6(node)?,
                TrialEncoding::Mac => all.address_mac(node, nodes)?,
            }
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
    pub fn socket_of(encoding: TrialEncoding, node: &str, port: u16) -> io::Result<SocketAddr> {
        let ip = match encoding {
            TrialEncoding::Ipv6 => IpAddr::from(ipv6_of(node)?),
            TrialEncoding::Mac => IpAddr::from(ipv4_of(node)?),
        };
        Ok(SocketAddr::new(ip, port))
    }

    /// How nodes and clients reach the switch.
    pub const fn network(encoding: TrialEncoding, port: u16) -> TierFileNetwork {
        match encoding {
            TrialEncoding::Ipv6 => TierFileNetwork::Ipv6 {
                cluster: Self::CLUSTER,
                port,
            },
            TrialEncoding::Mac => TierFileNetwork::Mac {
                network: Self::NETWORK,
                port,
            },
        }
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

    fn set_link(&self, node: &str) -> io::Result<()> {
        let mac = written(address_of(node)?.to_mac());
        self.inside(node, &["ip", "link", "set", "eth0", "address", &mac])?;
        self.bring_up(node, "eth0")?;
        self.inside(node, &["ip", "link", "set", "lo", "up"])
    }

    /// How a node's ordinary sockets send to back ends, and to the hosts among `nodes`.
    fn address_mac(&self, node: &str, nodes: &[String]) -> io::Result<()> {
        for each in ["default", "all"] {
            self.without_ipv6(node, each)?;
        }
        self.set_link(node)?;
        let own = ipv4_of(node)?.to_string();
        let ip = |words: &[&str]| self.inside(node, &[&["ip"], words].concat());
        let knows = |ip_of_other: &str, mac: MacAddress| {
            let mac = written(mac);
            let words = ["lladdr", &mac, "dev", "eth0", "nud", "permanent"];
            ip(&[&["neigh", "add", ip_of_other], &words[..]].concat())
        };
        ip(&["addr", "add", &format!("{own}/32"), "dev", "eth0"])?;
        // All back ends have one MAC address; the switch knows them by their IPv4 addresses.
        let gateway = BACK_ENDS.to_string();
        knows(&gateway, address_of("back-end0")?.to_mac())?;
        let onlink = ["via", &gateway, "dev", "eth0", "onlink", "src", &own];
        let network = String::from(Self::NETWORK);
        ip(&[&["route", "add", &network], &onlink[..]].concat())?;
        let is_host = |other: &&String| !other.starts_with("back-end") && *other != node;
        for other in nodes.iter().filter(is_host) {
            let address = ipv4_of(other)?.to_string();
            ip(&["route", "add", &address, "dev", "eth0", "src", &own])?;
            knows(&address, address_of(other)?.to_mac())?;
        }
        Ok(())
    }

    /// What a node receives, and how it sends to anybody.
    fn address_ipv6(&self, node: &str) -> io::Result<()> {
        self.set_link(node)?;
        let own = ipv6_of(node)?.to_string();
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

fn ipv6_of(node: &str) -> io::Result<Ipv6Addr> {
    let address = address_of(node)?.to_ipv6(TrialNamespaces::CLUSTER);
    Ok(Ipv6Addr::from(address))
}

fn ipv4_of(node: &str) -> io::Result<Ipv4Addr> {
    let (address, network) = (address_of(node)?, TrialNamespaces::NETWORK.0);
    Ok(match address.to_host() {
        Some(host) => TierNetwork::host_ipv4(network, host),
        None => address.to_ipv4(network).into(),
    })
}

fn written([a, b, c, d, e, f]: MacAddress) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// Nobody's address: by it ordinary sockets find the MAC address of back ends.
const BACK_ENDS: Ipv4Addr = Ipv4Addr::new(10, 77, 253, 255);

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
