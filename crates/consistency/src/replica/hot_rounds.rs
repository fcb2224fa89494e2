//! What a machine does about hot keys: it takes rounds further, as changes are committed and
//! messages arrive, and runs what waited for them.

use alloc::{collections::BTreeSet, vec::Vec};

use curtail_types::{Cas, NodeId, NodeSet, RouteHash, ViewNumber};

use super::{
    Gate, ReplicaMutant, ReplicaRefusal, Ticket,
    hot::Write,
    machine::{Context, Replica, Role, primary_of},
    message::{CopyKind, CopyMessage, ReplicaMessage},
    primary::Primary,
};
use crate::slice_view::{SliceId, SliceView};

/// A write that this primary took, and that is to be told when its change is committed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Taken {
    asker: Asker,
    /// The key, and the version of the write.
    of: Write,
    /// The change.
    seq: u64,
}

/// Whom it is told.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Asker {
    /// The node that made it, in this view.
    Writer(NodeId, ViewNumber),
    /// Whose request this primary ran in an earlier view.
    Request(Ticket),
}

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

    /// Whether a key of a slice of this primary is hot.
    fn has_hot(&self, slice: SliceId) -> bool {
        let mut keys = self.hot.owned.keys();
        keys.any(|key| self.slice_of(*key) == slice)
    }

    /// Whether writes of the slice are under way between this primary and copies, or members may
    /// still show one of its keys as of an earlier view.
    pub(super) fn is_unsettled(&self, slice: SliceId) -> bool {
        let mut taken = self.taken.iter();
        self.hot.guards(slice) || taken.any(|taken| self.slice_of(taken.of.0) == slice)
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
        let go_on = self.hot.enter_view(cx, of, guards, keeps);
        self.taken.retain(|taken| {
            let lasts = match taken.asker {
                Asker::Writer(from, _) => lasting.contains(from),
                Asker::Request(_) => true,
            };
            match (keeps(taken.of.0), taken.asker) {
                (true, _) => return lasts,
                (false, Asker::Request(ticket)) => cx.host.refuse(ticket, ReplicaRefusal::Unknown),
                (false, Asker::Writer(..)) => {}
            }
            false
        });
        for (key, version, seq, ticket) in go_on {
            let asker = Asker::Request(ticket);
            let of = (key, version);
            self.taken.push(Taken { asker, of, seq });
        }
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
        self.taken.retain(|taken| {
            let primary = primary(taken.of.0);
            let is_committed = primary.is_some_and(|primary| {
                primary.has_committed(taken.seq) && !hot.guards(primary.slice)
            });
            let acks = is_committed || cx.has(ReplicaMutant::AcksUncommitted);
            match taken.asker {
                Asker::Writer(from, view) if acks => {
                    let message = CopyMessage {
                        copies: primary.map_or(0, |primary| primary.copies()),
                        ..CopyMessage::new(view, taken.of, CopyKind::Ack)
                    };
                    cx.host
                        .send(NodeSet::only(from), &ReplicaMessage::Copy(message));
                }
                Asker::Request(ticket) if acks => {
                    cx.host
                        .respond(ticket, primary.map_or(0, |primary| primary.copies()));
                }
                _ => {}
            }
            !acks
        });
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
        if self.taken.iter().any(|taken| taken.of == of) {
            return;
        }
        let stored = cx.host.item(key).map_or(Cas(0), |(version, _)| version);
        cx.host.saw(version);
        let mut kind = CopyKind::Ack;
        if !self.hot.has(key, version) {
            let slice = self.slice_of(key);
            let takes = self.hot.takes(cx, of, stored) || cx.has(ReplicaMutant::TakesBeside);
            let primary = primary_of(&mut self.slices, slice).filter(|_| takes);
            let hot = &mut self.hot;
            if let Some(primary) = primary
                && primary.may_take_copy(cx)
                && let Some(seq) = hot.while_hidden(cx, of, |cx| primary.take_copy(cx, of))
            {
                hot.settled.insert((key, from), version);
                let asker = Asker::Writer(from, self.hot.view);
                return self.taken.push(Taken { asker, of, seq });
            }
            self.hot.note_rejected(key, version);
            kind = CopyKind::Reject;
        }
        let answer = CopyMessage::new(self.hot.view, of, kind);
        self.answer_copy(cx, from, answer);
    }

    /// Answers a write of a copy; with an acknowledgement a primary says how many nodes have it.
    fn answer_copy(&mut self, cx: &mut Context, to: NodeId, mut answer: CopyMessage) {
        let slice = self.slice_of(answer.key);
        let primary = primary_of(&mut self.slices, slice);
        let primary = primary.filter(|_| answer.kind == CopyKind::Ack);
        answer.copies = primary.map_or(0, |primary| primary.copies());
        let answer = ReplicaMessage::Copy(answer);
        cx.host.send(NodeSet::only(to), &answer);
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
        let mut kind = CopyKind::Ack;
        cx.host.saw(version);
        if primary_of(&mut self.slices, slice).is_some() {
            let of = (key, version);
            let is_awaited = self.taken.iter().any(|one| one.of == of);
            let settled = self.hot.settled(key, from);
            if is_awaited || version < settled {
                return;
            }
            if version > settled || cx.has(ReplicaMutant::LateRejected) {
                kind = CopyKind::Reject;
            }
        }
        self.answer_copy(cx, from, CopyMessage { kind, ..*message });
    }
}
