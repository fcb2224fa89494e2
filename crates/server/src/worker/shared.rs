//! What all threads of a server share: settings, the store, and counters.
//!
//! Nothing here is touched per request but the store and the writers' table; a worker looks at the
//! rest once per turn or when an administration command asks.

use std::{
    fmt::Display,
    io,
    sync::{Arc, OnceLock},
};

use curtail_codec::node::ItemRequest;
use curtail_dispatch::size_aware::SizeHistogram;
use curtail_runtime::{Clock, ControlEvent, Registrar, ThreadId, Waker};
use curtail_storage::ReadAnswer;
use curtail_store::Store;
use curtail_types::{LoadReport, Now, RouteHash};
use tracing::{info, warn};

use crate::{
    completion::{AskingThread, ThreadAsker},
    config::{Config, auth::Logins, policy_name::PolicyName},
    connection::{move_command::Order, registry::Registry},
    disk::{DiskHost, DiskTier},
    log::{Limit, Limits, component},
    memcached::{crawler_switches::Crawler, watch::Watchers},
    metrics::{
        counters::{Count, Counts, PublishedCounts, Tally},
        hot_keys::Hottest,
        latency::{Latencies, PublishedLatencies},
        prefix_stats::Prefixes,
        slow_log::SlowLog,
        stage_histograms::{PublishedStages, Stages},
        turn_cpu_time::TurnTimes,
    },
    native::{Host, Native, NativeCount, ShowsEnded},
    node::{
        Cluster,
        host::{NodeArrival, NodeHost},
    },
    size_aware::{control_handle::ControlHandle, plan_snapshot::PlanSnapshots},
    sync::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Mutex, Relaxed, lock},
    worker::{
        mailbox::{Arrival, Mailbox},
        prefault::PagesThread,
        routing_inputs::Writers,
    },
};

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Clock,
    pub(crate) started: Now,
    pub(crate) registry: Registry,
    /// The workers, and behind them the large workers.
    pub(crate) workers: Vec<WorkerHandle>,
    /// Who writes which partition now.
    pub(crate) writers: Writers,
    pub(crate) snapshots: PlanSnapshots,
    pub(crate) control: ControlHandle,
    pub(crate) doors: AcceptorHandle,
    pub(crate) pages: PagesThread,
    pub(crate) prefixes: Prefixes,
    pub(crate) logins: Mutex<Option<Arc<Logins>>>,
    /// Where each `stats` number stood at the last `stats reset`.
    pub(crate) baseline: Mutex<Counts>,
    pub(crate) verbosity: AtomicU8,
    pub(crate) crawler: Crawler,
    pub(crate) watchers: Watchers,
    pub(crate) slow: SlowLog,
    /// Bounds for log lines that peers can cause.
    pub(crate) limits: Limits,
    /// The native datagram path, if it is on.
    pub(crate) native: Option<Arc<Native>>,
    /// The cluster, if the server is a node of one.
    pub(crate) cluster: Option<Arc<Cluster>>,
    /// The disk, if memory is a cache of one.
    pub(crate) tier: Option<Arc<DiskTier>>,
    /// Whether workers may look again before they sleep.
    pub(crate) spins: bool,
    /// No new connection is taken and the workers finish.
    pub(crate) stopping: AtomicBool,
    /// How far `debugtime` has shifted the clock that items see, in seconds.
    pub(crate) time_shift_seconds: AtomicI64,
    /// Whom to ask when a client sends `shutdown`.
    pub(crate) ask: Box<dyn Fn(ControlEvent) + Send + Sync>,
}

/// What others see of a worker, and how they reach it.
#[derive(Debug)]
pub(crate) struct WorkerHandle {
    pub(crate) counts: PublishedCounts,
    pub(crate) turns: TurnTimes,
    /// Connections it has, the ones in its inbox included.
    pub(crate) connections: AtomicUsize,
    pub(crate) buffers: BufferGauges,
    pub(crate) mail: Mailbox,
    /// Ends what its poller watches.
    pub(crate) registrar: Registrar,
    /// Connections that a large worker has, or will find in its mailbox.
    pub(crate) loans: AtomicUsize,
    /// Its thread, once it runs.
    pub(crate) thread: OnceLock<ThreadId>,
    /// Starvation boosts so far.
    pub(crate) boosts: AtomicU64,
    /// Requests carried out in the last epoch.
    pub(crate) load: AtomicU64,
    /// What was asked for, until the control thread takes it.
    pub(crate) measured: Mutex<Option<Box<SizeHistogram>>>,
    pub(crate) stages: PublishedStages,
    pub(crate) latencies: PublishedLatencies,
    /// What it is to give to others.
    pub(crate) order: Order,
    /// Connections that had no room in its last turn.
    pub(crate) in_line: AtomicUsize,
    /// The keys it was asked for most, as of the last second.
    pub(crate) hottest: Mutex<Option<LoadReport>>,
}

