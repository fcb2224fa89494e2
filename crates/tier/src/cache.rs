//! A cache node: copies of the hottest keys, the machine that says whether they may be shown, and
//! the choice of keys and rules (SW-19 to SW-32, SW-53 to SW-62).

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use curtail_codec::tiered::{
    AddressClass, PartitionMap, TierAddress, TieredDatagram, TieredFlags, TieredHead, TieredOpcode,
    TieredStatus,
};
use curtail_consistency::tiered::{
    Admission, AdmissionConfig, Admitted, BackEndId, CacheConfig, CacheEvent, CacheHost, CacheId,
    CacheSession, Generation, KeyMessage, KeyMessageKind, RuleBudget, RulesAnswer, TierCache,
    TierMessage,
};
use curtail_runtime::Clock;
use curtail_types::{Instant, Key, Load, LoadScale, RouteHash};

use crate::{
    cache_copies::{CachedCopies, CachedCopy, CopiedItem, CopyHits},
    cache_group::{self, CacheGroup},
    cache_rules::{CacheRules, SWITCH_PEER},
    incarnation,
    node_loop::{NodeError, TierInbox, TierNode},
    outbox::{TierOutbox, reply_address},
    rate_limit::RateLimit,
    report_encoding, status,
    tier_file::{TierBaseline, TierFile},
};

/// What a cache node is started with.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Its number in the tier's file.
    pub id: CacheId,
    /// Keys that it holds.
    pub capacity: usize,
    /// Changes of rules that the switch bears.
    pub rules: RuleBudget,
    /// Reads that it answers in a second; those beyond are told `Busy`. 0 is no limit.
    pub limit_per_s: u64,
}

/// A cache node.
pub struct CacheNode {
    inbox: TierInbox,
    machine: TierCache,
    desk: CacheDesk,
}

/// Everything of a cache node but its machine, for which it is the host.
struct CacheDesk {
    map: PartitionMap,
    back_ends: usize,
    scale: LoadScale,
    outbox: TierOutbox,
    clock: Clock,
    copies: CachedCopies,
    admission: Admission,
    rules: CacheRules,
    group: CacheGroup,
    limit: RateLimit,
    limit_per_s: u64,
    /// Every read comes here, and there are no rules.
    baseline: Option<TierBaseline>,
    /// The keys that were asked for and have not come, by their hashes.
    wanted: HashMap<RouteHash, Box<[u8]>>,
    /// The key of the message that came, and its item.
    incoming: Option<IncomingItem>,
    /// The last copy that was removed: a message about it follows.
    parting: Option<(RouteHash, Box<[u8]>)>,
    /// Since when the eviction that is being carried out has waited.
    evicted_since: Option<Instant>,
    counts: CacheCounts,
}

