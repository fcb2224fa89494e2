//! The native protocol in the server: writes that are acknowledged when they have their place in a
//! queue, and executed by the workers later (Juneberry, NSDI 2025); `docs/reference/protocol.md` is
//! the wire.
//!
//! ```text
//!   UDP --> Receiver: handshake, admission, reads   TCP --> stream: large values, past the queues
//!            |  claim, reserve, publish, stamp               |
//!            |  then ACK                                     | waits for head >= stamp
//!            v                                               v
//!        Ordered Queues --lease--> Executor (a worker) --> store <-- memcached's path, which waits
//!                                   | answers what was not acknowledged          for head >= stamp
//! ```
//!
//! Who acknowledges, and when, is the mode: the XDP program before any thread has run, a
//! thread that does nothing else, or the worker itself just before or after executing. All modes
//! are the same code: they differ in who runs the [`receiver`], and in whether entries may be
//! acknowledged early.
//!
//! Invariants. Everybody who touches an item looks at the stamp of its bucket first and has the
//! queue executed up to there (JB-40, JB-41), so native clients and all others see one store. An
//! entry is executed under its queue's lease, and answered before head moves past it. An unverified
//! sender gets no more bytes than it sent.

#[cfg(feature = "baselines")]
mod baselines;
mod counters;
mod execution_pace;
mod executor;
mod handshake;
mod host;
mod io_thread;
mod on_node;
mod queue_memory;
mod queue_polling;
mod read;
mod read_barrier;
mod receiver;
mod reply_cache;
mod reply_sender;
mod session_local_addresses;
mod start;
mod stats;
mod stream;
mod worker_turn;
mod xdp;

use std::{net::SocketAddr, time::Duration};

use curtail_codec::native::{Cookies, DATAGRAM_BYTES_MAX, Head};
use curtail_ordered_queue::{
    EarlyLimits, OrderedQueue, QueueEntry, QueueState, SessionLimits, Sessions, Stamps, layout,
};
use curtail_runtime::DatagramSocket;
use curtail_types::{HashSeed, Now};
use tracing::error;

use crate::{
    log::{Limit, component, log_flush},
    native::{
        counters::PublishedNativeCounts, execution_pace::ExecutionPace, handshake::Grants,
        queue_memory::QueueMemory, reply_cache::Answers, session_local_addresses::Locals,
    },
    sync::{AtomicU64, Mutex, Relaxed},
    test_faults::{Fault, TestFaults},
};

pub(crate) use crate::config::native::{NativeConfig, NativeMode, NativePlacement};
pub(crate) use crate::native::counters::{NativeCount, NativeCounts};
pub(crate) use crate::native::executor::Executor;
pub(crate) use crate::native::host::{Host, ShowsEnded};
pub(crate) use crate::native::io_thread::run as run_io_thread;
pub(crate) use crate::native::read_barrier::{Behind, ReadBarrier};
pub use crate::native::start::check_native;
pub(crate) use crate::native::start::{Opened, Opening};
pub(crate) use crate::native::stats::{NativeQueues, QueueEarly, statistics};
pub(crate) use crate::native::stream::Streams;
pub(crate) use crate::native::worker_turn::NativeTurns;

/// What the threads of the path share.
pub(crate) struct Native {
    pub(crate) config: NativeConfig,
    pub(crate) mode: NativeMode,
    /// Bounds the log lines about flushes.
    pub(crate) flushes: Limit,
    memory: Box<dyn QueueMemory>,
    queue_words: usize,
    /// What may be acknowledged early, and how fast each queue is executed, on which it depends.
    early: EarlyLimits,
    paces: Box<[ExecutionPace]>,
    /// Of this life of the queues.
    incarnation: u64,
    seed: HashSeed,
    cookies: Cookies,
    /// One for each address, of each thread that receives.
    sockets: Vec<DatagramSocket>,
    /// Addresses that are listened at.
    addresses: Vec<SocketAddr>,
    answers: Answers,
    /// Which of this host's addresses each session's client asks.
    locals: Locals,
    grants: Mutex<Grants>,
    /// Between receiving and running, where the placement has that.
    #[cfg(feature = "baselines")]
    software: Vec<baselines::software_queue::SoftwareQueue>,
    /// Of each thread: workers, large workers, and the others behind them.
    published: Vec<PublishedNativeCounts>,
    /// Whether payloads are looked at once more when they are executed.
    verifies: bool,
    item_bytes_max: usize,
    flush_allowed: bool,
    /// The server is a node of a cluster, which executes the requests.
    is_on_node: bool,
    /// What tests have it do wrong.
    faults: TestFaults,
    /// Entries that were not what was acknowledged; from the first one on nothing is acknowledged
    /// early any more.
    corrupt: AtomicU64,
}

