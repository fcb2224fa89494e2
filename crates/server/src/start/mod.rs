//! Starting and stopping a server.
//!
//! ```text
//!  main thread          acceptor            worker 0..n-1  <-->  large workers     (admin)
//!  start, wait for -->  accept, place  -->  turn after turn      large requests     /metrics
//!  signals, stop                            control: each epoch plan, failures, balance, hot keys
//! ```

pub(crate) mod acceptor;
pub(crate) mod control_loop;
pub(crate) mod thread_priority;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use curtail_codec::tiered::BODY_BYTES_MAX;
use curtail_consistency::slice_view::SLICES;
use curtail_dispatch::Policy;
use curtail_runtime::{
    BindError, Clock, ControlEvent, DatagramOptions, DatagramSocket, Listener, Poller,
    SocketOptions, ThreadId, bind_tcp, bind_udp, bind_unix,
};
use curtail_store::{Store, StoreConfig, StoreError, Writer};
use curtail_types::{Cas, HashSeed, Now, WriterId};

use crate::{
    admin::udp::MemcachedDatagrams,
    busy_poll,
    config::{
        Config,
        auth::{Logins, LoginsError},
        policy_name::{PolicyName, Sizes},
        seed::random_seed,
        start_error::StartError,
    },
    connection::registry::Registry,
    disk::{DiskHost, DiskTier},
    event_loop,
    exporter::http,
    gateway::GatewayWorker,
    log::Limits,
    memcached::{crawler_switches::Crawler, watch::Watchers},
    metrics::{counters::Counts, prefix_stats::Prefixes, slow_log::SlowLog},
    native::{self, NativeMode, Opened, Opening, Streams},
    node::{self, Membership, host::NodeHost},
    size_aware::{control_handle::ControlHandle, plan_snapshot::PlanSnapshots},
    start::acceptor::{Acceptor, name_of},
    store_context::StoreContext,
    sync::{AtomicBool, AtomicI64, AtomicU8, Relaxed, lock},
    worker::{
        WAKER, Worker,
        prefault::{self, PagesThread},
        routing_inputs::{Writers, bytes_of_writers},
        shared::{AcceptorHandle, Shared, WorkerHandle},
    },
};

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    names: Vec<String>,
    admin_address: Option<SocketAddr>,
    restored: Restored,
    native_note: Option<String>,
    udp_addresses: Vec<SocketAddr>,
    membership: Option<Membership>,
}

/// What became of the contents saved by an earlier process.
#[derive(Debug)]
pub enum Restored {
    /// None were asked for, or there was no file.
    Nothing,
    /// So many items are back.
    Items(u64),
    /// The file is of no use; the server started empty.
    Failed(StoreError),
}

/// What an operator is told of the native path at the start.
#[derive(Clone, Debug)]
pub struct NativeAtStart<'a> {
    /// Where datagrams are taken.
    pub addresses: &'a [SocketAddr],
    /// Who acknowledges.
    pub mode: NativeMode,
    /// When a write is acknowledged, and what a crash loses.
    pub promise: String,
    /// What is out of the ordinary.
    pub note: Option<&'a str>,
}

/// Room for a worker's stack: nothing on the path of a request recurses.
const STACK_BYTES: usize = 512 << 10;

/// A worker's turn on a processor that it shares: shorter than the scheduler's own, 1.4 ms and
/// more, and long enough that workers beside each other do not change all the time.
const SLICE: Duration = Duration::from_micros(500);

/// The turn of the thread that acknowledges, which is shorter than any other's.
const SLICE_OF_IO: Duration = Duration::from_micros(100);

impl Server {
    /// Starts a server. `ask` is called, from any thread, when a client sends `shutdown`.
    ///
    /// # Errors
    /// Anything that keeps it from answering; nothing keeps running then.
    pub fn start(
        config: Config,
        ask: impl Fn(ControlEvent) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        Self::start_asking(config, Box::new(ask)) // so that no caller compiles the rest
    }