#[derive(Debug)]
struct IncomingItem {
    route: RouteHash,
    key: Box<[u8]>,
    item: Option<CopiedItem>,
    /// Of an instant report.
    load: Option<Load>,
    session: Option<CacheSession>,
    admitted: Option<Admitted>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CacheCounts {
    gets: u64,
    hits: u64,
    /// Requests that were sent on because there was no copy (SW-19).
    passed_on: u64,
    /// Clients that were told to ask the back end, as there was no copy.
    not_cached: u64,
    /// Those beyond what it is to answer in a second.
    refused: u64,
    /// What was not for a cache node (SW-19's loop guard).
    strays: u64,
    malformed: u64,
    reports: u64,
    unlike_reports: u64,
    updates: u64,
    admitted: u64,
    evicted: u64,
}

impl CacheNode {
    /// Binds the cache node's address; it is empty.
    ///
    /// # Errors
    /// Each says what is in the way.
    pub fn start(file: &TierFile, options: &CacheOptions) -> Result<Self, NodeError> {
        let id = options.id;
        let refused = |why: String| Err(NodeError::Refused(why));
        let Some(address) = file.caches.get(usize::from(id.0)) else {
            return refused(match file.caches.len().checked_sub(1) {
                None => "the file names no cache nodes".to_owned(),
                Some(last) => format!("the file names cache nodes 0 to {last}, not {}", id.0),
            });
        };
        if !(1..=CAPACITY_MAX).contains(&options.capacity) {
            return refused(format!("a cache node holds 1 to {CAPACITY_MAX} keys"));
        }
        let inbox = TierInbox::of_node(file, *address)?;
        let incarnation =
            incarnation::next(None).map_err(|error| NodeError::Io("its incarnation", error))?;
        let ways = (file.network(), file.secret());
        let outbox = TierOutbox::new(&inbox, ways, u32::from(id.0), incarnation)
            .map_err(|error| NodeError::Io("its socket", error))?;
        let clock = Clock::start();
        let rules = match file.baseline {
            None => options.rules,
            // No rule has to be changed for a key.
            Some(_) => RuleBudget {
                per_s: 0,
                ..options.rules
            },
        };
        let admission = AdmissionConfig {
            excess_max: rules.rule_buffer(),
            delay_max_ns: rules.delay_max_ns,
            seed: u64::from(incarnation),
            ..AdmissionConfig::new(options.capacity, file.scale())
        };
        let config = CacheConfig::with_lease(u64::from(incarnation), file.lease_ns());
        let mut node = Self {
            inbox,
            machine: TierCache::new(config),
            desk: CacheDesk {
                map: file.map(),
                back_ends: file.back_ends.len(),
                scale: file.scale(),
                outbox,
                clock,
                copies: CachedCopies::default(),
                admission: Admission::new(admission, clock.now().instant),
                rules: CacheRules::new(
                    rules,
                    incarnation,
                    (file.map(), file.control),
                    file.baseline.is_none(),
                ),
                group: CacheGroup::new(file, id, clock.now().instant),
                limit: RateLimit::new(options.limit_per_s),
                limit_per_s: options.limit_per_s,
                baseline: file.baseline,
                wanted: HashMap::new(),
                incoming: None,
                parting: None,
                evicted_since: None,
                counts: CacheCounts::default(),
            },
        };
        let all = (0..file.map().back_ends).map(BackEndId);
        let own = all.filter(|back_end| file.cache_of(*back_end) == Some(id));
        own.for_each(|back_end| node.step(CacheEvent::Join(back_end)));
        Ok(node)
    }

    /// The same with an error planted.
    #[cfg(any(test, feature = "mutants"))]
    #[must_use]
    pub fn with_mutant(mut self, mutant: curtail_consistency::tiered::TierMutant) -> Self {
        self.machine = self.machine.with_mutant(mutant);
        self
    }

    fn step(&mut self, event: CacheEvent<'_>) {
        self.machine.step(event, &mut self.desk);
    }

    // ---- requests ----

    fn take_get(&mut self, datagram: &TieredDatagram<'_>) {
        let head = datagram.head;
        let Some(key) = datagram.key else {
            return;
        };
        // Only a first `get` is for a cache node; everything else would circulate (SW-19).
        let class = match self.desk.baseline {
            None => AddressClass::CachedGet,
            Some(_) => AddressClass::Host,
        };
        if head.address.class != class {
            self.desk.counts.strays += 1;
            return;
        }
        self.desk.counts.gets += 1;
        let route = PartitionMap::route(key);
        let clock = self.desk.clock;
        self.desk.rules.lags.arrive(route, || clock.now().instant);
        if self.desk.limit_per_s > 0 && !self.desk.limit.admits(clock.now().instant) {
            self.desk.counts.refused += 1;
            return self.desk.tell_client(&head, key, TieredStatus::Busy);
        }
        let Some(hits) = self.reply_from_copy(&head, route, key) else {
            return self.desk.miss(head, (key, route));
        };
        self.desk.counts.hits += 1;
        match hits {
            CopyHits::Own(at) => self.desk.admission.hit(at),
            CopyHits::Guest => self.desk.group.hit_guest(route),
        }
    }

