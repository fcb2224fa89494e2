//! What a machine does about hot keys: it takes rounds further, as changes are committed and
//! messages arrive, and runs what waited for them.

use alloc::{collections::BTreeSet, vec::Vec};

use curtail_types::{Cas, NodeId, NodeSet, RouteHash};

use super::{
    Gate, ReplicaMutant,
    hot::Write,
    machine::{Context, Replica, Role, primary_of},
    message::{CopyKind, CopyMessage, ReplicaMessage},
    primary::{Asker, Primary},
};
use crate::slice_view::{SliceId, SliceView};

impl Replica {
    fn slice_of(&self, key: RouteHash) -> SliceId {
        let slice = self.view.as_ref().map(|view| view.slice_of(key));
        slice.unwrap_or_default()
    }

    pub(super) fn heat(&mut self, cx: &mut Context, key: RouteHash, is_hot: bool) {
        let slice = self.slice_of(key);
        let leaves = self.leaving.iter().any(|&(of, _)| of == slice);
        match (self.serves(slice), is_hot) {
            (true, true) if !leaves && self.hot.heat(key, slice) => {
                let guards = self.hot.guards(slice);
                if let Some(primary) = primary_of(&mut self.slices, slice) {
                    primary.note_hot(cx, (true, guards));
                }
                let stamp = cx.stamp();
                self.hot.begin_round(cx, key, (0, stamp, None));
            }
            (true, false) => self.hot.cool(cx, key),
            _ => {}
        }
    }

    /// Has all keys of a slice cease to be hot; whether any still is.
    pub(super) fn cool_slice(&mut self, cx: &mut Context, slice: SliceId) -> bool {
        let hot: Vec<RouteHash> = self.hot.owned.keys().copied().collect();
        for key in hot {
            if self.slice_of(key) == slice {
                self.hot.cool(cx, key);
            }
        }
        self.has_hot(slice)
    }

    /// Stamps the installations in a slice anew that were not sent.
    pub(super) fn restart_installs(&mut self, cx: &mut Context, slice: SliceId) {
        for key in self.hot.busy_keys() {
            let owned = self.hot.owned.get(&key);
            let round = owned.and_then(|owned| owned.round.as_ref());
            if self.slice_of(key) == slice && round.is_some_and(|round| !round.is_sent) {
                self.hot.restart(cx, key);
            }
        }
    }

    /// Whether a key of a slice of this primary is hot.
    fn has_hot(&self, slice: SliceId) -> bool {
        let mut keys = self.hot.owned.keys();
        keys.any(|key| self.slice_of(*key) == slice)
    }

    /// Whether writes of the slice are under way between this primary and copies, or members may
    /// still show one of its keys as of an earlier view.
    pub(super) fn is_unsettled(&self, slice: SliceId) -> bool {
        let role = self.slices.get(&slice);
        let takes = matches!(role, Some(Role::Primary(primary)) if primary.has_taken(None));
        self.hot.guards(slice) || takes
    }

