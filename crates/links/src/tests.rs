//! Whole links over loopback: two nodes in one process, each with its connector and its workers'
//! links, and unauthenticated peers at the node port.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant as Moment},
};

use curtail_codec::node::{
    Body, Class, Greeting, HandshakeKind, HandshakeRefusal, Part, RefusalReason, VERSION_MAX,
    VERSION_MIN, cluster_hash,
};
use curtail_runtime::{Clock, Events, Poller};
use curtail_workload::Random;

use crate::*;

mod message_rate;
mod tls;

/// A node: a connector on its thread, and workers that the test steps.
struct Node {
    handle: ConnectorHandle,
    thread: Option<JoinHandle<()>>,
    workers: Vec<Worker>,
    arrivals: Arc<Mutex<Vec<(usize, NewLink)>>>,
    said: Arc<Mutex<Vec<String>>>,
    peer: PeerNode,
}

struct Worker {
    links: Links,
    poller: Poller,
    events: Events,
    clock: Clock,
    /// The reports that arrived, and from whom.
    received: Vec<(Endpoint, Vec<u8>)>,
    happened: Vec<LinkEvent>,
    beats: usize,
}

/// What a node of a test is like.
#[derive(Clone, Copy)]
struct Kind {
    node: u8,
    incarnation: u64,
    cluster: &'static str,
    secret: &'static [u8],
    workers: u16,
    demand_bytes_max: usize,
    versions: (u8, u8),
}

const KIND: Kind = Kind {
    node: 1,
    incarnation: 11,
    cluster: "test",
    secret: b"an open secret of thirty-two byte",
    workers: 1,
    demand_bytes_max: 1 << 20,
    versions: (VERSION_MIN, VERSION_MAX),
};

impl Node {
    fn start(kind: Kind) -> Self {
        Self::secured(kind, None)
    }

    fn secured(kind: Kind, tls: Option<Tls>) -> Self {
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::new(Mutex::new(Vec::new()));
        let (box_of_arrivals, box_of_said) = (Arc::clone(&arrivals), Arc::clone(&said));
        let connector = Connector::bind(ConnectorConfig {
            node: NodeId(kind.node),
            cluster: kind.cluster.to_owned(),
            secret: kind.secret.to_vec(),
            listen: "127.0.0.1:0".parse().unwrap(),
            workers: kind.workers,
            tls,
            versions: kind.versions,
            deliver: Box::new(move |worker, link| {
                box_of_arrivals.lock().unwrap().push((worker, link));
            }),
            say: Box::new(move |text| box_of_said.lock().unwrap().push(text.to_owned())),
        })
        .unwrap();
        let handle = connector.handle();
        let clock = Clock::start();
        let workers = (0..kind.workers).map(|worker| Worker::new(&handle, worker, kind, clock));
        let peer = PeerNode {
            node: NodeId(kind.node),
            address: handle.address(),
            incarnation: kind.incarnation,
        };
        Self {
            workers: workers.collect(),
            thread: Some(std::thread::spawn(move || connector.run())),
            handle,
            arrivals,
            said,
            peer,
        }
    }