    /// Replies if there is a copy that may be shown.
    fn reply_from_copy(
        &mut self,
        head: &TieredHead,
        route: RouteHash,
        key: Key<'_>,
    ) -> Option<CopyHits> {
        let copy = self.desk.copies.find(route, key)?;
        let client = self.desk.outbox.client_of(head)?;
        self.machine.look(copy.from, route)?;
        // Read after the request has come: the process may have stood still before.
        let now = self.desk.clock.now();
        if !self.machine.shows(copy.from, copy.session, now.instant) {
            return None;
        }
        let has_ended =
            copy.item.expiry != 0 && u64::from(copy.item.expiry) <= now.unix_ns / 1_000_000_000;
        if has_ended {
            return None;
        }
        let mut reply = head.reply(reply_address(head), TieredStatus::Done);
        reply.flags = TieredFlags::FROM_CACHE;
        copy.item.describe(&mut reply);
        let hits = copy.hits;
        let datagram = TieredDatagram {
            head: reply,
            key: Some(key),
            value: &copy.item.value,
        };
        self.desk.outbox.push(client, &datagram);
        Some(hits)
    }

    // ---- messages of back ends ----

    fn take_message(&mut self, datagram: &TieredDatagram<'_>) {
        let head = &datagram.head;
        let back_end = u16::try_from(head.sender).ok();
        let known = back_end.filter(|id| usize::from(*id) < self.desk.back_ends);
        let Some(from) = known.map(BackEndId) else {
            self.desk.counts.strays += 1;
            return;
        };
        if !self.desk.outbox.admits(head.sender, head.sequence) {
            self.desk.counts.strays += 1;
            return;
        }
        match head.opcode {
            TieredOpcode::Lease => {
                let lease = TierMessage::Lease {
                    session: head.version.0,
                    generation: Generation(head.generation),
                    sent: Instant { ns: head.number },
                };
                let had_lease = self.machine.lease_end(from).is_some();
                self.step(CacheEvent::Message(from, &lease));
                if !had_lease && self.machine.lease_end(from).is_some() {
                    self.fetch_guests(from);
                }
            }
            TieredOpcode::Report => self.take_report(from, datagram.value),
            _ => self.take_item(from, datagram),
        }
    }

    /// A message with a key, and perhaps an item.
    fn take_item(&mut self, from: BackEndId, datagram: &TieredDatagram<'_>) {
        let head = &datagram.head;
        let Some(name) = datagram.key else {
            return;
        };
        let key = PartitionMap::route(name);
        let is_own = self.desk.map.owner(key) == from;
        if !is_own {
            self.desk.counts.strays += 1;
            return;
        }
        let is_item = head.opcode == TieredOpcode::Item;
        let load = (is_item && head.epoch > 0).then(|| Load::of(u64::from(head.epoch)));
        if is_item {
            self.make_room(key, load);
        }
        self.desk.incoming = Some(IncomingItem {
            route: key,
            key: name.bytes().into(),
            item: CopiedItem::of(datagram),
            load,
            session: self.machine.session(from),
            admitted: None,
        });
        let kind = match head.opcode {
            TieredOpcode::Item => KeyMessageKind::Item,
            TieredOpcode::Update => KeyMessageKind::Update,
            _ => KeyMessageKind::Revoke,
        };
        let message = kind.message(Generation(head.generation), key, head.number);
        self.step(CacheEvent::Message(from, &message));
        self.desk.incoming = None;
    }

    /// Where nothing may be added before another key goes, one goes now.
    fn make_room(&mut self, key: RouteHash, load: Option<Load>) {
        let is_wanted = load.is_some() || self.desk.admission.is_wanted(key);
        if !is_wanted || self.desk.admission.holds(key) || self.desk.rules.queue.is_full() {
            return;
        }
        if self.desk.rules.queue.budget().rule_buffer() == 0
            && let Some(victim) = self.desk.admission.replaced()
        {
            let now = self.desk.now();
            self.evict(victim, now);
        }
    }

    fn evict(&mut self, key: RouteHash, since: Instant) {
        let from = self.desk.map.owner(key);
        self.desk.evicted_since = Some(since);
        self.step(CacheEvent::Evict(from, key));
        self.desk.evicted_since = None;
        self.desk.counts.evicted += 1;
    }

    fn take_report(&mut self, from: BackEndId, value: &[u8]) {
        let Some(keys) = report_encoding::decode(value, self.desk.scale) else {
            self.desk.counts.unlike_reports += 1;
            return;
        };
        self.desk.counts.reports += 1;
        for (name, load) in keys {
            let key = PartitionMap::route(name);
            if self.desk.map.owner(key) == from && !self.desk.admission.holds(key) {
                self.desk.admission.offer(key, load);
                if self.desk.wanted.len() < WANTED_MAX {
                    self.desk.wanted.insert(key, name.bytes().into());
                }
            }
        }
        let room = self.desk.admission.room();
        let budget = self.desk.rules.fetch_budget(self.desk.scale, room);
        for key in self.desk.admission.chosen(budget) {
            let from = self.desk.map.owner(key);
            self.step(CacheEvent::Fetch(from, key));
        }
    }

