//! A back end: the store of its keys, and the machine that says what its cache node must hear first
//! (SW-23 to SW-37, SW-45 to SW-59).

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use curtail_codec::{
    node::ItemRequest,
    tiered::{PartitionMap, TieredDatagram, TieredOpcode, TieredStatus, is_tier_change},
};
use curtail_consistency::{
    replica::Ticket,
    tiered::{
        BackEndConfig, BackEndEvent, BackEndHost, BackEndId, CacheId, Generation, KeyMessageKind,
        TierBackEnd, TierMessage, TierRefusal,
    },
};
use curtail_runtime::Clock;
use curtail_types::{Access, Instant, Key, RouteHash};

use crate::{
    answered_writes::AnsweredWrites,
    back_end_requests::OpenRequests,
    back_end_state::{BackEndCounts, BackEndDesk, ParkedWork},
    back_end_store::{BackEndStore, StoreOptions, StorePlace},
    hot_key_reports::{HotKeyReports, UpdateMode},
    incarnation,
    node_loop::{NodeError, TierInbox, TierNode},
    outbox::TierOutbox,
    rate_limit::RateLimit,
    status,
    tier_file::TierFile,
};

/// What a back end is started with.
#[derive(Clone, Debug)]
pub struct BackEndOptions {
    /// Its number in the tier's file.
    pub id: BackEndId,
    /// Where its items are.
    pub store: StoreOptions,
    /// Requests that it serves in a second; it answers `Busy` to those beyond. 0 is no limit.
    pub limit_per_s: u64,
    /// Hottest keys that it reports in a period.
    pub reported: usize,
    /// What it sends the cache node without being asked.
    pub update: UpdateMode,
}

/// A back end.
pub struct BackEndNode {
    inbox: TierInbox,
    machine: TierBackEnd,
    desk: BackEndDesk,
}

impl BackEndNode {
    /// Binds the back end's address and opens its store.
    ///
    /// # Errors
    /// Each says what is in the way.
    pub fn start(file: &TierFile, options: &BackEndOptions) -> Result<Self, NodeError> {
        let id = options.id;
        let address = file.back_ends.get(usize::from(id.0)).ok_or_else(|| {
            let last = file.back_ends.len() - 1;
            NodeError::Refused(format!(
                "the file names back ends 0 to {last}, not {}",
                id.0
            ))
        })?;
        let inbox = TierInbox::of_node(file, *address)?;
        let name = format!("back end {}", id.0);
        let waker = inbox
            .waker()
            .map_err(|error| NodeError::Io("a waker", error))?;
        let store = BackEndStore::open(&options.store, waker, name);
        let store = store.map_err(NodeError::Storage)?;
        let directory = match &options.store.place {
            StorePlace::Memory => None,
            StorePlace::Disk { directory, .. } => Some(directory.as_path()),
        };
        let incarnation = incarnation::next(directory)
            .map_err(|error| NodeError::Io("its incarnation", error))?;
        let ways = (file.network(), file.secret());
        let outbox = TierOutbox::new(&inbox, ways, u32::from(id.0), incarnation)
            .map_err(|error| NodeError::Io("its socket", error))?;
        let clock = Clock::start();
        let now = clock.now().instant;
        // A life before may have granted leases, wherever its items were.
        let config = BackEndConfig::with_lease(u64::from(incarnation), file.lease_ns());
        let mut node = Self {
            inbox,
            machine: TierBackEnd::new(config, now, true),
            desk: BackEndDesk {
                id,
                map: file.map(),
                cache: file.cache_of(id),
                outbox,
                clock,
                last_version: store.highest_version().max(u64::from(incarnation) << 32),
                store,
                requests: OpenRequests::default(),
                writes: AnsweredWrites::new(now),
                names: HashMap::new(),
                parked: HashMap::new(),
                parked_count: 0,
                withheld: VecDeque::new(),
                limit: RateLimit::new(options.limit_per_s),
                limit_per_s: options.limit_per_s,
                reported_load: 0,
                hot: HotKeyReports::new(
                    file.scale(),
                    (options.reported, options.update),
                    options.limit_per_s,
                    now,
                )?,
                counts: BackEndCounts::default(),
            },
        };
        if let Some(cache) = node.desk.cache {
            node.step(BackEndEvent::Assign(cache));
        }
        let home = node.desk.cache;
        for cache in file.group().filter(|id| Some(*id) != home) {
            node.step(BackEndEvent::Join(cache));
        }
        Ok(node)
    }

    /// The same with an error planted.
    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub fn with_mutant(mut self, mutant: curtail_consistency::tiered::TierMutant) -> Self {
        self.machine = self.machine.with_mutant(mutant);
        self
    }

    fn step(&mut self, event: BackEndEvent<'_>) {
        self.machine.step(event, &mut self.desk);
    }

    // ---- requests ----

