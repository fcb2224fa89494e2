//! The cost of sharing one session between threads, and what a batch saves: `cargo bench -p
//! curtail-client`.
//!
//! A server thread acknowledges every write at once, so that only the client and the kernel's
//! sockets are measured. Each thread has one write under way, as in the paper's figure (Juneberry,
//! NSDI 2025, section 4; JB-15), or one thread has many.
//!
//! ```text
//!   links      a session for each thread, driven by it      sockets: threads
//!   session    one session, delegated to its thread         sockets: 1
//!   batch      one link with many writes under way          system calls: shared
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench that cannot be set up has nothing to say"
)]

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use curtail_client::{Command, Config, Link, Session};
use curtail_codec::native::{
    Ack, Grant, Opcode, Place, Promise, Reply, Request, SLOTS, Session as Name,
};

const SECONDS: Duration = Duration::from_millis(1000);
const VALUE: [u8; 64] = [b'v'; 64];

fn main() {
    if std::env::args().any(|argument| argument == "--test") {
        return; // `cargo test --benches` only sees that it compiles
    }
    let server = Server::start();
    println!(
        "{:<28}{:>9}{:>12}{:>10}{:>10}",
        "", "sockets", "writes/s", "p50 us", "p99 us"
    );
    for threads in [1, 2, 4, 8] {
        report(
            &format!("links, {threads} threads"),
            threads,
            links(server.address, threads),
        );
        report(
            &format!("session, {threads} threads"),
            1,
            session(server.address, threads),
        );
    }
    for depth in [1, 8, 32, 64] {
        report(
            &format!("batch, {depth} under way"),
            1,
            batch(server.address, depth),
        );
    }
}

fn report(name: &str, sockets: usize, mut latencies: Vec<u64>) {
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    let rate = latencies.len() as f64 / SECONDS.as_secs_f64();
    println!(
        "{name:<28}{sockets:>9}{rate:>12.0}{:>10.1}{:>10.1}",
        at(0.5),
        at(0.99)
    );
}

fn links(server: SocketAddr, threads: usize) -> Vec<u64> {
    together(threads, |thread| {
        let mut link = Link::open(server, Config::default()).unwrap();
        let key = format!("key {thread}");
        move || {
            let write = Command::set(key.as_bytes(), &VALUE).marked();
            link.submit(&write, 0).unwrap();
            let mut done = false;
            while !done {
                link.turn(Duration::from_secs(1), &mut |_| done = true)
                    .unwrap();
            }
        }
    })
}

fn session(server: SocketAddr, threads: usize) -> Vec<u64> {
    let session = Session::connect(server).unwrap();
    together(threads, |thread| {
        let session = session.clone();
        let key = format!("key {thread}");
        move || {
            session
                .set(key.as_bytes(), &VALUE)
                .unwrap()
                .accepted()
                .unwrap();
        }
    })
}

fn batch(server: SocketAddr, depth: usize) -> Vec<u64> {
    let mut link = Link::open(server, Config::default()).unwrap();
    let keys: Vec<String> = (0..depth).map(|i| format!("key {i}")).collect();
    let mut latencies = Vec::with_capacity(1 << 20);
    let mut begun = vec![Instant::now(); depth];
    let mut free: Vec<usize> = (0..depth).collect();
    let start = Instant::now();
    while start.elapsed() < SECONDS {
        let now = Instant::now();
        while let Some(index) = free.pop() {
            begun[index] = now;
            let write = Command::set(keys[index].as_bytes(), &VALUE).marked();
            if link.submit(&write, index as u64).is_err() {
                free.push(index);
                break;
            }
        }
        link.turn(Duration::from_millis(10), &mut |event| {
            if let Some(index) = event.ticket().map(|ticket| ticket as usize) {
                latencies.push(begun[index].elapsed().as_nanos() as u64);
                free.push(index);
            }
        })
        .unwrap();
    }
    latencies
}

/// Runs what `make` makes in so many threads for a while; every call's latency.
fn together<F: FnMut() + Send>(threads: usize, make: impl Fn(usize) -> F) -> Vec<u64> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (mut run, stop) = (make(thread), &stop);
                scope.spawn(move || {
                    let mut latencies = Vec::with_capacity(1 << 18);
                    while !stop.load(Ordering::Relaxed) {
                        let start = Instant::now();
                        run();
                        latencies.push(start.elapsed().as_nanos() as u64);
                    }
                    latencies
                })
            })
            .collect();
        thread::sleep(SECONDS);
        stop.store(true, Ordering::Relaxed);
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// Grants every session and acknowledges every write.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || serve(&socket, &stops)));
        Self {
            address,
            stop,
            thread,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map(thread::JoinHandle::join);
    }
}

fn serve(socket: &UdpSocket, stop: &AtomicBool) {
    let (mut input, mut output) = ([0; 2048], [0; 64]);
    let mut pos = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok((bytes, peer)) = socket.recv_from(&mut input) else {
            continue;
        };
        let Ok(request) = Request::decode(&input[..bytes]) else {
            continue;
        };
        let head = &request.head;
        let (nonce, stamp) = (head.argument, head.stamp);
        let reply = match head.opcode {
            Opcode::Hello => Reply::Cookie {
                nonce,
                cookie: 1,
                stamp,
            },
            Opcode::Confirm => Reply::Grant(Grant {
                session: Name {
                    index: 1,
                    generation: 1,
                    token: 1,
                },
                nonce,
                stamp,
                incarnation: 1,
                slots: SLOTS,
                queues: 16,
                credits: 64,
                lease_ms: 60_000,
                datagram_bytes_max: 1400,
            }),
            _ => {
                pos += 1;
                Reply::Ack(Ack {
                    echo: head.echo(),
                    place: Place {
                        queue: 0,
                        credits: 4096,
                        incarnation: 1,
                        pos,
                        durable_pos: 0,
                    },
                    promise: Promise::Accepted,
                })
            }
        };
        let bytes = reply.encode(&mut output).unwrap();
        let _ = socket.send_to(&output[..bytes], peer);
    }
}
