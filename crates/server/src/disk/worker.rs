//! What one worker has to do with the disk tier: reads that it asked for, replies that it holds
//! until their writes are durable, and requests that wait for room.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use curtail_storage::{Durability, WriteKind, WriteRefused};
use curtail_store::Store;
use curtail_types::{Exptime, Now};

use crate::{
    completion::{Awaited, Token},
    disk::{DiskTier, loads::DiskLoads},
    request::reply_buffer::Replies,
};

/// The part of one worker.
pub(crate) struct DiskWorker {
    pub(crate) disk: Arc<DiskTier>,
    worker: usize,
    pub(crate) loads: DiskLoads,
    /// Replies of this turn that wait for their writes, by connection.
    held: Vec<HeldReplies>,
    /// Replies that wait, in the order of the log.
    unsynced: VecDeque<Unsynced>,
    /// Requests that found no room, neither for a write nor for a read.
    retries: Vec<Token>,
    behind_since: Option<Instant>,
    /// The value of an item on its way to the log.
    pub(crate) value: Vec<u8>,
}

#[derive(Debug)]
struct HeldReplies {
    token: Token,
    /// The last write of the connection, by its place in the log; 0 for none.
    place: u64,
}

#[derive(Debug)]
struct Unsynced {
    token: Token,
    place: u64,
    since: Instant,
}

/// Whether a write may run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WriteAdmission {
    Admitted,
    /// It waits for room.
    Waits,
    /// It is refused.
    Refused(WriteRefused),
}

/// How long writes wait for a disk that is behind before they are refused.
const BEHIND_MAX: Duration = Duration::from_secs(2);

/// How long replies wait for a disk that is full before their connections are closed.
const UNSYNCED_MAX: Duration = Duration::from_secs(5);

impl DiskWorker {
    pub(crate) fn new(disk: Arc<DiskTier>, worker: usize) -> Self {
        Self {
            disk,
            worker,
            loads: DiskLoads::default(),
            held: Vec::new(),
            unsynced: VecDeque::new(),
            retries: Vec::new(),
            behind_since: None,
            value: Vec::new(),
        }
    }

    /// Which worker this is.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// Whether a write may run now.
    pub(crate) fn admit(&mut self, kind: WriteKind) -> WriteAdmission {
        match self.disk.storage.admit(kind) {
            Ok(()) => {
                self.behind_since = None;
                WriteAdmission::Admitted
            }
            Err(WriteRefused::Behind) => {
                let since = *self.behind_since.get_or_insert_with(Instant::now);
                match since.elapsed() < BEHIND_MAX {
                    true => WriteAdmission::Waits,
                    false => WriteAdmission::Refused(WriteRefused::Behind),
                }
            }
            Err(refused) => WriteAdmission::Refused(refused),
        }
    }

    /// Has the replies of a connection wait from here on for the writes that follow in this turn.
    pub(crate) fn hold(&mut self, replies: &mut Replies, slot: usize, serial: u64) {
        let is_held = self.held.last().is_some_and(|held| held.token.slot == slot);
        if is_held || self.disk.storage.config().durability != Durability::Sync {
            return;
        }
        let place = replies.await_answer(slot, Awaited::Silent, None);
        let token = Token {
            slot,
            serial,
            place,
        };
        self.held.push(HeldReplies { token, place: 0 });
    }

    /// Notes the place in the log of a write whose replies are held.
    pub(crate) fn note_write(&mut self, slot: usize, place: u64) {
        let held = self.held.last_mut();
        if let Some(held) = held.filter(|held| held.token.slot == slot) {
            held.place = place;
        }
    }

    /// Flushes memory and disk together, now or at a time.
    pub(crate) fn flush_all(&mut self, store: &Store, now: Now, at: Exptime, slot: usize) {
        let expiry = at.expiry(now);
        let is_now = expiry.is_never() || expiry.is_past(now);
        let place = match is_now {
            true => {
                let flush = || store.flush_all(now, Exptime(0));
                self.disk.storage.flush_all(0, flush)
            }
            false => self.disk.storage.flush_all(expiry.to_bits(), || ()),
        };
        self.note_write(slot, place);
    }

    /// Lets those replies go that wait for nothing, before the replies of the turn are sent.
    pub(crate) fn commit(&mut self, replies: &mut Replies) {
        if self.held.is_empty() {
            return;
        }
        let since = Instant::now();
        let durable = self.disk.storage.durable();
        for HeldReplies { token, place } in self.held.drain(..) {
            match place <= durable {
                true => replies.cancel(token.place),
                false => self.unsynced.push_back(Unsynced {
                    token,
                    place,
                    since,
                }),
            }
        }
        self.note_waiting();
    }

    /// Has a request run again when there is room.
    pub(crate) fn retry(&mut self, token: Token) {
        self.retries.push(token);
        self.note_waiting();
    }

    fn note_waiting(&self) {
        self.disk.set_waiting(self.worker, self.awaits());
    }

    /// Whether anything waits for the storage's progress.
    pub(crate) fn awaits(&self) -> bool {
        !self.unsynced.is_empty() || !self.retries.is_empty()
    }

    /// The next reply whose writes have become durable.
    pub(crate) fn next_durable(&mut self) -> Option<Token> {
        let durable = self.disk.storage.durable();
        let front = self.unsynced.pop_front_if(|front| front.place <= durable);
        if front.is_none() {
            self.note_waiting();
        }
        front.map(|unsynced| unsynced.token)
    }

    /// The next reply of which nobody knows whether its writes will ever be durable.
    pub(crate) fn next_lost(&mut self) -> Option<Token> {
        let front = self.unsynced.front()?;
        let is_lost = match self.disk.storage.admit(WriteKind::Delete) {
            Err(WriteRefused::Failed) => true,
            Err(WriteRefused::Full) => front.since.elapsed() >= UNSYNCED_MAX,
            Ok(()) | Err(WriteRefused::Behind) => false,
        };
        let lost = if is_lost {
            self.unsynced.pop_front()
        } else {
            None
        };
        lost.map(|unsynced| unsynced.token)
    }

    /// Requests that found no room, if there may be some now.
    pub(crate) fn take_retries(&mut self) -> Vec<Token> {
        if self.retries.is_empty() || self.admit(WriteKind::Delete) == WriteAdmission::Waits {
            return Vec::new();
        }
        std::mem::take(&mut self.retries)
    }
}
