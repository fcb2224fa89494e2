//! The switch's process: it owns the table of rules, and takes the changes of cache nodes (SW-18).
//!
//! It deletes all rules of a cache node that is silent, whose link is down, or that begins again
//! (SW-40): requests then go to back ends. A switch that comes back, or that another controller
//! had before, may have any rules. It tells which by their cookies (SW-43): the *life* of every
//! cache's rules rises, which tells the cache to name them all again; what it names is kept, and
//! when it has named all, the rest is deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use curtail_codec::tiered::{
    AddressClass, HostId, TierAddress, TieredDatagram, TieredHead, TieredOpcode, TieredStatus,
};
use curtail_routing::{Destination, OpenVswitch, Switch, UserForwarder};
use curtail_runtime::Clock;
use curtail_types::{CacheId, Cas, Instant, KeyAddress, Rule, RuleCookie, RuleError, SwitchEvent};

use crate::{
    incarnation,
    node_loop::{NodeError, TierInbox, TierNode},
    outbox::TierOutbox,
    rule_sender::{ADDRESS_BYTES, CHANGES_MAX},
    status,
    tier_file::TierFile,
};

/// What a switch's process is started with.
#[derive(Clone, Debug)]
pub struct SwitchOptions {
    /// Rules of keys that the table takes.
    pub capacity: usize,
}

/// The switch's process.
pub struct SwitchNode {
    inbox: TierInbox,
    outbox: TierOutbox,
    clock: Clock,
    table: Box<dyn Switch + Send>,
    daemons: Daemons,
    /// Rules that were in the switch when it was found, and that no cache has named since.
    found: BTreeMap<KeyAddress, RuleCookie>,
    is_connected: bool,
    revived: Instant,
    caches: BTreeMap<CacheId, RulesOfCache>,
    caches_max: usize,
    lives: u64,
    counts: SwitchNodeCounts,
}

/// What forwards and ends with this process.
pub(crate) enum Daemons {
    /// XDP ends with its table; others run the switch.
    None,
    UserSpace(#[expect(dead_code, reason = "it is held")] UserForwarder),
    OpenVswitch(OpenVswitch),
}

/// What is known of a cache node.
#[derive(Clone, Copy, Debug)]
struct RulesOfCache {
    generation: u32,
    /// The last message that was taken, and what became of it.
    number: u64,
    status: TieredStatus,
    life: u64,
    heard: Instant,
    /// It has been silent, and has no rules.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct SwitchNodeCounts {
    installed: u64,
    deleted: u64,
    silences: u64,
    restarts: u64,
    strays: u64,
    malformed: u64,
    failed: u64,
    switch_restarts: u64,
    kept: u64,
    stale: u64,
    revivals: u64,
    change_us: u64,
    change_us_max: u64,
}

impl SwitchNode {
    /// Controls a switch from this socket on.
    pub(crate) fn control(
        file: &TierFile,
        inbox: TierInbox,
        table: Box<dyn Switch + Send>,
        daemons: Daemons,
    ) -> Result<Self, NodeError> {
        let incarnation =
            incarnation::next(None).map_err(|error| NodeError::Io("its incarnation", error))?;
        let ways = (file.network(), file.secret());
        let outbox = TierOutbox::new(&inbox, ways, u32::MAX, incarnation)
            .map_err(|error| NodeError::Io("its socket", error))?;
        Ok(Self {
            inbox,
            outbox,
            clock: Clock::start(),
            table,
            daemons,
            found: BTreeMap::new(),
            is_connected: false,
            revived: Instant { ns: 0 },
            caches: BTreeMap::new(),
            caches_max: file.caches.len(),
            lives: u64::from(incarnation) << 32,
            counts: SwitchNodeCounts::default(),
        })
    }

    pub(crate) fn with_daemons(mut self, daemons: Daemons) -> Self {
        self.daemons = daemons;
        self
    }

    /// The same with another table in front of its own.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn behind(
        mut self,
        other: impl FnOnce(Box<dyn Switch + Send>) -> Box<dyn Switch + Send>,
    ) -> Self {
        self.table = other(self.table);
        self
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }

    fn next_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    fn take_rules(&mut self, datagram: &TieredDatagram<'_>, from: SocketAddr) {
        let head = datagram.head;
        let id = u8::try_from(head.sender).map(CacheId).ok();
        let known = id.filter(|id| usize::from(id.0) < self.caches_max);
        let generation = u32::try_from(head.generation).ok();
        let (Some(id), Some(generation)) = (known, generation) else {
            self.counts.strays += 1;
            return;
        };
        if !self.outbox.admits(head.sender, head.sequence) {
            self.counts.strays += 1;
            return;
        }
        let begins = match self.caches.get(&id) {
            Some(known) if generation < known.generation => {
                self.counts.strays += 1;
                return;
            }
            Some(known) => known.is_silent || generation > known.generation,
            None => true,
        };
        if begins {
            self.begin_again(id, generation);
        }
        let Some(mut known) = self.caches.get(&id).copied() else {
            return;
        };
        if head.number > known.number {
            let cookie = RuleCookie {
                cache: id,
                generation,
            };
            let status = self.apply(cookie, datagram.value);
            // A switch that does not answer has taken nothing: the cache sends it again.
            if status != TieredStatus::Busy {
                known.number = head.number;
            }
            known.status = status;
            let has_named_all = head.version.0 == known.life;
            if has_named_all && status == TieredStatus::Done {
                self.delete_unnamed(id);
            }
        }
        // After the changes: a switch that is slow does not make a cache silent.
        known.heard = self.now();
        self.caches.insert(id, known);
        self.answer(from, id, &head, &known);
    }

    /// The cache node has no rules from now on, and is told so.
    fn begin_again(&mut self, id: CacheId, generation: u32) {
        self.counts.restarts += 1;
        self.delete_rules_of(id);
        let cache = RulesOfCache {
            generation,
            number: 0,
            status: TieredStatus::Done,
            life: self.next_life(),
            heard: self.now(),
            is_silent: false,
        };
        self.caches.insert(id, cache);
    }

    /// Rules that stay cost detours.
    fn delete_rules_of(&mut self, id: CacheId) {
        let deleted = self.table.delete_cache(id);
        self.counts.failed += u64::from(deleted.is_err());
        self.found.retain(|_, cookie| cookie.cache != id);
    }

    fn apply(&mut self, cookie: RuleCookie, value: &[u8]) -> TieredStatus {
        let (words, rest) = value.as_chunks::<ADDRESS_BYTES>();
        if !rest.is_empty() || words.len() > CHANGES_MAX {
            self.counts.malformed += 1;
            return TieredStatus::Done;
        }
        // In order: of two changes of one rule the later counts. There are no two in a message,
        // because the cache's queue has one change of a key at a time; deletes go first, for room.
        let (mut installs, mut deletes) = (BTreeSet::new(), BTreeSet::<KeyAddress>::new());
        for word in words {
            match TierAddress::from_word(u64::from_le_bytes(*word)) {
                Some(address) if address.class == AddressClass::CachedGet => {
                    deletes.remove(&address.key);
                    installs.insert(address.key);
                }
                Some(address) if address.class == AddressClass::BackEnd => {
                    installs.remove(&address.key);
                    deletes.insert(address.key);
                }
                _ => self.counts.malformed += 1,
            }
        }
        let before = installs.len();
        installs.retain(|key| self.found.get(key) != Some(&cookie));
        let kept = before - installs.len();
        let began = self.now();
        let mut done = self.change(cookie, &installs, &deletes);
        if matches!(done, Err(RuleError::Full { .. })) && !self.found.is_empty() {
            self.delete_unnamed(cookie.cache);
            done = self.change(cookie, &installs, &deletes);
        }
        match done {
            Ok(()) => {
                if !installs.is_empty() || !deletes.is_empty() {
                    self.counts.change_us = (self.now().ns - began.ns) / 1000;
                    self.counts.change_us_max =
                        self.counts.change_us_max.max(self.counts.change_us);
                }
                self.counts.installed += installs.len() as u64;
                self.counts.deleted += deletes.len() as u64;
                self.counts.kept += kept as u64;
                self.name(words);
                TieredStatus::Done
            }
            Err(RuleError::Disconnected) => TieredStatus::Busy,
            Err(_) => {
                self.counts.failed += 1;
                self.name(words);
                TieredStatus::Refused
            }
        }
    }

