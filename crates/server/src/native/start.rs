//! Starting the path: sockets first, so that a port that is taken is said at once; then the memory,
//! because it may know the secrets that the store has to hash by; then the rest, with the store.

use std::net::SocketAddr;

use curtail_codec::native::Cookies;
use curtail_dispatch::Worker as Id;
use curtail_ordered_queue::{
    EarlyLimits, ExecutionTime, OrderedQueue, QueueState, layout, recover,
};
use curtail_runtime::{
    BindError, Clock, DatagramOptions, DatagramSocket, Listener, Poller, Token, bind_udp,
    monotonic_ns,
};
use curtail_store::Store;
use curtail_types::HashSeed;

#[cfg(feature = "baselines")]
use crate::native::baselines;
use crate::{
    config::{Config, seed::random_seed, start_error::StartError},
    log::Limit,
    native::{
        Native, NativeConfig, NativeMode, Streams,
        counters::PublishedNativeCounts,
        execution_pace::ExecutionPace,
        handshake::{Grants, answers_for},
        queue_memory::{Anonymous, QueueMemory, Secrets, Shape},
        reply_cache::Answers,
        reply_sender,
        session_local_addresses::Locals,
        xdp::NicMemory,
    },
    sync::{AtomicU64, Mutex, Relaxed},
    test_faults::Fault,
};

/// The path on its way to being started.
pub(crate) struct Opening {
    config: NativeConfig,
    mode: NativeMode,
    /// Why the mode is not the one that was hoped for, or where the queues are.
    note: Option<String>,
    shape: Shape,
    memory: Box<dyn QueueMemory>,
    sockets: Vec<DatagramSocket>,
    addresses: Vec<SocketAddr>,
    listeners: Vec<Listener>,
}

/// Sockets at the same addresses: of datagrams, for each thread that receives, and of streams.
struct Bound {
    sockets: Vec<DatagramSocket>,
    addresses: Vec<SocketAddr>,
    listeners: Vec<Listener>,
}

/// The path, and what an operator should be told about how it started.
pub(crate) struct Opened {
    pub(crate) native: Native,
    pub(crate) note: Option<String>,
}

/// Bytes that the kernel is asked to hold for a socket: a few thousand short datagrams.
const RECEIVE_BYTES: usize = 4 << 20;

impl Opened {
    /// Both parts.
    pub(crate) fn split(self) -> (Box<Native>, Option<String>) {
        (Box::new(self.native), self.note)
    }
}

/// Checks without a start whether the native path can be as `config` describes it.
///
/// # Errors
/// When it cannot be, in words for an operator.
pub fn check_native(config: &Config) -> Result<(), StartError> {
    let native = config.native.as_ref();
    native.map_or(Ok(()), |native| shape_of(config, native).map(drop))
}

fn shape_of(config: &Config, native: &NativeConfig) -> Result<Shape, StartError> {
    if let Some(fault) = native.fault() {
        return Err(StartError::Native(fault.to_owned()));
    }
    let has_thread = !native.mode.is_some_and(NativeMode::workers_receive);
    if config.node.is_some() && !has_thread {
        return Err(StartError::Native(
            "a cluster node (--cluster) cannot use this --native-mode: give io-ack or xdp"
                .to_owned(),
        ));
    }
    let shape = Shape {
        queues: native.queues,
        slots: native.slots_under(config.memory_bytes_max),
        sessions: native.sessions,
    };
    let bytes = shape.bytes() + shape.sessions * Answers::session_bytes();
    if bytes > config.memory_bytes_max / 2 {
        return Err(StartError::Native(format!(
            "queues of {} slots and {} sessions take {} MiB, more than half of -m; lower \
             --native-slots or -o native_sessions, or raise -m",
            shape.slots,
            shape.sessions,
            bytes.div_ceil(1 << 20)
        )));
    }
    Ok(shape)
}