    /// Another view: copies go, and with them what is known of writes that are under way, unless
    /// their slice keeps its primary.
    pub(super) fn enter_view_hot(
        &mut self,
        cx: &mut Context,
        (last, next, lasting): (Option<&SliceView>, &SliceView, NodeSet),
    ) {
        let me = cx.config.me;
        let term = |view: &SliceView, slice| view.row(slice).map(|row| row.term);
        let keeps = |key| {
            let slice = next.slice_of(key);
            last.is_some_and(|last| term(last, slice) == term(next, slice))
        };
        let copied = self.hot.copies.keys();
        let mut begins: BTreeSet<SliceId> = copied.map(|key| next.slice_of(*key)).collect();
        let mut guarded = BTreeSet::new();
        let (stage, stages) = cx.config.stage;
        for (slice, row) in next.rows().filter(|(slice, _)| slice.0 % stages == stage) {
            // A former primary that is lost may have been about to drop copies, or to make some.
            let former = last.and_then(|last| last.row(slice));
            let is_lost = former.map_or(row.born == row.term, |former| {
                former.term != row.term && !lasting.contains(former.primary)
            });
            if is_lost {
                begins.insert(slice);
            }
            if self.hot.guards(slice) {
                guarded.insert(slice);
            }
        }
        guarded.extend(&begins);
        // Members may show keys of a slice as of the view that ends: until it is known that none
        // does, nothing runs beside the machine. Before its copy goes: then readers see what is
        // stored, which others may not have yet.
        let guards_late = cx.has(ReplicaMutant::GuardedLate);
        for &slice in guarded.iter().filter(|_| !guards_late) {
            if let Some(primary) = primary_of(&mut self.slices, slice) {
                primary.set_gate(cx, Gate::Closed);
            }
        }
        let is_guarded = |slice: &SliceId| {
            let is_primary = next.row(*slice).is_some_and(|row| row.primary == me);
            is_primary && !cx.has(ReplicaMutant::Unguarded)
        };
        guarded.retain(is_guarded);
        begins.retain(is_guarded);
        self.leaving.clear();
        let of = (next.number, next.members, lasting);
        let guards = (guarded, !begins.is_empty());
        for (key, round) in self.hot.end_own_rounds() {
            let primary = primary_of(&mut self.slices, next.slice_of(key));
            if let (Some(primary), Some(ticket)) = (primary, round.ticket) {
                primary.withhold(round.seq, Asker::Request(ticket));
            }
        }
        self.hot.enter_view(cx, of, guards, keeps);
    }

    /// No member shows anything of an earlier view any more: requests may run beside the machine.
    pub(super) fn note_unguarded(&mut self, cx: &mut Context) {
        let hot = self.hot.owned.keys();
        let hot: Vec<SliceId> = hot.map(|key| self.slice_of(*key)).collect();
        for (slice, role) in &mut self.slices {
            if let Role::Primary(primary) = role {
                primary.note_hot(cx, (hot.contains(slice), false));
            }
        }
    }

    /// Takes rounds as far as they go now, and runs what has waited for them.
    pub(super) fn go_on_hot(&mut self, cx: &mut Context) {
        let slices = &self.slices;
        let view = self.view.as_ref();
        let primary = |key: RouteHash| match view.map(|view| slices.get(&view.slice_of(key))) {
            Some(Some(Role::Primary(primary))) => Some(primary),
            _ => None,
        };
        let hot = &mut self.hot;
        // Of a round whose change is committed: how many nodes have it.
        let committed = |primary: &Primary, key, seq| {
            let is_committed = primary.has_committed(seq) && primary.is_finished(key);
            is_committed.then(|| primary.copies())
        };
        for key in hot.busy_keys() {
            let round = hot.owned.get(&key).and_then(|one| one.round.as_ref());
            if let (Some(primary), Some(round)) = (primary(key), round) {
                hot.go_on(cx, key, committed(primary, key, round.seq));
            }
            hot.drop_copies(cx, key);
            if hot.takes_refresh(cx, key) {
                let stamp = cx.stamp();
                hot.begin_round(cx, key, (0, stamp, None));
                let primary = primary(key);
                let committed = primary.and_then(|primary| committed(primary, key, 0));
                hot.go_on(cx, key, committed);
            }
        }
        for waiting in core::mem::take(&mut self.hot.waiting) {
            self.request(cx, waiting);
        }
        self.hand_over(cx);
    }

    /// Hands slices over that nothing keeps here any more.
    fn hand_over(&mut self, cx: &mut Context) {
        for at in (0..self.leaving.len()).rev() {
            let Some(&(slice, to)) = self.leaving.get(at) else {
                continue;
            };
            if self.cool_slice(cx, slice) || self.is_unsettled(slice) {
                continue;
            }
            if let Some(primary) = primary_of(&mut self.slices, slice) {
                primary.hand_over(cx, to);
            }
            self.leaving.swap_remove(at);
        }
    }

