//! Measures for how long hot keys get no reply (ccKVS requirement CC-85).
//!
//! When a node dies, is cut off or stands still, a request for a hot key may have to wait until the
//! others do without it: one lease from its last word on, and a replay until what it left behind is
//! complete. A wait is counted from when it begins or the last such trouble ends, whichever is
//! later, for keys that every node answered for then.

use curtail_types::NodeId;

use super::{Answer, Asked, World};
use crate::cluster::{
    clock::removal_ns,
    node::{REPLAY_NS, RETRANSMIT_NS},
};

/// What was seen of it.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// When the last trouble ends.
    trouble_until: u64,
    /// When keys were placed anew though no node had gone: whoever is asked in that moment may turn
    /// a request away.
    placed_at: u64,
}

impl World<'_> {
    /// A node or a link is in trouble, until then.
    pub(super) fn note_trouble(&mut self, until: u64) {
        let outages = &mut self.outages;
        outages.trouble_until = outages.trouble_until.max(until);
    }

    /// Keys are placed anew, on nodes that join or without one that leaves.
    pub(super) fn note_placement(&mut self) {
        self.outages.placed_at = self.now;
    }

    /// A request was answered that was asked of this node.
    pub(super) fn note_wait(&mut self, asked: &Asked, node: NodeId, answer: &Answer) {
        let Some(hot_since) = self.keepers.hot_since(asked.demand.key) else {
            return;
        };
        let calm_since = self.outages.trouble_until;
        let since = match answer {
            Answer::Carried(_) => asked.invoked.max(calm_since),
            // Then another node is asked; but the time comes when none may turn anybody away.
            _ if self.members.view.placed.contains(node) => calm_since.max(self.outages.placed_at),
            _ => return,
        };
        if hot_since > since || since > self.now {
            return;
        }
        let waited = self.now - since;
        if matches!(answer, Answer::Carried(_)) {
            self.outcome.waits += u64::from(asked.invoked < calm_since);
            self.outcome.longest_wait_ns = self.outcome.longest_wait_ns.max(waited);
        }
        if waited > wait_ns_max() {
            let ms = waited as f64 / 1e6;
            self.fail(format!(
                "a hot key was not answered for: {asked:?} of {node:?} ended {ms:.1} ms after the \
                 last trouble, with {answer:?}"
            ));
        }
    }
}

/// The longest that a request for a hot key may wait: until nobody waits for the node in trouble, a
/// replay, and what is lost meanwhile of the messages that this takes.
fn wait_ns_max() -> u64 {
    removal_ns() + REPLAY_NS + LOSSES_MAX * RETRANSMIT_NS
}

/// Of the messages that one request takes, those that are lost one after the other.
const LOSSES_MAX: u64 = 10;
