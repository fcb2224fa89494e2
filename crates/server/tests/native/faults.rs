//! Exactly once over a bad network: counters are counted exactly although requests and answers are
//! lost, doubled, delayed and reordered, and nothing that was acknowledged is lost when the server
//! is stopped.

use std::{
    collections::VecDeque,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use curtail_codec::native::Opcode;
use curtail_server::{Config, NativeMode, Server};
use curtail_testing::{Client as Memcached, native_address, native_config, start, together};
use curtail_workload::Random;

use crate::support::{Ask, Client, config_with, serve, socket_towards};

/// A network between one client and the server: an eighth is lost, an eighth doubled, and each
/// datagram takes up to 3 ms.
pub(crate) struct BadNetwork {
    pub(crate) address: SocketAddr,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl BadNetwork {
    pub(crate) fn new(server: SocketAddr, seed: u64) -> Self {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let far = socket_towards(server);
        far.connect(server).unwrap();
        for socket in [&near, &far] {
            socket.set_nonblocking(true).unwrap();
        }
        let address = near.local_addr().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        let thread = thread::spawn(move || carry(&near, &far, seed, &is_done));
        Self {
            address,
            done,
            thread: Some(thread),
        }
    }

    /// Ends it; how many datagrams it lost or doubled.
    fn end(mut self) -> u64 {
        self.done.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for BadNetwork {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn carry(near: &UdpSocket, far: &UdpSocket, seed: u64, is_done: &AtomicBool) -> u64 {
    let mut random = Random::new(seed);
    let mut client = None;
    let mut late: VecDeque<(Instant, bool, Vec<u8>)> = VecDeque::new();
    let mut buffer = [0; 2048];
    let mut disturbed = 0;
    while !is_done.load(Ordering::Relaxed) {
        let mut take = |bytes: &[u8], to_server: bool| {
            let copies = [0, 2, 1, 1, 1, 1, 1, 1][random.below(8) as usize];
            disturbed += u64::from(copies != 1);
            for _ in 0..copies {
                let due = Instant::now() + Duration::from_micros(random.below(3000));
                late.push_back((due, to_server, bytes.to_vec()));
            }
        };
        while let Ok((bytes, from)) = near.recv_from(&mut buffer) {
            client = Some(from);
            take(&buffer[..bytes], true);
        }
        while let Ok(bytes) = far.recv(&mut buffer) {
            take(&buffer[..bytes], false);
        }
        let now = Instant::now();
        late.retain(|(due, to_server, bytes)| {
            if *due > now {
                return true;
            }
            // What the kernel does not take is lost as well.
            let _ = match (to_server, client) {
                (true, _) => far.send(bytes),
                (false, Some(client)) => near.send_to(bytes, client),
                (false, None) => Ok(0),
            };
            false
        });
        thread::sleep(Duration::from_micros(100));
    }
    disturbed
}

/// Totals equal what was acknowledged (JB-T3), with each client behind a bad network.
#[test]
fn counters_are_exact_over_a_bad_network() {
    for mode in [NativeMode::IoAck, NativeMode::Raw] {
        let server = start(Config {
            workers: 2,
            ..config_with(mode, |native| {
                native.slots = Some(64);
                native.backlog_max = 8;
            })
        });
        count_over_bad_networks(&server);
    }
}

/// Counts exactly for three clients, each behind a bad network.
pub(crate) fn count_over_bad_networks(server: &Server) {
    let to = native_address(server);
    let mut memcached = Memcached::connect(server);
    for key in ["shared", "own0", "own1", "own2"] {
        assert_eq!(memcached.ask(format!("set {key} 0 0 1\r\n0\r\n")), "STORED");
    }
    let counts = together(3, |number| count_over_bad_network(to, number));
    let disturbed: u64 = counts.into_iter().sum();
    assert!(disturbed > 50, "the network was not bad: {disturbed}");
    let mut reader = Client::connect(server);
    assert_eq!(reader.get(b"shared").unwrap(), b"60");
    for own in ["own0", "own1", "own2"] {
        assert_eq!(memcached.get(own).unwrap(), "40");
    }
}

/// Counts 20 times in a shared key and 40 times in an own one; how many datagrams were disturbed.
fn count_over_bad_network(to: SocketAddr, number: usize) -> u64 {
    let network = BadNetwork::new(to, number as u64 + 1);
    let mut client = Client::connect_to(network.address);
    let own = format!("own{number}");
    for round in 0..60_u8 {
        let key = match round % 3 {
            0 => b"shared",
            _ => own.as_bytes(),
        };
        let count = Ask::new(Opcode::Increment, key).argument(1);
        let is_marked = round % 2 == 0;
        let ask = if is_marked { count.nilext() } else { count };
        let bytes = client.bytes(round % 5, ask);
        let answer = client.exchange(&bytes);
        match is_marked {
            true => drop(answer.accepted()),
            false => drop(answer.number()),
        }
    }
    network.end()
}

/// A planned stop under load saves every acknowledged write (JB-50), and at most those that were on
/// their way besides.
#[test]
fn a_planned_stop_loses_nothing() {
    for mode in [NativeMode::IoAck, NativeMode::Deferred] {
        let file = curtail_testing::temporary_path();
        let slow = Config {
            memory_file: Some(file.to_path_buf()),
            memory_bytes_max: 256 << 20,
            ..config_with(mode, |native| {
                native.service_ns = 300_000;
                native.slots = Some(1024);
                (native.backlog_max, native.read_wait_us) = (1000, 0);
            })
        };
        let (server, mut client) = serve(slow.clone());
        client.write(b"n", b"0");
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        let counting = thread::spawn(move || {
            let (mut sent, mut acknowledged) = (0_u64, 0_u64);
            client
                .socket
                .set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            while !is_done.load(Ordering::Relaxed) {
                for slot in 0..64 {
                    let count = Ask::new(Opcode::Increment, b"n").argument(1).nilext();
                    let bytes = client.bytes(slot, count);
                    // Nobody may be there any more.
                    sent += u64::from(client.socket.send_to(&bytes, client.to).is_ok());
                }
                while let Some(answer) = client.receive() {
                    acknowledged += u64::from(answer.nack().is_none());
                }
            }
            (sent, acknowledged)
        });
        thread::sleep(Duration::from_millis(100));
        server.stop().save().unwrap();
        done.store(true, Ordering::Relaxed);
        let (sent, acknowledged) = counting.join().unwrap();
        assert!(acknowledged > 20, "{acknowledged}");
        let next = start(Config {
            memory_file: Some(file.to_path_buf()),
            memory_bytes_max: 256 << 20,
            ..native_config(mode)
        });
        let mut memcached = Memcached::connect(&next);
        let found: u64 = memcached.get("n").unwrap().trim().parse().unwrap();
        assert!(
            (acknowledged..=sent).contains(&found),
            "{mode:?}: {acknowledged} acknowledged, {found} found, {sent} sent"
        );
    }
}
