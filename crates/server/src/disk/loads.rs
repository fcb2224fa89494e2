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
        if locked.is_current(&load.ticket) && matches!(found, LoadEnded::Absent) {
            return LoadState::Ended(LoadEnded::Absent);
        }
        let Some(load) = self.by_key.remove(key) else {
            return LoadState::Unknown;
        };
        self.ended_bytes -= load.bytes();
        let is_current = locked.is_current(&load.ticket);
        locked.end_read(load.ticket);
        match load.found.filter(|_| is_current) {
            Some(found) => LoadState::Ended(found),
            None => LoadState::Unknown,
        }
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
        self.ended_bytes += load.bytes();
        let waiters = std::mem::take(&mut load.waiters);
        self.ended.push_back((key, load.number));
        self.forget_oldest();
        waiters
    }

    fn forget_oldest(&mut self) {
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
