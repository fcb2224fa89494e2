//! The configuration of a server. The command line fills it in; tests do so directly.
//!
//! Fields that only `stats settings` repeats, because they tune parts of memcached that this server
//! does not have, are together in [`Echoed`].

pub(crate) mod auth;
pub(crate) mod native;
pub(crate) mod policy_name;
pub(crate) mod seed;
pub(crate) mod start_error;

use std::{fmt, io, net::SocketAddr, path::PathBuf};

use curtail_codec::tiered::TierTarget;
use curtail_consistency::hot_list::HotList;
use curtail_membership::NodeConfig;
use curtail_runtime::ThreadId;
use curtail_storage::StorageConfig;

use crate::{
    config::{native::NativeConfig, policy_name::PolicyName},
    limits::INLINE_VALUE_BYTES_MAX,
    test_faults::TestFaults,
};

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// TCP addresses to listen on; port 0 lets the kernel choose.
    pub listen: Vec<Listen>,
    /// A Unix socket to listen on, and its permissions.
    pub unix: Option<UnixSocket>,
    /// Connections the kernel holds until they are accepted: `-b`.
    pub backlog: i32,
    /// The one memory limit, in bytes: `-m`.
    pub memory_bytes_max: usize,
    /// The longest value, in bytes: `-I`.
    pub item_bytes_max: usize,
    /// Whether a full store evicts; not with `-M`.
    pub evict: bool,
    /// Whether versions are shown and compared; not with `-C`.
    pub cas: bool,
    /// Whether to ask for huge pages: `-L`, `--no-largepages`.
    pub huge_pages: bool,
    /// Worker threads: `-t`.
    pub workers: usize,
    /// Which worker may run a request, and whether large ones are served apart: `--policy`.
    pub policy: PolicyName,
    /// Whether neighbouring requests that change one key alike are carried out as one:
    /// `-o compaction`.
    pub compaction: bool,
    /// Whether clients may change the policy.
    pub policy_change_allowed: bool,
    /// From how many bytes on a value is large under `size-aware-static`, at least under
    /// `size-aware`, and for the counters under every policy: `-o size_threshold`.
    pub threshold: Option<u32>,
    /// Connections with large requests that a large worker may have; beyond, a large request is
    /// answered that the server is busy: `-o size_queue`.
    pub large_connections_max: usize,
    /// How far threads for large requests give way to the others on a processor: `-o size_nice`.
    pub large_nice: Niceness,
    /// How often the threshold is learned anew, in milliseconds: `-o size_epoch`.
    pub epoch_ms: u32,
    /// Whether each worker keeps to one processor, when there are more of them than workers.
    pub pin: bool,
    /// Open connections at most: `-c`.
    pub connections_max: usize,
    /// Whether a connection above the limit is answered and closed at once, or waits in the
    /// kernel's queue: `-o maxconns_fast`.
    pub refuse_connections_fast: bool,
    /// Seconds without a command after which a connection is closed; 0 for never:
    /// `-o idle_timeout`.
    pub idle_timeout_seconds: u32,
    /// Requests one connection may have carried out in one turn: `-R`.
    pub requests_per_turn_max: usize,
    /// Bytes that all connection buffers of the server may take; 0 for a quarter of `-m`:
    /// `-o read_buf_mem_limit`. Beyond it the connection that holds most is closed.
    pub buffer_bytes_max: usize,
    /// How much to tell on standard error: `-v`.
    pub verbosity: u8,
    /// From how many microseconds on a request is in the slow log; 0 for none: `-o slow_us`.
    pub slow_us: u64,
    /// Whether `flush_all` is allowed; not with `-F`.
    pub flush_allowed: bool,
    /// Whether `shutdown` is allowed: `-A`.
    pub shutdown_allowed: bool,
    /// Whether keys may be listed; not with `-X`.
    pub dump_allowed: bool,
    /// Whether `watch` is allowed; not with `-W`.
    pub watch_allowed: bool,
    /// Bytes of lines that may wait for one watcher: `-o watcher_logbuf_size`.
    pub watcher_bytes_max: usize,
    /// Bytes of lines that one worker may write for watchers in one turn: `-o worker_logbuf_size`.
    pub journal_bytes_max: usize,
    /// Names and passwords, one `name:password` a line: `-Y`.
    pub auth_file: Option<PathBuf>,
    /// Where contents are saved on SIGUSR1 and restored from at the start: `-e`.
    pub memory_file: Option<PathBuf>,
    /// Ends the prefix of a key in `stats detail`: `-D`.
    pub prefix_delimiter: u8,
    /// Whether `stats detail` counts from the start: `-D` given.
    pub detail: bool,
    /// Where `/metrics` and `/healthz` are served.
    pub admin: Option<SocketAddr>,
    /// Whether `debugtime` may shift the clock that items see: for test suites that do not want to
    /// wait.
    pub debug_time: bool,
    /// What tests have it do wrong; of no effect in release builds.
    #[doc(hidden)]
    pub faults: TestFaults,
    /// The native datagram path, if it is asked for: `--native`.
    pub native: Option<NativeConfig>,
    /// Which node of which cluster the server is, if of any: `--cluster`, `--node`.
    pub node: Option<NodeConfig>,
    /// Keys that every node of a cluster may have at a time; 0 for none: `--hot-keys`.
    pub hot_keys_max: usize,
    /// The port of memcached's own datagrams at the addresses of `listen`, if they are asked for:
    /// `-U`; 0 lets the kernel choose.
    pub udp_port: Option<u16>,
    /// The data directory that memory is a cache of, if there is one: `--tier disk`.
    pub disk: Option<StorageConfig>,
    /// The cache tier that has the items, if the server is a gateway to one: `--tier-file`.
    pub cache_tier: Option<TierTarget>,
    /// Only repeated by `stats settings`.
    pub echoed: Echoed,
}

