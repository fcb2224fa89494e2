//! Measures for how long keys get no reply (CL-20).
//!
//! When a node dies, is cut off or stands still, a request may have to wait until the others do
//! without it: a lease, a round of the store of views, and until what it left behind is finished. A
//! wait is counted from when it begins or from the last such trouble, whichever is later.

use curtail_consistency::replica::ReplicaRefusal;
use curtail_types::{Access, NodeId, NodeSet};

use super::{Answer, Asked, World};
use crate::cluster::{
    MemoryFull,
    clock::{removal_by_few_ns, removal_ns},
    node::RETRANSMIT_NS,
};

impl World<'_> {
    /// A node or a link is in trouble, until then; `missed` may be silent meanwhile.
    pub(super) fn note_trouble(&mut self, until: u64, missed: NodeSet) {
        self.calm_since = self.calm_since.max(until);
        for node in missed {
            let of = self.missed_until.entry(node).or_default();
            *of = until.max(*of);
        }
    }

    /// The longest that a request may wait after the last trouble: until nobody waits for the node
    /// in trouble, and what is lost meanwhile of the messages that it takes to finish what that
    /// node left behind. Members that are few may be those that are cut off: they take longer.
    fn wait_ns_max(&self) -> u64 {
        let is_recent = |end: &&u64| **end + removal_ns() > self.calm_since;
        let missed = self.missed_until.values().filter(is_recent).count();
        let removal = match 2 * missed > self.nodes.len() {
            true => removal_by_few_ns(),
            false => removal_ns(),
        };
        removal + LOSSES_MAX * RETRANSMIT_NS
    }

    /// A request was answered that was asked of this node.
    pub(super) fn note_wait(&mut self, asked: &Asked, node: NodeId, answer: &Answer) {
        let calm_since = self.calm_since;
        let local = &self.nodes[usize::from(node.0)].local;
        let since = match answer {
            // A full store is no absence, and a view may come at any time.
            Err(ReplicaRefusal::NoRoom) => return,
            Ok(_) | Err(ReplicaRefusal::Unknown) => asked.invoked.max(calm_since),
            // Then another node is asked; but the time comes when none may turn anybody away,
            // unless it has just begun.
            Err(_) if local.serves(&self.env) => calm_since.max(local.up_since),
            Err(_) => return,
        };
        // A write may wait for room, which comes when others evict, and others behind it.
        let writes = asked.demand.access() != Access::Read;
        let needs_room = writes && self.env.memory_full != MemoryFull::Ample;
        if since > self.env.now || needs_room {
            return;
        }
        let waited = self.env.now - since;
        let outcome = &mut self.env.outcome;
        if answer.is_ok() {
            outcome.waits += u64::from(asked.invoked < calm_since);
            outcome.longest_wait_ns = outcome.longest_wait_ns.max(waited);
        }
        if waited > self.wait_ns_max() {
            let ms = waited as f64 / 1e6;
            self.env.fail(format!(
                "a key was away for too long: {asked:?} of {node:?} ended {ms:.1} ms after the \
                 last trouble, with {answer:?}"
            ));
        }
    }
}

/// Of the messages that one request takes, those that are lost one after the other.
const LOSSES_MAX: u64 = 12;
