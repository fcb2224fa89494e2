//! The items of a back end: all in memory, or on disk with the ones used last in memory.
//!
//! ```text
//!   request --is_ready?--> in memory --> run at once
//!                 |
//!                 +--not known--> read by a thread of storage --answer--> in memory
//! ```
//!
//! The back end's thread owns the memory, and reads no file: a request whose item is not in memory
//! waits beside others (`BackEndNode`). That a key has no item is kept in memory too. A read that
//! was overtaken by a write of its key is void, which storage's tickets tell.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use curtail_runtime::{Waker, lock};
use curtail_storage::{
    Durability, ItemImage, Latest, LoadedItem, ReadAnswer, ReadRequest, ReadTicket, ReportLevel,
    Storage, StorageConfig, StorageError, StorageEvents, WriteKind, WriteRefused,
};
use curtail_types::{Cas, KeyHash, RouteHash};

/// Where a back end keeps its items.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StorePlace {
    /// In memory: they are lost when the process ends. A full memory refuses writes.
    Memory,
    /// In this directory, and the ones used last in memory.
    Disk {
        /// The directory; made if it is not there.
        directory: PathBuf,
        /// What an answered write promises.
        durability: Durability,
    },
}

/// What a store is made with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreOptions {
    /// Where the items are.
    pub place: StorePlace,
    /// Bytes of items in memory.
    pub memory_bytes: usize,
}

/// An item in memory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct StoredItem {
    pub(crate) version: Cas,
    pub(crate) flags: u32,
    /// In Unix seconds; 0 is never.
    pub(crate) expiry: u32,
    pub(crate) value: Vec<u8>,
}

/// What memory has of a key.
#[derive(Debug, Default)]
struct KnownItem {
    /// None: there is none.
    item: Option<StoredItem>,
    /// Its place in the log; 0 if it came from the disk.
    place: u64,
    /// Read or written since eviction looked at it last.
    is_used: bool,
}

/// Why a write was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StoreRefused {
    /// Memory or disk are full, or the disk has failed.
    Full,
    /// The disk is behind: again in a moment.
    Behind,
}

/// The items of a back end.
pub(crate) struct BackEndStore {
    known: HashMap<Box<[u8]>, KnownItem>,
    bytes: usize,
    bytes_max: usize,
    disk: Option<Disk>,
    /// Keys in the order in which eviction looks at them; with a disk.
    order: VecDeque<Box<[u8]>>,
    /// When what had ended was looked for last, in Unix seconds.
    swept_s: u32,
}

struct Disk {
    storage: Storage,
    answers: Arc<Answers>,
    reads: HashMap<Box<[u8]>, ReadTicket>,
    numbers: u64,
    /// Of the last write.
    last_place: u64,
}

/// What the threads of storage have said.
struct Answers {
    read: Mutex<Vec<ReadAnswer>>,
    waker: Waker,
    name: String,
}

impl StorageEvents for Answers {
    fn answer(&self, answer: ReadAnswer, _goes_on: bool) {
        lock(&self.read).push(answer);
        self.waker.wake();
    }

    fn progress(&self) {
        self.waker.wake();
    }

    fn report(&self, _level: ReportLevel, what: &str) {
        eprintln!("{}: {what}", self.name);
    }
}

impl BackEndStore {
    pub(crate) fn open(
        options: &StoreOptions,
        waker: Waker,
        name: String,
    ) -> Result<Self, StorageError> {
        let disk = match &options.place {
            StorePlace::Memory => None,
            StorePlace::Disk {
                directory,
                durability,
            } => {
                let answers = Arc::new(Answers {
                    read: Mutex::default(),
                    waker,
                    name,
                });
                let config = StorageConfig {
                    dir: directory.clone(),
                    durability: *durability,
                    memory_bytes: TREE_BYTES,
                    readers: 2,
                    reserve_bytes: RESERVE_BYTES,
                };
                let events: Arc<dyn StorageEvents> = answers.clone();
                Some(Disk {
                    storage: Storage::open(config, events)?,
                    answers,
                    reads: HashMap::new(),
                    numbers: 0,
                    last_place: 0,
                })
            }
        };
        Ok(Self {
            known: HashMap::new(),
            bytes: 0,
            bytes_max: options.memory_bytes,
            disk,
            order: VecDeque::new(),
            swept_s: 0,
        })
    }

