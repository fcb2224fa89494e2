//! The rules of a cache node: the changes that wait, and what the switch is told (SW-18, SW-60 to
//! SW-62).

use std::net::SocketAddr;

use curtail_codec::tiered::{
    HostId, PartitionMap, TierAddress, TieredDatagram, TieredFlags, TieredHead, TieredOpcode,
    TieredStatus,
};
use curtail_consistency::tiered::{
    GroupKeys, RuleBudget, RuleChange, RuleLife, RuleQueue, RuleSender, RulesAnswer, RulesStatus,
    RulesTaken,
};
use curtail_types::{CacheId, CacheSet, Cas, Instant, LoadScale, RouteHash};

use crate::{
    outbox::TierOutbox,
    rule_change::{self, CHANGES_MAX},
    rule_lags::RuleLags,
};

/// The rules, as far as a cache node has to do with them.
pub(crate) struct CacheRules {
    /// Whether there are rules: not in the baselines.
    is_on: bool,
    pub(crate) queue: RuleQueue,
    pub(crate) sender: RuleSender,
    map: PartitionMap,
    /// Where the switch's process is.
    switch: SocketAddr,
    /// The changes of a message as it has them.
    bytes: Vec<u8>,
    pub(crate) lags: RuleLags,
    counts: RuleCounts,
}

/// What became of rules.
#[derive(Clone, Copy, Debug, Default)]
struct RuleCounts {
    installed: u64,
    withdrawn: u64,
    refused_full: u64,
    lost_by_switch: u64,
}

impl CacheRules {
    pub(crate) fn new(
        budget: RuleBudget,
        incarnation: u32,
        (map, switch): (PartitionMap, SocketAddr),
        is_on: bool,
    ) -> Self {
        Self {
            is_on,
            queue: RuleQueue::new(budget),
            sender: RuleSender::new(incarnation, CHANGES_MAX),
            map,
            switch,
            bytes: Vec::new(),
            lags: RuleLags::default(),
            counts: RuleCounts::default(),
        }
    }

    /// The switch shall send reads of the key here.
    pub(crate) fn want(&mut self, key: RouteHash, is_burst: bool, now: Instant) {
        if !self.is_on {
            return;
        }
        // What does not fit into the queue has no rule until it is admitted again.
        let _ = match is_burst {
            true => self.queue.install_first(key, now),
            false => self.queue.install(key, now),
        };
    }

    /// It shall not any more, since then.
    pub(crate) fn withdraw(&mut self, key: RouteHash, since: Instant) {
        self.lags.forget(key);
        if self.is_on {
            self.queue.withdraw(key, since);
        }
    }

    /// What the switch can do in a period, less what waits already; half of the room beyond the
    /// capacity is kept for keys that burst.
    pub(crate) fn fetch_budget(&self, scale: LoadScale, room: usize) -> usize {
        let budget = self.queue.budget();
        let (installs, withdrawals) = self.queue.lengths();
        let buffer = budget.rule_buffer();
        if budget.per_s == 0 {
            return usize::MAX;
        }
        // Without a buffer each admission takes a withdrawal too.
        let changes = if buffer > 0 { 1 } else { 2 };
        let segment_ms = scale.segment_ns / 1_000_000;
        let per_period = budget.per_s.saturating_mul(segment_ms) / 1000 / changes;
        let per_period = usize::try_from(per_period).unwrap_or(usize::MAX);
        let room = match buffer {
            0 => usize::MAX,
            _ => room.saturating_sub(buffer / 2),
        };
        per_period.saturating_sub(installs + withdrawals).min(room)
    }

