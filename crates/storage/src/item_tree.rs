//! The LSM tree: fjall's, without fjall's log. The log of this crate numbers the operations, and
//! the tree takes these numbers as its sequence numbers.
//!
//! Keys of items have `i` in front. Beside them stand the checkpoint, which says up to which
//! operation the tables are complete, and the flush mark.

use std::{
    panic::RefUnwindSafe,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use lsm_tree::{
    AbstractTree, AnyTree, Cache, Guard, SeqNo, SequenceNumberCounter, Slice,
    compaction::{
        Leveled,
        filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict},
    },
    config::{CompressionPolicy, PinningPolicy},
};

use crate::{error::StorageError, item_record, write_log::TreeWrite};

/// The tree.
pub(crate) struct ItemTree {
    tree: AnyTree,
    path: PathBuf,
    compaction: Arc<Leveled>,
    /// Items of earlier epochs are dropped; an epoch counts when its flush is on stable storage.
    epoch: Arc<AtomicU32>,
}

/// What the tables are complete to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Checkpoint {
    /// The number of the last operation that they have.
    pub(crate) operation: u64,
    /// The highest CAS that any operation until then had.
    pub(crate) cas: u64,
}

/// Which items count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct FlushMark {
    /// Items of earlier epochs are deleted.
    pub(crate) epoch: u32,
    /// When the next epoch begins, in Unix seconds; 0 if that is not planned.
    pub(crate) at: u32,
}

/// What the key of an item begins with.
const ITEM: u8 = b'i';
const CHECKPOINT: &[u8] = b"!checkpoint";
pub(crate) const FLUSH_MARK: &[u8] = b"!flush";

/// The newest version of everything.
const NEWEST: SeqNo = SeqNo::MAX;

/// How long after its end an item is dropped: the clock may be set back by as much.
const EXPIRED_SECONDS: u32 = 3600;

struct DropsGone {
    epoch: Arc<AtomicU32>,
}

struct GoneFilter {
    epoch: u32,
    now: u32,
}

impl RefUnwindSafe for DropsGone {}

impl Factory for DropsGone {
    fn name(&self) -> &str {
        "expired and flushed items"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let epoch = self.epoch.load(Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(0));
        Box::new(GoneFilter { epoch, now })
    }
}

impl CompactionFilter for GoneFilter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if item.key().first() != Some(&ITEM) {
            return Ok(Verdict::Keep);
        }
        let Some((expiry, epoch)) = item_record::peek(&item.value()?) else {
            return Ok(Verdict::Keep);
        };
        let is_expired = expiry != 0 && expiry.saturating_add(EXPIRED_SECONDS) < self.now;
        Ok(match is_expired || epoch < self.epoch {
            true => Verdict::Remove,
            false => Verdict::Keep,
        })
    }
}

