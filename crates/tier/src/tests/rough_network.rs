//! A link that loses, doubles and delays datagrams.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use curtail_workload::Random;

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
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RoughLink {
    pub(crate) fn start(to: SocketAddr, roughness: Roughness, seed: u64) -> Self {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let stops = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stops);
        let thread = Some(thread::spawn(move || {
            forward(&socket, to, roughness, seed, &its);
        }));
        Self {
            address,
            stops,
            thread,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for RoughLink {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn forward(socket: &UdpSocket, to: SocketAddr, how: Roughness, seed: u64, stops: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut late: BTreeMap<(Instant, u64), Vec<u8>> = BTreeMap::new();
    let (mut room, mut number) = ([0; 2048], 0);
    while !stops.load(Relaxed) {
        let now = Instant::now();
        while let Some(first) = late.first_entry()
            && first.key().0 <= now
        {
            let _ = socket.send_to(&first.remove(), to);
        }
        let wait = late
            .first_key_value()
            .map(|((at, _), _)| at.duration_since(now));
        let wait = wait
            .unwrap_or(Duration::from_millis(50))
            .max(Duration::from_micros(100));
        socket.set_read_timeout(Some(wait)).unwrap();
        let Ok(bytes) = socket.recv(&mut room) else {
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
                late.insert((Instant::now() + delay, number), room[..bytes].to_vec());
            } else {
                let _ = socket.send_to(&room[..bytes], to);
            }
        }
    }
}
