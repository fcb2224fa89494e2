//! Items that a worker has asked the disk for, until they are in memory.

use std::collections::{HashMap, VecDeque};

use curtail_storage::{KeyLock, LoadedItem, ReadAnswer, ReadRequest, ReadTicket, Storage};
use curtail_types::KeyHash;

use crate::completion::Token;

/// What a worker has asked for.
#[derive(Debug, Default)]
pub(crate) struct DiskLoads {
    by_key: HashMap<Box<[u8]>, Load>,
    /// Those that have ended, the oldest first, and bytes of the items that they found.
    ended: VecDeque<(Box<[u8]>, u64)>,
    ended_bytes: usize,
    under_way: usize,
    /// Bytes of the largest items that were found lately.
    typical_bytes: usize,
    next_number: u64,
}

#[derive(Debug)]
struct Load {
    number: u64,
    ticket: ReadTicket,
    /// Requests that run again when it ends.
    waiters: Vec<Token>,
    found: Option<LoadEnded>,
}

/// How a load ended.
#[derive(Clone, Debug)]
pub(crate) enum LoadEnded {
    /// There is such an item.
    Item(LoadedItem),
    /// There is none.
    Absent,
    /// The disk did not tell.
    Failed,
}

/// What is known of a key.
#[derive(Debug)]
pub(crate) enum LoadState {
    /// It was not asked for, or written since.
    Unknown,
    UnderWay,
    Ended(LoadEnded),
}

/// Reads of one worker that may be under way.
const LOADS_MAX: usize = 1024;

/// DiskLoads that have ended and are kept. What they found is in memory; they are for requests that
/// come when it has been evicted again, and for keys that do not exist.
const ENDED_MAX: usize = 256;

/// Bytes of the items that these found.
const ENDED_BYTES_MAX: usize = 4 << 20;

impl DiskLoads {
    /// What is known of `key`, which is locked.
    pub(crate) fn look(&mut self, key: &[u8], locked: &mut KeyLock<'_>) -> LoadState {
        let Some(load) = self.by_key.get(key) else {
            return LoadState::Unknown;
        };
        let Some(found) = &load.found else {
            return LoadState::UnderWay;
        };
        let is_current = locked.is_current(&load.ticket);
        if is_current && matches!(found, LoadEnded::Absent) {
            return LoadState::Ended(LoadEnded::Absent);
        }
        match self.take(key, locked).filter(|_| is_current) {
            Some(found) => LoadState::Ended(found),
            None => LoadState::Unknown,
        }
    }

    /// Whether `key`, which is locked, need not be asked for. What its load found is kept.
    pub(crate) fn has(&mut self, key: &[u8], locked: &mut KeyLock<'_>) -> bool {
        let Some(load) = self.by_key.get(key) else {
            return false;
        };
        let is_void = load.found.is_some() && !locked.is_current(&load.ticket);
        if is_void {
            self.take(key, locked);
        }
        !is_void
    }

    /// Whether one more item may be asked for that no request waits for yet: what is found and not
    /// kept would be read again and again.
    pub(crate) fn has_room_ahead(&self) -> bool {
        let expected = (self.under_way + 1) * self.typical_bytes;
        self.under_way < ENDED_MAX && self.ended_bytes + expected <= ENDED_BYTES_MAX
    }

    /// Gives up a load, and what it found.
    fn take(&mut self, key: &[u8], locked: &mut KeyLock<'_>) -> Option<LoadEnded> {
        let load = self.by_key.remove(key)?;
        self.ended_bytes -= load.bytes();
        locked.end_read(load.ticket);
        load.found
    }

    /// Asks for `key`, which is locked and not asked for. False if too many are under way.
    pub(crate) fn begin(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        locked: &mut KeyLock<'_>,
        (storage, worker): (&Storage, usize),
    ) -> bool {
        if self.under_way >= LOADS_MAX {
            return false;
        }
        let number = self.next_number;
        let request = ReadRequest {
            key: key.into(),
            receiver: worker,
            number,
        };
        let ticket = locked.begin_read(hash);
        if !storage.submit(request) {
            locked.end_read(ticket);
            return false;
        }
        self.next_number += 1;
        self.under_way += 1;
        let load = Load {
            number,
            ticket,
            waiters: Vec::new(),
            found: None,
        };
        self.by_key.insert(key.into(), load);
        true
    }

    /// Has a request run again when the load of `key` has ended.
    pub(crate) fn wait(&mut self, key: &[u8], token: Token) {
        if let Some(load) = self.by_key.get_mut(key) {
            load.waiters.push(token);
        }
    }

    /// Takes in what a read found. Returns the requests that waited for it.
    pub(crate) fn end(&mut self, answer: ReadAnswer) -> Vec<Token> {
        self.under_way = self.under_way.saturating_sub(1);
        let key = answer.request.key;
        let load = self.by_key.get_mut(&key);
        let Some(load) = load.filter(|load| load.number == answer.request.number) else {
            return Vec::new();
        };
        load.found = Some(match answer.found {
            Ok(Some(item)) => LoadEnded::Item(item),
            Ok(None) => LoadEnded::Absent,
            Err(_) => LoadEnded::Failed,
        });
        let bytes = load.bytes();
        self.ended_bytes += bytes;
        self.typical_bytes = bytes.max(self.typical_bytes - self.typical_bytes / 8);
        let waiters = std::mem::take(&mut load.waiters);
        self.ended.push_back((key, load.number));
        waiters
    }

