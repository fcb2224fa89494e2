//! What other nodes say about themselves, the clock and the view.
//!
//! Worker 0 sends the heartbeats, once a turn at most, so a long turn delays them; a node is
//! removed after half a lease without (500 ms of the default lease). How long a small request of
//! another connection waited at most, with one worker, 2 nodes, 2 replicas, and 2 processors that
//! other programs kept busy: 97 ms (get of 64 to 100 values of 1 MB, most of it for the
//! allocator's lock, which a large worker held without a processor), 34 ms (set of 1 MB), 14 ms
//! (pipelines of 2,000 sets, get of 20,000 keys, `metadump` of 1,000,000 items, `flush_all` of
//! them). The exception: a slice that is cleared eight times before the memory of the first is
//! taken back is swept in one turn, which takes 0.17 us of processor time for each item of the
//! node.

use curtail_codec::node::{Class, Part};
use curtail_consistency::{
    cluster_clock::Reading, control_messages::ControlMessage, members::Heartbeat,
    slice_placement::wished_steps,
};
use curtail_types::{Instant, NodeId, ViewNumber};

use crate::{
    node::{
        NodeWorker, Outbox,
        host::NodeContext,
        stages::{Job, stage_of},
    },
    sync::lock,
};

/// What the placement of slices was last looked at for, and when.
#[derive(Debug, Default)]
pub(super) struct PlanLook {
    view: ViewNumber,
    at_ns: u64,
    /// Nothing was wished in that view.
    is_settled: bool,
}

/// How often the wishes of a view are repeated.
const PLAN_NS: u64 = 150_000_000;

impl NodeWorker {
    /// Tells the others that this node is there, when the membership wants that.
    pub(super) fn beat(&mut self, cx: &NodeContext<'_>) {
        if self.index != 0 {
            return;
        }
        let Outbox { heartbeats, news } = std::mem::take(&mut *lock(&self.cluster.outbox));
        for (node, news) in news {
            self.tell_now(node, &news);
        }
        let Some(heartbeats) = heartbeats else {
            return;
        };
        let view = heartbeats.first().map(|(_, heartbeat)| heartbeat.view);
        self.links.set_view(view.unwrap_or_default());
        let items = u32::try_from(cx.store_cx.store.counters().items_now).unwrap_or(u32::MAX);
        let sent_us = (self.now_ns / 1000) as u32;
        self.called = (sent_us, Instant { ns: self.now_ns });
        self.cluster.clock.keep(cx.host.clock().now());
        let epoch = ViewNumber(0);
        for (node, heartbeat) in heartbeats {
            self.tell_now(
                node,
                &ControlMessage::Beat(Heartbeat { items, ..heartbeat }),
            );
            self.tell_now(node, &ControlMessage::Call { epoch, sent_us });
        }
        // A process that is too slow to send heartbeats must not suspect others.
        let me = self.cluster.me;
        self.cluster.journal.note_items(me, items.into());
        self.cluster
            .tell_member(|member| member.heard(me, Heartbeat::default()));
    }

    /// Sends a node a message that is not worth a retry.
    pub(super) fn tell_now(&mut self, node: NodeId, news: &ControlMessage) {
        if let Some(to) = self.links.endpoint(node) {
            let bytes = news.encode();
            // The next one follows soon.
            let _ = self.links.send(to, Class::Answer, &Part::Report(&bytes));
        }
    }

    pub(super) fn take_news(&mut self, cx: &NodeContext<'_>) {
        let mut all = std::mem::take(&mut self.inbox.news);
        for (from, news) in all.drain(..) {
            match news {
                ControlMessage::Beat(heartbeat) => {
                    let items = heartbeat.items.into();
                    self.cluster.journal.note_items(from, items);
                    self.cluster
                        .tell_member(|member| member.heard(from, heartbeat));
                }
                ControlMessage::Call { sent_us, .. } => {
                    // When this turn began the call may not have been on its way.
                    let now = cx.host.clock().now().instant;
                    let clock = self.cluster.clock.reading(now);
                    self.tell_now(from, &ControlMessage::Echo((sent_us, clock)));
                }
                ControlMessage::Echo(echo) => self.take_echo(cx, from, echo),
                ControlMessage::Proposals(changes) => self
                    .cluster
                    .tell_member(|member| member.proposed(from, changes.into_vec())),
                ControlMessage::Hot(message) => self.cluster.take_hot(from, &message),
            }
        }
        self.inbox.news = all;
    }

    /// An echo has arrived. Only that of the last call counts: the age of others is unknown.
    fn take_echo(&mut self, cx: &NodeContext<'_>, from: NodeId, (sent_us, said): (u32, Reading)) {
        let (last_us, sent) = self.called;
        if sent_us != last_us {
            return;
        }
        let now = cx.host.clock().now().instant;
        let trip_us = now.ns.saturating_sub(sent.ns) / 1000;
        self.cluster.journal.note_round_trip(from, trip_us);
        self.cluster.set_clock(cx.host, (now, sent), said);
    }

    /// Tells the machines what the placement lacks of the slices of this primary.
    pub(super) fn plan(&mut self) {
        let Some(in_force) = self
            .in_force
            .clone()
            .filter(|_| self.index == 0 && self.serves)
        else {
            return;
        };
        let view = in_force.slices.number;
        let is_new = self.planned.view != view;
        let is_due = self.now_ns.saturating_sub(self.planned.at_ns) >= PLAN_NS;
        if !is_new && (self.planned.is_settled || !is_due) {
            return;
        }
        let steps = wished_steps(&in_force.slices, &in_force.goal);
        self.planned = PlanLook {
            view,
            at_ns: self.now_ns,
            is_settled: steps.is_empty(),
        };
        for (slice, step) in steps {
            let row = in_force.slices.row(slice);
            if row.is_some_and(|row| row.primary == self.cluster.me) {
                self.give(stage_of(slice), Job::Wanted(slice, step));
            }
        }
    }

    /// When the placement is to be looked at again.
    pub(super) fn plan_due_ns(&self) -> Option<u64> {
        let waits = self.index == 0 && self.serves && !self.planned.is_settled;
        waits.then_some(self.planned.at_ns + PLAN_NS)
    }
}