    /// One turn of every worker.
    fn turn(&mut self) {
        for (worker, link) in self.arrivals.lock().unwrap().drain(..) {
            let Worker { links, poller, .. } = &mut self.workers[worker];
            links.adopt(poller, link);
        }
        for worker in &mut self.workers {
            worker.turn();
        }
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Worker {
    fn new(handle: &ConnectorHandle, worker: u16, kind: Kind, clock: Clock) -> Self {
        let config = LinksConfig {
            demand_bytes_max: kind.demand_bytes_max,
            ..LinksConfig::for_items(worker, 8 << 20)
        };
        let started_ns = clock.now().unix_ns + u64::from(kind.node);
        Self {
            links: Links::new(handle.clone(), config, started_ns),
            poller: Poller::new().unwrap(),
            events: Events::with_capacity(64),
            clock,
            received: Vec::new(),
            happened: Vec::new(),
            beats: 0,
        }
    }

    fn turn(&mut self) {
        let links = &mut self.links;
        self.poller
            .wait(&mut self.events, Some(Duration::ZERO))
            .unwrap();
        self.events.for_each(|token, readiness| {
            assert!(Links::owns(token));
            links.note_event(token, readiness);
        });
        links.begin_turn(self.clock.now().instant);
        let (received, beats) = (&mut self.received, &mut self.beats);
        links.receive(|from, frame| match frame.body {
            Body::Report(bytes) => received.push((from, bytes.to_vec())),
            Body::Replica(_) => {}
            Body::Heartbeat { .. } => *beats += 1,
            _ => panic!("{frame:?}"),
        });
        while let Some(event) = links.next_event() {
            self.happened.push(event);
        }
        links.flush();
    }

    fn report(&mut self, to: u8, class: Class, bytes: &[u8]) -> Result<(), SendError> {
        let to = self.links.endpoint(NodeId(to)).ok_or(SendError::Unknown)?;
        self.links.send(to, class, &Part::Report(bytes))
    }
}

/// Has the nodes know each other.
fn introduce(nodes: &[&Node]) {
    for node in nodes {
        let others = nodes.iter().map(|other| other.peer);
        let others = others.filter(|other| other.node != node.peer.node);
        let own = node.peer.incarnation;
        node.handle.set_peers(own, others.collect());
    }
}

/// Steps both nodes until `done`, or fails after some seconds.
fn until(
    a: &mut Node,
    b: &mut Node,
    what: &str,
    mut done: impl FnMut(&mut Node, &mut Node) -> bool,
) {
    let begun = Moment::now();
    while !done(a, b) {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{what} takes too long"
        );
        a.turn();
        b.turn();
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn has_report(node: &Node) -> bool {
    !node.workers[0].received.is_empty()
}

fn are_up(a: &Node, b: &Node) -> bool {
    let up = |from: &Node, to: &Node| {
        let node = to.peer.node;
        from.workers.iter().all(|worker| worker.links.is_up(node))
    };
    up(a, b) && up(b, a)
}

fn two(kind: Kind, other: Kind) -> (Node, Node) {
    link(Node::start(kind), Node::start(other))
}

fn link(mut a: Node, mut b: Node) -> (Node, Node) {
    introduce(&[&a, &b]);
    until(&mut a, &mut b, "linking", |a, b| are_up(a, b));
    (a, b)
}

fn other() -> Kind {
    Kind {
        node: 2,
        incarnation: 22,
        ..KIND
    }
}

/// The number that a report begins with.
fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().unwrap())
}

/// Goal: whatever is sent arrives once and in order for each class of connection, though
/// connections are torn all the time. Method: both nodes send numbered reports, small and large; in
/// between the sockets of random links are broken.
#[test]
fn reports_arrive_once_and_in_order_though_links_break() {
    exchange(two(KIND, other()));
}

fn exchange((mut a, mut b): (Node, Node)) {
    const COUNT: u32 = 4000;
    let mut sent = [[0_u32; 2]; 2];
    let mut random = Random::new(5);
    let mut breaks = 0;
    let large = vec![7; 40_000];
    until(&mut a, &mut b, "sending", |a, b| {
        for (from, (node, to)) in [(&mut *a, 2), (&mut *b, 1)].into_iter().enumerate() {
            let worker = &mut node.workers[0];
            for _ in 0..random.below(8) {
                let [small, bulk] = &mut sent[from];
                if *small < COUNT
                    && worker
                        .report(to, Class::Demand, &small.to_le_bytes())
                        .is_ok()
                {
                    *small += 1;
                }
                let mut bytes = bulk.to_le_bytes().to_vec();
                bytes.extend(&large);
                let wanted = *bulk < COUNT / 20 && random.below(10) == 0;
                if wanted && worker.report(to, Class::Demand, &bytes).is_ok() {
                    *bulk += 1;
                }
            }
            if random.below(40) == 0 {
                let links = worker.links.links.len() as u64;
                worker.links.give_up(random.below(links) as usize);
                breaks += 1;
            }
        }
        let all = |node: &Node| node.workers[0].received.len() as u32 == COUNT + COUNT / 20;
        all(a) && all(b)
    });
    assert!(breaks > 10, "only {breaks} links were broken");
    for node in [&a, &b] {
        let received = &node.workers[0].received;
        let of = |large: bool| {
            let those = received
                .iter()
                .filter(|(_, bytes)| (bytes.len() > 4) == large);
            those.map(|(_, bytes)| number(bytes)).collect::<Vec<_>>()
        };
        assert_eq!(of(false), (0..COUNT).collect::<Vec<_>>());
        assert_eq!(of(true), (0..COUNT / 20).collect::<Vec<_>>());
        let happened = &node.workers[0].happened;
        assert!(
            !happened
                .iter()
                .any(|event| matches!(event, LinkEvent::Reset(_)))
        );
        assert!(
            happened
                .iter()
                .any(|event| matches!(event, LinkEvent::Down(_)))
        );
    }
}

/// Goal: nodes with different numbers of workers are linked so that every worker reaches the other
/// node, and an answer finds the worker that asked. Method: 1, 2 and 3 workers; every worker asks,
/// and each answer goes to where the question came from.
#[test]
fn every_worker_is_linked_and_answers_go_back() {
    for (workers, others) in [(1, 3), (3, 1), (2, 3)] {
        let few = Kind { workers, ..KIND };
        let many = Kind {
            workers: others,
            ..other()
        };
        let (mut a, mut b) = two(few, many);
        for (node, to) in [(&mut a, 2), (&mut b, 1)] {
            for index in 0..node.workers.len() {
                let question = [b'?', index as u8];
                node.workers[index]
                    .report(to, Class::Demand, &question)
                    .unwrap();
            }
        }
        let expected = workers + others;
        let mut answered = HashMap::new();
        until(&mut a, &mut b, "answers", |a, b| {
            for node in [&mut *a, &mut *b] {
                let name = node.peer.node;
                for (index, worker) in node.workers.iter_mut().enumerate() {
                    for (from, bytes) in std::mem::take(&mut worker.received) {
                        if bytes[0] == b'?' {
                            let answer = [b'!', bytes[1]];
                            let part = Part::Report(&answer);
                            worker.links.send(from, Class::Answer, &part).unwrap();
                        } else {
                            assert_eq!(usize::from(bytes[1]), index, "who asked");
                            answered.insert((name, index), ());
                        }
                    }
                }
            }
            answered.len() == usize::from(expected)
        });
    }
}

/// Goal: a node that comes back in another life is reset, and one that leaves too. Method: the
/// second node is replaced by another one with the same number, then taken out of the list.
#[test]
fn another_life_and_removal_are_resets() {
    let (mut a, mut b) = two(KIND, other());
    a.workers[0].report(2, Class::Demand, b"before").unwrap();
    until(&mut a, &mut b, "a report", |_, b| has_report(b));
    drop(b);
    let mut b = Node::start(Kind {
        incarnation: 23,
        ..other()
    });
    for _ in 0..50 {
        a.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    a.workers[0]
        .report(2, Class::Demand, b"to the dead")
        .unwrap();
    introduce(&[&a, &b]);
    until(&mut a, &mut b, "linking again", |a, b| are_up(a, b));
    a.workers[0].report(2, Class::Demand, b"after").unwrap();
    until(&mut a, &mut b, "a report", |_, b| has_report(b));
    assert_eq!(b.workers[0].received[0].1, b"after");
    let node = NodeId(2);
    let expected = [
        LinkEvent::Up(node),
        LinkEvent::Down(node),
        LinkEvent::Reset(node),
        LinkEvent::Up(node),
    ];
    assert_eq!(a.workers[0].happened, expected);
    a.handle.set_peers(11, Vec::new());
    until(&mut a, &mut b, "removal", |a, _| {
        a.workers[0].happened.last() == Some(&LinkEvent::Reset(node))
    });
    assert_eq!(
        a.workers[0].report(2, Class::Demand, b""),
        Err(SendError::Unknown)
    );
    assert!(a.workers[0].links.links.iter().all(Option::is_none));
}

/// Goal: a node that begins another life without ending has new links, on both sides, and none
/// while it has no life. Method: one node is told another incarnation of its own, then none.
#[test]
fn another_life_of_its_own_is_a_reset() {
    let (mut a, mut b) = two(KIND, other());
    a.workers[0].report(2, Class::Demand, b"before").unwrap();
    until(&mut a, &mut b, "a report", |_, b| has_report(b));
    b.peer.incarnation = 30;
    introduce(&[&a, &b]);
    let (first, second) = (NodeId(1), NodeId(2));
    until(&mut a, &mut b, "two resets", |a, b| {
        let of = |node: &Node, of| node.workers[0].happened.contains(&LinkEvent::Reset(of));
        of(a, second) && of(b, first)
    });
    until(&mut a, &mut b, "linking again", |a, b| are_up(a, b));
    assert_eq!(a.workers[0].links.incarnation(second), Some(30));
    b.workers[0].report(1, Class::Demand, b"after").unwrap();
    until(&mut a, &mut b, "a report", |a, _| has_report(a));
    b.handle.set_peers(0, vec![a.peer]);
    until(&mut a, &mut b, "the end", |a, b| {
        b.workers[0].links.incarnation(first).is_none() && !a.workers[0].links.is_up(second)
    });
}

/// Goal: what keeps a node out is said once on each side, and no link is made. Method: another
/// secret, and another cluster's name; both try for a while.
#[test]
fn another_secret_or_cluster_is_refused_and_said_once() {
    let secret = Kind {
        secret: b"something else altogether, longer",
        ..other()
    };
    let cluster = Kind {
        cluster: "another",
        ..other()
    };
    for (kind, word) in [
        (secret, "secret"),
        (cluster, "cluster names of the two nodes differ"),
    ] {
        let (mut a, mut b) = (Node::start(KIND), Node::start(kind));
        introduce(&[&a, &b]);
        let begun = Moment::now();
        until(&mut a, &mut b, "trying", |a, b| {
            assert!(!a.workers[0].links.is_up(NodeId(2)) && !b.workers[0].links.is_up(NodeId(1)));
            begun.elapsed() > Duration::from_millis(600)
        });
        for node in [&a, &b] {
            let said = node.said();
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains(word), "{said:?}");
        }
        assert!(a.arrivals.lock().unwrap().is_empty() && b.arrivals.lock().unwrap().is_empty());
    }
}

/// A node that knows node 1 at some address, and its address.
fn acceptor() -> (Node, SocketAddr) {
    let node = Node::start(other());
    let address = node.peer.address;
    knows(&node, 1, 11, address);
    (node, address)
}

/// Has `node` know another one.
fn knows(node: &Node, other: u8, incarnation: u64, address: SocketAddr) {
    let peer = PeerNode {
        node: NodeId(other),
        address,
        incarnation,
    };
    node.handle.set_peers(node.peer.incarnation, vec![peer]);
}

fn hello() -> Greeting {
    Greeting {
        kind: HandshakeKind::Hello,
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        large: false,
        cluster: cluster_hash("test"),
        incarnation: 11,
        node: NodeId(1),
        to: NodeId(2),
        pair: 0,
        workers: 1,
        nonce: [3; 32],
    }
}

fn client(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream
}

fn greeting(stream: &mut TcpStream) -> Greeting {
    let mut bytes = [0; Greeting::BYTES];
    stream.read_exact(&mut bytes).unwrap();
    Greeting::decode(&bytes).unwrap()
}

fn refusal(stream: &mut TcpStream) -> RefusalReason {
    let mut bytes = [0; HandshakeRefusal::BYTES];
    stream.read_exact(&mut bytes).unwrap();
    HandshakeRefusal::decode(&bytes).unwrap().reason
}

/// What is answered before the connection is closed.
fn answer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = client(address);
    // It may be closed before all of it is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Goal: two nodes speak the newest version that both know, whichever of them connects, so that a
/// cluster can be upgraded node by node. Method: all pairs of an old and a new node.
#[test]
fn nodes_speak_the_newest_version_that_both_know() {
    let (old, new) = ((VERSION_MIN, VERSION_MIN), (VERSION_MIN, VERSION_MAX));
    for (own, others) in [(old, old), (old, new), (new, old), (new, new)] {
        let at = |kind: Kind, versions| Kind { versions, ..kind };
        let (a, b) = two(at(KIND, own), at(other(), others));
        let common = own.1.min(others.1);
        for (from, to) in [(&a, NodeId(2)), (&b, NodeId(1))] {
            let links = &from.workers[0].links;
            let to = links.endpoint(to).unwrap();
            assert!(links.speaks(to, common), "{own:?} {others:?}");
            assert!(!links.speaks(to, common + 1), "{own:?} {others:?}");
        }
    }
}

/// Goal: each mistake in a greeting is refused with its reason, before anything is said about the
/// secret. Method: a Hello with one thing wrong at a time, and a right one that goes unproved.
#[test]
fn greetings_that_do_not_fit_are_refused() {
    let (node, address) = acceptor();
    type Mistake = fn(&mut Greeting);
    let wrong: [(Mistake, RefusalReason); 6] = [
        (
            |hello| (hello.version_min, hello.version_max) = (VERSION_MAX + 1, 9),
            RefusalReason::Version,
        ),
        (|hello| hello.cluster = 1, RefusalReason::Cluster),
        (|hello| hello.to = NodeId(5), RefusalReason::NotMe),
        (|hello| hello.node = NodeId(0), RefusalReason::Unknown),
        (|hello| hello.node = NodeId(3), RefusalReason::Unknown),
        (|hello| hello.incarnation = 12, RefusalReason::Unknown),
    ];
    for (mistake, reason) in wrong {
        let mut greeting = hello();
        mistake(&mut greeting);
        let answer = answer(address, &greeting.encode());
        let refusal = answer.first_chunk().and_then(HandshakeRefusal::decode);
        assert_eq!(refusal.map(|refusal| refusal.reason), Some(reason));
        assert_eq!(answer.len(), HandshakeRefusal::BYTES);
    }
    assert!(node.arrivals.lock().unwrap().is_empty());
}

/// Goal: a node that cannot prove itself gets no link and learns nothing. Method: a right greeting,
/// then a wrong proof, and a message out of turn.
#[test]
fn a_wrong_proof_is_refused() {
    let (node, address) = acceptor();
    let mut stream = client(address);
    stream.write_all(&hello().encode()).unwrap();
    let challenge = greeting(&mut stream);
    assert_eq!(challenge.kind, HandshakeKind::Challenge);
    let mut proof = curtail_codec::node::HandshakeProof {
        kind: HandshakeKind::Proof,
        mac: [9; 32],
    };
    stream.write_all(&proof.encode()).unwrap();
    assert_eq!(refusal(&mut stream), RefusalReason::Secret);
    proof.kind = HandshakeKind::Welcome;
    let out_of_turn = [hello().encode().as_slice(), &proof.encode()].concat();
    let answer = answer(address, &out_of_turn);
    assert_eq!(answer.len(), Greeting::BYTES, "a challenge, and no more");
    assert!(node.arrivals.lock().unwrap().is_empty());
}

/// Goal: a version that the acceptor does not speak is refused by the connector's side too. Method:
/// a listener that answers a Hello with a Challenge of version 2.
#[test]
fn a_challenge_of_another_version_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = Node::start(KIND);
    knows(&node, 2, 22, listener.local_addr().unwrap());
    let (mut stream, _) = listener.accept().unwrap();
    let hello = greeting(&mut stream);
    let challenge = Greeting {
        kind: HandshakeKind::Challenge,
        version_min: VERSION_MAX + 1,
        version_max: VERSION_MAX + 1,
        incarnation: 22,
        node: NodeId(2),
        to: NodeId(1),
        ..hello
    };
    stream.write_all(&challenge.encode()).unwrap();
    assert_eq!(refusal(&mut stream), RefusalReason::Version);
}

