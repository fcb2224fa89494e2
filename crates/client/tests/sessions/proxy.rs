//! A UDP proxy that loses, duplicates, delays, reorders and damages datagrams, by a seed.
//!
//! ```text
//!   client --- UDP ---> proxy --- UDP, one socket a client ---> server
//!          --- TCP ---> proxy --- TCP, cut now and then ------> server
//! ```
//!
//! Datagrams are delayed each for itself, which is what reorders them.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use curtail_codec::native::Reply;
use curtail_workload::Random;

/// What happens to datagrams, each way, in thousandths; and for how long they are delayed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub drop: u64,
    pub repeat: u64,
    pub delay: u64,
    pub damage: u64,
    pub delay_max: Duration,
    /// Connections are cut after so many bytes; 0 leaves them alone.
    pub cut_bytes: u64,
    /// Every position in a reply is said to be durable.
    pub durable: bool,
}

/// A running proxy; stops when it is dropped.
pub(crate) struct Proxy {
    pub address: SocketAddr,
    pub faults: Arc<Mutex<Faults>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

struct Relay {
    socket: UdpSocket,
    server: SocketAddr,
    faults: Arc<Mutex<Faults>>,
    clients: HashMap<SocketAddr, UdpSocket>,
    held: BinaryHeap<Reverse<(Instant, u64, Datagram)>>,
    count: u64,
    random: Random,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Datagram {
    client: SocketAddr,
    to_server: bool,
    bytes: Vec<u8>,
}

impl Proxy {
    pub(crate) fn start(server: SocketAddr, faults: Faults, seed: u64) -> Self {
        let (socket, listener) = sockets();
        let address = socket.local_addr().unwrap();
        let faults = Arc::new(Mutex::new(faults));
        let stop = Arc::new(AtomicBool::new(false));
        let mut relay = Relay {
            socket,
            server,
            faults: Arc::clone(&faults),
            clients: HashMap::new(),
            held: BinaryHeap::new(),
            count: 0,
            random: Random::new(seed),
        };
        let datagrams = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    relay.turn();
                }
            })
        };
        let streams = {
            let (stop, faults) = (Arc::clone(&stop), Arc::clone(&faults));
            thread::spawn(move || relay_streams(&listener, server, &faults, &stop))
        };
        Self {
            address,
            faults,
            stop,
            threads: vec![datagrams, streams],
        }
    }

    pub(crate) fn heal(&self) {
        *self.faults.lock().unwrap() = Faults::default();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads
            .drain(..)
            .for_each(|thread| thread.join().unwrap());
    }
}

impl Relay {
    fn turn(&mut self) {
        let mut buffer = [0; 4096];
        let mut idle = true;
        while let Ok((bytes, client)) = self.socket.recv_from(&mut buffer) {
            idle = false;
            self.meet(client, true, &buffer[..bytes]);
        }
        let clients: Vec<SocketAddr> = self.clients.keys().copied().collect();
        for client in clients {
            while let Ok(bytes) = self.clients[&client].recv(&mut buffer) {
                idle = false;
                self.meet(client, false, &buffer[..bytes]);
            }
        }
        let now = Instant::now();
        while self.held.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            idle = false;
            let Some(Reverse((_, _, datagram))) = self.held.pop() else {
                break;
            };
            self.pass(&datagram);
        }
        if idle {
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Decides about one datagram.
    fn meet(&mut self, client: SocketAddr, to_server: bool, bytes: &[u8]) {
        let faults = *self.faults.lock().unwrap();
        if self.happens(faults.drop) {
            return;
        }
        let mut datagram = Datagram {
            client,
            to_server,
            bytes: bytes.to_vec(),
        };
        if faults.durable && !to_server {
            say_durable(&mut datagram.bytes);
        }
        if self.happens(faults.damage) {
            let bit = self.random.below(bytes.len() as u64 * 8) as usize;
            datagram.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let copies = 1 + u64::from(self.happens(faults.repeat)) * (1 + self.random.below(3));
        for _ in 0..copies {
            if self.happens(faults.delay) {
                let us = self
                    .random
                    .below(faults.delay_max.as_micros().max(1) as u64);
                let at = Instant::now() + Duration::from_micros(us);
                self.count += 1;
                self.held.push(Reverse((at, self.count, datagram.clone())));
            } else {
                self.pass(&datagram);
            }
        }
    }

    fn pass(&mut self, datagram: &Datagram) {
        // A full socket buffer drops, as a network does.
        if !datagram.to_server {
            let _ = self.socket.send_to(&datagram.bytes, datagram.client);
            return;
        }
        let server = self.server;
        let upstream = self.clients.entry(datagram.client).or_insert_with(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(server).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        let _ = upstream.send(&datagram.bytes);
    }

    fn happens(&mut self, thousandths: u64) -> bool {
        self.random.below(1000) < thousandths
    }
}

/// Raises the durable position of a reply that has one above its own.
fn say_durable(bytes: &mut [u8]) {
    let received = bytes.to_vec();
    let mut reply = Reply::decode(&received).unwrap();
    match &mut reply {
        Reply::Ack(ack) => ack.place.durable_pos = ack.place.pos + 1,
        Reply::Pong { place, .. } | Reply::Result { place, .. } => {
            place.durable_pos = place.pos + 1;
        }
        _ => return,
    }
    reply.encode(bytes).unwrap();
}

/// UDP and TCP on the same number.
pub(crate) fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
            udp.set_nonblocking(true).unwrap();
            tcp.set_nonblocking(true).unwrap();
            return (udp, tcp);
        }
    }
    panic!("no port that is free for both");
}

fn relay_streams(
    listener: &TcpListener,
    server: SocketAddr,
    faults: &Arc<Mutex<Faults>>,
    stop: &Arc<AtomicBool>,
) {
    let mut running = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let Ok((client, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Ok(upstream) = TcpStream::connect(server) else {
            continue;
        };
        let passed = Arc::new(AtomicU64::new(0));
        let ways = [
            (client.try_clone().unwrap(), upstream.try_clone().unwrap()),
            (upstream, client),
        ];
        for (from, to) in ways {
            let (faults, stop, passed) =
                (Arc::clone(faults), Arc::clone(stop), Arc::clone(&passed));
            running.push(thread::spawn(move || {
                copy(from, to, &faults, &passed, &stop)
            }));
        }
    }
    running
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    faults: &Mutex<Faults>,
    passed: &AtomicU64,
    stop: &AtomicBool,
) {
    from.set_nonblocking(false).unwrap();
    from.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let mut buffer = vec![0; 32 << 10];
    while !stop.load(Ordering::SeqCst) {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                let cut_bytes = faults.lock().unwrap().cut_bytes;
                let before = passed.fetch_add(bytes as u64, Ordering::Relaxed);
                let is_cut = cut_bytes > 0 && before + bytes as u64 > cut_bytes;
                if is_cut || to.write_all(&buffer[..bytes]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
