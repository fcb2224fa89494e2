//! One session shared by all the threads of a process, with a thread of its own that sends and
//! receives for them.
//!
//! ```text
//!   threads --- cells, ring ---> owner: Link ===== UDP, TCP ===== server
//!           <-- answers -------
//! ```
//!
//! Without it every thread would need a session, and the server would keep clients times threads of
//! them (JB-15). What it costs is two hand-overs a request; `benches/session_sharing.rs` measures
//! them.
//!
//! Invariants. The owner alone touches the sockets. A request that was published ends once, also
//! when the owner ends: what it had sent of writes is then indeterminate.

use std::{
    collections::VecDeque,
    fmt,
    net::ToSocketAddrs,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant as Clock},
};

use curtail_codec::native::{Class, Place, Promise};
use curtail_types::HashSeed;
use rustix::event::{EventfdFlags, eventfd};

use crate::{
    command::Command,
    config::Config,
    error::ClientError,
    machine::Counts,
    outcome::{Accepted, Answer, Event},
    pending_request::{Call, Write},
    polled_session::{self, Link},
    request_cells::{CallEnd, Cells, RingEntry},
};

/// A session with a server. Cloning it gives another handle to the same session.
///
/// ```no_run
/// use curtail_client::{Command, Session};
///
/// # fn main() -> Result<(), curtail_client::ClientError> {
/// let session = Session::connect("127.0.0.1:11400")?;
///
/// // A set may tell only that it is accepted: the server executes it later, in order, once.
/// let first = session.set(b"greeting", b"hello")?;
/// let second = session.set(b"other", b"value")?; // both are under way
/// first.accepted()?;
/// second.accepted()?;
///
/// // What has an answer waits for execution.
/// let found = session.get(b"greeting")?.result()?;
/// assert_eq!(found.value, b"hello");
/// let visits = session.call(&Command::increment(b"visits", 1))?.result()?;
/// println!("{:?} {}", visits.status, visits.number);
///
/// // A write whose answer is not needed is acknowledged earlier.
/// session.write(&Command::delete(b"greeting").marked())?.accepted()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    shared: Arc<SessionShared>,
    owner: Arc<Owner>,
}

/// What the threads and the owner share.
pub(crate) struct SessionShared {
    pub(crate) cells: Cells,
    pub(crate) config: Config,
    seed: HashSeed,
    bell: OwnedFd,
    /// The owner sleeps, or is about to.
    sleeps: AtomicBool,
    stops: AtomicBool,
    has_ended: AtomicBool,
    /// Requests that wait in the client for a slot or for a window.
    backlog: AtomicUsize,
    counts: Mutex<Counts>,
}

/// Ends the owner's thread when the last session handle goes.
struct Owner {
    shared: Arc<SessionShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The owner's side.
struct Delegate {
    shared: Arc<SessionShared>,
    link: Link,
    taken: RingEntry,
    /// Published requests that have no slot yet, and when they were taken from the ring.
    backlog: VecDeque<(u32, u64)>,
}

impl Session {
    /// A session at `server` with the default configuration; waits until it is open.
    pub fn connect(server: impl ToSocketAddrs) -> Result<Self, ClientError> {
        Self::open(server, Config::default())
    }

    /// A session at `server`; waits until it is open.
    pub fn open(server: impl ToSocketAddrs, config: Config) -> Result<Self, ClientError> {
        let link = Link::open(server, config)?;
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let bell = eventfd(0, flags).map_err(|error| machine("making a bell", error))?;
        let count = config.handles_max.clamp(64, 1 << 16).next_power_of_two();
        let shared = Arc::new(SessionShared {
            cells: Cells::new(count),
            config,
            seed: link.seed(),
            bell,
            sleeps: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            backlog: AtomicUsize::new(0),
            counts: Mutex::new(link.counts()),
        });
        let delegate = Delegate {
            shared: Arc::clone(&shared),
            link,
            taken: RingEntry::default(),
            backlog: VecDeque::with_capacity(count),
        };
        let thread = thread::Builder::new()
            .name("curtail-session".into())
            .spawn(move || delegate.run())
            .map_err(ClientError::machine("starting a thread"))?;
        let owner = Arc::new(Owner {
            shared: Arc::clone(&shared),
            thread: Mutex::new(Some(thread)),
        });
        Ok(Self { shared, owner })
    }