    // ---- other cache nodes ----

    /// Another cache node's list of keys, or its answer to this one's.
    fn take_from_cache(&mut self, datagram: &TieredDatagram<'_>) {
        let head = &datagram.head;
        let known = self.desk.group.other(head.sender);
        let is_new = |outbox: &mut TierOutbox, id: CacheId| {
            outbox.admits(cache_group::peer(u32::from(id.0)), head.sequence)
        };
        let Some(from) = known.filter(|id| is_new(&mut self.desk.outbox, *id)) else {
            self.desk.counts.strays += 1;
            return;
        };
        let desk = &mut self.desk;
        let now = desk.clock.now().instant;
        if head.opcode == TieredOpcode::SharedHits {
            return desk.group.take_hits(from, datagram, &mut desk.admission);
        }
        let (gone, missing) = desk
            .group
            .take_list(from, datagram, (&mut desk.outbox, now));
        self.leave(&gone);
        for key in missing {
            let from = self.desk.map.owner(key);
            self.desk.group.lessors.insert(from);
            self.step(CacheEvent::Join(from));
            self.step(CacheEvent::Fetch(from, key));
        }
    }

    /// A back end has granted its lease: guests of it can be fetched.
    fn fetch_guests(&mut self, from: BackEndId) {
        for key in self.desk.group.missing_of(from) {
            self.step(CacheEvent::Fetch(from, key));
        }
    }

    /// Ends the sessions with back ends that have had no guests here for a period.
    fn leave_back_ends(&mut self) {
        for from in self.desk.group.idle_lessors() {
            self.step(CacheEvent::Leave(from));
        }
    }

    /// These are guests no more.
    fn leave(&mut self, gone: &[RouteHash]) {
        for &key in gone {
            let from = self.desk.map.owner(key);
            self.step(CacheEvent::Evict(from, key));
            self.desk.group.guests.remove(key);
        }
    }

    // ---- rules ----

    fn take_rules_answer(&mut self, datagram: &TieredDatagram<'_>) {
        let head = &datagram.head;
        if !self.desk.outbox.admits(SWITCH_PEER, head.sequence) {
            self.desk.counts.strays += 1;
            return;
        }
        let desk = &mut self.desk;
        let now = desk.clock.now().instant;
        let answer = desk.rules.take_answer((head, datagram.value), now);
        if answer == RulesAnswer::Lost {
            desk.group.shared.forget_marks();
            let own = desk.copies.own_keys();
            own.for_each(|key| desk.rules.want(key, false, now));
        }
    }

    /// Evicts what is due, and sends the changes for which there is a token.
    fn change_rules(&mut self, now: Instant) {
        loop {
            let is_idle = self.desk.rules.queue.is_idle();
            let Some((key, since)) = self.desk.admission.victim(is_idle, now) else {
                break;
            };
            self.evict(key, since);
        }
        let desk = &mut self.desk;
        if desk.group.is_on() {
            if desk.group.shares(now) {
                desk.rules.sender.share();
            }
            let sharing = desk.rules.sender.sharing();
            for key in desk.group.shared.unlike(sharing) {
                // What is not here any more is withdrawn.
                if desk.admission.holds(key) && desk.copies.get(key).is_some() {
                    desk.rules.want(key, false, now);
                }
            }
        }
        desk.rules
            .send(&mut desk.group.shared, &mut desk.outbox, now);
    }

