//! A server that is killed with a backlog: the program goes on acknowledging, and the next process
//! executes every acknowledged write exactly once and in order.
//!
//! ```text
//!   client --UDP over lo--> program --> queues (pinned) --> server process --> store (a file)
//!     ^                        |                               killed again and again
//!     +--------- ACK ----------+
//! ```
//!
//! The store is what JB-48 d asks for: it survives, and keeps with each item the position of the
//! last write, in one word, so that a write that was executed and whose head was not moved is not
//! executed again. Writes are increments that do not commute, so that one too many, one too few or
//! two in the wrong order give another value.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use curtail_codec::native::{Ack, Flags, Head, Opcode, Reply, Request, Session};
use curtail_dispatch::Worker;
use curtail_ordered_queue::{
    OrderedQueue, QueueEntry, QueueState, Sessions, Stamps, Turn, TurnStep, layout, recover,
};
use curtail_runtime::{
    Attach, MapsOrigin, Nic, NicOptions, SharedWords, Xdp, XdpError, XdpOptions, monotonic_ns,
};
use curtail_types::Key;

use super::frames::Address;
use super::namespace::{Namespace, run};
use super::twin::peer;
use super::twin_memory::{self, grant};

const QUEUES: u32 = 4;
const SLOTS: u32 = 256;
const KEYS: usize = 8;
/// Requests that the client has outstanding.
const WINDOW: usize = 8;

fn xdp_options(pins: &Path, interface: &str, heartbeat_ns_max: u64) -> XdpOptions {
    XdpOptions {
        interface: interface.to_string(),
        pin_directory: pins.join("curtail"),
        attach: Attach::Any,
        nic: NicOptions {
            queues: QUEUES,
            slots: SLOTS,
            queue_words: layout::queue_words(u64::from(SLOTS)),
            heartbeat_ns_max,
            ..twin_memory::options()
        },
    }
}

/// What the server process is told, in its environment.
#[derive(Clone)]
struct ServerSettings {
    pins: PathBuf,
    store: PathBuf,
    client_port: u16,
    heartbeat_ns_max: u64,
    /// Executes whatever it finds, as a store without positions would.
    forgets_positions: bool,
}

impl ServerSettings {
    fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("NIC_PINS", self.pins.display().to_string()),
            ("NIC_STORE", self.store.display().to_string()),
            ("NIC_CLIENT_PORT", self.client_port.to_string()),
            ("NIC_HEARTBEAT_NS", self.heartbeat_ns_max.to_string()),
            ("NIC_FORGETS", self.forgets_positions.to_string()),
        ]
    }

    fn from_environment() -> Option<Self> {
        let text = |name| std::env::var(name).ok();
        Some(Self {
            pins: text("NIC_PINS")?.into(),
            store: text("NIC_STORE")?.into(),
            client_port: text("NIC_CLIENT_PORT")?.parse().ok()?,
            heartbeat_ns_max: text("NIC_HEARTBEAT_NS")?.parse().ok()?,
            forgets_positions: text("NIC_FORGETS")? == "true",
        })
    }

    /// Starts a server process and waits until it takes writes.
    fn start(&self) -> Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "survival::server_process", "--ignored"])
            .args(["--nocapture", "--test-threads=1"])
            .envs(self.environment())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let mut lines = BufReader::new(output).lines();
        let is_ready = lines.any(|line| line.unwrap().contains("takes writes"));
        assert!(is_ready, "the server process did not start");
        child
    }
}