    /// Forgets the loads that ended first, down to what may be kept. It is called between turns:
    /// the requests that waited for a load run in the turn in which it ended, and would only ask
    /// for its item again.
    pub(crate) fn forget_oldest(&mut self) {
        while self.ended.len() > ENDED_MAX || self.ended_bytes > ENDED_BYTES_MAX {
            let Some((key, number)) = self.ended.pop_front() else {
                return;
            };
            // It may have been looked at, and asked for again, since.
            if self
                .by_key
                .get(&key)
                .is_some_and(|load| load.number == number)
                && let Some(load) = self.by_key.remove(&key)
            {
                self.ended_bytes -= load.bytes();
            }
        }
    }
}

impl Load {
    fn bytes(&self) -> usize {
        match &self.found {
            Some(LoadEnded::Item(item)) => item.value().len(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{Arc, Mutex, mpsc},
    };

    use curtail_storage::{
        Durability, ItemImage, Latest, ReportLevel, StorageConfig, StorageEvents,
    };

    use super::*;

    struct Answers(Mutex<mpsc::Sender<ReadAnswer>>);

    impl StorageEvents for Answers {
        fn answer(&self, answer: ReadAnswer, _goes_on: bool) {
            let _ = self.0.lock().unwrap().send(answer);
        }

        fn progress(&self) {}

        fn report(&self, _level: ReportLevel, what: &str) {
            panic!("{what}");
        }
    }

    const HASH: KeyHash = KeyHash(7);

    /// A storage whose disk has `key`, and what its threads find.
    fn with_key(folder: &Path, value: &[u8]) -> (Storage, mpsc::Receiver<ReadAnswer>) {
        let (sender, answers) = mpsc::channel();
        let config = StorageConfig {
            dir: folder.into(),
            durability: Durability::Sync,
            memory_bytes: 8 << 20,
            readers: 1,
            reserve_bytes: 0,
        };
        let storage = Storage::open(config, Arc::new(Answers(Mutex::new(sender)))).unwrap();
        let image = ItemImage::default();
        storage.lock(HASH).put(b"key", HASH, &image, value);
        while !matches!(storage.lock(HASH).latest(b"key"), Latest::OnDisk) {
            std::thread::yield_now();
        }
        (storage, answers)
    }

    /// Goal: what was found is there for the request that waited for it, however large it is, and
    /// not for longer. Method: an item that is larger than all that may be kept.
    #[test]
    fn what_was_found_is_there_for_one_turn() {
        let value = vec![1; ENDED_BYTES_MAX + 1];
        let folder = tempfile::tempdir().unwrap();
        let (storage, answers) = with_key(folder.path(), &value);
        let mut loads = DiskLoads::default();
        for is_late in [false, true] {
            let mut locked = storage.lock(HASH);
            assert!(loads.begin(b"key", HASH, &mut locked, (&storage, 0)));
            drop(locked);
            loads.end(answers.recv().unwrap());
            if is_late {
                loads.forget_oldest();
            }
            let found = loads.look(b"key", &mut storage.lock(HASH));
            match found {
                LoadState::Ended(LoadEnded::Item(item)) => assert!(item.value() == value),
                _ => assert!(is_late, "what was found is gone"),
            }
        }
        assert_eq!(loads.ended_bytes, 0);
    }

    /// Goal: no more is asked for ahead than is kept. Method: items of which two may be kept.
    #[test]
    fn a_look_ahead_has_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, answers) = with_key(folder.path(), &[1; ENDED_BYTES_MAX / 2]);
        let mut loads = DiskLoads::default();
        let begin = |loads: &mut DiskLoads, key: &[u8]| {
            assert!(loads.begin(key, HASH, &mut storage.lock(HASH), (&storage, 0)));
        };
        begin(&mut loads, b"key");
        loads.end(answers.recv().unwrap());
        assert!(loads.has_room_ahead(), "one is kept");
        begin(&mut loads, b"second");
        assert!(!loads.has_room_ahead(), "one is kept, and one comes");
        loads.look(b"key", &mut storage.lock(HASH));
        assert!(loads.has_room_ahead(), "one comes");
        begin(&mut loads, b"third");
        assert!(!loads.has_room_ahead(), "two come");
    }

    /// Goal: a look ahead leaves what was found for the request that asked for it. Method: a key
    /// that is on disk, and one that is not, are loaded; a write makes what was found void.
    #[test]
    fn a_look_ahead_keeps_what_was_found() {
        let folder = tempfile::tempdir().unwrap();
        let (storage, answers) = with_key(folder.path(), b"value");
        let mut loads = DiskLoads::default();
        for key in [&b"key"[..], b"other"] {
            assert!(loads.begin(key, HASH, &mut storage.lock(HASH), (&storage, 0)));
        }
        for _ in 0..2 {
            loads.end(answers.recv().unwrap());
        }
        let mut locked = storage.lock(HASH);
        assert!(loads.has(b"key", &mut locked) && loads.has(b"key", &mut locked));
        let LoadState::Ended(LoadEnded::Item(item)) = loads.look(b"key", &mut locked) else {
            panic!("what was found is gone");
        };
        assert_eq!(item.value(), b"value");
        assert!(!loads.has(b"key", &mut locked), "an item is given once");
        let absent = loads.look(b"other", &mut locked);
        assert!(matches!(absent, LoadState::Ended(LoadEnded::Absent)));
        locked.put(b"other", HASH, &ItemImage::default(), b"new");
        assert!(!loads.has(b"other", &mut locked), "a write makes it void");
    }
}
