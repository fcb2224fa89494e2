//! `flush_all` on a cluster: every slice is emptied by its primary.
//!
//! ```text
//!   client --> flush --> slices of this primary: machines
//!                |  ^--> every other member: flush --> slices of that primary: machines
//!                |                             |
//!                +<----- done, in view v ------+
//! ```
//!
//! A slice that is handed over meanwhile could be missed by both of its primaries. So a node says
//! in which view it has emptied its slices, and what was not done everywhere in the same view
//! begins again. One for later is kept by every node; the first whose time it is then has all nodes
//! flush at once, also those that have joined meanwhile.

use curtail_codec::node::{BatchHead, NodeRequest};
use curtail_consistency::slice_view::SliceId;
use curtail_types::{Exptime, Failure, NodeId, NodeSet, ViewNumber};

use crate::{
    completion::Token,
    node::{
        Cluster, NodeWorker,
        host::NodeContext,
        inbox::{FLUSH, ForwardAnswer},
        stages::{Asker, Completed, End, Job, Origin, send_request, stage_of},
    },
    sync::Relaxed,
};

/// What a worker has to flush.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    last: u32,
    flushes: Vec<Flush>,
}

/// A flush of the slices of this primary; one that no other node asked for, of all.
#[derive(Debug)]
struct Flush {
    number: u32,
    origin: Origin,
    at: Exptime,
    is_later: bool,
    /// The view in which all shall do it; 0 to begin with.
    view: ViewNumber,
    /// Up to here accepted writes are executed first.
    tails: Box<[u64]>,
    /// Slices that are not empty, and those of them that their machines are to be asked of.
    left: usize,
    slices: Vec<SliceId>,
    /// Nodes that have not done it in this view, and those that have not answered.
    nodes: NodeSet,
    asked: NodeSet,
    /// When what found nobody ready is tried again.
    again_ns: u64,
    begun_ns: u64,
    /// How it failed at another node.
    failed: Option<End>,
}

/// How long the slices of a node may take, and how long all nodes.
const PATIENCE_NS: u64 = 5_000_000_000;

/// After how long it is tried again.
const AGAIN_NS: u64 = 2_000_000;

/// A mark in the number of a flush that another node is asked for.
pub(super) const FLUSH_NUMBER: u32 = 1 << 30;

impl Flushes {
    pub(super) fn is_empty(&self) -> bool {
        self.flushes.is_empty()
    }

    fn find(&mut self, number: u32) -> Option<&mut Flush> {
        let mut flushes = self.flushes.iter_mut();
        flushes.find(|flush| flush.number == number)
    }

    /// Another node has flushed what it has, or not.
    pub(super) fn note_flushed(&mut self, number: u32, answer: &ForwardAnswer) {
        let Some(flush) = self.find(number & !FLUSH_NUMBER) else {
            return;
        };
        flush.asked = flush.asked.without(answer.from);
        match answer.end {
            End::Failed(_) => flush.failed = Some(answer.end),
            End::Answered(None) if answer.view == flush.view => {
                flush.nodes = flush.nodes.without(answer.from);
            }
            _ => {}
        }
    }

    /// A node lost what it was asked.
    pub(super) fn lose(&mut self, node: NodeId) {
        for flush in &mut self.flushes {
            flush.asked = flush.asked.without(node);
        }
    }
}

impl Flush {
    const fn is_of_peer(&self) -> bool {
        matches!(self.origin.asker, Asker::Peer { .. })
    }
}

impl NodeWorker {
    /// Whether a flush that the connection in `slot` asked for is under way: what it asks for next
    /// comes after it.
    #[inline]
    pub(crate) fn is_flushing(&self, slot: usize) -> bool {
        let mut flushes = self.flushes.flushes.iter();
        flushes.any(|flush| match flush.origin.asker {
            Asker::Client(token) => token.slot == slot,
            _ => false,
        })
    }

    /// Has all nodes flush; the place of `token` is filled when they have.
    pub(crate) fn flush_for(&mut self, cx: &mut NodeContext<'_>, token: Token, at: Exptime) {
        self.flush(cx, Asker::Client(token), at);
    }