    fn start_asking(
        mut config: Config,
        ask: Box<dyn Fn(ControlEvent) + Send + Sync>,
    ) -> Result<Self, StartError> {
        settle(&mut config)?;
        let listeners = listen(&config)?;
        let admin = config.admin.map(listen_admin).transpose()?;
        let (udp, udp_addresses) = bind_udp_sockets(&config)?;
        let clock = Clock::start();
        let started = clock.now();
        let node = node::Opening::begin(&config, threads(&config), started)?;
        let mut opening = Opening::begin(&config)?;
        let seed = opening.as_ref().and_then(Opening::seed);
        let (tier, cas_floor) = open_tier(&config)?;
        let gateways = open_gateways(&config, started)?;
        let (store, restored) = open_store(&config, started, seed, cas_floor)?;
        let logins = read_logins(&config)?;
        let (acceptor_poller, worker_pollers) = open_pollers(threads(&config))?;
        let io_poller = watch_datagrams(opening.as_mut(), &worker_pollers, &config);
        let io_poller = io_poller.map_err(StartError::no_epoll)?;
        let streams = open_streams(opening.as_mut()).map_err(StartError::no_epoll)?;
        let wake_acceptor = acceptor_poller.waker(acceptor::WAKER);
        let wake_acceptor = wake_acceptor.map_err(StartError::no_epoll)?;
        store.account(bytes_of_writers(config.workers).cast_signed());
        let native_threads = threads(&config) + NATIVE_THREADS;
        let finished = opening.map(|opening| opening.finish(&config, &store, native_threads));
        let (native, native_note) = finished.transpose()?.map(Opened::split).unzip();
        let shared = Arc::new(Shared {
            native: native.map(Arc::from),
            store: Arc::new(store),
            clock,
            started,
            registry: Registry::default(),
            workers: handles_of(&worker_pollers).map_err(StartError::no_epoll)?,
            writers: Writers::over(curtail_memory::zeros(), Writers::WRITES_MAX),
            snapshots: snapshots_of(&config),
            control: ControlHandle::default(),
            doors: AcceptorHandle::new(wake_acceptor, node.is_none()),
            pages: PagesThread::default(),
            prefixes: Prefixes::new(config.detail, config.prefix_delimiter),
            logins: Mutex::new(logins.map(Arc::new)),
            baseline: Mutex::new(Counts::new()),
            verbosity: AtomicU8::new(config.verbosity),
            crawler: Crawler::new(config.echoed.lru_crawler),
            watchers: Watchers::new(config.watcher_bytes_max),
            slow: SlowLog::new(config.slow_us),
            limits: Limits::default(),
            cluster: node.as_ref().map(|node| Arc::clone(&node.cluster)),
            tier,
            spins: busy_poll::is_allowed(config.workers),
            stopping: AtomicBool::new(false),
            time_shift_seconds: AtomicI64::new(0),
            ask,
            config,
        });
        attach_tier(&shared);
        let mut server = Self {
            addresses: listeners.iter().filter_map(Listener::tcp_address).collect(),
            names: listeners.iter().map(name_of).collect(),
            admin_address: admin.as_ref().and_then(|admin| admin.local_addr().ok()),
            shared,
            threads: Vec::new(),
            restored,
            native_note: native_note.flatten(),
            udp_addresses,
            membership: None,
        };
        let pollers = (acceptor_poller, worker_pollers);
        let spawned = server.spawn(pollers, gateways, (io_poller, streams), listeners);
        let spawned = spawned.and_then(|()| server.spawn_admin(admin));
        let spawned = spawned.and_then(|()| server.spawn_udp(udp));
        spawned.map_err(StartError::no_thread)?;
        server.join_cluster(node)?;
        Ok(server)
    }

    fn join_cluster(&mut self, opening: Option<node::Opening>) -> Result<(), StartError> {
        if let (Some(opening), Some(node)) = (opening, &self.shared.config.node) {
            // A node may have a Unix socket alone; the others are told what its file says.
            let entry = node.entry().and_then(|entry| entry.clients_address().ok());
            let clients = self.addresses.first().copied().or(entry);
            let clients = clients.ok_or(StartError::NoAddress)?;
            let host: Arc<dyn NodeHost> = Arc::clone(&self.shared) as _;
            self.membership = Some(opening.join(node, clients, &host)?);
        }
        Ok(())
    }

