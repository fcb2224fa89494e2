//! Goal: once a server has served some requests, further ones of the same kinds allocate nothing.
//! Method: the allocator of this program counts; the client and the cache tier of a gateway are one
//! thread that has its buffers from the start, so what is counted is the server's.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failure here is a test's failure")]

use std::{
    fs::Permissions,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    sync::Mutex,
    time::Duration,
};

use curtail_codec::{
    native::{Flags, Head, Opcode, Promise, Reply, Request},
    tiered::{DATAGRAM_BYTES_MAX, HostId, TierAddress, TieredDatagram, TieredOpcode, TieredStatus},
};
use curtail_membership::NodeConfig;
use curtail_runtime::CountingAllocator;
use curtail_server::{Config, NativeMode, Server};
use curtail_testing::{config, eventually, gateway_config, native_config, start};
use curtail_types::{Cas, Key};

#[path = "../native/support.rs"]
#[allow(dead_code, reason = "one client of it")]
mod native_support;

use crate::native_support::Client as NativeClient;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

/// The tests take turns: they share one allocator.
static TURN: Mutex<()> = Mutex::new(());

/// Requests of every kind, each of another key, and the length of their replies.
struct Pipeline {
    requests: Vec<u8>,
    count: usize,
    reply_bytes: usize,
}

/// Pipelines before the count begins, and during it.
const WARM: usize = 200;
const COUNTED: usize = 1000;