    /// The same for anybody who waits; another node waits for the slices of this primary only.
    pub(super) fn flush(&mut self, cx: &mut NodeContext<'_>, asker: Asker, at: Exptime) {
        let origin = self.origin(asker);
        let due = at.expiry(cx.store_cx.now);
        let is_later = !due.is_never() && !due.is_past(cx.store_cx.now);
        self.flushes.last = (self.flushes.last + 1) % FLUSH_NUMBER;
        let flush = Flush {
            number: self.flushes.last,
            origin,
            at,
            is_later,
            view: ViewNumber(0),
            tails: Box::default(),
            left: 0,
            slices: Vec::new(),
            nodes: NodeSet::NONE,
            asked: NodeSet::NONE,
            again_ns: 0,
            begun_ns: self.now_ns,
            failed: None,
        };
        if !self.serves {
            let end = match flush.is_of_peer() {
                true => End::Elsewhere,
                false => End::Failed(Failure::OutOfService),
            };
            let unserved = Completed::without_value(origin, Vec::new(), end);
            return self.done.push(unserved);
        }
        let due = u64::from(due.to_bits());
        let due = if is_later { due } else { 0 };
        self.cluster.flush_at.store(due, Relaxed);
        self.flushes.flushes.push(flush);
    }

    /// Begins a flush for now that was ordered for this time.
    pub(super) fn flush_in_time(&mut self, cx: &mut NodeContext<'_>) {
        let due = self.cluster.flush_at.load(Relaxed);
        let is_due = due != 0 && u64::from(cx.store_cx.now.unix_seconds()) >= due;
        if is_due && self.serves {
            self.flush(cx, Asker::Nobody, Exptime(0));
        }
    }

    /// Goes on with what is not flushed yet.
    pub(super) fn flush_again(&mut self, cx: &mut NodeContext<'_>) {
        let mut flushes = std::mem::take(&mut self.flushes.flushes);
        flushes.retain_mut(|flush| {
            let end = self.flush_on(cx, flush);
            let end = end.map(|end| Completed::without_value(flush.origin, Vec::new(), end));
            let goes_on = end.is_none();
            self.done.extend(end);
            goes_on
        });
        self.flushes.flushes = flushes;
    }

    /// Takes a flush as far as it goes now; how it ended.
    fn flush_on(&mut self, cx: &mut NodeContext<'_>, flush: &mut Flush) -> Option<End> {
        let patience_ns = PATIENCE_NS * if flush.is_of_peer() { 1 } else { 2 };
        if self.now_ns.saturating_sub(flush.begun_ns) > patience_ns {
            return Some(End::Failed(Failure::Late));
        }
        if flush.failed.is_some() {
            return flush.failed;
        }
        let in_force = self.in_force.clone()?;
        let slices = &in_force.slices;
        if slices.number != flush.view {
            if flush.is_of_peer() && flush.view != ViewNumber(0) {
                return Some(End::Elsewhere);
            }
            flush.view = slices.number;
            if !flush.is_of_peer() {
                flush.nodes = slices.members.without(self.cluster.me);
            }
            flush.tails = cx.host.accepted_tails();
            let own = slices
                .rows()
                .filter(|(_, row)| row.primary == self.cluster.me);
            let own = own.filter(|_| !flush.is_later).map(|(slice, _)| slice);
            flush.slices = own.collect();
            flush.left = flush.slices.len();
        }
        if flush.left == 0 && flush.nodes.is_empty() {
            return Some(End::Done(None));
        }
        if self.now_ns < flush.again_ns {
            return None;
        }
        flush.again_ns = self.now_ns + AGAIN_NS;
        for to in flush.nodes.difference(flush.asked) {
            let request = NodeRequest {
                number: FLUSH_NUMBER | flush.number,
                options: FLUSH,
                bytes: &flush.at.0.to_le_bytes(),
            };
            let head = BatchHead {
                number: self.delegated,
                view: flush.view,
            };
            if send_request(&mut self.links, to, head, request) {
                flush.asked = flush.asked.with(to);
            }
        }
        if cx.host.has_executed(&flush.tails) {
            for slice in flush.slices.drain(..) {
                let origin = self.origin(Asker::Flush(flush.number, flush.view, slice));
                self.give(stage_of(slice), Job::Flush(slice, origin));
            }
        }
        None
    }

    /// The machine of a slice has emptied it, or cannot now.
    pub(super) fn note_slice_flushed(
        &mut self,
        (number, view, slice): (u32, ViewNumber, SliceId),
        end: End,
    ) {
        let flush = self.flushes.find(number);
        if let Some(flush) = flush.filter(|flush| flush.view == view) {
            match end {
                End::Done(_) => flush.left -= 1,
                _ => flush.slices.push(slice),
            }
        }
    }
}

impl Cluster {
    /// A flush that was ordered for now has not been done everywhere: it begins again.
    pub(super) fn flush_soon(&self) {
        self.flush_at.store(1, Relaxed);
    }
}

/// What is in the request of a flush.
pub(super) fn when_to_flush(request: &NodeRequest<'_>) -> Option<Exptime> {
    let at = request.bytes.first_chunk()?;
    Some(Exptime(i64::from_le_bytes(*at)))
}
