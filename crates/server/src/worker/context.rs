//! What a worker works with: time, the store, buffers, counters. Kept apart from the connections,
//! so that one of them can be changed while these are used.

use std::sync::Arc;

use curtail_codec::memcached::{KeyScratch, Limits, WireKey};
use curtail_dispatch::size_aware::{SizeClasses, SizeHistogram};
use curtail_store::{Store, Writer};
use curtail_types::{KeyHash, Now};

use crate::limits::{INLINE_VALUE_BYTES_MAX, REQUESTS_PER_TURN_MAX};
use crate::{
    connection::buffer_pool::BufferPool,
    memcached::event_log::EventLog,
    metrics::{
        counters::Counts, hot_keys::HotKeys, latency::Latencies, slow_log, stage_histograms::Stages,
    },
    worker::shared::Shared,
};

/// What a worker works with.
pub(crate) struct WorkerContext {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store: Arc<Store>,
    pub(crate) writer: Writer,
    /// The time of this turn.
    pub(crate) now: Now,
    pub(crate) limits: Limits,
    pub(crate) pool: BufferPool,
    pub(crate) counts: Counts,
    pub(crate) scratch: KeyScratch,
    /// Whether `stats detail` counts in this turn.
    pub(crate) detail: bool,
    /// What those who look on are told.
    pub(crate) event_log: EventLog,
    /// From how many nanoseconds on a turn is slow; [`slow_log::OFF`] for never.
    pub(crate) slow_ns: u64,
    /// Buckets of the index that dumps may still look at in this turn.
    pub(crate) dump_buckets: usize,
    /// A large value could not be leased in this turn: slow readers hold too much.
    pub(crate) lease_refused: bool,
    /// Values of so many bytes and more are for a large worker.
    pub(crate) large_from: usize,
    /// No large worker takes another connection in this turn.
    pub(crate) large_full: bool,
    /// The same for counting what waits for it here, by a size that no plan changes: however it is
    /// served, and also if a plan leaves it here.
    pub(crate) large_counts_from: usize,
    /// The connection for which something large was done in this turn where small requests wait.
    pub(crate) large_here: Option<usize>,
    /// Bytes of large values that were moved since this worker last looked for requests.
    pub(crate) large_moved: u64,
    /// What is carried out came in a delegated batch: its connection cannot be handed on.
    pub(crate) is_delegated: bool,
    /// The request that was to be carried out joins bytes to a value of so many, which is a large
    /// worker's to do; 0 if not.
    pub(crate) joins_large: usize,
    /// What a run of appends adds.
    pub(crate) appended: Vec<u8>,
    /// Reads of something large in this turn.
    pub(crate) larges: u64,
    /// Of these, and of such writes, those that are left to a large worker.
    pub(crate) larges_left: u64,
    /// Requests of one connection in this turn.
    pub(crate) share: usize,
    /// What was asked for since the control took it.
    pub(crate) sizes: Box<SizeHistogram>,
    /// Whether the threshold is learned.
    pub(crate) learns: bool,
    /// Whether small requests are looked at in this turn.
    pub(crate) samples: bool,
    pub(crate) stages: Stages,
    pub(crate) latencies: Latencies,
    /// From how many bytes on a value is large among the latencies.
    pub(crate) large_class_from: usize,
    /// Slots that were answered such values since this worker last looked for requests.
    pub(crate) large_answers: Vec<usize>,
    pub(crate) hot_keys: HotKeys,
}

impl WorkerContext {
    /// The worker context of a thread: of worker `index`, or of one behind the workers.
    pub(crate) fn new(index: usize, shared: Arc<Shared>, writer: Writer) -> Self {
        let store = Arc::clone(&shared.store);
        let now = shared.now();
        let limits = Limits {
            value_bytes_max: u32::try_from(shared.config.item_bytes_max).unwrap_or(u32::MAX),
            inline_value_bytes_max: INLINE_VALUE_BYTES_MAX,
        };
        Self {
            writer,
            now,
            limits,
            pool: BufferPool::new(Arc::clone(&store)),
            counts: Counts::new(),
            scratch: KeyScratch::default(),
            detail: false,
            slow_ns: slow_log::OFF,
            event_log: EventLog::new(shared.config.journal_bytes_max),
            dump_buckets: 0,
            lease_refused: false,
            large_from: usize::MAX,
            large_full: false,
            large_counts_from: usize::MAX,
            large_here: None,
            large_moved: 0,
            is_delegated: false,
            joins_large: 0,
            appended: Vec::new(),
            larges: 0,
            larges_left: 0,
            share: 1,
            sizes: Box::new(SizeHistogram::new(SizeClasses::LogLinear)),
            learns: false,
            samples: false,
            stages: Stages::default(),
            latencies: Latencies::default(),
            large_class_from: shared.config.threshold_first() as usize,
            large_answers: Vec::with_capacity(REQUESTS_PER_TURN_MAX),
            hot_keys: HotKeys::new(index, now.instant),
            store,
            shared,
        }
    }

    /// The hash of a request's key; asks the memory for its buckets on the way.
    #[inline]
    pub(crate) fn hash(&mut self, key: &WireKey<'_>) -> KeyHash {
        let hash = self.store.hash(key.resolve(&mut self.scratch).bytes());
        self.store.prefetch(hash);
        hash
    }

    /// Notes that a part of a value of `bytes` is moved for the connection in `slot`.
    #[inline]
    pub(crate) fn note_large_here(&mut self, slot: usize, bytes: usize) {
        if bytes >= self.large_counts_from {
            self.large_here = Some(slot);
        }
    }
}
