//! What all threads of the storage share, and each step that they take: commit, sync, rotate,
//! flush, compact. The threads only call these (`storage`); crash tests call them one by one.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use curtail_types::{Cas, HybridClock, KeyHash, Now, WriterId};

use crate::{
    directory::DataDirectory,
    error::StorageError,
    item_tree::{Checkpoint, FLUSH_MARK, FlushMark, ItemTree},
    log_disk::{LogDirectory, LogDisk},
    pending_keys::{KeyStripes, LoadedItem},
    planted_fault::{PlantedFault, planted},
    replay::{Replayed, replay},
    write_log::{TreeWrite, WriteLog},
    write_queue::{Taken, WriteQueue},
};

/// What an acknowledgement of a write promises.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Durability {
    /// All writes that a crash can lose were acknowledged within one window of this length.
    Bounded(Duration),
    /// The write is on stable storage.
    Sync,
}

/// What storage is opened with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StorageConfig {
    /// Its directory.
    pub dir: PathBuf,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// Memory for what is written and for blocks that were read, in bytes.
    pub memory_bytes: u64,
    /// Threads that read.
    pub readers: usize,
    /// Free bytes of the file system below which writes that store are refused, and half of which
    /// are left to deletions; compaction needs room, too.
    pub reserve_bytes: u64,
}

/// What a write is for. A cache whose disk is full must still be able to delete what is stale.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteKind {
    /// It stores a value.
    Store,
    /// It deletes, and takes hardly more space than the key.
    Delete,
}

/// Why a write is not taken now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteRefused {
    /// The disk has fallen behind: try again when the storage reports progress.
    Behind,
    /// The file system is full, up to the reserve.
    Full,
    /// The disk has failed: nothing is written before a restart.
    Failed,
}

/// Numbers for statistics.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StorageGauges {
    /// Writes in the log since the start of this process.
    pub writes: u64,
    /// Groups they were appended in.
    pub groups: u64,
    /// Times the log was synced.
    pub syncs: u64,
    /// The longest that a sync took since the start, in microseconds.
    pub sync_us_max: u64,
    /// Bytes of the queue.
    pub queue_bytes: u64,
    /// How long the oldest write has waited for stable storage, in microseconds.
    pub unsynced_us: u64,
    /// Times the committer waited for a flush or for compaction.
    pub stalls: u64,
    /// How long it did in all, in microseconds.
    pub stalled_us: u64,
    /// Reads of the tree.
    pub reads: u64,
    /// Reads that found damage or an error.
    pub read_errors: u64,
    /// Items at most: what is overwritten or deleted counts until compaction.
    pub items_at_most: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Files of the log.
    pub log_files: u64,
    /// Memtables to be flushed.
    pub memtables_waiting: u64,
    /// Runs of tables to be compacted.
    pub runs_waiting: u64,
    /// Compactions done.
    pub compactions: u64,
    /// 0: writes are taken. 1: the file system is full. 2: the disk has failed. 3: the file system
    /// is so full that deletions are refused, too.
    pub write_state: u64,
}

/// See the head of this file.
pub(crate) struct Engine {
    pub(crate) tree: ItemTree,
    pub(crate) stripes: KeyStripes,
    pub(crate) queue: Mutex<WriteQueue>,
    pub(crate) queued: Condvar,
    commit: Mutex<Commit>,
    pub(crate) epoch: AtomicU32,
    pub(crate) flush_at: AtomicU32,
    pub(crate) highest_cas: AtomicU64,
    /// Writes up to this place are in the tree.
    pub(crate) applied: AtomicU64,
    /// Writes up to this place are on stable storage.
    pub(crate) durable: AtomicU64,
    state: AtomicU8,
    /// There was no room for the last flush.
    flush_lacks_room: AtomicBool,
    /// There was no room for the last compaction.
    compaction_lacks_room: AtomicBool,
    failure: Mutex<Option<String>>,
    pub(crate) tally: EngineTally,
    pub(crate) config: StorageConfig,
    /// What the log had at the start.
    pub(crate) torn_bytes: u64,
    pub(crate) replayed: u64,
    dir: DataDirectory,
}