    /// Stores; ends when the write is accepted.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<Write, ClientError> {
        self.write(&Command::set(key, value).marked())
    }

    /// Reads.
    pub fn get(&self, key: &[u8]) -> Result<Call, ClientError> {
        self.call(&Command::get(key))
    }

    /// Removes, and tells whether there was something.
    pub fn delete(&self, key: &[u8]) -> Result<Call, ClientError> {
        self.call(&Command::delete(key))
    }

    /// Adds to a decimal number, and tells what it is now.
    pub fn increment(&self, key: &[u8], delta: u64) -> Result<Call, ClientError> {
        self.call(&Command::increment(key, delta))
    }

    /// Begins a marked write. Waits while as many requests are under way as handles may be kept.
    ///
    /// # Errors
    /// [`ClientError::Mark`] if it is not [marked](Command::marked), or may not be;
    /// [`ClientError::Handles`] if every handle is kept with its answer.
    pub fn write(&self, command: &Command<'_>) -> Result<Write, ClientError> {
        self.begin(command, true, true)
            .map(|index| Write::new(&self.shared, index))
    }

    /// Begins a request that has an answer; otherwise as [`Session::write`].
    pub fn call(&self, command: &Command<'_>) -> Result<Call, ClientError> {
        self.begin(command, false, true)
            .map(|index| Call::new(&self.shared, index))
    }

    /// [`Session::write`] that never waits: [`ClientError::Busy`] if there is no room.
    pub fn try_write(&self, command: &Command<'_>) -> Result<Write, ClientError> {
        self.begin(command, true, false)
            .map(|index| Write::new(&self.shared, index))
    }

    /// [`Session::call`] that never waits: [`ClientError::Busy`] if there is no room.
    pub fn try_call(&self, command: &Command<'_>) -> Result<Call, ClientError> {
        self.begin(command, false, false)
            .map(|index| Call::new(&self.shared, index))
    }

    /// How far a queue is: the answer's number is the first position that is not executed yet.
    pub fn queue(&self, queue: u16) -> Result<Answer, ClientError> {
        self.call(&Command::ping(queue))?.result()
    }

    /// Waits until an accepted write has been executed, by asking its queue again and again; it
    /// promises that then.
    ///
    /// # Errors
    /// [`ClientError::NotExecuted`] if it is not within that time; [`ClientError::Incarnation`] if
    /// the queues were lost meanwhile, and with them perhaps the write.
    pub fn executed(&self, accepted: Accepted, within: Duration) -> Result<Accepted, ClientError> {
        if matches!(accepted.promise, Promise::Executed | Promise::Replicated) {
            return Ok(accepted);
        }
        let place = accepted.place;
        let is_executed = |told: &Answer| told.number > place.pos;
        match self.ask_until(&place, within, is_executed)? {
            true => Ok(Accepted {
                promise: Promise::Executed,
                place,
            }),
            false => Err(ClientError::NotExecuted),
        }
    }

    /// Waits until an accepted write is durable, by asking its queue again and again.
    ///
    /// # Errors
    /// [`ClientError::NotDurable`] if it is not within that time; [`ClientError::Incarnation`] if
    /// the queues were lost meanwhile, and with them perhaps the write.
    pub fn durable(&self, accepted: Accepted, within: Duration) -> Result<(), ClientError> {
        if accepted.promise == Promise::Durable {
            return Ok(());
        }
        let is_durable = |told: &Answer| accepted.is_durable_at(&told.place);
        match self.ask_until(&accepted.place, within, is_durable)? {
            true => Ok(()),
            false => Err(ClientError::NotDurable),
        }
    }

