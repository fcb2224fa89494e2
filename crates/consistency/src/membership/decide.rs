//! The change of the view that a node proposes, from what it knows.

use curtail_types::{NodeId, NodeSet};

use super::{Aim, Change, Membership};

impl Membership {
    /// The change that this node would propose now: first what concerns itself, then, if it is the
    /// one to do so, what concerns all.
    pub(super) fn wanted(&self) -> Option<Change> {
        let change = self
            .own_change()
            .or_else(|| self.change_for_all())
            .or_else(|| self.stance_of_member())?;
        let next = self
            .known
            .after(change, self.config.me, self.config.replicas);
        next.map(|_| change)
    }

    fn own_change(&self) -> Option<Change> {
        let me = self.config.me;
        let member = self.known.has(me, self.incarnation);
        let leaving = member && self.known.leaving.contains(me);
        match self.aim {
            Aim::Outside => None,
            Aim::Inside if !member => {
                (self.stepped >= self.join_at).then_some(Change::Join(self.incarnation))
            }
            Aim::Leaving if !member => None,
            Aim::Departing => Some(Change::Depart),
            _ if leaving => self.may_depart().then_some(Change::Depart),
            Aim::Leaving => Some(Change::Drain(me)),
            Aim::Inside => self.may_go_live().then_some(Change::Live),
        }
    }

    /// Who is about to do without somebody's answers removes him, if he is silent, too: whoever is
    /// to do that may be slow, and one change is enough for all.
    fn stance_of_member(&self) -> Option<Change> {
        let member = self.known.has(self.config.me, self.incarnation);
        let departs = self.aim == Aim::Departing;
        let stance = self.stance().filter(|_| member && !departs)?;
        let removal = match stance {
            Change::Detach => self.removal(self.silent_for(self.config.suspicion_ns)),
            _ => None,
        };
        removal.or(Some(stance))
    }

    /// A node has every hot key of the newest view, and hears all who are live.
    fn may_go_live(&self) -> bool {
        let view = &self.known.view;
        let newest = view.number;
        let hears = self
            .silent_for(3 * self.config.heartbeat_ns)
            .intersection(view.live)
            .is_empty();
        view.joining.contains(self.config.me)
            && !view.live.is_empty()
            && self.ready == newest
            && self.adopted.number == newest
            && hears
    }

    /// A node that leaves waits until its keys are elsewhere, unless nobody is there to take them.
    fn may_depart(&self) -> bool {
        let me = self.config.me;
        let view = &self.known.view;
        let placed = view.placed.union(view.placed_before).contains(me);
        !view.live.contains(me) || !placed || self.known.staying().is_empty()
    }

    fn change_for_all(&self) -> Option<Change> {
        let me = self.config.me;
        let silent = self.silent_for(self.config.suspicion_ns);
        let view = &self.known.view;
        if view.live.is_empty() {
            return self.form(silent);
        }
        let heard = view.live.difference(silent);
        if heard.first() == Some(me) {
            return self.removal(silent).or_else(|| self.placement());
        }
        let waiting = view.joining.difference(silent);
        if heard.is_empty() && waiting.first() == Some(me) {
            return self.removal(silent);
        }
        None
    }

    /// Whoever is expected is waited for, but not for ever.
    fn form(&self, silent: NodeSet) -> Option<Change> {
        let joining = self.known.view.joining;
        let lowest = joining.difference(silent).first() == Some(self.config.me);
        let all = joining.contains_all(self.config.founders);
        let patience = PATIENCE * self.config.suspicion_ns;
        (lowest && (all || self.leaderless_ns > patience)).then_some(Change::Form)
    }

    /// Who hears less than half of the live nodes may be the one that is cut off: it lets the
    /// others decide first.
    fn removal(&self, silent: NodeSet) -> Option<Change> {
        let view = &self.known.view;
        // Who is cut off has heard some a little later than others, and all of them not just now.
        let doubtful = self.silent_for(self.config.suspicion_ns / 2);
        let heard = view.live.difference(doubtful);
        let late = self.silent_for(PATIENCE * self.config.suspicion_ns);
        let silent = if 2 * heard.len() >= view.live.len() {
            // Whom most of the others hear is not dead: it may be this node's line that is bad.
            let others = heard.without(self.config.me);
            let is_heard = |node: &NodeId| 2 * self.witnesses(others, *node) > others.len();
            silent
                .into_iter()
                .filter(|node| late.contains(*node) || !is_heard(node))
                .collect()
        } else {
            late
        };
        (!silent.is_empty()).then_some(Change::Remove(silent))
    }

    /// How many of `others` say that they hear `node`.
    fn witnesses(&self, others: NodeSet, node: NodeId) -> usize {
        let hears = |other: &NodeId| {
            let heard = self.heard_by.get(usize::from(other.0));
            heard.is_some_and(|heard| heard.contains(node))
        };
        others.into_iter().filter(hears).count()
    }

    fn placement(&self) -> Option<Change> {
        let view = &self.known.view;
        if view.moves() {
            return self
                .moved
                .contains_all(self.known.sources())
                .then_some(Change::Settle);
        }
        // Within a third of a lease everybody has read that keys are about to move. What must not
        // meet a move, such as a key that becomes hot, does not begin from then on, and has ended
        // by now.
        let is_announced = self.unplaced_ns > self.config.lease_ns / 2;
        (is_announced && self.known.awaits_placement()).then_some(Change::Place)
    }
}

/// How many times the usual suspicion is waited in doubt.
const PATIENCE: u64 = 4;
