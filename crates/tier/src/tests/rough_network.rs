//! A network that loses, doubles and delays: links between sockets, and wires of frames between a
//! node's interface and the switch.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use curtail_runtime::FrameSocket;
use curtail_types::SpreadSlots;
use curtail_workload::Random;

use super::test_tier::free_ports;
use crate::{TrialEncoding, TrialNamespaces};

/// Ports by which a link sends on: as many slots of senders, so that each of a few cache nodes is
/// read.
const PORTS: u16 = 8;

/// How rough it is, each of 1000 datagrams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roughness {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delayed: u64,
    pub(crate) delay_ms_max: u64,
}

/// Receives at an address of its own, and sends on.
pub(crate) struct RoughLink {
    address: SocketAddr,
    _thread: Forwarding,
}

/// Both directions between a node's interface and the switch's, in the node's namespace:
///
/// ```text
///   node's sockets -- eth0 = wire1 -- threads -- wire0 = port of the switch
/// ```
pub(crate) struct RoughWire {
    _threads: [Forwarding; 2],
}

/// A thread that forwards until this ends.
struct Forwarding {
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RoughLink {
    pub(crate) fn start(to: SocketAddr, roughness: Roughness, seed: u64) -> Self {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        // What comes from several ports leaves by several, in the order in which they are heard.
        let mut senders: Vec<u16> = Vec::new();
        let out: Vec<UdpSocket> = (0..PORTS).map(socket_of_slot).collect();
        let receive = move |room: &mut [u8], wait| {
            socket.set_read_timeout(Some(wait)).unwrap();
            let (bytes, from) = socket.recv_from(room).ok()?;
            let known = senders.iter().position(|port| *port == from.port());
            let at = known.unwrap_or_else(|| {
                senders.push(from.port());
                senders.len() - 1
            });
            Some((bytes, at % usize::from(PORTS)))
        };
        let send = move |datagram: &[u8], at: usize| _ = out[at].send_to(datagram, to);
        Self {
            address,
            _thread: Forwarding::start(roughness, seed, receive, send),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A socket at a free port whose datagrams have this slot.
fn socket_of_slot(slot: u16) -> UdpSocket {
    let is_right = |at: &SocketAddr| SpreadSlots::of(at.port()) == slot;
    let mut sockets = free_ports()
        .filter(is_right)
        .filter_map(|at| UdpSocket::bind(at).ok());
    sockets.next().expect("a free port")
}

impl RoughWire {
    /// Puts the wire's ends between a node's interface and the switch; nothing passes yet.
    pub(crate) fn lay(all: &TrialNamespaces, node: &str) -> io::Result<()> {
        all.inside(node, &["ip", "link", "set", "eth0", "name", "wire0"])?;
        let pair = [
            "ip", "link", "add", "wire1", "type", "veth", "peer", "name", "eth0",
        ];
        all.inside(node, &pair)?;
        for wire in ["wire0", "wire1"] {
            all.without_ipv6(node, wire)?;
            all.bring_up(node, wire)?;
        }
        Ok(())
    }

    /// Forwards from now on; in the node's namespace.
    pub(crate) fn start(encoding: TrialEncoding, roughness: Roughness, seed: u64) -> Self {
        let ethertype = match encoding {
            TrialEncoding::Ipv6 => 0x86dd,
            TrialEncoding::Mac => 0x0800,
        };
        let open = |name| Arc::new(FrameSocket::bind(name, ethertype).unwrap());
        let (one, other) = (open("wire0"), open("wire1"));
        let forward = |from: &Arc<FrameSocket>, to: &Arc<FrameSocket>, seed| {
            let (from, to) = (Arc::clone(from), Arc::clone(to));
            let receive = move |room: &mut [u8], wait| {
                from.set_wait(Some(wait)).unwrap();
                Some((from.receive(room).ok()?, 0))
            };
            let send = move |frame: &[u8], _| _ = to.send(frame);
            Forwarding::start(roughness, seed, receive, send)
        };
        let threads = [
            forward(&one, &other, 2 * seed),
            forward(&other, &one, 2 * seed + 1),
        ];
        Self { _threads: threads }
    }
}

impl Forwarding {
    fn start(
        how: Roughness,
        seed: u64,
        receive: impl FnMut(&mut [u8], Duration) -> Option<(usize, usize)> + Send + 'static,
        send: impl FnMut(&[u8], usize) + Send + 'static,
    ) -> Self {
        let stops = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stops);
        let thread = thread::spawn(move || forward(receive, send, (how, seed), &its));
        Self {
            stops,
            thread: Some(thread),
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn forward(
    mut receive: impl FnMut(&mut [u8], Duration) -> Option<(usize, usize)>,
    mut send: impl FnMut(&[u8], usize),
    (how, seed): (Roughness, u64),
    stops: &AtomicBool,
) {
    let mut random = Random::new(seed);
    let mut late: BTreeMap<(Instant, u64), (Vec<u8>, usize)> = BTreeMap::new();
    let (mut room, mut number) = ([0; 2048], 0);
    while !stops.load(Relaxed) {
        let now = Instant::now();
        while let Some(first) = late.first_entry()
            && first.key().0 <= now
        {
            let (datagram, at) = first.remove();
            send(&datagram, at);
        }
        let wait = late
            .first_key_value()
            .map(|((at, _), _)| at.duration_since(now));
        let wait = wait
            .unwrap_or(Duration::from_millis(50))
            .max(Duration::from_micros(100));
        let Some((bytes, at)) = receive(&mut room, wait) else {
            continue;
        };
        if random.below(1000) < how.lost {
            continue;
        }
        let copies = 1 + u64::from(random.below(1000) < how.doubled);
        for _ in 0..copies {
            if random.below(1000) < how.delayed {
                number += 1;
                let delay = Duration::from_micros(random.below(how.delay_ms_max * 1000));
                let datagram = (room[..bytes].to_vec(), at);
                late.insert((Instant::now() + delay, number), datagram);
            } else {
                send(&room[..bytes], at);
            }
        }
    }
}
