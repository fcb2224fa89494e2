//! The leases between each two nodes, so that a dead one is missed for a lease, and no longer
//! (requirement CC-85).
//!
//! ```text
//!   X  --- sent = s --->  Y         Y notes that it took in a heartbeat of X, at r; s was before r
//!   X  <-- answers = s -- Y         X may serve until s + lease - margin, as far as Y is concerned
//! ```
//!
//! X serves only as long as *every* other member of the newest view that it knows has answered,
//! and the lease of the store holds, too. So when Y learns that X was taken out, it answers X no
//! more, and X has stopped by r + lease, whatever else X can reach, whenever it wakes. Y need not
//! have waited for the view to say so: the lease runs out while X is suspected and taken out.
//!
//! Why every Y may rely on that:
//!
//! - **X asks for the answers of Y** from when X knows a view that Y is in. X said that it does if
//!   the heartbeat that Y took in told of a view not before the first one with this life of Y;
//!   others are neither counted nor answered. A member that X has just learned of counts as if it
//!   had answered then, which was before that heartbeat was sent.
//! - **X never ceases to ask for them** before it learns of a view without Y; and this life of Y
//!   acts on no view from then on, so on none without X.
//! - **Y sees each removal by itself,** as the difference of two views that follow each other. If
//!   it missed a view, or has taken in nothing of X, it waits a whole lease and a margin from its
//!   reading: by then X's lease of the store has ended, which counts from the start of a reading of
//!   a view with X in it.
//! - **A view that anybody acts on** proves that all who were taken out before have stopped, for
//!   good. So heartbeats tell which view is in force, and nobody waits longer than the first.
//!
//! A node that misses the answers of one other would stop serving until one of them is taken out.
//! It says in the view, in time, that it goes on by the lease of the store alone: it is *detached*.
//! Whoever sees that a node is that no more, or is taken out, waits a whole lease from the end of
//! that reading: before, one of its readings may have shown it a view in which it still was.

use curtail_types::{Instant, NodeId, NodeSet, ViewNumber};

use super::{ClusterRecord, Heartbeat, Incarnation, MemberMachine, RecordChange, after};

/// What a node counts of each other one.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Pairs {
    pairs: [Pair; NodeSet::NODES_MAX],
    /// The first view with this life of this node; 0 if there is none.
    since: ViewNumber,
    /// The newest view that is in force anywhere, as far as was heard.
    pub(super) adopted: ViewNumber,
    /// When all have stopped who served by the lease of the store alone and do not any more.
    released_at: Instant,
    /// For how long all answers have been young.
    pub(super) well_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Pair {
    /// When this node sent the last heartbeat that the other has answered, or first knew of it.
    answered: Instant,
    /// The newest heartbeat of the other that was taken in, by its clock.
    sent: Instant,
    /// When that was, by the clock here.
    taken_in: Option<Instant>,
}

impl Pairs {
    pub(super) const NONE: Self = Self {
        pairs: [Pair {
            answered: Instant { ns: 0 },
            sent: Instant { ns: 0 },
            taken_in: None,
        }; NodeSet::NODES_MAX],
        since: ViewNumber(0),
        adopted: ViewNumber(0),
        released_at: Instant { ns: 0 },
        well_ns: 0,
    };

    /// This node became a member with view `since`.
    pub(super) fn begin(&mut self, since: ViewNumber, now: Instant) {
        self.since = since;
        self.pairs.fill(Pair::first_known(now));
    }

    /// Another life of a node is a member.
    pub(super) fn meet(&mut self, node: NodeId, now: Instant) {
        if let Some(pair) = self.pairs.get_mut(usize::from(node.0)) {
            *pair = Pair::first_known(now);
        }
    }

    /// Takes in a heartbeat of the life of `from` that is known, for the life `own` of this node.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        from: NodeId,
        heartbeat: &Heartbeat,
        own: Incarnation,
    ) {
        self.adopted = self.adopted.max(heartbeat.adopted);
        let knows_this_life = self.since > ViewNumber(0) && heartbeat.view >= self.since;
        let Some(pair) = self.pairs.get_mut(usize::from(from.0)) else {
            return;
        };
        if heartbeat.to_life == own {
            pair.answered = pair.answered.max(heartbeat.answers);
        }
        if knows_this_life {
            pair.sent = pair.sent.max(heartbeat.sent);
            pair.taken_in = Some(now);
        }
    }

    /// What to answer `node`.
    pub(super) fn newest_sent(&self, node: NodeId) -> Instant {
        self.of(node).sent
    }

    fn of(&self, node: NodeId) -> Pair {
        let pair = self.pairs.get(usize::from(node.0));
        pair.copied().unwrap_or_default()
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
        let ends = ends.map(|node| after(self.pairs.of(node).answered, lease));
        ends.fold(self.lease_end, Instant::min)
    }

    /// How long after it was sent an answered heartbeat lets its sender serve.
    pub(super) fn pair_lease_ns(&self) -> u64 {
        let config = &self.config;
        config.lease_ns.saturating_sub(config.margin_ns)
    }

    /// How old the oldest of the others' answers is.
    pub(super) fn answers_age_ns(&self) -> u64 {
        let age = |node| {
            self.stepped
                .ns
                .saturating_sub(self.pairs.of(node).answered.ns)
        };
        self.others().into_iter().map(age).max().unwrap_or(0)
    }

    /// Whether it needs the others' answers to serve: not if one of them stays away.
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

    /// When all have stopped whom the known view does not have any more and `before` had.
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
        let stopped = |node| match self.pairs.of(node).taken_in {
            Some(at) => after(at, self.config.lease_ns),
            None => whole,
        };
        gone.map(stopped).fold(self.pairs.released_at, Instant::max)
    }

    /// When whoever had read the store before now has lost the lease that counts from there.
    pub(super) fn whole_lease_after(&self, now: Instant) -> Instant {
        let config = &self.config;
        after(now, config.lease_ns.saturating_add(config.margin_ns))
    }
}

/// For how many leases all have to answer until a node does without the lease of the store alone.
const LEASES_WELL: u64 = 2;
