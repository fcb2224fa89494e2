//! What a cache node tells the switch's process: rules to install and to withdraw.
//!
//! One message is under way at a time, and is repeated until it is taken; an empty one shows that
//! the cache lives. Rules decide speed only, so nothing waits for this. The switch says in which
//! *life* the rules of this cache are: when that changes, it has lost them, and the cache installs
//! them all again (SW-43).

use std::net::SocketAddr;

use curtail_codec::tiered::{
    HostId, TierAddress, TieredDatagram, TieredHead, TieredOpcode, TieredStatus,
};
use curtail_types::{Cas, Instant, KeyAddress};

use crate::outbox::TierOutbox;

/// The cache's side of the switch.
#[derive(Debug)]
pub(crate) struct RuleSender {
    switch: SocketAddr,
    generation: u32,
    /// Changes that are under way, as the message has them.
    value: Vec<u8>,
    /// Of the last message.
    number: u64,
    is_under_way: bool,
    sent: Instant,
    /// The life that the switch named last; 0 before it has named one.
    life: u64,
    /// Whether all rules were named in this life, up to the message that is under way.
    has_named_all: bool,
    pub(crate) counts: RuleCounts,
}

/// What became of rules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RuleCounts {
    pub(crate) installed: u64,
    pub(crate) withdrawn: u64,
    pub(crate) refused_full: u64,
    pub(crate) lost_by_switch: u64,
}

/// What an answer of the switch means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RulesAnswer {
    /// Nothing new.
    Ignored,
    /// The changes are done.
    Taken,
    /// The switch has none of this cache's rules but these: all are to be installed again.
    Lost,
}

impl RuleSender {
    pub(crate) const fn new(switch: SocketAddr, generation: u32) -> Self {
        Self {
            switch,
            generation,
            value: Vec::new(),
            number: 0,
            is_under_way: false,
            sent: Instant { ns: 0 },
            life: 0,
            has_named_all: false,
            counts: RuleCounts {
                installed: 0,
                withdrawn: 0,
                refused_full: 0,
                lost_by_switch: 0,
            },
        }
    }

    /// Whether it takes changes.
    pub(crate) const fn is_idle(&self) -> bool {
        !self.is_under_way
    }

    /// Whether the switch has answered lately.
    pub(crate) const fn is_connected(&self, now: Instant) -> bool {
        self.life != 0 && (!self.is_under_way || now.ns - self.sent.ns < 10 * REPEAT_NS)
    }

    /// Adds a change to the next message; false if that is full.
    pub(crate) fn add(&mut self, key: KeyAddress, is_install: bool) {
        let address = match is_install {
            true => TierAddress::get(key),
            false => TierAddress::back_end(key),
        };
        match is_install {
            true => self.counts.installed += 1,
            false => self.counts.withdrawn += 1,
        }
        self.value
            .extend_from_slice(&address.to_word().to_le_bytes());
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.value.len() >= CHANGES_MAX * ADDRESS_BYTES
    }

    /// Sends what is to be sent now; `is_all` says that no install waits behind it.
    pub(crate) fn send(&mut self, outbox: &mut TierOutbox, is_all: bool, now: Instant) {
        let waited_ns = now.ns.saturating_sub(self.sent.ns);
        let is_due = match self.is_under_way {
            true => waited_ns >= REPEAT_NS,
            false => !self.value.is_empty() || waited_ns >= HEARTBEAT_NS,
        };
        if !is_due {
            return;
        }
        if !self.is_under_way {
            self.number += 1;
            self.is_under_way = true;
            self.has_named_all = is_all;
        }
        self.sent = now;
        let mut head = TieredHead::new(TieredOpcode::Rules, TierAddress::host(HostId(u32::MAX)));
        head.generation = u64::from(self.generation);
        head.number = self.number;
        if self.has_named_all {
            head.version = Cas(self.life);
        }
        let message = TieredDatagram {
            head,
            key: None,
            value: &self.value,
        };
        outbox.tell_at(self.switch, SWITCH_PEER, &message);
    }

    /// When [`send`](Self::send) has something at the latest.
    pub(crate) const fn deadline(&self) -> Instant {
        let wait = match self.is_under_way {
            true => REPEAT_NS,
            false => HEARTBEAT_NS,
        };
        Instant {
            ns: self.sent.ns.saturating_add(wait),
        }
    }

    /// The switch answered.
    pub(crate) fn take(&mut self, head: &TieredHead) -> RulesAnswer {
        let is_ours = head.generation == u64::from(self.generation) && head.number == self.number;
        if !is_ours || !self.is_under_way || head.status == TieredStatus::Busy {
            return RulesAnswer::Ignored;
        }
        self.is_under_way = false;
        self.value.clear();
        self.counts.refused_full += u64::from(head.status == TieredStatus::Refused);
        let last = std::mem::replace(&mut self.life, head.version.0);
        if last == 0 || last == head.version.0 {
            return RulesAnswer::Taken;
        }
        self.counts.lost_by_switch += 1;
        RulesAnswer::Lost
    }
}

/// The switch's process among the peers of a cache node, beyond all back ends.
pub(crate) const SWITCH_PEER: u32 = u32::MAX;
/// Changes in a message.
pub(crate) const CHANGES_MAX: usize = 160;
pub(crate) const ADDRESS_BYTES: usize = 8;
/// After how long without an answer a message is repeated.
const REPEAT_NS: u64 = 20_000_000;
/// How often the cache shows that it lives.
const HEARTBEAT_NS: u64 = 100_000_000;
