//! Faults at will, each kind at its own times, until the run is healed.

use clap::ValueEnum as _;
use curtail_types::NodeId;

use super::{Event, World};
use crate::cluster::Fault;

impl World<'_> {
    /// Plans the first fault of each kind.
    pub(super) fn plan_chances(&mut self) {
        for fault in Fault::value_variants() {
            if self.run.faults.has(*fault) && mean_ns(*fault) > 0 {
                self.plan_chance(*fault, super::FORMED_NS);
            }
        }
    }

    fn plan_chance(&mut self, fault: Fault, from: u64) {
        let gap = self.random.exponential(mean_ns(fault) as f64) as u64;
        self.events.plan(from + gap, Event::Chance(fault));
    }

    pub(super) fn take_chance(&mut self, fault: Fault) {
        if self.healed {
            return;
        }
        self.plan_chance(fault, self.now);
        let nodes = self.nodes.len() as u64;
        let node = self.random.below(nodes) as usize;
        let until = self.now + self.random.below(TROUBLE_NS);
        match fault {
            Fault::Partition => self.part(node, until),
            Fault::Slow => {
                let other = self.random.below(nodes) as u8;
                self.note_trouble(until);
                self.network
                    .slow([NodeId(node as u8), NodeId(other)], until);
            }
            Fault::Crash if self.may_crash(node) => {
                let down = self.random.below(TROUBLE_NS);
                self.crash(node, down);
            }
            Fault::Pause => {
                self.note_trouble(until);
                self.paused_until[node] = self.paused_until[node].max(until);
            }
            Fault::Churn => self.churn(),
            _ => {}
        }
    }

    /// A node is cut off from some others, or from the store of views, or both.
    fn part(&mut self, node: usize, until: u64) {
        self.note_trouble(until);
        let all = self.random.below(2) == 0;
        for other in 0..self.nodes.len() {
            if other != node && (all || self.random.below(2) == 0) {
                let pair = [NodeId(node as u8), NodeId(other as u8)];
                self.network.cut(pair, until);
            }
        }
        if self.random.below(3) == 0 {
            self.store_cut_until[node] = until;
        }
    }

    /// With several holders nothing may be lost as long as fewer than all of a key's holders go at
    /// a time: the next may go when the keys are where they belong again.
    fn may_crash(&self, node: usize) -> bool {
        if self.run.replicas == 1 {
            return self.is_up[node];
        }
        let view = &self.members.view;
        let everybody = self.nodes.len() == view.live.len() && !view.moves();
        let same = |node: &super::Node<'_>| node.view.number == view.number;
        let up = self.is_up.iter().all(|up| *up);
        up && everybody && view.placed == view.live && self.nodes.iter().all(same)
    }

    /// Some home makes a key hot, or cold.
    fn churn(&mut self) {
        let key = self.random.below(self.run.keys as u64) as usize;
        let promotes = self.random.below(2) == 0;
        for node in 0..self.nodes.len() {
            if !self.is_up[node] || self.paused_until[node] > self.now {
                continue;
            }
            self.with(node, |node| match promotes {
                true => node.promote(key),
                false => node.demote(key),
            });
        }
    }
}

/// Mean time between two faults of a kind; 0 for those that are of single packets or of clocks.
fn mean_ns(fault: Fault) -> u64 {
    match fault {
        Fault::Partition => 60_000_000,
        Fault::Slow => 20_000_000,
        Fault::Crash => 80_000_000,
        Fault::Pause => 40_000_000,
        Fault::Churn => 1_000_000,
        Fault::Loss | Fault::Duplicate | Fault::Reorder | Fault::Drift => 0,
    }
}

/// The longest that a fault lasts.
const TROUBLE_NS: u64 = 45_000_000;