/// What a worker's buffers take, as of its last turn.
#[derive(Debug, Default)]
pub(crate) struct BufferGauges {
    pub(crate) count: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) bytes_unused: AtomicU64,
}

/// What the acceptor counts.
#[derive(Debug)]
pub(crate) struct AcceptorHandle {
    pub(crate) connections_now: AtomicUsize,
    pub(crate) connections_most: AtomicUsize,
    /// Connections given to workers.
    pub(crate) accepted: Tally,
    /// Connections that found the limit reached.
    pub(crate) refused: Tally,
    /// Connections that no worker could watch.
    pub(crate) unwatched: Tally,
    /// Attempts to accept that the kernel refused.
    pub(crate) accept_errors: Tally,
    pub(crate) accepting: AtomicBool,
    /// How often the limit stopped accepting.
    pub(crate) pauses: Tally,
    pub(crate) disabled_us: AtomicU64,
    /// Whether clients may connect: a node lets them from when it is first in service until it
    /// leaves.
    is_open: AtomicBool,
    pub(crate) waker: Waker,
}

const SECOND_NS: i64 = 1_000_000_000;

impl AcceptorHandle {
    pub(crate) fn new(waker: Waker, is_open: bool) -> Self {
        Self {
            is_open: AtomicBool::new(is_open),
            connections_now: AtomicUsize::new(0),
            connections_most: AtomicUsize::new(0),
            accepted: Tally::new(),
            refused: Tally::new(),
            unwatched: Tally::new(),
            accept_errors: Tally::new(),
            accepting: AtomicBool::new(true),
            pauses: Tally::new(),
            disabled_us: AtomicU64::new(0),
            waker,
        }
    }

    /// Whether clients may connect.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// Lets clients connect, or no more of them.
    pub(crate) fn set_open(&self, is_open: bool) {
        if self.is_open.swap(is_open, Relaxed) != is_open {
            self.waker.wake();
        }
    }

    /// A connection was closed: there is room for another.
    pub(crate) fn leave(&self) {
        self.connections_now.fetch_sub(1, Relaxed);
        if !self.accepting.load(Relaxed) {
            self.waker.wake();
        }
    }
}

impl WorkerHandle {
    /// What waits for it: connections that had no room in its last turn, and its mailbox.
    pub(crate) fn queue_depth(&self) -> usize {
        self.in_line.load(Relaxed) + self.mail.depth()
    }

    /// What it has counted since the start.
    pub(crate) fn count(&self, count: Count) -> u64 {
        self.counts.get(count)
    }

    pub(crate) fn new(waker: Waker, registrar: Registrar) -> Self {
        Self {
            counts: PublishedCounts::new(),
            turns: TurnTimes::new(),
            connections: AtomicUsize::new(0),
            buffers: BufferGauges::default(),
            mail: Mailbox::new(waker),
            registrar,
            loans: AtomicUsize::new(0),
            thread: OnceLock::new(),
            boosts: AtomicU64::new(0),
            load: AtomicU64::new(0),
            measured: Mutex::default(),
            stages: PublishedStages::default(),
            latencies: PublishedLatencies::default(),
            order: Order::default(),
            in_line: AtomicUsize::new(0),
            hottest: Mutex::default(),
        }
    }
}

impl Shared {
    /// The time, as items see it.
    pub(crate) fn now(&self) -> Now {
        let mut now = self.clock.now();
        if let Some(cluster) = &self.cluster {
            now.unix_ns = cluster.unix_ns(now.instant);
        }
        let shift_seconds = self.time_shift_seconds.load(Relaxed);
        now.unix_ns = now
            .unix_ns
            .saturating_add_signed(shift_seconds.saturating_mul(SECOND_NS));
        now
    }

