//! The ways in which a write is acknowledged, each behind the same address.

use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use aya::Ebpf;
use aya::programs::xdp::{XdpLinkId, XdpMode};
use aya::programs::{TestRun as _, TestRunOptions, Xdp as Attachable};
use curtail_dispatch::Worker;
use curtail_ordered_queue::{
    BellListener, OrderedQueue, Peer, QueueState, SessionLimits, Sessions, Turn, layout,
};
use curtail_runtime::{Attach, Nic, NicOptions, Xdp, XdpOptions, monotonic_ns, pin_current_thread};

use super::client::{CLIENT, Client, SERVER, request};
use super::namespace::Namespace;

/// Who acknowledges, and how.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// A program that turns packets round and keeps nothing.
    Floor { native: bool },
    /// A program that answers what a client believes, and keeps nothing.
    Receipt { native: bool },
    /// The XDP program, and a thread that executes and looks for more all the time, or
    /// rests when it finds nothing and looks again after a while, as the server's. `other`: not the
    /// kept object but one that `CURTAIL_NIC_OBJECT` names.
    Nic {
        native: bool,
        rests: bool,
        other: Option<usize>,
    },
    /// A thread that never sleeps: receives, executes, answers (RawRPC).
    Spinning,
    /// The same, but answers before it executes (DeferredExec).
    Deferred,
    /// A thread that sleeps in its socket.
    Blocking,
}

impl Way {
    pub(crate) fn name(self) -> String {
        let mode = |native| if native { "driver" } else { "stack" };
        match self {
            Self::Floor { native } => format!("XDP, no queue ({})", mode(native)),
            Self::Receipt { native } => format!("XDP, valid answers ({})", mode(native)),
            Self::Nic {
                native,
                rests,
                other,
            } => {
                let rests = if rests { ", rests" } else { "" };
                let queue = match other {
                    None => "Ordered Queue".into(),
                    Some(number) => format!("object {number}"),
                };
                format!("XDP, {queue}{rests} ({})", mode(native))
            }
            Self::Spinning => "socket, spinning, RawRPC".into(),
            Self::Deferred => "socket, spinning, DeferredExec".into(),
            Self::Blocking => "socket, blocking".into(),
        }
    }

    /// Whether this is the program without a queue to compare `other` with.
    pub(crate) fn is_floor_of(self, other: Self) -> bool {
        matches!(self, Self::Receipt { .. })
            && self.native().is_some()
            && self.native() == other.native()
    }

    /// Whether its program is in the driver; `None` if it has no program.
    fn native(self) -> Option<bool> {
        match self {
            Self::Floor { native } | Self::Receipt { native } | Self::Nic { native, .. } => {
                Some(native)
            }
            Self::Spinning | Self::Deferred | Self::Blocking => None,
        }
    }
}

/// A way that is open.
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    floor: Option<Program>,
    detach_peer: Option<Box<dyn FnOnce()>>,
}

/// How often the heartbeat beats, as the server's.
const BEAT_NS: u64 = 10_000_000;
/// How long the server's threads sleep at least before they look whether the program has queued
/// something.
const REST: Duration = Duration::from_micros(100);

static FLOOR: &[u8] = aya::include_bytes_aligned!("../../../../bpf/floor.bpf.o");

/// A program of the floor's object.
pub(crate) struct Program {
    ebpf: Ebpf,
    name: &'static str,
    link: Option<XdpLinkId>,
}

impl Program {
    pub(crate) fn load(name: &'static str) -> Self {
        let mut ebpf = Ebpf::load(FLOOR).unwrap();
        let program: &mut Attachable = ebpf.program_mut(name).unwrap().try_into().unwrap();
        program.load().unwrap();
        Self {
            ebpf,
            name,
            link: None,
        }
    }

    fn program(&mut self) -> &mut Attachable {
        self.ebpf
            .program_mut(self.name)
            .unwrap()
            .try_into()
            .unwrap()
    }

    fn attach(&mut self, interface: &str, mode: XdpMode) {
        self.link = Some(self.program().attach(interface, mode).unwrap());
    }

    /// How long it takes for a frame, in nanoseconds.
    pub(crate) fn run(&mut self, frame: &[u8]) -> u64 {
        let mut out = vec![0; 4096];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..TestRunOptions::new()
        };
        let ran = self.program().test_run(options).unwrap();
        assert_eq!(ran.return_value, 3, "the floor has to answer");
        ran.duration.as_nanos() as u64
    }
}