    /// Asks a write's queue again and again until its answer is right; whether that was in time.
    fn ask_until(
        &self,
        place: &Place,
        within: Duration,
        is_right: impl Fn(&Answer) -> bool,
    ) -> Result<bool, ClientError> {
        if place.queue == Place::NO_QUEUE {
            // Nothing more will be told.
            return Ok(false);
        }
        let start = Clock::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let told = self.queue(place.queue)?;
            if told.place.incarnation != place.incarnation {
                return Err(ClientError::Incarnation);
            }
            if is_right(&told) {
                return Ok(true);
            }
            let left = within.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// What the session has done so far, as of its last turn.
    pub fn counts(&self) -> Counts {
        *self
            .shared
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that wait in the client: for a slot, or because their queue is full.
    pub fn backlog(&self) -> usize {
        self.shared.backlog.load(Ordering::Relaxed)
    }

    /// Ends the session for every thread that has it.
    pub fn close(&self) {
        self.owner.stop();
    }

    fn begin(&self, command: &Command<'_>, marked: bool, waits: bool) -> Result<u32, ClientError> {
        polled_session::check(command)?;
        let is_nilext = matches!(command.class(), Class::Nilext | Class::NilextNonidempotent);
        if is_nilext != marked {
            return Err(ClientError::Mark);
        }
        let index = match waits {
            true => self.shared.reserve()?,
            false => self.shared.cells.reserve().ok_or(ClientError::Busy)?,
        };
        let key_hash = self.shared.seed.hash(command.key).0;
        self.shared.cells.publish(index, command, key_hash);
        self.shared.ring();
        // SeqCst pairs with the owner's end: it drains the ring once more after this is set.
        if self.shared.has_ended.load(Ordering::SeqCst) {
            drop(Call::new(&self.shared, index));
            return Err(ClientError::Closed);
        }
        Ok(index)
    }
}

impl SessionShared {
    fn reserve(&self) -> Result<u32, ClientError> {
        if let Some(index) = self.cells.reserve() {
            return Ok(index);
        }
        let start = Clock::now();
        loop {
            // SeqCst as in `begin`.
            if self.has_ended.load(Ordering::SeqCst) {
                return Err(ClientError::Closed);
            }
            self.cells.wait(CELL_PATIENCE);
            if let Some(index) = self.cells.reserve() {
                return Ok(index);
            }
            if self.cells.all_are_kept() {
                return Err(ClientError::Handles);
            }
            if start.elapsed() > self.config.patience {
                return Err(ClientError::Busy);
            }
        }
    }

    /// Wakes the owner if it sleeps.
    fn ring(&self) {
        // SeqCst pairs with the owner's store before it looks into the ring a last time.
        if self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()); // full: it will wake
        }
    }
}