/// What the committer works with.
struct Commit {
    log: WriteLog,
    /// Taken from the queue; stays here until the log has it.
    taken: Taken,
    /// The newest flush mark in what was appended but not synced.
    epoch_unsynced: Option<u32>,
}

/// What the steps count.
#[derive(Debug, Default)]
pub(crate) struct EngineTally {
    writes: AtomicU64,
    groups: AtomicU64,
    syncs: AtomicU64,
    sync_us_max: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stalled_us: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read_errors: AtomicU64,
    compactions: AtomicU64,
    /// Here as well as in the log: who asks for the numbers must not wait for a sync.
    log_files: AtomicU64,
}

const OPEN: u8 = 0;
/// Only deletions are taken.
const FULL: u8 = 1;
const FAILED: u8 = 2;
/// The log may not grow.
const NO_ROOM: u8 = 3;

/// Bytes that may wait for the committer.
const QUEUE_BYTES_MAX: usize = 32 << 20;

/// Memtables that wait for a flush while writes still go on.
const MEMTABLES_MAX: usize = 3;

/// Runs of tables in the first level while writes still go on.
const RUNS_MAX: usize = 24;

/// Free bytes with which a compaction below the first levels is begun, whatever its size: it merges
/// few tables.
const COMPACTION_BYTES_MAX: u64 = 1 << 30;

/// Parts of the memory: each memtable, of which there are `MEMTABLES_MAX` and the one that is
/// written, has one of eight; the others are for blocks.
const MEMORY_PARTS: u64 = 8;

impl Engine {
    /// Opens the data in the directory of `config`, and makes it if it `creates`.
    pub(crate) fn open(config: StorageConfig, creates: bool) -> Result<Self, StorageError> {
        let dir = DataDirectory::take(&config.dir, creates)?;
        let disk = Arc::new(LogDirectory::new(&dir.log()));
        Self::open_on(disk, dir, config)
    }