    fn end_period(&mut self, now: Instant) {
        if now >= self.desk.admission.deadline() {
            self.desk.admission.end_period(now);
            self.desk.wanted.clear();
            let desk = &mut self.desk;
            let held = (&desk.admission, &desk.copies);
            desk.group.tell_others(held, &mut desk.outbox);
            let gone = desk.group.outlived(now);
            self.leave_back_ends();
            self.leave(&gone);
        }
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let desk = &self.desk;
        let all = (0..desk.map.back_ends).map(BackEndId);
        let leases = all.filter(|id| self.machine.lease_end(*id).is_some());
        let counts = &desk.counts;
        let own = [
            ("gets", counts.gets),
            ("hits", counts.hits),
            ("passed_on", counts.passed_on),
            ("not_cached", counts.not_cached),
            ("refused", counts.refused),
            ("limit_per_s", desk.limit_per_s),
            ("strays", counts.strays),
            ("malformed", counts.malformed),
            ("leases", leases.count() as u64),
            ("copies", desk.copies.len() as u64),
            ("copies_bytes", desk.copies.bytes() as u64),
            ("admitted", counts.admitted),
            ("evicted", counts.evicted),
            ("updates", counts.updates),
            ("reports", counts.reports),
            ("unlike_reports", counts.unlike_reports),
            ("threshold_requests", desk.admission.threshold().requests()),
        ];
        let rules = desk.rules.counters(desk.now());
        let all = own.into_iter().chain(rules).chain(desk.group.counters());
        let all = all.map(|(name, number)| (name.to_string(), number));
        all.chain(desk.group.named_loads(&desk.copies)).collect()
    }
}

impl TierNode for CacheNode {
    fn receive(&mut self, datagram: &[u8], _: SocketAddr) {
        let secret = *self.desk.outbox.secret();
        let Ok(decoded) = TieredDatagram::decode(datagram, Some(&secret)) else {
            self.desk.counts.malformed += 1;
            return;
        };
        match decoded.head.opcode {
            TieredOpcode::Get => self.take_get(&decoded),
            TieredOpcode::Item
            | TieredOpcode::Update
            | TieredOpcode::Revoke
            | TieredOpcode::Lease
            | TieredOpcode::Report => self.take_message(&decoded),
            TieredOpcode::RulesTaken => self.take_rules_answer(&decoded),
            TieredOpcode::Shared | TieredOpcode::SharedHits => self.take_from_cache(&decoded),
            TieredOpcode::Status => {
                let counters = self.counters();
                status::answer(&mut self.desk.outbox, &decoded.head, &counters);
            }
            _ => self.desk.counts.strays += 1,
        }
    }

    fn turn(&mut self) -> Duration {
        let now = self.desk.now();
        if self.machine.deadline().is_some_and(|at| now >= at) {
            self.step(CacheEvent::Tick);
        }
        self.end_period(now);
        self.change_rules(now);
        self.desk.outbox.flush();
        let desk = &self.desk;
        let last = desk.admission.deadline().min(desk.rules.deadline());
        let next = self.machine.deadline().map_or(last, |at| at.min(last));
        Duration::from_nanos(next.ns.saturating_sub(now.ns))
    }