impl Server {
    /// Starts a way; the other end gets a program where the driver's answers need it.
    pub(crate) fn start(way: Way, namespace: &Namespace, client: &Client, work_ns: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let detach_peer = (way.native() == Some(true)).then(|| {
            let program = client.ask(|| {
                let mut pass = Program::load("curtail_pass");
                pass.attach("two", XdpMode::Driver);
                pass
            });
            let detach: Box<dyn FnOnce()> = Box::new(move || drop(program));
            detach
        });
        let mut floor = None;
        let thread = match way {
            Way::Floor { native } | Way::Receipt { native } => {
                let mut program = Program::load(match way {
                    Way::Receipt { .. } => "curtail_receipt",
                    _ => "curtail_floor",
                });
                let mode = if native {
                    XdpMode::Driver
                } else {
                    XdpMode::Skb
                };
                program.attach("one", mode);
                floor = Some(program);
                None
            }
            Way::Nic {
                native,
                rests,
                other,
            } => {
                let attach = if native {
                    Attach::Native
                } else {
                    Attach::Generic
                };
                let options = XdpOptions {
                    interface: "one".into(),
                    pin_directory: namespace.pins.join("bench"),
                    attach,
                    nic: nic_options(),
                };
                let xdp = match other.and_then(|number| other_objects().into_iter().nth(number)) {
                    Some(object) => Xdp::start_object(&object, &options),
                    None => Xdp::start(&options),
                };
                let rest = rests.then_some(REST);
                Some(execute(xdp.unwrap(), Arc::clone(&stop), work_ns, rest))
            }
            Way::Spinning | Way::Deferred | Way::Blocking => {
                let socket = UdpSocket::bind(SERVER).unwrap();
                Some(answer(socket, way, Arc::clone(&stop), work_ns))
            }
        };
        std::thread::sleep(Duration::from_millis(150));
        Self {
            stop,
            thread,
            floor,
            detach_peer,
        }
    }

    pub(crate) fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        drop(self.floor.take());
        self.detach_peer
            .take()
            .into_iter()
            .for_each(|detach| detach());
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn nic_options() -> NicOptions {
    let slots = 4096;
    NicOptions {
        port: SERVER.port(),
        queues: 1,
        slots,
        queue_words: layout::queue_words(u64::from(slots)),
        value_words: layout::VALUE_WORDS,
        stamp_words: layout::STAMP_WORDS,
        places: 1,
        session_words: layout::SESSION_WORDS,
        secrets: [1, 2, 3, 4],
        heartbeat_ns_max: 1_000_000_000,
        lease_ns: 60_000_000_000,
        datagram_bytes_max: 1984,
        value_bytes_max: 1 << 20,
        redirect: false,
        on_node: false,
    }
}

/// Makes the queue and the client's session.
pub(crate) fn open(nic: &Nic) {
    let queue = OrderedQueue::format(nic.queues(), 4096, 1);
    queue.set_backlog_max(4096);
    queue.grant_bytes(2 * layout::BYTES_UNLIMITED);
    queue.beat(monotonic_ns());
    let limits = SessionLimits {
        now_ns: monotonic_ns(),
        lease_ns: 1,
        per_address: 1,
    };
    let mapped = match CLIENT.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(ip) => ip.octets(),
    };
    let (words, _) = mapped.as_chunks::<8>();
    let peer = Peer {
        address: [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])],
        port: CLIENT.port(),
    };
    let sessions = Sessions::new(nic.sessions());
    sessions.grant(peer, 0, limits, 0, |_, _| 7).unwrap();
    queue.set_state(QueueState::Open);
}

/// The objects that are measured beside the kept one: paths with colons between them.
pub(crate) fn other_objects() -> Vec<Vec<u8>> {
    let paths = std::env::var_os("CURTAIL_NIC_OBJECT").unwrap_or_default();
    let paths = std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty());
    paths.map(|path| std::fs::read(path).unwrap()).collect()
}

/// The program, the first other one if one was named, attached to nothing.
pub(crate) fn load() -> Nic {
    let nic = match other_objects().into_iter().next() {
        Some(object) => Nic::load_object(&object, &nic_options(), None),
        None => Nic::load(&nic_options(), None),
    };
    nic.unwrap()
}

