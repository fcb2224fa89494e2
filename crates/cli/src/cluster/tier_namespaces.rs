//! Network namespaces of a trial tier with a switch in the kernel: one for each node, one for the
//! switch, one for clients, joined by veths (SW-83). They end with this value.
//!
//! Every node has ordinary sockets: what is for any of its keys is local to it (AnyIP, SW-87), and
//! the switch gives each frame the MAC address of its receiver.

use std::{
    net::{Ipv6Addr, SocketAddr},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use curtail_codec::tiered::{HostId, TierAddress};
use curtail_types::{BackEndId, KeyAddress, KeyTag};

/// The namespaces.
#[derive(Debug)]
pub(super) struct TierNamespaces {
    port: u16,
    made: Vec<String>,
    /// What each interface of the switch leads to, as `curtail tier switch` takes it.
    pub(super) switch_ports: Vec<String>,
}

/// The controller and the clients of a trial tier are hosts with these numbers.
pub(super) const CONTROL: &str = "host256";
pub(super) const CLIENTS: &str = "host257";

impl TierNamespaces {
    /// Makes the namespaces of these nodes, with what an earlier trial left removed.
    pub(super) fn make(port: u16, nodes: &[String]) -> anyhow::Result<Self> {
        ensure!(
            curtail_runtime::is_root(),
            "--xdp: it needs root; without it the switch forwards in user space"
        );
        let mut all = Self {
            port,
            made: Vec::new(),
            switch_ports: Vec::new(),
        };
        all.add("switch")?;
        for each in ["default", "all"] {
            let none = format!("net.ipv6.conf.{each}.disable_ipv6=1");
            all.inside("switch", &["sysctl", "-qw", &none])?;
        }
        for (number, node) in nodes.iter().enumerate() {
            all.add(node)?;
            all.join(number, node)?;
        }
        Ok(all)
    }

    /// The namespace of a node.
    pub(super) fn name(&self, node: &str) -> String {
        name(self.port, node)
    }

    fn add(&mut self, node: &str) -> anyhow::Result<()> {
        let name = self.name(node);
        // Of a trial that was killed.
        let _ = quietly("ip", &["netns", "del", &name]);
        run("ip", &["netns", "add", &name])?;
        self.made.push(name);
        Ok(())
    }

    fn inside(&self, node: &str, words: &[&str]) -> anyhow::Result<()> {
        let name = self.name(node);
        run("ip", &[&["netns", "exec", &name], words].concat())
    }

    /// Joins a node with the switch, by a veth that is `eth0` at the node.
    fn join(&mut self, number: usize, node: &str) -> anyhow::Result<()> {
        let (here, there) = (format!("port{number}"), self.name(node));
        let words = [
            "ip", "link", "add", &here, "type", "veth", "peer", "name", "eth0", "netns", &there,
        ];
        self.inside("switch", &words)?;
        let [a, b, c, d, e, f] = address_of(node)?.to_mac();
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        // Sums of offloaded packets are not there when they leave the kernel's own path; a veth
        // takes what a program redirects to it only with gro.
        let offloads = ["tx", "off", "gro", "on"];
        self.inside(
            "switch",
            &[&["ethtool", "-K", &here], &offloads[..]].concat(),
        )?;
        self.inside("switch", &["ip", "link", "set", &here, "up"])?;
        self.inside(node, &["ip", "link", "set", "eth0", "address", &mac, "up"])?;
        self.inside(node, &[&["ethtool", "-K", "eth0"], &offloads[..]].concat())?;
        self.inside(node, &["ip", "link", "set", "lo", "up"])?;
        self.route(node)?;
        self.switch_ports.push(format!("{here}={node}"));
        Ok(())
    }

    /// What a node receives, and how it sends to anybody.
    fn route(&self, node: &str) -> anyhow::Result<()> {
        let own = ip_of(node)?;
        let ip = |words: &[&str]| self.inside(node, &[&["ip", "-6"], words].concat());
        let own = own.to_string();
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

impl Drop for TierNamespaces {
    fn drop(&mut self) {
        for name in &self.made {
            let _ = quietly("ip", &["netns", "del", name]);
        }
    }
}

/// The namespace of a node of the trial tier with this port.
pub(super) fn name(port: u16, node: &str) -> String {
    format!("curtail-{port}-{node}")
}

/// Where a node receives.
pub(super) fn socket_of(node: &str, port: u16) -> anyhow::Result<SocketAddr> {
    Ok(SocketAddr::from((ip_of(node)?, port)))
}

fn ip_of(node: &str) -> anyhow::Result<Ipv6Addr> {
    Ok(Ipv6Addr::from(address_of(node)?.to_ipv6(CLUSTER)))
}

/// All addresses of the tier.
fn network() -> String {
    let any = TierAddress::host(HostId(0)).to_ipv6(CLUSTER);
    let prefix = u128::from_be_bytes(any) >> 80 << 80;
    format!("{}/48", Ipv6Addr::from(prefix))
}

fn address_of(node: &str) -> anyhow::Result<TierAddress> {
    let number = |kind: &str| node.strip_prefix(kind)?.parse::<u32>().ok();
    if let Some(id) = number("back-end") {
        let key = KeyAddress {
            back_end: BackEndId(u16::try_from(id)?),
            tag: KeyTag::from_bits(0),
        };
        return Ok(TierAddress::back_end(key));
    }
    let host = number("cache").or_else(|| number("host"));
    Ok(TierAddress::host(HostId(host.context("a node's name")?)))
}

fn run(program: &str, words: &[&str]) -> anyhow::Result<()> {
    let command = || format!("{program} {}", words.join(" "));
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("{}; is it installed?", command()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", command(), said.trim());
    Ok(())
}

fn quietly(program: &str, words: &[&str]) -> std::io::Result<()> {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().map(|_| ())
}

/// The number of a trial tier, which is part of its addresses: its namespaces are its own.
pub(super) const CLUSTER: u32 = 1;