    pub(super) fn receive_copy(&mut self, cx: &mut Context, from: NodeId, message: &CopyMessage) {
        let &CopyMessage {
            key, version, kind, ..
        } = message;
        let slice = self.slice_of(key);
        let is_primary = primary_of(&mut self.slices, slice).is_some();
        let is_late = message.view < self.hot.view;
        match kind {
            _ if message.view > self.hot.view => {}
            CopyKind::Ack if !is_primary => {
                let of = (key, version);
                self.hot.note_ack(cx, (from, message.copies), of);
            }
            CopyKind::Invalidate if is_late => self.take_late(cx, from, message),
            _ if is_late && (is_primary || kind != CopyKind::Reject) => {}
            CopyKind::Invalidate if is_primary => self.take_copy(cx, from, (key, version)),
            CopyKind::Ack if is_primary => self.hot.note_round_ack(from, key, version),
            CopyKind::Reject if is_primary => {
                cx.host.saw(version);
                self.hot.restart(cx, key);
            }
            CopyKind::Reject => {
                if let Some(waiting) = self.hot.take_rejected(from, (key, version)) {
                    self.request(cx, waiting);
                }
            }
            CopyKind::Dropped => {
                self.hot
                    .note_dropped(cx, (key, version), NodeSet::only(from));
                let is_hot = self.has_hot(slice);
                let guards = self.hot.guards(slice);
                if let Some(primary) = primary_of(&mut self.slices, slice) {
                    primary.note_hot(cx, (is_hot, guards));
                }
            }
            _ => self.hot.receive(cx, from, message),
        }
    }

    /// Another node writes a hot key of this primary.
    fn take_copy(&mut self, cx: &mut Context, from: NodeId, of: Write) {
        let (key, version) = of;
        let slice = self.slice_of(key);
        let hot = &mut self.hot;
        let Some(primary) = primary_of(&mut self.slices, slice) else {
            return;
        };
        if primary.has_taken(Some(of)) {
            return;
        }
        cx.host.saw(version);
        let asker = Asker::Writer(from, hot.view, of);
        if hot.has(key, version) {
            return primary.tell(cx, asker);
        }
        let stored = cx.host.item(key).map_or(Cas(0), |(version, _)| version);
        let takes = hot.takes(cx, of, stored) || cx.has(ReplicaMutant::TakesBeside);
        if takes
            && primary.may_take_copy(cx)
            && hot.while_hidden(cx, of, |cx| primary.take_copy(cx, asker))
        {
            hot.settled.insert((key, from), version);
            return primary.commit(cx);
        }
        hot.note_rejected(key, version);
        hot.tell(cx, from, of, CopyKind::Reject);
    }

    /// A write of an earlier view, of which there are no copies here any more. The primary knows
    /// whether it took the write. If it was another then, or the writer was removed since, the
    /// writer learns from the view that the write has no known end.
    fn take_late(&mut self, cx: &mut Context, from: NodeId, message: &CopyMessage) {
        let &CopyMessage {
            view, key, version, ..
        } = message;
        let slice = self.slice_of(key);
        let has_ended = self.view.as_ref().is_none_or(|now| {
            let term = now.row(slice).map(|row| row.term);
            // What a primary took of a removed node it may have forgotten: the others alone said
            // that they dropped the key.
            let is_removed = now.joined(from).is_none_or(|joined| joined > view);
            term.is_none_or(|term| term > view) || is_removed
        });
        if has_ended {
            return;
        }
        cx.host.saw(version);
        let of = (key, version);
        let mut kind = CopyKind::Ack;
        if let Some(primary) = primary_of(&mut self.slices, slice) {
            let settled = self.hot.settled(key, from);
            if primary.has_taken(Some(of)) || version < settled {
                return;
            }
            if version == settled && !cx.has(ReplicaMutant::LateRejected) {
                return primary.tell(cx, Asker::Writer(from, view, of));
            }
            kind = CopyKind::Reject;
        }
        let answer = CopyMessage::new(view, of, kind);
        cx.host
            .send(NodeSet::only(from), &ReplicaMessage::Copy(answer));
    }
}