    pub(crate) fn open_on(
        disk: Arc<dyn LogDisk>,
        dir: DataDirectory,
        config: StorageConfig,
    ) -> Result<Self, StorageError> {
        let parts = MEMORY_PARTS - MEMTABLES_MAX as u64 - 1;
        let cache_bytes = config.memory_bytes / MEMORY_PARTS * parts;
        let tree = ItemTree::open(&dir.tables(), cache_bytes)?;
        let checkpoint = tree.checkpoint().map_err(|error| tree.error(error))?;
        let mut highest_cas = checkpoint.cas;
        let plausible_max = cas_max().max(highest_cas);
        let mut count = 0;
        let Replayed {
            next,
            files,
            torn_bytes,
        } = replay(
            &*disk,
            (&dir.log(), dir.seed),
            checkpoint.operation,
            true,
            |number, write| {
                let record = write.value.as_deref();
                let cas = record.and_then(|record| cas_of(&write.key, record));
                let cas = cas.filter(|cas| *cas <= plausible_max);
                highest_cas = highest_cas.max(cas.unwrap_or(0));
                count += 1;
                tree.apply(number, write);
            },
        )?;
        let mark = tree.flush_mark().map_err(|error| tree.error(error))?;
        tree.set_epoch(mark.epoch);
        let log = WriteLog::begin(disk, dir.seed, next, files);
        let log = log.map_err(|error| StorageError::NotWritable {
            dir: dir.log(),
            error,
        })?;
        let tally = EngineTally::default();
        tally.log_files.store(log.files() as u64, Relaxed);
        Ok(Self {
            tree,
            stripes: KeyStripes::new(),
            queue: Mutex::new(WriteQueue::new(next)),
            queued: Condvar::new(),
            commit: Mutex::new(Commit {
                log,
                taken: Taken::default(),
                epoch_unsynced: None,
            }),
            epoch: AtomicU32::new(mark.epoch),
            flush_at: AtomicU32::new(mark.at),
            highest_cas: AtomicU64::new(highest_cas),
            applied: AtomicU64::new(next - 1),
            durable: AtomicU64::new(next - 1),
            state: AtomicU8::new(OPEN),
            flush_lacks_room: AtomicBool::new(false),
            compaction_lacks_room: AtomicBool::new(false),
            failure: Mutex::default(),
            tally,
            config,
            torn_bytes,
            replayed: count,
            dir,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Notes the CAS of an item. One that a client made up must not drag the clock along, which
    /// gives out what is above the highest.
    pub(crate) fn note_cas(&self, cas: u64) {
        if cas > self.highest_cas.load(Relaxed) && cas <= cas_max() {
            self.highest_cas.fetch_max(cas, Relaxed);
        }
    }

    /// Whether a write is taken now.
    pub(crate) fn admit(&self, kind: WriteKind) -> Result<(), WriteRefused> {
        match self.state.load(Relaxed) {
            FAILED => return Err(WriteRefused::Failed),
            NO_ROOM => return Err(WriteRefused::Full),
            FULL if kind == WriteKind::Store => return Err(WriteRefused::Full),
            _ => {}
        }
        let queue = lock(&self.queue);
        let is_late = match self.config.durability {
            Durability::Sync => false,
            Durability::Bounded(window) => queue
                .oldest_unsynced()
                .is_some_and(|since| since.elapsed() >= window),
        };
        match is_late || queue.bytes() >= QUEUE_BYTES_MAX {
            true => Err(WriteRefused::Behind),
            false => Ok(()),
        }
    }

    /// Queues a write that was admitted; its place in the log.
    pub(crate) fn push(&self, write: TreeWrite, hash: Option<KeyHash>) -> u64 {
        let mut queue = lock(&self.queue);
        let place = queue.push(write, hash);
        if std::mem::take(&mut queue.is_awaited) {
            self.queued.notify_all();
        }
        place
    }

    /// Reads an item from the tree.
    pub(crate) fn read(&self, key: &[u8]) -> Result<Option<LoadedItem>, ReadFault> {
        self.tally.reads.fetch_add(1, Relaxed);
        let read = || {
            let record = self.tree.get(&ItemTree::key_of(key));
            let Some(record) = record.map_err(ReadFault::Tree)? else {
                return Ok(None);
            };
            let epoch = self.epoch.load(Relaxed);
            LoadedItem::read(key, record, epoch).map_err(ReadFault::Damaged)
        };
        read().inspect_err(|_| {
            self.tally.read_errors.fetch_add(1, Relaxed);
        })
    }

    /// Whether the tree takes more writes now.
    pub(crate) fn is_behind(&self) -> bool {
        self.has_full_memtables() || self.has_full_levels()
    }

    fn has_full_memtables(&self) -> bool {
        self.tree.memtables_waiting() >= MEMTABLES_MAX
    }

    fn has_full_levels(&self) -> bool {
        self.tree.runs_waiting() >= RUNS_MAX
    }

    /// Appends what is queued to the log, and applies it to the tree; under
    /// [`Durability::Sync`] it is synced before that. Returns whether there was anything.
    pub(crate) fn commit(&self) -> bool {
        let mut commit = lock(&self.commit);
        let commit = &mut *commit;
        if commit.taken.writes.is_empty() {
            lock(&self.queue).take(&mut commit.taken);
            if commit.taken.writes.is_empty() {
                return false;
            }
        }
        if self.state.load(Relaxed) == FAILED {
            return false;
        }
        if let Err(error) = commit.log.append(&commit.taken.writes) {
            self.note_error(&error);
            return false;
        }
        if planted(PlantedFault::AcknowledgesEarly) {
            self.durable.store(commit.log.last(), Relaxed);
        }
        let (tally, count) = (&self.tally, commit.taken.writes.len() as u64);
        tally.groups.fetch_add(1, Relaxed);
        tally.writes.fetch_add(count, Relaxed);
        let mut marks = commit.taken.writes.iter();
        let mark = marks.rfind(|write| write.key == FLUSH_MARK);
        if let Some(value) = mark.and_then(|write| write.value.as_deref()) {
            commit.epoch_unsynced = Some(FlushMark::read(value).epoch);
        }
        if self.config.durability == Durability::Sync && !self.sync_now(commit) {
            // It may be on the disk or not, which nobody is told; it is served until then.
            return false;
        }
        self.apply(commit);
        true
    }

    fn apply(&self, commit: &mut Commit) {
        let last = commit.log.last();
        let first = last + 1 - commit.taken.writes.len() as u64;
        let writes = commit.taken.writes.drain(..);
        for (write, (hash, place)) in writes.zip(commit.taken.hashes.drain(..).zip(first..)) {
            let key = write.key.clone();
            self.tree.apply(place, write);
            if let Some(hash) = hash {
                self.stripes.lock(hash).settle(&key, place);
            }
        }
        self.applied.store(last, Relaxed);
    }

    /// Whether anything was appended since the last sync.
    pub(crate) fn has_unsynced(&self) -> bool {
        let commit = lock(&self.commit);
        commit.log.synced() < commit.log.last()
    }

    /// Syncs the log.
    pub(crate) fn sync(&self) -> bool {
        self.sync_now(&mut lock(&self.commit))
    }

    fn sync_now(&self, commit: &mut Commit) -> bool {
        if self.state.load(Relaxed) == FAILED {
            return false;
        }
        let begun = Instant::now();
        if let Err(error) = commit.log.sync() {
            // What the system has kept of it, and what not, is unknown from here on.
            self.fail(format!("the write log cannot be synced: {error}"));
            return false;
        }
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.tally.syncs.fetch_add(1, Relaxed);
        self.tally.sync_us_max.fetch_max(us, Relaxed);
        lock(&self.queue).note_synced();
        self.durable.store(commit.log.synced(), Relaxed);
        if let Some(epoch) = commit.epoch_unsynced.take() {
            self.tree.set_epoch(epoch);
        }
        true
    }

    /// Ends a memtable that is large enough, and the file of the log with it.
    pub(crate) fn rotate_if(&self, bytes_min: u64) -> bool {
        if self.tree.memtable_bytes() < bytes_min {
            return false;
        }
        let mut commit = lock(&self.commit);
        if !commit.taken.writes.is_empty() || !self.sync_now(&mut commit) {
            return false;
        }
        if let Err(error) = commit.log.rotate() {
            self.note_error(&error);
            return false;
        }
        self.note_files(&commit.log);
        self.tree.rotate(Checkpoint {
            operation: commit.log.last(),
            cas: self.highest_cas.load(Relaxed),
        });
        true
    }

    /// From how many bytes on a memtable is ended.
    pub(crate) fn memtable_bytes_max(&self) -> u64 {
        self.config.memory_bytes / MEMORY_PARTS
    }

    /// Flushes memtables that were ended, and deletes the files of the log that they make needless.
    /// Whether there were any.
    pub(crate) fn flush(&self) -> bool {
        let memtables = self.tree.memtables_waiting() as u64;
        if memtables == 0 {
            return false;
        }
        // One that finds the disk full in the middle leaves what it has written.
        let needed = memtables * self.memtable_bytes_max();
        if self.free_bytes().is_some_and(|free| free < needed) {
            self.flush_lacks_room.store(true, Relaxed);
            self.enter(FULL);
            return false;
        }
        let Some(flushed) = lock(&self.commit).log.sealed_to() else {
            return false;
        };
        if planted(PlantedFault::DeletesEarly) {
            return lock(&self.commit).log.delete_to(flushed).is_ok();
        }
        if let Err(error) = self.tree.flush(self.applied.load(Relaxed)) {
            self.note_tree_error("a flush", &self.flush_lacks_room, &error);
            return false;
        }
        self.flush_lacks_room.store(false, Relaxed);
        let log = &mut lock(&self.commit).log;
        if let Err(error) = log.delete_to(flushed) {
            self.note_error(&error);
        }
        self.note_files(log);
        true
    }

    fn note_files(&self, log: &WriteLog) {
        self.tally.log_files.store(log.files() as u64, Relaxed);
    }

    /// Compacts once; whether there was something to do.
    pub(crate) fn compact(&self) -> bool {
        // What one that finds the disk full in the middle has written stays until the next start.
        let needed = self.compaction_bytes();
        if self.free_bytes().is_some_and(|free| free < needed) {
            self.compaction_lacks_room.store(true, Relaxed);
            return false;
        }
        match self.tree.compact(self.applied.load(Relaxed)) {
            Ok(has_compacted) => {
                // Not before: what it needs must not go to writes meanwhile.
                self.compaction_lacks_room.store(false, Relaxed);
                let count = u64::from(has_compacted);
                self.tally.compactions.fetch_add(count, Relaxed);
                has_compacted
            }
            Err(error) => {
                self.note_tree_error("compaction", &self.compaction_lacks_room, &error);
                false
            }
        }
    }

    /// Free bytes that the next compaction may need.
    fn compaction_bytes(&self) -> u64 {
        let needed = self.tree.first_levels_bytes().max(COMPACTION_BYTES_MAX);
        needed.min(self.tree.disk_bytes())
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(self.path()).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Looks at the free space of the file system: while it is short, writes are refused.
    pub(crate) fn look_at_space(&self) {
        let Some(free) = self.free_bytes() else {
            return;
        };
        let reserve = self.config.reserve_bytes;
        // Free space alone says little: a compaction may need more than there is. Deletions go on
        // until what lacks room is what the committer waits for.
        let flush_lacks_room = self.flush_lacks_room.load(Relaxed);
        let compaction_lacks_room = self.compaction_lacks_room.load(Relaxed);
        let is_stuck = flush_lacks_room && self.has_full_memtables()
            || compaction_lacks_room && self.has_full_levels();
        self.enter(if free < reserve / 2 || is_stuck {
            NO_ROOM
        } else if free < reserve || flush_lacks_room || compaction_lacks_room {
            FULL
        } else {
            OPEN
        });
    }

    /// Enters a state that a failed disk does not leave.
    fn enter(&self, state: u8) {
        let enters = |before| (before != FAILED).then_some(state);
        let _ = self.state.fetch_update(Relaxed, Relaxed, enters);
    }

    /// How many writes the log does not have.
    pub(crate) fn writes_waiting(&self) -> usize {
        lock(&self.commit).taken.writes.len() + lock(&self.queue).writes()
    }

    /// Says at the end of the log that it was ended on purpose.
    pub(crate) fn seal(&self) {
        let mut commit = lock(&self.commit);
        if self.state.load(Relaxed) != FAILED && commit.taken.writes.is_empty() {
            let sealed = commit.log.seal();
            if let Err(error) = sealed {
                self.note_error(&error);
            }
        }
    }

    fn note_error(&self, error: &io::Error) {
        match is_full(error) {
            true => self.enter(NO_ROOM),
            false => self.fail(format!("the write log cannot be written: {error}")),
        }
    }

    /// An error of a flush or of compaction. Without room nothing is lost, so it is tried again
    /// when there is room.
    fn note_tree_error(&self, what: &str, lacks_room: &AtomicBool, error: &lsm_tree::Error) {
        match error {
            lsm_tree::Error::Io(error) if is_full(error) => {
                lacks_room.store(true, Relaxed);
                self.enter(NO_ROOM);
            }
            error => self.fail(format!("{what} failed: {error}")),
        }
    }

    fn fail(&self, what: String) {
        self.state.store(FAILED, Relaxed);
        lock(&self.failure).get_or_insert(what);
    }

    /// What made the disk fail, if it has.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    pub(crate) fn gauges(&self) -> StorageGauges {
        let tally = &self.tally;
        let queue = lock(&self.queue);
        let unsynced = queue.oldest_unsynced().map(|since| since.elapsed());
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let queue_bytes = queue.bytes() as u64;
        drop(queue);
        StorageGauges {
            writes: tally.writes.load(Relaxed),
            groups: tally.groups.load(Relaxed),
            syncs: tally.syncs.load(Relaxed),
            sync_us_max: tally.sync_us_max.load(Relaxed),
            queue_bytes,
            unsynced_us: unsynced.map_or(0, us),
            stalls: tally.stalls.load(Relaxed),
            stalled_us: tally.stalled_us.load(Relaxed),
            reads: tally.reads.load(Relaxed),
            read_errors: tally.read_errors.load(Relaxed),
            items_at_most: self.tree.items_at_most(),
            table_bytes: self.tree.disk_bytes(),
            log_files: tally.log_files.load(Relaxed),
            memtables_waiting: self.tree.memtables_waiting() as u64,
            runs_waiting: self.tree.runs_waiting() as u64,
            compactions: tally.compactions.load(Relaxed),
            write_state: self.state.load(Relaxed).into(),
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path();
        f.debug_struct("Engine")
            .field("path", &path)
            .finish_non_exhaustive()
    }
}

/// Why an item could not be read.
#[derive(Debug)]
pub(crate) enum ReadFault {
    Tree(lsm_tree::Error),
    Damaged(&'static str),
}

/// Locks what no panic leaves half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No clock gives out more than this now, but one that is a day ahead.
fn cas_max() -> u64 {
    const DAY: Duration = Duration::from_secs(86_400);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = since.unwrap_or_default() + DAY;
    let now = Now {
        unix_ns: u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
        instant: curtail_types::Instant { ns: 0 },
    };
    HybridClock::new(WriterId(u16::MAX), Cas(0)).next(now).0
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

fn cas_of(tree_key: &[u8], record: &[u8]) -> Option<u64> {
    let key = ItemTree::item_key(tree_key)?;
    let record = crate::item_record::decode(key, record).ok()?;
    Some(record.image.cas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ItemImage, pending_keys::KeyLock};

    /// Goal: a flush or a compaction that finds the disk full is no failure of the disk: writes are
    /// taken again when there is room. Method: that error, and another one.
    #[test]
    fn a_full_disk_is_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let config = StorageConfig::of_tool(&folder.path().join("data"));
        let engine = Arc::new(Engine::open(config, true).unwrap());
        let put = || {
            let item = ItemImage::default();
            KeyLock::new(&engine, KeyHash(1)).put(b"key", KeyHash(1), &item, b"value");
            engine.commit() && engine.rotate_if(0)
        };
        let full = || lsm_tree::Error::Io(io::ErrorKind::StorageFull.into());
        for flushes in [true, false] {
            match flushes {
                true => engine.note_tree_error("a flush", &engine.flush_lacks_room, &full()),
                false => {
                    engine.note_tree_error("compaction", &engine.compaction_lacks_room, &full());
                }
            }
            assert_eq!(engine.admit(WriteKind::Delete), Err(WriteRefused::Full));
            engine.look_at_space();
            assert_eq!(engine.admit(WriteKind::Store), Err(WriteRefused::Full));
            assert_eq!(engine.admit(WriteKind::Delete), Ok(()));
            match flushes {
                true => assert!(put() && engine.flush()),
                false => while engine.compact() {},
            }
            engine.look_at_space();
            assert_eq!(engine.admit(WriteKind::Store), Ok(()));
        }
        // The committer waits for a flush, which has no room: nothing more is taken.
        assert!((0..MEMTABLES_MAX).all(|_| put()));
        engine.look_at_space();
        assert_eq!(engine.admit(WriteKind::Delete), Ok(()));
        engine.note_tree_error("a flush", &engine.flush_lacks_room, &full());
        engine.look_at_space();
        assert_eq!(engine.admit(WriteKind::Delete), Err(WriteRefused::Full));
        let other = lsm_tree::Error::Io(io::ErrorKind::PermissionDenied.into());
        engine.note_tree_error("compaction", &engine.compaction_lacks_room, &other);
        engine.look_at_space();
        assert_eq!(engine.admit(WriteKind::Delete), Err(WriteRefused::Failed));
    }

    /// Goal: a flush for which there may be no room is not begun, and nothing is stored until one
    /// has ended. Method: memtables that may be larger than every disk, then smaller ones.
    #[test]
    fn a_flush_without_room_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let config = StorageConfig::of_tool(&folder.path().join("data"));
        let memory_bytes = config.memory_bytes;
        let mut engine = Arc::new(Engine::open(config, true).unwrap());
        let item = ItemImage::default();
        KeyLock::new(&engine, KeyHash(1)).put(b"key", KeyHash(1), &item, b"value");
        assert!(engine.commit() && engine.rotate_if(0));
        Arc::get_mut(&mut engine).unwrap().config.memory_bytes = u64::MAX;
        assert!(!engine.flush());
        assert_eq!(engine.tree.memtables_waiting(), 1);
        for _ in 0..2 {
            assert_eq!(engine.admit(WriteKind::Store), Err(WriteRefused::Full));
            assert_eq!(engine.admit(WriteKind::Delete), Ok(()));
            engine.look_at_space();
        }
        Arc::get_mut(&mut engine).unwrap().config.memory_bytes = memory_bytes;
        assert!(engine.flush());
        engine.look_at_space();
        assert_eq!(engine.admit(WriteKind::Store), Ok(()));
    }

    /// Goal: whoever asks for the numbers does not wait for a sync. Method: they are read while the
    /// log is locked, as it is during a sync; and they follow the log.
    #[test]
    fn numbers_are_read_during_a_sync() {
        let folder = tempfile::tempdir().unwrap();
        let config = StorageConfig::of_tool(&folder.path().join("data"));
        let engine = Arc::new(Engine::open(config, true).unwrap());
        KeyLock::new(&engine, KeyHash(1)).put(b"key", KeyHash(1), &ItemImage::default(), b"value");
        assert!(engine.commit() && engine.rotate_if(0));
        let commit = lock(&engine.commit);
        let (files, asked) = std::sync::mpsc::channel();
        let other = Arc::clone(&engine);
        std::thread::spawn(move || files.send(other.gauges().log_files));
        assert_eq!(asked.recv_timeout(Duration::from_secs(20)), Ok(2));
        drop(commit);
        assert!(engine.flush());
        assert_eq!(engine.gauges().log_files, 1);
    }

    /// Goal: the room that a compaction may need covers both levels that it merges. Method: items
    /// that were compacted, and newer ones of the same keys.
    #[test]
    fn room_for_compaction_covers_two_levels() {
        let folder = tempfile::tempdir().unwrap();
        let config = StorageConfig::of_tool(&folder.path().join("data"));
        let engine = Arc::new(Engine::open(config, true).unwrap());
        for round in 0..6 {
            for number in 0..100 {
                let hash = KeyHash(number);
                let key = number.to_le_bytes();
                KeyLock::new(&engine, hash).put(&key, hash, &ItemImage::default(), &[round; 1000]);
            }
            assert!(engine.commit() && engine.rotate_if(0) && engine.flush());
            while round == 3 && engine.compact() {}
        }
        assert_eq!(engine.tree.runs_waiting(), 2);
        assert_eq!(engine.tree.first_levels_bytes(), engine.tree.disk_bytes());
    }
}
