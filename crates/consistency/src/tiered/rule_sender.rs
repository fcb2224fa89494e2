//! What a cache node tells the switch's controller: rules to install, to withdraw (SW-18, SW-43).
//!
//! One message is under way at a time, and is repeated until it is taken; an empty one shows that
//! the cache lives. Rules decide speed only, so nothing waits for this. The controller says in
//! which *life* the rules of this cache are: when that changes, it may have lost them, and the
//! cache installs them all again. What it told before it knew of the life does not count as named:
//! it may have been said of rules that were lost since.

use alloc::vec::Vec;

use curtail_types::{CacheSet, Instant, KeyAddress};

/// A rule that is to be there, or not.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RuleChange {
    /// Of which key.
    pub key: KeyAddress,
    /// Whether it is to be there.
    pub is_install: bool,
    /// Whether it is to lead to all cache nodes that share (CC-81); of installs.
    pub is_spread: bool,
}

/// Names the rules of a cache node since the controller found or lost them last; 0 is none.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RuleLife(pub u64);

/// What a cache node tells the controller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RulesMessage<'a> {
    /// Rises with every incarnation of the cache node.
    pub generation: u32,
    /// Rises with every message of a generation.
    pub number: u64,
    /// The life that the cache node knows of; 0 before it knows of one.
    pub life: RuleLife,
    /// Whether it has named all its rules in this life, with this message.
    pub is_all: bool,
    /// Whether rules that are spread may lead to the cache node.
    pub shares: bool,
    /// What changes.
    pub changes: &'a [RuleChange],
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum RulesStatus {
    /// The rules are as the cache wants them.
    #[default]
    Done,
    /// The table did not take all of them.
    Refused,
    /// The switch does not answer: the cache is to send the message again.
    Busy,
}

/// What the controller answers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RulesTaken {
    /// The message's.
    pub generation: u32,
    /// The message's.
    pub number: u64,
    /// In which life the rules are.
    pub life: RuleLife,
    /// What became of it.
    pub status: RulesStatus,
    /// The cache nodes to which rules that are spread lead.
    pub sharing: CacheSet,
}

/// What an answer means for the cache node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RulesAnswer {
    /// Nothing new.
    Ignored,
    /// The changes are done.
    Taken,
    /// It is another life, in which no rule is named yet: changes that wait are void, and all rules
    /// are to be installed again.
    Lost,
}

/// The cache's side.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct RuleSender {
    generation: u32,
    changes_max: usize,
    /// Changes that are gathered, or under way.
    changes: Vec<RuleChange>,
    /// Of the last message.
    number: u64,
    is_under_way: bool,
    sent: Instant,
    /// The life that the controller named last; 0 before it has named one.
    life: RuleLife,
    /// Whether all rules were named in this life, up to the message that is under way.
    has_named_all: bool,
    /// Whether rules that are spread may lead here; of the message that is under way.
    shares: bool,
    is_sharing: bool,
    /// Who shares, as the controller said last.
    sharing: CacheSet,
}

impl RuleSender {
    /// One of a cache node that begins, with so many changes in a message at most.
    pub fn new(generation: u32, changes_max: usize) -> Self {
        Self {
            generation,
            changes_max,
            ..Self::default()
        }
    }

    /// From the next message on, rules that are spread may lead here.
    pub const fn share(&mut self) {
        self.shares = true;
    }

    /// The cache nodes to which rules that are spread lead, as the controller said last.
    pub const fn sharing(&self) -> &CacheSet {
        &self.sharing
    }

    /// Whether it takes a change.
    pub const fn has_room(&self) -> bool {
        !self.is_under_way && self.changes.len() < self.changes_max
    }

    /// Whether no message is under way.
    pub const fn is_idle(&self) -> bool {
        !self.is_under_way
    }

    /// Whether the controller has answered lately.
    pub const fn is_connected(&self, now: Instant) -> bool {
        self.life.0 != 0 && (!self.is_under_way || now.ns - self.sent.ns < 10 * REPEAT_NS)
    }

    /// The life that the controller named last.
    pub const fn life(&self) -> RuleLife {
        self.life
    }

    /// Adds a change to the next message, which [has room](Self::has_room).
    pub fn add(&mut self, change: RuleChange) {
        self.changes.push(change);
    }

    /// What is to be sent now, if something is; `is_all` says that no install waits behind it.
    pub fn send(&mut self, is_all: bool, now: Instant) -> Option<RulesMessage<'_>> {
        let waited_ns = now.ns.saturating_sub(self.sent.ns);
        let is_due = match self.is_under_way {
            true => waited_ns >= REPEAT_NS,
            false => !self.changes.is_empty() || waited_ns >= HEARTBEAT_NS,
        };
        if !is_due {
            return None;
        }
        if !self.is_under_way {
            self.number += 1;
            self.is_under_way = true;
            self.has_named_all = is_all;
            self.is_sharing = self.shares;
        }
        self.sent = now;
        Some(RulesMessage {
            generation: self.generation,
            number: self.number,
            life: self.life,
            is_all: self.has_named_all,
            shares: self.is_sharing,
            changes: &self.changes,
        })
    }

    /// When [`send`](Self::send) has something at the latest.
    pub const fn deadline(&self) -> Instant {
        let wait = match self.is_under_way {
            true => REPEAT_NS,
            false => HEARTBEAT_NS,
        };
        self.sent.later(wait)
    }

    /// The controller answered.
    pub fn take(&mut self, answer: &RulesTaken) -> RulesAnswer {
        let is_ours = answer.generation == self.generation && answer.number == self.number;
        if !is_ours || !self.is_under_way || answer.status == RulesStatus::Busy {
            return RulesAnswer::Ignored;
        }
        self.is_under_way = false;
        self.changes.clear();
        self.sharing = answer.sharing;
        let last = core::mem::replace(&mut self.life, answer.life);
        match last == answer.life {
            true => RulesAnswer::Taken,
            false => RulesAnswer::Lost,
        }
    }
}

/// After how long without an answer a message is repeated.
const REPEAT_NS: u64 = 20_000_000;
/// How often the cache shows that it lives.
const HEARTBEAT_NS: u64 = 100_000_000;