impl Opening {
    /// Binds the sockets and makes the memory; `None` if the path is not asked for.
    pub(crate) fn begin(config: &Config) -> Result<Option<Self>, StartError> {
        let Some(native) = &config.native else {
            return Ok(None);
        };
        let shape = shape_of(config, native)?;
        let receives = native.mode.unwrap_or(NativeMode::IoAck);
        let Bound {
            sockets,
            addresses,
            listeners,
        } = bind(config, native, receives)?;
        let port = addresses.first().map_or(0, SocketAddr::port);
        let Chosen { mode, memory, note } = choose(config, native, shape, port)?;
        Ok(Some(Self {
            config: native.clone(),
            mode,
            note,
            shape,
            memory,
            sockets,
            addresses,
            listeners,
        }))
    }

    /// The seed that keys must be hashed with, if the memory was found.
    pub(crate) fn seed(&self) -> Option<HashSeed> {
        self.memory.secrets().map(|secrets| secrets.seed)
    }

    /// The listeners of streams, for their thread.
    pub(crate) fn take_listeners(&mut self) -> Vec<Listener> {
        std::mem::take(&mut self.listeners)
    }

    /// Who receives: whether the workers do.
    pub(crate) fn workers_receive(&self) -> bool {
        self.config.workers_receive(self.mode)
    }

    /// Has `poller` tell of datagrams for thread `receiver` of those that receive.
    pub(crate) fn watch(&mut self, poller: &Poller, receiver: usize) -> std::io::Result<()> {
        let count = self.addresses.len();
        let own = self.sockets.iter_mut().skip(receiver * count).take(count);
        for (number, socket) in own.enumerate() {
            let token = Token(DATAGRAMS.0 - number);
            socket.watch(poller, token).map_err(|error| error.0)?;
        }
        Ok(())
    }

    /// Opens the queues; from here on writes are taken.
    pub(crate) fn finish(
        self,
        config: &Config,
        store: &Store,
        threads: usize,
    ) -> Result<Opened, StartError> {
        let seed = store.config().hash_seed;
        let secrets = match self.memory.secrets() {
            Some(kept) if kept.seed != seed => {
                let dir = self.config.pin.display();
                return Err(StartError::Native(format!(
                    "the -e file and the queues in {dir} are of different servers; remove the file \
                     (its items are lost) or {dir} (the writes that wait there are lost)"
                )));
            }
            Some(kept) => kept,
            None => Secrets {
                seed,
                tokens: random_seed().map_err(StartError::no_random)?,
            },
        };
        self.memory.adopt(secrets);
        let beginning = self.note.clone();
        let [drawn, _] = random_seed().map_err(StartError::no_random)?.0;
        let is_anywhere = |address: &SocketAddr| address.ip().is_unspecified();
        let locals = match self.addresses.iter().any(is_anywhere) {
            true => Locals::new(self.config.sessions),
            false => Locals::new(0),
        };
        let mut native = Native {
            early: self.early_limits(config),
            paces: (0..self.config.queues)
                .map(|_| ExecutionPace::default())
                .collect(),
            mode: self.mode,
            flushes: Limit::default(),
            queue_words: layout::queue_words(self.shape.slots),
            incarnation: drawn | 1,
            seed,
            cookies: Cookies::new(secrets.tokens),
            sockets: self.sockets,
            addresses: self.addresses,
            answers: answers_for(self.config.sessions),
            locals,
            grants: Mutex::new(Grants::default()),
            #[cfg(feature = "baselines")]
            software: baselines::hand_off_and_stealing::software_queues(
                &self.config,
                self.mode,
                config.workers,
            ),
            published: (0..threads).map(|_| PublishedNativeCounts::new()).collect(),
            verifies: self.memory.acknowledges() || config.faults.has(Fault::DamagesMemory),
            item_bytes_max: config.item_bytes_max,
            flush_allowed: config.flush_allowed,
            is_on_node: config.node.is_some(),
            corrupt: AtomicU64::new(0),
            faults: config.faults,
            memory: self.memory,
            config: self.config,
        };
        let mut notes = Vec::from_iter(beginning);
        notes.extend(native.open_queues(threads)?);
        if !config.evict && config.node.is_none() {
            notes.push(
                "with -M a native write could fail for lack of memory after its acknowledgement, \
                 so each is acknowledged after it is executed"
                    .to_owned(),
            );
        }
        native.take_writes();
        let bytes = isize::try_from(native.memory_bytes()).unwrap_or(isize::MAX);
        store.account(bytes);
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok(Opened { native, note })
    }

