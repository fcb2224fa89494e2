//! A back end: the store of its keys, and the machine that says what its cache node must hear first
//! (SW-22 to SW-38, SW-45 to SW-59).

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use curtail_codec::tiered::{
    HostId, PartitionMap, TierAddress, TieredDatagram, TieredFlags, TieredHead, TieredOpcode,
    TieredStatus,
};
use curtail_consistency::{
    symmetric::Ticket,
    tiered::{
        BackEndConfig, BackEndEvent, BackEndHost, BackEndId, CacheId, Generation, LoadGate,
        TierBackEnd, TierMessage, TierRefusal, TierRequest,
    },
};
use curtail_hotkeys::{Access as Seen, Parameters, Tracker};
use curtail_runtime::Clock;
use curtail_types::{Access, Cas, Instant, Key, KeyHash, LoadReport, LoadScale, RouteHash};

use crate::{
    answered_writes::{AnsweredWrites, KnownWrite},
    back_end_requests::{OpenRequests, RequestAnswer},
    back_end_store::{BackEndStore, StoreOptions, StorePlace, StoreRefused, StoredItem},
    incarnation, load_value,
    node_loop::{NodeError, TierInbox, TierNode},
    outbox::{TierOutbox, client_of, reply_address},
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
    /// Whether it sends keys that burst at once.
    pub sends_bursts: bool,
}

/// A back end.
pub struct BackEndNode {
    inbox: TierInbox,
    machine: TierBackEnd,
    desk: BackEndDesk,
}

/// Everything of a back end but its machine, for which it is the host.
struct BackEndDesk {
    id: BackEndId,
    map: PartitionMap,
    cache: Option<CacheId>,
    outbox: TierOutbox,
    clock: Clock,
    store: BackEndStore,
    requests: OpenRequests,
    writes: AnsweredWrites,
    /// The keys that the machine knows by their hashes: of the cached-key set, and some more.
    names: HashMap<RouteHash, Box<[u8]>>,
    /// What waits for a read of the disk, by key.
    parked: HashMap<Box<[u8]>, Vec<ParkedWork>>,
    parked_count: usize,
    /// What waits until the log is durable up to a place.
    withheld: VecDeque<(u64, SocketAddr, Vec<u8>)>,
    last_version: u64,
    limit: RateLimit,
    limit_per_s: u64,
    /// Of the instant report that is being sent, in requests of a segment.
    reported_load: u32,
    hot: HotKeyReports,
    counts: BackEndCounts,
}

#[derive(Clone, Copy, Debug)]
enum ParkedWork {
    Request(Ticket),
    Fetch(CacheId, Generation),
}

