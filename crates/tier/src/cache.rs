//! A cache node: copies of the hottest keys, the machine that says whether they may be shown, and
//! the choice of keys and rules (SW-19 to SW-32, SW-53 to SW-62).

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use curtail_codec::tiered::{
    AddressClass, HostId, PartitionMap, TierAddress, TieredDatagram, TieredFlags, TieredHead,
    TieredOpcode, TieredStatus,
};
use curtail_consistency::tiered::{
    Admission, AdmissionConfig, Admitted, BackEndId, CacheConfig, CacheEvent, CacheHost, CacheId,
    CacheSession, Generation, RuleBudget, RuleChange, RuleLife, RuleQueue, RuleSender, RulesAnswer,
    RulesStatus, RulesTaken, TierCache, TierMessage,
};
use curtail_runtime::Clock;
use curtail_types::{Cas, Instant, Key, Load, LoadScale, RouteHash};

use crate::{
    cache_copies::{CachedCopies, CachedCopy, CopiedItem},
    incarnation,
    node_loop::{NodeError, TierInbox, TierNode},
    outbox::{TierOutbox, reply_address},
    report_encoding,
    rule_change::{self, CHANGES_MAX},
    rule_lags::RuleLags,
    status,
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
}

/// A cache node.
pub struct CacheNode {
    inbox: TierInbox,
    machine: TierCache,
    desk: CacheDesk,
}