    /// The highest version that an item ever had.
    pub(crate) fn highest_version(&self) -> u64 {
        let disk = self.disk.as_ref();
        disk.map_or(0, |disk| disk.storage.highest_cas())
    }

    /// Writes up to this place are as durable as answers promise.
    pub(crate) fn durable(&self) -> u64 {
        let disk = self.disk.as_ref();
        let syncs = |disk: &&Disk| disk.storage.config().durability == Durability::Sync;
        disk.filter(syncs)
            .map_or(u64::MAX, |disk| disk.storage.durable())
    }

    /// Items and bytes in memory.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.known.len(), self.bytes)
    }

    /// Whether what there is of `key` is known; if not, a thread of storage reads it, and
    /// [`loaded`](Self::loaded) names the key when it has. `None`: too many reads wait.
    pub(crate) fn is_ready(&mut self, key: &[u8]) -> Option<bool> {
        if self.known.contains_key(key) {
            return Some(true);
        }
        let Some(disk) = &mut self.disk else {
            return Some(true);
        };
        if disk.reads.contains_key(key) {
            return Some(false);
        }
        let hash = key_hash(key);
        let mut locked = disk.storage.lock(hash);
        let item = match locked.latest(key) {
            Latest::OnDisk => {
                let ticket = locked.begin_read(hash);
                drop(locked);
                return disk.submit(key, ticket).then_some(false);
            }
            Latest::Absent => None,
            Latest::Item(item) => Some(item),
        };
        drop(locked);
        // It is on its way to the log: who shows it waits until all that is there has arrived.
        let place = disk.last_place;
        self.remember(key, item.map(|item| of_disk(&item)), place);
        Some(true)
    }

    /// The keys whose reads have ended; each is known now, or read again, or could not be read.
    pub(crate) fn loaded(&mut self) -> Vec<Box<[u8]>> {
        let Some(disk) = &mut self.disk else {
            return Vec::new();
        };
        let answers = std::mem::take(&mut *lock(&disk.answers.read));
        let mut keys = Vec::new();
        for answer in answers {
            keys.extend(self.take_answer(answer));
        }
        keys
    }

    fn take_answer(&mut self, answer: ReadAnswer) -> Option<Box<[u8]>> {
        let disk = self.disk.as_mut()?;
        let key = answer.request.key;
        let ticket = disk.reads.remove(&key)?;
        let mut locked = disk.storage.lock(key_hash(&key));
        let is_current = locked.is_current(&ticket);
        locked.end_read(ticket);
        drop(locked);
        if let Ok(found) = answer.found
            && is_current
            && !self.known.contains_key(&key)
        {
            self.remember(&key, found.map(|item| of_disk(&item)), 0);
        }
        Some(key)
    }

    /// The item of a key that is known and has not ended by then, and its place in the log.
    pub(crate) fn get(&mut self, key: &[u8], now_s: u32) -> (Option<&StoredItem>, u64) {
        if let Some(known) = self.known.get_mut(key) {
            known.is_used = true;
        }
        self.peek(key, now_s)
    }

    /// The same; eviction does not hear of it.
    pub(crate) fn peek(&self, key: &[u8], now_s: u32) -> (Option<&StoredItem>, u64) {
        let Some(known) = self.known.get(key) else {
            return (None, 0);
        };
        let item = known.item.as_ref();
        let item = item.filter(|item| item.expiry == 0 || item.expiry > now_s);
        (item, known.place)
    }

    /// Whether a key's item is known not to be on disk, or to be there: false if nobody knows.
    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        self.disk.is_none() || self.known.contains_key(key)
    }

    /// Whether there is an item.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.known
            .get(key)
            .is_some_and(|known| known.item.is_some())
    }

    /// Stores an item; its place in the log.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        item: &StoredItem,
        now_s: u32,
    ) -> Result<u64, StoreRefused> {
        if self.disk.is_none() && !self.has_room(key, item) {
            self.sweep(now_s);
            if !self.has_room(key, item) {
                return Err(StoreRefused::Full);
            }
        }
        let place = match &mut self.disk {
            None => 0,
            Some(disk) => disk.put(key, item)?,
        };
        self.remember(key, Some(item.clone()), place);
        Ok(place)
    }

    fn has_room(&self, key: &[u8], item: &StoredItem) -> bool {
        let known = self.known.get(key);
        let taken = known.map_or(0, |known| {
            let value = known.item.as_ref().map_or(0, |item| item.value.len());
            key.len() + value + ITEM_BYTES
        });
        let wanted = key.len() + item.value.len() + ITEM_BYTES;
        self.bytes - taken + wanted <= self.bytes_max
    }

    /// Forgets what has ended, once a second at most: it looks at everything.
    fn sweep(&mut self, now_s: u32) {
        if std::mem::replace(&mut self.swept_s, now_s) == now_s {
            return;
        }
        let has_ended = |known: &KnownItem| {
            let item = known.item.as_ref();
            item.is_some_and(|item| item.expiry != 0 && item.expiry <= now_s)
        };
        let ended = self.known.iter().filter(|(_, known)| has_ended(known));
        let ended: Vec<Box<[u8]>> = ended.map(|(key, _)| key.clone()).collect();
        ended.iter().for_each(|key| self.forget(key));
    }

    /// Deletes the item of a key; its place in the log.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<u64, StoreRefused> {
        let Some(disk) = &mut self.disk else {
            self.forget(key);
            return Ok(0);
        };
        let place = disk.delete(key)?;
        self.remember(key, None, place);
        Ok(place)
    }

    /// Removes every item; the place of that in the log.
    pub(crate) fn clear(&mut self) -> Result<u64, StoreRefused> {
        let mut place = 0;
        if let Some(disk) = &mut self.disk {
            disk.storage.admit(WriteKind::Delete).map_err(refusal)?;
            // Reads that are under way are void.
            disk.last_place = disk.storage.flush_all(0, || ());
            place = disk.last_place;
        }
        self.known.clear();
        self.order.clear();
        self.bytes = 0;
        Ok(place)
    }

    fn remember(&mut self, key: &[u8], item: Option<StoredItem>, place: u64) {
        let bytes = |item: &Option<StoredItem>| item.as_ref().map_or(0, |item| item.value.len());
        self.bytes += bytes(&item);
        let is_used = true;
        match self.known.get_mut(key) {
            Some(known) => {
                self.bytes -= bytes(&known.item);
                *known = KnownItem {
                    item,
                    place,
                    is_used,
                };
            }
            None => {
                self.bytes += key.len() + ITEM_BYTES;
                if self.disk.is_some() {
                    self.order.push_back(key.into());
                }
                let known = KnownItem {
                    item,
                    place,
                    is_used,
                };
                self.known.insert(key.into(), known);
            }
        }
    }

    fn forget(&mut self, key: &[u8]) {
        if let Some(known) = self.known.remove(key) {
            let value = known.item.map_or(0, |item| item.value.len());
            self.bytes -= key.len() + ITEM_BYTES + value;
        }
    }

    /// Gives up keys until memory is within its bound: second chance (a clock), and none that is to
    /// be kept.
    pub(crate) fn evict(&mut self, is_kept: impl Fn(RouteHash) -> bool) {
        if self.disk.is_none() || self.bytes <= self.bytes_max {
            return;
        }
        // Everybody is looked at twice at most.
        for _ in 0..2 * self.order.len() {
            if self.bytes <= self.bytes_max {
                return;
            }
            let Some(key) = self.order.pop_front() else {
                return;
            };
            let is_used = match self.known.get_mut(&key) {
                Some(known) => std::mem::take(&mut known.is_used),
                None => continue,
            };
            if is_used || is_kept(RouteHash(key_hash(&key).0)) {
                self.order.push_back(key);
            } else {
                self.forget(&key);
            }
        }
    }
}

