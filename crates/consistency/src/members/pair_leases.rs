//! The leases between each two nodes: other nodes act for a dead node one lease after its last
//! heartbeat, not later (requirement CC-85).
//!
//! ```text
//!   X  --- sent = s --->  Y         Y notes when it received a heartbeat of X: r, later than s
//!   X  <-- answers = s -- Y         as far as Y is concerned, X may serve until s + lease - margin
//! ```
//!
//! X serves only while *every* other member of the newest view that X knows has answered, and while
//! the lease of the view store holds. When Y learns that X was removed, Y stops answering X, and X
//! stops by r + lease, whatever else X can reach and whenever its process continues. Y can start to
//! wait before the view shows the removal: the lease runs out while X is suspected and removed.
//!
//! Why every Y may rely on that:
//!
//! - **X needs Y's answers** as soon as X knows a view that contains Y. A heartbeat of X proves
//!   this if its view is not older than the first view with this incarnation of Y. Y neither
//!   counts nor answers other heartbeats. When X first learns of a member, X counts it as if it had
//!   answered at that time, which is before X sent that heartbeat.
//! - **X needs Y's answers until** X learns of a view without Y. This incarnation of Y acts on no
//!   view from that one on, so it acts on no view without X.
//! - **Y sees each removal separately,** as the difference between two consecutive views. If Y
//!   missed a view, or has received no heartbeat of X, Y waits a whole lease and a margin from its
//!   reading of the view store. By then X's lease of the view store has ended, because that lease
//!   counts from the start of a reading that returned a view with X.
//! - **A view on which any node acts** proves that all nodes that were removed earlier have
//!   stopped, for good. Heartbeats say which view is in force, so no node waits longer than the
//!   first one.
//!
//! A node that gets no answers from one other node would stop serving until one of the two is
//! removed. Before that happens it declares in the view that it serves by the lease of the view
//! store alone: it is *detached*. A node that sees that another one is no longer detached, or that
//! a detached one was removed, waits a whole lease from the end of that reading: an earlier reading
//! of the other node may have returned a view in which it was still detached.

use curtail_types::{Instant, NodeId, ViewNumber};

use super::{ClusterRecord, Heartbeat, Incarnation, MemberMachine, RecordChange};
use crate::by_node::ByNode;

/// What a node knows about its leases with every other node.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Pairs {
    pairs: ByNode<Pair>,
    /// The first view with this incarnation of this node; 0 if there is none.
    since: ViewNumber,
    /// The newest view that is in force on any node, by the heartbeats received.
    pub(super) adopted: ViewNumber,
    /// When all nodes that are no longer detached have stopped serving by the lease of the view
    /// store alone.
    released_at: Instant,
    /// For how long all answers have been recent.
    pub(super) well_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Pair {
    /// When this node sent the last heartbeat that the other one answered, or first knew that node.
    answered: Instant,
    /// When the other node sent the newest heartbeat that was received, by its clock.
    sent: Instant,
    /// When this node received it, by its own clock.
    received: Option<Instant>,
}

impl Pairs {
    /// This node became a member with view `since`.
    pub(super) fn begin(&mut self, since: ViewNumber, now: Instant) {
        self.since = since;
        self.pairs = ByNode::all(Pair::first_known(now));
    }

    /// Another incarnation of a node became a member.
    pub(super) fn meet(&mut self, node: NodeId, now: Instant) {
        self.pairs.set(node, Pair::first_known(now));
    }

    /// Notes a heartbeat of the known incarnation of `from`; `own` is the incarnation of this node.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        from: NodeId,
        heartbeat: &Heartbeat,
        own: Incarnation,
    ) {
        self.adopted = self.adopted.max(heartbeat.adopted);
        let knows_this_life = self.since > ViewNumber(0) && heartbeat.view >= self.since;
        let mut pair = self.pairs.get(from);
        if heartbeat.to_life == own {
            pair.answered = pair.answered.max(heartbeat.answers);
        }
        if knows_this_life {
            pair.sent = pair.sent.max(heartbeat.sent);
            pair.received = Some(now);
        }
        self.pairs.set(from, pair);
    }

    /// What a heartbeat to `node` acknowledges.
    pub(super) fn newest_sent(&self, node: NodeId) -> Instant {
        self.pairs.get(node).sent
    }
}

impl Pair {
    fn first_known(now: Instant) -> Self {
        Self {
            answered: now,
            ..Self::default()
        }
    }
}

impl MemberMachine {
    /// Until when this node may serve, if it is live.
    pub(super) fn serve_end(&self) -> Instant {
        if self.known.detached.contains(self.config.me) {
            return self.lease_end;
        }
        let lease = self.pair_lease_ns();
        let ends = self.others().into_iter();
        let ends = ends.map(|node| self.pairs.pairs.get(node).answered.later(lease));
        ends.fold(self.lease_end, Instant::min)
    }

    /// How long after it was sent an answered heartbeat lets its sender serve.
    pub(super) fn pair_lease_ns(&self) -> u64 {
        let config = &self.config;
        config.lease_ns.saturating_sub(config.margin_ns)
    }

    /// The age of the oldest answer of another node.
    pub(super) fn answers_age_ns(&self) -> u64 {
        let ages = self.others().into_iter();
        let ages = ages.map(|node| self.answer_age_ns(node));
        ages.max().unwrap_or(0)
    }

    /// The age of the last answer of a node.
    pub(super) fn answer_age_ns(&self, node: NodeId) -> u64 {
        let answered = self.pairs.pairs.get(node).answered;
        self.stepped.ns.saturating_sub(answered.ns)
    }

    /// The change by which this node stops or starts to need the other nodes' answers to serve: it
    /// detaches before a missing answer ends its service.
    pub(super) fn stance(&self) -> Option<RecordChange> {
        let me = self.config.me;
        if self.known.detached.contains(me) {
            return (self.pairs.well_ns > LEASES_WELL * self.config.lease_ns)
                .then_some(RecordChange::Attach);
        }
        let patience = self
            .pair_lease_ns()
            .saturating_sub(2 * self.config.heartbeat_ns);
        (self.known.serving().contains(me) && self.answers_age_ns() > patience)
            .then_some(RecordChange::Detach)
    }

    /// When all nodes that served in `before` and are not in the known view have stopped.
    pub(super) fn stopped_at(&mut self, now: Instant, before: &ClusterRecord) -> Instant {
        let whole = self.whole_lease_after(now);
        if self.known.released != before.released {
            self.pairs.released_at = whole;
        }
        let is_next = self.known.number.0 == before.number.0.wrapping_add(1);
        if !is_next || !before.has(self.config.me, self.incarnation) {
            return whole;
        }
        let known = &self.known;
        let stays = |node: &NodeId| known.has(*node, before.incarnation(*node));
        let gone = before.serving().into_iter().filter(|node| !stays(node));
        let stopped = |node| match self.pairs.pairs.get(node).received {
            Some(at) => at.later(self.config.lease_ns),
            None => whole,
        };
        gone.map(stopped).fold(self.pairs.released_at, Instant::max)
    }

    /// When the lease of every node that has not read the view store since `now` has ended.
    pub(super) fn whole_lease_after(&self, now: Instant) -> Instant {
        let config = &self.config;
        now.later(config.lease_ns.saturating_add(config.margin_ns))
    }
}

/// For how many leases all nodes must answer a detached node until it attaches.
const LEASES_WELL: u64 = 2;