/// What became of rules.
#[derive(Clone, Copy, Debug, Default)]
struct RuleCounts {
    installed: u64,
    withdrawn: u64,
    refused_full: u64,
    lost_by_switch: u64,
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
    rules: RuleQueue,
    sender: RuleSender,
    /// Where the switch's process is.
    switch: SocketAddr,
    /// The changes of a message as it has them.
    rule_bytes: Vec<u8>,
    rule_counts: RuleCounts,
    /// Every read comes here, and there are no rules.
    baseline: Option<TierBaseline>,
    lags: RuleLags,
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
            let count = file.caches.len();
            return refused(format!(
                "the file names {count} cache nodes, not number {}",
                id.0
            ));
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
                rules: RuleQueue::new(rules),
                sender: RuleSender::new(incarnation, CHANGES_MAX),
                switch: file.control,
                rule_bytes: Vec::new(),
                rule_counts: RuleCounts::default(),
                baseline: file.baseline,
                lags: RuleLags::default(),
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
        self.desk.lags.arrive(route, || clock.now().instant);
        let Some(hits) = self.reply_from_copy(&head, route, key) else {
            return self.desk.miss(head, (key, route));
        };
        self.desk.counts.hits += 1;
        self.desk.admission.hit(hits);
    }

    /// Replies if there is a copy that may be shown.
    fn reply_from_copy(
        &mut self,
        head: &TieredHead,
        route: RouteHash,
        key: Key<'_>,
    ) -> Option<Admitted> {
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
                self.step(CacheEvent::Message(from, &lease));
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
        let (generation, number) = (Generation(head.generation), head.number);
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
        let message = match head.opcode {
            TieredOpcode::Item => TierMessage::Item {
                generation,
                key,
                number,
            },
            TieredOpcode::Update => TierMessage::Update {
                generation,
                key,
                number,
            },
            _ => TierMessage::Revoke {
                generation,
                key,
                number,
            },
        };
        self.step(CacheEvent::Message(from, &message));
        self.desk.incoming = None;
    }

    /// Where nothing may be added before another key goes, one goes now.
    fn make_room(&mut self, key: RouteHash, load: Option<Load>) {
        let is_wanted = load.is_some() || self.desk.admission.is_wanted(key);
        if !is_wanted || self.desk.admission.holds(key) || self.desk.rules.is_full() {
            return;
        }
        if self.desk.rules.budget().rule_buffer() == 0
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
        for key in self.desk.admission.chosen(self.desk.fetch_budget()) {
            let from = self.desk.map.owner(key);
            self.step(CacheEvent::Fetch(from, key));
        }
    }

    // ---- rules ----

    fn take_rules_answer(&mut self, head: &TieredHead) {
        if !self.desk.outbox.admits(SWITCH_PEER, head.sequence) {
            self.desk.counts.strays += 1;
            return;
        }
        let Ok(generation) = u32::try_from(head.generation) else {
            self.desk.counts.strays += 1;
            return;
        };
        let taken = RulesTaken {
            generation,
            number: head.number,
            life: RuleLife(head.version.0),
            status: match head.status {
                TieredStatus::Done => RulesStatus::Done,
                TieredStatus::Busy => RulesStatus::Busy,
                _ => RulesStatus::Refused,
            },
        };
        let had_life = self.desk.sender.life() != RuleLife(0);
        let answer = self.desk.sender.take(&taken);
        let is_refused = answer != RulesAnswer::Ignored && taken.status == RulesStatus::Refused;
        self.desk.rule_counts.refused_full += u64::from(is_refused);
        self.desk.rule_counts.lost_by_switch += u64::from(had_life && answer == RulesAnswer::Lost);
        let now = self.desk.now();
        if answer == RulesAnswer::Taken {
            self.desk.lags.confirm(now);
        }
        if answer == RulesAnswer::Lost {
            self.desk.lags.forget_all();
            self.desk.rules.clear();
            let held: Vec<RouteHash> = self.desk.copies.keys().collect();
            for key in held {
                self.desk.want_rule(key, false, now);
            }
        }
    }

    /// Evicts what is due, and sends the changes for which there is a token.
    fn change_rules(&mut self, now: Instant) {
        while let Some((key, since)) = self.desk.admission.victim(self.desk.rules.is_idle(), now) {
            self.evict(key, since);
        }
        let desk = &mut self.desk;
        while desk.sender.has_room()
            && let Some((key, is_install)) = desk.rules.take(now)
        {
            desk.sender.add(RuleChange {
                key: desk.map.address(key),
                is_install,
            });
            match is_install {
                true => desk.lags.send(key),
                false => desk.lags.forget(key),
            }
            match is_install {
                true => desk.rule_counts.installed += 1,
                false => desk.rule_counts.withdrawn += 1,
            }
        }
        desk.send_rules(now);
    }

    fn end_period(&mut self, now: Instant) {
        if now >= self.desk.admission.deadline() {
            self.desk.admission.end_period(now);
            self.desk.wanted.clear();
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let desk = &self.desk;
        let now = desk.now();
        let count = |number: usize| number as u64;
        let (installs, withdrawals) = desk.rules.lengths();
        let (_, refused) = desk.rules.counts();
        let [p50, p90, max] = desk.lags.quantiles_us();
        let all = (0..desk.map.back_ends).map(BackEndId);
        let leases = all.filter(|id| self.machine.lease_end(*id).is_some());
        vec![
            ("gets", desk.counts.gets),
            ("hits", desk.counts.hits),
            ("passed_on", desk.counts.passed_on),
            ("not_cached", desk.counts.not_cached),
            ("strays", desk.counts.strays),
            ("malformed", desk.counts.malformed),
            ("leases", count(leases.count())),
            ("copies", count(desk.copies.len())),
            ("copies_bytes", count(desk.copies.bytes())),
            ("admitted", desk.counts.admitted),
            ("evicted", desk.counts.evicted),
            ("updates", desk.counts.updates),
            ("reports", desk.counts.reports),
            ("unlike_reports", desk.counts.unlike_reports),
            ("threshold_requests", desk.admission.threshold().requests()),
            ("rules_installed", desk.rule_counts.installed),
            ("rules_withdrawn", desk.rule_counts.withdrawn),
            ("rules_refused_full", desk.rule_counts.refused_full),
            ("rules_lost_by_switch", desk.rule_counts.lost_by_switch),
            ("rules_per_s", desk.rules.budget().per_s),
            ("rule_installs_waiting", count(installs)),
            ("rule_withdrawals_waiting", count(withdrawals)),
            ("rule_age_ms", desk.rules.age_ns(now) / 1_000_000),
            ("rule_queue_refused", refused),
            ("switch_answers", u64::from(desk.sender.is_connected(now))),
            ("rule_lags", desk.lags.count),
            ("rule_lag_us_p50", p50),
            ("rule_lag_us_p90", p90),
            ("rule_lag_us_max", max),
        ]
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
            TieredOpcode::RulesTaken => self.take_rules_answer(&decoded.head),
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
        let rules = desk.rules.deadline().filter(|_| desk.sender.is_idle());
        let all = [self.machine.deadline(), rules];
        let first = all.into_iter().flatten().min();
        let last = desk.admission.deadline().min(desk.sender.deadline());
        let next = first.map_or(last, |at| at.min(last));
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
            return self.tell_miss(&head, key);
        }
        if self.baseline.is_some() {
            head.address = TierAddress::back_end(self.map.address(route));
        }
        self.counts.passed_on += 1;
        self.outbox.pass_on(head.passed_on(), key);
    }

    fn tell_miss(&mut self, head: &TieredHead, key: Key<'_>) {
        let Some(client) = self.outbox.client_of(head) else {
            return;
        };
        self.counts.not_cached += 1;
        let mut reply = head.reply(reply_address(head), TieredStatus::NotCached);
        reply.flags = TieredFlags::FROM_CACHE;
        let (key, value) = (Some(key), &[][..]);
        let datagram = TieredDatagram {
            head: reply,
            key,
            value,
        };
        self.outbox.push(client, &datagram);
    }

    /// Tells the switch what is due.
    fn send_rules(&mut self, now: Instant) {
        let is_all = self.rules.is_idle();
        let Some(message) = self.sender.send(is_all, now) else {
            return;
        };
        self.rule_bytes.clear();
        for change in message.changes {
            self.rule_bytes
                .extend_from_slice(&rule_change::encode(change));
        }
        let head = TieredHead {
            generation: u64::from(message.generation),
            number: message.number,
            version: Cas(message.life.0),
            flags: match message.is_all {
                true => TieredFlags::ALL,
                false => TieredFlags::NONE,
            },
            ..TieredHead::new(TieredOpcode::Rules, TierAddress::host(HostId(u32::MAX)))
        };
        let message = TieredDatagram {
            head,
            key: None,
            value: &self.rule_bytes,
        };
        self.outbox.tell_at(self.switch, SWITCH_PEER, &message);
    }

    /// The switch shall send reads of the key here.
    fn want_rule(&mut self, key: RouteHash, is_burst: bool, now: Instant) {
        if self.baseline.is_some() {
            return;
        }
        // What does not fit into the queue has no rule until it is admitted again.
        let _ = match is_burst {
            true => self.rules.install_first(key, now),
            false => self.rules.install(key, now),
        };
    }

    /// What the switch can do in a period, less what waits already; half of the room beyond the
    /// capacity is kept for keys that burst.
    fn fetch_budget(&self) -> usize {
        let budget = self.rules.budget();
        let (installs, withdrawals) = self.rules.lengths();
        let buffer = budget.rule_buffer();
        if budget.per_s == 0 {
            return usize::MAX;
        }
        // Without a buffer each admission takes a withdrawal too.
        let changes = if buffer > 0 { 1 } else { 2 };
        let segment_ms = self.scale.segment_ns / 1_000_000;
        let per_period = budget.per_s.saturating_mul(segment_ms) / 1000 / changes;
        let per_period = usize::try_from(per_period).unwrap_or(usize::MAX);
        let room = match buffer {
            0 => usize::MAX,
            _ => self.admission.room().saturating_sub(buffer / 2),
        };
        per_period.saturating_sub(installs + withdrawals).min(room)
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
        self.wanted.get(&key).map(|name| &**name)
    }

    fn tell(&mut self, to: BackEndId, opcode: TieredOpcode, about: (RouteHash, Generation, u64)) {
        let (key, generation, number) = about;
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
            TierMessage::Fetch { generation, key } => {
                self.tell(to, TieredOpcode::Fetch, (key, generation, 0));
            }
            TierMessage::Applied {
                generation,
                key,
                number,
            } => {
                self.counts.updates += 1;
                self.tell(to, TieredOpcode::Applied, (key, generation, number));
            }
            TierMessage::Dropped {
                generation,
                key,
                number,
            } => self.tell(to, TieredOpcode::Dropped, (key, generation, number)),
            _ => {}
        }
    }

    /// Admits, and then has the rule installed (SW-21).
    fn admits(&mut self, _: BackEndId, key: RouteHash) -> bool {
        if self.rules.is_full() {
            return false;
        }
        let now = self.now();
        let Some(incoming) = &mut self.incoming else {
            return false;
        };
        // What is gone is not admitted; its hash may be wanted again.
        if incoming.item.is_none() {
            return false;
        }
        incoming.admitted = self.admission.admit(key, incoming.load, now);
        if incoming.admitted.is_none() {
            return false;
        }
        let is_burst = incoming.load.is_some();
        self.want_rule(key, is_burst, now);
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
        let hits = incoming.admitted.or(last.map(|last| last.hits));
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
    }

    fn remove(&mut self, _: BackEndId, key: RouteHash) {
        self.admission.remove(key);
        self.lags.forget(key);
        if let Some(copy) = self.copies.remove(key) {
            self.parting = Some((key, copy.key));
        }
        let since = self.evicted_since.unwrap_or_else(|| self.now());
        if self.baseline.is_none() {
            self.rules.withdraw(key, since);
        }
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }
}

/// Keys of a cache node.
const CAPACITY_MAX: usize = 1 << 20;
/// Names of keys that were reported in a period.
const WANTED_MAX: usize = 1 << 16;
/// The switch's process among the peers of a cache node, beyond all back ends.
const SWITCH_PEER: u32 = u32::MAX;
