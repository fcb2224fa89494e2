//! A holder catches up: from empty, by a scan of the slice and by what changes meanwhile.
//!
//! Scanned keys are changes of its own stream, so they and later changes arrive in order, and the
//! whole state of the slice is there when the last is acknowledged. From then on every change waits
//! for it (it is *entering*): so it comes closer however many clients write. When it and the other
//! followers have all earlier changes, the primary asks for a view in which it is in sync.

use alloc::collections::VecDeque;

use curtail_types::{NodeId, RouteHash};

use super::{
    Gate, ReplicaMutant,
    machine::Context,
    message::{ChangeKind, SliceChange},
    primary::{Phase, Primary, WHOLE},
};
use crate::slice_view::RowStep;

/// A node that catches up.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct CatchUp {
    pub(super) node: NodeId,
    scan: Scan,
    /// Scanned keys that are not sent yet, with the bytes of their items.
    keys: VecDeque<(RouteHash, u32)>,
    /// The last change that was sent to it alone.
    scanned: u64,
    /// The last change that did not wait for it, once later ones do.
    enters_at: Option<u64>,
}

impl CatchUp {
    /// Whether the node is sent what changes.
    pub(super) fn has_begun(&self) -> bool {
        self.scan != Scan::Waits
    }
}

/// How far the scan is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Scan {
    /// It begins when no request runs beside the machine, and the node has answered.
    Waits,
    /// The host looks for more keys.
    Runs,
    /// The keys that it found are to be sent first.
    Rests,
    /// It has shown everything.
    Done,
}

impl Primary {
    /// Begins to bring in a holder that is not in sync; returns whether one catches up now.
    pub(super) fn begin_catch_up(&mut self, cx: &mut Context) -> bool {
        let behind = self.row.catching_up().first();
        let rests = cx.now < self.rests_until;
        let (Some(node), Phase::Serving, None, false) =
            (behind, &self.phase, &self.catch_up, rests)
        else {
            return self.catch_up.is_some();
        };
        self.catch_up = Some(CatchUp {
            node,
            scan: Scan::Waits,
            keys: VecDeque::new(),
            scanned: 0,
            enters_at: None,
        });
        if self.gate == Gate::Open {
            self.set_gate(cx, Gate::Reads);
            self.is_closing &= !cx.has(ReplicaMutant::GateNotAwaited);
        }
        self.go_on(cx);
        true
    }

    /// The scan found keys.
    pub(super) fn take_scanned(&mut self, keys: &[(RouteHash, u32)], is_done: bool) {
        if let Some(catch_up) = &mut self.catch_up
            && catch_up.scan == Scan::Runs
        {
            catch_up.keys.extend(keys);
            catch_up.scan = if is_done { Scan::Done } else { Scan::Rests };
        }
    }

    /// Sends what there is room for.
    pub(super) fn go_on(&mut self, cx: &mut Context) {
        let Some(mut catch_up) = self.catch_up.take() else {
            return;
        };
        let node = catch_up.node;
        // From then on writes wait for room there, and for what it is behind: a node that does not
        // answer is to hold up none.
        if catch_up.scan == Scan::Waits && !self.is_closing && cx.is_answered(node) {
            self.streams.add(node, false, cx.now);
            // Later than all that was removed before, of which the node will not hear.
            let version = cx.host.next_version();
            self.seen = self.seen.max(version);
            let begin = SliceChange::new(ChangeKind::Begin, WHOLE, version, 0);
            catch_up.scanned = self.append(cx, begin, Some(node));
            cx.host.scan(self.slice, true);
            catch_up.scan = Scan::Runs;
        }
        // The other half of the window is for writes, which wait while it is full: the node is
        // never further behind than that, nor are answers that wait for it once it enters.
        let scan_max = cx.config.window_max.div_ceil(2);
        while let Some(&(key, bytes)) = catch_up.keys.front() {
            let is_full = self.streams.unacknowledged(node) >= scan_max;
            if is_full || !cx.has_room(node, u64::from(bytes)) {
                break;
            }
            catch_up.keys.pop_front();
            if let Some((version, room)) = cx.host.item(key) {
                let room = room.min(bytes);
                let change = SliceChange::new(ChangeKind::Store, key, version, room);
                catch_up.scanned = self.append(cx, change, Some(node));
            }
        }
        if cx.credits.is_refused(node) && !self.streams.counts(node) {
            self.catch_up = Some(catch_up);
            return self.end_catch_up(cx);
        }
        let unacknowledged = self.streams.unacknowledged(node);
        if catch_up.has_begun() && catch_up.keys.is_empty() {
            if catch_up.scan == Scan::Rests && unacknowledged < scan_max {
                cx.host.scan(self.slice, false);
                catch_up.scan = Scan::Runs;
            }
            let acknowledged = self.streams.acknowledged(node);
            let has_scan = catch_up.scan == Scan::Done || cx.has(ReplicaMutant::EntersEarly);
            if has_scan && catch_up.enters_at.is_none() && acknowledged >= catch_up.scanned {
                if !cx.has(ReplicaMutant::EnteringUncounted) {
                    self.streams.count(node);
                }
                catch_up.enters_at = Some(self.streams.last());
            }
            // The scan may have shown what the other followers do not have yet, and the node does
            // not know of which keys: it could not finish them as a primary.
            let is_everywhere = |last| {
                acknowledged >= last
                    && (self.streams.committed() >= last
                        || cx.has(ReplicaMutant::EntersUncommitted))
            };
            if catch_up.enters_at.is_some_and(is_everywhere) {
                self.wish(cx, RowStep::Enter(node));
            }
        }
        self.catch_up = Some(catch_up);
    }

    /// Gives up for a while: the node has no room, or is silent. Before it begins again the node
    /// is to answer.
    pub(super) fn end_catch_up(&mut self, cx: &mut Context) {
        if let Some(catch_up) = self.catch_up.take() {
            let others = self.row.followers().without(catch_up.node);
            self.streams.keep(cx, others);
            cx.credits.doubt(catch_up.node);
            self.rests_until.ns = cx.now.ns + cx.config.patience_ns;
        }
    }
}