/// What a back end counts of its keys, and tells its cache node.
struct HotKeyReports {
    tracker: Tracker,
    gate: LoadGate,
    scale: LoadScale,
    reported: usize,
    sends_bursts: bool,
    report: LoadReport,
    value: Vec<u8>,
    /// Requests of the last whole segment, and of this one.
    last: u64,
    current: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct BackEndCounts {
    gets: u64,
    puts: u64,
    deletes: u64,
    refused: u64,
    restarting: u64,
    from_cache: u64,
    repeated: u64,
    strays: u64,
    malformed: u64,
    wrong_partition: u64,
    items_sent: u64,
    updates_sent: u64,
    bursts: u64,
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
        let inbox = TierInbox::bind(*address)?;
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
        let outbox = TierOutbox::new(inbox.socket(), ways, u32::from(id.0), incarnation)
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
                hot: HotKeyReports::new(file.scale(), options, now)?,
                counts: BackEndCounts::default(),
            },
        };
        if let Some(cache) = node.desk.cache {
            node.step(BackEndEvent::Assign(cache));
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
        let (Some(key), Some(client)) = (datagram.key, client_of(head)) else {
            self.desk.counts.malformed += 1;
            return;
        };
        let route = PartitionMap::route(key);
        if self.desk.map.address(route) != head.address.key
            || head.address.key.back_end != self.desk.id
        {
            self.desk.counts.wrong_partition += 1;
            return self
                .desk
                .refuse_at_once(head, key, client, TieredStatus::WrongPartition);
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
            Some(true) => self.step(BackEndEvent::Request(request)),
            Some(false) if self.desk.park(key, ParkedWork::Request(ticket)) => {}
            _ => self.desk.refuse(ticket, TierRefusal::Busy),
        }
    }

    fn report_burst(&mut self, route: RouteHash, key: Key<'_>, count: u32, now: Instant) {
        let is_known = self.desk.store.knows(key.bytes());
        if !is_known || self.machine.lease_end().is_none() {
            return;
        }
        self.desk.names.insert(route, key.bytes().into());
        self.desk.reported_load = self.desk.hot.load_of_burst(count);
        self.step(BackEndEvent::Report(route));
        self.desk.reported_load = 0;
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
            TieredOpcode::Applied => self.step(BackEndEvent::Message(
                from,
                &TierMessage::Applied {
                    generation,
                    key,
                    number,
                },
            )),
            _ => {
                let dropped = TierMessage::Dropped {
                    generation,
                    key,
                    number,
                };
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
                let fetch = TierMessage::Fetch { generation, key };
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
            ("served", counts.gets + counts.puts + counts.deletes),
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
            TieredOpcode::Get | TieredOpcode::Put | TieredOpcode::Delete => {
                self.take_request(&decoded);
            }
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

impl BackEndDesk {
    fn now_s(&self) -> u32 {
        u32::try_from(self.clock.now().unix_ns / 1_000_000_000).unwrap_or(u32::MAX)
    }

    fn next_version(&mut self) -> Cas {
        self.last_version += 1;
        Cas(self.last_version)
    }

    /// Whether a request is to run: a write that was sent again has run, or will.
    fn is_first(&mut self, ticket: Ticket, now: Instant) -> bool {
        let Some(open) = self.requests.get_mut(ticket) else {
            return false;
        };
        let Some(id) = open.write_id() else {
            return true;
        };
        let is_repeated = open.head.flags.has(TieredFlags::RETRY);
        let known = self.writes.admit(id, is_repeated, now);
        if known == KnownWrite::New {
            return true;
        }
        self.counts.repeated += 1;
        let answer = match known {
            KnownWrite::Answered(answer) => Some(answer),
            KnownWrite::Unknown => Some(RequestAnswer::of(TieredStatus::Busy)),
            _ => None,
        };
        if let Some(answer) = answer {
            open.answer = answer;
            self.send_reply(ticket);
        }
        self.requests.close(ticket);
        false
    }

    fn park(&mut self, key: Key<'_>, work: ParkedWork) -> bool {
        if self.parked_count >= PARKED_MAX {
            return false;
        }
        self.parked_count += 1;
        self.parked
            .entry(key.bytes().into())
            .or_default()
            .push(work);
        true
    }

    /// Answers a request that is not taken in.
    fn refuse_at_once(
        &mut self,
        head: &TieredHead,
        key: Key<'_>,
        client: SocketAddr,
        status: TieredStatus,
    ) {
        let mut reply = head.reply(reply_address(head), status);
        reply.epoch = self.map.epoch;
        let datagram = TieredDatagram {
            head: reply,
            key: Some(key),
            value: &[],
        };
        self.outbox.push(client, &datagram);
    }

    fn send_reply(&mut self, ticket: Ticket) {
        let load = self.hot.load();
        let Some(open) = self.requests.get(ticket) else {
            return;
        };
        let reply = open.reply(load);
        let (place, client) = (open.answer.place, open.client);
        if place <= self.store.durable() {
            self.outbox.push(client, &reply);
        } else if let Some(bytes) = self.outbox.bytes(&reply) {
            self.withhold(place, client, bytes);
        }
    }

    /// Keeps a datagram until the log is durable up to `place`. If too many are kept it is lost, as
    /// on any network, and asked for again.
    fn withhold(&mut self, place: u64, to: SocketAddr, bytes: Vec<u8>) {
        if self.withheld.len() < WITHHELD_MAX {
            self.withheld.push_back((place, to, bytes));
        }
    }

    fn release_durable(&mut self) {
        let durable = self.store.durable();
        // A read may wait for an earlier place than the write before it: all are looked at.
        while let Some((place, ..)) = self.withheld.front()
            && *place <= durable
        {
            if let Some((_, to, bytes)) = self.withheld.pop_front() {
                self.outbox.push_bytes(to, &bytes);
            }
        }
    }

    fn report_hottest(&mut self, now: Instant, has_lease: bool) {
        if now < self.hot.tracker.deadline() {
            return;
        }
        self.hot.end_segment(now);
        let Some(cache) = self.cache.filter(|_| has_lease) else {
            return;
        };
        if self.hot.reported == 0 {
            return;
        }
        let head = TieredHead::new(TieredOpcode::Report, host_of(cache));
        let message = TieredDatagram {
            head,
            key: None,
            value: &self.hot.value,
        };
        self.outbox.tell(u32::from(cache.0), &message);
    }

    /// The message as it goes out, with the item of its key as it is now.
    fn post(&mut self, to: CacheId, opcode: TieredOpcode, message: &TierMessage) {
        let (generation, key, number) = match *message {
            TierMessage::Item {
                generation,
                key,
                number,
            }
            | TierMessage::Update {
                generation,
                key,
                number,
            }
            | TierMessage::Revoke {
                generation,
                key,
                number,
            } => (generation, key, number),
            _ => return,
        };
        let now_s = self.now_s();
        let Some(name) = self.names.get(&key) else {
            return;
        };
        let mut head = TieredHead::new(opcode, host_of(to));
        head.generation = generation.0;
        head.number = number;
        let (item, place) = match opcode {
            TieredOpcode::Revoke => (None, 0),
            _ => self.store.peek(name, now_s),
        };
        let mut value: &[u8] = &[];
        match item {
            Some(item) => {
                head.version = item.version;
                head.item_flags = item.flags;
                if item.expiry != 0 {
                    head.flags = TieredFlags::EXPIRES;
                    head.exptime = item.expiry;
                }
                value = &item.value;
            }
            None if opcode != TieredOpcode::Revoke => head.flags = TieredFlags::GONE,
            None => {}
        }
        if opcode == TieredOpcode::Item {
            head.epoch = self.reported_load;
        }
        let datagram = TieredDatagram {
            head,
            key: Key::new(name).ok(),
            value,
        };
        let peer = u32::from(to.0);
        let kept = match place <= self.store.durable() {
            true => {
                self.outbox.tell(peer, &datagram);
                None
            }
            false => self.outbox.message(peer, &datagram),
        };
        if let Some((to, bytes)) = kept {
            self.withhold(place, to, bytes);
        }
    }

    fn read(&mut self, ticket: Ticket) -> RequestAnswer {
        let now_s = self.now_s();
        let Some(open) = self.requests.get_mut(ticket) else {
            return RequestAnswer::default();
        };
        if !self.store.knows(&open.key) {
            return RequestAnswer::of(TieredStatus::Busy);
        }
        let (item, place) = self.store.get(&open.key, now_s);
        let Some(item) = item else {
            return RequestAnswer {
                status: TieredStatus::NotFound,
                place,
                ..RequestAnswer::default()
            };
        };
        open.value.clear();
        open.value.extend_from_slice(&item.value);
        RequestAnswer {
            status: TieredStatus::Done,
            version: item.version,
            flags: item.flags,
            expiry: item.expiry,
            place,
        }
    }

    fn put(&mut self, ticket: Ticket) -> RequestAnswer {
        let (version, now_s) = (self.next_version(), self.now_s());
        let Some(open) = self.requests.get_mut(ticket) else {
            return RequestAnswer::default();
        };
        let expires = open.head.flags.has(TieredFlags::EXPIRES);
        let item = StoredItem {
            version,
            flags: open.head.item_flags,
            // A time of 0 is long ago, and 0 is never.
            expiry: if expires { open.head.exptime.max(1) } else { 0 },
            value: std::mem::take(&mut open.value),
        };
        let put = self.store.put(&open.key, &item, now_s);
        open.value = item.value;
        wrote(put, version)
    }

    fn delete(&mut self, ticket: Ticket) -> RequestAnswer {
        let found = self.read(ticket);
        if found.status != TieredStatus::Done {
            return found;
        }
        let version = self.next_version();
        let Some(open) = self.requests.get(ticket) else {
            return RequestAnswer::default();
        };
        wrote(self.store.delete(&open.key), version)
    }
}

impl BackEndHost for BackEndDesk {
    fn run(&mut self, request: &TierRequest) -> bool {
        let ticket = request.ticket;
        let answer = match request.access {
            Access::Read => self.read(ticket),
            Access::Replace => self.put(ticket),
            Access::Update => self.delete(ticket),
        };
        let is_write = request.access != Access::Read;
        if let Some(open) = self.requests.get_mut(ticket) {
            open.answer = answer;
            if is_write {
                // Of two keys with one hash, the cache hears of the one that was written.
                if let Some(name) = self.names.get_mut(&request.key)
                    && **name != *open.key
                {
                    *name = open.key.as_slice().into();
                }
            }
        }
        is_write && answer.status == TieredStatus::Done
    }

    fn respond(&mut self, ticket: Ticket) {
        let open = self.requests.get(ticket);
        if let Some((id, answer)) = open.and_then(|open| Some((open.write_id()?, open.answer))) {
            match answer.status {
                // The store has not taken it: it may come again.
                TieredStatus::Busy | TieredStatus::Refused => self.writes.refuse(id),
                _ => self.writes.answer(id, answer),
            }
        }
        self.send_reply(ticket);
        self.requests.close(ticket);
    }

    fn refuse(&mut self, ticket: Ticket, refusal: TierRefusal) {
        match refusal {
            TierRefusal::Restarted => self.counts.restarting += 1,
            TierRefusal::Busy => self.counts.refused += 1,
        }
        if let Some(open) = self.requests.get_mut(ticket) {
            open.answer = RequestAnswer::of(TieredStatus::Busy);
            open.write_id()
                .into_iter()
                .for_each(|id| self.writes.refuse(id));
        }
        self.send_reply(ticket);
        self.requests.close(ticket);
    }

    fn has(&self, key: RouteHash) -> bool {
        self.names
            .get(&key)
            .is_some_and(|name| self.store.has(name))
    }

    fn send(&mut self, to: CacheId, message: &TierMessage) {
        match *message {
            TierMessage::Lease {
                session,
                generation,
                sent,
            } => {
                let head = TieredHead {
                    generation: generation.0,
                    number: sent.ns,
                    version: Cas(session),
                    ..TieredHead::new(TieredOpcode::Lease, host_of(to))
                };
                let (key, value) = (None, &[][..]);
                let message = TieredDatagram { head, key, value };
                self.outbox.tell(u32::from(to.0), &message);
            }
            TierMessage::Item { .. } => {
                self.counts.items_sent += 1;
                self.post(to, TieredOpcode::Item, message);
            }
            TierMessage::Update { .. } => {
                self.counts.updates_sent += 1;
                self.post(to, TieredOpcode::Update, message);
            }
            TierMessage::Revoke { .. } => self.post(to, TieredOpcode::Revoke, message),
            _ => {}
        }
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }
}

impl HotKeyReports {
    fn new(scale: LoadScale, options: &BackEndOptions, now: Instant) -> Result<Self, NodeError> {
        let parameters = Parameters {
            scale,
            listed: u32::try_from(2 * options.reported.max(1)).unwrap_or(LISTED_MAX),
            ..Parameters::switchkv()
        };
        let checked = parameters.check();
        let checked = checked.map_err(|error| NodeError::Refused(error.to_string()))?;
        let limit = match options.limit_per_s {
            0 => UNLIMITED_PER_S,
            limit => limit,
        };
        Ok(Self {
            tracker: Tracker::new(checked, now),
            gate: LoadGate::new(limit),
            scale,
            reported: options.reported,
            sends_bursts: options.sends_bursts,
            report: LoadReport::empty(scale),
            value: Vec::new(),
            last: 0,
            current: 0,
        })
    }

    /// Counts a request; how often its key is in the log if it bursts while the node is loaded.
    fn see(
        &mut self,
        route: RouteHash,
        key: Key<'_>,
        opcode: TieredOpcode,
        now: Instant,
    ) -> Option<u32> {
        self.gate.serve(now, 1);
        self.current += 1;
        let access = match opcode {
            TieredOpcode::Get => Seen::Read,
            _ => Seen::Write,
        };
        let burst = self.tracker.see(KeyHash(route.0), key, access);
        let is_sent = self.sends_bursts && opcode == TieredOpcode::Get && self.gate.is_loaded();
        burst.filter(|_| is_sent)
    }

    fn suppress(&mut self, key: RouteHash, now: Instant, for_ns: u64) {
        let until = Instant {
            ns: now.ns.saturating_add(for_ns),
        };
        self.tracker.bursts_mut().suppress(KeyHash(key.0), until);
    }

    /// The load of a key that bursts is what it is among the latest requests.
    fn load_of_burst(&self, count: u32) -> u32 {
        let logged = u64::from(Parameters::switchkv().logged);
        let requests = self.last.max(self.current);
        u32::try_from(u64::from(count) * requests / logged)
            .unwrap_or(u32::MAX)
            .max(1)
    }

    fn end_segment(&mut self, now: Instant) {
        self.tracker.end_segment(now);
        self.tracker.report_into(&mut self.report);
        let hottest = self.report.keys.iter().take(self.reported);
        let hottest: Vec<_> = hottest.copied().collect();
        load_value::encode(self.scale, &hottest, &mut self.value);
        (self.last, self.current) = (self.current, 0);
    }

    /// In 255ths: whether the node is loaded is all that it knows for certain.
    const fn load(&self) -> u8 {
        match self.gate.is_loaded() {
            true => u8::MAX,
            false => 0,
        }
    }
}

impl BackEndCounts {
    fn count(&mut self, head: &TieredHead) {
        self.from_cache += u64::from(head.flags.has(TieredFlags::FROM_CACHE));
        match head.opcode {
            TieredOpcode::Get => self.gets += 1,
            TieredOpcode::Put => self.puts += 1,
            _ => self.deletes += 1,
        }
    }
}

fn wrote(done: Result<u64, StoreRefused>, version: Cas) -> RequestAnswer {
    match done {
        Ok(place) => RequestAnswer {
            version,
            place,
            ..RequestAnswer::default()
        },
        Err(StoreRefused::Full) => RequestAnswer::of(TieredStatus::Refused),
        Err(StoreRefused::Behind) => RequestAnswer::of(TieredStatus::Busy),
    }
}

/// A cache node as a host.
const fn host_of(cache: CacheId) -> TierAddress {
    TierAddress::host(HostId(cache.0 as u32))
}

/// Requests and fetches that may wait for the disk.
const PARKED_MAX: usize = 4096;
/// Datagrams that may wait for the log.
const WITHHELD_MAX: usize = 16_384;
/// Names that are kept beyond those of the cached-key set.
const NAMES_SPARE: usize = 64;
/// For how long a key that was declined is not sent again.
const DECLINED_NS: u64 = 50_000_000;
/// What a back end without a limit is taken to serve (the paper's).
const UNLIMITED_PER_S: u64 = 100_000;
const LISTED_MAX: u32 = 1024;
