//! The threads of storage, and its face to the server.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use curtail_types::KeyHash;

use crate::{
    engine::{
        Durability, Engine, ReadFault, StorageConfig, StorageGauges, WriteKind, WriteRefused, lock,
    },
    error::StorageError,
    pending_keys::{self, KeyLock, LoadedItem},
    space_log::{SpaceLog, SpaceNews},
};

/// What storage tells its user, from threads of its own.
pub trait StorageEvents: Send + Sync {
    /// A read that was submitted has ended. `goes_on`: the same thread answers the same receiver
    /// next, so that has time until then.
    fn answer(&self, answer: ReadAnswer, goes_on: bool);

    /// Writes have become durable, or there is room in the queue again.
    fn progress(&self);

    /// An operator has to know this.
    fn report(&self, level: ReportLevel, what: &str);
}

/// How urgent a report is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReportLevel {
    /// Something does not work.
    Error,
    /// Something needs attention.
    Warn,
    /// It works again.
    Info,
}

/// A read of the disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadRequest {
    /// The key of the item.
    pub key: Box<[u8]>,
    /// Whom the answer is for, in the user's terms.
    pub receiver: usize,
    /// Which of its requests this is.
    pub number: u64,
}

/// What a read found.
#[derive(Debug)]
pub struct ReadAnswer {
    /// The request.
    pub request: ReadRequest,
    /// The item, if there is one, expired or not.
    pub found: Result<Option<LoadedItem>, ReadFailed>,
}

/// The disk did not give what was written, or nothing. The operator was told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadFailed;

/// The data of one directory.
pub struct Storage {
    engine: Arc<Engine>,
    desk: Arc<ReadQueue>,
    upkeep: Arc<UpkeepSignal>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Reads that no thread has taken.
#[derive(Debug, Default)]
struct ReadQueue {
    waiting: Mutex<WaitingReads>,
    filled: Condvar,
    is_closing: AtomicBool,
}

#[derive(Debug, Default)]
struct WaitingReads {
    requests: VecDeque<ReadRequest>,
    /// Threads that sleep until there is a request, and were not woken for one.
    sleepers: usize,
}

/// Wakes the threads that flush and compact.
#[derive(Debug, Default)]
struct UpkeepSignal {
    lock: Mutex<()>,
    wake: Condvar,
    is_closing: AtomicBool,
}

/// Reads that may wait for a thread.
const READS_MAX: usize = 1 << 16;

/// How long the committer lets writes gather under [`Durability::Bounded`].
const GATHER: Duration = Duration::from_micros(500);

/// How often the committer looks whether the tree has caught up, or the disk has room again.
const RETRY: Duration = Duration::from_millis(5);

/// How often upkeep looks without being woken.
const LOOK: Duration = Duration::from_millis(200);

impl Storage {
    /// Opens the data of `config.dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Each says which file or process is at fault, and what to do.
    pub fn open(
        config: StorageConfig,
        events: Arc<dyn StorageEvents>,
    ) -> Result<Self, StorageError> {
        let engine = Arc::new(Engine::open(config, true)?);
        engine.look_at_space();
        let storage = Self {
            engine,
            desk: Arc::default(),
            upkeep: Arc::default(),
            threads: Mutex::default(),
        };
        storage.spawn(&events).map_err(StorageError::Thread)?;
        Ok(storage)
    }