    fn spawn_admin(&mut self, listener: Option<TcpListener>) -> io::Result<()> {
        let Some(listener) = listener else {
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        self.spawn_thread("admin".to_owned(), move || http::run(listener, shared))
    }

    fn spawn(
        &mut self,
        (acceptor_poller, worker_pollers): (Poller, Vec<Poller>),
        gateways: Vec<GatewayWorker>,
        native: (Option<Poller>, Option<Streams>),
        listeners: Vec<Listener>,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.spawn_thread("pages".to_owned(), move || prefault::run(&shared))?;
        let cpus = cpus_to_pin(&self.shared.config);
        let mut gateways = gateways.into_iter();
        for (index, poller) in worker_pollers.into_iter().enumerate() {
            let mut gateway = gateways.next().map(Box::new);
            if let Some(gateway) = &mut gateway {
                gateway.watch(&poller).map_err(|error| error.0)?;
            }
            let writer_id = self.writer_id(index);
            let writer = self.shared.store.writer(writer_id);
            let mut worker = Worker::new(index, Arc::clone(&self.shared), writer, poller);
            worker.gateway = gateway;
            let large_nice = self.shared.config.large_nice;
            let is_small = index < self.shared.config.workers;
            let cpu = cpus.get(index).copied().filter(|_| is_small);
            let name = match index.checked_sub(self.shared.config.workers) {
                None => format!("worker-{index}"),
                Some(number) => format!("large-{number}"),
            };
            let shared = Arc::clone(&self.shared);
            self.spawn_thread(name, move || {
                if let Some(handle) = shared.workers.get(index) {
                    let _ = handle.thread.set(ThreadId::current());
                }
                // Small requests wait for something large nowhere but on a processor, and there not
                // for the end of its turn. Where neither is to be had, all is only slower.
                let _ = match is_small {
                    true => curtail_runtime::set_slice(SLICE),
                    false => large_nice.take_on(),
                };
                if let Some(cpu) = cpu {
                    // Running elsewhere is only slower.
                    let _ = curtail_runtime::pin_current_thread(cpu);
                }
                event_loop::run(worker);
            })?;
        }
        self.spawn_native(native)?;
        let shared = Arc::clone(&self.shared);
        self.spawn_thread("control".to_owned(), move || control_loop::run(&shared))?;
        let mut acceptor = Acceptor::new(Arc::clone(&self.shared), acceptor_poller, listeners);
        acceptor.watch().map_err(|error| error.0)?;
        self.spawn_thread("acceptor".to_owned(), move || acceptor.run())
    }

    /// The thread that receives datagrams, if the workers do not, and the one of streams.
    fn spawn_native(
        &mut self,
        (poller, streams): (Option<Poller>, Option<Streams>),
    ) -> io::Result<()> {
        let first = threads(&self.shared.config);
        if let Some(poller) = poller {
            let (shared, store_cx) = self.native_context(first);
            self.spawn_thread("native-io".to_owned(), move || {
                // Where it shares a processor with a worker it acknowledges between two executions,
                // and not when the worker's turn is over. Without that, all is only slower.
                let _ = curtail_runtime::set_slice(SLICE_OF_IO);
                if let Some(native) = shared.native.as_deref() {
                    native::run_io_thread((&*shared, native), poller, store_cx, first);
                }
            })?;
        }
        if let Some(streams) = streams {
            let (shared, store_cx) = self.native_context(first + 1);
            self.spawn_thread("native-stream".to_owned(), move || {
                if let Some(native) = shared.native.as_deref() {
                    streams.run((&*shared, native), store_cx, first + 1);
                }
            })?;
        }
        Ok(())
    }

    /// The thread of memcached's own datagrams, if there are any.
    fn spawn_udp(&mut self, sockets: Vec<DatagramSocket>) -> io::Result<()> {
        if sockets.is_empty() {
            return Ok(());
        }
        let thread = threads(&self.shared.config) + NATIVE_THREADS - 1;
        let datagrams = MemcachedDatagrams::new(sockets)?;
        let (shared, writer) = self.native_writer(thread);
        self.spawn_thread("udp".to_owned(), move || {
            datagrams.run(&shared, writer, thread);
        })
    }

    /// What native thread `thread` executes with.
    fn native_context(&self, thread: usize) -> (Arc<Shared>, StoreContext) {
        let (shared, writer) = self.native_writer(thread);
        let store_cx = StoreContext::new(Arc::clone(&shared.store), writer, shared.now());
        (shared, store_cx)
    }

    fn native_writer(&self, thread: usize) -> (Arc<Shared>, Writer) {
        let id = self.writer_id(thread);
        (Arc::clone(&self.shared), self.shared.store.writer(id))
    }

    /// The writer of thread `index`; no two nodes of a cluster have the same.
    fn writer_id(&self, index: usize) -> WriterId {
        let node = self.shared.cluster.as_ref().map(|cluster| cluster.me);
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        WriterId::of(node.unwrap_or_default(), index)
    }

    fn spawn_thread(
        &mut self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let thread = thread::Builder::new().name(name).stack_size(STACK_BYTES);
        self.threads.push(thread.spawn(run)?);
        Ok(())
    }

    /// The TCP addresses it listens on, with the ports that the kernel chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it takes memcached's own datagrams.
    pub fn udp_addresses(&self) -> &[SocketAddr] {
        &self.udp_addresses
    }

    /// Everything it listens on, for people.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Where native datagrams are taken, and what an acknowledgement of one promises.
    pub fn native(&self) -> Option<NativeAtStart<'_>> {
        let native = self.shared.native.as_deref()?;
        Some(NativeAtStart {
            addresses: native.addresses(),
            mode: native.mode,
            promise: native.promise(),
            note: self.native_note.as_deref(),
        })
    }