/// How far a thread gives way to others on a processor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Niceness {
    /// As `nice` counts it, 0 to 19.
    Level(i32),
    /// To every other (`SCHED_IDLE`), unless it starves; where the system does not let it come
    /// forward again, by 19.
    Idle,
}

impl Niceness {
    /// The last level of `nice`.
    pub const LEVEL_MAX: i32 = 19;

    /// What a thread can take on that must not starve: who steps aside has to be let back.
    pub(crate) fn possible(self) -> Self {
        match self {
            Self::Idle if !curtail_runtime::may_step_forward() => Self::Level(Self::LEVEL_MAX),
            other => other,
        }
    }

    /// Has the calling thread give way so far.
    pub(crate) fn take_on(self) -> io::Result<()> {
        match self {
            Self::Level(level) => curtail_runtime::lower_priority(level),
            Self::Idle => ThreadId::current().step_aside(),
        }
    }
}

impl fmt::Display for Niceness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(f, "{level}"),
            Self::Idle => f.write_str("idle"),
        }
    }
}

/// A TCP address to listen on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// Whether the server may start without it: true for the second of two defaults, such as IPv6
    /// on a machine that has none.
    pub optional: bool,
}

/// A Unix socket to listen on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnixSocket {
    /// Where it stands in the file system: `-s`.
    pub path: PathBuf,
    /// Its permissions, as chmod takes them: `-a`.
    pub mode: u32,
}

/// Options that are accepted for memcached's sake and change nothing here.
#[derive(Clone, Debug, PartialEq)]
pub struct Echoed {
    /// `-l` as it was given.
    pub interface: Option<String>,
    /// `-p` as it was given.
    pub tcp_port: i32,
    /// `-f`.
    pub growth_factor: f64,
    /// `-n`.
    pub chunk_bytes: u32,
    /// `-B`: `auto-negotiate` or `ascii`.
    pub protocol: &'static str,
    /// `-o slab_chunk_max`, in bytes.
    pub slab_chunk_bytes_max: u64,
    /// `-o hashpower`.
    pub hash_power_initial: u32,
    /// `-o tail_repair_time`.
    pub tail_repair_seconds: u32,
    /// `-o lru_crawler`.
    pub lru_crawler: bool,
    /// `-o lru_maintainer`.
    pub lru_maintainer: bool,
    /// `-o temporary_ttl`, if given.
    pub temporary_ttl_seconds: Option<u32>,
    /// `-o track_sizes`.
    pub track_sizes: bool,
}

impl Config {
    /// memcached's default port.
    pub const PORT: u16 = 11211;

    /// Keys of which every node of a cluster may have a copy: as many as nodes agree on.
    pub const HOT_KEYS_MAX: usize = HotList::KEYS_MAX;

    /// No smaller value is large unless told: handing a connection on costs about as much as
    /// sending this many bytes.
    pub const THRESHOLD_MIN: u32 = 32 << 10;

    /// No value that is received together with its command is large, whatever is told: when its
    /// size is known it is here.
    pub const THRESHOLD_LEAST: u32 = INLINE_VALUE_BYTES_MAX + 1;

    /// From where on values are large before anything was learned, and at least; and for counters
    /// always, so that they mean the same under every policy and plan.
    pub fn threshold_first(&self) -> u32 {
        let told = self.threshold.unwrap_or(Self::THRESHOLD_MIN);
        told.max(Self::THRESHOLD_LEAST)
    }
}

impl Default for Config {
    /// memcached's defaults, but for the address: loopback only.
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            unix: None,
            backlog: 1024,
            memory_bytes_max: 64 << 20,
            item_bytes_max: 1 << 20,
            evict: true,
            cas: true,
            huge_pages: true,
            workers: curtail_runtime::cpus_usable(),
            policy: PolicyName::default(),
            compaction: true,
            policy_change_allowed: true,
            threshold: None,
            large_connections_max: 256,
            large_nice: Niceness::Idle,
            epoch_ms: 1000,
            pin: true,
            connections_max: 1024,
            refuse_connections_fast: true,
            idle_timeout_seconds: 0,
            requests_per_turn_max: 256,
            buffer_bytes_max: 0,
            verbosity: 0,
            slow_us: 0,
            flush_allowed: true,
            shutdown_allowed: false,
            dump_allowed: true,
            watch_allowed: true,
            watcher_bytes_max: 256 << 10,
            journal_bytes_max: 64 << 10,
            auth_file: None,
            memory_file: None,
            prefix_delimiter: b':',
            detail: false,
            admin: None,
            debug_time: false,
            faults: TestFaults::default(),
            native: None,
            node: None,
            hot_keys_max: 256,
            udp_port: None,
            disk: None,
            cache_tier: None,
            echoed: Echoed::default(),
        }
    }
}

impl Default for Echoed {
    fn default() -> Self {
        Self {
            interface: None,
            tcp_port: i32::from(Config::PORT),
            growth_factor: 1.25,
            chunk_bytes: 48,
            protocol: "auto-negotiate",
            slab_chunk_bytes_max: 512 << 10,
            hash_power_initial: 0,
            tail_repair_seconds: 0,
            lru_crawler: true,
            lru_maintainer: true,
            temporary_ttl_seconds: None,
            track_sizes: false,
        }
    }
}