/// How long the program took on average while `load` was on, in nanoseconds, by the kernel's own
/// clock, which adds two looks at itself to every run; 0 where there is no program.
pub(crate) fn time_counted(way: Way, load: impl FnOnce()) -> u64 {
    let name: &[u8] = match way {
        Way::Floor { .. } => b"curtail_floor",
        Way::Receipt { .. } => b"curtail_receipt",
        Way::Nic { .. } => b"curtail_nic",
        _ => return 0,
    };
    let counting = aya::sys::enable_stats(aya::sys::Stats::RunTime).unwrap();
    load();
    let (ns, _) = time_of_program(name);
    drop(counting);
    ns as u64
}

/// How long the attached program took on average, in nanoseconds, and how often it ran.
pub(crate) fn time_of_program(name: &[u8]) -> (f64, u64) {
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    let mut ours = programs.filter(|program| program.name() == name);
    let most = ours
        .by_ref()
        .max_by_key(aya::programs::ProgramInfo::run_count);
    most.map_or((0.0, 0), |program| {
        let runs = program.run_count();
        let ns = program.run_time().as_nanos() as f64;
        (ns / runs.max(1) as f64, runs)
    })
}

/// Passes over what was queued, and lives.
pub(crate) fn skip(nic: &Nic) {
    let queue = OrderedQueue::open(nic.queues()).unwrap();
    queue.beat(monotonic_ns());
    let mut lease = queue.take_lease(Worker(0)).unwrap();
    lease.advance(1);
}

/// The frame of a write, as the client's stack sends it.
pub(crate) fn frame_of(number: u64, value_bytes: usize) -> Vec<u8> {
    let datagram = request(number, value_bytes);
    let bytes = datagram.len() as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((28 + bytes).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1]);
    for number in [CLIENT.port(), SERVER.port(), 8 + bytes, 0] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(datagram);
    frame
}

/// Executes as the server's workers do: the heartbeat now and then, the lease only where something
/// waits.
fn execute(
    xdp: Xdp,
    stop: Arc<AtomicBool>,
    work_ns: u64,
    rest: Option<Duration>,
) -> JoinHandle<()> {
    open(xdp.nic());
    std::thread::spawn(move || {
        let _ = pin_current_thread(0);
        let queue = OrderedQueue::open(xdp.nic().queues()).unwrap();
        let mut turn = Turn::new();
        let mut listener = BellListener::new();
        let mut beaten_ns = 0;
        while !stop.load(Ordering::Relaxed) {
            let now_ns = monotonic_ns();
            if now_ns - beaten_ns > BEAT_NS {
                queue.beat(now_ns);
                beaten_ns = now_ns;
            }
            let is_there = match rest {
                None => queue.has_news(&mut listener),
                Some(_) => queue.has_news_after_all(&mut listener),
            };
            if !is_there {
                rest.into_iter().for_each(std::thread::sleep);
                continue;
            }
            let mut lease = queue.take_lease(Worker(0)).unwrap();
            let drained = turn.run(&mut lease, queue.rung_for(), None, |_| {});
            work(work_ns * drained.entries);
        }
        xdp.unpin();
    })
}

fn answer(socket: UdpSocket, way: Way, stop: Arc<AtomicBool>, work_ns: u64) -> JoinHandle<()> {
    match way {
        Way::Blocking => socket.set_read_timeout(Some(Duration::from_millis(50))),
        _ => socket.set_nonblocking(true),
    }
    .unwrap();
    std::thread::spawn(move || {
        let _ = pin_current_thread(0);
        let mut room = [0; 2048];
        while !stop.load(Ordering::Relaxed) {
            let Ok((_, from)) = socket.recv_from(&mut room) else {
                continue;
            };
            let slot = room[6];
            if matches!(way, Way::Spinning | Way::Blocking) {
                work(work_ns);
            }
            room[3..6].copy_from_slice(&[131, 1, slot]);
            let _ = socket.send_to(&room[..64], from);
            if matches!(way, Way::Deferred) {
                work(work_ns);
            }
        }
        let _ = socket.as_fd();
    })
}

fn work(ns: u64) {
    let end = monotonic_ns() + ns;
    while ns > 0 && monotonic_ns() < end {
        std::hint::spin_loop();
    }
}