    fn take_request(&mut self, datagram: &TieredDatagram<'_>) {
        let head = &datagram.head;
        let client = self.desk.outbox.client_of(head);
        let (Some(key), Some(client)) = (datagram.key, client) else {
            self.desk.counts.malformed += 1;
            return;
        };
        let route = PartitionMap::route(key);
        let is_flush = head.opcode == TieredOpcode::Flush;
        let is_right = match is_flush {
            true => head.epoch == self.desk.map.epoch,
            false => self.desk.map.address(route) == head.address.key,
        };
        if !is_right || head.address.key.back_end != self.desk.id {
            self.desk.counts.wrong_partition += 1;
            return self
                .desk
                .refuse_at_once(head, key, client, TieredStatus::WrongPartition);
        }
        if head.opcode == TieredOpcode::Change {
            let request = ItemRequest::decode_without_key(key, datagram.value);
            if !request.is_some_and(|request| is_tier_change(&request.operation)) {
                self.desk.counts.malformed += 1;
                return;
            }
        }
        let now = self.desk.now();
        if !self.desk.limit.admits(now) {
            self.desk.counts.refused += 1;
            return self
                .desk
                .refuse_at_once(head, key, client, TieredStatus::Busy);
        }
        let Some(ticket) = self.desk.requests.open(datagram, (key, route), client) else {
            self.desk.counts.refused += 1;
            return self
                .desk
                .refuse_at_once(head, key, client, TieredStatus::Busy);
        };
        self.desk.counts.count(head);
        if !self.desk.is_first(ticket, now) {
            return;
        }
        if is_flush {
            return self.step(BackEndEvent::Flush(ticket));
        }
        let burst = self.desk.hot.see(route, key, head.opcode, now);
        self.begin(ticket, key);
        if let Some(count) = burst {
            self.report_burst(route, key, count, now);
        }
    }

    /// Runs a request, or has its item read first.
    fn begin(&mut self, ticket: Ticket, key: Key<'_>) {
        let Some(request) = self.desk.requests.get(ticket) else {
            return;
        };
        let request = request.as_request(ticket);
        // What a put stores does not depend on what is there.
        let is_ready = match request.access {
            Access::Replace => Some(true),
            _ => self.desk.store.is_ready(key.bytes()),
        };
        match is_ready {
            Some(true) => {
                self.step(BackEndEvent::Request(request));
                if self.desk.hot.update == UpdateMode::Traditional && request.access == Access::Read
                {
                    self.send_read(request.key, key);
                }
            }
            Some(false) if self.desk.park(key, ParkedWork::Request(ticket)) => {}
            _ => self.desk.refuse(ticket, TierRefusal::Busy),
        }
    }

    /// The cache node is to add every key that is read, whatever its load (SW-68).
    fn send_read(&mut self, route: RouteHash, key: Key<'_>) {
        if self.machine.lease_end().is_some() {
            self.send_unasked(route, key, 1);
        }
    }

    /// Sends the item of a key with its load, in requests of a segment.
    fn send_unasked(&mut self, route: RouteHash, key: Key<'_>, load: u32) {
        self.desk.names.insert(route, key.bytes().into());
        self.desk.reported_load = load;
        self.step(BackEndEvent::Report(route));
        self.desk.reported_load = 0;
    }

    fn report_burst(&mut self, route: RouteHash, key: Key<'_>, count: u32, now: Instant) {
        let is_known = self.desk.store.knows(key.bytes());
        if !is_known || self.machine.lease_end().is_none() {
            return;
        }
        self.send_unasked(route, key, self.desk.hot.load_of_burst(count));
        self.desk.counts.bursts += 1;
        self.desk
            .hot
            .suppress(route, now, self.desk.hot.scale.segment_ns);
    }

    // ---- messages of cache nodes ----

    fn take_message(&mut self, datagram: &TieredDatagram<'_>) {
        let head = &datagram.head;
        let Ok(cache) = u8::try_from(head.sender) else {
            self.desk.counts.strays += 1;
            return;
        };
        if !self.desk.outbox.admits(head.sender, head.sequence) {
            self.desk.counts.strays += 1;
            return;
        }
        let from = CacheId(cache);
        let generation = Generation(head.generation);
        if head.opcode == TieredOpcode::Renew {
            let renew = TierMessage::Renew {
                session: head.generation,
                sent: Instant { ns: head.number },
            };
            return self.step(BackEndEvent::Message(from, &renew));
        }
        let Some(name) = datagram.key else {
            return;
        };
        let key = PartitionMap::route(name);
        let number = head.number;
        match head.opcode {
            TieredOpcode::Fetch => self.take_fetch(from, generation, name),
            TieredOpcode::Applied => {
                let applied = KeyMessageKind::Applied.message(generation, key, number);
                self.step(BackEndEvent::Message(from, &applied));
            }
            _ => {
                let dropped = KeyMessageKind::Dropped.message(generation, key, number);
                self.step(BackEndEvent::Message(from, &dropped));
                let now = self.desk.now();
                self.desk.hot.suppress(key, now, DECLINED_NS);
            }
        }
    }

