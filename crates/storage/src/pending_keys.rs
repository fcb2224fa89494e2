//! Keys with pending writes or reads: writes that the tree does not have yet, and disk reads that
//! are in progress.
//!
//! A write holds the lock of its key's stripe while it changes memory and enters the queue, so the
//! log has the writes of a key in the order in which they changed memory. If the key was written
//! during a disk read, the result of the read is dropped.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
};

use curtail_types::KeyHash;
use lsm_tree::Slice;

use crate::{
    engine::Engine,
    item_record::{self, HEADER_BYTES, ItemImage},
    item_tree::{FLUSH_MARK, FlushMark, ItemTree},
    planted_fault::{PlantedFault, planted},
    write_log::TreeWrite,
};

/// Slices of the key hash that are locked apart.
const STRIPES: usize = 1024;

/// All keys' stripes.
#[derive(Debug)]
pub(crate) struct KeyStripes {
    all: Box<[Mutex<KeyStripe>]>,
}

/// The keys of one slice of the hash.
#[derive(Debug, Default)]
pub(crate) struct KeyStripe {
    pending: HashMap<Slice, PendingWrite>,
    reads: Vec<ReadUnderWay>,
    reads_begun: u64,
}

#[derive(Debug)]
struct PendingWrite {
    place: u64,
    epoch: u32,
    value: Option<Slice>,
}

#[derive(Debug)]
struct ReadUnderWay {
    number: u64,
    hash: KeyHash,
    /// The key was written since.
    is_void: bool,
}

/// A key's stripe, locked: nothing of its keys enters the queue meanwhile.
pub struct KeyLock<'e> {
    engine: &'e Arc<Engine>,
    stripe: MutexGuard<'e, KeyStripe>,
}

/// What is known of a key without a look at the disk.
#[derive(Clone, Debug)]
pub enum Latest {
    /// Only the disk knows.
    OnDisk,
    /// There is no item.
    Absent,
    /// The item was written a moment ago.
    Item(LoadedItem),
}

/// An item that came from the disk, or is on its way there.
#[derive(Clone, Debug)]
pub struct LoadedItem {
    image: ItemImage,
    record: Slice,
}

/// A read of the disk that is under way. It is void if the key is written meanwhile.
#[derive(Debug)]
pub struct ReadTicket {
    engine: Arc<Engine>,
    hash: KeyHash,
    number: u64,
    is_ended: bool,
}

impl LoadedItem {
    pub(crate) fn read(
        key: &[u8],
        record: Slice,
        epoch: u32,
    ) -> Result<Option<Self>, &'static str> {
        let read = item_record::decode(key, &record)?;
        let image = read.image;
        Ok((read.epoch >= epoch).then_some(Self { image, record }))
    }

    /// All but its key and its value.
    pub fn image(&self) -> ItemImage {
        self.image
    }

    /// Its value.
    pub fn value(&self) -> &[u8] {
        self.record.get(HEADER_BYTES..).unwrap_or_default()
    }
}

impl KeyStripes {
    pub(crate) fn new() -> Self {
        Self {
            all: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }
    }

    pub(crate) fn lock(&self, hash: KeyHash) -> MutexGuard<'_, KeyStripe> {
        let index = hash.0 as usize % STRIPES;
        let stripe = self.all.get(index).unwrap_or_else(|| unreachable!());
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks every stripe, in order.
    pub(crate) fn lock_all(&self) -> Vec<MutexGuard<'_, KeyStripe>> {
        let stripes = self.all.iter();
        stripes
            .map(|stripe| stripe.lock().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }
}

impl KeyStripe {
    /// Forgets a write that the tree has, unless the key was written again.
    pub(crate) fn settle(&mut self, tree_key: &[u8], place: u64) {
        if self
            .pending
            .get(tree_key)
            .is_some_and(|write| write.place == place)
        {
            self.pending.remove(tree_key);
        }
    }

    fn void_all(&mut self) {
        self.reads.iter_mut().for_each(|read| read.is_void = true);
    }

    fn end_read(&mut self, number: u64) {
        self.reads.retain(|read| read.number != number);
    }
}

impl<'e> KeyLock<'e> {
    pub(crate) fn new(engine: &'e Arc<Engine>, hash: KeyHash) -> Self {
        let stripe = engine.stripes.lock(hash);
        Self { engine, stripe }
    }

