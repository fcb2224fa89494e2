//! Goal: once a server has served some requests, further ones of the same kinds allocate nothing.
//! Method: the allocator of this program counts; the client and the cache tier of a gateway are one
//! thread that has its buffers from the start, so what is counted is the server's.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failure here is a test's failure")]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    sync::Mutex,
    time::Duration,
};

use curtail_codec::tiered::{
    DATAGRAM_BYTES_MAX, HostId, TierAddress, TieredDatagram, TieredOpcode, TieredStatus,
};
use curtail_runtime::CountingAllocator;
use curtail_server::Server;
use curtail_testing::{config, gateway_config, start};
use curtail_types::Cas;

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