/// Goal: strangers cost no memory and no working link. Method: noise, half a greeting, silence, and
/// more silent connections than handshakes may be under way, while two nodes are linked anew.
#[test]
fn garbage_on_the_node_port_is_closed() {
    let (mut a, mut b) = two(KIND, other());
    let address = b.peer.address;
    let mut random = Random::new(3);
    for length in [1, 8, 64, 1000, 100_000] {
        let noise: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        assert!(
            answer_within(address, &noise).is_empty(),
            "{length} bytes of noise"
        );
    }
    let silent: Vec<TcpStream> = (0..150).map(|_| client(address)).collect();
    for stream in &silent {
        (&*stream).write_all(&hello().encode()[..30]).unwrap();
    }
    for worker in [&mut a.workers[0], &mut b.workers[0]] {
        worker.links.give_up(0);
    }
    until(&mut a, &mut b, "linking again", |a, b| are_up(a, b));
    let mut closed = 0;
    for mut stream in silent {
        let end = stream.read_to_end(&mut Vec::new());
        closed += u32::from(matches!(end, Ok(0)) || end.is_err_and(is_reset));
    }
    assert_eq!(closed, 150);
}

fn is_reset(error: std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ConnectionReset
}

/// What is answered to bytes that may be too few to be judged: the sending side is closed.
fn answer_within(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = client(address);
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Goal: a peer that takes nothing makes sends be refused, not memory grow, and what was taken
/// arrives when it goes on. Method: one side stands still while the other sends all it can.
#[test]
fn a_slow_peer_refuses_sends() {
    let kind = Kind {
        demand_bytes_max: 100_000,
        ..KIND
    };
    let (mut a, mut b) = two(kind, other());
    let mut sent = 0_u32;
    let mut refused = 0;
    let begun = Moment::now();
    // Long enough for what the kernel holds to be full, short enough not to be taken for dead.
    while begun.elapsed() < Duration::from_millis(300) {
        for _ in 0..100 {
            let mut bytes = sent.to_le_bytes().to_vec();
            bytes.resize(1000, 1);
            match a.workers[0].report(2, Class::Demand, &bytes) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        a.turn();
    }
    assert!(refused > 0);
    assert!(
        sent <= 100,
        "{sent} reports of 1000 bytes are unacknowledged"
    );
    let answer = a.workers[0].report(2, Class::Answer, b"\0\0\0\0");
    assert_eq!(answer, Ok(()), "answers have credit of their own");
    until(&mut a, &mut b, "catching up", |_, b| {
        b.workers[0].received.len() as u32 == sent + 1
    });
    until(&mut a, &mut b, "credit", |a, _| {
        a.workers[0].report(2, Class::Demand, b"\0\0\0\0").is_ok()
    });
}

/// Goal: who holds large items back takes none in, holds little memory and does not spin, while
/// small items go on; afterwards all arrive, once. Method: the other side sends until it is
/// refused.
#[test]
fn large_items_wait_while_they_are_held_back() {
    let (mut a, mut b) = two(KIND, other());
    b.workers[0].links.hold_large(true);
    let bytes = vec![5; 40_000];
    let mut sent = 0;
    while a.workers[0].report(2, Class::LargeDemand, &bytes) == Ok(()) {
        sent += 1;
    }
    assert!(a.workers[0].links.held_bytes() >= sent * bytes.len());
    assert_eq!(a.workers[0].report(2, Class::Demand, b"\0\0\0\0"), Ok(()));
    let begun = Moment::now();
    until(&mut a, &mut b, "a small item", |_, b| {
        begun.elapsed() > Duration::from_millis(200) && !b.workers[0].received.is_empty()
    });
    assert_eq!(b.workers[0].received.len(), 1, "large items came through");
    assert!(!b.workers[0].links.wants_turn(), "it spins");
    assert!(b.workers[0].links.held_bytes() < 1 << 20);
    b.workers[0].links.hold_large(false);
    until(&mut a, &mut b, "all that waited", |_, b| {
        b.workers[0].received.len() == sent + 1
    });
}

/// Goal: what is too large is refused where it is sent, what is just not too large arrives. Method:
/// a part of the limit, and one byte more.
#[test]
fn parts_have_a_limit() {
    let (mut a, mut b) = two(KIND, other());
    let max = LinksConfig::for_items(0, 8 << 20).part_bytes_max;
    let bytes = vec![5; max + 1];
    assert_eq!(a.workers[0].report(2, Class::Demand, &bytes[..max]), Ok(()));
    until(&mut a, &mut b, "the longest part", |_, b| has_report(b));
    assert_eq!(b.workers[0].received[0].1.len(), max);
    let too_long = vec![5; max + 100];
    assert_eq!(
        a.workers[0].report(2, Class::Demand, &too_long),
        Err(SendError::TooLarge)
    );
}

/// Goal: links that have nothing to say are kept alive by heartbeats, and a peer that says nothing
/// at all is given up. Method: both run idle; then one stands still for longer than is allowed.
#[test]
fn heartbeats_are_sent_and_missed() {
    let (mut a, mut b) = two(KIND, other());
    let begun = Moment::now();
    until(&mut a, &mut b, "idling", |_, _| {
        begun.elapsed() > Duration::from_millis(1500)
    });
    let beats = a.workers[0].beats;
    assert!((15..=40).contains(&beats), "{beats} heartbeats in 1.5 s");
    assert_eq!(a.workers[0].happened, [LinkEvent::Up(NodeId(2))]);
    let begun = Moment::now();
    while begun.elapsed() < Duration::from_millis(1300) {
        a.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    let down = LinkEvent::Down(NodeId(2));
    assert!(a.workers[0].happened.contains(&down));
    until(&mut a, &mut b, "linking again", |a, b| are_up(a, b));
}
