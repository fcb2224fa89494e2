//! The end of a run: everything is healed, and everything must end well.

use curtail_types::{NodeId, NodeSet};

use super::{Event, World};
use crate::cluster::{
    clock::removal_ns,
    packet::{Command, Demand, Item},
};

impl World<'_> {
    /// Heals the world, and waits until every request has ended, every node is live and every copy
    /// is the same; then asks every key once more, of every node.
    pub(super) fn liveness(&mut self) {
        self.healed = true;
        // A node may miss the others for a lease yet.
        self.calm_at = self.network.heal() + removal_ns();
        // Who pauses goes on at its time: what has come to it meanwhile must not be overtaken.
        self.store_cut_until.fill(0);
        for node in 0..self.nodes.len() {
            self.events.plan(self.now, Event::Start(node));
        }
        self.wait();
        for key in 0..self.run.keys {
            for node in 0..self.nodes.len() {
                if self.outcome.failure.is_none() {
                    self.ask_once_more(node, key);
                    self.wait();
                }
            }
        }
        self.let_settle();
        if self.outcome.failure.is_none() {
            self.check_copies();
        }
    }

    fn wait(&mut self) {
        let patience = self.now + HEAL_NS;
        while self.outcome.failure.is_none() && !(self.is_quiet() && self.is_settled()) {
            if self.now > patience {
                return self.fail(self.why_not());
            }
            self.advance();
        }
    }

    /// Under SC an update that was lost is asked for some time later only, in two rounds: a node
    /// asks the home, the home the others.
    fn let_settle(&mut self) {
        let until = self.now + SETTLE_NS;
        while self.outcome.failure.is_none() && self.now < until {
            self.advance();
        }
    }

    /// Every key is asked for once more, of every node, and must be answered.
    fn ask_once_more(&mut self, node: usize, key: usize) {
        let before = self.outcome.answered;
        let session = (node + key) % self.sessions.len();
        self.renew(session);
        self.begun += 1;
        let demand = Demand {
            number: self.begun * self.sessions.len() as u64 + session as u64,
            key,
            command: Command::Get,
        };
        self.ask_of(session, NodeId(node as u8), demand);
        self.wait();
        if self.outcome.answered == before {
            self.fail(format!(
                "node {node} does not answer for key {key} though all is well"
            ));
        }
    }

    /// Nobody waits for an answer.
    fn is_quiet(&self) -> bool {
        self.sessions.iter().all(|session| session.asked.is_none())
    }

    /// Every node runs and is live under the newest view, and no key is on its way or invalid.
    fn is_settled(&self) -> bool {
        if self.now < self.calm_at || self.paused_until.iter().any(|until| *until > self.now) {
            return false;
        }
        let view = &self.members.view;
        let everybody: NodeSet = self.nodes.iter().map(|node| node.me).collect();
        let agrees = |node: &super::Node<'_>| node.view == *view && node.serves(self.now);
        view.live == everybody
            && view.placed == everybody
            && !view.moves()
            && self.nodes.iter().all(agrees)
            && self.nodes.iter().all(|node| node.is_at_rest())
    }

    fn why_not(&self) -> String {
        let mut text = format!(
            "stuck {} ms after everything was healed: the store has {:?}",
            HEAL_NS / 1_000_000,
            self.members.view
        );
        for node in &self.nodes {
            text += &format!("\n  {}", node.describe());
        }
        text
    }

    /// Copies of one key are the same wherever they may be read. Of nothing no reader sees a
    /// version, and a server keeps none.
    fn check_copies(&mut self) {
        for key in 0..self.run.keys {
            let copies = self.nodes.iter().filter(|node| node.has_copy(key));
            let shown = |item: Item| item.value.map(|value| (value, item.version));
            let mut items: Vec<_> = copies.map(|node| shown(node.items[key])).collect();
            items.dedup();
            if items.len() > 1 {
                self.fail(format!("copies of key {key} differ for good: {items:?}"));
            }
        }
    }
}

/// How long everything may take to end once nothing goes wrong any more.
const HEAL_NS: u64 = 2_000_000_000;

/// Several times what the nodes wait before they ask whether all have a write.
const SETTLE_NS: u64 = 50_000_000;
