//! The end of a run: every fault is healed, and every request must complete.

use curtail_consistency::{
    slice_placement::{PlacementGoal, is_settled},
    slice_view::SliceId,
};
use curtail_types::{NodeId, NodeSet};

use super::{Event, World, stage_of};
use crate::cluster::{
    MemoryFull,
    clock::removal_ns,
    node::PATIENCE_NS,
    packet::{Command, Demand, Item},
};

impl World<'_> {
    /// Heals the world, and waits until every request has ended, every node is a member and every
    /// slice is where it belongs; then asks every key once more, of every node.
    pub(super) fn liveness(&mut self) {
        self.healed = true;
        self.env.refuses = false;
        self.leaving = NodeSet::NONE;
        let quiet_at = self.env.network.heal().max(self.env.now);
        self.note_trouble(quiet_at, NodeSet::NONE);
        for node in 0..self.nodes.len() {
            let local = &mut self.nodes[node].local;
            local.store_cut_until = 0;
            local.store.reserved = 0;
            self.env.events.plan(self.env.now, Event::Start(node));
        }
        let calm_at = quiet_at + removal_ns();
        while self.env.now < calm_at && self.env.outcome.failure.is_none() {
            self.advance();
        }
        self.wait(true);
        for key in 0..self.env.run.keys {
            for node in 0..self.nodes.len() {
                if self.env.outcome.failure.is_none() {
                    self.ask_once_more(node, key);
                    self.wait(false);
                }
            }
        }
        if self.env.outcome.failure.is_none() {
            self.check_copies();
        }
    }

    fn wait(&mut self, is_to_settle: bool) {
        let until = self.env.now + HEAL_NS;
        while self.env.outcome.failure.is_none() {
            let is_quiet = self.sessions.iter().all(|session| session.asked.is_none());
            if is_quiet && (!is_to_settle || self.is_settled()) {
                return;
            }
            if self.env.now > until {
                let what = self.why_not();
                return self.env.fail(what);
            }
            self.advance();
        }
    }

    /// Every key is asked for once more, of every node, and must be answered.
    fn ask_once_more(&mut self, node: usize, key: usize) {
        let before = self.env.outcome.answered;
        let session = (node + key) % self.sessions.len();
        self.renew(session);
        self.begun += 1;
        let demand = Demand {
            number: self.begun * self.sessions.len() as u64 + session as u64,
            key,
            command: Command::Get,
        };
        self.ask_of(session, NodeId(node as u8), demand);
        self.wait(false);
        if self.env.outcome.answered == before {
            let what = format!("node {node} does not answer for key {key} though all is well");
            self.env.fail(what);
        }
    }

    /// Every node follows the newest view, which has all nodes, and the placement is as it shall
    /// be. Where stores refuse, some slices may find no room for another copy.
    fn is_settled(&self) -> bool {
        let number = self.view.number;
        let follows = |node: usize| {
            let view = self.env.views[node].as_ref();
            let local = &self.nodes[node].local;
            view.is_some_and(|view| view.number == number)
                && local.serves(&self.env)
                && local.open.is_empty()
                && local.paused_until <= self.env.now
        };
        let mut nodes = 0..self.nodes.len();
        if self.view.members.len() < self.nodes.len() || !nodes.all(follows) {
            return false;
        }
        let serves = |(slice, row): (SliceId, &curtail_consistency::slice_view::SliceRow)| {
            let machines = &self.nodes[usize::from(row.primary.0)].machines;
            machines[usize::from(stage_of(slice))].serves(slice)
        };
        let goal = PlacementGoal::replicas(self.env.run.replicas);
        let is_placed = is_settled(&self.view, &goal);
        let may_lack_room = self.env.memory_full == MemoryFull::Refuse;
        self.view.rows().all(serves) && (is_placed || may_lack_room)
    }

    fn why_not(&self) -> String {
        let mut text = format!(
            "stuck {} ms after everything was healed: {:?}",
            HEAL_NS / 1_000_000,
            self.view
        );
        for node in &self.nodes {
            let local = &node.local;
            let (me, serves) = (local.me.0, local.serves(&self.env));
            let view = self.env.views[usize::from(me)].as_ref();
            let view = view.map(|view| view.number);
            let is_idle = local.open.is_empty();
            text += &format!("\n  node {me} serves {serves} {view:?} idle {is_idle}");
            if self.env.run.trace.is_some() {
                text += &format!(" {local:?}\n    {:?}", node.machines);
            }
        }
        text
    }

    /// The items of a slice are the same at all its nodes in sync.
    fn check_copies(&mut self) {
        for key in 0..self.env.run.keys {
            let slice = self.env.keys.slice(key);
            let in_sync = self.view.row(slice).map(|row| row.in_sync);
            let nodes = in_sync.unwrap_or_default().into_iter();
            let items = nodes.map(|id| {
                let item = self.nodes[usize::from(id.0)].local.store.item(key);
                item.map(|item: &Item| (item.stamp.version, item.value))
            });
            let mut items: Vec<_> = items.collect();
            items.dedup();
            if items.len() > 1 {
                let what = format!("copies of key {key} differ for good: {items:?}");
                self.env.fail(what);
            }
        }
        for node in &self.nodes {
            let mut creditors = node.local.store.creditors();
            if let Some(to) = creditors.find(|to| !self.view.members.contains(*to)) {
                let what = format!("node {} keeps room for {to:?}", node.local.me.0);
                return self.env.fail(what);
            }
        }
    }
}

/// How long everything may take to end once nothing goes wrong any more.
const HEAL_NS: u64 = 4 * PATIENCE_NS;
