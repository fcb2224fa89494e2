//! Changes of rows on their way into the view.
//!
//! ```text
//!   machines of a node --Propose--> own --Forward--> the node that writes: gathered --> one
//!                                    ^ again, while they are wanted                    proposal
//! ```
//!
//! Any node could write the changes of its own slices, but each view makes the others' changes
//! void: several that write would beat each other. So one node, the lowest that is heard, writes
//! all of them together. Two that both believe to be it do no harm.

use alloc::{collections::BTreeSet, sync::Arc};

use curtail_types::{Instant, NodeId};

use super::{Emit, MemberMachine, MemberOutput, RecordChange};
use crate::slice_view::{RowChange, RowStep, SliceRow};

/// Changes that are kept, sent or written at a time. There is more than one of a slice only if one
/// of its followers is silent while another comes.
pub const CHANGES_MAX: usize = 512;

/// What is to be written.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Proposals {
    /// Of this node's machines.
    own: BTreeSet<RowChange>,
    /// When those go to the node that writes.
    own_at: Instant,
    /// What this node writes, if it is the one: all apply to the known view.
    gathered: BTreeSet<RowChange>,
    /// Of later views than the known one, by who wants them.
    ahead: BTreeSet<(NodeId, RowChange)>,
    /// When gathered changes are written that a request waits for, and when others are.
    urgent_at: Instant,
    calm_at: Instant,
}

impl Proposals {
    /// When this node's changes go on.
    pub(super) fn forward_at(&self) -> Option<Instant> {
        (!self.own.is_empty()).then_some(self.own_at)
    }

    /// When what was gathered is written.
    pub(super) fn write_at(&self) -> Option<Instant> {
        let is_urgent = self.gathered.iter().any(|change| is_urgent(change.step));
        match (self.gathered.is_empty(), is_urgent) {
            (true, _) => None,
            (false, true) => Some(self.urgent_at),
            (false, false) => Some(self.urgent_at.max(self.calm_at)),
        }
    }
}

impl MemberMachine {
    /// In another view the changes of the one before are void.
    pub(super) fn begin_proposals(&mut self, now: Instant) {
        let number = self.known.number;
        let proposals = &mut self.proposals;
        proposals.own.retain(|change| change.view >= number);
        proposals.gathered.clear();
        proposals.calm_at = now.later(self.config.calm_ns);
        for (from, change) in core::mem::take(&mut proposals.ahead) {
            self.gather(now, from, &[change]);
        }
    }

    /// A machine of this node wants a change.
    pub(super) fn note_wish(&mut self, now: Instant, change: RowChange) {
        let is_void = change.view < self.known.number;
        let proposals = &mut self.proposals;
        if is_void || proposals.own.len() >= CHANGES_MAX || !proposals.own.insert(change) {
            return;
        }
        let soon = now.later(self.config.gather_ns);
        let waits = proposals.own.len() > 1 && proposals.own_at > now;
        proposals.own_at = match waits {
            true => proposals.own_at.min(soon),
            false => soon,
        };
    }

    /// Takes changes that a node wants. Only a slice's primary is listened to.
    pub(super) fn gather(&mut self, now: Instant, from: NodeId, changes: &[RowChange]) {
        for change in changes {
            if change.view > self.known.number && self.proposals.ahead.len() < CHANGES_MAX {
                self.read_at = now;
                self.proposals.ahead.insert((from, *change));
            } else if self.applies(from, change) && self.proposals.gathered.len() < CHANGES_MAX {
                if self.proposals.gathered.is_empty() {
                    self.proposals.urgent_at = now.later(self.config.gather_ns);
                }
                self.proposals.gathered.insert(*change);
            }
        }
    }

    fn applies(&self, from: NodeId, change: &RowChange) -> bool {
        let Some(slices) = self.known.slices() else {
            return false;
        };
        let applies = |row: &SliceRow| {
            row.primary == from
                && slices.members.contains(change.step.node())
                && row.after(change.step, change.view).is_some()
        };
        change.view == self.known.number && slices.row(change.slice).is_some_and(applies)
    }

    /// Sends this node's changes on.
    pub(super) fn forward(&mut self, now: Instant, emit: Emit) {
        if self.proposals.forward_at().is_none_or(|at| now < at) {
            return;
        }
        self.proposals.own_at = now.later(self.config.heartbeat_ns);
        let changes = self.proposals.own.iter().copied();
        let changes = changes.filter(|change| !self.precedes_removal(change.step));
        let changes: Arc<[RowChange]> = changes.collect();
        if changes.is_empty() {
            return;
        }
        let writer = self.known.members().difference(self.suspected).first();
        match writer {
            Some(me) if me == self.config.me => self.gather(now, me, &changes),
            Some(to) => emit(MemberOutput::Forward { to, changes }),
            None => {}
        }
    }

    /// Whether the step takes out a node that does not answer this one, so that one of the two is
    /// removed soon. If the other one were out first and then this one removed, the slice would be
    /// lost. A follower that is silent beside its heartbeats answers these.
    fn precedes_removal(&self, step: RowStep) -> bool {
        let unanswered_ns = self.answer_age_ns(step.node());
        matches!(step, RowStep::Exit(_)) && unanswered_ns > self.pair_lease_ns() / 2
    }

    /// What this node writes now of what was gathered.
    pub(super) fn changes_of_rows(&self) -> Option<RecordChange> {
        let is_member = self.known.has(self.config.me, self.incarnation);
        let write_at = self.proposals.write_at();
        let is_due = write_at.is_some_and(|at| at <= self.stepped);
        let changes = || self.proposals.gathered.iter().copied().collect();
        (is_member && is_due).then(|| RecordChange::Rows(changes()))
    }
}

/// Whether requests wait for the step: those of the slice until it is handed over, those that wait
/// for a follower which does not answer.
const fn is_urgent(step: RowStep) -> bool {
    matches!(step, RowStep::HandOver(_) | RowStep::Exit(_))
}
