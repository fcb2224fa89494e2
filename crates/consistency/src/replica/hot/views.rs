//! What becomes of copies, and of writes that are under way, when another view or time comes.

use alloc::collections::BTreeSet;

use curtail_types::{Cas, Instant, NodeId, NodeSet, RouteHash, ViewNumber};

use super::{
    super::{
        CopyState, ReplicaMutant, ReplicaRefusal,
        machine::Context,
        message::{CopyKind, CopyMessage, ReplicaMessage},
    },
    HotKeys, OwnedStage, WriterRound, give_up,
};
use crate::slice_view::SliceId;

impl HotKeys {
    /// Another view: there are no copies any more. Members may still show keys of slices that are
    /// `guarded`: as of this view, if the guard of one `begins`, else as of the view in which it
    /// began. So views that follow each other quickly do not prolong a guard. A write that this
    /// node makes at another primary goes on if its slice `keeps` that, else it has no known end.
    pub(in crate::replica) fn enter_view(
        &mut self,
        cx: &mut Context,
        (view, members, lasting): (ViewNumber, NodeSet, NodeSet),
        (guarded, begins): (BTreeSet<SliceId>, bool),
        keeps: impl Fn(RouteHash) -> bool,
    ) {
        let lost = self.members.difference(lasting);
        self.settled.retain(|&(key, _), _| keeps(key));
        self.rounds.retain(|&(key, _), round| {
            let goes_on = keeps(key);
            if !goes_on {
                cx.host
                    .refuse(round.request.ticket, ReplicaRefusal::Unknown);
            }
            round.missing = round.missing.intersection(lasting);
            goes_on
        });
        let keeps_copies = cx.has(ReplicaMutant::CopiesKept);
        self.floor = Cas(0);
        let had_copies = !self.copies.is_empty();
        for &key in self.copies.keys().filter(|_| !keeps_copies) {
            cx.host.show(key, Cas(0), CopyState::Absent, false);
        }
        if !keeps_copies {
            self.copies.clear();
        }
        if begins || self.guarded.is_empty() {
            (self.guarded_since, self.missing) = (view, lasting.without(cx.config.me));
        }
        self.missing = self.missing.intersection(lasting);
        self.guarded = guarded;
        (self.view, self.members) = (view, members);
        if had_copies || !lost.is_empty() {
            cx.host
                .send(self.others(cx), &ReplicaMessage::Entered(view));
        }
        self.ask_entered(cx);
        self.answer_shown(cx);
        if self.missing.is_empty() {
            self.guarded.clear();
        }
        self.end_rounds(cx);
    }

    /// Asks whether members have entered the view, if anything waits for that.
    fn ask_entered(&self, cx: &mut Context) {
        let late = self.rounds.values().filter(|one| one.view < self.view);
        let of_rounds = late.fold(NodeSet::NONE, |all, round| {
            all.union(round.missing.without(round.primary))
        });
        let of_guard = match self.guarded.is_empty() {
            true => NodeSet::NONE,
            false => self.missing,
        };
        let asked = of_rounds.union(of_guard);
        if !asked.is_empty() {
            cx.host
                .send(asked, &ReplicaMessage::EnteredWanted(self.view));
        }
    }

    /// Ends the rounds for which nobody is missing any more.
    fn end_rounds(&mut self, cx: &mut Context) {
        let done = |(&of, round): (&_, &WriterRound)| round.missing.is_empty().then_some(of);
        while let Some(of) = self.rounds.iter().find_map(done) {
            self.end_round(cx, of);
        }
    }

    /// A member has entered a view, and shows nothing of an earlier one; whether that ends all
    /// guards.
    pub(in crate::replica) fn note_entered(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        view: ViewNumber,
    ) -> bool {
        if view == self.view {
            for round in self.rounds.values_mut() {
                if round.view < view && from != round.primary {
                    round.missing = round.missing.without(from);
                }
            }
            self.end_rounds(cx);
        }
        if view < self.guarded_since {
            return false;
        }
        self.missing = self.missing.without(from);
        let ends = self.missing.is_empty() && !self.guarded.is_empty();
        if ends {
            self.guarded.clear();
        }
        ends
    }

    /// Sends again what has no answer, and refuses what has waited for too long.
    pub(in crate::replica) fn tick(&mut self, cx: &mut Context) {
        self.ask_entered(cx);
        let (at, patience_ns) = (cx.now.ns, cx.config.patience_ns);
        let is_over = |since: Instant| at - since.ns >= patience_ns;
        let now = self.view;
        self.rounds.retain(|&of, round| {
            let is_late = round.view < now;
            if is_late && is_over(round.since) {
                cx.host
                    .refuse(round.request.ticket, ReplicaRefusal::Unknown);
                return false;
            }
            let to = match is_late {
                true => round.missing.intersection(NodeSet::only(round.primary)),
                false => round.missing,
            };
            let message = CopyMessage::new(round.view, of, CopyKind::Invalidate);
            if !to.is_empty() {
                cx.host
                    .send_write(to, &ReplicaMessage::Copy(message), round.request.ticket);
            }
            true
        });
        let others = self.others(cx);
        let view = self.view;
        for (&key, owned) in &mut self.owned {
            if let OwnedStage::Dropping(left, version) = owned.stage {
                let message = CopyMessage::new(view, (key, version), CopyKind::Drop);
                cx.host.send(left, &ReplicaMessage::Copy(message));
            }
            if let Some(round) = &mut owned.round {
                round.is_sent = false;
            }
        }
        for (&key, copy) in &self.copies {
            let is_own = self.rounds.contains_key(&(key, copy.version));
            let has_round = self.owned.get(&key).is_some_and(|one| one.round.is_some());
            if copy.state == CopyState::Invalid && !is_own && !has_round {
                let writer = NodeSet::only(copy.version.writer().node());
                let message = self.message(key, copy.version, CopyKind::ValidateWanted);
                cx.host.send(writer.intersection(others), &message);
            }
        }
        self.waiting.retain(|(request, since)| {
            if is_over(*since) {
                cx.host.refuse(request.ticket, ReplicaRefusal::Late);
            }
            !is_over(*since)
        });
        self.answers.retain(|((request, since), _)| {
            if is_over(*since) {
                give_up(cx, request);
            }
            !is_over(*since)
        });
    }
}