    /// Where `/metrics` is served.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// For tests: which rows of `stats` which metric carries, as patterns with `*`; the metric's
    /// name, and its labels as far as they are fixed.
    #[doc(hidden)]
    pub fn stats_in_metrics() -> Vec<(&'static str, &'static str, &'static str)> {
        crate::exporter::prometheus::carried()
    }

    /// For tests: has a key become hot, or cease to be, if this server is its home.
    #[doc(hidden)]
    pub fn change_hot(&self, key: &[u8], hot: bool) {
        if let Some(cluster) = self.shared.cluster.as_deref() {
            cluster.change_hot(&*self.shared, key, hot);
        }
    }

    /// Whether it answers clients: always, unless it is a node that is not in service.
    pub fn is_in_service(&self) -> bool {
        let now = self.shared.clock.now().instant;
        let cluster = self.shared.cluster.as_deref();
        cluster.is_none_or(|cluster| cluster.holds_lease(now))
    }

    /// Has a node leave its cluster: no more clients are let in, its keys go to the other nodes,
    /// who is connected is served meanwhile. False if there is nothing to wait for: it is no node,
    /// or no member of a cluster now.
    pub fn leave(&self) -> bool {
        let membership = self.membership.as_ref();
        let cluster = self.shared.cluster.as_deref();
        let both = membership.zip(cluster);
        both.is_some_and(|(membership, cluster)| membership.leave(&*self.shared, cluster))
    }

    /// Whether it has left since [`leave`](Self::leave).
    pub fn has_left(&self) -> bool {
        let cluster = self.shared.cluster.as_deref();
        cluster.is_some_and(node::Cluster::has_left)
    }

    /// Writes that were applied again from the log of the disk tier, if there is one, and bytes
    /// that were cut off at its end because a crash had torn them.
    pub fn recovered(&self) -> Option<(u64, u64)> {
        let tier = self.shared.tier.as_ref()?;
        Some(tier.storage.recovered())
    }

    /// What became of the contents saved by an earlier process.
    pub fn restored(&self) -> &Restored {
        &self.restored
    }

    /// Seconds since the start.
    pub fn uptime_seconds(&self) -> u64 {
        self.shared.uptime_seconds()
    }

