//! The streams of changes from a primary to its followers.
//!
//! Each change names the one before it in its stream: a node that catches up is sent what the
//! others have, and they need not hear of it.

use alloc::collections::{BTreeMap, VecDeque};

use curtail_types::{Cas, Instant, NodeId, NodeSet, RouteHash, ViewNumber};

use super::{
    ReplicaMutant,
    machine::Context,
    message::{Append, ChangeKind, ReplicaMessage, SliceChange},
    primary::WHOLE,
};
use crate::slice_view::SliceId;

/// The streams of a slice.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(super) struct Streams {
    /// The last change.
    seq: u64,
    of: BTreeMap<NodeId, Stream>,
}

/// The stream to one follower.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Stream {
    /// A change is committed only if the follower has it.
    counts: bool,
    /// The last change that was sent.
    last: u64,
    /// Changes that were sent and not acknowledged.
    sent: VecDeque<Append>,
    /// Changes that were sent with what a later change of the key had left, and the last such:
    /// until that is committed, the follower has to remember the key as unfinished.
    sent_late: VecDeque<(u64, u64)>,
    /// Since when the oldest of them has been waited for.
    since: Instant,
    /// More of them were lost than are sent again at a time: further ones are sent as
    /// acknowledgements arrive, and new ones when it is their turn.
    is_behind: bool,
}

/// Changes of a stream that are sent again at a time.
const RESENT_MAX: usize = 8;

impl Streams {
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn add(&mut self, node: NodeId, counts: bool, since: Instant) {
        let stream = Stream {
            counts,
            since,
            ..Stream::default()
        };
        self.of.insert(node, stream);
    }

    /// The followers that every change waits for.
    pub(super) fn counted(&self) -> impl Iterator<Item = NodeId> + use<> {
        let counted = self.of.iter().filter(|(_, stream)| stream.counts);
        let counted: NodeSet = counted.map(|(&node, _)| node).collect();
        counted.into_iter()
    }

    /// How many of `nodes` every change waits for.
    pub(super) fn counted_of(&self, nodes: NodeSet) -> u8 {
        self.counted().filter(|node| nodes.contains(*node)).count() as u8
    }

    pub(super) fn counts(&self, node: NodeId) -> bool {
        self.of.get(&node).is_some_and(|stream| stream.counts)
    }

    /// From now on every change waits for this follower.
    pub(super) fn count(&mut self, node: NodeId) {
        if let Some(stream) = self.of.get_mut(&node) {
            stream.counts = true;
        }
    }

    /// The last change of all.
    pub(super) const fn last(&self) -> u64 {
        self.seq
    }

    /// A follower has applied what it was sent up to here.
    pub(super) fn acknowledged(&self, node: NodeId) -> u64 {
        let oldest = self.of.get(&node).and_then(|stream| stream.sent.front());
        oldest.map_or(self.seq, |append| append.seq - 1)
    }

    /// Changes to a follower that it has not acknowledged.
    pub(super) fn unacknowledged(&self, node: NodeId) -> usize {
        self.of.get(&node).map_or(0, |stream| stream.sent.len())
    }

    /// The most changes that a follower has not acknowledged, be it counted or catching up.
    pub(super) fn longest(&self) -> usize {
        let streams = self.of.values();
        streams.map(|stream| stream.sent.len()).max().unwrap_or(0)
    }

    /// Every counted follower has applied what it was sent up to here.
    pub(super) fn committed(&self) -> u64 {
        let counted = self.of.values().filter(|stream| stream.counts);
        let oldest = counted.filter_map(|stream| stream.sent.front());
        let oldest = oldest.map(|append| append.seq - 1).min();
        oldest.unwrap_or(self.seq)
    }

    /// Sends a change to all, or to one; returns its number.
    pub(super) fn append(
        &mut self,
        cx: &mut Context,
        (slice, term, seen): (SliceId, ViewNumber, Cas),
        change: SliceChange,
        only: Option<NodeId>,
    ) -> u64 {
        let committed = self.committed();
        self.seq += 1;
        let again = (cx.credits.asked(), committed, seen);
        for (&node, stream) in &mut self.of {
            let skips = !stream.counts && only.is_none() && cx.has(ReplicaMutant::LiveUnsent);
            if only.is_some_and(|only| only != node) || skips {
                continue;
            }
            let append = Append {
                slice,
                term,
                prev: stream.last,
                seq: self.seq,
                committed: 0,
                asked: 0,
                change,
            };
            if stream.sent.is_empty() {
                stream.since = cx.now;
            }
            stream.last = self.seq;
            stream.sent.push_back(append);
            cx.credits.spend(node, change.room);
            if !stream.is_behind {
                let at = stream.sent.len() - 1;
                stream.send(cx, node, at, again);
            }
        }
        self.seq
    }

