//! The switch's process: it owns the table of rules, and takes the changes of cache nodes (SW-18).
//! What becomes of them, [`RuleController`] decides.

use std::{net::SocketAddr, time::Duration};

use curtail_codec::tiered::{
    HostId, TierAddress, TieredDatagram, TieredFlags, TieredHead, TieredOpcode, TieredStatus,
};
use curtail_consistency::tiered::{
    RuleChange, RuleController, RuleLife, RulesMessage, RulesStatus, RulesTaken,
};
use curtail_routing::{Destination, OpenVswitch, Switch, UserForwarder};
use curtail_runtime::Clock;
use curtail_types::{CacheId, Cas, Instant, SwitchEvent};

use crate::{
    incarnation,
    node_loop::{NodeError, TierInbox, TierNode},
    outbox::TierOutbox,
    rule_change::{self, ADDRESS_BYTES, CHANGES_MAX},
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
    rules: RuleController,
    is_connected: bool,
    revived: Instant,
    caches_max: usize,
    counts: SwitchNodeCounts,
}

/// What forwards and ends with this process.
pub(crate) enum Daemons {
    /// XDP ends with its table; others run the switch.
    None,
    UserSpace(#[expect(dead_code, reason = "it is held")] UserForwarder),
    OpenVswitch(OpenVswitch),
}

#[derive(Clone, Copy, Debug, Default)]
struct SwitchNodeCounts {
    strays: u64,
    malformed: u64,
    /// Switches that could not be started again.
    failed: u64,
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
            rules: RuleController::new(file.caches.len(), u64::from(incarnation) << 32),
            is_connected: false,
            revived: Instant { ns: 0 },
            caches_max: file.caches.len(),
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

    fn take_rules(&mut self, datagram: &TieredDatagram<'_>, from: SocketAddr) {
        let head = datagram.head;
        let known = u8::try_from(head.sender).map(CacheId).ok();
        let id = known.filter(|id| usize::from(id.0) < self.caches_max);
        let generation = u32::try_from(head.generation).ok();
        let (Some(id), Some(generation)) = (id, generation) else {
            self.counts.strays += 1;
            return;
        };
        if !self.outbox.admits(head.sender, head.sequence) {
            self.counts.strays += 1;
            return;
        }
        let changes = self.changes_of(datagram.value);
        let message = RulesMessage {
            generation,
            number: head.number,
            life: RuleLife(head.version.0),
            is_all: head.flags.has(TieredFlags::ALL),
            shares: head.flags.has(TieredFlags::SHARES),
            changes: &changes,
        };
        let began = self.now();
        let taken = self.rules.take(&mut *self.table, id, &message, began);
        let Some(taken) = taken else {
            self.counts.strays += 1;
            return;
        };
        let now = self.now();
        self.rules.note_heard(id, now);
        if !changes.is_empty() {
            self.counts.change_us = (now.ns - began.ns) / 1000;
            self.counts.change_us_max = self.counts.change_us_max.max(self.counts.change_us);
        }
        self.answer(from, id, &taken);
    }

    fn changes_of(&mut self, value: &[u8]) -> Vec<RuleChange> {
        let (words, rest) = value.as_chunks::<ADDRESS_BYTES>();
        if !rest.is_empty() || words.len() > CHANGES_MAX {
            self.counts.malformed += 1;
            return Vec::new();
        }
        let changes = words.iter().map(|word| rule_change::decode(*word));
        let right: Vec<RuleChange> = changes.flatten().collect();
        self.counts.malformed += (words.len() - right.len()) as u64;
        right
    }

    fn answer(&mut self, to: SocketAddr, id: CacheId, taken: &RulesTaken) {
        let host = HostId(u32::from(id.0));
        let head = TieredHead {
            generation: u64::from(taken.generation),
            number: taken.number,
            version: Cas(taken.life.0),
            status: match taken.status {
                RulesStatus::Done => TieredStatus::Done,
                RulesStatus::Refused => TieredStatus::Refused,
                RulesStatus::Busy => TieredStatus::Busy,
            },
            ..TieredHead::new(TieredOpcode::RulesTaken, TierAddress::host(host))
        };
        let sharing: Vec<u8> = taken.sharing.iter().map(|id| id.0).collect();
        let (key, value) = (None, &sharing[..]);
        let answer = TieredDatagram { head, key, value };
        self.outbox.tell_at(to, u32::from(id.0), &answer);
    }

    /// What the switch itself has to say.
    fn take_events(&mut self) {
        for _ in 0..EVENTS_MAX {
            let event = self.table.poll();
            self.is_connected = event.is_ok();
            match event {
                Ok(Some(SwitchEvent::Restarted)) => {
                    let now = self.now();
                    self.rules.reconcile(&mut *self.table, now);
                }
                Ok(Some(SwitchEvent::CacheDown(id))) => {
                    self.rules.silence(&mut *self.table, id);
                }
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
        let (caches, silent) = self.rules.caches();
        let spread = rules.iter().filter(|rule| rule.rule.cookie.is_spread);
        let spread = spread.count();
        let counts = *self.rules.counts();
        vec![
            ("rules", rules.len() as u64),
            ("rules_max", self.table.capacity() as u64),
            ("by_rules", rules.iter().map(|rule| rule.packets).sum()),
            ("to_back_ends", to_back_ends),
            ("to_hosts", to_hosts),
            ("unknown", switch.unknown),
            ("caches", caches as u64),
            ("caches_silent", silent as u64),
            ("caches_sharing", self.rules.spread_to().len() as u64),
            ("rules_spread", spread as u64),
            ("installed", counts.installed),
            ("deleted", counts.deleted),
            ("silences", counts.silences),
            ("cache_restarts", counts.restarts),
            ("strays", self.counts.strays),
            ("malformed", self.counts.malformed),
            ("failed", counts.failed + self.counts.failed),
            ("switch_answers", u64::from(self.is_connected)),
            ("switch_restarts", counts.switch_restarts),
            ("switch_revivals", self.counts.revivals),
            ("rules_kept", counts.kept),
            ("rules_stale", counts.stale),
            ("rules_unnamed", self.rules.unnamed() as u64),
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
        self.rules.watch_silence(&mut *self.table, now);
        self.outbox.flush();
        LOOK_EVERY
    }

    fn inbox(&mut self) -> &mut TierInbox {
        &mut self.inbox
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(50);
const EVENTS_MAX: usize = 64;
/// How often a switch is started again that does not stay.
const REVIVE_EVERY_NS: u64 = 1_000_000_000;