/// Not a test: the server that the tests start and kill.
#[test]
#[ignore = "the server process of the other tests"]
fn server_process() {
    let Some(settings) = ServerSettings::from_environment() else {
        return;
    };
    let file = File::options()
        .read(true)
        .write(true)
        .open(&settings.store)
        .unwrap();
    let store = SharedWords::map(file.as_fd(), KEYS).unwrap();
    let options = xdp_options(&settings.pins, "lo", settings.heartbeat_ns_max);
    let xdp = Xdp::start(&options).unwrap();
    let nic = xdp.nic();
    let queues = open_queues(nic, settings.client_port);
    beat(nic, &queues);
    for queue in &queues {
        queue.set_state(QueueState::Open);
    }
    println!("takes writes");
    std::io::stdout().flush().unwrap();
    let mut turn = Turn::new();
    loop {
        beat(nic, &queues);
        for queue in &queues {
            let mut lease = queue.take_lease(Worker(0)).unwrap();
            turn.run(&mut lease, 32, None, |step| {
                if let TurnStep::Apply(entry) = step {
                    execute(store.words(), entry, settings.forgets_positions);
                }
            });
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// Formats fresh queues, or makes found ones whole; closed either way.
fn open_queues(nic: &Nic, client_port: u16) -> Vec<OrderedQueue<'_>> {
    let words = layout::queue_words(u64::from(SLOTS));
    let parts = nic.queues().chunks(words);
    let sessions = Sessions::new(nic.sessions());
    if nic.origin() == MapsOrigin::Fresh {
        let client = peer(loopback(client_port));
        let queues: Vec<_> = parts
            .map(|words| OrderedQueue::format(words, u64::from(SLOTS), 1))
            .collect();
        for queue in &queues {
            queue.set_backlog_max(u64::from(SLOTS));
            queue.grant_bytes(1 << 40);
        }
        grant(sessions, client, 0, monotonic_ns());
        return queues;
    }
    let queues: Vec<_> = parts
        .map(|words| OrderedQueue::open(words).unwrap())
        .collect();
    for queue in &queues {
        queue.set_state(QueueState::Closed);
    }
    Nic::quiesce().unwrap();
    recover(&queues, Stamps::new(nic.stamps()), sessions, Worker(1));
    queues
}

fn beat(nic: &Nic, queues: &[OrderedQueue<'_>]) {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    nic.set_clock(unix.as_nanos() as u64);
    let now_ns = monotonic_ns();
    queues.iter().for_each(|queue| queue.beat(now_ns));
}

/// An item is one word: the position of its last write + 1, and its value.
fn execute(store: &[AtomicU64], entry: QueueEntry<'_>, forgets_positions: bool) {
    let mut payload = [0; layout::PAYLOAD_BYTES_MAX];
    let bytes = entry.copy_payload(&mut payload).unwrap();
    let request = Request::decode(&payload[..bytes]).unwrap();
    let key = request.key.unwrap().bytes()[0];
    let item = &store[usize::from(key - b'a')];
    let before = item.load(Ordering::Relaxed);
    if entry.pos() < before >> 32 && !forgets_positions {
        return;
    }
    let value = chained(before as u32, request.head.argument as u32);
    // Some executions take long enough to be killed in.
    if request.head.argument.is_multiple_of(7) {
        std::thread::sleep(Duration::from_micros(50));
    }
    item.store(
        (entry.pos() + 1) << 32 | u64::from(value),
        Ordering::Relaxed,
    );
}

/// What an increment leaves here: neither twice, nor not at all, nor in another order the same.
fn chained(value: u32, argument: u32) -> u32 {
    (value ^ argument).wrapping_mul(0x9e37_79b1).rotate_left(13)
}

fn loopback(port: u16) -> Address {
    let mut ip = [0; 16];
    ip[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    Address {
        mac: [0; 6],
        ip,
        port,
    }
}

/// A client that keeps a window of increments outstanding, and sends each until it is acknowledged.
struct Client {
    socket: UdpSocket,
    sent: Vec<Option<Vec<u8>>>,
    /// Of each slot: the key and argument of its request.
    asked: Vec<(u8, u32)>,
    next: u32,
    /// What was acknowledged: by queue and position.
    acknowledged: BTreeMap<(u16, u64), (u8, u32)>,
}

impl Client {
    fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let timeout = Some(Duration::from_millis(10));
        socket.set_read_timeout(timeout).unwrap();
        Self {
            socket,
            sent: vec![None; WINDOW],
            asked: vec![(0, 0); WINDOW],
            next: 0,
            acknowledged: BTreeMap::new(),
        }
    }

    fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    /// Sends what is outstanding again, and new requests while `is_open`; true if nothing is left.
    fn send(&mut self, is_open: bool) -> bool {
        for slot in 0..WINDOW {
            if self.sent[slot].is_none() && is_open {
                self.next += 1;
                self.sent[slot] = Some(self.request(slot));
            }
            if let Some(datagram) = &self.sent[slot] {
                let server = SocketAddr::from((Ipv4Addr::LOCALHOST, twin_memory::PORT));
                self.socket.send_to(datagram, server).unwrap();
            }
        }
        self.sent.iter().all(Option::is_none)
    }

    fn request(&mut self, slot: usize) -> Vec<u8> {
        let key = b'a' + (self.next as usize % KEYS) as u8;
        self.asked[slot] = (key, self.next);
        let key = [key];
        let session = Session {
            index: 0,
            generation: 1,
            token: 0x1122_3344_5566_7788 ^ 1,
        };
        let flags = Flags::NILEXT.with(Flags::WAIVE_RESULT);
        let head = Head {
            slot: slot as u8,
            sequence: u64::from(self.next),
            argument: u64::from(self.next),
            ..Head::new(Opcode::Increment, flags, session)
        };
        let request = Request {
            head,
            key: Key::new(&key).ok(),
            value: &[],
        };
        let mut room = [0; 128];
        let bytes = request.encode(&mut room).unwrap();
        room[..bytes].to_vec()
    }

    /// Takes answers until none comes for a moment; how many were acknowledged.
    fn receive(&mut self) -> usize {
        let mut count = 0;
        let mut room = [0; 2048];
        while let Ok((bytes, _)) = self.socket.recv_from(&mut room) {
            let Ok(Reply::Ack(Ack { echo, place, .. })) = Reply::decode(&room[..bytes]) else {
                continue; // refused: it is sent again
            };
            let slot = usize::from(echo.slot);
            let asked = self.asked[slot];
            if echo.sequence != u64::from(asked.1) || self.sent[slot].is_none() {
                continue; // an old one, again
            }
            let before = self.acknowledged.insert((place.queue, place.pos), asked);
            assert_eq!(before, None, "two requests have one position");
            self.sent[slot] = None;
            count += 1;
            if self.sent.iter().all(Option::is_none) {
                break;
            }
        }
        count
    }

    /// What the store has to hold.
    fn expected(&self) -> Vec<u32> {
        let mut values = vec![0; KEYS];
        for (key, argument) in self.acknowledged.values() {
            let value = &mut values[usize::from(key - b'a')];
            *value = chained(*value, *argument);
        }
        values
    }
}

/// The file of a store without items.
fn store() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(8 * KEYS as u64).unwrap();
    file
}

/// Kills a server `rounds` times; what the store holds in the end and what it should.
fn killed(rounds: usize, forgets_positions: bool) -> Option<(Vec<u32>, Vec<u32>)> {
    let namespace = Namespace::enter()?;
    let mut client = Client::new();
    let store = store();
    let settings = ServerSettings {
        pins: namespace.pins.clone(),
        store: store.path().to_owned(),
        client_port: client.port(),
        heartbeat_ns_max: 30_000_000_000,
        forgets_positions,
    };
    let mut alone = 0;
    for round in 0..rounds {
        let mut server = settings.start();
        for _ in 0..10 + round % 17 {
            client.send(true);
            client.receive();
        }
        server.kill().unwrap();
        server.wait().unwrap();
        // Nobody is there, and writes are accepted all the same.
        for _ in 0..8 {
            client.send(true);
            alone += client.receive();
        }
    }
    let mut server = settings.start();
    while !client.send(false) {
        client.receive();
    }
    let expected = client.expected();
    let held = wait_for(store.path(), &expected);
    server.kill().unwrap();
    server.wait().unwrap();
    println!(
        "{rounds} rounds: {} acknowledged, {alone} of them without a server",
        client.acknowledged.len()
    );
    assert!(
        alone > rounds,
        "hardly anything was acknowledged without a server"
    );
    Some((held, expected))
}

/// The values of the store, as soon as they are the expected ones, or after a while.
fn wait_for(store: &Path, expected: &[u32]) -> Vec<u32> {
    let start = Instant::now();
    loop {
        let bytes = std::fs::read(store).unwrap();
        let values: Vec<u32> = bytes
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()) as u32)
            .collect();
        if values == expected || start.elapsed() > Duration::from_secs(10) {
            return values;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Goal: JB-48, JB-T4 in mode D1. Method: a handful of kills here, 200 below.
#[test]
fn a_killed_server_is_followed_by_one_that_executes_all_of_it_once() {
    if let Some((held, expected)) = killed(5, false) {
        assert_eq!(held, expected);
    }
}

#[test]
#[ignore = "200 kills, a minute or two"]
fn two_hundred_killed_servers_lose_and_repeat_nothing() {
    if let Some((held, expected)) = killed(200, false) {
        assert_eq!(held, expected);
    }
}

/// Goal: the test would see a write that is executed twice. Method: a store that has no positions
/// (JB-48 c), killed until it shows.
#[test]
fn a_store_without_positions_is_found_out() {
    for _ in 0..5 {
        match killed(12, true) {
            Some((held, expected)) if held == expected => {}
            _ => return,
        }
    }
    panic!("sixty kills, and no write was executed twice");
}

/// Goal: JB-48 a. Method: a server is killed; when its heartbeat is too old, nothing is
/// acknowledged any more, and the same requests are when the next one is there.
#[test]
fn a_heartbeat_that_stopped_ends_acknowledgements() {
    let Some(namespace) = Namespace::enter() else {
        return;
    };
    let mut client = Client::new();
    let store = store();
    let settings = ServerSettings {
        pins: namespace.pins.clone(),
        store: store.path().to_owned(),
        client_port: client.port(),
        heartbeat_ns_max: 200_000_000,
        forgets_positions: false,
    };
    let mut server = settings.start();
    let mut first = 0;
    while first < WINDOW {
        client.send(true);
        first += client.receive();
    }
    // Nobody else may have the interface while it lives.
    let options = xdp_options(&namespace.pins, "lo", 1);
    assert!(matches!(Xdp::start(&options), Err(XdpError::InUse { .. })));
    server.kill().unwrap();
    server.wait().unwrap();
    std::thread::sleep(Duration::from_millis(600));
    client.send(true);
    assert_eq!(client.receive(), 0, "acknowledged by an absent server");
    let mut server = settings.start();
    while !client.send(false) {
        client.receive();
    }
    assert_eq!(
        wait_for(store.path(), &client.expected()),
        client.expected()
    );
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Goal: every way in which attaching ends is told from the others. Method: one after another, on
/// `lo` and on a veth of the test's own.
#[test]
fn attaching_succeeds_or_says_why_not() {
    let Some(namespace) = Namespace::enter() else {
        return;
    };
    let options = xdp_options(&namespace.pins, "lo", 1);
    let first = Xdp::start(&options).unwrap();
    assert_eq!(first.attached(), Attach::Generic, "lo has no driver for it");
    assert_eq!(first.nic().origin(), MapsOrigin::Fresh);
    let second = Xdp::start(&options);
    assert!(matches!(second, Err(XdpError::InUse { .. })), "{second:?}");
    // Another program, of a server that keeps its pins elsewhere.
    let elsewhere = XdpOptions {
        pin_directory: namespace.pins.join("other"),
        ..options.clone()
    };
    let other = Xdp::start(&elsewhere);
    assert!(matches!(other, Err(XdpError::Occupied { .. })), "{other:?}");
    assert!(!namespace.pins.join("other/lo").exists(), "left behind");
    // As if the process had died: the next one finds everything, but not under another shape.
    drop(first);
    let mut changed = options.clone();
    changed.nic.places += 1;
    // A process that another test starts has the lock of the first until its program runs.
    let mut refused = Xdp::start(&changed);
    for _ in 0..100 {
        if !matches!(refused, Err(XdpError::InUse { .. })) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        refused = Xdp::start(&changed);
    }
    assert!(
        matches!(refused, Err(XdpError::Shape { .. })),
        "{refused:?}"
    );
    let found = Xdp::start(&options).unwrap();
    assert_eq!(found.nic().origin(), MapsOrigin::Found);
    assert_eq!(found.attached(), Attach::Generic);
    // A planned stop leaves nothing.
    found.unpin();
    drop(found);
    assert!(!namespace.pins.join("curtail/lo").exists());
    let fresh = Xdp::start(&options).unwrap();
    assert_eq!(fresh.nic().origin(), MapsOrigin::Fresh);
    let missing = Xdp::start(&xdp_options(&namespace.pins, "lo0", 1));
    assert!(matches!(missing, Err(XdpError::NoInterface { .. })));
    let nowhere = Xdp::start(&xdp_options(Path::new("/tmp"), "lo", 1));
    assert!(matches!(nowhere, Err(XdpError::NoFileSystem { .. })));
    run(
        "ip",
        &["link", "add", "one", "type", "veth", "peer", "name", "two"],
    );
    let on_veth = xdp_options(&namespace.pins, "one", 1);
    let generic = Xdp::start(&on_veth).unwrap();
    assert_eq!(
        generic.attached(),
        Attach::Generic,
        "its peer has no program"
    );
    generic.unpin();
    drop(generic);
    let native = Xdp::start(&XdpOptions {
        attach: Attach::Native,
        ..on_veth
    });
    assert_eq!(native.unwrap().attached(), Attach::Native);
}