    /// A follower has applied its stream up to `seq`.
    pub(super) fn acknowledge(&mut self, cx: &mut Context, (from, seq): (NodeId, u64), seen: Cas) {
        let again = (cx.credits.asked(), self.committed(), seen);
        let Some(stream) = self.of.get_mut(&from) else {
            return;
        };
        let before = stream.sent.len();
        while let Some(append) = stream.sent.pop_front_if(|append| append.seq <= seq) {
            cx.credits.settle(from, append.change.room);
            stream.since = cx.now;
        }
        let gone = before - stream.sent.len();
        if stream.is_behind && gone > 0 {
            // What comes within reach, and the first, which may have been overtaken.
            let known = RESENT_MAX.saturating_sub(gone);
            for at in 0..stream.sent.len().min(RESENT_MAX) {
                if at == 0 || at >= known {
                    stream.send(cx, from, at, again);
                }
            }
            stream.is_behind = stream.sent.len() > RESENT_MAX;
        }
    }

    /// Whether anything is not acknowledged.
    pub(super) fn waits(&self) -> bool {
        self.of.values().any(|stream| !stream.sent.is_empty())
    }

    /// Sends again what is not acknowledged; returns the followers that have been silent for too
    /// long, which is less for one that does not count.
    pub(super) fn send_again(&mut self, cx: &mut Context, seen: Cas) -> NodeSet {
        let again = (cx.credits.asked(), self.committed(), seen);
        let mut silent = NodeSet::NONE;
        for (&node, stream) in &mut self.of {
            let waits = !stream.sent.is_empty();
            let waited_ns = waits.then(|| cx.now.ns.saturating_sub(stream.since.ns));
            // A write may wait for room there while nothing is sent.
            let silent_ns = waited_ns.max(cx.credits.unanswered_ns(cx.now, node));
            let divisor = if stream.counts { 1 } else { 4 };
            if silent_ns.is_some_and(|ns| ns >= cx.config.suspicion_ns / divisor) {
                silent = silent.with(node);
            }
            let is_due = waited_ns.is_some_and(|ns| ns >= cx.config.retransmit_ns);
            if !is_due || cx.has(ReplicaMutant::NeverResends) {
                continue;
            }
            stream.is_behind = stream.sent.len() > RESENT_MAX;
            for at in 0..stream.sent.len().min(RESENT_MAX) {
                stream.send(cx, node, at, again);
            }
        }
        silent
    }

    /// Ends the streams of all nodes but these.
    pub(super) fn keep(&mut self, cx: &mut Context, nodes: NodeSet) {
        self.of.retain(|node, stream| {
            let stays = nodes.contains(*node);
            if !stays {
                for append in &stream.sent {
                    cx.credits.give_up(*node, append.change.room);
                }
            }
            stays
        });
    }
}

impl Stream {
    /// Sends one of the changes that are not acknowledged.
    fn send(
        &mut self,
        cx: &mut Context,
        to: NodeId,
        at: usize,
        (asked, committed, seen): (u64, u64, Cas),
    ) {
        let Some(&(mut append)) = self.sent.get(at) else {
            return;
        };
        if append.change.kind == ChangeKind::Store {
            // What is sent is what is stored now, or that there is nothing: later than the change.
            append.change.version = append.change.version.max(seen);
            if let Some(later) = self.later(at, append.change.key) {
                self.sent_late.retain(|&(seq, _)| seq != append.seq);
                self.sent_late.push_back((append.seq, later));
            }
        }
        append.asked = asked;
        append.committed = self.told(committed);
        cx.host
            .send(NodeSet::only(to), &ReplicaMessage::Append(append));
    }

    /// The last change of a key that follows here.
    fn later(&self, at: usize, key: RouteHash) -> Option<u64> {
        let mut later = self.sent.iter().skip(at + 1).rev();
        let last = later.find(|append| append.change.key == key || append.change.key == WHOLE);
        last.map(|append| append.seq)
    }

    /// Up to which change the follower may forget which keys are unfinished: none that it has not
    /// acknowledged, and none of which it was sent what a later one, not committed, had left.
    fn told(&mut self, committed: u64) -> u64 {
        self.sent_late.retain(|&(_, later)| later > committed);
        let late = self.sent_late.iter().map(|&(seq, _)| seq);
        let unacknowledged = self.sent.front().map(|append| append.seq);
        let first = late.chain(unacknowledged).min();
        first.map_or(committed, |first| committed.min(first - 1))
    }
}
