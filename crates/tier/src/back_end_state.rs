//! Everything of a back end but its machine, for which it is the host: the store, the requests that
//! are open, and what leaves when.

use std::collections::{HashMap, VecDeque};

use curtail_codec::{
    node::ItemRequest,
    tiered::{
        HostId, PartitionMap, TierAddress, TierEnd, TieredDatagram, TieredFlags, TieredHead,
        TieredOpcode, TieredStatus,
    },
};
use curtail_consistency::{
    replica::Ticket,
    tiered::{
        BackEndHost, BackEndId, CacheId, Generation, KeyMessage, KeyMessageKind, TierMessage,
        TierRefusal, TierRequest,
    },
};
use curtail_runtime::Clock;
use curtail_types::{Access, Cas, Instant, Key, RouteHash};

use crate::{
    answered_writes::{AnsweredWrites, KnownWrite},
    back_end_requests::{OpenRequests, RequestAnswer},
    back_end_store::{BackEndStore, StoreRefused, StoredItem},
    hot_key_reports::HotKeyReports,
    outbox::{TierOutbox, reply_address},
    rate_limit::RateLimit,
    read_modify_write::{self, ChangedItem},
};

/// The host of a back end's machine.
pub(crate) struct BackEndDesk {
    pub(crate) id: BackEndId,
    pub(crate) map: PartitionMap,
    pub(crate) cache: Option<CacheId>,
    pub(crate) outbox: TierOutbox,
    pub(crate) clock: Clock,
    pub(crate) store: BackEndStore,
    pub(crate) requests: OpenRequests,
    pub(crate) writes: AnsweredWrites,
    /// The keys that the machine knows by their hashes: of the cached-key set, and some more.
    pub(crate) names: HashMap<RouteHash, Box<[u8]>>,
    /// What waits for a read of the disk, by key.
    pub(crate) parked: HashMap<Box<[u8]>, Vec<ParkedWork>>,
    pub(crate) parked_count: usize,
    /// What waits until the log is durable up to a place.
    pub(crate) withheld: VecDeque<(u64, TierEnd, Vec<u8>)>,
    pub(crate) last_version: u64,
    pub(crate) limit: RateLimit,
    pub(crate) limit_per_s: u64,
    /// Of the instant report that is being sent, in requests of a segment.
    pub(crate) reported_load: u32,
    pub(crate) hot: HotKeyReports,
    pub(crate) counts: BackEndCounts,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ParkedWork {
    Request(Ticket),
    Fetch(CacheId, Generation),
}

/// What has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BackEndCounts {
    pub(crate) gets: u64,
    pub(crate) puts: u64,
    pub(crate) deletes: u64,
    pub(crate) changes: u64,
    pub(crate) flushes: u64,
    pub(crate) refused: u64,
    pub(crate) restarting: u64,
    pub(crate) from_cache: u64,
    pub(crate) repeated: u64,
    pub(crate) strays: u64,
    pub(crate) malformed: u64,
    pub(crate) wrong_partition: u64,
    pub(crate) items_sent: u64,
    pub(crate) updates_sent: u64,
    pub(crate) bursts: u64,
}

impl BackEndDesk {
    pub(crate) fn now_s(&self) -> u32 {
        u32::try_from(self.clock.now().unix_ns / 1_000_000_000).unwrap_or(u32::MAX)
    }

    pub(crate) fn next_version(&mut self) -> Cas {
        self.last_version += 1;
        Cas(self.last_version)
    }

