//! `flush_all` on a cluster: every slice is emptied by its primary.
//!
//! ```text
//!   client --> order --> every member: run --> each slice of this primary: machine
//!                <------------ done, in view v --------+
//! ```
//!
//! A slice that is handed over meanwhile could be missed by both of its primaries. So a node says
//! in which view it has emptied its slices, and an order that was not carried out everywhere in the
//! same view begins again. One for later is kept by every node; the first whose time it is then
//! orders one for now, also of nodes that have joined meanwhile.

use curtail_codec::node::NodeRequest;
use curtail_consistency::slice_view::SliceId;
use curtail_types::{Cas, Exptime, Failure, NodeSet, ViewNumber};

use crate::{
    completion::Token,
    node::{
        Cluster, NodeWorker,
        host::NodeContext,
        stages::{Asker, Completed, End, Job, Origin, stage_of},
    },
    sync::Relaxed,
};

/// What a worker has to flush.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    last: u64,
    orders: Vec<Order>,
    runs: Vec<Run>,
}

/// A flush that a client of this worker, or a thread, has asked for.
#[derive(Debug)]
struct Order {
    number: u64,
    origin: Origin,
    view: ViewNumber,
    /// Nodes that have not done it.
    left: usize,
    /// All that have did it in the view.
    agree: bool,
    begun_ns: u64,
}

/// The slices of this node that are to be emptied.
#[derive(Debug)]
struct Run {
    number: u64,
    origin: Origin,
    bytes: Vec<u8>,
    view: ViewNumber,
    /// Up to here accepted writes are executed first.
    tails: Box<[u64]>,
    /// Slices that are not empty; those that are to be tried again, and when.
    left: usize,
    again: Vec<(SliceId, u64)>,
    begun_ns: u64,
}

/// How long a flush may take.
const PATIENCE_NS: u64 = 5_000_000_000;

/// After how long a slice is tried again.
const AGAIN_NS: u64 = 2_000_000;

impl Flushes {
    pub(super) fn is_empty(&self) -> bool {
        self.orders.is_empty() && self.runs.is_empty()
    }
}

impl NodeWorker {
    /// Whether a flush that the connection in `slot` asked for is under way: what it asks for next
    /// comes after it.
    #[inline]
    pub(crate) fn is_flushing(&self, slot: usize) -> bool {
        let mut orders = self.flushes.orders.iter();
        orders.any(|order| match order.origin.asker {
            Asker::Client(token) => token.slot == slot,
            _ => false,
        })
    }

    /// Has all nodes flush; the place of `token` is filled when they have.
    pub(crate) fn order_flush_of(&mut self, cx: &mut NodeContext<'_>, token: Token, at: Exptime) {
        self.order_flush(cx, Asker::Client(token), at);
    }

    /// The same for anybody who waits.
    pub(super) fn order_flush(&mut self, cx: &mut NodeContext<'_>, asker: Asker, at: Exptime) {
        let origin = self.origin(asker);
        if !self.serves {
            let failed = Completed::failed(origin, Vec::new(), Failure::OutOfService);
            return self.done.push(failed);
        }
        self.flushes.last += 1;
        let number = self.flushes.last;
        self.flushes.orders.push(Order {
            number,
            origin,
            view: ViewNumber(0),
            left: 0,
            agree: true,
            begun_ns: self.now_ns,
        });
        self.begin_order(cx, number, at);
    }

    fn begin_order(&mut self, cx: &mut NodeContext<'_>, number: u64, at: Exptime) {
        let Some(in_force) = &self.in_force else {
            return;
        };
        let (view, members) = (in_force.slices.number, in_force.slices.members);
        let mut orders = self.flushes.orders.iter_mut();
        let Some(order) = orders.find(|order| order.number == number) else {
            return;
        };
        (order.view, order.left, order.agree) = (view, members.len(), true);
        let origin = self.origin(Asker::Order(number));
        let bytes = at.0.to_le_bytes();
        for to in members.difference(NodeSet::only(self.cluster.me)) {
            let now = cx.store_cx.now.instant;
            self.relay(now, (origin, to), None, bytes.to_vec());
        }
        self.run_flush(cx, origin, bytes.to_vec(), at);
    }

    /// Flushes what this node has.
    pub(super) fn run_flush(
        &mut self,
        cx: &mut NodeContext<'_>,
        origin: Origin,
        bytes: Vec<u8>,
        at: Exptime,
    ) {
        let now = cx.store_cx.now;
        let due = at.expiry(now);
        let is_later = !due.is_never() && !due.is_past(now);
        let due = if is_later {
            u64::from(due.to_bits())
        } else {
            0
        };
        self.cluster.flush_at.store(due, Relaxed);
        let Some(in_force) = self.in_force.clone().filter(|_| self.serves) else {
            let elsewhere = Completed::without_value(origin, bytes, End::Elsewhere);
            return self.done.push(elsewhere);
        };
        let view = in_force.slices.number;
        if is_later {
            let done = (End::Done(None), view);
            return self.done.push(flushed(origin, bytes, done));
        }
        self.flushes.last += 1;
        let mut run = Run {
            number: self.flushes.last,
            origin,
            bytes,
            view,
            tails: cx.host.accepted_tails(),
            left: 0,
            again: Vec::new(),
            begun_ns: self.now_ns,
        };
        let own = in_force
            .slices
            .rows()
            .filter(|(_, row)| row.primary == self.cluster.me);
        run.again = own.map(|(slice, _)| (slice, 0)).collect();
        run.left = run.again.len();
        self.flushes.runs.push(run);
        self.flush_again(cx);
    }