    /// Seconds since the start.
    pub(crate) fn uptime_seconds(&self) -> u64 {
        let now = self.clock.now().unix_seconds();
        now.saturating_sub(self.started.unix_seconds()).into()
    }

    /// Bytes that the connection buffers of one worker may take.
    pub(crate) fn buffer_bytes_max(&self) -> usize {
        let all = match self.config.buffer_bytes_max {
            0 => self.config.memory_bytes_max / 4,
            told => told,
        };
        all / self.workers.len().max(1)
    }

    /// The counts of all workers since the start.
    pub(crate) fn counts_total(&self) -> Counts {
        let mut total = Counts::new();
        for worker in &self.workers {
            total.add_all(&worker.counts.read());
        }
        total
    }

    /// A gauge of the workers' buffers, all together.
    pub(crate) fn buffers_total(&self, pick: fn(&BufferGauges) -> &AtomicU64) -> u64 {
        let workers = self.workers.iter();
        workers
            .map(|worker| pick(&worker.buffers).load(Relaxed))
            .sum()
    }

    /// A listener's attempt to accept failed; it tries again soon. Connections wait in the kernel
    /// meanwhile.
    pub(crate) fn note_accept_error(&self, error: &io::Error) {
        self.doors.accept_errors.add(1);
        let seconds = self.now().unix_seconds().into();
        if let Some(suppressed) = self.limits.accept.pass_lasting(seconds) {
            warn!(
                target: component::CONNECTIONS,
                suppressed,
                "no connection can be accepted: {error}; new ones wait; if no file descriptor is \
                 free, raise LimitNOFILE or ulimit -n, or lower -c"
            );
        }
    }

    /// A count of the native path.
    pub(crate) fn native_count(&self, count: NativeCount) -> u64 {
        let native = self.native.as_deref();
        native.map_or(0, |native| native.counts_total().get(count))
    }

    /// Bytes that the native path takes.
    pub(crate) fn native_bytes(&self) -> u64 {
        let native = self.native.as_deref();
        native.map_or(0, |native| native.memory_bytes() as u64)
    }

    /// The workers that have connections.
    pub(crate) fn small_workers(&self) -> &[WorkerHandle] {
        self.workers.get(..self.config.workers).unwrap_or_default()
    }

    /// The large workers.
    pub(crate) fn large_workers(&self) -> &[WorkerHandle] {
        self.workers.get(self.config.workers..).unwrap_or_default()
    }

    /// Seconds since the start.
    pub(crate) fn up_seconds(&self) -> u64 {
        self.clock.now().instant.ns / SECOND_NS.unsigned_abs()
    }

    /// Puts another policy in force, as `peer` asks.
    pub(crate) fn change_policy(&self, name: PolicyName, peer: &dyn Display) {
        let before = self.snapshots.current().name;
        self.snapshots.set_policy(name, self.up_seconds());
        let now_seconds = self.now().unix_seconds().into();
        if let Some(suppressed) = self.limits.admin.pass(now_seconds) {
            info!(
                target: component::POLICY,
                %peer,
                suppressed,
                "the policy changes from {before} to {name}"
            );
        }
    }

    /// The stages of all workers since the start.
    pub(crate) fn stages_total(&self) -> Stages {
        let mut total = Stages::default();
        for worker in &self.workers {
            total.add(&worker.stages.read());
        }
        total
    }

    /// The latencies that all workers have measured since the start.
    pub(crate) fn latencies_total(&self) -> Latencies {
        let mut total = Latencies::default();
        for worker in &self.workers {
            worker.latencies.add_to(&mut total);
        }
        total
    }

    /// The keys that all workers together were asked for most.
    pub(crate) fn hottest(&self) -> Hottest {
        let workers = self.workers.iter();
        let reports: Vec<_> = workers
            .filter_map(|worker| lock(&worker.hottest).clone())
            .collect();
        Hottest::of_all(reports.iter())
    }

    /// The counts of all workers since the last `stats reset`.
    pub(crate) fn counts(&self) -> Counts {
        self.counts_total().since(&lock(&self.baseline))
    }

    /// Resets the counters of `stats`.
    pub(crate) fn reset_counts(&self) {
        *lock(&self.baseline) = self.counts_total();
        self.store.reset_counters();
        self.prefixes.clear();
        let doors = &self.doors;
        for tally in [&doors.accepted, &doors.refused, &doors.pauses] {
            tally.reset();
        }
        self.watchers.counts.reset();
        self.slow.reset();
        self.workers.iter().for_each(|worker| worker.turns.reset());
    }

