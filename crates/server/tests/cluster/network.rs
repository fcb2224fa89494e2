//! A network of a test's own: each node in a namespace, with links that the test can cut or delay.
//! It ends with the test, and nobody else sees it.
//!
//! ```text
//!   node 0 -- 10.99.0.2     10.99.0.1 --+
//!   node 1 -- 10.99.1.2     10.99.1.1 --+-- clients (this process), and routes between nodes
//! ```

use std::{
    env, fs,
    io::Write as _,
    net::SocketAddr,
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network with a place for each node.
pub(crate) struct Network {
    /// Processes that do nothing but be in a namespace: the test's, and each node's.
    holders: Vec<Child>,
    /// Pairs of nodes that cannot reach each other, in this direction.
    cut: Vec<(usize, usize)>,
}

impl Network {
    /// Where clients and the view's store are; every node reaches it.
    pub(crate) const HUB: &str = "10.99.0.1";

    /// Moves the thread, and those that it starts from now on, into a network with a place for
    /// `nodes`. `None` where that is not allowed; then it is said on standard error, which the test
    /// harness does not capture. As root the test fails instead.
    pub(crate) fn enter(nodes: usize) -> Option<Self> {
        let Some(own) = hold() else {
            let is_known = env::var_os("CURTAIL_WITHOUT_XDP").is_some();
            assert!(
                is_known || !curtail_runtime::is_root(),
                "root, but no network namespace can be made here (CURTAIL_WITHOUT_XDP skips this)"
            );
            let name = thread::current().name().unwrap_or("a test").to_owned();
            let line = format!("SKIPPED: {name}: no partitions: no network namespaces here\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            return None;
        };
        let file = fs::File::open(format!("/proc/{}/ns/net", own.id())).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        run("ip", "link set lo up");
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        let mut network = Self {
            holders: vec![own],
            cut: Vec::new(),
        };
        for id in 0..nodes {
            network.holders.push(hold().unwrap());
            network.connect(id);
        }
        Some(network)
    }

    fn connect(&self, id: usize) {
        let (hub, node) = (format!("hub{id}"), format!("node{id}"));
        let holder = self.holders[id + 1].id().to_string();
        let host = Self::host(id);
        for words in [
            format!("link add {hub} type veth peer name {node} netns {holder}"),
            format!("addr add 10.99.{id}.1/24 dev {hub}"),
            format!("link set {hub} up"),
        ] {
            run("ip", &words);
        }
        for words in [
            "link set lo up",
            &format!("addr add {host}/24 dev {node}"),
            &format!("link set {node} up"),
            &format!("route add default via 10.99.{id}.1"),
        ] {
            self.run_at(id, "ip", words);
        }
    }

    /// Where a client may be, beside the line of a node.
    pub(crate) fn client_at(id: usize) -> SocketAddr {
        format!("10.99.{id}.1:0").parse().unwrap()
    }

    /// The address of a node.
    pub(crate) fn host(id: usize) -> String {
        format!("10.99.{id}.2")
    }

    /// This program, at the place of a node.
    pub(crate) fn command_at(&self, id: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.space(id)).arg(env::current_exe().unwrap());
        command
    }

    fn space(&self, id: usize) -> String {
        format!("--net=/proc/{}/ns/net", self.holders[id + 1].id())
    }

    fn run_at(&self, id: usize, program: &str, words: &str) {
        run("nsenter", &format!("{} {program} {words}", self.space(id)));
    }

    /// Keeps these nodes and all others from reaching each other; clients reach all of them.
    pub(crate) fn part(&mut self, away: &[usize]) {
        let nodes = self.holders.len() - 1;
        for &one in away {
            for other in (0..nodes).filter(|other| !away.contains(other)) {
                self.cut.push((one, other));
                self.cut.push((other, one));
            }
        }
        self.cut.iter().for_each(|pair| rule("add", *pair));
    }

    /// Keeps two nodes from reaching each other, or only what the first one sends from the second.
    pub(crate) fn part_two(&mut self, one: usize, other: usize, both_ways: bool) {
        self.cut.push((one, other));
        if both_ways {
            self.cut.push((other, one));
        }
        self.cut.iter().for_each(|pair| rule("add", *pair));
    }

    /// Ends what [`Network::part`] or [`Network::part_two`] began.
    pub(crate) fn join(&mut self) {
        self.cut.drain(..).for_each(|pair| rule("del", pair));
    }

    /// Has a node's line carry so little that messages wait for each other, or all that it can.
    pub(crate) fn slow(&self, id: usize, is_slow: bool) {
        self.limit(id, is_slow.then_some("rate 400kbit burst 1600 latency 4s"));
    }

    /// Has a node's line drop the packets that find a few others waiting, or none. (Not every
    /// kernel can drop at random.)
    pub(crate) fn lose(&self, id: usize, loses: bool) {
        self.limit(id, loses.then_some("rate 6mbit burst 1600 limit 4500"));
    }

    /// How many packets a node's line has dropped in either direction since it was limited.
    pub(crate) fn dropped(&self, id: usize) -> u64 {
        let (hub, node) = (format!("hub{id}"), format!("node{id}"));
        let space = self.space(id);
        let here = tell("tc", &format!("-s qdisc show dev {hub}"));
        let there = tell("nsenter", &format!("{space} tc -s qdisc show dev {node}"));
        [here, there].iter().map(|text| drops_in(text)).sum()
    }

    fn limit(&self, id: usize, how: Option<&str>) {
        let (hub, node) = (format!("hub{id}"), format!("node{id}"));
        let words = |device: &str| match how {
            Some(how) => format!("qdisc add dev {device} root tbf {how}"),
            None => format!("qdisc del dev {device} root"),
        };
        run("tc", &words(&hub));
        self.run_at(id, "tc", &words(&node));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// A process in a new network namespace; it ends with this one.
fn hold() -> Option<Child> {
    let mut child = Command::new("unshare")
        .args(["--net", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .ok()?;
    let space = |id: &str| fs::read_link(format!("/proc/{id}/ns/net")).ok();
    let own = space("thread-self");
    for _ in 0..500 {
        if child.try_wait().ok()?.is_some() {
            return None;
        }
        if space(&child.id().to_string()).is_some_and(|there| Some(there) != own) {
            return Some(child);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

fn rule(what: &str, (from, to): (usize, usize)) {
    let (from, to) = (Network::host(from), Network::host(to));
    run("ip", &format!("rule {what} from {from} to {to} blackhole"));
}

/// The number in `(dropped 12, overlimits 40 requeues 0)`.
fn drops_in(text: &str) -> u64 {
    let (_, rest) = text.split_once("(dropped ").unwrap_or_default();
    let number = rest.split(',').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}

fn run(program: &str, words: &str) {
    tell(program, words);
}

fn tell(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split(' ')).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{program} {words}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