    /// Orders a flush for now that was ordered for this time.
    pub(super) fn flush_in_time(&mut self, cx: &mut NodeContext<'_>) {
        let due = self.cluster.flush_at.load(Relaxed);
        let is_due = due != 0 && u64::from(cx.store_cx.now.unix_seconds()) >= due;
        if is_due && self.serves {
            self.order_flush(cx, Asker::Nobody, Exptime(0));
        }
    }

    /// Goes on with what is not flushed yet.
    pub(super) fn flush_again(&mut self, cx: &mut NodeContext<'_>) {
        if self.flushes.is_empty() {
            return;
        }
        let now_ns = cx.store_cx.now.instant.ns;
        let view = self.in_force.as_ref().map(|now| now.slices.number);
        let mut runs = std::mem::take(&mut self.flushes.runs);
        runs.retain_mut(|run| {
            let is_late = now_ns.saturating_sub(run.begun_ns) > PATIENCE_NS;
            let end = match () {
                () if is_late => Some(End::Failed(Failure::Late)),
                () if view != Some(run.view) => Some(End::Elsewhere),
                () if run.left == 0 => Some(End::Done(None)),
                () => None,
            };
            if let Some(end) = end {
                let bytes = std::mem::take(&mut run.bytes);
                self.done.push(flushed(run.origin, bytes, (end, run.view)));
                return false;
            }
            if !cx.host.has_executed(&run.tails) {
                return true;
            }
            let due = run.again.extract_if(.., |(_, at_ns)| *at_ns <= now_ns);
            let due: Vec<SliceId> = due.map(|(slice, _)| slice).collect();
            for slice in due {
                let origin = self.origin(Asker::Flush(run.number, slice));
                self.give(stage_of(slice), Job::Flush(slice, origin));
            }
            true
        });
        runs.append(&mut self.flushes.runs);
        self.flushes.runs = runs;
        self.end_orders(now_ns);
    }

    fn end_orders(&mut self, now_ns: u64) {
        let Self { flushes, done, .. } = self;
        flushes.orders.retain(|order| {
            let is_late = now_ns.saturating_sub(order.begun_ns) > 2 * PATIENCE_NS;
            if is_late {
                done.push(Completed::failed(order.origin, Vec::new(), Failure::Late));
            }
            !is_late
        });
    }

    /// The machine of a slice has emptied it, or cannot now.
    pub(super) fn note_slice_flushed(&mut self, (number, slice): (u64, SliceId), end: End) {
        let again_ns = self.now_ns + AGAIN_NS;
        let mut runs = self.flushes.runs.iter_mut();
        if let Some(run) = runs.find(|run| run.number == number) {
            match end {
                End::Done(_) => run.left -= 1,
                _ => run.again.push((slice, again_ns)),
            }
        }
    }

    /// A node has flushed what it has, in the view `view`.
    pub(super) fn note_node_flushed(
        &mut self,
        cx: &mut NodeContext<'_>,
        number: u64,
        completed: &Completed,
    ) {
        let orders = &mut self.flushes.orders;
        let Some(at) = orders.iter().position(|order| order.number == number) else {
            return;
        };
        let Some(order) = orders.get_mut(at) else {
            return;
        };
        let failure = match completed.end {
            End::Failed(failure) => Some(failure),
            _ => None,
        };
        order.left = order.left.saturating_sub(1);
        order.agree &= completed.shown == Cas(u64::from(order.view.0));
        if failure.is_none() && order.left > 0 {
            return;
        }
        if failure.is_none() && !order.agree {
            let request = completed.request.first_chunk();
            let at = request.map_or(0, |at| i64::from_le_bytes(*at));
            return self.begin_order(cx, number, Exptime(at));
        }
        let order = orders.swap_remove(at);
        let origin = order.origin;
        let end = failure.map_or(End::Done(None), End::Failed);
        self.done
            .push(Completed::without_value(origin, Vec::new(), end));
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

/// How the flush of a node's slices ended; once they are empty, in which view.
fn flushed(origin: Origin, bytes: Vec<u8>, (end, view): (End, ViewNumber)) -> Completed {
    let is_done = matches!(end, End::Done(_));
    Completed {
        shown: Cas(if is_done { u64::from(view.0) } else { 0 }),
        ..Completed::without_value(origin, bytes, end)
    }
}