    /// Who may log in, if a login is needed.
    pub(crate) fn logins(&self) -> Option<Arc<Logins>> {
        lock(&self.logins).clone()
    }
}

impl Host for Shared {
    fn now(&self) -> Now {
        Self::now(self)
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    fn polls(&self) -> bool {
        self.spins
    }

    fn note_accept_error(&self, error: &io::Error) {
        self.note_accept_error(error);
    }

    fn workers(&self) -> usize {
        self.config.workers
    }

    fn wake_with(&self, thread: AskingThread, waker: Waker) {
        if let Some(cluster) = &self.cluster {
            cluster.wake_with(thread, waker);
        }
    }

    fn ask_node(
        &self,
        asker: ThreadAsker,
        request: Option<&ItemRequest<'_>>,
        memory: [Vec<u8>; 2],
    ) {
        if let Some(cluster) = &self.cluster {
            cluster.ask(self, asker, request, memory);
        }
    }

    fn accepts_ns_left(&self) -> u64 {
        let cluster = self.cluster.as_ref();
        cluster.map_or(u64::MAX, |cluster| {
            cluster.lease_ns_left(self.clock.now().instant)
        })
    }

    fn may_accept(&self, key: RouteHash) -> bool {
        let cluster = self.cluster.as_ref();
        cluster.is_some_and(|cluster| cluster.may_accept(self.clock.now().instant, key))
    }

    fn take_from_node(
        &self,
        thread: AskingThread,
        spare: &mut Vec<Vec<u8>>,
        show: &mut ShowsEnded<'_>,
    ) {
        let Some(cluster) = &self.cluster else {
            return;
        };
        cluster.take_thread_answers(thread, &mut |completed| {
            if let Some((asker, _, told)) = completed.of_thread() {
                show(asker.name, told, completed.copies);
            }
            spare.extend(completed.take_memory());
        });
    }

    fn wake_worker(&self, worker: usize) -> bool {
        let handle = self.small_workers().get(worker);
        let rung = handle.filter(|handle| handle.mail.bell.ring());
        rung.inspect(|handle| handle.mail.wake()).is_some()
    }
}

impl DiskHost for Shared {
    fn deliver(&self, answer: Box<ReadAnswer>, goes_on: bool) {
        let Some(handle) = self.workers.get(answer.request.receiver) else {
            return;
        };
        match goes_on {
            true => handle.mail.send_gathered(Arrival::Disk(answer)),
            false => handle.mail.send(Arrival::Disk(answer)),
        }
    }

    fn wake(&self, worker: usize) {
        if let Some(handle) = self.workers.get(worker) {
            handle.mail.wake();
        }
    }
}

impl NodeHost for Shared {
    fn clock(&self) -> Clock {
        self.clock
    }

    fn uptime_seconds(&self) -> u64 {
        Self::uptime_seconds(self)
    }

    fn set_accepting(&self, slice: u16, may: bool) {
        if let Some(native) = &self.native {
            native.set_accepting(slice, may);
        }
    }

    fn accepted_tails(&self) -> Box<[u64]> {
        let native = self.native.as_ref();
        native.map_or_else(Box::default, |native| native.accepted_tails())
    }

    fn has_executed(&self, tails: &[u64]) -> bool {
        let native = self.native.as_ref();
        native.is_none_or(|native| native.has_executed(tails))
    }

    fn send(&self, worker: usize, arrival: NodeArrival) {
        if let Some(handle) = self.workers.get(worker) {
            handle.mail.send(Arrival::Node(arrival));
        }
    }

    fn wake_all(&self) {
        self.workers.iter().for_each(|worker| worker.mail.wake());
    }

    fn set_open(&self, is_open: bool) {
        self.doors.set_open(is_open);
    }

    fn key_loads(&self) -> Vec<LoadReport> {
        let workers = self.small_workers().iter();
        workers
            .filter_map(|worker| lock(&worker.hottest).clone())
            .collect()
    }

    fn value_bytes(&self, key: &[u8]) -> u32 {
        let hash = self.store.hash(key);
        let bytes = self.store.value_bytes(self.now(), hash);
        u32::try_from(bytes.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    fn admin_lines(&self) -> &Limit {
        &self.limits.admin
    }
}
