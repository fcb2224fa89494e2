//! memcached's datagrams at the nodes of a cluster: any node answers for every key, one after the
//! other, and never with more than it was sent.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use crate::{
    histories::{PLAN, judge, values_shown_too_early_are_noticed},
    recording_clients::Nodes,
    support::{Cluster, Protocol, await_placement},
};

/// A client of one node's datagrams.
pub(crate) struct Datagrams {
    socket: UdpSocket,
    number: u16,
    /// What is left of the last answer.
    rest: String,
}

impl Datagrams {
    pub(crate) fn to(address: SocketAddr, reply: Duration) -> std::io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(reply))?;
        socket.connect(address)?;
        Ok(Self {
            socket,
            number: 0,
            rest: String::new(),
        })
    }

    fn of(cluster: &Cluster, node: usize, reply: Duration) -> Self {
        Self::to(cluster.addresses()[node].unwrap(), reply).unwrap()
    }

    /// What commands are answered with; nothing if no answer comes in time.
    fn ask(&mut self, commands: &str) -> Option<String> {
        self.number = self.number.wrapping_add(1);
        let [first, second] = self.number.to_be_bytes();
        let frame = [first, second, 0, 0, 0, 1, 0, 0];
        let datagram = [&frame[..], commands.as_bytes()].concat();
        self.socket.send(&datagram).ok()?;
        let mut buffer = [0; 4096];
        loop {
            let bytes = self.socket.recv(&mut buffer).ok()?;
            // An answer to an earlier question is too late.
            if buffer[..8] == frame {
                assert!(bytes <= datagram.len(), "{bytes} for {}", datagram.len());
                return Some(String::from_utf8(buffer[8..bytes].to_vec()).unwrap());
            }
        }
    }

    /// The first line of the answer to a command, which is given room for it.
    pub(crate) fn first_line(&mut self, command: &str) -> Option<String> {
        let (line, value) = command.split_once("\r\n")?;
        self.rest = self.ask(&(padded(line) + value))?;
        self.line()
    }

    /// The next line of the same answer.
    pub(crate) fn line(&mut self) -> Option<String> {
        let (line, rest) = self.rest.split_once("\r\n")?;
        let line = line.to_owned();
        self.rest = rest.to_owned();
        Some(line)
    }

    #[track_caller]
    fn demand(&mut self, commands: &str, answer: &str) {
        assert_eq!(self.ask(commands).as_deref(), Some(answer), "{commands:?}");
    }
}

const REPLY: Duration = Duration::from_secs(5);

/// A command with room for a longer answer behind it.
fn padded(command: &str) -> String {
    format!("{command}{}\r\n", " ".repeat(60))
}

fn nodes_with(replicas: usize, hot: bool) -> Cluster {
    let cluster =
        Cluster::with(|shape| (shape.replicas, shape.protocol) = (replicas, Protocol::Datagrams));
    await_placement(&mut cluster.client(0), 3);
    if hot {
        (0..KEYS).for_each(|key| cluster.change_hot(&format!("k{key}"), true));
    }
    cluster
}

const KEYS: usize = 24;

/// Goal: every node answers for every key what it was last set to, wherever its primary is, with
/// one copy and with several, and for hot keys.
#[test]
fn every_node_answers_for_every_key() {
    for (replicas, hot) in [(1, false), (2, false), (3, true)] {
        let cluster = nodes_with(replicas, hot);
        let mut nodes: Vec<_> = (0..3)
            .map(|id| Datagrams::of(&cluster, id, REPLY))
            .collect();
        let mut memcached = cluster.client(2);
        for key in 0..KEYS {
            let (writer, reader) = (key % 3, (key + 1) % 3);
            let wide = "v".repeat(key);
            let set = format!("set k{key} 0 0 {key}\r\n{wide}\r\n");
            nodes[writer].demand(&set, "STORED\r\n");
            let found = format!("VALUE k{key} 0 {key}\r\n{wide}\r\nEND\r\n");
            nodes[reader].demand(&padded(&format!("get k{key}")), &found);
            memcached.demand_value(format!("k{key}"), &wide);
            nodes[reader].demand(&format!("delete k{key}\r\n"), "DELETED\r\n");
            nodes[writer].demand(&format!("get k{key}\r\n"), "END\r\n");
        }
    }
}

/// Goal: requests of one datagram are executed in their order; what does not fit is not executed,
/// or, of a read, not shown.
#[test]
fn requests_of_a_datagram_keep_their_order() {
    let cluster = nodes_with(2, false);
    let mut memcached = cluster.client(0);
    for id in 0..3 {
        let mut node = Datagrams::of(&cluster, id, Duration::from_millis(300));
        for key in 0..8 {
            let count = format!(
                "set n{key} 0 0 1\r\n1\r\nincr n{key} 00000000000000000000041\r\nappend n{key} 0 0 \
                 1\r\n0\r\n{}",
                padded(&format!("get n{key} none n{key}"))
            );
            let found = format!("VALUE n{key} 0 3\r\n420\r\n");
            let answer = format!("STORED\r\n42\r\nSTORED\r\n{found}{found}END\r\n");
            node.demand(&count, &answer);
        }
        memcached.set("long", "l".repeat(3000));
        assert_eq!(node.ask("get long\r\n"), None, "longer than the question");
        node.demand(&padded("get long"), "SERVER_ERROR use TCP\r\n");
        assert_eq!(node.ask("incr n0 1\r\n"), None, "the number may be longer");
        memcached.demand_value("n0", "420");
        node.demand("set quiet 0 0 1 noreply\r\n1\r\nmg quiet\r\n", "HD\r\n");
        node.demand(&padded("mg quiet v k"), "VA 1 kquiet\r\n1\r\n");
        node.demand(&padded("stats"), "SERVER_ERROR use TCP\r\n");
    }
}

/// Goal: what clients of datagrams at all nodes see is linearizable, while keys become hot and
/// cease to be, and while nodes die.
#[test]
fn histories_of_datagrams_are_linearizable() {
    let mut plan = PLAN;
    plan.shape.protocol = Protocol::Datagrams;
    judge(plan, 1);
    plan.shape.replicas = 2;
    plan.nodes = Nodes::Die;
    plan.reply = Duration::from_secs(2);
    plan.lasts = Duration::from_secs(12);
    judge(plan, 2);
}

/// Goal: the judge would notice. Method: nodes that show what is not everywhere yet.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn a_datagram_that_shows_too_much_is_noticed() {
    let mut plan = PLAN;
    plan.shape.protocol = Protocol::Datagrams;
    values_shown_too_early_are_noticed(plan);
}