    fn take_fetch(&mut self, from: CacheId, generation: Generation, name: Key<'_>) {
        match self.desk.store.is_ready(name.bytes()) {
            Some(true) => {
                let key = PartitionMap::route(name);
                self.desk.names.insert(key, name.bytes().into());
                let fetch = KeyMessageKind::Fetch.message(generation, key, 0);
                self.step(BackEndEvent::Message(from, &fetch));
            }
            // If too much waits, the cache fetches again when the key is reported again.
            Some(false) => _ = self.desk.park(name, ParkedWork::Fetch(from, generation)),
            None => {}
        }
    }

    // ---- time ----

    /// Goes on with what waited for the disk.
    fn take_loaded(&mut self) {
        for name in self.desk.store.loaded() {
            let parked = self.desk.parked.remove(&name).unwrap_or_default();
            self.desk.parked_count -= parked.len();
            let Ok(key) = Key::new(&name) else {
                continue;
            };
            let is_known = self.desk.store.knows(&name);
            for work in parked {
                match work {
                    // It was written meanwhile and left memory again, or the disk failed.
                    ParkedWork::Request(ticket) if !is_known => {
                        self.desk.refuse(ticket, TierRefusal::Busy);
                    }
                    ParkedWork::Request(ticket) => self.begin(ticket, key),
                    ParkedWork::Fetch(from, generation) => self.take_fetch(from, generation, key),
                }
            }
        }
    }

    fn forget_names(&mut self) {
        // What waits is of cached keys: it ends when its key leaves the set.
        if self.desk.names.len() > NAMES_SPARE + 2 * self.machine.cached() {
            let machine = &self.machine;
            self.desk.names.retain(|key, _| machine.is_cached(*key));
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let counts = &self.desk.counts;
        let (items, bytes) = self.desk.store.size();
        let (waiting, rounds) = self.machine.waiting();
        let count = |number: usize| number as u64;
        vec![
            ("gets", counts.gets),
            ("puts", counts.puts),
            ("deletes", counts.deletes),
            ("changes", counts.changes),
            ("flushes", counts.flushes),
            (
                "served",
                counts.gets + counts.puts + counts.deletes + counts.changes,
            ),
            ("refused", counts.refused),
            ("refused_restarting", counts.restarting),
            ("passed_on_by_cache", counts.from_cache),
            ("repeated_writes", counts.repeated),
            ("wrong_partition", counts.wrong_partition),
            ("strays", counts.strays),
            ("malformed", counts.malformed),
            ("limit_per_s", self.desk.limit_per_s),
            ("items_in_memory", count(items)),
            ("bytes_in_memory", count(bytes)),
            ("cached_keys", count(self.machine.cached())),
            ("has_lease", u64::from(self.machine.lease_end().is_some())),
            ("waiting", count(waiting)),
            ("updates_unanswered", count(rounds)),
            ("items_sent", counts.items_sent),
            ("updates_sent", counts.updates_sent),
            ("bursts_sent", counts.bursts),
            ("open_requests", count(self.desk.requests.len())),
        ]
    }
}

impl TierNode for BackEndNode {
    fn receive(&mut self, datagram: &[u8], _: SocketAddr) {
        let secret = *self.desk.outbox.secret();
        let Ok(decoded) = TieredDatagram::decode(datagram, Some(&secret)) else {
            self.desk.counts.malformed += 1;
            return;
        };
        match decoded.head.opcode {
            TieredOpcode::Get
            | TieredOpcode::Put
            | TieredOpcode::Delete
            | TieredOpcode::Change
            | TieredOpcode::Flush => self.take_request(&decoded),
            TieredOpcode::Fetch
            | TieredOpcode::Applied
            | TieredOpcode::Dropped
            | TieredOpcode::Renew => self.take_message(&decoded),
            TieredOpcode::Status => {
                let counters = self.counters();
                status::answer(&mut self.desk.outbox, &decoded.head, &counters);
            }
            _ => self.desk.counts.strays += 1,
        }
    }

    fn turn(&mut self) -> Duration {
        self.take_loaded();
        let now = self.desk.now();
        if self.machine.deadline().is_some_and(|at| now >= at) {
            self.step(BackEndEvent::Tick);
        }
        self.desk
            .report_hottest(now, self.machine.lease_end().is_some());
        self.forget_names();
        let names = &self.desk.names;
        self.desk.store.evict(|key| names.contains_key(&key));
        self.desk.release_durable();
        self.desk.outbox.flush();
        let report = self.desk.hot.tracker.deadline();
        let machine = self.machine.deadline();
        let next = machine.map_or(report, |at| at.min(report));
        Duration::from_nanos(next.ns.saturating_sub(now.ns))
    }

    fn inbox(&mut self) -> &mut TierInbox {
        &mut self.inbox
    }
}

/// Names that are kept beyond those of the cached-key set.
const NAMES_SPARE: usize = 64;
/// For how long a key that was declined is not sent again.
const DECLINED_NS: u64 = 50_000_000;