    /// Reads the authentication file again, and returns how many logins it has; `None` if there is
    /// none to read. On an error the old one stays in force. Clients that are logged in stay so.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn reload(&self) -> Result<Option<usize>, LoginsError> {
        let Some(path) = &self.shared.config.auth_file else {
            return Ok(None);
        };
        let logins = Logins::read(path)?;
        let count = logins.count();
        *lock(&self.shared.logins) = Some(Arc::new(logins));
        Ok(Some(count))
    }

    /// Stops: no new connections, what is in flight is answered, all connections are closed. Takes
    /// two seconds at most.
    pub fn stop(mut self) -> Stopped {
        self.shut();
        Stopped {
            shared: Arc::clone(&self.shared),
        }
    }

    fn shut(&mut self) {
        if let Some(membership) = self.membership.take() {
            membership.stop();
        }
        if let Some(native) = self.shared.native.as_deref() {
            native.begin_to_stop();
        }
        self.shared.stopping.store(true, Relaxed);
        self.shared.doors.waker.wake();
        self.shared.pages.wake();
        self.shared
            .workers
            .iter()
            .for_each(|worker| worker.mail.wake());
        self.shared.control.wake();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
        if let Some(tier) = &self.shared.tier {
            tier.storage.close();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut();
    }
}

/// A server that has stopped and still has its contents.
pub struct Stopped {
    shared: Arc<Shared>,
}

impl Stopped {
    /// Saves the contents where the configuration says, and returns where that was; `None` when it
    /// says nothing.
    ///
    /// # Errors
    /// The disk is full, or the file cannot be written; nothing is left behind then.
    pub fn save(&self) -> Result<Option<PathBuf>, StoreError> {
        let Some(path) = self.shared.config.memory_file.clone() else {
            return Ok(None);
        };
        self.shared.store.save(&path, self.shared.clock.now())?;
        Ok(Some(path))
    }
}

/// What is seen of each worker, with what wakes it.
fn handles_of(pollers: &[Poller]) -> io::Result<Vec<WorkerHandle>> {
    let handle = |poller: &Poller| {
        let waker = poller.waker(WAKER)?;
        Ok(WorkerHandle::new(waker, poller.registrar()?))
    };
    pollers.iter().map(handle).collect()
}

fn listen(config: &Config) -> Result<Vec<Listener>, StartError> {
    let mut listeners = Vec::new();
    let options = SocketOptions {
        backlog: config.backlog,
        // A client that reaches a node must get an answer, so a node listens once it is in service.
        listens: config.node.is_none(),
    };
    for listen in &config.listen {
        match bind_tcp(listen.address, options) {
            Ok(listener) => listeners.push(listener),
            Err(BindError::NotHere(_)) if listen.optional => {}
            Err(error) => return Err(StartError::Bind(listen.address.to_string(), error)),
        }
    }
    if let Some(unix) = &config.unix {
        let listener = bind_unix(&unix.path, unix.mode, options)
            .map_err(|error| StartError::Bind(unix.path.display().to_string(), error))?;
        listeners.push(listener);
    }
    if listeners.is_empty() && !config.listen.is_empty() {
        return Err(StartError::NoAddress);
    }
    Ok(listeners)
}

fn snapshots_of(config: &Config) -> PlanSnapshots {
    let workers = u16::try_from(config.workers).unwrap_or(u16::MAX);
    PlanSnapshots::new(config.policy, workers, config.threshold_first())
}

fn listen_admin(address: SocketAddr) -> Result<TcpListener, StartError> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(|error: io::Error| {
        StartError::Bind(format!("{address} (admin port)"), BindError::Other(error))
    })
}

/// Workers and large workers. There are as many of the latter as a plan can make large cores, and
/// one to help the first when that has a queue.
fn threads(config: &Config) -> usize {
    let larges = config.workers.saturating_sub(1);
    config.workers + larges.clamp(LARGE_WORKERS_MIN, LARGE_WORKERS_MAX)
}

/// Large workers at least. They sleep until there is something for them.
const LARGE_WORKERS_MIN: usize = 2;

/// Threads for datagrams and streams that write to the store: of the native path one each, and one
/// of memcached's own datagrams.
const NATIVE_THREADS: usize = 3;