    /// Whether a request is to run: a write that was sent again has run, or will.
    pub(crate) fn is_first(&mut self, ticket: Ticket, now: Instant) -> bool {
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
            open.set_answer(answer);
            self.send_reply(ticket);
        }
        self.requests.close(ticket);
        false
    }

    pub(crate) fn park(&mut self, key: Key<'_>, work: ParkedWork) -> bool {
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
    pub(crate) fn refuse_at_once(
        &mut self,
        head: &TieredHead,
        key: Key<'_>,
        client: TierEnd,
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

    pub(crate) fn send_reply(&mut self, ticket: Ticket) {
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
    pub(crate) fn withhold(&mut self, place: u64, to: TierEnd, bytes: Vec<u8>) {
        if self.withheld.len() < WITHHELD_MAX {
            self.withheld.push_back((place, to, bytes));
        }
    }

    pub(crate) fn release_durable(&mut self) {
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

    pub(crate) fn report_hottest(&mut self, now: Instant, has_lease: bool) {
        if now < self.hot.tracker.deadline() {
            return;
        }
        self.hot.end_segment(now);
        let Some(cache) = self.cache.filter(|_| has_lease) else {
            return;
        };
        if self.hot.reported == 0 || !self.hot.update.sends_reports() {
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
    pub(crate) fn post(&mut self, to: CacheId, opcode: TieredOpcode, message: &KeyMessage) {
        let KeyMessage { key, number, .. } = *message;
        let now_s = self.now_s();
        let Some(name) = self.names.get(&key) else {
            return;
        };
        let mut head = TieredHead::new(opcode, host_of(to));
        head.generation = message.generation.0;
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

    pub(crate) fn read(&mut self, ticket: Ticket) -> RequestAnswer {
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
            number: None,
            place,
        }
    }

    pub(crate) fn put(&mut self, ticket: Ticket) -> RequestAnswer {
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

    pub(crate) fn delete(&mut self, ticket: Ticket) -> RequestAnswer {
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

    /// Changes an item depending on what is there.
    fn change(&mut self, ticket: Ticket) -> RequestAnswer {
        let now = self.clock.now();
        let version = self.next_version();
        let Some(open) = self.requests.get(ticket) else {
            return RequestAnswer::default();
        };
        if !self.store.knows(&open.key) {
            return RequestAnswer::of(TieredStatus::Busy);
        }
        let key = Key::new(&open.key).ok();
        let request = key.and_then(|key| ItemRequest::decode_without_key(key, &open.value));
        let Some(request) = request else {
            return RequestAnswer::of(TieredStatus::Refused);
        };
        let now_s = now.unix_seconds();
        let (found, place) = self.store.get(&open.key, now_s);
        let changed = read_modify_write::change(found, &request, now, version);
        let (item, number) = match changed {
            ChangedItem::Refused(status) => {
                return RequestAnswer {
                    status,
                    place,
                    ..RequestAnswer::default()
                };
            }
            ChangedItem::Removed => return wrote(self.store.delete(&open.key), version),
            ChangedItem::Stored(item) => (item, None),
            ChangedItem::Counted(item, number) => (item, Some(number)),
        };
        let done = wrote(self.store.put(&open.key, &item, now_s), item.version);
        match done.status {
            TieredStatus::Done => RequestAnswer {
                flags: item.flags,
                expiry: item.expiry,
                number,
                ..done
            },
            _ => done,
        }
    }
}

impl BackEndHost for BackEndDesk {
    fn run(&mut self, request: &TierRequest) -> bool {
        let ticket = request.ticket;
        let opcode = self.requests.get(ticket).map(|open| open.head.opcode);
        let answer = match opcode {
            Some(TieredOpcode::Get) => self.read(ticket),
            Some(TieredOpcode::Put) => self.put(ticket),
            Some(TieredOpcode::Change) => self.change(ticket),
            _ => self.delete(ticket),
        };
        let is_write = request.access != Access::Read;
        if let Some(open) = self.requests.get_mut(ticket) {
            open.set_answer(answer);
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

    fn clear(&mut self, asked: &[Ticket]) {
        let answer = wrote(self.store.clear(), Cas::default());
        for &ticket in asked {
            if let Some(open) = self.requests.get_mut(ticket) {
                open.answer = answer;
            }
        }
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
            TierMessage::OfKey(message) => {
                let opcode = match message.kind {
                    KeyMessageKind::Item => TieredOpcode::Item,
                    KeyMessageKind::Update => TieredOpcode::Update,
                    _ => TieredOpcode::Revoke,
                };
                self.counts.items_sent += u64::from(opcode == TieredOpcode::Item);
                self.counts.updates_sent += u64::from(opcode == TieredOpcode::Update);
                self.post(to, opcode, &message);
            }
            TierMessage::Renew { .. } => {}
        }
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }
}

impl BackEndCounts {
    pub(crate) fn count(&mut self, head: &TieredHead) {
        self.from_cache += u64::from(head.flags.has(TieredFlags::FROM_CACHE));
        match head.opcode {
            TieredOpcode::Get => self.gets += 1,
            TieredOpcode::Put => self.puts += 1,
            TieredOpcode::Change => self.changes += 1,
            TieredOpcode::Flush => self.flushes += 1,
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