    /// What is known of `key`.
    pub fn latest(&self, key: &[u8]) -> Latest {
        let Some(write) = self.stripe.pending.get(&ItemTree::key_of(key)[..]) else {
            return Latest::OnDisk;
        };
        let epoch = self.engine.epoch.load(Relaxed);
        match &write.value {
            Some(record) if write.epoch >= epoch => {
                let item = LoadedItem::read(key, record.clone(), epoch);
                item.ok().flatten().map_or(Latest::Absent, Latest::Item)
            }
            _ => Latest::Absent,
        }
    }

    /// Has an item stored that memory has stored. Returns the place of the write in the log.
    pub fn put(&mut self, key: &[u8], hash: KeyHash, image: &ItemImage, value: &[u8]) -> u64 {
        let epoch = self.engine.epoch.load(Relaxed);
        let record = Slice::from(item_record::encode(key, image, epoch, value));
        self.engine.note_cas(image.cas);
        self.write(key, hash, Some(record))
    }

    /// Has an item deleted that memory has deleted, as [`put`](Self::put) has one stored.
    pub fn delete(&mut self, key: &[u8], hash: KeyHash) -> u64 {
        self.write(key, hash, None)
    }

    fn write(&mut self, key: &[u8], hash: KeyHash, value: Option<Slice>) -> u64 {
        let key = ItemTree::key_of(key);
        let write = TreeWrite {
            key: key.clone(),
            value: value.clone(),
        };
        let place = self.engine.push(write, Some(hash));
        let epoch = self.engine.epoch.load(Relaxed);
        let pending = PendingWrite {
            place,
            epoch,
            value,
        };
        self.stripe.pending.insert(key, pending);
        for read in &mut self.stripe.reads {
            read.is_void |= read.hash == hash;
        }
        place
    }

    /// Notes that a read of the disk begins for a key of which [`latest`](Self::latest) said that
    /// only the disk knows it.
    pub fn begin_read(&mut self, hash: KeyHash) -> ReadTicket {
        self.stripe.reads_begun += 1;
        let number = self.stripe.reads_begun;
        self.stripe.reads.push(ReadUnderWay {
            number,
            hash,
            is_void: false,
        });
        ReadTicket {
            engine: Arc::clone(self.engine),
            hash,
            number,
            is_ended: false,
        }
    }

    /// Whether what a read found is still so: its key was not written since it began.
    pub fn is_current(&self, ticket: &ReadTicket) -> bool {
        let mut reads = self.stripe.reads.iter();
        let is_open = |read: &ReadUnderWay| !read.is_void || planted(PlantedFault::ShowsVoid);
        reads.any(|read| read.number == ticket.number && is_open(read))
    }

    /// Ends a read while its key is locked.
    pub fn end_read(&mut self, mut ticket: ReadTicket) {
        ticket.is_ended = true;
        self.stripe.end_read(ticket.number);
    }
}

impl Drop for ReadTicket {
    fn drop(&mut self) {
        if !self.is_ended {
            self.engine.stripes.lock(self.hash).end_read(self.number);
        }
    }
}

/// Locks every key and begins an epoch: every item written before is deleted. With `at`, in Unix
/// seconds, that is planned for later. `also` is done meanwhile. Returns the place in the log.
pub(crate) fn flush_all(engine: &Engine, at: u32, also: impl FnOnce()) -> u64 {
    let mut stripes = engine.stripes.lock_all();
    also();
    match at {
        0 => begin_epoch(engine, &mut stripes),
        at => push_mark(engine, at),
    }
}

/// Carries out a planned flush, if its time has come and nobody did; its place in the log.
pub(crate) fn flush_due(engine: &Engine, now_seconds: u32, also: impl FnOnce()) -> Option<u64> {
    let is_due = || (1..=now_seconds).contains(&engine.flush_at.load(Relaxed));
    if !is_due() {
        return None;
    }
    let mut stripes = engine.stripes.lock_all();
    is_due().then(|| {
        also();
        begin_epoch(engine, &mut stripes)
    })
}

fn begin_epoch(engine: &Engine, stripes: &mut [MutexGuard<'_, KeyStripe>]) -> u64 {
    stripes.iter_mut().for_each(|stripe| stripe.void_all());
    engine.epoch.fetch_add(1, Relaxed);
    push_mark(engine, 0)
}

fn push_mark(engine: &Engine, at: u32) -> u64 {
    engine.flush_at.store(at, Relaxed);
    let mark = FlushMark {
        epoch: engine.epoch.load(Relaxed),
        at,
    };
    let write = TreeWrite {
        key: Slice::from(FLUSH_MARK),
        value: Some(Slice::from(mark.to_bytes())),
    };
    engine.push(write, None)
}