/// Sockets for memcached's own datagrams, if they are asked for, and their addresses.
fn bind_udp_sockets(config: &Config) -> Result<(Vec<DatagramSocket>, Vec<SocketAddr>), StartError> {
    let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
    let Some(mut port) = config.udp_port else {
        return Ok((sockets, addresses));
    };
    for listen in &config.listen {
        let wanted = SocketAddr::new(listen.address.ip(), port);
        match bind_udp(wanted, DatagramOptions::default()) {
            Ok(socket) => {
                let address = socket.address().unwrap_or(wanted);
                port = address.port();
                addresses.push(address);
                sockets.push(socket);
            }
            Err(_) if listen.optional => {}
            Err(error) => return Err(StartError::Bind(format!("{wanted} (UDP)"), error)),
        }
    }
    Ok((sockets, addresses))
}

/// What takes streams of the native path, if it is on.
fn open_streams(opening: Option<&mut Opening>) -> io::Result<Option<Streams>> {
    let listeners = opening.map(Opening::take_listeners);
    listeners.map(Streams::new).transpose()
}

/// Has the workers told of datagrams if they receive them, or a poller of its own that is returned.
fn watch_datagrams(
    opening: Option<&mut Opening>,
    workers: &[Poller],
    config: &Config,
) -> io::Result<Option<Poller>> {
    let Some(opening) = opening else {
        return Ok(None);
    };
    if opening.workers_receive() {
        for (worker, poller) in workers.iter().enumerate().take(config.workers) {
            opening.watch(poller, worker)?;
        }
        return Ok(None);
    }
    let poller = Poller::new()?;
    opening.watch(&poller, 0)?;
    Ok(Some(poller))
}

/// Large workers at most.
const LARGE_WORKERS_MAX: usize = 16;

fn open_pollers(workers: usize) -> Result<(Poller, Vec<Poller>), StartError> {
    let workers: io::Result<_> = (0..workers).map(|_| Poller::new()).collect();
    let acceptor = Poller::new().map_err(StartError::no_epoll)?;
    Ok((acceptor, workers.map_err(StartError::no_epoll)?))
}

/// Restores what was saved, or starts empty. The file is removed once it is read: contents that
/// have aged since must not come back after a crash.
fn open_store(
    config: &Config,
    now: Now,
    seed: Option<HashSeed>,
    cas_floor: Cas,
) -> Result<(Store, Restored), StartError> {
    let drawn = random_seed().map_err(StartError::no_random)?;
    let store_config = StoreConfig {
        memory_bytes_max: config.memory_bytes_max,
        item_bytes_max: config.item_bytes_max,
        evict: config.evict,
        hash_seed: seed.unwrap_or(drawn),
        // Nodes name keys by their route hashes.
        hash_by_route: config.node.is_some(),
        writers_max: threads(config) + NATIVE_THREADS,
        huge_pages: config.huge_pages,
        cas_floor,
    };
    let saved = config.memory_file.as_deref().filter(|path| path.exists());
    let restored = saved.map(|path| {
        let store = Store::restore(path, store_config.clone(), now)?;
        std::fs::remove_file(path).map_err(StoreError::Remove)?;
        Ok(store)
    });
    let (store, restored) = match restored {
        Some(Ok(store)) => {
            let items = store.counters().items_now;
            (store, Restored::Items(items))
        }
        Some(Err(error)) => {
            let store = Store::new(store_config).map_err(StartError::Store)?;
            (store, Restored::Failed(error))
        }
        None => {
            let store = Store::new(store_config).map_err(StartError::Store)?;
            (store, Restored::Nothing)
        }
    };
    if config.node.is_some() {
        store.set_slices(SLICES, node::STAGES as u16);
    }
    Ok((store, restored))
}

