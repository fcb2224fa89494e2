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

    /// A member that does without another's answers, or is about to, also removes that one if it is
    /// silent: the member whose task that is may be slow, or hear it, and one change is enough for
    /// all.
    fn stance_of_member(&self) -> Option<RecordChange> {
        let member = self.known.has(self.config.me, self.incarnation);
        if !member || self.aim == Aim::Departing {
            return None;
        }
        let stance = self.stance();
        let is_detached = self.known.detached.contains(self.config.me);
        let removal = match is_detached || stance == Some(RecordChange::Detach) {
            true => self.removal(self.silent_for(self.config.suspicion_ns)),
            false => None,
        };
        removal.or(stance)
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
        // Of two that do not hear each other, the lower stays.
        let me = self.config.me;
        let patience = |node: &NodeId| if *node < me { PATIENCE + 2 } else { PATIENCE };
        let is_late = |node: &NodeId| {
            let late = self.silent_for(patience(node) * self.config.suspicion_ns);
            late.contains(*node)
        };
        let hears_most = 2 * heard.len() >= self.keepers.len();
        // Whom most of the others hear is not dead: it may be this node's line that is bad.
        let others = heard.without(me);
        let is_heard = |node: &NodeId| 2 * self.witnesses(others, *node) > others.len();
        let may_go = |node: &NodeId| is_late(node) || (hears_most && !is_heard(node));
        let silent: NodeSet = silent.into_iter().filter(may_go).collect();
        (!silent.is_empty()).then_some(RecordChange::Remove(silent))
    }

    /// How many of `others` say that they hear `node`.
    fn witnesses(&self, others: NodeSet, node: NodeId) -> usize {
        let hears = |other: &NodeId| self.heard_by.get(*other).contains(node);
        others.into_iter().filter(hears).count()
    }
}

/// How many times the usual suspicion is waited in doubt.
const PATIENCE: u64 = 4;