impl ItemTree {
    /// Opens the tree in a directory, which it makes if need be.
    pub(crate) fn open(path: &Path, cache_bytes: u64) -> Result<Self, StorageError> {
        let epoch = Arc::<AtomicU32>::default();
        let factory = DropsGone {
            epoch: Arc::clone(&epoch),
        };
        let (numbers, visible) = (SequenceNumberCounter::default(), Default::default());
        let config = lsm_tree::Config::new(path, numbers, visible)
            .use_cache(Arc::new(Cache::with_capacity_bytes(cache_bytes)))
            .data_block_compression_policy(CompressionPolicy::new([
                lsm_tree::CompressionType::None,
                lsm_tree::CompressionType::Lz4,
            ]))
            .index_block_partitioning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(false))
            .filter_block_pinning_policy(PinningPolicy::all(false))
            .with_compaction_filter_factory(Some(Arc::new(factory)));
        let tree = config.open().map_err(|error| tables_error(path, error))?;
        Ok(Self {
            tree,
            path: path.into(),
            compaction: Arc::new(Leveled::default()),
            epoch,
        })
    }

    /// The key of an item in the tree.
    pub(crate) fn key_of(key: &[u8]) -> Slice {
        let parts = [&[ITEM], key];
        parts.into_iter().flatten().copied().collect()
    }

    /// The key of the item that stands under `tree_key`; `None` if that is no item's.
    pub(crate) fn item_key(tree_key: &[u8]) -> Option<&[u8]> {
        tree_key.strip_prefix(&[ITEM])
    }

    /// The value of a key.
    pub(crate) fn get(&self, tree_key: &[u8]) -> lsm_tree::Result<Option<Slice>> {
        self.tree.get(tree_key, NEWEST)
    }

    /// Applies an operation to the memtable.
    pub(crate) fn apply(&self, number: u64, write: TreeWrite) {
        match write.value {
            Some(value) => self.tree.insert(write.key, value, number),
            None => self.tree.remove(write.key, number),
        };
    }

    /// All that stands in the tree, by key.
    pub(crate) fn scan(&self) -> impl Iterator<Item = lsm_tree::Result<(Slice, Slice)>> {
        self.tree.iter(NEWEST, None).map(Guard::into_inner)
    }

    /// Ends the memtable, which is complete to `checkpoint`.
    pub(crate) fn rotate(&self, checkpoint: Checkpoint) {
        let number = checkpoint.operation;
        self.tree.insert(CHECKPOINT, checkpoint.to_bytes(), number);
        self.tree.rotate_memtable();
    }

    /// Writes ended memtables to tables, which are on stable storage when this returns.
    pub(crate) fn flush(&self, newest: u64) -> lsm_tree::Result<()> {
        let lock = self.tree.get_flush_lock();
        self.tree.flush(&lock, newest + 1)?;
        Ok(())
    }

    /// Compacts once; whether there was something to do.
    pub(crate) fn compact(&self, newest: u64) -> lsm_tree::Result<bool> {
        let before = self.tree.current_version().id();
        self.tree
            .compact(Arc::clone(&self.compaction) as _, newest + 1)?;
        Ok(self.tree.current_version().id() != before)
    }

    /// Has items of epochs before this dropped.
    pub(crate) fn set_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Relaxed);
    }

    /// What the tables are complete to.
    pub(crate) fn checkpoint(&self) -> lsm_tree::Result<Checkpoint> {
        let value = self.get(CHECKPOINT)?;
        Ok(value.map_or(Checkpoint::default(), |value| Checkpoint::read(&value)))
    }

    /// Which items count.
    pub(crate) fn flush_mark(&self) -> lsm_tree::Result<FlushMark> {
        let value = self.get(FLUSH_MARK)?;
        Ok(value.map_or(FlushMark::default(), |value| FlushMark::read(&value)))
    }

    /// Bytes of the memtable that is written.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.tree.active_memtable().size()
    }

    /// Ended memtables that are not flushed.
    pub(crate) fn memtables_waiting(&self) -> usize {
        self.tree.sealed_memtable_count()
    }

    /// Runs of tables that a read of a key may have to look at beyond one a level.
    pub(crate) fn runs_waiting(&self) -> usize {
        self.tree.l0_run_count()
    }

    /// Bytes of the tables.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.tree.disk_space()
    }

    /// Bytes of the first level, and of the next one that has any: one compaction merges the two.
    pub(crate) fn first_levels_bytes(&self) -> u64 {
        let version = self.tree.current_version();
        let mut sizes = version.iter_levels().map(|level| level.size());
        let first = sizes.next().unwrap_or(0);
        first + sizes.find(|bytes| *bytes > 0).unwrap_or(0)
    }

    /// How many items there are at most: what is overwritten or deleted counts until compaction.
    pub(crate) fn items_at_most(&self) -> u64 {
        self.tree.approximate_len() as u64
    }

    /// The files of the tables, and the checksum of each.
    pub(crate) fn tables(&self) -> Vec<(PathBuf, u128)> {
        let version = self.tree.current_version();
        let tables = version.iter_tables();
        tables
            .map(|table| (table.path.to_path_buf(), table.checksum().into_u128()))
            .collect()
    }

    /// What an error of the tree means.
    pub(crate) fn error(&self, error: lsm_tree::Error) -> StorageError {
        tables_error(&self.path, error)
    }
}

impl Checkpoint {
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (operation, cas) = bytes.split_at_mut(8);
        operation.copy_from_slice(&self.operation.to_le_bytes());
        cas.copy_from_slice(&self.cas.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Self {
        let long = |at: usize| {
            let eight = bytes
                .get(at..at + 8)
                .and_then(|eight| eight.try_into().ok());
            eight.map_or(0, u64::from_le_bytes)
        };
        Self {
            operation: long(0),
            cas: long(8),
        }
    }
}

impl FlushMark {
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        let both = u64::from(self.epoch) | u64::from(self.at) << 32;
        both.to_le_bytes()
    }

    pub(crate) fn read(bytes: &[u8]) -> Self {
        let both = bytes.try_into().map_or(0, u64::from_le_bytes);
        Self {
            epoch: both as u32,
            at: (both >> 32) as u32,
        }
    }
}

fn tables_error(path: &Path, error: lsm_tree::Error) -> StorageError {
    StorageError::Tables {
        dir: path.into(),
        error,
    }
}