/// Refuses what a disk tier cannot have beside it.
///
/// # Errors
/// The first such thing.
pub fn check_tier(config: &Config) -> Result<(), StartError> {
    if config.disk.is_none() {
        return Ok(());
    }
    let refused = [
        (
            config.cache_tier.is_some(),
            "it cannot be given together with --tier-file",
        ),
        (
            config.node.is_some(),
            "it cannot be given together with --cluster",
        ),
        (
            config.native.is_some(),
            "it cannot be given together with --native",
        ),
        (
            config.udp_port.is_some(),
            "it cannot be given together with -U",
        ),
        (
            config.memory_file.is_some(),
            "it cannot be given together with -e: the data directory has every item",
        ),
        (
            !config.evict,
            "it cannot be given together with -M: memory is a cache of the disk",
        ),
    ];
    match refused.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, why)) => Err(StartError::Disk(why)),
        None => Ok(()),
    }
}

/// Refuses what a gateway cannot have beside it.
///
/// # Errors
/// The first such thing.
pub fn check_gateway(config: &Config) -> Result<(), StartError> {
    if config.cache_tier.is_none() {
        return Ok(());
    }
    let refused = [
        (config.node.is_some(), "--cluster"),
        (config.native.is_some(), "--native"),
        (config.udp_port.is_some(), "-U"),
        (config.memory_file.is_some(), "-e"),
    ];
    match refused.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, flag)) => Err(StartError::Gateway(format!(
            "it cannot be given together with {flag}: the items are in the tier"
        ))),
        None => Ok(()),
    }
}

/// The way of each worker to the tier.
fn open_gateways(config: &Config, now: Now) -> Result<Vec<GatewayWorker>, StartError> {
    let Some(target) = config.cache_tier else {
        return Ok(Vec::new());
    };
    let HashSeed([random, _]) = random_seed().map_err(StartError::no_random)?;
    (0..config.workers as u64)
        .map(|worker| {
            GatewayWorker::open(target, random.wrapping_add(worker), (now, config.faults))
        })
        .collect::<io::Result<_>>()
        .map_err(|error| StartError::Gateway(format!("no socket to the tier's switch: {error}")))
}

/// Sets what follows from the machine and from other settings. With a disk tier requests run where
/// they arrive, because the lock of a key orders its writes; at a gateway nothing runs.
fn settle(config: &mut Config) -> Result<(), StartError> {
    config.large_nice = config.large_nice.possible();
    check_tier(config)?;
    check_gateway(config)?;
    if config.cache_tier.is_some() {
        config.item_bytes_max = config.item_bytes_max.min(BODY_BYTES_MAX);
    }
    if config.disk.is_none() && config.cache_tier.is_none() {
        return Ok(());
    }
    config.policy = PolicyName {
        policy: Policy::Crcw,
        sizes: Sizes::Together,
    };
    config.policy_change_allowed = false;
    config.compaction = false;
    Ok(())
}

/// The disk tier, if there is one, and the highest CAS that it has given out.
fn open_tier(config: &Config) -> Result<(Option<Arc<DiskTier>>, Cas), StartError> {
    let Some(disk) = config.disk.clone() else {
        return Ok((None, Cas(0)));
    };
    let tier = DiskTier::open(disk, threads(config)).map_err(StartError::Storage)?;
    let highest_cas = Cas(tier.storage.highest_cas());
    Ok((Some(Arc::new(tier)), highest_cas))
}

/// Says where the disk's answers go.
fn attach_tier(shared: &Arc<Shared>) {
    if let Some(tier) = &shared.tier {
        let host: Arc<dyn DiskHost> = Arc::clone(shared) as _;
        tier.attach(Arc::downgrade(&host));
    }
}

/// The processors that workers keep to, one each; none unless one is left for others: a worker that
/// may not move waits where somebody else runs, beside a processor that is idle.
fn cpus_to_pin(config: &Config) -> Vec<usize> {
    let cpus = curtail_runtime::cpus_allowed();
    if config.pin && config.workers < cpus.len().min(curtail_runtime::cpus_usable()) {
        cpus
    } else {
        Vec::new()
    }
}

/// Who may log in, if a login is needed.
fn read_logins(config: &Config) -> Result<Option<Logins>, StartError> {
    let logins = config.auth_file.as_deref().map(Logins::read);
    logins.transpose().map_err(StartError::Logins)
}
