//! The change of the view that a node proposes, from what it knows.

use curtail_types::{NodeId, NodeSet};

use super::{Aim, MemberMachine, RecordChange};

/// So many heartbeats a node that leaves stays when it has nothing any more.
const EMPTY_HEARTBEATS: u64 = 3;

impl MemberMachine {
    /// The change that this node would propose now: first what concerns itself, then, if it is the
    /// one to do so, what concerns all.
    pub(super) fn wanted(&self) -> Option<RecordChange> {
        let change = self
            .own_change()
            .or_else(|| self.change_for_all())
            .or_else(|| self.stance_of_member())
            .or_else(|| self.changes_of_rows())?;
        let next = self.known.after(&change, self.config.me, self.config.plan);
        next.map(|_| change)
    }

    fn own_change(&self) -> Option<RecordChange> {
        let me = self.config.me;
        let member = self.known.has(me, self.incarnation);
        let leaving = member && self.known.leaving.contains(me);
        match self.aim {
            Aim::Outside => None,
            Aim::Inside if !member => {
                (self.stepped >= self.join_at).then_some(RecordChange::Join(self.incarnation))
            }
            Aim::Leaving if !member => None,
            Aim::Departing => Some(RecordChange::Depart),
            _ if leaving => self.is_empty().then_some(RecordChange::Depart),
            Aim::Leaving => Some(RecordChange::Drain(me)),
            Aim::Inside => None,
        }
    }

    /// Whether it has had nothing for long enough that the others know of it, and have the answers
    /// to what they asked it before.
    fn is_empty(&self) -> bool {
        let wait_ns = EMPTY_HEARTBEATS * self.config.heartbeat_ns;
        let since = self.empty_since;
        since.is_some_and(|since| self.stepped.ns >= since.ns + wait_ns)
    }

    /// A member that is about to do without another's answers also removes that one if it is
    /// silent: the member whose task that is may be slow, and one change is enough for all.
    fn stance_of_member(&self) -> Option<RecordChange> {
        let member = self.known.has(self.config.me, self.incarnation);
        let departs = self.aim == Aim::Departing;
        let stance = self.stance().filter(|_| member && !departs)?;
        let removal = match stance {
            RecordChange::Detach => self.removal(self.silent_for(self.config.suspicion_ns)),
            _ => None,
        };
        removal.or(Some(stance))
    }

    /// The lowest of those who hold something removes the silent; if none of these is heard, the
    /// lowest member that is.
    fn change_for_all(&self) -> Option<RecordChange> {
        let silent = self.silent_for(self.config.suspicion_ns);
        if self.known.slices().is_none() {
            return self.form(silent);
        }
        let heard = self.keepers.difference(silent);
        let lowest = match heard.is_empty() {
            true => self.known.members().difference(silent).first(),
            false => heard.first(),
        };
        match lowest == Some(self.config.me) {
            true => self.removal(silent),
            false => None,
        }
    }

    /// Waits for the members that are expected, but not for ever.
    fn form(&self, silent: NodeSet) -> Option<RecordChange> {
        let waiting = self.known.members();
        let lowest = waiting.difference(silent).first() == Some(self.config.me);
        let all = waiting.contains_all(self.config.founders);
        let patience = PATIENCE * self.config.suspicion_ns;
        (lowest && (all || self.unformed_ns > patience)).then_some(RecordChange::Form)
    }

    /// Who hears less than half of those that hold something may be the one that is cut off: it
    /// lets the others decide first.
    fn removal(&self, silent: NodeSet) -> Option<RecordChange> {
        // Who is cut off has heard some a little later than others, and all of them not just now.
        let doubtful = self.silent_for(self.config.suspicion_ns / 2);
        let heard = self.keepers.difference(doubtful);
        let late = self.silent_for(PATIENCE * self.config.suspicion_ns);
        let silent = if 2 * heard.len() >= self.keepers.len() {
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
        (!silent.is_empty()).then_some(RecordChange::Remove(silent))
    }

    /// How many of `others` say that they hear `node`.
    fn witnesses(&self, others: NodeSet, node: NodeId) -> usize {
        let hears = |other: &NodeId| {
            let heard = self.heard_by.get(usize::from(other.0));
            heard.is_some_and(|heard| heard.contains(node))
        };
        others.into_iter().filter(hears).count()
    }
}

/// How many times the usual suspicion is waited in doubt.
const PATIENCE: u64 = 4;