    /// The switch's process answered. After `Lost` all rules are to be wanted again.
    pub(crate) fn take_answer(
        &mut self,
        (head, value): (&TieredHead, &[u8]),
        now: Instant,
    ) -> RulesAnswer {
        let Ok(generation) = u32::try_from(head.generation) else {
            return RulesAnswer::Ignored;
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
            sharing: value.iter().copied().map(CacheId).collect::<CacheSet>(),
        };
        let had_life = self.sender.life() != RuleLife(0);
        let answer = self.sender.take(&taken);
        let is_refused = answer != RulesAnswer::Ignored && taken.status == RulesStatus::Refused;
        self.counts.refused_full += u64::from(is_refused);
        self.counts.lost_by_switch += u64::from(had_life && answer == RulesAnswer::Lost);
        match answer {
            RulesAnswer::Taken => self.lags.confirm(now),
            RulesAnswer::Lost => {
                self.lags.forget_all();
                self.queue.clear();
            }
            RulesAnswer::Ignored => {}
        }
        answer
    }

    /// Sends the changes for which there is a token.
    pub(crate) fn send(&mut self, shared: &mut GroupKeys, outbox: &mut TierOutbox, now: Instant) {
        while self.sender.has_room()
            && let Some((key, is_install)) = self.queue.take(now)
        {
            let is_spread = is_install && shared.spreads(key, self.sender.sharing());
            self.sender.add(RuleChange {
                key: self.map.address(key),
                is_install,
                is_spread,
            });
            // A rule that was there already is no news for the lags.
            let is_other = shared.mark(key, is_spread);
            match is_install {
                true if is_other => {}
                true => self.lags.send(key),
                false => self.lags.forget(key),
            }
            match is_install {
                true => self.counts.installed += 1,
                false => self.counts.withdrawn += 1,
            }
        }
        self.tell(outbox, now);
    }

    fn tell(&mut self, outbox: &mut TierOutbox, now: Instant) {
        let is_all = self.queue.is_idle();
        let Some(message) = self.sender.send(is_all, now) else {
            return;
        };
        self.bytes.clear();
        for change in message.changes {
            self.bytes.extend_from_slice(&rule_change::encode(change));
        }
        let flag = |is: bool, flag| if is { flag } else { TieredFlags::NONE };
        let all = flag(message.is_all, TieredFlags::ALL);
        let head = TieredHead {
            generation: u64::from(message.generation),
            number: message.number,
            version: Cas(message.life.0),
            flags: all.with(flag(message.shares, TieredFlags::SHARES)),
            ..TieredHead::new(TieredOpcode::Rules, TierAddress::host(HostId(u32::MAX)))
        };
        let message = TieredDatagram {
            head,
            key: None,
            value: &self.bytes,
        };
        outbox.tell_at(self.switch, SWITCH_PEER, &message);
    }

    /// When [`send`](Self::send) has something at the latest.
    pub(crate) fn deadline(&self) -> Instant {
        let queue = self.queue.deadline().filter(|_| self.sender.is_idle());
        let sender = self.sender.deadline();
        queue.map_or(sender, |at| at.min(sender))
    }

    pub(crate) fn counters(&self, now: Instant) -> [(&'static str, u64); 14] {
        let (installs, withdrawals) = self.queue.lengths();
        let (_, refused) = self.queue.counts();
        let [p50, p90, max] = self.lags.quantiles_us();
        [
            ("rules_installed", self.counts.installed),
            ("rules_withdrawn", self.counts.withdrawn),
            ("rules_refused_full", self.counts.refused_full),
            ("rules_lost_by_switch", self.counts.lost_by_switch),
            ("rules_per_s", self.queue.budget().per_s),
            ("rule_installs_waiting", installs as u64),
            ("rule_withdrawals_waiting", withdrawals as u64),
            ("rule_age_ms", self.queue.age_ns(now) / 1_000_000),
            ("rule_queue_refused", refused),
            ("switch_answers", u64::from(self.sender.is_connected(now))),
            ("rule_lags", self.lags.count),
            ("rule_lag_us_p50", p50),
            ("rule_lag_us_p90", p90),
            ("rule_lag_us_max", max),
        ]
    }
}

/// The switch's process among the peers of a cache node, beyond all back ends.
pub(crate) const SWITCH_PEER: u32 = u32::MAX;