    fn inbox(&mut self) -> &mut TierInbox {
        &mut self.inbox
    }
}

impl CacheDesk {
    /// There is no copy: another must answer.
    fn miss(&mut self, mut head: TieredHead, (key, route): (Key<'_>, RouteHash)) {
        if self.baseline == Some(TierBaseline::LookAside) {
            self.counts.not_cached += 1;
            return self.tell_client(&head, key, TieredStatus::NotCached);
        }
        if self.baseline.is_some() {
            head.address = TierAddress::back_end(self.map.address(route));
        }
        self.counts.passed_on += 1;
        self.outbox.pass_on(head.passed_on(), key);
    }

    /// Answers a `get` without an item.
    fn tell_client(&mut self, head: &TieredHead, key: Key<'_>, status: TieredStatus) {
        let Some(client) = self.outbox.client_of(head) else {
            return;
        };
        let mut reply = head.reply(reply_address(head), status);
        reply.flags = TieredFlags::FROM_CACHE;
        let (key, value) = (Some(key), &[][..]);
        let datagram = TieredDatagram {
            head: reply,
            key,
            value,
        };
        self.outbox.push(client, &datagram);
    }

    /// The bytes of a key that a message is about.
    fn name(&self, key: RouteHash) -> Option<&[u8]> {
        if let Some(incoming) = &self.incoming
            && incoming.route == key
        {
            return Some(&incoming.key);
        }
        if let Some(copy) = self.copies.get(key) {
            return Some(&copy.key);
        }
        if let Some((route, name)) = &self.parting
            && *route == key
        {
            return Some(name);
        }
        let wanted = self.wanted.get(&key).map(|name| &**name);
        wanted.or_else(|| self.group.guests.name(key))
    }

    fn tell(&mut self, to: BackEndId, opcode: TieredOpcode, message: &KeyMessage) {
        let &KeyMessage {
            key,
            generation,
            number,
            ..
        } = message;
        let address = TierAddress::back_end(self.map.address(key));
        let Some(name) = self.name(key).map(Box::<[u8]>::from) else {
            return;
        };
        let mut head = TieredHead::new(opcode, address);
        head.generation = generation.0;
        head.number = number;
        let datagram = TieredDatagram {
            head,
            key: Key::new(&name).ok(),
            value: &[],
        };
        self.outbox.tell(u32::from(to.0), &datagram);
    }
}

impl CacheHost for CacheDesk {
    fn send(&mut self, to: BackEndId, message: &TierMessage) {
        match *message {
            TierMessage::Renew { session, sent } => {
                let key = curtail_types::KeyAddress {
                    back_end: to,
                    ..curtail_types::KeyAddress::default()
                };
                let head = TieredHead {
                    generation: session,
                    number: sent.ns,
                    ..TieredHead::new(TieredOpcode::Renew, TierAddress::back_end(key))
                };
                let (key, value) = (None, &[][..]);
                let datagram = TieredDatagram { head, key, value };
                self.outbox.tell(u32::from(to.0), &datagram);
            }
            TierMessage::OfKey(message) => {
                let opcode = match message.kind {
                    KeyMessageKind::Fetch => TieredOpcode::Fetch,
                    KeyMessageKind::Applied => TieredOpcode::Applied,
                    _ => TieredOpcode::Dropped,
                };
                if opcode == TieredOpcode::Applied {
                    self.counts.updates += 1;
                    self.group.shared.note_write(message.key);
                }
                self.tell(to, opcode, &message);
            }
            TierMessage::Lease { .. } => {}
        }
    }

    /// Admits, and then has the rule installed (SW-21); of another cache node's keys that one has
    /// the rule.
    fn admits(&mut self, _: BackEndId, key: RouteHash) -> bool {
        let now = self.now();
        // What is gone is not admitted; its hash may be wanted again.
        let Some(incoming) = self.incoming.as_mut().filter(|one| one.item.is_some()) else {
            return false;
        };
        if self.group.guests.has(key) {
            return true;
        }
        if self.rules.queue.is_full() {
            return false;
        }
        incoming.admitted = self.admission.admit(key, incoming.load, now);
        if incoming.admitted.is_none() {
            return false;
        }
        let is_burst = incoming.load.is_some();
        self.rules.want(key, is_burst, now);
        self.counts.admitted += 1;
        true
    }

    fn has_incoming(&self) -> bool {
        self.incoming.as_ref().is_some_and(|one| one.item.is_some())
    }

    fn store(&mut self, from: BackEndId, key: RouteHash) {
        let Some(incoming) = &mut self.incoming else {
            return;
        };
        let last = self.copies.remove(key);
        let admitted = incoming.admitted.map(CopyHits::Own);
        let guest = self.group.guests.has(key).then_some(CopyHits::Guest);
        let hits = admitted.or(last.map(|last| last.hits)).or(guest);
        let (Some(item), Some(hits), Some(session)) =
            (incoming.item.take(), hits, incoming.session)
        else {
            return;
        };
        let copy = CachedCopy {
            from,
            key: incoming.key.clone(),
            item,
            session,
            hits,
        };
        self.wanted.remove(&key);
        self.copies.insert(key, copy);
        self.group.guests.set_held(key, true);
    }

    fn remove(&mut self, _: BackEndId, key: RouteHash) {
        if let Some(copy) = self.copies.remove(key) {
            self.parting = Some((key, copy.key));
        }
        if self.group.guests.has(key) {
            return self.group.guests.set_held(key, false);
        }
        self.admission.remove(key);
        let since = self.evicted_since.unwrap_or_else(|| self.now());
        self.rules.withdraw(key, since);
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }
}

/// Keys of a cache node.
const CAPACITY_MAX: usize = 1 << 20;
/// Names of keys that were reported in a period.
const WANTED_MAX: usize = 1 << 16;