impl Disk {
    fn submit(&mut self, key: &[u8], ticket: ReadTicket) -> bool {
        if self.reads.len() >= READS_MAX {
            return false;
        }
        self.numbers += 1;
        let request = ReadRequest {
            key: key.into(),
            receiver: 0,
            number: self.numbers,
        };
        let is_taken = self.storage.submit(request);
        if is_taken {
            self.reads.insert(key.into(), ticket);
        }
        is_taken
    }

    fn put(&mut self, key: &[u8], item: &StoredItem) -> Result<u64, StoreRefused> {
        self.storage.admit(WriteKind::Store).map_err(refusal)?;
        let image = ItemImage {
            cas: item.version.0,
            flags: item.flags,
            expiry: item.expiry,
            ..ItemImage::default()
        };
        let hash = key_hash(key);
        let mut locked = self.storage.lock(hash);
        self.last_place = locked.put(key, hash, &image, &item.value);
        Ok(self.last_place)
    }

    fn delete(&mut self, key: &[u8]) -> Result<u64, StoreRefused> {
        self.storage.admit(WriteKind::Delete).map_err(refusal)?;
        let hash = key_hash(key);
        self.last_place = self.storage.lock(hash).delete(key, hash);
        Ok(self.last_place)
    }
}

const fn refusal(refused: WriteRefused) -> StoreRefused {
    match refused {
        WriteRefused::Behind => StoreRefused::Behind,
        WriteRefused::Full | WriteRefused::Failed => StoreRefused::Full,
    }
}

