//! What a worker works with: time, the store, buffers, counters. Kept apart from the connections,
//! so that one of them can be changed while these are used.

use std::sync::Arc;

use curtail_codec::memcached::{KeyScratch, Limits, WireKey};
use curtail_dispatch::size_aware::{SizeClasses, SizeHistogram};
use curtail_store::Writer;
use curtail_types::KeyHash;

use crate::{
    connection::buffer_pool::BufferPool,
    limits::{INLINE_VALUE_BYTES_MAX, REQUESTS_PER_TURN_MAX},
    memcached::event_log::EventLog,
    metrics::{
        counters::Counts, hot_keys::HotKeys, latency::Latencies, slow_log, stage_histograms::Stages,
    },
    node::host::NodeContext,
    store_context::StoreContext,
    test_faults::Fault,
    worker::shared::Shared,
};

/// What a worker works with. `Worker` is the writer of a field unless its comment names another.
pub(crate) struct WorkerContext {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store_cx: StoreContext,
    pub(crate) decoding: Decoding,
    pub(crate) pool: BufferPool,
    pub(crate) counts: Counts,
    /// What a run of appends adds: written by `request::compaction`.
    pub(crate) appended: Vec<u8>,
    /// What holds for one turn: written when it begins.
    pub(crate) turn: TurnSettings,
    /// What happened in one turn: written by `request`.
    pub(crate) measured: TurnMeasures,
    pub(crate) recorders: Recorders,
    /// Lines for watchers, and for the log at `-vv`.
    pub(crate) event_log: EventLog,
}

/// What decoding needs beside a connection's own decoder.
pub(crate) struct Decoding {
    /// The bounds that requests are held to.
    pub(crate) limits: Limits,
    /// Where the key of a request is decoded to.
    pub(crate) scratch: KeyScratch,
}

/// What holds for one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TurnSettings {
    /// Whether `stats detail` counts.
    pub(crate) detail: bool,
    /// From how many nanoseconds on a turn is slow; [`slow_log::OFF`] for never.
    pub(crate) slow_ns: u64,
    /// Buckets of the index that dumps may still look at.
    pub(crate) dump_buckets: usize,
    /// Values of so many bytes and more are for a large worker.
    pub(crate) large_from: usize,
    /// No large worker takes another connection.
    pub(crate) large_full: bool,
    /// From how many bytes on a value counts as large for those that wait for it here. No plan
    /// changes this size: values that a plan leaves here count, too.
    pub(crate) large_counts_from: usize,
    /// Requests of one connection.
    pub(crate) share: usize,
    /// Whether the threshold is learned.
    pub(crate) learns: bool,
    /// Whether small requests are looked at.
    pub(crate) samples: bool,
}

/// What happened in one turn.
#[derive(Debug)]
pub(crate) struct TurnMeasures {
    /// The connection for which something large was done where small requests wait.
    pub(crate) large_here: Option<usize>,
    /// Bytes of large values that were moved since this worker last looked for requests.
    pub(crate) large_moved: u64,
    /// Reads of something large.
    pub(crate) larges: u64,
    /// Of these, and of such writes, those that are left to a large worker.
    pub(crate) larges_left: u64,
    /// Slots that were answered values of the large class since this worker last looked for
    /// requests.
    pub(crate) large_answers: Vec<usize>,
    /// A large value could not be leased: slow readers hold too much.
    pub(crate) lease_refused: bool,
}

/// What a worker records for the control thread, for metrics and for the hot-key list.
pub(crate) struct Recorders {
    /// What was asked for since the control thread took it.
    pub(crate) sizes: Box<SizeHistogram>,
    pub(crate) stages: Stages,
    pub(crate) latencies: Latencies,
    /// From how many bytes on a value is large among the latencies.
    pub(crate) large_class_from: usize,
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
            store_cx: StoreContext {
                store: Arc::clone(&store),
                writer,
                now,
            },
            decoding: Decoding {
                limits,
                scratch: KeyScratch::default(),
            },
            pool: BufferPool::new(store),
            counts: Counts::new(),
            appended: Vec::new(),
            turn: TurnSettings {
                detail: false,
                slow_ns: slow_log::OFF,
                dump_buckets: 0,
                large_from: usize::MAX,
                large_full: false,
                large_counts_from: usize::MAX,
                share: 1,
                learns: false,
                samples: false,
            },
            measured: TurnMeasures {
                large_here: None,
                large_moved: 0,
                larges: 0,
                larges_left: 0,
                large_answers: Vec::with_capacity(REQUESTS_PER_TURN_MAX),
                lease_refused: false,
            },
            recorders: Recorders {
                sizes: Box::new(SizeHistogram::new(SizeClasses::LogLinear)),
                stages: Stages::default(),
                latencies: Latencies::default(),
                large_class_from: shared.config.threshold_first() as usize,
                hot_keys: HotKeys::new(index, now.instant),
            },
            event_log: EventLog::new(shared.config.journal_bytes_max),
            shared,
        }
    }

    /// What this worker's part of the node works with.
    pub(crate) fn node_cx(&mut self) -> NodeContext<'_> {
        NodeContext {
            host: &*self.shared,
            store_cx: &mut self.store_cx,
            counts: &mut self.counts,
            barrier: None,
            lease_refused: &mut self.measured.lease_refused,
        }
    }

    /// The hash of a request's key; asks the memory for its buckets on the way.
    #[inline(always)] // once where requests become entries of a batch
    pub(crate) fn hash(&mut self, key: &WireKey<'_>) -> KeyHash {
        let hash = self
            .store_cx
            .store
            .hash(key.resolve(&mut self.decoding.scratch).bytes());
        self.store_cx.store.prefetch(hash);
        hash
    }

    /// Notes that a part of a value of `bytes` is moved for the connection in `slot`.
    #[inline]
    pub(crate) fn note_large_here(&mut self, slot: usize, bytes: usize) {
        if bytes >= self.turn.large_counts_from {
            match slot {
                usize::MAX => _ = self.measured.large_here.get_or_insert(slot),
                slot => self.measured.large_here = Some(slot),
            }
        }
    }

    /// Whether the server was started with this fault.
    #[inline(always)]
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.shared.config.faults.has(fault)
    }

    /// Whether contention is forced.
    #[inline(always)]
    pub(crate) fn is_contended(&self) -> bool {
        self.shared.config.faults.has_any()
    }
    /// Gives others the time to come to what was just claimed, when contention is forced.
    #[inline(always)]
    pub(crate) fn linger_if_contended(&self) {
        if self.is_contended() {
            std::thread::yield_now();
        }
    }
}