    fn change(
        &mut self,
        cookie: RuleCookie,
        installs: &BTreeSet<KeyAddress>,
        deletes: &BTreeSet<KeyAddress>,
    ) -> Result<(), RuleError> {
        let rules = installs.iter().map(|key| Rule { key: *key, cookie });
        let rules: Vec<Rule> = rules.collect();
        let deletes: Vec<KeyAddress> = deletes.iter().copied().collect();
        self.table.delete(&deletes)?;
        self.table.install(&rules)
    }

    /// These are as a cache wants them.
    fn name(&mut self, words: &[[u8; ADDRESS_BYTES]]) {
        for word in words {
            if let Some(address) = TierAddress::from_word(u64::from_le_bytes(*word)) {
                self.found.remove(&address.key);
            }
        }
    }

    /// Deletes what was found of a cache's rules and the cache does not want.
    fn delete_unnamed(&mut self, id: CacheId) {
        let unnamed = self.found.iter().filter(|(_, cookie)| cookie.cache == id);
        let unnamed: Vec<KeyAddress> = unnamed.map(|(key, _)| *key).collect();
        self.delete_stale(&unnamed);
    }

    fn delete_stale(&mut self, keys: &[KeyAddress]) {
        if keys.is_empty() {
            return;
        }
        match self.table.delete(keys) {
            Ok(()) => self.counts.stale += keys.len() as u64,
            // With its next connection the switch is looked at again.
            Err(_) => self.counts.failed += 1,
        }
        for key in keys {
            self.found.remove(key);
        }
    }

    fn answer(&mut self, to: SocketAddr, id: CacheId, head: &TieredHead, known: &RulesOfCache) {
        let host = HostId(u32::from(id.0));
        let head = TieredHead {
            generation: u64::from(known.generation),
            number: head.number,
            version: Cas(known.life),
            status: known.status,
            ..TieredHead::new(TieredOpcode::RulesTaken, TierAddress::host(host))
        };
        let (key, value) = (None, &[][..]);
        let answer = TieredDatagram { head, key, value };
        self.outbox.tell_at(to, u32::from(id.0), &answer);
    }