fn of_disk(item: &LoadedItem) -> StoredItem {
    let image = item.image();
    StoredItem {
        version: Cas(image.cas),
        flags: image.flags,
        expiry: image.expiry,
        value: item.value().to_vec(),
    }
}

/// Storage's stripes and reads go by a hash of the key; which one is the caller's choice.
fn key_hash(key: &[u8]) -> KeyHash {
    let route = curtail_types::Key::new(key).map(curtail_codec::tiered::PartitionMap::route);
    KeyHash(route.unwrap_or_default().0)
}

/// What an item takes beside key and value: places in maps.
pub(crate) const ITEM_BYTES: usize = 128;
/// Reads of the disk under way.
const READS_MAX: usize = 4096;
/// Memory of the tree: blocks, and what is not flushed.
const TREE_BYTES: u64 = 16 << 20;
const RESERVE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use curtail_runtime::{Poller, Token};

    use super::*;

    /// A store on disk whose window does not end during a test.
    fn bounded_in(folder: &std::path::Path) -> BackEndStore {
        let options = StoreOptions {
            place: StorePlace::Disk {
                directory: folder.into(),
                durability: Durability::Bounded(Duration::from_secs(3600)),
            },
            memory_bytes: 1 << 20,
        };
        let waker = Poller::new().unwrap().waker(Token(0)).unwrap();
        BackEndStore::open(&options, waker, "test".to_owned()).unwrap()
    }

    /// Goal: an answer waits for the log only if that was promised. Method: as
    /// said.
    #[test]
    fn a_bounded_write_is_answered_before_it_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = bounded_in(folder.path());
        let place = store.put(b"key", &StoredItem::default(), 0).unwrap();
        assert!(place > 0 && place <= store.durable());
    }

    /// Goal: a flush is refused when writes are. Method: the log cannot go on, because its folder
    /// is gone when the memtable is full.
    #[test]
    fn a_failed_disk_refuses_a_flush() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = bounded_in(folder.path());
        std::fs::remove_dir_all(folder.path().join("log")).unwrap();
        let item = StoredItem {
            value: vec![1; 1000],
            ..StoredItem::default()
        };
        while store.put(b"key", &item, 0) != Err(StoreRefused::Full) {}
        assert_eq!(store.clear(), Err(StoreRefused::Full));
        assert!(store.has(b"key"));
    }
}