fn pipeline(kinds: &[(&str, &str)]) -> Pipeline {
    let requests = kinds.iter().flat_map(|(request, _)| request.bytes());
    Pipeline {
        requests: requests.collect(),
        count: kinds.len(),
        reply_bytes: kinds.iter().map(|(_, reply)| reply.len()).sum(),
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// Sends the pipeline again and again, and has `between` done before its replies are read; the
/// allocations of each kind of thread together, while they are counted.
fn allocations(server: &Server, pipeline: &Pipeline, mut between: impl FnMut(usize)) -> u64 {
    let mut stream = connect(server);
    let mut replies = vec![0; pipeline.reply_bytes];
    let mut before = 0;
    for round in 0..WARM + COUNTED {
        if round == WARM {
            before = ALLOCATOR.allocations();
        }
        stream.write_all(&pipeline.requests).unwrap();
        between(pipeline.count);
        stream.read_exact(&mut replies).unwrap();
    }
    ALLOCATOR.allocations() - before
}

/// A few are the server's own: what it does once in a while, whatever is asked of it.
fn assert_few(allocations: u64, pipeline: &Pipeline) {
    let requests = (COUNTED * pipeline.count) as u64;
    println!("{allocations} allocations in {requests} requests");
    assert!(
        allocations * 100 < requests,
        "{allocations} allocations in {requests} requests"
    );
}

#[test]
fn a_request_from_memory_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let server = start(config());
    let pipeline = pipeline(&[
        ("set a 0 0 4\r\nbody\r\n", "STORED\r\n"),
        ("get a\r\n", "VALUE a 0 4\r\nbody\r\nEND\r\n"),
        ("mg a v\r\n", "VA 4\r\nbody\r\n"),
        ("mg YQ== b v k\r\n", "VA 4 kYQ== b\r\nbody\r\n"),
        ("delete b\r\n", "NOT_FOUND\r\n"),
    ]);
    assert_few(allocations(&server, &pipeline, |_| ()), &pipeline);
}

#[test]
fn a_request_at_a_gateway_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let tier = UdpSocket::bind("127.0.0.1:0").unwrap();
    tier.set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let server = start(gateway_config(tier.local_addr().unwrap()));
    let pipeline = pipeline(&[
        ("set a 0 0 4\r\nbody\r\n", "STORED\r\n"),
        ("set b 0 100 4\r\nbody\r\n", "STORED\r\n"),
        ("get c\r\n", "VALUE c 0 1\r\n7\r\nEND\r\n"),
        ("gets d\r\n", "VALUE d 0 1 1\r\n7\r\nEND\r\n"),
        (
            "get e f\r\n",
            "VALUE e 0 1\r\n7\r\nVALUE f 0 1\r\n7\r\nEND\r\n",
        ),
        ("mg g v k Oabc\r\n", "VA 1 kg Oabc\r\n7\r\n"),
        ("mg aGhoaA== b v k\r\n", "VA 1 kaGhoaA== b\r\n7\r\n"),
        ("ms i 4\r\nbody\r\n", "HD\r\n"),
        ("append j 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("incr k 1\r\n", "7\r\n"),
        ("touch l 100\r\n", "TOUCHED\r\n"),
        ("delete m\r\n", "DELETED\r\n"),
    ]);
    let mut room = [0; DATAGRAM_BYTES_MAX + 1];
    let answer = |requests: usize| {
        // A `get` of two keys is two requests to the tier.
        for _ in 0..requests + 1 {
            let (bytes, _) = tier.recv_from(&mut room).unwrap();
            answer_one(&tier, &room[..bytes]);
        }
    };
    assert_few(allocations(&server, &pipeline, answer), &pipeline);
}

/// Goal: nor does a write that a node of a cluster accepts, nor a read of it. Method: a cluster of
/// one node; a marked set and a get in turn, each in a datagram of its own.
#[test]
fn an_accepted_write_at_a_node_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("secret"), "a secret of sixteen bytes and more").unwrap();
    std::fs::set_permissions(path("secret"), Permissions::from_mode(0o600)).unwrap();
    let file = "name = \"one\"\nmodel = \"lin\"\nreplicas = 1\nlease_ms = 3000\n\
                secret_file = \"secret\"\n[store]\nkind = \"file\"\npath = \"view.json\"\n\
                [[node]]\nid = 0\nclients = \"127.0.0.1:0\"\nlinks = \"127.0.0.1:0\"\n";
    std::fs::write(path("cluster.toml"), file).unwrap();
    let server = start(Config {
        node: Some(NodeConfig::load(&path("cluster.toml"), "0").unwrap()),
        ..native_config(NativeMode::IoAck)
    });
    eventually("it is in service", || server.is_in_service());
    let client = NativeClient::connect(&server);
    let (mut sequence, mut accepted, mut before) = (0, 0, 0);
    for round in 0..WARM + COUNTED {
        if round == WARM {
            before = ALLOCATOR.allocations();
        }
        for (opcode, flags, value) in [
            (Opcode::Set, Flags::NILEXT, &b"value"[..]),
            (Opcode::Get, Flags::NONE, &[]),
        ] {
            sequence += 1;
            let head = Head {
                sequence,
                ..Head::new(opcode, flags, client.grant.session)
            };
            let request = Request {
                head,
                key: Some(Key::new(b"key").unwrap()),
                value,
            };
            let mut room = [0; 256];
            let bytes = request.encode(&mut room).unwrap();
            client.socket.send_to(&room[..bytes], client.to).unwrap();
            let bytes = client.socket.recv(&mut room).unwrap();
            match Reply::decode(&room[..bytes]).unwrap() {
                Reply::Ack(ack) => accepted += usize::from(ack.promise == Promise::Accepted),
                Reply::Result { value, .. } => assert_eq!(value, b"value"),
                other => panic!("{other:?}"),
            }
        }
    }
    let allocations = ALLOCATOR.allocations() - before;
    println!("{allocations} allocations in {COUNTED} writes and reads, {accepted} accepted");
    assert!(accepted > COUNTED, "{accepted}");
    assert!(
        allocations * 100 < 2 * COUNTED as u64,
        "{allocations} allocations"
    );
}

/// Answers as a tier does in which every key has the value 7.
fn answer_one(tier: &UdpSocket, datagram: &[u8]) {
    let request = TieredDatagram::decode(datagram, None).unwrap();
    let head = request.head;
    let to = TierAddress::host(HostId(head.sender));
    let mut reply = head.reply(to, TieredStatus::Done);
    reply.version = Cas(1);
    let value: &[u8] = match head.opcode {
        TieredOpcode::Get | TieredOpcode::Change => b"7",
        _ => &[],
    };
    let reply = TieredDatagram {
        head: reply,
        key: request.key,
        value,
    };
    let mut out = [0; DATAGRAM_BYTES_MAX];
    let bytes = reply.encode(&mut out, None).unwrap();
    let client = SocketAddr::from(([127, 0, 0, 1], head.client_port));
    tier.send_to(&out[..bytes], client).unwrap();
}
