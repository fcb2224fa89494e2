//! Faults at will, each kind at its own times, until the run is healed.

use clap::ValueEnum as _;
use curtail_consistency::{
    replica::{ReplicaEvent, ReplicaRefusal, Ticket},
    slice_view::SliceId,
};
use curtail_types::{NodeId, NodeSet};

use super::{Event, FORMED_NS, World, stage_of};
use crate::cluster::{Fault, MemoryFull, clock::SUSPICION_NS, node::FLUSH};

impl World<'_> {
    /// Plans the first fault of each kind.
    pub(super) fn plan_chances(&mut self) {
        for fault in Fault::value_variants() {
            if self.env.run.faults.has(*fault) && mean_ns(*fault) > 0 {
                self.plan_chance(*fault, FORMED_NS);
            }
        }
    }

    fn plan_chance(&mut self, fault: Fault, from: u64) {
        let gap = self.env.random.exponential(mean_ns(fault) as f64) as u64;
        self.env.events.plan(from + gap, Event::Chance(fault));
    }

    pub(super) fn take_chance(&mut self, fault: Fault) {
        if self.healed {
            return self.end_chance(fault);
        }
        self.plan_chance(fault, self.env.now);
        let nodes = self.nodes.len() as u64;
        let node = self.env.random.below(nodes) as usize;
        let until = self.env.now + self.env.random.below(TROUBLE_NS);
        match fault {
            Fault::Partition => self.part(node, until),
            Fault::Slow => {
                let other = self.env.random.below(nodes) as u8;
                self.note_trouble(until, NodeSet::NONE);
                let link = [NodeId(node as u8), NodeId(other)];
                self.env.network.slow(link, until);
            }
            Fault::Crash => self.crash_some(node),
            Fault::Pause => self.pause(node, until),
            Fault::Churn => self.churn(),
            Fault::Leave => self.leave(node),
            Fault::Flush => self.flush(),
            Fault::Room => self.take_room(node, until),
            Fault::Loss | Fault::Duplicate | Fault::Reorder | Fault::Drift => {}
        }
    }

    /// Whether every slice keeps a node in sync that is well if these go: what they have is lost
    /// with all of a slice's nodes only.
    fn may_lose(&self, going: NodeSet) -> bool {
        if self.is_ruthless || self.env.run.replicas == 1 {
            return true;
        }
        let now = self.env.now;
        let well = self.nodes.iter().filter(|node| {
            let local = &node.local;
            let is_member = local.joined.is_some() && self.view.joined(local.me) == local.joined;
            local.is_up && is_member && local.paused_until <= now
        });
        let well: NodeSet = well.map(|node| node.local.me).collect();
        let left = well.difference(going);
        let mut rows = self.view.rows();
        rows.all(|(_, row)| !row.in_sync.intersection(left).is_empty())
    }

    /// One node stops, or several at once, as many as may.
    fn crash_some(&mut self, node: usize) {
        let mut going = NodeSet::NONE;
        let count = 1 + self.env.random.below(self.env.run.replicas as u64) as usize;
        for step in 0..count {
            let id = NodeId(((node + step) % self.nodes.len()) as u8);
            let is_up = self.nodes[usize::from(id.0)].local.is_up;
            let others = self.nodes.iter().filter(|node| {
                node.local.is_up && node.local.me != id && !going.contains(node.local.me)
            });
            if is_up && others.count() > 0 && self.may_lose(going.with(id)) {
                going = going.with(id);
            }
        }
        for id in going {
            let down = self.env.random.below(TROUBLE_NS);
            self.crash(usize::from(id.0), down);
        }
    }

    /// A node stops, forgets everything, and starts again after `down_ns`.
    pub(super) fn crash(&mut self, node: usize, down_ns: u64) {
        if !self.nodes[node].local.is_up {
            return;
        }
        self.env.outcome.crashes += 1;
        self.env.trace(|| format!("node {node} stops"));
        let missed = NodeSet::only(NodeId(node as u8));
        self.note_trouble(self.env.now, missed);
        self.nodes[node].local.is_up = false;
        self.env.views[node] = None;
        self.miss(node);
        self.env.lives[node] += 1;
        let me = NodeId(node as u8);
        for session in 0..self.sessions.len() {
            // A session ends with its node (CC-11).
            if self.sessions[session].pinned == Some(me) {
                self.renew(session);
            }
            if let Some((asked, at)) = self.sessions[session].asked
                && at == me
            {
                let unknown = Err(ReplicaRefusal::Unknown);
                self.env.reply(asked.demand.number, unknown);
            }
        }
        self.env.plan_in(down_ns, Event::Start(node));
    }

    fn pause(&mut self, node: usize, until: u64) {
        let local = &self.nodes[node].local;
        let is_long = until - self.env.now > SUSPICION_NS / 2;
        if !local.is_up || is_long && !self.may_lose(NodeSet::only(local.me)) {
            return;
        }
        self.note_trouble(until, NodeSet::only(local.me));
        self.env
            .trace(|| format!("node {node} pauses until {until}"));
        let local = &mut self.nodes[node].local;
        local.paused_until = local.paused_until.max(until);
        if is_long {
            self.miss(node);
        }
    }

    /// A node is cut off from some others, or from the store of views, or both.
    fn part(&mut self, node: usize, until: u64) {
        let all = self.env.random.one_in(2);
        if !self.may_lose(NodeSet::only(NodeId(node as u8))) {
            return;
        }
        self.note_trouble(until, NodeSet::only(NodeId(node as u8)));
        for other in 0..self.nodes.len() {
            if other != node && (all || self.env.random.one_in(2)) {
                let pair = [NodeId(node as u8), NodeId(other as u8)];
                self.env.network.cut(pair, until);
                self.env.trace(|| format!("{pair:?} are cut until {until}"));
                self.miss(other);
            }
        }
        self.miss(node);
        if self.env.random.one_in(3) {
            self.env
                .trace(|| format!("{node} and the store are cut until {until}"));
            self.nodes[node].local.store_cut_until = until;
        }
    }

    /// Nothing goes wrong any more. But hot keys are not evicted, and would fill the few bytes that
    /// stores have here for good: they cease to be hot.
    fn end_chance(&mut self, fault: Fault) {
        if fault == Fault::Churn && self.env.memory_full == MemoryFull::Evict {
            self.plan_chance(fault, self.env.now);
            self.churn();
        }
    }

    /// A primary makes a key hot, or cold.
    fn churn(&mut self) {
        let key = self.env.random.below(self.env.run.keys as u64) as usize;
        let is_hot = !self.healed && self.env.random.one_in(2);
        let slice = self.env.keys.slice(key);
        let event = ReplicaEvent::Heat(self.env.keys.route(key), is_hot);
        let Some(node) = self.primary(slice) else {
            return;
        };
        self.env.outcome.promotions += u64::from(is_hot);
        self.step(node, stage_of(slice), event, None);
    }

    /// The primary of a slice, if it can be told something.
    fn primary(&self, slice: SliceId) -> Option<usize> {
        let node = usize::from(self.view.row(slice)?.primary.0);
        let local = &self.nodes[node].local;
        let is_well = local.is_up && local.paused_until <= self.env.now;
        is_well.then_some(node)
    }

    fn leave(&mut self, node: usize) {
        let me = NodeId(node as u8);
        let is_member = self.nodes[node].local.is_up && self.view.members.contains(me);
        if is_member && self.leaving.is_empty() && self.view.members.len() > 1 {
            self.env.trace(|| format!("node {node} wants to leave"));
            self.leaving = NodeSet::only(me);
            self.leaving_until = self.env.now + LEAVING_NS;
        }
    }

    fn flush(&mut self) {
        let slice = SliceId(self.env.random.below(self.env.run.slices.into()) as u16);
        let Some(node) = self.primary(slice) else {
            return;
        };
        if !self.nodes[node].local.serves(&self.env) {
            return;
        }
        self.env.outcome.flushes += 1;
        let number = FLUSH | self.env.outcome.flushes;
        self.env.record.flush_asked(number, self.env.now);
        self.env.flushing = Some(number);
        let event = ReplicaEvent::Flush(slice, Ticket(number));
        self.step(node, stage_of(slice), event, None);
        self.env.flushing = None;
    }

    /// A node needs room for something else.
    fn take_room(&mut self, node: usize, until: u64) {
        let Some(capacity) = self.nodes[node].local.store.capacity else {
            return;
        };
        let bytes = self.env.random.below(capacity / 2 + 1);
        let local = &mut self.nodes[node].local;
        local.store.reserved = bytes;
        local.reserved_until = until;
    }
}

/// Mean time between two faults of a kind; 0 for those that are of single packets or of clocks.
const fn mean_ns(fault: Fault) -> u64 {
    match fault {
        Fault::Partition => 60_000_000,
        Fault::Slow => 20_000_000,
        Fault::Crash => 50_000_000,
        Fault::Pause => 40_000_000,
        Fault::Churn => 1_000_000,
        Fault::Leave => 80_000_000,
        Fault::Flush => 15_000_000,
        Fault::Room => 10_000_000,
        Fault::Loss | Fault::Duplicate | Fault::Reorder | Fault::Drift => 0,
    }
}

/// The longest that a fault lasts.
const TROUBLE_NS: u64 = 45_000_000;
/// How long a node tries to leave.
const LEAVING_NS: u64 = 60_000_000;