    fn spawn(&self, events: &Arc<dyn StorageEvents>) -> std::io::Result<()> {
        let mut threads = lock(&self.threads);
        let mut spawn = |name: String, run: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name).spawn(run)?;
            threads.push(thread);
            Ok::<(), std::io::Error>(())
        };
        let (engine, upkeep) = (&self.engine, &self.upkeep);
        let committer = Committer {
            engine: Arc::clone(engine),
            upkeep: Arc::clone(upkeep),
            events: Arc::clone(events),
            failure_told: false,
            stalled_since: None,
        };
        spawn("disk-commit".into(), Box::new(|| committer.run()))?;
        let (of_flush, signal) = (Arc::clone(engine), Arc::clone(upkeep));
        let told = Arc::clone(events);
        spawn(
            "disk-flush".into(),
            Box::new(move || flush_loop(&of_flush, &signal, &*told)),
        )?;
        let (of_compact, signal) = (Arc::clone(engine), Arc::clone(upkeep));
        let compact = move || compact_loop(&of_compact, &signal);
        spawn("disk-compact".into(), Box::new(compact))?;
        for number in 0..engine.config.readers.max(1) {
            let (engine, desk) = (Arc::clone(engine), Arc::clone(&self.desk));
            let events = Arc::clone(events);
            let read = move || read_loop(&engine, &desk, &*events);
            spawn(format!("disk-read-{number}"), Box::new(read))?;
        }
        Ok(())
    }

    /// Locks a key, and others with it: what is done under the lock to memory and to storage is
    /// done in one order.
    pub fn lock(&self, hash: KeyHash) -> KeyLock<'_> {
        KeyLock::new(&self.engine, hash)
    }

    /// Whether a write of this kind is taken now. One that was admitted is not refused.
    ///
    /// # Errors
    /// Why it is not.
    pub fn admit(&self, kind: WriteKind) -> Result<(), WriteRefused> {
        self.engine.admit(kind)
    }

    /// Has every item deleted that was written before, now or at a time in Unix seconds. `also` is
    /// done while nothing else changes. Returns the place in the log.
    pub fn flush_all(&self, at: u32, also: impl FnOnce()) -> u64 {
        pending_keys::flush_all(&self.engine, at, also)
    }

    /// Carries out a planned flush whose time has come, unless somebody else did; `also` as with
    /// [`flush_all`](Self::flush_all). Its place in the log.
    pub fn flush_due(&self, now_seconds: u32, also: impl FnOnce()) -> Option<u64> {
        pending_keys::flush_due(&self.engine, now_seconds, also)
    }

    /// When everything is to be flushed, in Unix seconds; 0 if that is not planned.
    pub fn flush_at(&self) -> u32 {
        self.engine.flush_at.load(Relaxed)
    }

    /// Has a thread read an item. False if too many reads wait.
    pub fn submit(&self, request: ReadRequest) -> bool {
        let mut waiting = lock(&self.desk.waiting);
        if waiting.requests.len() >= READS_MAX {
            return false;
        }
        waiting.requests.push_back(request);
        // Threads that read take the next request without being woken: a wake is a system call.
        let wakes = waiting.sleepers > 0;
        waiting.sleepers -= usize::from(wakes);
        drop(waiting);
        if wakes {
            self.desk.filled.notify_one();
        }
        true
    }

    /// Writes up to this place are on stable storage.
    pub fn durable(&self) -> u64 {
        self.engine.durable.load(Relaxed)
    }

    /// The highest CAS that any item ever had.
    pub fn highest_cas(&self) -> u64 {
        self.engine.highest_cas.load(Relaxed)
    }

    /// Operations that were applied again at the start, and bytes of the log that were cut off
    /// because a crash had torn them.
    pub fn recovered(&self) -> (u64, u64) {
        (self.engine.replayed, self.engine.torn_bytes)
    }

    /// Numbers for statistics.
    pub fn gauges(&self) -> StorageGauges {
        self.engine.gauges()
    }

    /// What it was opened with.
    pub fn config(&self) -> &StorageConfig {
        &self.engine.config
    }

    /// Writes what is queued, syncs, and ends the threads.
    pub fn close(&self) {
        lock(&self.engine.queue).is_closing = true;
        self.engine.queued.notify_all();
        let waiting = lock(&self.desk.waiting);
        self.desk.is_closing.store(true, Relaxed);
        drop(waiting);
        self.desk.filled.notify_all();
        self.upkeep.is_closing.store(true, Relaxed);
        self.upkeep.wake.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // A thread that panicked has said so itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Storage")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// The thread that appends to the log and syncs it.
struct Committer {
    engine: Arc<Engine>,
    upkeep: Arc<UpkeepSignal>,
    events: Arc<dyn StorageEvents>,
    failure_told: bool,
    stalled_since: Option<Instant>,
}

impl Committer {
    fn run(mut self) {
        while self.wait() {
            let committed = !self.is_stalled() && self.engine.commit();
            let synced = self.is_sync_due() && self.engine.sync();
            if self.engine.rotate_if(self.engine.memtable_bytes_max()) {
                self.upkeep.wake.notify_all();
            }
            self.tell_failure();
            if committed || synced {
                self.events.progress();
            }
            match (committed, self.engine.config.durability) {
                (false, _) if !synced => thread::sleep(RETRY),
                (true, Durability::Bounded(_)) => thread::sleep(GATHER),
                _ => {}
            }
        }
        while self.engine.commit() {}
        self.engine.sync();
        self.engine.seal();
        self.tell_failure();
        let waiting = self.engine.writes_waiting();
        if waiting > 0 {
            let dir = self.engine.path().display();
            let fate = match self.engine.config.durability {
                Durability::Sync => "; none of them was acknowledged",
                Durability::Bounded(_) => " and are lost",
            };
            self.events.report(
                ReportLevel::Error,
                &format!("{dir}: the last {waiting} writes could not be written{fate}"),
            );
        }
        self.events.progress();
    }

    /// Waits for something to do; false when it is to end.
    fn wait(&self) -> bool {
        let mut queue = lock(&self.engine.queue);
        loop {
            if queue.is_closing {
                return false;
            }
            let due = queue
                .oldest_unsynced()
                .map(|since| since + self.half_window());
            let now = Instant::now();
            if !queue.is_empty() || due.is_some_and(|due| due <= now) {
                return true;
            }
            queue.is_awaited = true;
            let rest = due.map_or(Duration::from_secs(1), |due| due - now);
            let waited = self.engine.queued.wait_timeout(queue, rest);
            queue = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
            queue.is_awaited = false;
        }
    }

    /// A sync begins when half of the window is over, so that the other half is left for it.
    fn half_window(&self) -> Duration {
        match self.engine.config.durability {
            Durability::Bounded(window) => window / 2,
            Durability::Sync => Duration::ZERO,
        }
    }

    fn is_sync_due(&self) -> bool {
        if self.engine.config.durability == Durability::Sync {
            return false;
        }
        let since = lock(&self.engine.queue).oldest_unsynced();
        // What only waits in the queue cannot be synced.
        since.is_some_and(|since| since.elapsed() >= self.half_window())
            && self.engine.has_unsynced()
    }

    /// Whether writes have to wait for a flush or for compaction.
    fn is_stalled(&mut self) -> bool {
        let tally = &self.engine.tally;
        match (self.engine.is_behind(), self.stalled_since) {
            (true, None) => {
                self.stalled_since = Some(Instant::now());
                tally.stalls.fetch_add(1, Relaxed);
                self.upkeep.wake.notify_all();
                true
            }
            (true, Some(_)) => true,
            (false, None) => false,
            (false, Some(since)) => {
                self.stalled_since = None;
                let us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                tally.stalled_us.fetch_add(us, Relaxed);
                false
            }
        }
    }

    fn tell_failure(&mut self) {
        if let Some(what) = self.engine.failure()
            && !std::mem::replace(&mut self.failure_told, true)
        {
            let dir = self.engine.path().display().to_string();
            self.events.report(
                ReportLevel::Error,
                &format!("{dir}: {what}; writes are refused until a restart, reads go on"),
            );
        }
    }
}

fn flush_loop(engine: &Engine, signal: &UpkeepSignal, events: &dyn StorageEvents) {
    let mut space_log = SpaceLog::default();
    while signal.wait() {
        // Before the look, which lets a write be tried although one has just found no room.
        tell_space(engine, &mut space_log, events);
        engine.look_at_space();
        if engine.flush() {
            signal.wake.notify_all();
        }
    }
}

fn tell_space(engine: &Engine, log: &mut SpaceLog, events: &dyn StorageEvents) {
    let is_short = match engine.admit(WriteKind::Store) {
        Ok(()) | Err(WriteRefused::Behind) => false,
        Err(WriteRefused::Full) => true,
        // That is told by itself, and for good.
        Err(WriteRefused::Failed) => return,
    };
    let dir = engine.path().display();
    match log.note(is_short, Instant::now()) {
        None => {}
        Some(SpaceNews::Short) => events.report(
            ReportLevel::Warn,
            &format!(
                "{dir}: writes are refused, because the file system has less free space than the \
                 reserve of {} MiB (`serve --disk-reserve`) or than rewriting tables needs; make \
                 space; deletions are accepted while possible",
                engine.config.reserve_bytes >> 20
            ),
        ),
        Some(SpaceNews::Enough) => events.report(
            ReportLevel::Info,
            &format!("{dir}: the file system has enough free space again; writes are accepted"),
        ),
    }
}

fn compact_loop(engine: &Engine, signal: &UpkeepSignal) {
    while signal.wait() {
        let goes_on = || !signal.is_closing.load(Relaxed);
        while goes_on() && engine.compact() {
            thread::yield_now();
        }
    }
}

impl UpkeepSignal {
    /// Waits to be woken, or for the next look; false when the thread is to end.
    fn wait(&self) -> bool {
        let guard = lock(&self.lock);
        if !self.is_closing.load(Relaxed) {
            let _woken = self.wake.wait_timeout(guard, LOOK);
        }
        !self.is_closing.load(Relaxed)
    }
}

fn read_loop(engine: &Engine, desk: &ReadQueue, events: &dyn StorageEvents) {
    let mut next = desk.next();
    while let Some(request) = next {
        let found = engine.read(&request.key).map_err(|fault| {
            let what = match fault {
                ReadFault::Tree(error) => format!("an item cannot be read: {error}"),
                ReadFault::Damaged(what) => what.to_owned(),
            };
            let dir = engine.path().display();
            let remedy =
                format!("stop the server, then `curtail data verify {dir}` names the file");
            events.report(ReportLevel::Error, &format!("{dir}: {what}; {remedy}"));
            ReadFailed
        });
        next = desk.try_next();
        let receiver = request.receiver;
        let goes_on = next.as_ref().is_some_and(|next| next.receiver == receiver);
        events.answer(ReadAnswer { request, found }, goes_on);
        if next.is_none() {
            next = desk.next();
        }
    }
}

impl ReadQueue {
    /// The next request, if there is one.
    fn try_next(&self) -> Option<ReadRequest> {
        lock(&self.waiting).requests.pop_front()
    }

    /// The next request, when there is one; none if the storage is closed.
    fn next(&self) -> Option<ReadRequest> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(request) = waiting.requests.pop_front() {
                return Some(request);
            }
            if self.is_closing.load(Relaxed) {
                return None;
            }
            waiting.sleepers += 1;
            let filled = self.filled.wait(waiting);
            waiting = filled.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