/// How old the heartbeat may be for writes to be admitted (JB-48 a).
const HEARTBEAT_NS_MAX: u64 = 100_000_000;

/// How often it beats at least.
const BEAT_NS: u64 = 10_000_000;

impl Native {
    /// One of the queues.
    #[inline]
    pub(crate) fn queue(&self, number: usize) -> Option<OrderedQueue<'_>> {
        let start = number * self.queue_words;
        let words = self.memory.queues().get(start..start + self.queue_words)?;
        OrderedQueue::open(words).ok()
    }

    /// All queues, in a list that is made: for the start of a thread.
    fn all_queues(&self) -> Vec<OrderedQueue<'_>> {
        (0..self.config.queues)
            .filter_map(|number| self.queue(number))
            .collect()
    }

    #[inline]
    fn stamps(&self) -> Stamps<'_> {
        Stamps::new(self.memory.stamps())
    }

    #[inline]
    fn sessions(&self) -> Sessions<'_> {
        Sessions::new(self.memory.sessions())
    }

    /// The queue of a key.
    #[inline]
    pub(crate) fn queue_number(&self, key_hash: u64) -> usize {
        (key_hash >> (64 - self.config.queues.trailing_zeros())) as usize
    }

    /// Whether the server was started with this fault.
    #[inline(always)]
    fn has(&self, fault: Fault) -> bool {
        self.faults.has(fault)
    }

    /// What a request that touches a key waits for: the queue, and up to where; `None` if there is
    /// nothing to wait for. To be asked when the request is there, and before the store.
    #[inline]
    pub(crate) fn behind(&self, key_hash: u64) -> Option<(usize, u64)> {
        let stamp = self.stamp(key_hash);
        let number = self.queue_number(key_hash);
        if stamp == 0 || self.queue(number)?.has_reached(stamp) {
            return None;
        }
        Some((number, stamp))
    }

    /// Up to where the queue of a key must be executed before anybody looks for it in the store.
    #[inline]
    fn stamp(&self, key_hash: u64) -> u64 {
        if self.has(Fault::SkipsStamps) {
            return 0;
        }
        self.stamps().stamp(key_hash)
    }

    /// Whether everything below `stamp` is executed.
    #[inline]
    pub(crate) fn has_reached(&self, number: usize, stamp: u64) -> bool {
        self.queue(number)
            .is_none_or(|queue| queue.has_reached(stamp))
    }

    /// Whether every queue is empty.
    pub(crate) fn is_idle(&self) -> bool {
        (0..self.config.queues).all(|number| !self.has_backlog(number))
    }

    /// Whether something waits in a queue.
    #[inline]
    pub(crate) fn has_backlog(&self, number: usize) -> bool {
        self.queue(number).is_some_and(|queue| {
            let backlog = queue.backlog();
            backlog.head != backlog.tail
        })
    }

    /// Has all queues take writes, or not.
    pub(crate) fn set_state(&self, state: QueueState) {
        self.all_queues()
            .iter()
            .for_each(|queue| queue.set_state(state));
    }

    /// Stops acknowledging early before a planned stop (JB-50).
    pub(crate) fn begin_to_stop(&self) {
        self.set_state(QueueState::Draining);
    }

    /// The XDP program may accept writes of a slice from now on, or not.
    pub(crate) fn set_accepting(&self, slice: u16, may: bool) {
        if let Some(gate) = self.memory.gates().get(usize::from(slice)) {
            // Before the tails that are taken next, by the fence in `tail_behind_a_gate`.
            gate.store(u64::from(may), Relaxed);
        }
    }

    /// Up to where each queue has given places out, once those who accept were told not to.
    pub(crate) fn accepted_tails(&self) -> Box<[u64]> {
        let queues = self.all_queues();
        queues
            .iter()
            .map(OrderedQueue::tail_behind_a_gate)
            .collect()
    }

    /// Whether each queue is executed up to its tail.
    pub(crate) fn has_executed(&self, tails: &[u64]) -> bool {
        let mut tails = tails.iter().enumerate();
        tails.all(|(number, tail)| self.has_reached(number, *tail))
    }

    /// The server lives, and may accept writes for `lasts_ns` at least: a heartbeat is believed
    /// for no longer.
    fn beat_for(&self, now_ns: u64, lasts_ns: u64, now: Now) {
        self.beat(
            now_ns.saturating_sub(HEARTBEAT_NS_MAX.saturating_sub(lasts_ns)),
            now,
        );
    }

    /// The server lives, and items see this time.
    fn beat(&self, now_ns: u64, now: Now) {
        for number in 0..self.config.queues {
            if let Some(queue) = self.queue(number) {
                queue.beat(now_ns);
            }
        }
        self.memory.beat(now.unix_ns);
    }

    /// Writes to the log which session has all items flushed.
    fn log_flush(&self, now: Now, head: &Head) {
        let session = head.session.index;
        log_flush(
            &self.flushes,
            now,
            &format_args!("native session {session}"),
        );
    }

    /// Something was executed that is not what was acknowledged: from here on nothing is
    /// acknowledged before it is executed.
    #[cold]
    fn alarm(&self) {
        if self.corrupt.fetch_add(1, Relaxed) == 0 {
            error!(
                target: component::NATIVE,
                "a write was damaged in its queue before it was executed; from now on every write \
                 is acknowledged after it is executed; test this machine's memory, restart the \
                 server, and report this to curtail's developers"
            );
        }
        self.set_state(QueueState::Draining);
    }

    /// What sessions are held to; whoever admits a request renews its session.
    fn limits(&self, now_ns: u64) -> SessionLimits {
        SessionLimits {
            now_ns,
            lease_ns: u64::from(self.config.lease_ms) * 1_000_000,
            per_address: self.config.sessions_per_address,
        }
    }

    /// The socket that an entry's answer leaves by, among those of a thread.
    fn socket_of(&self, entry: QueueEntry<'_>) -> u8 {
        let number = entry.rx_queue();
        if !self.memory.acknowledges() && usize::from(number) < self.addresses.len() {
            return number;
        }
        let is_v4 = reply_sender::address_of(entry.peer()).is_ipv4();
        let mut addresses = self.addresses.iter();
        let found = addresses.position(|address| address.is_ipv4() == is_v4);
        found.unwrap_or(0) as u8
    }

    /// Longest datagram to and from a client.
    fn datagram_bytes_for(&self, client: SocketAddr) -> usize {
        match client.ip().to_canonical().is_loopback() {
            true => DATAGRAM_BYTES_MAX,
            false => self.config.datagram_bytes_max.min(DATAGRAM_BYTES_MAX),
        }
    }

    /// Takes the processor time that an execution is told to take.
    #[inline]
    fn pretend_work(&self) {
        if self.config.service_ns > 0 {
            let started = std::time::Instant::now();
            let time = Duration::from_nanos(self.config.service_ns);
            while started.elapsed() < time {
                std::hint::spin_loop();
            }
        }
    }

    fn publish(&self, thread: usize, counts: &NativeCounts) {
        if let Some(published) = self.published.get(thread) {
            published.publish(counts);
        }
    }

    /// The counts of all threads.
    pub(crate) fn counts_total(&self) -> NativeCounts {
        let mut sum = NativeCounts::new();
        for published in &self.published {
            sum.add_all(&published.read());
        }
        sum
    }

    /// How many queued writes were found damaged.
    pub(crate) fn corrupt(&self) -> u64 {
        self.corrupt.load(Relaxed)
    }

    /// Where it listens.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Bytes that it takes of the memory limit.
    pub(crate) fn memory_bytes(&self) -> usize {
        let words = self.config.queues * self.queue_words + layout::STAMP_WORDS;
        let session = layout::SESSION_WORDS * 8 + Answers::session_bytes();
        let bytes = words * 8 + self.config.sessions * session;
        #[cfg(feature = "baselines")]
        let bytes = bytes + self.software.len() * baselines::software_queue::SoftwareQueue::bytes();
        bytes
    }

    /// When a write is acknowledged and what a crash loses, for people (JB-52).
    pub(crate) fn promise(&self) -> String {
        if self.is_on_node {
            let early = match self.early.entries_max {
                0 => "",
                _ => {
                    "; if the write is marked and only this node holds its slice, the node \
                     acknowledges it before execution"
                }
            };
            return format!(
                "a node of the cluster acknowledges a write when every node in sync has it{early}"
            );
        }
        let acknowledged = match (self.mode, self.early.entries_max) {
            (NativeMode::Raw, _) => "a worker acknowledges each write after it executes it",
            (_, 0) => "each write is acknowledged after it is executed",
            (NativeMode::Xdp, _) => {
                "the XDP program acknowledges marked writes (whose client needs no result) before \
                 a worker executes them"
            }
            (NativeMode::IoAck, _) => {
                "a thread acknowledges marked writes (whose client needs no result) before a \
                 worker executes them"
            }
            (NativeMode::Deferred, _) => {
                "a worker acknowledges marked writes (whose client needs no result) before it \
                 executes them"
            }
        };
        let lost = match self.mode {
            NativeMode::Xdp => "the contents, but not the writes that wait in the queues",
            _ => "the contents and the writes that wait in the queues",
        };
        format!("{acknowledged}; a crash of the server loses {lost}")
    }
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native")
            .field("config", &self.config)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