    /// What may fail for want of memory is not promised, and RawRPC promises nothing.
    fn early_limits(&self, config: &Config) -> EarlyLimits {
        let (slots, memory_bytes_max) = (self.shape.slots, config.memory_bytes_max);
        let limits = self.config.early_limits(slots, memory_bytes_max);
        match config.evict && self.mode != NativeMode::Raw {
            true => limits,
            false => EarlyLimits {
                entries_max: 0,
                ..limits
            },
        }
    }
}

impl Native {
    /// Opens the queues, with the limits that hold until executions were timed.
    fn take_writes(&self) {
        let (early, now_ns) = (self.early, monotonic_ns());
        self.memory.beat(Clock::start().now().unix_ns);
        for queue in self.all_queues() {
            queue.set_backlog_max(early.entries(ExecutionTime::default()));
            queue.set_credits(early.credits(queue.accepted_bytes()));
            queue.beat(now_ns);
            queue.set_state(QueueState::Open);
        }
    }

    /// Makes the queues in fresh memory, or takes over those of an earlier process.
    fn open_queues(&mut self, threads: usize) -> Result<Option<String>, StartError> {
        let slots = self.slots();
        if !self.memory.is_found() {
            for words in self.memory.queues().chunks_exact(self.queue_words) {
                OrderedQueue::format(words, slots, self.incarnation);
            }
            return Ok(None);
        }
        let queues = self.all_queues();
        if queues.len() != self.config.queues {
            return Err(StartError::Native(format!(
                "the queues in {dir} were made with other --native-queues or --native-slots; give \
                 the same again, or remove {dir} (the writes that wait there are lost)",
                dir = self.config.pin.display()
            )));
        }
        queues
            .iter()
            .for_each(|queue| queue.set_state(QueueState::Closed));
        self.memory
            .gates()
            .iter()
            .for_each(|gate| gate.store(0, Relaxed));
        self.memory.quiesce();
        if self.is_on_node {
            drop(queues);
            return Ok(Some(self.drop_found(slots)));
        }
        let heir = Id(u16::try_from(threads).unwrap_or(u16::MAX - 1));
        let found = recover(&queues, self.stamps(), self.sessions(), heir);
        // Sessions go on, but the answers that were kept for them died with their process.
        self.sessions()
            .granted()
            .for_each(|name| self.answers.open(name));
        let incarnation = queues
            .first()
            .map_or(self.incarnation, OrderedQueue::incarnation);
        drop(queues);
        self.incarnation = incarnation;
        Ok(Some(format!(
            "found the queues of an earlier process: the {} writes that wait in them are executed \
             first; the contents of that process's store are lost",
            found.entries
        )))
    }

    /// Makes the queues of an earlier process empty: another life of the node has accepted what is
    /// in them, and its slices are lost.
    fn drop_found(&self, slots: u64) -> String {
        let queues = self.all_queues().into_iter();
        let found: u64 = queues
            .map(|queue| queue.backlog())
            .map(|backlog| backlog.tail.saturating_sub(backlog.head))
            .sum();
        let words = self.memory.stamps().iter().chain(self.memory.sessions());
        words.for_each(|word| word.store(0, Relaxed));
        for words in self.memory.queues().chunks_exact(self.queue_words) {
            OrderedQueue::format(words, slots, self.incarnation);
        }
        format!(
            "found the queues of an earlier process: the {found} writes that wait in them are \
             lost, like the slices that only this node held"
        )
    }

    /// Slots of a queue.
    fn slots(&self) -> u64 {
        ((self.queue_words - layout::CONTROL_WORDS) / layout::SLOT_WORDS) as u64
    }
}

/// The token of the first datagram socket of a thread; those of the others are below.
pub(super) const DATAGRAMS: Token = Token(usize::MAX - 1);

/// Who acknowledges, where the queues are, and what to tell of it.
struct Chosen {
    mode: NativeMode,
    memory: Box<dyn QueueMemory>,
    note: Option<String>,
}