impl Owner {
    fn stop(&self) {
        // SeqCst pairs with the owner's load after it woke.
        self.shared.stops.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes());
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Delegate {
    fn run(mut self) {
        // An error of the sockets ends the session: its requests are told so below.
        while !self.shared.stops.load(Ordering::SeqCst) {
            if self.turn().is_err() {
                break;
            }
        }
        self.end();
    }

    fn turn(&mut self) -> Result<(), ClientError> {
        self.collect();
        self.admit();
        self.link.flush()?;
        self.rest()?;
        let shared = &self.shared;
        self.link.serve(&mut |event| settle(shared, event))?;
        self.expire();
        self.tell();
        Ok(())
    }

    /// Takes what was published.
    fn collect(&mut self) {
        let now_ns = self.link.now().ns;
        while let Some(index) = self.shared.cells.take(&mut self.taken) {
            self.backlog.push_back((index, now_ns));
        }
    }

    /// Gives slots to what waits, the oldest first; what waits for a full queue is passed over.
    fn admit(&mut self) {
        let mut passed = 0;
        while passed < self.backlog.len().min(PASSED_MAX) && self.link.has_free_slot() {
            let Some((index, _)) = self.backlog.get(passed).copied() else {
                return;
            };
            match self.submit(index) {
                Ok(()) => {}
                Err(ClientError::Busy) => {
                    passed += 1;
                    continue;
                }
                Err(error) => self.shared.cells.settle(index, CallEnd::Failed(error)),
            }
            self.backlog.remove(passed);
        }
    }

    fn submit(&mut self, index: u32) -> Result<(), ClientError> {
        let mut body = self.shared.cells.body(index).ok_or(ClientError::Closed)?;
        let ask = body.ask.ok_or(ClientError::Closed)?;
        self.link.submit_frame(&ask, &mut body.frame)
    }

    /// Polls for a while, then sleeps until there is something to do.
    fn rest(&mut self) -> Result<(), ClientError> {
        let cells = &self.shared.cells;
        let spin = self.shared.config.spin;
        if !spin.is_zero() {
            let start = Clock::now();
            while start.elapsed() < spin {
                if !cells.is_empty(&self.taken) || self.link.is_readable() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        // SeqCst pairs with the load in `ring`: either the ring is seen to have something, or who
        // publishes sees that this sleeps.
        self.shared.sleeps.store(true, Ordering::SeqCst);
        let is_stopping = self.shared.stops.load(Ordering::SeqCst);
        if cells.is_empty(&self.taken) && !is_stopping {
            let patience = match self.backlog.is_empty() {
                true => SLEEP_MAX,
                false => BACKLOG_SLEEP_MAX,
            };
            self.link.wait(patience, Some(self.shared.bell.as_fd()))?;
        }
        if !self.shared.sleeps.swap(false, Ordering::SeqCst) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.shared.bell, &mut count); // empty if nobody rang
        }
        Ok(())
    }

    /// Gives up what waited longer than its patience, and was never sent.
    fn expire(&mut self) {
        let patience_ns = self.shared.config.patience.as_nanos() as u64;
        let now_ns = self.link.now().ns;
        while let Some((index, since_ns)) = self.backlog.front().copied() {
            if now_ns < since_ns.saturating_add(patience_ns) {
                return;
            }
            self.backlog.pop_front();
            self.shared
                .cells
                .settle(index, CallEnd::Failed(ClientError::TimedOut));
        }
    }

    fn tell(&self) {
        self.shared
            .backlog
            .store(self.backlog.len(), Ordering::Relaxed);
        if let Ok(mut counts) = self.shared.counts.try_lock() {
            *counts = self.link.counts();
        }
    }

    /// Ends every request that is left.
    fn end(mut self) {
        let shared = Arc::clone(&self.shared);
        self.link.abandon(&mut |event| settle(&shared, event));
        // SeqCst pairs with the load in `begin`: who publishes after the last drain sees this.
        shared.has_ended.store(true, Ordering::SeqCst);
        self.collect();
        for (index, _) in self.backlog.drain(..) {
            shared
                .cells
                .settle(index, CallEnd::Failed(ClientError::Closed));
        }
    }
}

fn settle(shared: &SessionShared, event: Event<'_>) {
    let Some(ticket) = event.ticket() else {
        return;
    };
    let end = match event {
        Event::Accepted { accepted, .. } => CallEnd::Accepted(accepted),
        Event::Answered { outcome, .. } => CallEnd::Answered(outcome.into_answer(Vec::new())),
        Event::Failed { error, .. } => CallEnd::Failed(error),
        Event::Durable { .. } => return,
    };
    shared.cells.settle(ticket as u32, end);
}

fn machine(doing: &'static str, error: rustix::io::Errno) -> ClientError {
    ClientError::machine(doing)(error.into())
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SessionShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The owner sleeps until somebody rings, something arrives or the machine has something to do.
const SLEEP_MAX: Duration = Duration::from_secs(3600);
/// It looks after its backlog this often at least.
const BACKLOG_SLEEP_MAX: Duration = Duration::from_millis(100);
/// Between two looks whether a cell is free.
const CELL_PATIENCE: Duration = Duration::from_millis(10);
/// Requests of full queues that are passed over in a turn.
const PASSED_MAX: usize = 64;
