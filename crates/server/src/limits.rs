//! The bounds of the server: the work of one turn, and what may wait or be kept.
//!
//! What an operator sets is in `config`; the bounds of a link between nodes and of an ordered queue
//! are in their crates. Sizes of a thread's own memory stay where that memory is.

use std::time::Duration;

// One turn of a worker: it does no more, however much there is, so that nobody waits for long.

/// Requests in one batch. The lines that 256 requests touch fit into a second-level cache.
pub(crate) const REQUESTS_PER_TURN_MAX: usize = 256;

/// Requests of one connection that a turn takes at least. With more connections ready each gets its
/// share of the batch, so that one that sends many at once does not hold up the others.
pub(crate) const REQUESTS_PER_CONNECTION_MIN: usize = 32;

/// Bytes received in one turn, from all connections.
pub(crate) const RECEIVE_AREA_BYTES: usize = 256 << 10;

/// Bytes received from one connection in one turn.
pub(crate) const RECEIVE_BYTES_MAX: usize = 16 << 10;

/// Bytes of a large value received from one connection in one turn: as many as [`SEND_BYTES_MAX`],
/// for the same reasons.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;

/// The longest value received together with its command; a longer one goes straight into the store.
/// Low, so that little is copied and kept; above the store's own bound for copying, so that no
/// small write takes the longer way.
pub(crate) const INLINE_VALUE_BYTES_MAX: u32 = 4096;

/// Reply bytes of one connection in one turn before its other requests wait: this, and one more
/// reply, is the most that a client which does not read makes the server hold.
pub(crate) const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// Bytes sent in one call, so that one large reply delays neither the turn nor another worker that
/// a small request wakes on this processor: the kernel copies some 5 bytes a nanosecond, does the
/// receiver's part here too on loopback, and many kernels do not preempt it.
pub(crate) const SEND_BYTES_MAX: usize = 64 << 10;

/// Events taken in one wait.
pub(crate) const EVENTS_MAX: usize = 256;

/// Items that the store's maintenance handles in one turn.
pub(crate) const MAINTAIN_ITEMS_MAX: usize = 64;

/// Slots that the search for idle connections looks at in one turn.
pub(crate) const SWEEP_SLOTS_MAX: usize = 128;

/// How long stopping may take while clients still have requests on the way.
pub(crate) const STOP_NS_MAX: u64 = 2_000_000_000;

// Between workers.

/// Delegated batches that a worker may have outstanding; beyond, requests run where they arrived.
pub(crate) const DELEGATED_BATCHES_MAX: usize = 64;

/// Bytes that a compacted run of appends adds at once, which bounds the copy of its value.
pub(crate) const APPENDED_BYTES_MAX: usize = 16 << 10;

/// Connections that one rebalancing looks at, and
pub(crate) const REBALANCE_LOOKED_AT_MAX: usize = 128;
/// moves: few, because the load is measured again before the next.
pub(crate) const REBALANCE_MOVED_MAX: usize = 16;

// Connections, and what operators watch the server by.

/// Connections accepted before the acceptor looks again whether the server stops.
pub(crate) const ACCEPTS_MAX: usize = 256;

/// Unused bytes of one buffer size that a worker keeps.
pub(crate) const BUFFERS_KEPT_BYTES_MAX: usize = 256 << 10;

/// The longest file of logins.
pub(crate) const AUTH_FILE_BYTES_MAX: usize = 64 << 10;

/// Requests in one UDP datagram.
pub(crate) const REQUESTS_PER_DATAGRAM_MAX: usize = 64;

/// Datagrams whose requests nodes of a cluster execute; further ones are refused.
pub(crate) const DATAGRAMS_UNDER_WAY_MAX: usize = 256;

/// Connections that `watch`; as in memcached.
pub(crate) const WATCHERS_MAX: usize = 20;

/// Key prefixes that are counted apart; later ones are not counted.
pub(crate) const PREFIXES_MAX: usize = 10_000;

/// Bytes of a `stats cachedump`, which is to give an impression; as in memcached.
pub(crate) const CACHEDUMP_BYTES_MAX: usize = 2 << 20;

/// Slow requests that are kept, and
pub(crate) const SLOW_REQUESTS_MAX: usize = 128;
/// those of one turn or of one delegated batch: they all have the same time.
pub(crate) const SLOW_REQUESTS_PER_TURN_MAX: usize = 16;

/// HTTP connections at once; more wait in the kernel's queue.
pub(crate) const HTTP_CONNECTIONS_MAX: usize = 32;

/// How long an HTTP connection may stay.
pub(crate) const HTTP_CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);

// A node of a cluster.

/// Keys that may be hot, or in transition, at a time on a node: eight times a list of hot keys.
pub(crate) const SHARED_KEYS_MAX: usize = 4096;

/// Requests that wait for a slice's machine, for a hot key or for other nodes, each of these.
pub(crate) const STAGE_WAITING_MAX: usize = 4096;

/// Buckets of the index that a worker scans in a turn for slices that move.
pub(crate) const BUCKETS_PER_STEP: usize = 16;

// The native protocol.

/// Reads that wait for accepted writes at one receiver.
pub(crate) const READS_WAITING_MAX: usize = 256;

/// Requests that a node of a cluster has from its receiver; further ones are refused.
pub(crate) const NATIVE_UNDER_WAY_MAX: usize = 4096;

/// Cookies given in a second, and
pub(crate) const HELLOS_PER_SECOND: u32 = 20_000;
/// confirmations looked at: strangers cannot make the server spend more on handshakes.
pub(crate) const CONFIRMS_PER_SECOND: u32 = 5_000;
