//! The client: a thread in a network namespace of its own, which never sleeps while it measures.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use curtail_codec::native::{Flags, Head, Opcode, Reply, Request, Session};
use curtail_runtime::{monotonic_ns, pin_current_thread};
use curtail_types::Key;
use curtail_workload::Random;

use super::namespace::run;

/// Latencies in nanoseconds, in order.
pub(crate) struct Samples {
    ns: Vec<u64>,
    pub(crate) refused: u64,
}

/// What to send.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    requests: usize,
    /// Requests a second; 0: one after another.
    rate: u64,
    seed: u64,
}

/// A thread of the other namespace, and the way to ask something of it.
pub(crate) struct Client {
    thread_id: u64,
    asks: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

pub(crate) const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), 11311);
pub(crate) const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), 4000);
const SLOTS: usize = 64;

impl Samples {
    pub(crate) fn new(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        Self { ns, refused: 0 }
    }

    pub(crate) fn at(&self, percent: f64) -> u64 {
        let last = self.ns.len().saturating_sub(1) as f64;
        self.ns
            .get((last * percent / 100.0) as usize)
            .copied()
            .unwrap_or(0)
    }

    pub(crate) fn count(&self) -> usize {
        self.ns.len()
    }
}

impl Load {
    pub(crate) const fn closed(requests: usize) -> Self {
        Self {
            requests,
            rate: 0,
            seed: 0,
        }
    }

    pub(crate) const fn open(requests: usize, rate: u64, seed: u64) -> Self {
        Self {
            requests,
            rate,
            seed,
        }
    }
}

impl Client {
    pub(crate) fn start() -> Self {
        let (asks, asked) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (tells, told) = mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: a flag and no memory; only this thread changes its namespace.
            let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(answer, 0, "a network namespace");
            // SAFETY: it takes nothing and cannot fail.
            let id = unsafe { libc::gettid() };
            tells.send(id as u64).unwrap();
            let _ = pin_current_thread(1);
            asked.iter().for_each(|ask| ask());
        });
        Self {
            thread_id: told.recv().unwrap(),
            asks,
        }
    }

    pub(crate) const fn thread_id(&self) -> u64 {
        self.thread_id
    }

    /// Does something in the client's namespace, and waits for it.
    pub(crate) fn ask<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        let (tells, told) = mpsc::channel();
        let ask = move || tells.send(what()).unwrap();
        self.asks.send(Box::new(ask)).unwrap();
        told.recv().unwrap()
    }

    pub(crate) fn set_up(&self) {
        self.ask(|| {
            run("ip", &["addr", "add", "10.77.0.2/24", "dev", "two"]);
            run("ip", &["link", "set", "two", "up"]);
        });
    }

    pub(crate) fn drive(&self, load: Load) -> Samples {
        self.ask(move || drive(load))
    }
}

/// A write of a number, 140 bytes with a key of 24.
pub(crate) fn request(number: u64, value_bytes: usize) -> Vec<u8> {
    let session = Session {
        index: 0,
        generation: 1,
        token: 7,
    };
    let head = Head {
        slot: (number % SLOTS as u64) as u8,
        sequence: number,
        stamp: number as u32,
        ..Head::new(Opcode::Set, Flags::NILEXT, session)
    };
    let key = format!("key-{:020}", number % 1000);
    let request = Request {
        head,
        key: Key::new(key.as_bytes()).ok(),
        value: &vec![b'v'; value_bytes],
    };
    let mut room = vec![0; 2048];
    let bytes = request.encode(&mut room).unwrap();
    room.truncate(bytes);
    room
}

fn drive(load: Load) -> Samples {
    let socket = UdpSocket::bind(CLIENT).unwrap();
    socket.connect(SERVER).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut driver = Driver {
        socket,
        due: [None; SLOTS],
        ns: Vec::with_capacity(load.requests),
        refused: 0,
    };
    let mut random = Random::new(load.seed);
    // What was there before has greater numbers than what was there before that.
    let first = monotonic_ns() / 1000;
    let mut due_ns = monotonic_ns();
    for number in 0..load.requests as u64 {
        let bytes = request(first + number, 52);
        let slot = ((first + number) % SLOTS as u64) as usize;
        driver.wait(|driver| driver.due[slot].is_none());
        if load.rate > 0 {
            due_ns += random.exponential(1e9 / load.rate as f64) as u64;
            driver.wait(|_| monotonic_ns() >= due_ns);
        } else {
            due_ns = monotonic_ns();
        }
        driver.due[slot] = Some((due_ns, first + number));
        let _ = driver.socket.send(&bytes);
        if load.rate == 0 {
            driver.wait(|driver| driver.due[slot].is_none());
        }
    }
    driver.wait(|driver| driver.due.iter().all(Option::is_none));
    let warm = driver.ns.len() / 20;
    Samples {
        refused: driver.refused,
        ..Samples::new(driver.ns.split_off(warm))
    }
}

struct Driver {
    socket: UdpSocket,
    /// Of each slot: when its request was due, and its number.
    due: [Option<(u64, u64)>; SLOTS],
    ns: Vec<u64>,
    refused: u64,
}

impl Driver {
    /// Receives until something is so, but not for ever: an answer that is lost is given up.
    fn wait(&mut self, is_so: impl Fn(&Self) -> bool) {
        let mut room = [0; 2048];
        let start = Instant::now();
        while !is_so(self) {
            let Ok(bytes) = self.socket.recv(&mut room) else {
                if start.elapsed() > Duration::from_millis(200) {
                    self.due = [None; SLOTS];
                    self.refused += 1;
                }
                continue;
            };
            let now_ns = monotonic_ns();
            let (kind, slot) = (room[3], usize::from(room[5]) % SLOTS);
            let number = u64::from_le_bytes(room[32..40].try_into().unwrap());
            if let Some((due_ns, asked)) = self.due[slot]
                && asked == number
            {
                self.due[slot] = None;
                match kind {
                    131 => self.ns.push(now_ns.saturating_sub(due_ns)),
                    _ => self.refused += 1,
                }
            }
            debug_assert!(Reply::decode(&room[..bytes]).is_ok() || kind == 131);
        }
    }
}
