//! Native clients at the nodes of a cluster: any node answers for every key, a request is executed
//! once however often it is sent, and what is acknowledged is at every node in sync.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use curtail_codec::native::{ErrorCode, Flags, Opcode, Reply, Session, Status};
use curtail_server::NativeMode;
use curtail_testing::native_config;
use curtail_workload::Random;

use crate::{
    histories::{PLAN, judge, judge_sessions, values_shown_too_early_are_noticed},
    native_support::{Answer, Ask, Client, Line, nonce, receive, socket_at},
    network::Network,
    recording_clients::Nodes,
    support::{Cluster, Protocol, await_placement, until},
};

/// A native client that is told what to do in memcached's words.
pub(crate) struct Native {
    client: Client,
    reply: Duration,
    /// Sets are marked, in turn.
    is_marked: bool,
    /// What becomes of datagrams, if some get lost.
    fate: Option<Random>,
    /// An earlier request, which may arrive once more.
    late: Vec<u8>,
    /// The second line of the last answer.
    rest: Option<String>,
}

impl Native {
    pub(crate) fn to(address: SocketAddr, reply: Duration, loses: bool) -> io::Result<Self> {
        let nonce = nonce();
        let socket = socket_at(source_towards(address, nonce));
        let mut ask = (Opcode::Hello, Session::default());
        let begun = Instant::now();
        while begun.elapsed() < reply {
            let (opcode, session) = ask;
            let bytes = Ask::new(opcode, b"").argument(nonce).bytes(session, 0, 0);
            socket.send_to(&bytes, address)?;
            let Some(answer) = receive(&socket) else {
                continue;
            };
            match answer.reply() {
                Reply::Cookie { cookie, .. } => {
                    let session = Session {
                        token: cookie,
                        ..Session::default()
                    };
                    ask = (Opcode::Confirm, session);
                }
                Reply::Grant(grant) => {
                    return Ok(Self {
                        client: Client::with(socket, address, grant),
                        reply,
                        is_marked: false,
                        fate: loses.then(|| Random::new(nonce)),
                        late: Vec::new(),
                        rest: None,
                    });
                }
                // The cookie has become too old.
                _ => ask = (Opcode::Hello, Session::default()),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The first line that memcached would answer with; nothing if no answer comes in time.
    pub(crate) fn first_line(&mut self, command: &str) -> Option<String> {
        let (line, value) = command.split_once("\r\n")?;
        let words: Vec<&str> = line.split(' ').collect();
        let value = value.trim_end().as_bytes();
        let key = words[1].as_bytes();
        let ask = match words[0] {
            "mg" => Ask::get(key),
            // With its version.
            "ms" => Ask::set(key, value),
            "set" => {
                self.is_marked = !self.is_marked;
                let set = Ask::set(key, value);
                if self.is_marked { set.nilext() } else { set }
            }
            "add" => Ask::store(Opcode::Add, key, value),
            "cas" => Ask {
                flags: Flags::COMPARE,
                argument: words[5].parse().unwrap(),
                ..Ask::set(key, value)
            },
            "delete" => Ask::new(Opcode::Delete, key),
            other => panic!("{other}"),
        };
        let answer = self.exchange(ask)?;
        let (status, value) = match answer.reply() {
            Reply::Ack(_) => return Some("STORED".into()),
            // The node has been started again.
            Reply::Error(error) if error.code == ErrorCode::Session => return None,
            Reply::Result {
                status,
                value,
                version,
                ..
            } => {
                self.rest = Some(String::from_utf8(value.to_vec()).unwrap());
                (status, format!("VA {} c{version}", value.len()))
            }
            other => panic!("{command:?}: {other:?}"),
        };
        Some(match (status, ask.opcode) {
            (Status::Done, _) if words[0] == "ms" => format!("HD c{}", answer.version()),
            (Status::Value, _) => value,
            (Status::NotFound, Opcode::Get) => "EN".into(),
            (Status::NotFound, _) => "NOT_FOUND".into(),
            (Status::Done, Opcode::Delete) => "DELETED".into(),
            (Status::Done, _) => "STORED".into(),
            (Status::NotStored, _) => "NOT_STORED".into(),
            (Status::Exists, _) => "EXISTS".into(),
            (Status::OutOfMemory, _) => "SERVER_ERROR out of memory".into(),
            (other, _) => panic!("{command:?}: {other:?}"),
        })
    }

    /// The second line of the same answer.
    pub(crate) fn line(&mut self) -> Option<String> {
        self.rest.take()
    }

    /// Sends the same bytes until there is an answer: a refused request may be on its way again
    /// already, so it is not known to have no effect before it is answered.
    fn exchange(&mut self, ask: Ask<'_>) -> Option<Answer> {
        let bytes = self.client.bytes(0, ask);
        let begun = Instant::now();
        let mut answered = None;
        while answered.is_none() && begun.elapsed() < self.reply {
            self.send(&bytes);
            let answer = self.client.receive_for(&bytes);
            let is_lost = self.draws(4);
            match answer.filter(|_| !is_lost) {
                Some(answer) if answer.nack().is_none() => answered = Some(answer),
                Some(_) => std::thread::sleep(Duration::from_millis(2)),
                None => {}
            }
        }
        self.late = bytes;
        answered
    }

    /// Whether the network does something that it does once in so many times.
    fn draws(&mut self, times: u64) -> bool {
        self.fate
            .as_mut()
            .is_some_and(|fate| fate.below(times) == 0)
    }

    /// Sends a request as a bad network would: a quarter of all get lost or arrive twice, and
    /// earlier ones come once more.
    fn send(&mut self, bytes: &[u8]) {
        let (is_lost, is_doubled, is_late) = (self.draws(4), self.draws(4), self.draws(8));
        let Client { socket, to, .. } = &self.client;
        let late = is_late.then_some(&*self.late);
        let once = (!is_lost).then_some(bytes);
        let twice = (!is_lost && is_doubled).then_some(bytes);
        for bytes in [once, late, twice].into_iter().flatten() {
            // A network that is out of order is one more loss.
            let _ = socket.send_to(bytes, to);
        }
    }
}

impl Drop for Native {
    /// Gives the session back: an address may have few.
    fn drop(&mut self) {
        let bytes = self.client.bytes(0, Ask::new(Opcode::Close, b""));
        let _ = self.client.socket.send_to(&bytes, self.client.to);
    }
}

/// Where a client is that talks to `to`. A node grants few sessions to one address, so clients have
/// several.
fn source_towards(to: SocketAddr, nonce: u64) -> SocketAddr {
    let [low, high] = [nonce % 200, nonce / 200 % 200].map(|part| part as u8 + 1);
    match to.ip().is_loopback() {
        true => SocketAddr::from(([127, 0, high, low], 0)),
        false => Network::client_at(nonce as usize % 3),
    }
}

pub(crate) fn nodes_with(replicas: usize) -> Cluster {
    let cluster = Cluster::with(|shape| {
        (shape.replicas, shape.protocol) = (replicas, Protocol::Native);
    });
    await_placement(&mut cluster.client(0), 3);
    cluster
}

pub(crate) fn native(cluster: &Cluster, id: usize) -> Client {
    Client::connect(cluster.nodes[id].as_ref().unwrap())
}

const KEYS: usize = 24;

/// Goal: every node answers for every key what was last done to it at another one, with one copy
/// and with several, for hot keys too, and for memcached's clients.
#[test]
fn every_node_answers_native_clients_for_every_key() {
    for replicas in 1..=3 {
        let cluster = nodes_with(replicas);
        if replicas == 2 {
            (0..KEYS).for_each(|key| cluster.change_hot(&format!("k{key}"), true));
        }
        let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
        let mut memcached = cluster.client(2);
        for number in 0..KEYS {
            let (writer, reader) = (number % 3, (number + 1) % 3);
            let (key, value) = (format!("k{number}"), "v".repeat(number * 50));
            let (name, long) = (key.as_bytes(), value.as_bytes());
            nodes[writer].write(name, long);
            assert_eq!(nodes[reader].get(name).as_deref(), Some(long));
            memcached.demand_value(&*key, &*value);
            let add = nodes[reader].ask(Ask::store(Opcode::Add, name, b"1"));
            assert_eq!(add.status(), Status::NotStored);
            let set = nodes[reader].ask(Ask::set(name, b"41"));
            let version = set.version();
            let count = nodes[writer].ask(Ask::new(Opcode::Increment, name).argument(1));
            assert_eq!(count.number(), 42);
            let compare = Ask {
                flags: Flags::COMPARE,
                ..Ask::set(name, b"no").argument(version)
            };
            assert_eq!(nodes[reader].ask(compare).status(), Status::Exists);
            nodes[reader].accept(Ask::store(Opcode::Append, name, b"0"));
            assert_eq!(nodes[writer].get(name).as_deref(), Some(&b"420"[..]));
            let delete = Ask::new(Opcode::Delete, name);
            assert_eq!(nodes[writer].ask(delete).status(), Status::Done);
            assert_eq!(nodes[reader].ask(delete).status(), Status::NotFound);
            assert_eq!(nodes[writer].get(name), None);
        }
    }
}

/// Goal: a request is executed once, however often it is sent, before its answer and after it.
#[test]
fn repeated_requests_are_executed_once() {
    let cluster = nodes_with(2);
    for id in 0..3 {
        let mut client = native(&cluster, id);
        for number in 0..KEYS {
            let key = format!("n{id}-{number}");
            client.write(key.as_bytes(), b"0");
            for round in 1..=5 {
                let count = Ask::new(Opcode::Increment, key.as_bytes()).argument(1);
                let bytes = client.bytes(1, count);
                for _ in 0..4 {
                    client.socket.send_to(&bytes, client.to).unwrap();
                }
                assert_eq!(client.exchange(&bytes).number(), round);
                assert_eq!(client.exchange(&bytes).number(), round, "again");
            }
            assert_eq!(client.get(key.as_bytes()).as_deref(), Some(&b"5"[..]));
        }
    }
}

/// Goal: what a node does not offer is refused in plain words, and changes nothing.
#[test]
fn what_a_node_does_not_offer_is_refused() {
    let cluster = nodes_with(2);
    let mut client = native(&cluster, 0);
    client.write(b"k", b"v");
    let mut memcached = cluster.client(1);
    memcached.set("long", "l".repeat(3000));
    let read = client.bytes(2, Ask::get(b"long"));
    assert_eq!(client.error(&read), ErrorCode::TooLarge);
    assert_eq!(client.get(b"k").as_deref(), Some(&b"v"[..]));
    let mut config = cluster.config(0);
    config.native = native_config(NativeMode::Raw).native;
    let Err(refused) = curtail_server::Server::start(config, |_| ()) else {
        panic!("a worker receives");
    };
    assert!(refused.to_string().contains("io-ack"), "{refused}");
}

/// Goal: a flush at one node removes what any node has, is carried out once however often it is
/// sent, and leaves what is written after it. Method: native and memcached's writes at all nodes,
/// before it and after it.
#[test]
fn a_native_flush_empties_every_node() {
    for replicas in 1..=2 {
        let cluster = nodes_with(replicas);
        let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
        let mut memcached = cluster.client(1);
        for round in 0..3 {
            for number in 0..KEYS {
                let key = format!("f{number}");
                nodes[number % 3].write(key.as_bytes(), b"before");
                memcached.set(format!("m{number}"), "before");
            }
            let flush = nodes[round].bytes(3, Ask::new(Opcode::Flush, b""));
            assert_eq!(nodes[round].exchange(&flush).status(), Status::Done);
            for number in 0..KEYS {
                let keys = [format!("f{number}"), format!("m{number}")];
                for key in keys {
                    let reader = &mut nodes[(number + round) % 3];
                    assert_eq!(reader.get(key.as_bytes()), None, "{key} in round {round}");
                }
            }
            nodes[round].write(b"kept", b"after");
            assert_eq!(nodes[round].exchange(&flush).status(), Status::Done);
            assert_eq!(
                nodes[(round + 1) % 3].get(b"kept").as_deref(),
                Some(&b"after"[..])
            );
        }
    }
}

/// Goal: values that fit no datagram go over TCP at any node, with the same sessions, once each.
/// Method: one copy and two; a hot key; requests of every kind, some of them sent again over the
/// other transport; a stream that ends before its answer comes.
#[test]
fn large_values_go_over_tcp_at_any_node() {
    for replicas in 1..=2 {
        let cluster = nodes_with(replicas);
        let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
        let line = |id: usize| Line::connect(cluster.nodes[id].as_ref().unwrap());
        let mut lines: Vec<_> = (0..3).map(line).collect();
        let mut memcached = cluster.client(2);
        cluster.change_hot("large0", true);
        for number in 0..KEYS {
            let (writer, reader) = (number % 3, (number + 1) % 3);
            let (key, value) = (format!("large{number}"), "v".repeat(1500 + number * 4000));
            let name = key.as_bytes();
            let set = nodes[writer].bytes(0, Ask::set(name, value.as_bytes()));
            let first = lines[writer].exchange(&set);
            assert_eq!(first.status(), Status::Done);
            assert_eq!(
                lines[writer].exchange(&set).version(),
                first.version(),
                "again"
            );
            let read = lines[reader].ask(&mut nodes[reader], Ask::get(name));
            assert_eq!(read.result(), (Status::Value, value.clone().into_bytes()));
            memcached.demand_value(&*key, &*value);
            let touch = Ask::new(Opcode::GetTouch, name);
            let touch = nodes[reader].bytes(
                1,
                Ask {
                    exptime: 900,
                    ..touch
                },
            );
            if value.len() > 1984 {
                assert_eq!(nodes[reader].error(&touch), ErrorCode::TooLarge);
            }
            let read = lines[reader].exchange(&touch).result();
            assert_eq!(read, (Status::Value, value.into_bytes()), "with a touch");
            let told = memcached.ask(format!("mg {key} t\r\n"));
            assert!(
                told.trim_start_matches("HD t")
                    .parse::<u32>()
                    .is_ok_and(|left| left <= 900)
            );
            lines[writer].ask(&mut nodes[writer], Ask::set(name, b"7"));
            let count = Ask::new(Opcode::Increment, name).argument(1);
            let count = nodes[writer].bytes(2, count);
            assert_eq!(lines[writer].exchange(&count).number(), 8);
            assert_eq!(nodes[writer].exchange(&count).number(), 8, "by datagram");
        }
        let long = nodes[0].bytes(3, Ask::set(b"ends", &[b'l'; 100_000]));
        line(0).send(&long);
        let flush = lines[1].ask(&mut nodes[1], Ask::new(Opcode::Flush, b""));
        assert_eq!(flush.status(), Status::Done);
        for number in 0..KEYS {
            let key = format!("large{number}");
            let read = lines[2].ask(&mut nodes[2], Ask::get(key.as_bytes()));
            assert_eq!(read.status(), Status::NotFound);
        }
        let refused = vec![b'l'; (1 << 20) + 1];
        let refused = lines[0].ask(&mut nodes[0], Ask::set(b"k", &refused));
        assert_eq!(refused.error(), ErrorCode::TooLarge);
    }
}

/// Goal: a read with a touch gives the value, its flags and its version, and sets when the item
/// expires, at any node; so it does when it is sent again. What fits no datagram is refused.
#[test]
fn a_read_with_a_touch_touches_at_any_node() {
    let cluster = nodes_with(2);
    let mut nodes: Vec<_> = (0..3).map(|id| native(&cluster, id)).collect();
    let mut memcached = cluster.client(1);
    for number in 0..KEYS {
        let key = format!("t{number}");
        let set = Ask {
            item_flags: 7,
            ..Ask::set(key.as_bytes(), b"value")
        };
        nodes[number % 3].ask(set);
        let touch = Ask {
            exptime: 500,
            ..Ask::new(Opcode::GetTouch, key.as_bytes())
        };
        let client = &mut nodes[(number + 1) % 3];
        let bytes = client.bytes(5, touch);
        for time in ["once", "again"] {
            let answer = client.exchange(&bytes);
            assert_eq!(
                answer.result(),
                (Status::Value, b"value".to_vec()),
                "{time}"
            );
            let Reply::Result {
                item_flags,
                version,
                ..
            } = answer.reply()
            else {
                panic!("no result");
            };
            assert!(item_flags == 7 && version != 0, "{item_flags}, {version}");
        }
        let told = memcached.ask(format!("mg {key} t\r\n"));
        let left: u32 = told.trim_start_matches("HD t").parse().unwrap();
        assert!((1..=500).contains(&left), "{told}");
        let missing = Ask::new(Opcode::GetTouch, b"nothing");
        assert_eq!(client.ask(missing).status(), Status::NotFound);
    }
    memcached.set("long", "l".repeat(3000));
    for client in &mut nodes {
        let long = client.ask(Ask::new(Opcode::GetTouch, b"long"));
        assert_eq!(long.error(), ErrorCode::TooLarge);
    }
}

/// Goal: with two copies of every key, what was acknowledged to native clients is there after a
/// node was lost. Method: marked sets at all nodes, one of which ends; every key is read at the
/// others.
#[test]
fn acknowledged_writes_survive_a_node() {
    let mut cluster = nodes_with(2);
    for id in 0..3 {
        let mut client = native(&cluster, id);
        for number in 0..100 {
            client.write(format!("s{id}-{number}").as_bytes(), b"kept");
        }
    }
    cluster.nodes[2] = None;
    let mut client = native(&cluster, 0);
    let mut memcached = cluster.client(1);
    for id in 0..3 {
        for number in 0..100 {
            let key = format!("s{id}-{number}");
            assert_eq!(client.get(key.as_bytes()).as_deref(), Some(&b"kept"[..]));
            until(&mut memcached, &format!("mg {key}\r\n"), |line| {
                line == "HD"
            });
        }
    }
}

/// Goal: without eviction a write that finds no room at every node in sync is refused, and all
/// others stay.
#[test]
fn full_nodes_refuse_native_writes() {
    let cluster = Cluster::with(|shape| {
        (shape.replicas, shape.protocol) = (2, Protocol::Native);
        (shape.evict, shape.memory_bytes) = (false, 16 << 20);
    });
    await_placement(&mut cluster.client(0), 3);
    let mut client = native(&cluster, 0);
    let value = [b'f'; 1800];
    let (mut stored, mut refused) = (Vec::new(), 0);
    for number in 0..60_000 {
        let key = format!("f{number}");
        match client.ask(Ask::set(key.as_bytes(), &value)).status() {
            Status::Done => stored.push(key),
            Status::OutOfMemory => refused += 1,
            other => panic!("{other:?}"),
        }
        if refused == 50 {
            break;
        }
    }
    assert!(refused == 50 && stored.len() > 1000, "{}", stored.len());
    let mut other = native(&cluster, 1);
    for key in stored {
        assert!(other.get(key.as_bytes()).is_some(), "{key}");
    }
}

/// Goal: what native clients of all nodes see is linearizable, while keys become hot and cease to
/// be, and while nodes die.
#[test]
fn histories_of_native_clients_are_linearizable() {
    let mut plan = PLAN;
    plan.shape.protocol = Protocol::Native;
    judge(plan, 1);
    plan.nodes = Nodes::Die;
    plan.reply = Duration::from_secs(2);
    plan.lasts = Duration::from_secs(12);
    for replicas in [2, 3] {
        plan.shape.replicas = replicas;
        judge(plan, replicas as u64);
    }
}

/// Goal: so is what they see when datagrams get lost, arrive twice, or long after their time.
/// Method: a quarter of all datagrams in either direction gets lost, others are sent once more.
#[test]
fn histories_over_a_bad_network_are_linearizable() {
    let mut plan = PLAN;
    (plan.shape.protocol, plan.shape.replicas) = (Protocol::Native, 2);
    (plan.loses, plan.lasts) = (true, Duration::from_secs(6));
    judge(plan, 4);
}

/// Goal: with the model `sc` the sessions of native clients that keep to a node agree on the order
/// of the writes of each key, over a bad network too.
#[test]
fn histories_of_native_sessions_are_sequentially_consistent() {
    let mut plan = PLAN;
    (plan.shape.protocol, plan.shape.model) = (Protocol::Native, "sc");
    judge_sessions(plan);
    (plan.loses, plan.shape.replicas) = (true, 2);
    judge_sessions(plan);
}

/// Goal: the judge would notice. Method: nodes that show what is not everywhere yet.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "faults exist in debug builds")]
fn a_native_read_that_shows_too_much_is_noticed() {
    let mut plan = PLAN;
    plan.shape.protocol = Protocol::Native;
    values_shown_too_early_are_noticed(plan);
}
