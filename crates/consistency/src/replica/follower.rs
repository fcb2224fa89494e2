//! A slice of which this node is not the primary.
//!
//! A follower applies the changes of its stream in order, and acknowledges the last. What may be
//! unfinished it remembers, for the next primary: keys of changes that it does not know to be
//! committed, of this term or of earlier ones that nobody has repaired since.

use alloc::collections::{BTreeSet, VecDeque};

use curtail_types::{Cas, NodeId, NodeSet, RouteHash, ViewNumber};

use super::{
    ReplicaMutant,
    machine::Context,
    message::{Append, ChangeKind, ReplicaMessage},
};
use crate::slice_view::SliceId;

/// What a follower knows of its slice.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Follower {
    /// The term that it obeys.
    pub(super) term: ViewNumber,
    /// The last change that it has applied of its stream; 0 at the beginning of a term.
    pub(super) applied: u64,
    /// Applied changes of this term that may be unfinished.
    pub(super) recent: VecDeque<(u64, RouteHash)>,
    /// Keys whose changes in earlier terms may be unfinished.
    pub(super) left: BTreeSet<RouteHash>,
    /// The highest version that it has seen.
    pub(super) seen: Cas,
    /// The last flush that it has applied.
    pub(super) flushed: Cas,
}

impl Follower {
    /// Obeys the primary of another term.
    pub(super) fn enter_term(&mut self, term: ViewNumber) {
        self.left.extend(self.recent.drain(..).map(|(_, key)| key));
        self.term = term;
        self.applied = 0;
    }

    /// The keys that the primary of a new term has to repair.
    pub(super) fn tail(&self) -> impl Iterator<Item = RouteHash> {
        let recent = self.recent.iter().map(|&(_, key)| key);
        self.left.iter().copied().chain(recent)
    }

    /// Says to the new primary what this node knows to be unfinished.
    pub(super) fn send_tail(&self, cx: &mut Context, slice: SliceId, to: NodeId) {
        let message = ReplicaMessage::Tail {
            slice,
            term: self.term,
            keys: self.tail().collect(),
            seen: self.seen,
            flushed: self.flushed,
        };
        cx.host.send(NodeSet::only(to), &message);
    }

    /// Takes a change of its stream, and acknowledges what it has.
    pub(super) fn append(&mut self, cx: &mut Context, from: NodeId, append: &Append) {
        if append.term != self.term {
            return;
        }
        let begins = append.change.kind == ChangeKind::Begin && append.seq > self.applied;
        let follows = append.prev == self.applied && append.seq > self.applied;
        let follows = follows || cx.has(ReplicaMutant::OrderIgnored);
        if begins {
            if !cx.has(ReplicaMutant::BeginKeeps) {
                cx.host.clear(append.slice, None);
            }
            self.recent.clear();
            self.left.clear();
            self.applied = append.seq;
            self.note_seen(cx, append.change.version);
        } else if follows && append.change.kind != ChangeKind::Begin {
            // Only what is sent to it no more, though it does not know yet, finds no room.
            self.apply(cx, from, append);
        }
        let committed = append.committed;
        while self
            .recent
            .pop_front_if(|&mut (seq, _)| seq <= committed)
            .is_some()
        {}
        let message = ReplicaMessage::Applied {
            slice: append.slice,
            term: self.term,
            seq: self.applied,
        };
        cx.host.send(NodeSet::only(from), &message);
    }

    fn note_seen(&mut self, cx: &mut Context, version: Cas) {
        cx.host.saw(version);
        self.seen = self.seen.max(version);
    }

    fn apply(&mut self, cx: &mut Context, from: NodeId, append: &Append) {
        let change = &append.change;
        match change.kind {
            ChangeKind::Flush => {
                cx.host.clear(append.slice, Some(change.version));
                self.flushed = self.flushed.max(change.version);
            }
            _ if !cx.host.apply(from, change) => return,
            _ => {}
        }
        self.note_seen(cx, change.version);
        self.applied = append.seq;
        self.left.remove(&change.key);
        self.recent.push_back((append.seq, change.key));
    }
}