/// The mode and its memory. Where none was asked for, the network card's
/// program is tried if there is an interface, and a thread takes its place if it cannot be had.
fn choose(
    config: &Config,
    native: &NativeConfig,
    shape: Shape,
    port: u16,
) -> Result<Chosen, StartError> {
    let anonymous = |mode, note| Chosen {
        mode,
        memory: Box::new(Anonymous::new(shape)),
        note,
    };
    let interface = match (native.mode, native.interface.as_deref()) {
        (None | Some(NativeMode::Xdp), Some(interface)) => interface,
        (None, None) => return Ok(anonymous(NativeMode::IoAck, None)),
        (Some(NativeMode::Xdp), None) => {
            return Err(StartError::Native(
                "mode xdp needs --native-interface NAME".to_owned(),
            ));
        }
        (Some(mode), _) => return Ok(anonymous(mode, None)),
    };
    let limits = (config.item_bytes_max, config.node.is_some());
    match NicMemory::start(native, interface, shape, port, limits) {
        Ok(memory) => {
            let note = memory.place();
            Ok(Chosen {
                mode: NativeMode::Xdp,
                memory: Box::new(memory),
                note,
            })
        }
        Err(why) if native.mode.is_some() => Err(StartError::Native(why)),
        Err(why) => {
            let note = format!("a thread acknowledges instead of the XDP program, because {why}");
            Ok(anonymous(NativeMode::IoAck, Some(note)))
        }
    }
}

/// Binds everything. A port that the kernel chooses for datagrams may be taken for streams; then
/// it has to choose again.
fn bind(config: &Config, native: &NativeConfig, mode: NativeMode) -> Result<Bound, StartError> {
    let mut tries = 0;
    loop {
        let (sockets, addresses) = bind_datagrams(config, native, mode)?;
        tries += 1;
        match Streams::listen(&addresses, config.backlog) {
            Ok(listeners) => {
                return Ok(Bound {
                    sockets,
                    addresses,
                    listeners,
                });
            }
            Err((_, BindError::InUse(_))) if native.port == 0 && tries < TRIES_MAX => {}
            Err((address, error)) => {
                let what = format!("{address} (TCP, --native)");
                return Err(StartError::Bind(what, error));
            }
        }
    }
}

/// How often the kernel is asked for a port that both may have.
const TRIES_MAX: u32 = 32;

/// Binds a socket at each address, for each thread that receives.
fn bind_datagrams(
    config: &Config,
    native: &NativeConfig,
    mode: NativeMode,
) -> Result<(Vec<DatagramSocket>, Vec<SocketAddr>), StartError> {
    let receivers = match native.workers_receive(mode) {
        true => config.workers,
        false => 1,
    };
    let options = DatagramOptions {
        shared: receivers > 1,
        receive_bytes: RECEIVE_BYTES,
    };
    let mut port = native.port;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    let mut sockets = Vec::new();
    let refused =
        |address: SocketAddr, error| StartError::Bind(format!("{address} (UDP, --native)"), error);
    for listen in &config.listen {
        let wanted = SocketAddr::new(listen.address.ip(), port);
        if addresses.iter().any(|known| known.ip() == wanted.ip()) {
            continue;
        }
        match bind_udp(wanted, options) {
            Ok(socket) => {
                let address = socket.address().unwrap_or(wanted);
                port = address.port();
                addresses.push(address);
                sockets.push(socket);
            }
            Err(_) if listen.optional => {}
            Err(error) => return Err(refused(wanted, error)),
        }
    }
    if addresses.is_empty() {
        return Err(StartError::NoAddress);
    }
    for _ in 1..receivers {
        for address in &addresses {
            let socket = bind_udp(*address, options);
            sockets.push(socket.map_err(|error| refused(*address, error))?);
        }
    }
    if let (Some(by), true) = (native.choice.steer(), receivers > 1) {
        let steering = reply_sender::steering(by, receivers);
        for socket in sockets.iter().take(addresses.len()) {
            let steered = socket.steer(&steering);
            steered.map_err(StartError::system("distribute datagrams to workers"))?;
        }
    }
    Ok((sockets, addresses))
}