    /// Deletes the rules of cache nodes from which nothing is heard.
    fn watch_silence(&mut self, now: Instant) {
        let is_late = |known: &RulesOfCache| now.ns.saturating_sub(known.heard.ns) >= SILENCE_NS;
        let caches = self.caches.iter();
        let late = caches.filter(|(_, known)| !known.is_silent && is_late(known));
        let late: Vec<CacheId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.silence(id);
        }
    }

    fn silence(&mut self, id: CacheId) {
        self.counts.silences += 1;
        self.delete_rules_of(id);
        if let Some(known) = self.caches.get_mut(&id) {
            known.is_silent = true;
        }
    }

    /// What the switch itself has to say.
    fn take_events(&mut self) {
        for _ in 0..EVENTS_MAX {
            let event = self.table.poll();
            self.is_connected = event.is_ok();
            match event {
                Ok(Some(SwitchEvent::Restarted)) => self.reconcile(),
                Ok(Some(SwitchEvent::CacheDown(id))) => self.silence(id),
                Ok(Some(SwitchEvent::CacheUp(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.revive();
    }

    /// Starts an Open vSwitch again that has died.
    fn revive(&mut self) {
        let now = self.now();
        let Daemons::OpenVswitch(daemons) = &mut self.daemons else {
            return;
        };
        let is_early = now.ns.saturating_sub(self.revived.ns) < REVIVE_EVERY_NS;
        if self.is_connected || is_early || daemons.runs() {
            return;
        }
        self.revived = now;
        self.counts.revivals += 1;
        let revived = daemons.restart();
        self.counts.failed += u64::from(revived.is_err());
    }

    /// The switch has been found, or has come back: nothing is known of its rules but what it says.
    fn reconcile(&mut self) {
        self.counts.switch_restarts += 1;
        let Ok(rules) = self.table.dump() else {
            // The connection is lost; the next one brings this event again.
            self.counts.failed += 1;
            return;
        };
        let rules = rules.iter().map(|counted| counted.rule);
        self.found = rules.map(|rule| (rule.key, rule.cookie)).collect();
        let (now, known) = (self.now(), self.caches.keys().copied());
        let mut lives: Vec<CacheId> = known.collect();
        for cookie in self.found.values() {
            if usize::from(cookie.cache.0) >= self.caches_max {
                continue;
            }
            // A cache node that says nothing from now on is silent.
            let cache = RulesOfCache {
                generation: cookie.generation,
                number: 0,
                status: TieredStatus::Done,
                life: 0,
                heard: now,
                is_silent: false,
            };
            let known = self.caches.entry(cookie.cache).or_insert(cache);
            known.generation = known.generation.max(cookie.generation);
            lives.push(cookie.cache);
        }
        for id in lives {
            let life = self.next_life();
            if let Some(known) = self.caches.get_mut(&id) {
                known.life = life;
            }
        }
        // Of a cache node that is no more, is silent, or was started again since.
        let caches = &self.caches;
        let is_old = |cookie: &RuleCookie| {
            let known = caches.get(&cookie.cache);
            known.is_none_or(|known| known.is_silent || known.generation != cookie.generation)
        };
        let old = self.found.iter().filter(|(_, cookie)| is_old(cookie));
        let old: Vec<KeyAddress> = old.map(|(key, _)| *key).collect();
        self.delete_stale(&old);
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let rules = self.table.dump().unwrap_or_default();
        let switch = self.table.counts().unwrap_or_default();
        let routed = |is: fn(&Destination) -> bool| -> u64 {
            let routes = switch.routes.iter();
            let its = routes.filter(|route| is(&route.destination));
            its.map(|route| route.packets).sum()
        };
        let to_back_ends = routed(|to| matches!(to, Destination::BackEnd(_)));
        let to_hosts = routed(|to| matches!(to, Destination::Host(_)));
        let silent = self.caches.values().filter(|known| known.is_silent).count();
        vec![
            ("rules", rules.len() as u64),
            ("rules_max", self.table.capacity() as u64),
            ("by_rules", rules.iter().map(|rule| rule.packets).sum()),
            ("to_back_ends", to_back_ends),
            ("to_hosts", to_hosts),
            ("unknown", switch.unknown),
            ("caches", self.caches.len() as u64),
            ("caches_silent", silent as u64),
            ("installed", self.counts.installed),
            ("deleted", self.counts.deleted),
            ("silences", self.counts.silences),
            ("cache_restarts", self.counts.restarts),
            ("strays", self.counts.strays),
            ("malformed", self.counts.malformed),
            ("failed", self.counts.failed),
            ("switch_answers", u64::from(self.is_connected)),
            ("switch_restarts", self.counts.switch_restarts),
            ("switch_revivals", self.counts.revivals),
            ("rules_kept", self.counts.kept),
            ("rules_stale", self.counts.stale),
            ("rules_unnamed", self.found.len() as u64),
            ("change_us", self.counts.change_us),
            ("change_us_max", self.counts.change_us_max),
        ]
    }
}

impl TierNode for SwitchNode {
    fn receive(&mut self, datagram: &[u8], from: SocketAddr) {
        let secret = *self.outbox.secret();
        let Ok(decoded) = TieredDatagram::decode(datagram, Some(&secret)) else {
            self.counts.malformed += 1;
            return;
        };
        match decoded.head.opcode {
            TieredOpcode::Rules => self.take_rules(&decoded, from),
            TieredOpcode::Status => {
                let counters = self.counters();
                status::answer(&mut self.outbox, &decoded.head, &counters);
            }
            _ => self.counts.strays += 1,
        }
    }

    fn turn(&mut self) -> Duration {
        let now = self.now();
        self.take_events();
        self.watch_silence(now);
        self.outbox.flush();
        LOOK_EVERY
    }

    fn inbox(&mut self) -> &mut TierInbox {
        &mut self.inbox
    }
}

/// After how long without a message the rules of a cache node are deleted.
const SILENCE_NS: u64 = 500_000_000;
const LOOK_EVERY: Duration = Duration::from_millis(50);
const EVENTS_MAX: usize = 64;
/// How often a switch is started again that does not stay.
const REVIVE_EVERY_NS: u64 = 1_000_000_000;
